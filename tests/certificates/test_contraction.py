"""The theorem's right-hand side against measured errors, and error bars that cover in spite of bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr

import rfkalman as rk
from rfkalman.certificates import approximation as ap
from rfkalman.certificates import contraction as co
from rfkalman.certificates import dynamics as dy
from rfkalman.errors import ShapeError, ValueRangeError
from rfkalman.experiments.truth import SineSeries
from rfkalman.filters import kalman

LINE = rk.Box([0.0], [1.0])


# -- problems ---------------------------------------------------------------------------------------------------------


@dataclass
class Problem:
    """One draw: features, field, sensors, prior; the theorem's data come from the model's own trajectory zbar."""

    space: rk.WhitenedSpace
    route: dy.Dynamics
    projected: np.ndarray  # L2 projections of the field, (N + 1, r)
    missed: np.ndarray  # ||u* - P u*||, (N + 1,)
    observations: list
    forecasts: list
    analyses: list
    sigma: float
    truth: SineSeries
    sensors: list

    @property
    def steps(self):
        return [rk.ImplicitEuler().step(self.space.generator(), 0.0, self.route.dt)] * (len(self.observations) - 1)

    @property
    def zbar(self):
        z = [self.route.coeffs[0]]
        for step in self.steps:
            z.append(step.apply(z[-1]))
        return np.array(z)

    @property
    def deviation(self):
        grams = [obs.H.T @ obs.H / obs.n_obs for obs in self.observations]
        return max(float(np.abs(np.linalg.eigvalsh(G) - 1.0).max()) for G in grams)

    @property
    def trace(self):
        return max(float(np.square(belief.root).sum()) for belief in self.analyses)

    @property
    def information(self):
        return min(1.0 / float(np.linalg.eigvalsh(belief.cov)[-1]) for belief in self.analyses)

    def bound(self, **changes):
        found = self.route
        numbers = {
            "epsilon": found.epsilon, "rank": self.space.rank, "dt": found.dt, "horizon": found.horizon,
            "constant": found.constant, "stability": found.stability, "noise_std": self.sigma,
            "n_obs": self.observations[0].n_obs, "gram_deviation": self.deviation, "information": self.information,
            "bias": found.bias, "trace": self.trace, "is_projection": found.route != "Galerkin",
        }  # fmt: skip
        return co.contraction(**(numbers | changes))

    def mean_square_errors(self, n_streams, rng, start, misfits=None):
        """E ||u_hat - u*||^2 over noise replications and its standard error at each time, (N + 1,) each."""
        prior = rk.Gaussian(self.zbar[0] + start, self.forecasts[0])
        sequence = []
        for n, (obs, z) in enumerate(zip(self.observations, self.zbar, strict=True)):
            mean = obs.H @ z + (0.0 if misfits is None else misfits[n])
            y = mean[:, None] + self.sigma * rng.standard_normal((obs.n_obs, n_streams))
            sequence.append((self.steps[n - 1] if n else None, obs, y))
        values = []
        for n, streams in enumerate(kalman.run_streams(prior, sequence)):
            # Pythagoras in L2: the part outside the space is the same for every stream.
            values.append(np.square(streams.means - self.projected[n]).sum(axis=1) + self.missed[n] ** 2)
        return np.mean(values, axis=1), np.std(values, axis=1) / math.sqrt(n_streams)


@lru_cache(maxsize=64)
def setting(seed, galerkin):
    """Features, field and steps of a draw, with their certificates."""
    rng = np.random.default_rng([seed, *b"setting"])
    nu, centre, width = rng.uniform(0.3, 1.5), rng.uniform(0.3, 0.7), rng.uniform(0.1, 0.2)
    truth = SineSeries.of(LINE, lambda x: np.exp(-0.5 * ((x[:, 0] - centre) / width) ** 2), n_modes=24, diffusivity=nu)
    features = rk.bubble(rk.GaussianRFF(int(rng.integers(14, 20)), 0.25, seed=seed))
    space = rk.whiten(rk.Heat(LINE, nu), features, mass_floor=10.0 ** rng.uniform(-7, -2))
    times = 0.005 + 10.0 ** rng.uniform(-3, -2) * np.arange(7)
    route = (dy.galerkin_route if galerkin else dy.projection_route)(space, truth, times)
    return truth, space, route, ap.projection_error(space, truth, times)


def problem(seed, galerkin=False, repeat=0, prior_ratio=None):
    """A setting with sensors, noise and a prior; ``prior_ratio`` fixes the prior deviation in units of the noise."""
    truth, space, route, projection = setting(seed, galerkin)
    rng = np.random.default_rng([seed, repeat, *b"sensors"])
    sigma, n_obs = 10.0 ** rng.uniform(-3, -0.5), int(rng.integers(15, 80))
    sensors = [LINE.sample(n_obs, rng) for _ in route.times]
    observations = [rk.Observation(space(x), std=sigma) for x in sensors]
    step = rk.ImplicitEuler().step(space.generator(), 0.0, route.dt)
    scale = 10.0 ** rng.uniform(-1, 1) if prior_ratio is None else prior_ratio * sigma
    forecasts, analyses = [], []
    belief = rk.Gaussian(np.zeros(space.rank), scale * np.eye(space.rank))
    for n, obs in enumerate(observations):
        belief = kalman.forecast(belief, step) if n else belief
        forecasts.append(belief.root)
        belief = kalman.analyse(belief, obs, np.zeros(n_obs))
        analyses.append(belief)
    return Problem(
        space, route, projection.coeffs, projection.errors, observations, forecasts, analyses, sigma, truth, sensors
    )


# -- the theorem ------------------------------------------------------------------------------------------------------


def check_bounds(n_settings, n_repeats, n_streams):
    """Every form above the measured error; how often the bound would fail with a term left out, or halved.

    The mean over replications may exceed the sharp form by chance: 4.5 standard errors at each of seven times make a
    false alarm in hundreds of draws unlikely (5e-3 in 200).
    """
    counts = dict.fromkeys(["no_variance", "no_consistency", "halved", "per_time"], 0)
    rng = np.random.default_rng(0)
    for index in range(n_settings * n_repeats):
        seed, repeat = divmod(index, n_repeats)
        p = problem(seed, seed % 4 == 3, repeat)
        bound = p.bound()
        mse, se = p.mean_square_errors(n_streams, rng, np.zeros(p.space.rank))
        slack = 4.5 * se
        assert (mse <= bound.sharp + slack).all()
        assert mse.max() <= bound.term_by_term and bound.sharp <= bound.term_by_term
        assert bound.term_by_term <= bound.right_hand_side * (1 + 1e-9)
        assert bound.trace <= bound.estimation * (1 + 1e-9)
        assert all(f.holds is not False for f in bound.findings() if "Gram" not in f.quantity)
        counts["no_variance"] += bool((mse > bound.deterministic**2 + slack).any())
        counts["no_consistency"] += bool((mse > bound.variance + slack).any())
        counts["halved"] += bool((mse > 0.5 * bound.sharp + slack).any())
        counts["per_time"] += bound.gram_deviation < 1.0
    return counts


def test_every_form_of_the_bound_is_above_the_measured_error_on_hundreds_of_draws():
    """Features x fields x sensors x noise, both references."""
    counts = check_bounds(24, 9, 100)
    # Controls: no term can be left out and half the bound is too little, each on dozens of draws.
    assert counts["no_variance"] > 30 and counts["no_consistency"] > 30 and counts["halved"] > 30
    assert 20 < counts["per_time"] < 216


@pytest.mark.study
def test_study_of_the_bound_on_draws(study_table):
    counts = check_bounds(200, 5, 400)
    study_table.add("Contraction bound on random 1-D heat problems", draws=1000, violations=0, **counts)
    assert counts["no_variance"] > 150 and counts["no_consistency"] > 150 and counts["halved"] > 150


def test_the_covariance_of_the_mean_is_below_the_posterior_covariance_exactly():
    """The lemma on the Kalman mean error without sampling: its covariance follows from the gains, from zero."""
    for seed in range(20):
        p = problem(seed)
        E = co.error_propagators(p.steps, p.observations, p.forecasts)
        C = np.zeros((p.space.rank,) * 2)
        for n, (gain, keep) in enumerate(zip(E.gains, E.keeps, strict=True)):
            if n:
                C = p.steps[n - 1].apply(p.steps[n - 1].apply(C).T).T
            C = keep @ C @ keep.T + p.sigma**2 * gain @ gain.T
            P = p.analyses[n].cov
            assert np.linalg.eigvalsh(P - C)[0] >= -1e-9 * np.linalg.norm(P, 2)


def test_a_wrong_start_is_covered_by_the_initial_term_and_not_without_it():
    """Remark "Initial bias": sup ||E_{n:0}|| ||m_0 - zbar_0||, for confident priors ten of their deviations off."""
    uncovered = 0
    rng = np.random.default_rng(1)
    for index in range(40):
        p = problem(index // 4, repeat=index % 4, prior_ratio=0.3)
        direction = rng.standard_normal(p.space.rank)
        start = 10.0 * np.linalg.norm(p.forecasts[0], 2) * direction / np.linalg.norm(direction)
        E = co.error_propagators(p.steps, p.observations, p.forecasts)
        bound = p.bound(initial=E.supremum * float(np.linalg.norm(start)))
        mse, se = p.mean_square_errors(200, rng, start)
        assert (mse <= bound.sharp + 4.5 * se).all()
        assert bound.sharp <= bound.term_by_term <= bound.right_hand_side * (1 + 1e-9)
        uncovered += (mse > p.bound().sharp + 4.5 * se).any()
    # Control: a quarter of the draws and more are not covered without the term; the others forget within a step.
    assert uncovered > 10


def test_readings_of_the_true_field_bias_the_mean_by_what_carry_says():
    """The theorem's data come from zbar; for u* itself the misfit enters through the gains. Control: it is not zero."""
    p = problem(7)
    rng = np.random.default_rng(2)
    misfits = [
        p.truth(x, t) - obs.H @ z
        for x, t, obs, z in zip(p.sensors, p.route.times, p.observations, p.zbar, strict=True)
    ]
    E = co.error_propagators(p.steps, p.observations, p.forecasts)
    mean = E.carry(np.zeros(p.space.rank), misfits)
    prior = rk.Gaussian(p.zbar[0], p.forecasts[0])
    readings = [obs.H @ z + d for obs, z, d in zip(p.observations, p.zbar, misfits, strict=True)]
    sequence = list(zip([None, *p.steps], p.observations, readings, strict=True))
    exact = np.array([post.mean for post in kalman.run(prior, sequence)])
    assert_allclose(mean, exact - p.zbar, atol=1e-9 * np.abs(exact).max())
    assert np.abs(mean).max() > 1e-6
    mse, se = p.mean_square_errors(300, rng, np.zeros(p.space.rank), misfits)
    deterministic = np.square(p.zbar + mean - p.projected).sum(axis=1) + p.missed**2
    traces = np.array([np.square(belief.root).sum() for belief in p.analyses])
    assert (mse <= deterministic + traces + 4.5 * se).all()


def test_constants_are_those_of_the_proof():
    """C_T = 3 (1 + 2 (S C T)^2), terms apart; plain arithmetic."""
    bound = co.contraction(
        epsilon=0.1, rank=5, dt=0.2, horizon=2.0, constant=0.5, stability=1.5, order=2.0, noise_std=0.3, n_obs=10,
        gram_deviation=0.25, failure_probs=(0.01, 0.02, 0.03),
    )  # fmt: skip
    C_T = 3.0 * (1.0 + 2.0 * 1.5**2)
    assert bound.amplification == pytest.approx(C_T)
    assert bound.bias == pytest.approx(1.5 * 0.5 * 2.0 * (0.1 + 0.04))
    assert bound.terms == pytest.approx(
        {"approximation": C_T * 0.01, "time": C_T * 0.2**4, "estimation": C_T * 5 * 0.09 / 7.5}
    )
    assert bound.right_hand_side == pytest.approx(math.fsum(bound.terms.values()))
    assert bound.success_prob == pytest.approx(0.94)
    assert bound.deterministic == pytest.approx(0.1 + bound.bias)
    projected = co.contraction(
        epsilon=0.3, rank=1, dt=0.1, horizon=1.0, constant=0.0, bias=0.4, information=1.0, is_projection=True
    )
    assert projected.deterministic == pytest.approx(0.5)


def test_the_bound_tightens_and_loosens_as_it_should():
    """Half the step quarters the time term; more sensors, less noise and a smaller epsilon lower theirs."""
    base = {
        "epsilon": 0.1, "rank": 5, "dt": 0.2, "horizon": 1.0, "constant": 0.5, "noise_std": 0.3, "n_obs": 10,
        "gram_deviation": 0.5,
    }  # fmt: skip

    def term(name, **changes):
        return co.contraction(**(base | changes)).terms[name]

    assert term("time", dt=0.1) == pytest.approx(term("time") / 4)
    assert term("estimation", n_obs=20) == pytest.approx(term("estimation") / 2)
    assert term("estimation", noise_std=0.15) == pytest.approx(term("estimation") / 4)
    assert term("approximation", epsilon=0.05) == pytest.approx(term("approximation") / 4)
    assert term("approximation", constant=5.0) > term("approximation")
    assert co.contraction(**(base | {"initial": 0.2})).terms["initial"] > 0.0


def test_the_accumulated_condition_takes_over_where_the_per_time_one_fails():
    """Fewer sensors than directions: eta >= 1, only r / alpha is left; without it the bound is infinite, a result."""
    rng = np.random.default_rng(0)
    space = problem(0).space
    few = [rk.Observation(space(LINE.sample(2, rng)), std=0.1) for _ in range(5)]
    belief, step = rk.Gaussian(np.zeros(space.rank), np.eye(space.rank)), rk.LinearStep(np.ones(space.rank))
    for obs in few:
        belief = kalman.forecast(kalman.analyse(belief, obs, np.zeros(2)), step)
    alpha = 1.0 / float(np.linalg.eigvalsh(belief.cov)[-1])
    trace = float(np.square(belief.root).sum())
    common = {"epsilon": 0.1, "rank": space.rank, "dt": 0.1, "horizon": 1.0, "constant": 1.0, "trace": trace}
    per_time = {"noise_std": 0.1, "n_obs": 2, "gram_deviation": 1.0}
    with_alpha = co.contraction(**common, **per_time, information=alpha)
    assert with_alpha.holds and trace <= with_alpha.estimation == pytest.approx(space.rank / alpha)
    bare = co.contraction(**common, **per_time)
    assert not bare.holds and bare.right_hand_side == math.inf
    failed = [f for f in bare.findings() if f.holds is False]
    assert len(failed) == 2 and all("sensors" in f.remedy for f in failed)


@pytest.mark.parametrize(
    ("changes", "dominant", "word"),
    [
        ({"epsilon": 1.0}, "approximation", "mass_floor"),
        ({"bias": 1.0}, "bias", "time step"),
        ({"initial": 1.0}, "initial", "prior"),
        ({"trace": 1.0}, "estimation", "sensors"),
    ],
)
def test_the_remedy_follows_the_dominant_term(changes, dominant, word):
    """A target that is missed is answered by what would help most; one that is met needs nothing."""
    numbers = {
        "epsilon": 0.01, "rank": 3, "dt": 0.1, "horizon": 1.0, "constant": 1.0, "bias": 0.01, "trace": 1e-4,
        "information": 1e-3,
    }  # fmt: skip
    bound = co.contraction(**(numbers | changes))
    assert bound.dominant == dominant
    finding = next(f for f in bound.findings(target=0.5) if "sharper" in f.quantity)
    assert finding.holds is False and word in finding.remedy
    met = next(f for f in bound.findings(target=5.0) if "sharper" in f.quantity)
    assert met.holds is True and met.remedy == ""


def test_probabilities_add_up_and_never_below_zero():
    numbers = {"epsilon": 0.0, "rank": 1, "dt": 0.1, "horizon": 1.0, "constant": 0.0, "information": 1.0}
    assert co.contraction(**numbers, failure_probs=(0.5, 0.4, 0.3)).success_prob == 0.0
    assert co.contraction(**numbers, failure_probs=(0.5, 0.4, 0.3)).findings()[-1].holds is False
    with pytest.raises(ValueRangeError, match="failure_probs"):
        co.contraction(**numbers, failure_probs=(0.5, 2.0, 0.3))


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"epsilon": -1.0}, "epsilon"), ({"stability": 0.5}, "stability"), ({"noise_std": 1.0}, "all three"),
     ({"rank": 0}, "rank"), ({"dt": 0.0}, "dt")],
)  # fmt: skip
def test_impossible_numbers_are_refused(changes, match):
    numbers = {"epsilon": 0.0, "rank": 1, "dt": 0.1, "horizon": 1.0, "constant": 0.0}
    with pytest.raises(ValueRangeError, match=match):
        co.contraction(**(numbers | changes))


# -- error propagators ------------------------------------------------------------------------------------------------


def random_model(rng, correlated):
    r, N = int(rng.integers(1, 6)), int(rng.integers(0, 6))
    steps = [rk.LinearStep(rng.normal(size=(r, r)) * 0.6, noise_root=0.1 * np.eye(r)) for _ in range(N)]
    observations = []
    for _ in range(N + 1):
        n_obs = int(rng.integers(1, 8))
        H = rng.normal(size=(n_obs, r))
        A = rng.normal(size=(n_obs, n_obs))
        R = A @ A.T + np.eye(n_obs)
        observations.append(rk.Observation.from_cov(H, R) if correlated else rk.Observation(H, std=rng.uniform(0.1, 2)))
    return r, steps, observations


@pytest.mark.parametrize("correlated", [False, True])
def test_error_propagators_are_what_separates_two_filters(correlated):
    """Two starts, the same readings: the means differ by E_{n:0} times the difference; means of order 10."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        r, steps, observations = random_model(rng, correlated)
        root, shift = rng.normal(size=(r, r)), rng.normal(size=r)
        roots, means = [], []
        for start in (np.zeros(r), shift):
            belief, path = rk.Gaussian(start, root), []
            roots.clear()
            for n, obs in enumerate(observations):
                belief = kalman.forecast(belief, steps[n - 1]) if n else belief
                roots.append(belief.root)
                belief = kalman.analyse(belief, obs, np.ones(obs.n_obs))
                path.append(belief.mean)
            means.append(np.array(path))
        E = co.error_propagators(steps, observations, roots)
        assert_allclose(E.propagators @ shift, means[1] - means[0], atol=1e-10)
        assert_allclose(E.carry(shift), means[1] - means[0], atol=1e-10)
        for gain, obs, S in zip(E.gains, observations, roots, strict=True):
            P = S @ S.T
            assert_allclose(gain, np.linalg.solve(obs.H @ P @ obs.H.T + obs.R, obs.H @ P).T, atol=1e-10)
        assert E.supremum == E.norms.max()


def test_a_diffuse_prior_forgets_its_mean():
    """N_o > r: ||E_{0:0}|| is of order noise over prior variance, and grows when the prior sharpens."""
    rng = np.random.default_rng(4)
    obs = rk.Observation(rng.normal(size=(20, 3)), std=0.1)
    sizes = [co.error_propagators([], [obs], [s * np.eye(3)]).supremum for s in (100.0, 1.0, 0.01)]
    assert sizes[0] < 1e-6 < sizes[1] < 1e-2 < sizes[2] <= 1.0


def test_an_analysis_without_readings_keeps_the_error():
    """N_o = 0: nothing is corrected, E is the identity."""
    empty = rk.Observation(np.zeros((0, 2)), std=1.0)
    E = co.error_propagators([rk.LinearStep([0.5, 0.5])], [empty, empty], [np.eye(2), np.eye(2)])
    assert_allclose(E.propagators[1], 0.5 * np.eye(2), atol=1e-15)
    assert_allclose(E.findings()[0].value, 1.0, atol=1e-15)


def test_error_propagators_name_what_is_missing():
    obs = rk.Observation(np.ones((1, 2)), std=1.0)
    with pytest.raises(ShapeError, match="forecast_roots"):
        co.error_propagators([rk.LinearStep([1.0, 1.0])], [obs, obs], [np.eye(2)])
    E = co.error_propagators([], [obs], [np.eye(2)])
    with pytest.raises(ShapeError, match="misfits"):
        E.carry(np.zeros(2), [np.zeros(1), np.zeros(1)])


# -- error bars -------------------------------------------------------------------------------------------------------


def folded(c, beta):
    return ndtr(c - beta) - ndtr(-c - beta)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_half_width_is_the_smallest_that_covers(level):
    """Exactly the level at the worst bias, more at any smaller one; a hair narrower fails."""
    std, bias = np.full(60, 0.3), np.concatenate([[0.0], np.logspace(-4, 2, 59)])
    bar = co.error_bar(std, bias, level)
    c, beta = bar.half_width / 0.3, bias / 0.3
    assert_allclose(folded(c, beta), level, atol=1e-12)
    assert (folded(c, beta) >= level - 1e-13).all()
    assert (folded(c * (1 - 1e-6), beta) < level).all()
    for share in (0.0, 0.3, 0.99):
        assert (folded(c, share * beta) >= level - 1e-13).all()
    assert bar.half_width[0] == pytest.approx(bar.naive_half_width[0])


def test_coverage_by_simulation_with_a_control():
    """20000 errors with the worst bias: the wide bar covers within four binomial errors, the plain one falls short."""
    rng = np.random.default_rng(5)
    bar = co.error_bar([0.2], 0.3, 0.9)
    errors = 0.3 + 0.2 * rng.standard_normal(20000)
    hit = (np.abs(errors) <= bar.half_width[0]).mean()
    assert abs(hit - 0.9) < 4 * math.sqrt(0.09 / 20000)
    plain = (np.abs(errors) <= bar.naive_half_width[0]).mean()
    assert plain < 0.65 and abs(plain - bar.coverage[0]) < 4 * 0.5 / math.sqrt(20000)
    assert bar.findings()[0].holds is False and "half_width" in bar.findings()[0].remedy
    assert co.error_bar([0.2], 0.01, 0.9).findings()[0].holds is True


def test_error_bars_of_a_field_cover_its_error_in_spite_of_dynamics_bias():
    """Theorem's data, long steps: the plain interval undercovers at the last time, the aware one does not anywhere."""
    p = problem(7)
    x = np.linspace(0.05, 0.95, 19)[:, None]
    belief = p.analyses[-1]
    field = rk.Field(p.space, belief)
    # Pointwise: the distance of zbar from the field is known here, so no L2 number has to stand for it.
    offset = np.abs(p.space(x) @ p.zbar[-1] - p.truth(x, p.route.times[-1]))
    bar = co.error_bar(field, offset, 0.9, x=x)
    assert (bar.std == field.std(x)).all() and (bar.half_width >= offset).all()
    rng = np.random.default_rng(6)
    E = co.error_propagators(p.steps, p.observations, p.forecasts)
    n, total = 4000, np.zeros((p.space.rank, 4000))
    for k, (gain, keep) in enumerate(zip(E.gains, E.keeps, strict=True)):
        total = keep @ (p.steps[k - 1].apply(total) if k else total)
        total += gain @ (p.sigma * rng.standard_normal((gain.shape[1], n)))
    errors = p.space(x) @ (total + p.zbar[-1][:, None]) - p.truth(x, p.route.times[-1])[:, None]
    hit = (np.abs(errors) <= bar.half_width[:, None]).mean(axis=1)
    plain = (np.abs(errors) <= bar.naive_half_width[:, None]).mean(axis=1)
    assert (hit >= 0.9 - 4 * math.sqrt(0.09 / n)).all()
    assert plain.min() < 0.8


def test_pointwise_bias_bounds_every_point():
    """Cauchy-Schwarz, attained by the coefficients along Psi(x); an L2 number alone is exceeded somewhere."""
    space = problem(0).space
    x = np.linspace(0, 1, 101)[:, None]
    rng = np.random.default_rng(7)
    d = rng.standard_normal((space.rank, 300))
    d /= np.linalg.norm(d, axis=0)
    bound = co.pointwise_bias(space, x, 0.1)
    assert (np.abs(space(x) @ (0.1 * d)).max(axis=1) <= bound + 1e-14).all()
    Psi = space(x[[50]])[0]
    assert Psi @ (0.1 * Psi / np.linalg.norm(Psi)) == pytest.approx(bound[50])
    assert bound.max() > 0.1
    assert_allclose(co.pointwise_bias(space, x, 0.1, outside=0.5), bound + 0.5)


def test_certain_points_and_extreme_ratios():
    """std = 0 leaves the bias; ratios beyond any table neither overflow nor lose the level."""
    bar = co.error_bar([0.0, 0.0, 1e-300, 1.0], [0.0, 0.5, 1.0, 1e12], 0.9)
    assert_allclose(bar.half_width, [0.0, 0.5, 1.0, 1e12])
    assert_allclose(bar.coverage, [1.0, 0.0, 0.0, 0.0])


def test_error_bar_inputs_are_checked():
    field = rk.Field(problem(0).space, problem(0).analyses[-1])
    with pytest.raises(ValueRangeError, match="points x"):
        co.error_bar(field, 0.1)
    with pytest.raises(ValueRangeError, match="x belongs"):
        co.error_bar([1.0], 0.1, x=[[0.5]])
    with pytest.raises(ValueRangeError, match="negative"):
        co.error_bar([1.0], -0.1)
    with pytest.raises(ValueRangeError, match="level"):
        co.error_bar([1.0], 0.1, level=1.0)
