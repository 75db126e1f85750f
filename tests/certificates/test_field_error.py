"""The line people act on: no filter that reads the true field errs by more than it says, as often as it says."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.certificates import propagation as pr
from rfkalman.certificates.field_error import TOO_NARROW, Truths, exact_truth, field_error
from rfkalman.core.errors import ShapeError
from rfkalman.filters import kalman
from rfkalman.problem import Problem
from rfkalman.problem.certify import certify_problem
from rfkalman.propagators import Exponential
from rfkalman.research.experiments import streaming
from rfkalman.research.experiments.benchmark_certificates import BENCHMARKS
from rfkalman.research.experiments.draws import SQUARE
from rfkalman.research.experiments.truth import SineSeries, bumps
from rfkalman.space.twin import twin_of

N_STREAMS = 300


def bound_of(prior, steps, observations, truths, failure_prob=0.05):
    return field_error(pr.covariance_roots(prior, steps, observations), truths, failure_prob)


def realised(space, prior, steps, observations, field, times, sensors, rng, sigma):
    """L2 errors of the filter itself on readings of the field, nothing projected, (N + 1, N_STREAMS).

    The norm is taken on a Gauss rule of this test's own, fine enough for waves and field."""
    s, w = np.polynomial.legendre.leggauss(64)
    d = space.dimension
    x = np.stack(np.meshgrid(*[0.5 * (s + 1.0)] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weights = np.stack(np.meshgrid(*[0.5 * w] * d, indexing="ij"), axis=-1).reshape(-1, d).prod(axis=1)
    Psi = space(x)
    sequence = []
    for n, (obs, places) in enumerate(zip(observations, sensors, strict=True)):
        clean = field(places, float(times[n]))
        y = clean[:, None] + sigma * rng.standard_normal((len(clean), N_STREAMS))
        sequence.append((steps[n - 1] if n else None, obs, y))
    found = []
    for n, streams in enumerate(kalman.run_streams(prior, sequence)):
        off = field(x, float(times[n])) - streams.means @ Psi.T
        found.append(np.sqrt(np.square(off) @ weights))
    return np.array(found)


def allowance(p, n):
    """p and three standard errors of a frequency over n draws."""
    return p + 3.0 * math.sqrt(p * (1.0 - p) / n)


@cache
def benchmark(name, clustered=False, sigma=streaming.SIGMA, of_model=False):
    """One of the paper's benchmarks with 24 readings at 20 times; ``clustered`` puts all of them in one corner,
    ``of_model`` certifies readings of the model's own trajectory instead of the field's, as the theorem does."""
    space = BENCHMARKS[name]()
    stream = streaming.draw_stream(space, 0)
    sensors = list(stream.sensors * (0.3 if clustered else 1.0))
    observations = [rk.Observation(space(x), std=sigma) for x in sensors]
    steps = [streaming.euler_step(space)] * (len(observations) - 1)
    velocity = np.array(streaming.VELOCITY) if name == "advection" else None
    field = SineSeries.of(SQUARE, bumps, velocity=velocity)
    times = streaming.DT * np.arange(1, len(observations) + 1)
    prior = kalman.forecast(streaming.diffuse_prior(space.rank), streaming.euler_step(space))
    truths = exact_truth(space, field, times, sensors)
    if of_model:
        zbar = [truths.coeffs[0]]
        for step in steps:
            zbar.append(step.apply(zbar[-1]))
        read = tuple(obs.H @ z for obs, z in zip(observations, zbar, strict=True))
        truths = Truths(truths.coeffs, truths.missed, read)
    found = bound_of(prior, steps, observations, truths)
    rng = np.random.default_rng([11, *name.encode(), clustered])
    errors = realised(space, prior, steps, observations, field, times, sensors, rng, sigma)
    return found, errors


CASES = [(name, False, 1e-2) for name in BENCHMARKS] + [("heat", True, 1e-2), ("heat", True, 1e-4)]


@pytest.mark.parametrize(("name", "clustered", "sigma"), CASES)
def test_the_filter_on_readings_of_the_true_field_stays_below_the_line(name, clustered, sigma):
    """300 filters with fresh noise: at all analyses together, and at the last alone, with the stated 95 %. The line is
    not idle: the 95 % quantile of what is realised is more than a third of it. Control: most exceed 0.3 of it."""
    found, errors = benchmark(name, clustered, sigma)
    assert found.probability == pytest.approx(0.95) and found.truths.source == "the exact field"
    worst = errors.max(axis=0)
    assert (worst > found.largest).mean() <= allowance(0.05, N_STREAMS)
    assert ((errors > found.bounds[:, None]).any(axis=0)).mean() <= allowance(0.05, N_STREAMS)
    assert (errors[-1] > found.last).mean() <= allowance(0.05, N_STREAMS)
    for line, seen in ((found.largest, worst), (found.last, errors[-1])):
        assert line <= 3.0 * np.quantile(seen, 0.95)
    assert (errors > 0.3 * found.bounds[:, None]).any(axis=0).mean() > 0.5


def test_what_was_printed_before_is_exceeded():
    """The first version printed 0.035 for the heat benchmark, an error of the last analysis for readings of the model;
    the filter errs by four times that at the first ones."""
    found, errors = benchmark("heat")
    assert (errors.max(axis=0) > 0.035).all() and found.largest > 0.1 > 0.035 > found.last


def test_without_the_misfit_of_the_readings_the_line_is_exceeded():
    """Quiet sensors in one corner read what the space cannot hold, and the gains carry it far: certified for readings
    of the model's own trajectory, as the theorem has it, the line is exceeded by every filter. With the misfit as a
    part of its own it holds (above)."""
    found, errors = benchmark("heat", True, 1e-4)
    blind, _ = benchmark("heat", True, 1e-4, of_model=True)
    assert (errors.max(axis=0) > 2.0 * blind.largest).all()
    assert blind.parts["misfit"].max() < 1e-12
    assert found.dominant(int(found.bounds.argmax())) == "misfit"


def test_the_ratio_is_that_of_the_realised_error_to_the_claimed_deviation():
    """Mean square over 300 noises against tr P; its standard error is below 3 %."""
    found, errors = benchmark("heat")
    space = BENCHMARKS["heat"]()
    stream = streaming.draw_stream(space, 0)
    final = streaming.kalman_final(stream)
    claimed = math.sqrt(float(np.square(final.root).sum()))
    assert_allclose(found.ratios[-1], math.sqrt(np.square(errors[-1]).mean()) / claimed, rtol=0.05)
    assert found.ratio > TOO_NARROW and found.findings()[-1].is_problem


# -- the pieces -------------------------------------------------------------------------------------------------------


def small(seed=0, n_fields=3):
    rng = np.random.default_rng(seed)
    r, N = 4, 5
    steps = [rk.LinearStep(0.8 * rng.standard_normal((r, r)) / 2.0) for _ in range(N)]
    observations = [rk.Observation(rng.standard_normal((3, r)), std=[0.3, 0.1, 0.2]) for _ in range(N + 1)]
    prior = rk.Gaussian(rng.standard_normal(r), rng.standard_normal((r, r)))
    z = rng.standard_normal((N + 1, r, n_fields))
    missed = rng.random((N + 1, n_fields))
    seen = zip(observations, z, strict=True)
    readings = tuple(obs.H @ c + 0.1 * rng.standard_normal((3, n_fields)) for obs, c in seen)
    return prior, steps, observations, Truths(z, missed, readings)


def test_the_deterministic_error_is_that_of_a_filter_without_noise():
    """Run the filter on clean readings: its mean minus the projection is what the parts add up to; two exact routes."""
    prior, steps, observations, truths = small()
    for k in range(truths.n_fields):
        one = Truths(truths.coeffs[:, :, [k]], truths.missed[:, [k]], tuple(y[:, [k]] for y in truths.readings))
        found = bound_of(prior, steps, observations, one)
        items = [(steps[n - 1] if n else None, obs, truths.readings[n][:, k]) for n, obs in enumerate(observations)]
        means = np.array([belief.mean for belief in kalman.run(prior, items)])
        off = np.hypot(np.linalg.norm(means - truths.coeffs[:, :, k], axis=1), truths.missed[:, k])
        assert (found.bounds > off).all()
        noiseless = [rk.Observation(obs.H, std=1e-9 * np.asarray(obs.std)) for obs in observations]
        sharp = rk.Gaussian(prior.mean, 1e-9 * prior.root)
        assert_allclose(bound_of(sharp, steps, noiseless, one).bounds, off, rtol=1e-6)


def test_the_noise_of_the_mean_is_that_of_the_recursion():
    """Written out with dense matrices; and never above P, by which it used to be bounded."""
    prior, steps, observations, _ = small()
    roots = pr.covariance_roots(prior, steps, observations)
    C = np.zeros((4, 4))
    for n, root in enumerate(roots.noise_roots()):
        Pf, H, R = roots.forecasts[n] @ roots.forecasts[n].T, observations[n].H, observations[n].R
        gain = Pf @ H.T @ np.linalg.inv(H @ Pf @ H.T + R)
        A = np.eye(4) - gain @ H
        F = steps[n - 1].F if n else np.eye(4)
        C = A @ F @ C @ F.T @ A.T + gain @ R @ gain.T
        assert_allclose(root @ root.T, C, atol=1e-10)
        assert np.linalg.eigvalsh(roots.analyses[n] @ roots.analyses[n].T - C)[0] > -1e-10


def test_many_fields_are_carried_as_one_by_one():
    prior, steps, observations, truths = small(1)
    together = bound_of(prior, steps, observations, truths)
    alone = [
        bound_of(
            prior,
            steps,
            observations,
            Truths(truths.coeffs[:, :, [k]], truths.missed[:, [k]], tuple(y[:, [k]] for y in truths.readings)),
        )
        for k in range(3)
    ]
    assert_allclose(together.bounds, np.max([one.bounds for one in alone], axis=0), rtol=1e-12)
    assert_allclose(together.last, max(one.last for one in alone), rtol=1e-12)


def test_shapes_that_do_not_fit_are_refused():
    prior, steps, observations, truths = small()
    with pytest.raises(ShapeError, match="readings has 5 entries but there are 6"):
        Truths(truths.coeffs, truths.missed, truths.readings[:-1])
    with pytest.raises(ShapeError, match="6 analyses of 4 coefficients"):
        bound_of(prior, steps, observations, Truths(truths.coeffs[:, :3], truths.missed, truths.readings))


def test_a_forced_model_has_the_errors_of_the_unforced_one():
    """A known shift moves filter and trajectory alike."""
    prior, steps, observations, truths = small(2)
    plain = bound_of(prior, steps, observations, truths)
    g = np.array([0.3, -1.0, 0.2, 0.5])
    shifted, move = [], np.zeros(4)
    coeffs, readings = np.array(truths.coeffs), [np.array(y) for y in truths.readings]
    for n, step in enumerate(steps):
        shifted.append(rk.LinearStep(step.F, shift=g))
        move = step.F @ move + g
        coeffs[n + 1] += move[:, None]
        readings[n + 1] += (observations[n + 1].H @ move)[:, None]
    forced = bound_of(prior, shifted, observations, Truths(coeffs, truths.missed, tuple(readings)))
    assert_allclose(forced.bounds, plain.bounds, rtol=1e-10)


# -- a problem file ---------------------------------------------------------------------------------------------------


def bar(boundary=None, **features):
    """A bar held at zero at both ends, five sensors, nothing unknown but the field."""
    return Problem.from_dict(
        {
            "version": 1,
            "title": "A bar",
            "domain": {"kind": "interval", "lower": 0, "upper": 1, "unit": "m"},
            "field": {"name": "temperature", "unit": "degC"},
            "physics": {"diffusion": "0.02 m2/min", "boundary": boundary or {"*": {"value": 0}}},
            "features": {"count": 14, "length_scale": "0.25 m", "floor": 1e-4} | features,
            "prior": {"mean": 0, "std": 1, "length": "0.15 m"},
            "sensors": {
                "table": [{"id": f"s{i}", "at": x} for i, x in enumerate((0.15, 0.3, 0.42, 0.6, 0.85))],
                "noise": 0.05,
            },
            "time": {"unit": "min", "step": "0.2 min"},
            "input": {"time_unit": "min"},
        }
    )


def test_the_filter_of_a_problem_file_stays_below_the_line_for_fields_drawn_from_its_prior():
    """400 fields of the same prior in the richer space, other draws than the certificate's, read with noise at the
    sensors and filtered by the problem's own space. Errors are norms on a fine uniform grid. At most 5 % above the
    line, by three standard errors; and the line is within twice the 95 % quantile. Control: half the line."""
    overview = certify_problem(bar(), n_analyses=8)
    found = overview.error
    assert found is not None and found.probability >= 0.95 - 1e-3 and found.truths.n_fields >= 90
    assert "for fields drawn from your prior" in overview.sentences()[1]
    setup = bar().build()
    rich = setup.model.restated(twin_of(setup.space, draw=1))
    rng, K = np.random.default_rng(20), 400
    r, truth_r = setup.space.rank, rich.space.rank
    initial = rich.initial
    z = initial.mean[:truth_r, None] + initial.root[:truth_r] @ rng.standard_normal((initial.root.shape[1], K))
    sensors, x = setup.sensors.coords, np.linspace(0.0, 1.0, 2001)[:, None]
    step, move = (Exponential().step(s.generator(), 0.0, 0.2) for s in (setup.space, rich.space))
    prior = rk.Gaussian(setup.model.initial.mean[:r], setup.model.initial.root[:r])
    sequence, fields = [], []
    for n in range(8):
        z = move.apply(z) if n else z
        y = rich.space(sensors) @ z + 0.05 * rng.standard_normal((len(sensors), K))
        # The noise that the filter reckons with: its sensors' and what its space cannot hold.
        seen = setup.model.observe(setup.functional(range(5)), 0.2 * n, noise_std=0.05)
        sequence.append((step if n else None, seen, y))
        fields.append(rich.space(x) @ z)
    errors = np.array(
        [
            np.sqrt(np.square(streams.means @ setup.space(x).T - fields[n].T).mean(axis=1))
            for n, streams in enumerate(kalman.run_streams(prior, sequence))
        ]
    )
    worst = errors.max(axis=0)
    assert (worst > found.largest).mean() <= allowance(0.05, K)
    assert (errors[-1] > found.last).mean() <= allowance(0.05, K)
    assert found.largest <= 2.0 * np.quantile(worst, 0.95) and found.last <= 2.0 * np.quantile(errors[-1], 0.95)
    assert (worst > 0.5 * found.largest).mean() > allowance(0.05, K)
    # The band's verdict is that of the same fields.
    spread = [
        math.hypot(np.linalg.norm(S), np.linalg.norm(setup.model.unresolved.columns(0.2 * n)))
        for n, S in enumerate(pr.covariance_roots(prior, [step] * 7, [obs for _, obs, _ in sequence]).analyses)
    ]
    assert_allclose(found.ratios, np.sqrt(np.square(errors).mean(axis=1)) / spread, rtol=0.2)


def test_a_band_may_be_believed_if_it_knows_what_the_space_cannot_hold():
    """Fields of length 0.15 in features of length 0.1 and of 0.6: the verdict, and the words for it.

    The poor space has a larger error and a band that says so; without what it cannot hold in noise and band (the
    control) the band is too narrow.
    """
    problems = [bar(count=40, length_scale=f"{le} m", floor=floor) for le, floor in ((0.1, 1e-10), (0.6, 1e-3))]
    rich, poor = (certify_problem(problem, n_analyses=6) for problem in problems)
    bare = problems[1].build()
    object.__setattr__(bare.model, "unresolved", None)
    naive = certify_problem(problems[1], n_analyses=6, setup=bare)
    assert max(rich.error.ratio, poor.error.ratio) <= TOO_NARROW < naive.error.ratio
    assert poor.error.last > 1.2 * rich.error.last
    for overview in (rich, poor):
        assert "may be believed" in overview.sentences()[2] and not [f for f in overview.failed if f.needed]
    assert "too narrow" in naive.sentences()[2]
    assert [f.certificate for f in naive.failed if f.needed] == ["error"]
    assert len(rich.sentences()) == len(naive.sentences()) == 5
    assert "degC" in rich.sentences()[1]


def test_without_fields_the_sentences_say_that_nothing_was_compared():
    overview = certify_problem(bar(), n_analyses=4, quick=True)
    said = " ".join(overview.sentences())
    assert overview.error is None and len(overview.sentences()) == 5
    assert "was not checked" in said and "quick look" in said and "at most" not in said
    assert "stands against" in overview.headline and "not compared" in overview.headline
    # What was left out of the window makes its variance too small to be told.
    assert "% of the variance" in overview.sentences()[-1]
    wall = {"unknown": {"mean": 0, "std": 1, "process": "fixed"}}
    unknown = certify_problem(bar(boundary={"x-": wall, "x+": {"value": 0}}), n_analyses=4)
    assert "taking as known: x-" in unknown.sentences()[0] and "%" not in unknown.sentences()[-1]
