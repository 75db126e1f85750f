"""Unknown boundary values, sources and offsets: joint with the field, exact, and honest about what the data say.

Truths come from a finite-difference simulation in this file that knows nothing of features (:class:`Rod`), unless a
test says otherwise.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag, expm
from scipy.stats import binom, norm
from tests import reference

import rfkalman as rk
from rfkalman.core.errors import ConformityError, ShapeError, ValueRangeError
from rfkalman.filters import kalman

# Two exact routes (STYLE, tolerances); prior over noise variance is at most 1e4 below, eps times that is 1e-12.
EXACT = 1e-10
NU = 0.1
#: 90 % intervals reach this many standard deviations.
REACH = float(norm.ppf(0.95))


# -- spaces and models ------------------------------------------------------------------------------------------------


def rod_pde(left: object, right: object = None, nu: float = NU, **more: object) -> rk.LinearPDE:
    conditions = {"x-": left, "x+": rk.Dirichlet(0.0) if right is None else right}
    return rk.LinearPDE(rk.Interval(0.0, 1.0), diffusion=nu, boundary=conditions, **more)


def walled(left: object, **more: object) -> rk.WhitenedSpace:
    """A rod whose left end is free for any value; the right end is held at zero by a window."""
    return rk.whiten(rod_pde(left, **more), rk.bubble(rk.GaussianRFF(60, 0.15, seed=0), parts=["x+"]))


def held() -> rk.WhitenedSpace:
    """A rod with both ends at zero."""
    return rk.whiten(rod_pde(rk.Dirichlet(0.0)), rk.bubble(rk.GaussianRFF(60, 0.15, seed=0)))


def exchanging(left: object, right: object) -> rk.WhitenedSpace:
    """A rod with natural conditions at both ends."""
    return rk.whiten(rod_pde(left, right), rk.GaussianRFF(50, 0.25, seed=1) + rk.Constant())


WALK = rk.Unknown((0.5, 1.0), rk.RandomWalk(1.5))
SMOOTH = rk.Sobolev(1.0, 0.2)


@pytest.fixture(scope="module")
def wall() -> rk.WhitenedSpace:
    return walled(WALK)


@pytest.fixture(scope="module")
def rod() -> rk.WhitenedSpace:
    return held()


def bump(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * np.square((x[:, 0] - 0.4) / 0.1))


NAMES = tuple(f"s{i}" for i in range(4))
PLACES = np.array([[0.12], [0.35], [0.6], [0.85]])
SENSORS = rk.points(PLACES, ids=NAMES)


@lru_cache(maxsize=1)
def models() -> dict[str, rk.Model]:
    """Every kind of block alone, and all of them on an advected rod with a known value at its other end."""
    rod = held()
    trend = rk.Unknown(0.5, rk.IntegratedRandomWalk(2.0, slope_std=1.0))
    inflow = rk.Unknown((1.0, 0.7), rk.OrnsteinUhlenbeck(0.7, 0.3))
    flow = rk.whiten(rod_pde(inflow, rk.Dirichlet(2.0), velocity=[0.4], source=0.3), rk.GaussianRFF(60, 0.2, seed=2))
    everything = [
        rk.LatentSource(bump, (1.0, 0.5), rk.IntegratedRandomWalk(1.0, 0.2)),
        rk.SourceField(0.5, 0.3, 0.4, modes=3),
        rk.SensorOffset(["s1", "s3"], 0.3, rk.RandomWalk(0.2)),
    ]
    return {
        "fixed boundary value": rk.Model(walled(rk.Unknown((2.0, 1.0))), SMOOTH),
        "wandering boundary value": rk.Model(walled(WALK), SMOOTH),
        "boundary trend": rk.Model(walled(trend), SMOOTH),
        "flux and ambient": rk.Model(
            exchanging(rk.Neumann(rk.Unknown(0.3, rk.RandomWalk(0.5))), rk.Robin(0.5, rk.Unknown((3.0, 2.0)))), SMOOTH
        ),
        "source": rk.Model(rod, SMOOTH, blocks=[rk.LatentSource(bump, (3.0, 1.0), rk.OrnsteinUhlenbeck(1.0, 0.2))]),
        "source field": rk.Model(rod, SMOOTH, blocks=[rk.SourceField(2.0, 0.2, 0.3)]),
        "offset": rk.Model(rod, SMOOTH, blocks=[rk.SensorOffset(NAMES[:3], 0.5)]),
        "all": rk.Model(flow, SMOOTH, start=0.5, process_noise=rk.Sobolev(0.1, 0.2), blocks=everything),
    }


@pytest.fixture(
    params=[
        "fixed boundary value",
        "wandering boundary value",
        "boundary trend",
        "flux and ambient",
        "source",
        "source field",
        "offset",
        "all",
    ]
)
def model(request) -> rk.Model:
    return models()[request.param]


# -- an independent simulation ----------------------------------------------------------------------------------------


class Rod:
    """Heat on [0, 1] by finite differences, right end at zero, left end given; exact in time for linear values.

    400 cells: second differences have exact sine eigenvectors, and their error for fields as smooth as the features
    (wavelengths above 0.08, 32 cells) is below (2 pi / 32)^2 / 12 = 0.3 %, far below the posterior stds compared with.
    """

    cells = 400

    def __init__(self, u0: np.ndarray, source: np.ndarray | float = 0.0) -> None:
        k = np.arange(1, self.cells)
        self.V = np.sqrt(2.0 / self.cells) * np.sin(np.pi * np.outer(k, k) / self.cells)
        self.rate = NU * (2.0 * self.cells * np.sin(0.5 * np.pi * k / self.cells)) ** 2
        self.edge = NU * self.cells**2 * self.V[:, 0]
        self.c = self.V @ np.asarray(u0, dtype=float)[1:-1]
        self.source = self.V @ (np.zeros(self.cells - 1) + source)
        self.value = np.asarray(u0, dtype=float)[0]

    @classmethod
    def grid(cls) -> np.ndarray:
        return np.linspace(0.0, 1.0, cls.cells + 1)[:, None]

    def move(self, dt: float, value: np.ndarray) -> None:
        """Advance by dt while the left end goes from its present value to ``value``; midpoint in between."""
        decay = np.exp(-self.rate * dt)
        weight = (1.0 - decay) / self.rate
        pushed = np.multiply.outer(self.edge, 0.5 * (self.value + value)) + (
            self.source if np.ndim(value) == 0 else self.source[:, None]
        )
        shape = (...,) if np.ndim(value) == 0 else (..., None)
        self.c = decay[shape] * self.c + weight[shape] * pushed
        self.value = value

    def __call__(self) -> np.ndarray:
        """The field on the grid."""
        value = np.asarray(self.value)[None]
        return np.concatenate([value, self.V @ self.c, np.zeros_like(value)])


def at(x: np.ndarray) -> np.ndarray:
    """Grid indices of points on the grid."""
    index = np.round(np.asarray(x).ravel() * Rod.cells).astype(int)
    assert_allclose(index / Rod.cells, np.asarray(x).ravel(), atol=1e-12)
    return index


def drawn_states(model: rk.Model, n: int, rng: np.random.Generator) -> np.ndarray:
    """States from the prior, (dim, n)."""
    root = model.initial.root
    return model.initial.mean[:, None] + root @ rng.standard_normal((root.shape[1], n))


def fields_of(model: rk.Model, states: np.ndarray, t: float, x: np.ndarray) -> np.ndarray:
    """The fields of exact states at points, (n points, n states)."""
    certain = np.zeros((model.dim, 1))
    return np.stack([model.field(rk.Gaussian(state, certain), t).mean(x) for state in states.T], axis=1)


# -- the joint system -------------------------------------------------------------------------------------------------


def items(model: rk.Model, times: list[float], readings: list[np.ndarray]) -> list[reference.Item]:
    """A record as plain matrices, known boundary values taken off the readings."""
    out, t = [], model.start
    for time, y in zip(times, readings, strict=True):
        step, obs = model.step(t, time), model.observe(SENSORS, time, noise_std=0.1)
        known = 0.0 if obs.offset is None else obs.offset
        out.append(reference.Item(step.F, step.g, step.Q, obs.H, obs.R, y - known))
        t = time
    return out


def test_the_joint_posterior_is_dense_conditioning(model):
    """Field and blocks are one Gaussian vector; a recursion over it must give what one dense solve gives."""
    rng = np.random.default_rng(3)
    times = [model.start + t for t in (0.02, 0.05, 0.06, 0.2, 0.5)]
    readings = [1.0 + rng.standard_normal(4) for _ in times]
    readings[2][1] = np.nan
    filt = rk.Assimilator(model)
    for t, y in zip(times, readings, strict=True):
        filt.advance(t)
        filt.observe(SENSORS, y, noise_std=0.1)
    joint = reference.Joint(model.initial.mean, model.initial.cov, items(model, times, readings))
    mean, cov = joint.filtered(len(times) - 1)
    assert_allclose(filt.belief.mean, mean, rtol=0.0, atol=EXACT * np.abs(mean).max())
    assert_allclose(filt.belief.cov, cov, rtol=0.0, atol=EXACT * np.abs(joint.cov).max())
    assert_allclose(filt.log_evidence, joint.log_evidence(), rtol=EXACT)
    # What is reported of the blocks is this very vector, read through the blocks' own rows.
    start = model.space.rank
    for block in model.blocks:
        part = slice(start, start + block.dim)
        report = filt.unknowns()[block.name]
        assert_allclose(report.mean, block.mean + block.values @ mean[part], rtol=0.0, atol=1e-9)
        variance = np.diagonal(block.values @ cov[part, part] @ block.values.T)
        assert_allclose(np.square(report.std), variance, rtol=0.0, atol=1e-9)
        start += block.dim


def test_sensors_read_the_field_and_their_own_offsets(model):
    """H z + offset is the field at the sensors plus the offsets by name, for any state at any time."""
    rng = np.random.default_rng(4)
    state, t = rng.standard_normal(model.dim), 0.7
    obs = model.observe(SENSORS, t, noise_std=0.1)
    seen = obs.H @ state + (0.0 if obs.offset is None else obs.offset)
    expected = fields_of(model, state[:, None], t, PLACES)[:, 0]
    report = model.unknowns(rk.Gaussian(state, np.zeros((model.dim, 1))), t)
    if "offset" in report:
        sensors = next(block.sensors for block in model.blocks if block.name == "offset")
        for name, value in zip(sensors, report["offset"].mean, strict=True):
            expected[NAMES.index(name)] += value
    # Sums of a few dozen products of size 1 to 40.
    assert_allclose(seen, expected, rtol=0.0, atol=1e-12 * np.abs(obs.H).max() * np.abs(state).sum())


def integral_by_panels(A: np.ndarray, L: np.ndarray, dt: float) -> np.ndarray:
    """Q = integral of e^{As} L L^T e^{A^T s}: Gauss on panels that shrink towards 0, where fast modes live."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.concatenate([[0.0], dt * 0.5 ** np.arange(12, -1, -1)])
    Q = np.zeros_like(A)
    for a, b in itertools.pairwise(edges):
        for node, weight in zip(nodes, weights, strict=True):
            carried = expm(A * (0.5 * (a + b) + 0.5 * (b - a) * node)) @ L
            Q += 0.5 * (b - a) * weight * carried @ carried.T
    return Q


def joint_drift(model: rk.Model) -> tuple[np.ndarray, np.ndarray]:
    """A and L put together by hand from the stiffness and the blocks."""
    space = model.space
    A = block_diag(-space.stiffness, *(block.drift for block in model.blocks))
    start = space.rank
    for block in model.blocks:
        if block.push is not None:
            A[: space.rank, start : start + block.dim] = block.push
        start += block.dim
    field_noise = np.zeros((space.rank, 0)) if model.generator.noise_root is None else None
    if field_noise is None:
        field_noise = model.generator.noise_root[: space.rank]
        field_noise = field_noise[:, np.flatnonzero(field_noise.any(axis=0))]
    return A, block_diag(field_noise, *(block.noise_root for block in model.blocks))


def test_field_and_blocks_are_discretised_as_one_system(model):
    """F is the exponential of the joint drift and Q its integral; not a field step with a block glued on."""
    A, L = joint_drift(model)
    dt = 0.07
    step = model.step(model.start, model.start + dt)
    assert_allclose(step.F, expm(A * dt), rtol=0.0, atol=EXACT)
    Q = integral_by_panels(A, L, dt)
    assert_allclose(step.Q, Q, rtol=0.0, atol=EXACT * max(np.abs(Q).max(), 1e-3))


def glued(model: rk.Model, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """The shortcut: each part discretised alone, the block constant over the gap."""
    A, _ = joint_drift(model)
    r = model.space.rank
    F = block_diag(expm(A[:r, :r] * dt), expm(A[r:, r:] * dt))
    F[:r, r:] = np.linalg.solve(A[:r, :r], (expm(A[:r, :r] * dt) - np.eye(r)) @ A[:r, r:])
    Q = np.zeros_like(A)
    Q[r:, r:] = model.step(0.0, dt).Q[r:, r:]
    return F, Q


@pytest.mark.parametrize("name", ["wandering boundary value", "source", "source field"])
def test_a_block_glued_on_afterwards_is_another_model(name):
    """The control of the test above: the field would get no noise in the gap, and a cut gap another law."""
    model, dt = models()[name], 0.1
    _, Q = glued(model, dt)
    step, half = model.step(0.0, dt), model.step(0.0, 0.5 * dt)
    r = model.space.rank
    assert np.linalg.norm(step.Q - Q) > 0.01 * np.linalg.norm(step.Q)
    assert np.linalg.norm(step.Q[:r, :r]) > 0.0 and not Q[:r, :r].any()
    assert_allclose(half.F @ half.Q @ half.F.T + half.Q, step.Q, rtol=0.0, atol=EXACT * np.abs(step.Q).max())
    F2, Q2 = glued(model, 0.5 * dt)
    cut = F2 @ Q2 @ F2.T + Q2
    assert np.linalg.norm(cut - Q) > 0.01 * np.linalg.norm(Q)


def test_what_a_block_pushes_is_its_weak_form():
    """Dirichlet: -integral of nu grad psi_i . grad lift; flux: psi_i at the end; source: integral of psi_i shape.

    The rod has length 1, so plain and normalised integrals agree; 200 Gauss points resolve the features.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x, w = 0.5 * (nodes + 1.0)[:, None], 0.5 * weights
    model = models()["wandering boundary value"]
    space, block = model.space, model.blocks[0]
    gradient = space.frame.gradient(x)[0]
    lift = gradient[:, space.rank :] @ block.readout
    # Derivatives are up to 100 times the values: 1e-12 of the largest entry, 50.
    assert_allclose(block.push, -NU * gradient[:, : space.rank].T @ (w[:, None] * lift), rtol=0.0, atol=1e-8)
    natural = models()["flux and ambient"]
    flux, ambient = natural.blocks
    ends = natural.space([[0.0], [1.0]])
    assert_allclose(flux.push[:, 0], ends[0], rtol=0.0, atol=EXACT * np.abs(ends).max())
    assert_allclose(ambient.push[:, 0], 0.5 * ends[1], rtol=0.0, atol=EXACT * np.abs(ends).max())
    source = models()["source"]
    assert_allclose(source.blocks[0].push[:, 0], source.space(x).T @ (w * bump(x)), rtol=0.0, atol=1e-9)


def test_the_order_of_blocks_changes_nothing(rod):
    """Blocks are coordinates of one vector; which comes first is bookkeeping."""
    source, offset = rk.LatentSource(bump, (1.0, 1.0)), rk.SensorOffset(NAMES[:2], 0.3)
    blocks = [source, offset, rk.SourceField(0.5, 0.3, 0.4, modes=2)]
    filters = [rk.Assimilator(rod, SMOOTH, blocks=order) for order in (blocks, blocks[::-1])]
    for filt in filters:
        for t in (0.1, 0.25):
            filt.advance(t)
            filt.observe(SENSORS, [0.4, 0.9, 0.5, 0.2], noise_std=0.1)
    a, b = filters
    x = np.linspace(0.0, 1.0, 7)[:, None]
    assert_allclose(a.posterior().mean(x), b.posterior().mean(x), rtol=0.0, atol=EXACT)
    assert_allclose(a.posterior().std(x), b.posterior().std(x), rtol=0.0, atol=EXACT)
    for name in ("source", "offset"):
        assert_allclose(a.unknowns()[name].mean, b.unknowns()[name].mean, rtol=0.0, atol=EXACT)


@pytest.mark.parametrize(
    ("propagator", "tolerance"),
    [(rk.ImplicitEuler(max_step=0.001), 1e-2), (rk.SDIRK3(max_step=0.001), 1e-5), (rk.ARS443(max_step=0.001), 1e-5)],
    ids=["implicit Euler", "SDIRK3", "ARS443"],
)
def test_stepping_schemes_converge_to_the_joint_exponential(propagator, tolerance):
    """They see the same joint generator, advection apart from the rest; a hundred steps at their orders.

    Measured 2e-3 at first order and 1e-6 at third; a coupling left out of either part would be of size 1.
    """
    model = models()["all"]
    exact, step = model.step(0.5, 0.6), propagator.step(model.generator, 0.5, 0.6)
    for name in ("F", "g", "Q"):
        a, b = getattr(step, name), getattr(exact, name)
        assert_allclose(a, b, rtol=0.0, atol=tolerance * np.abs(b).max())


def test_other_coefficients_change_what_the_wall_pushes(wall):
    """with_coefficients re-uses the basis; the coupling of the wall must follow the new diffusivity.

    The control: the old coupling moves the estimates by 1e-2 and more.
    """
    results = []
    for space in (wall.with_coefficients({"diffusion": 2.0 * NU}), walled(WALK, nu=2.0 * NU), wall):
        filt = rk.Assimilator(space, SMOOTH)
        for t in (0.1, 0.2):
            filt.advance(t)
            filt.observe(SENSORS, [1.0, 0.5, 0.3, 0.1], noise_std=0.05)
        report = filt.unknowns()["x-"]
        results.append(np.concatenate([filt.posterior().mean(PLACES), report.mean, report.std]))
    # Two draws of the same space: rounding at a floor of 1e-16 is amplified to 1e-8.
    assert_allclose(results[0], results[1], rtol=0.0, atol=1e-7)
    assert np.abs(results[0] - results[2]).max() > 1e-2


# -- unknown boundary values ------------------------------------------------------------------------------------------

INNER = np.array([[0.15], [0.3], [0.5], [0.8]])
TIMES = np.round(np.arange(1, 13) * 0.1, 10)
DECLARED_X = np.array([[0.0], [0.025], [0.1], [0.2], [0.4], [0.7]])
DECLARED_T = (0.4, 0.8, 1.2)


def coverage(
    model: rk.Model, truth: dict[float, np.ndarray], readings: list[np.ndarray], noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Which twins have the field, and the boundary value, inside their 90 % intervals.

    (times, points, twins) and (times, twins); twins share their sensors and so their covariance.
    """
    functional, t, sequence = rk.points(INNER), model.start, []
    for time, y in zip(TIMES, readings, strict=True):
        sequence.append((model.step(t, time), model.observe(functional, time, noise_std=noise), y))
        t = time
    inside, value_inside = [], []
    for time, post in zip(TIMES, kalman.run_streams(model.initial, sequence), strict=True):
        if time not in DECLARED_T:
            continue
        std = model.field(rk.Gaussian(post.means[0], post.root), time).std(DECLARED_X)
        means = fields_of(model, post.means.T, time, DECLARED_X)
        inside.append(np.abs(means - truth[time][at(DECLARED_X)]) <= REACH * std[:, None])
        reports = [model.unknowns(rk.Gaussian(m, post.root), time) for m in post.means] if model.blocks else []
        if reports:
            mean = np.array([report["x-"].mean[0] for report in reports])
            value_inside.append(np.abs(mean - truth[time][0]) <= REACH * reports[0]["x-"].std[0])
    return np.array(inside), np.array(value_inside)


def wandering_twins(
    model: rk.Model, n: int, seed: int, process: rk.RandomWalk | rk.OrnsteinUhlenbeck, noise: float, substeps: int = 40
) -> tuple[dict[float, np.ndarray], list[np.ndarray]]:
    """Fields of n rods whose left ends follow a process, and what noisy sensors inside read.

    Initial fields come from the model's prior; everything after that from finite differences with 40 boundary values
    per gap. Between two of them the walk is taken as a straight line, which misses 1/12 of 1/40 of its variance.
    """
    rng = np.random.default_rng([seed, *b"twins"])
    states = drawn_states(model, n, rng)
    rod = Rod(fields_of(model, states, 0.0, Rod.grid()))
    mean = model.blocks[0].mean[0]
    truth, readings, t = {}, [], 0.0
    for time in TIMES:
        h = (time - t) / substeps
        for _ in range(substeps):
            kick = rng.standard_normal(n)
            if isinstance(process, rk.RandomWalk):
                value = rod.value + process.std * np.sqrt(h) * kick
            else:
                keep = np.exp(-h / process.time)
                value = mean + keep * (rod.value - mean) + process.std * np.sqrt(1.0 - keep**2) * kick
            rod.move(h, value)
        t = time
        truth[time] = rod()
        readings.append(truth[time][at(INNER)] + noise * rng.standard_normal((len(INNER), n)))
    return truth, readings


def is_calibrated(inside: np.ndarray, n: int) -> bool:
    """Every declared point and time within binomial bounds of 90 %, at a total risk of 1e-3."""
    hits = inside.sum(axis=-1).ravel()
    risk = 1e-3 / hits.size
    low, high = binom.ppf([0.5 * risk, 1.0 - 0.5 * risk], n, 0.9)
    return bool(((hits >= low) & (hits <= high)).all())


def test_intervals_of_field_and_boundary_value_cover_when_the_boundary_wanders_unseen(wall):
    """The law of the issue: 200 twins whose wall follows a random walk that only sensors inside the rod feel.

    The control holds the wall at zero instead; the same readings then give intervals that miss nearly always.
    """
    model, n, noise = rk.Model(wall, SMOOTH), 200, 0.05
    truth, readings = wandering_twins(model, n, 1, rk.RandomWalk(1.5), noise)
    inside, value_inside = coverage(model, truth, readings, noise)
    assert inside.shape == (3, 6, n) and value_inside.shape == (3, n)
    assert is_calibrated(inside, n)
    assert is_calibrated(value_inside, n)
    # All points of a twin together are one number between 0 and 1; its mean over twins within four standard errors.
    share = inside.mean(axis=(0, 1))
    assert abs(share.mean() - 0.9) < 4.0 * share.std() / np.sqrt(n)
    wrong = rk.Model(held(), SMOOTH)
    missed, _ = coverage(wrong, truth, readings, noise)
    assert not is_calibrated(missed, n)
    assert missed[:, DECLARED_X[:, 0] < 0.3].mean() < 0.3


@pytest.mark.study
@pytest.mark.parametrize("std", [0.3, 1.5, 5.0])
@pytest.mark.parametrize("kind", ["walk", "forgetting"])
@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_boundary_intervals_cover_for_every_size_of_wandering_and_noise(kind, std, noise, study_table):
    """The study behind the witness: 1000 twins each, two processes, three sizes, two noises.

    Intervals may be too wide where a fast wall meets very good sensors: for about 0.016 (resolution^2 / diffusivity)
    a new wall value shows inside as the tail of its lift, 1 % of it, before the other directions have answered, and
    the model counts that as movement. A wall that moves by 1.6 in such a time adds 0.016 to sensors of 0.01.
    """
    process = rk.RandomWalk(std) if kind == "walk" else rk.OrnsteinUhlenbeck(std, 0.3)
    model, n = rk.Model(walled(rk.Unknown((0.5, std), process)), SMOOTH), 1000
    truth, readings = wandering_twins(model, n, 2, process, noise, substeps=80)
    inside, value_inside = coverage(model, truth, readings, noise)
    study_table.add(
        "Unknown boundary: coverage of 90 % intervals",
        process=kind,
        std=std,
        noise=noise,
        twins=n,
        field=float(inside.mean()),
        boundary=float(value_inside.mean()),
        worst=float(inside.mean(axis=2).min()),
    )
    # 1000 twins see more than binomial noise: 2 % is left for the finite differences and the feature space.
    hits = np.concatenate([inside.reshape(-1, n), value_inside]).mean(axis=1)
    band = 4.5 * np.sqrt(0.09 / n) + 0.02
    assert (hits > 0.9 - band).all()
    if noise > 0.05:
        assert (hits < 0.9 + band).all()


def run_rod(filt: rk.Assimilator, wall_value, noise: float = 0.02, until: float = 2.0, u0=0.0) -> Rod:
    """Feed a filter with readings of one rod whose left end follows ``wall_value(t)``."""
    rng = np.random.default_rng([8, *b"one rod"])
    start = np.zeros(Rod.cells + 1) + u0
    start[0] = wall_value(0.0)
    rod, t, h = Rod(start), 0.0, 0.0125
    functional = rk.points(INNER)
    for k in range(1, round(until / h) + 1):
        rod.move(h, wall_value(k * h))
        if k % 8 == 0:
            t = round(k * h, 10)
            filt.advance(t)
            filt.observe(functional, rod()[at(INNER)] + noise * rng.standard_normal(len(INNER)), noise_std=noise)
    return rod


def test_a_constant_boundary_value_is_recovered():
    """A wall at 3.0 under a prior of 1 +- 2: found to a few hundredths, and the field at the wall is that value."""
    filt = rk.Assimilator(walled(rk.Unknown((1.0, 2.0))), SMOOTH)
    rod = run_rod(filt, lambda t: 3.0)
    report = filt.unknowns()["x-"]
    assert abs(report.mean[0] - 3.0) < 4.0 * report.std[0] and report.std[0] < 0.05
    assert report.identified[0] > 0.999
    assert_allclose(filt.posterior().mean([[0.0]]), report.mean, rtol=1e-6)  # the lift misses its data by 1e-8
    assert_allclose(filt.posterior().std([[0.0]]), report.std, rtol=1e-3)  # the other directions have traces of 1e-4
    x = np.array([[0.05], [0.25], [0.6], [0.9]])
    field = filt.posterior()
    assert (np.abs(field.mean(x) - rod()[at(x)]) < 4.0 * field.std(x)).all()


@pytest.mark.parametrize(
    "process",
    [rk.RandomWalk(2.0), rk.IntegratedRandomWalk(2.0, slope_std=3.0), rk.OrnsteinUhlenbeck(3.0, 1.0)],
    ids=["walk", "trend", "forgetting"],
)
def test_a_boundary_value_that_rises_is_followed(process):
    """The wall warms by 2 per unit of time; each process that may move follows it within its own stds.

    The control, a value declared fixed, ends up far from the wall and sure of itself.
    """

    def rising(t: float) -> float:
        return 1.0 + 2.0 * t

    filt = rk.Assimilator(walled(rk.Unknown((0.0, 2.0), process)), SMOOTH)
    run_rod(filt, rising)
    report = filt.unknowns()["x-"]
    assert abs(report.mean[0] - 5.0) < 4.0 * report.std[0] and report.identified[0] > 0.9
    stuck = rk.Assimilator(walled(rk.Unknown((0.0, 2.0))), SMOOTH)
    run_rod(stuck, rising)
    wrong = stuck.unknowns()["x-"]
    assert abs(wrong.mean[0] - 5.0) > 10.0 * wrong.std[0]


def test_a_trend_is_extrapolated_where_a_walk_stays():
    """Half a unit ahead an integrated walk expects the slope to go on; a random walk expects the last value."""
    ahead = {}
    for name, process in (("trend", rk.IntegratedRandomWalk(0.5, slope_std=3.0)), ("walk", rk.RandomWalk(2.0))):
        filt = rk.Assimilator(walled(rk.Unknown((0.0, 2.0), process)), SMOOTH)
        run_rod(filt, lambda t: 1.0 + 2.0 * t)
        now = float(filt.unknowns()["x-"].mean[0])
        ahead[name] = float(filt.forecast(2.5).mean([[0.0]])[0]) - now
    # The slope is 2 with an uncertainty of about 0.3, so the rise is 1.0 +- 0.15; three of those.
    assert abs(ahead["trend"] - 1.0) < 0.45
    assert abs(ahead["walk"]) < 1e-6


def test_a_length_along_a_single_point_changes_nothing():
    """The end of a rod has no extent: one value, its mean and its sign stay what they are."""
    reports = []
    for length in (None, 0.3):
        filt = rk.Assimilator(walled(rk.Unknown((1.0, 1.0), length=length)), SMOOTH)
        filt.advance(0.3)
        filt.observe(SENSORS, [1.0, 0.5, 0.3, 0.1], noise_std=0.05)
        reports.append(filt.unknowns()["x-"])
    assert_allclose(reports[0].mean, reports[1].mean, rtol=EXACT)
    assert_allclose(reports[0].std, reports[1].std, rtol=EXACT)
    assert reports[0].mean[0] > 1.0


@pytest.fixture(scope="module")
def face() -> rk.WhitenedSpace:
    """A square whose left face has an unknown temperature, correlated over 0.3; the other faces are insulated."""
    unknown = rk.Unknown((2.0, 1.0), rk.OrnsteinUhlenbeck(1.0, 1.0), length=0.3)
    pde = rk.Heat(rk.Box([0.0, 0.0], [1.0, 1.0]), NU, boundary={"x-": unknown, "*": rk.Neumann(0.0)})
    return rk.whiten(pde, rk.GaussianRFF(160, 0.4, seed=0) + rk.Constant(), 1e-12)


def test_a_boundary_value_along_a_face_has_the_declared_mean_std_and_correlation(face):
    """Before any reading the field on the face is the prior: 2 +- 1, correlation exp(-d^2 / (2 0.3^2)).

    The lift rounds a mode off where the energy asks for it and modes beyond a millionth of the variance are cut:
    1e-2 holds both; the other directions have traces of at most 1e-4 there.
    """
    y = np.linspace(0.0, 1.0, 6)
    edge = np.stack([np.zeros(6), y], axis=1)
    field = rk.Assimilator(face, rk.Sobolev(0.3, 0.3)).posterior()
    assert_allclose(field.mean(edge), 2.0, atol=1e-2)
    assert_allclose(field.cov(edge), np.exp(-0.5 * np.square((y[:, None] - y) / 0.3)), atol=1e-2)


def test_sensors_beside_a_face_pin_it_down_nearby_and_not_far_away(face):
    """Two sensors near the lower end: the std on the face falls there and stays the prior's at the upper end."""
    filt = rk.Assimilator(face, rk.Sobolev(0.3, 0.3))
    for t in (0.1, 0.2, 0.3, 0.4):
        filt.advance(t)
        filt.observe(rk.points([[0.1, 0.2], [0.1, 0.3]]), [2.5, 2.5], noise_std=0.02)
    near, middle, far = filt.posterior().std([[0.0, 0.25], [0.0, 0.6], [0.0, 1.0]])
    assert near < 0.4 and near < middle < far < 1.0 + 1e-2 and far > 0.9
    identified = filt.unknowns()["x-"].identified
    # The first modes are the long ones; rounding may leave an unseen one at -1e-15.
    assert identified.size > 3 and (identified > -1e-9).all() and (identified < 1.0).all()
    assert identified[0] > 0.5 > identified[-1]


def natural_rod(flux: float, transfer: float, ambient: float, times: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Heat with a flux into the left end and exchange at the right one: finite volumes, 200 cells, exact in time."""
    n = 200
    h = 1.0 / n
    A = NU / h**2 * (np.diag(-2.0 * np.ones(n)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1))
    A[0, 0] = A[-1, -1] = -NU / h**2
    # Half a cell of conduction in series with the transfer.
    exchange = 1.0 / (1.0 / transfer + 0.5 * h / NU) / h
    A[-1, -1] -= exchange
    b = np.zeros(n)
    b[0], b[-1] = flux / h, exchange * ambient
    joint = np.zeros((n + 1, n + 1))
    joint[:n, :n], joint[:n, n] = A, b
    advance = expm(joint * (times[1] - times[0]))
    state, fields = np.append(np.zeros(n), 1.0), []
    for _ in times:
        state = advance @ state
        fields.append(state[:n].copy())
    return (np.arange(n) + 0.5) * h, fields


def test_an_unknown_flux_and_an_unknown_ambient_are_recovered_together():
    """Flux 0.3 into one end, surroundings at 4 beyond the other: two numbers, four sensors, both found."""
    space = exchanging(rk.Neumann(rk.Unknown(1.0)), rk.Robin(0.5, rk.Unknown((3.0, 2.0))))
    filt = rk.Assimilator(space, rk.Sobolev(0.5, 0.3))
    x, fields = natural_rod(0.3, 0.5, 4.0, np.arange(1, 31) * 0.1)
    index = np.array([20, 70, 130, 185])
    rng = np.random.default_rng(12)
    for k, u in enumerate(fields):
        filt.advance(round(0.1 * (k + 1), 10))
        filt.observe(rk.points(x[index, None]), u[index] + 0.01 * rng.standard_normal(4), noise_std=0.01)
    found = filt.unknowns()
    for name, truth, prior_std in (("x-", 0.3, 1.0), ("x+", 4.0, 2.0)):
        assert abs(found[name].mean[0] - truth) < 4.0 * found[name].std[0], str(found[name])
        assert found[name].std[0] < 0.05 * prior_std and found[name].identified[0] > 0.99


# -- sensor offsets ---------------------------------------------------------------------------------------------------

TWELVE = tuple(f"T{i:02d}" for i in range(12))
TWELVE_X = np.linspace(0.06, 0.94, 12)[:, None]


def two_modes(x: np.ndarray, t: float) -> np.ndarray:
    """A solution of the heat equation with ends at zero, in closed form."""
    slow, fast = np.exp(-NU * np.pi**2 * t), np.exp(-9.0 * NU * np.pi**2 * t)
    return np.asarray(slow * np.sin(np.pi * x[:, 0]) + 0.5 * fast * np.sin(3.0 * np.pi * x[:, 0]))


def read_twelve(filt: rk.Assimilator, offset, noise: float = 0.05, n: int = 30) -> None:
    """Twelve sensors of a known field; the eighth is off by ``offset(t)``."""
    rng = np.random.default_rng([5, *b"twelve"])
    functional = rk.points(TWELVE_X, ids=TWELVE)
    for k in range(n):
        t = 0.04 * (k + 1)
        y = two_modes(TWELVE_X, t) + noise * rng.standard_normal(12)
        y[7] += offset(t)
        filt.advance(t)
        filt.observe(functional, y, noise_std=noise)


def test_the_one_wrong_sensor_of_twelve_is_found(rod):
    """0.8 on one sensor: its offset is found with an honest std, the others stay near zero, and the field is saved."""
    filt = rk.Assimilator(rod, SMOOTH, blocks=[rk.SensorOffset(TWELVE, 0.5)])
    read_twelve(filt, lambda t: 0.8)
    report = filt.unknowns()["offset"]
    truth = np.where(np.arange(12) == 7, 0.8, 0.0)
    assert int(np.argmax(np.abs(report.mean) / report.std)) == 7
    assert (np.abs(report.mean - truth) < 4.0 * report.std).all()
    # 30 readings of 0.05 would leave 0.01 beside a known field; the field's own uncertainty adds to it.
    assert (report.std > 0.05 / np.sqrt(30.0) * 0.99).all() and (report.std < 0.1).all()
    assert np.abs(np.delete(report.mean, 7)).max() < 0.1
    trusting = rk.Assimilator(rod, SMOOTH)
    read_twelve(trusting, lambda t: 0.8)
    x = np.linspace(0.05, 0.95, 19)[:, None]
    error, wrong = (np.abs(f.posterior().mean(x) - two_modes(x, f.time)).max() for f in (filt, trusting))
    assert error < 0.5 * wrong
    assert filt.log_evidence > trusting.log_evidence + 100.0


def test_a_slow_drift_is_followed_by_a_random_walk(rod):
    """An offset that grows to 0.6 in the run; declared constant it is averaged over and missed (control)."""
    drift, constant = (
        rk.Assimilator(rod, SMOOTH, blocks=[rk.SensorOffset(TWELVE, 0.3, process)])
        for process in (rk.RandomWalk(0.3), rk.Fixed())
    )
    for filt in (drift, constant):
        read_twelve(filt, lambda t: 0.5 * t)
    report, wrong = drift.unknowns()["offset"], constant.unknowns()["offset"]
    assert abs(report.mean[7] - 0.6) < 4.0 * report.std[7] < 0.5
    assert abs(wrong.mean[7] - 0.6) > 6.0 * wrong.std[7]


def test_an_offset_does_not_enter_the_field(rod):
    """It belongs to the instrument: states that differ in an offset alone describe the same field."""
    model = rk.Model(rod, SMOOTH, blocks=[rk.SensorOffset(["a", "b"], 1.0)])
    state = np.random.default_rng(0).standard_normal(model.dim)
    moved = state.copy()
    moved[rod.rank :] += 10.0
    x = np.linspace(0.0, 1.0, 9)[:, None]
    fields = fields_of(model, np.stack([state, moved], axis=1), 0.0, x)
    assert_array_equal(fields[:, 0], fields[:, 1])
    # Its readings do: exactly those of the named sensors.
    obs = model.observe(rk.points([[0.2], [0.3], [0.4]], ids=["b", "c", "a"]), 0.0, noise_std=1.0)
    assert_allclose(obs.H @ (moved - state), [10.0, 0.0, 10.0], rtol=1e-12)


def test_the_same_place_under_another_name_is_another_sensor(rod):
    """What a model remembers of sensors includes their names."""
    model = rk.Model(rod, SMOOTH, blocks=[rk.SensorOffset(["a"], 1.0)])
    H = [model.observe(rk.points([[0.2]], ids=[name]), 0.0, noise_std=1.0).H[0, -1] for name in ("a", "b", "a")]
    assert H == [1.0, 0.0, 1.0]


def test_readings_without_names_are_refused_with_the_remedy(rod):
    """An offset without a name would silently belong to nobody; the filter is left as it was."""
    filt = rk.Assimilator(rod, SMOOTH, blocks=[rk.SensorOffset(["a"], 1.0)])
    before = filt.belief
    with pytest.raises(ValueRangeError, match=r"block 'offset' belongs to sensors by name.*ids="):
        filt.observe(rk.points([[0.5]]), [1.0], noise_std=0.1)
    with pytest.raises(ValueRangeError, match="ids="):
        filt.observe(rk.stack(rk.points([[0.5]], ids=["a"]), rk.points([[0.6]])), [1.0, 1.0], noise_std=0.1)
    assert filt.belief is before and filt.counts == {"used": 0, "missing": 0}


# -- sources ----------------------------------------------------------------------------------------------------------


def sourced_rod(filt: rk.Assimilator, source: np.ndarray, noise: float = 0.02, until: float = 1.5) -> Rod:
    """Feed a filter with readings of a rod at zero with a steady source inside."""
    rng = np.random.default_rng([6, *b"sourced"])
    truth = Rod(np.zeros(Rod.cells + 1), source[1:-1])
    functional = rk.points(INNER)
    for k in range(round(until / 0.05)):
        truth.move(0.05, 0.0)
        filt.advance(round(0.05 * (k + 1), 10))
        filt.observe(functional, truth()[at(INNER)] + noise * rng.standard_normal(4), noise_std=noise)
    return truth


def test_the_strength_of_a_source_of_known_shape_is_recovered(rod):
    """A bump of strength 4.2 under a prior of 3 +- 1."""
    filt = rk.Assimilator(rod, SMOOTH, blocks=[rk.LatentSource(bump, (3.0, 1.0))])
    sourced_rod(filt, 4.2 * bump(Rod.grid()))
    report = filt.unknowns()["source"]
    assert abs(report.mean[0] - 4.2) < 4.0 * report.std[0] and report.std[0] < 0.1
    assert report.identified[0] > 0.99


@pytest.mark.parametrize(
    "process", [rk.Fixed(), rk.RandomWalk(2.0), rk.OrnsteinUhlenbeck(1.0, 0.1)], ids=["fixed", "walk", "forgetting"]
)
def test_without_readings_the_mean_field_is_a_deterministic_run(rod, process):
    """The mean strength 3 pushes from the first moment, whatever the process: a PDE with that source, two routes."""
    blocked = rk.Assimilator(
        rod, rk.FromFunction(lambda x: two_modes(x, 0.0), SMOOTH), blocks=[rk.LatentSource(bump, (3.0, 1.0), process)]
    )
    pde = rod_pde(rk.Dirichlet(0.0), source=lambda x, t: 3.0 * bump(x))
    plain = rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, 0.15, seed=0)))
    known = rk.Assimilator(plain, rk.FromFunction(lambda x: two_modes(x, 0.0), SMOOTH))
    x = np.linspace(0.0, 1.0, 21)[:, None]
    for t in (0.01, 0.3, 4.0):
        # Both spaces project the bump with the same rule; the operators agree to the rounding of weak directions.
        assert_allclose(blocked.forecast(t).mean(x), known.forecast(t).mean(x), rtol=0.0, atol=1e-8)
    assert blocked.forecast(0.3).std([[0.4]]) > known.forecast(0.3).std([[0.4]])


def test_a_smooth_hidden_source_is_absorbed_by_a_source_field(rod):
    """With a source field the evidence rises and the intervals hold; without, they do not."""
    source = 2.0 * np.sin(2.0 * np.pi * Rod.grid()[:, 0]) + 1.0 * np.sin(np.pi * Rod.grid()[:, 0])
    blind = rk.Assimilator(rod, SMOOTH)
    aware = rk.Assimilator(rod, SMOOTH, blocks=[rk.SourceField(2.0, 0.3, 2.0)])
    x = np.linspace(0.1, 0.9, 17)[:, None]
    departures = []
    for filt in (blind, aware):
        truth = sourced_rod(filt, source)()[at(x)]
        field = filt.posterior()
        departures.append(np.abs(field.mean(x) - truth) / field.std(x))
    assert aware.log_evidence > blind.log_evidence + 100.0
    assert departures[1].max() < 4.0 < departures[0].max()
    # The blind filter also ends up sure of what is wrong.
    assert (departures[0] > 3.0).mean() > 0.3


def test_a_source_field_keeps_the_modes_that_were_asked_for(rod):
    """``modes`` is a number of components; the default carries all but a thousandth of the variance."""
    for asked, kept in ((1, 1), (4, 4), (10_000, rod.rank)):
        model = rk.Model(rod, SMOOTH, blocks=[rk.SourceField(2.0, 0.2, 1.0, modes=asked)])
        assert model.dim == rod.rank + kept
    default = rk.SourceField(2.0, 0.2, 1.0).on(rod)
    # rms over the domain of the source: the basis is orthonormal, so the trace of its covariance is the mean square.
    carried = float(np.square(default.push).sum())
    assert 0.999 * 4.0 <= carried <= 4.0 * (1.0 + EXACT)
    assert default.dim < rod.rank


def test_a_source_field_wanders_at_the_declared_size_and_forgets(rod):
    """Stationary: the source keeps its rms at all times and its correlation is exp(-t / time)."""
    model = rk.Model(rod, SMOOTH, blocks=[rk.SourceField(2.0, 0.2, 0.5, modes=5)])
    step, r = model.step(0.0, 0.3), rod.rank
    assert_allclose(step.F[r:, r:], np.exp(-0.6) * np.eye(5), rtol=0.0, atol=EXACT)
    assert_allclose(step.F[r:, r:] @ step.F[r:, r:].T + step.Q[r:, r:], np.eye(5), rtol=0.0, atol=EXACT)


# -- what the data say ------------------------------------------------------------------------------------------------


def test_a_block_that_no_sensor_sees_is_reported_as_such_and_harms_nothing():
    """A silent sensor's offset and a far wall: identified near 0, prior stds; the near wall is seen nearly fully."""
    far = rk.Unknown((1.0, 0.5))
    space = rk.whiten(rod_pde(rk.Unknown((0.0, 2.0)), far, nu=0.01), rk.GaussianRFF(60, 0.15, seed=3))
    filt = rk.Assimilator(space, SMOOTH, blocks=[rk.SensorOffset(["silent"], 0.3)])
    named = rk.points([[0.0], [0.05]], ids=["a", "b"])
    for t in (0.1, 0.2, 0.3):
        filt.advance(t)
        filt.observe(named, [3.0, 2.5], noise_std=0.05)
    found = filt.unknowns()
    assert_allclose(found["offset"].identified, 0.0, atol=EXACT)
    assert_allclose(found["offset"].std, 0.3, rtol=EXACT)
    # Heat from the far wall has spread over sqrt(4 0.01 0.3) = 0.11 of a rod of length 1. What is left is the tail of
    # the lift at the start, 1.5 % of the value: (0.5 0.015 / 0.05)^2 = 2 % of the variance at most, less as it decays.
    assert_allclose(found["x+"].identified, 0.0, atol=2e-3)
    assert_allclose(found["x+"].mean, 1.0, atol=0.1)
    assert found["x-"].identified[0] > 0.99
    assert abs(found["x-"].mean[0] - 3.0) < 4.0 * found["x-"].std[0]


def test_two_offsets_that_only_appear_as_a_sum_are_not_told_apart(rod):
    """One sensor under two blocks: the sum is known, each half only to its share of the prior; no division fails."""
    blocks = [rk.SensorOffset(["a"], 1.0, name="mount"), rk.SensorOffset(["a"], 1.0, name="bias")]
    filt = rk.Assimilator(rod, rk.Sobolev(1e-3, 0.2), blocks=blocks)
    for _ in range(50):
        filt.observe(rk.points([[0.5]], ids=["a"]), [1.0], noise_std=0.1)
    found = filt.unknowns()
    for name in ("mount", "bias"):
        # Two equal shares of a sum known to 0.1 / sqrt(50): half the variance each is removed, up to 1e-4 of it.
        assert_allclose(found[name].mean, 0.5, atol=1e-3)
        assert_allclose(found[name].identified, 0.5, atol=1e-3)


@pytest.mark.parametrize("process", [rk.Fixed(), rk.RandomWalk(2.0), rk.OrnsteinUhlenbeck(1.0, 0.5)])
@pytest.mark.parametrize("propagator", [rk.Exponential(), rk.ImplicitEuler(max_step=0.01), rk.SDIRK2(max_step=0.01)])
def test_without_readings_nothing_is_identified(process, propagator):
    """Time passes in ten steps, the block's variance moves as declared, and no variance has been removed.

    Schemes carry their own first- or second-order error in the variance: 0.01 / 0.5 for implicit Euler.
    """
    filt = rk.Assimilator(walled(rk.Unknown(1.0, process)), SMOOTH, propagator)
    for k in range(10):
        filt.advance(0.2 * (k + 1))
    report = filt.unknowns()["x-"]
    variance = {"Fixed": 1.0, "RandomWalk": 1.0 + 4.0 * 2.0, "OrnsteinUhlenbeck": 1.0}[type(process).__name__]
    tolerance = EXACT if isinstance(propagator, rk.Exponential) else 0.02
    assert_allclose(np.square(report.std), variance, rtol=tolerance)
    assert_allclose(report.identified, 0.0, atol=tolerance)


def test_the_share_identified_is_one_minus_the_variance_left(wall):
    """By its definition, against the declared process: prior 1 + 1.5^2 t at time t."""
    filt = rk.Assimilator(wall, SMOOTH)
    for t in (0.1, 0.35):
        filt.advance(t)
        filt.observe(SENSORS, [0.4, 0.9, 0.5, 0.2], noise_std=0.1)
    filt.advance(0.4)
    report = filt.unknowns()["x-"]
    assert_allclose(report.identified, 1.0 - np.square(report.std) / (1.0 + 2.25 * 0.4), rtol=EXACT)
    assert 0.0 < report.identified[0] < 1.0
    shown = str(report)
    assert shown.startswith("x-: ") and "% identified" in shown and "+-" in shown


# -- the stream -------------------------------------------------------------------------------------------------------


def batches(n: int = 8, dt: float = 0.1) -> list[tuple[float, np.ndarray]]:
    rng = np.random.default_rng([2, *b"batches"])
    return [(round(dt * (k + 1), 10), 1.0 + 0.3 * rng.standard_normal(4)) for k in range(n)]


def riding(space: rk.WhitenedSpace, prior: object = None, **options: object) -> rk.Assimilator:
    """A boundary value, a source and offsets together."""
    blocks = [rk.LatentSource(bump, (0.5, 1.0), rk.RandomWalk(0.5)), rk.SensorOffset(NAMES[:2], 0.3)]
    return rk.Assimilator(space, SMOOTH if prior is None else prior, blocks=blocks, **options)


def test_late_readings_inside_the_lag_change_nothing(wall):
    """Replayed in order of time, blocks and all."""
    in_order, shuffled = riding(wall), riding(wall, reorder=0.5)
    record = batches()
    for t, y in record:
        in_order.advance(t)
        in_order.observe(SENSORS, y, noise_std=0.1)
    late = [(t, y) for t, y in record if round(10 * t) in (3, 5, 6)]
    for t, y in record:
        shuffled.advance(t)
        if round(10 * t) not in (3, 5, 6):
            shuffled.observe(SENSORS, y, noise_std=0.1)
    for t, y in late[::-1]:
        shuffled.observe(SENSORS, y, noise_std=0.1, time=t)
    assert_allclose(shuffled.belief.mean, in_order.belief.mean, rtol=0.0, atol=EXACT)
    assert_allclose(shuffled.belief.cov, in_order.belief.cov, rtol=0.0, atol=EXACT)
    assert_allclose(shuffled.log_evidence, in_order.log_evidence, rtol=EXACT)
    for name, report in in_order.unknowns().items():
        assert_allclose(shuffled.unknowns()[name].mean, report.mean, rtol=0.0, atol=EXACT)


def test_a_missing_reading_is_a_reading_not_taken(wall):
    """NaN drops one row, the offset of that sensor with it."""
    whole, part = riding(wall), riding(wall)
    for t, y in batches(4):
        gone = y.copy()
        gone[1] = np.nan
        whole.advance(t)
        whole.observe(SENSORS, gone, noise_std=0.1)
        keep = [0, 2, 3]
        part.advance(t)
        part.observe(rk.points(PLACES[keep], ids=[NAMES[i] for i in keep]), y[keep], noise_std=0.1)
    assert_allclose(whole.belief.mean, part.belief.mean, rtol=0.0, atol=EXACT)
    assert_allclose(whole.belief.cov, part.belief.cov, rtol=0.0, atol=EXACT)
    assert_allclose(whole.unknowns()["offset"].identified[1], 0.0, atol=EXACT)
    assert whole.counts == {"used": 12, "missing": 4}


def test_a_constant_gain_is_the_full_recursion_with_blocks(wall):
    """Driven blocks settle and the gain becomes constant; a fixed offset never settles and keeps the full recursion."""
    settling = [rk.SourceField(0.5, 0.3, 0.2, modes=2), rk.SensorOffset(NAMES[:2], 0.3, rk.OrnsteinUhlenbeck(0.3, 0.5))]
    noise = rk.Sobolev(0.05, 0.2)
    record = batches(150)
    for blocks, constant in ((settling, True), ([rk.SensorOffset(NAMES[:2], 0.3)], False)):
        plain, quick = (
            rk.Assimilator(wall, SMOOTH, process_noise=noise, blocks=blocks, constant_gain=choice)
            for choice in (False, True)
        )
        for t, y in record:
            for filt in (plain, quick):
                filt.advance(t)
                filt.observe(SENSORS, y, noise_std=0.1)
        assert quick._recursion is not None and quick._recursion.is_constant is constant
        assert_allclose(quick.belief.mean, plain.belief.mean, rtol=0.0, atol=1e-9)
        assert_allclose(quick.belief.cov, plain.belief.cov, rtol=0.0, atol=1e-9)
        assert_allclose(quick.log_evidence, plain.log_evidence, rtol=1e-9)


def test_units_of_length_and_time_leave_field_and_unknowns_alone():
    """Metres and hours, or centimetres and minutes: the same rod, wall, source and offsets.

    The features are drawn in units of the length scale, so both spaces are the same up to rounding, which whitening
    at a floor of 1e-16 amplifies to 1e-8.
    """
    results = []
    for metre, hour in ((1.0, 1.0), (100.0, 60.0)):
        unknown = rk.Unknown((0.5, 1.0), rk.RandomWalk(1.5 / np.sqrt(hour)))
        pde = rk.Heat(rk.Interval(0.0, metre), NU * metre**2 / hour, boundary={"x-": unknown, "x+": rk.Dirichlet(0.0)})
        space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, 0.15 * metre, seed=0), parts=["x+"]))

        def shape(x: np.ndarray, metre: float = metre) -> np.ndarray:
            return bump(x / metre)

        blocks = [
            rk.LatentSource(shape, (0.5 / hour, 1.0 / hour), rk.OrnsteinUhlenbeck(1.0 / hour, 0.7 * hour)),
            rk.SensorOffset(NAMES[:2], 0.3, rk.RandomWalk(0.1 / np.sqrt(hour))),
        ]
        filt = rk.Assimilator(space, rk.Sobolev(1.0, 0.2 * metre), blocks=blocks)
        for t, y in batches(5):
            filt.advance(t * hour)
            filt.observe(rk.points(PLACES * metre, ids=NAMES), y, noise_std=0.1)
        x = metre * np.linspace(0.0, 1.0, 11)[:, None]
        found = filt.unknowns()
        source = hour * np.concatenate([found["source"].mean, found["source"].std])
        rest = np.concatenate([found[k].mean for k in ("x-", "offset")] + [found[k].std for k in ("x-", "offset")])
        shares = np.concatenate([report.identified for report in found.values()])
        field = filt.posterior()
        results.append(np.concatenate([field.mean(x), field.std(x), source, rest, shares]))
    assert_allclose(results[0], results[1], rtol=0.0, atol=1e-6)


def test_a_saved_space_with_unknown_conditions_goes_on_bit_for_bit(wall, tmp_path):
    """The conditions, their priors and processes travel with the space; the belief with the whole state. (What the
    space cannot hold of a law travels with an assimilator: here the prior is stated in coefficients.)"""
    path = rk.save(tmp_path / "wall.npz", wall)
    back = rk.load(path)
    assert isinstance(back, rk.WhitenedSpace)
    first, second = (riding(space, prior=SMOOTH.on(wall)) for space in (wall, back))
    record = batches(6)
    for t, y in record[:3]:
        for filt in (first, second):
            filt.advance(t)
            filt.observe(SENSORS, y, noise_std=0.1)
    assert_array_equal(first.belief.mean, second.belief.mean)
    assert_array_equal(first.belief.root, second.belief.root)
    # Stopped here, and started again from files.
    belief = rk.load(rk.save(tmp_path / "belief.npz", second.belief))
    assert isinstance(belief, rk.Gaussian)
    blocks = [rk.LatentSource(bump, (0.5, 1.0), rk.RandomWalk(0.5)), rk.SensorOffset(NAMES[:2], 0.3)]
    third = rk.Assimilator(back, belief, start=second.time, blocks=blocks)
    for t, y in record[3:]:
        for filt in (first, third):
            filt.advance(t)
            filt.observe(SENSORS, y, noise_std=0.1)
    assert_array_equal(first.belief.mean, third.belief.mean)
    assert_array_equal(first.belief.root, third.belief.root)
    x = np.linspace(0.0, 1.0, 9)[:, None]
    assert_array_equal(first.posterior().mean(x), third.posterior().mean(x))
    for name, report in first.unknowns().items():
        assert_array_equal(report.mean, third.unknowns()[name].mean)
        assert_array_equal(report.std, third.unknowns()[name].std)


@pytest.mark.parametrize(
    "process",
    [rk.Fixed(), rk.OrnsteinUhlenbeck(1.0, 0.5), rk.IntegratedRandomWalk(1.0, 0.2)],
    ids=["fixed", "forgetting", "trend"],
)
def test_natural_conditions_with_unknowns_come_back_from_a_file(process, tmp_path):
    """A flux and an ambient, each with its process and length."""
    space = exchanging(rk.Neumann(rk.Unknown((0.1, 0.4), process)), rk.Robin(0.5, rk.Unknown(2.0, length=0.3)))
    back = rk.load(rk.save(tmp_path / "space", space))
    assert isinstance(back, rk.WhitenedSpace)
    a, b = rk.Model(space, SMOOTH), rk.Model(back, SMOOTH)
    for mine, yours in zip(a.blocks, b.blocks, strict=True):
        assert mine.name == yours.name
        for name in ("drift", "noise_root", "initial_root", "mean", "push"):
            assert_array_equal(getattr(mine, name), getattr(yours, name))


# -- misuse -----------------------------------------------------------------------------------------------------------


def test_two_blocks_of_one_name_are_refused(rod, wall):
    """Reports go by name; a source may not take the name of a boundary part either."""
    twice = [rk.LatentSource(bump, 1.0), rk.LatentSource(bump, 2.0)]
    with pytest.raises(ShapeError, match=r"two blocks are called 'source'; give each its own name="):
        rk.Model(rod, SMOOTH, blocks=twice)
    with pytest.raises(ShapeError, match=r"two blocks are called 'x-'"):
        rk.Model(wall, SMOOTH, blocks=[rk.LatentSource(bump, 1.0, name="x-")])
    rk.Model(rod, SMOOTH, blocks=[twice[0], rk.LatentSource(bump, 2.0, name="other")])


def test_a_belief_of_another_model_is_refused(rod, wall):
    """Field and unknowns are read off the state by position; another state would be read wrongly or not at all."""
    model = rk.Model(wall, SMOOTH)
    for read in (model.field, model.unknowns):
        with pytest.raises(ShapeError, match=f"belief has 3 components but the state of this model has {model.dim}"):
            read(rk.Gaussian(np.zeros(3), np.eye(3)), 0.0)


def test_an_unknown_value_on_a_windowed_part_is_refused():
    """There every feature is zero and no prior could say otherwise; the message says which part to leave out."""
    with pytest.raises(ConformityError, match=r"vanish on 'x-'.*parts="):
        rk.whiten(rod_pde(WALK), rk.bubble(rk.GaussianRFF(60, 0.15)))


def test_unknown_values_and_changing_coefficients_are_refused_together():
    """The coupling between wall and field would change in time; a flux has no such coupling and is fine."""
    changing = rk.modulated(NU, lambda t: 1.0 + 0.5 * np.sin(t))
    space = walled(WALK, nu=changing)
    with pytest.raises(ValueRangeError, match="not supported"):
        rk.Model(space, SMOOTH)
    pde = rod_pde(rk.Neumann(rk.Unknown(1.0)), nu=changing)
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, 0.15, seed=0), parts=["x+"]))
    assert np.isfinite(rk.Model(space, SMOOTH).step(0.0, 0.1).F).all()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (rk.SensorOffset("abc", 1.0), r"sequence of names; for one sensor write \['abc'\]"),
        (rk.SensorOffset([], 1.0), "at least one"),
        (rk.SensorOffset(["a", "a"], 1.0), "different names"),
        (rk.SensorOffset(["a"], 0.0), "std must be positive"),
        (rk.SensorOffset(["a"], 1.0, "drift"), "process must be a Process such as RandomWalk"),
        (rk.LatentSource(bump, 0.0), r"prior std must be positive.*\(mean, std\)"),
        (rk.LatentSource(bump, 1.0, rk.RandomWalk), "process must be a Process such as RandomWalk"),
        (rk.LatentSource(lambda x: x, 1.0), r"function\(x\)"),
        (rk.SourceField(0.0, 0.2, 1.0), "std must be positive"),
        (rk.SourceField(1.0, -0.2, 1.0), "length must be positive"),
        (rk.SourceField(1.0, 0.2, 0.0), "time must be positive"),
        (rk.SourceField(1.0, 0.2, 1.0, modes=0), "modes"),
        (rk.SourceField(1.0, 0.2, 1.0, modes=2.5), "modes"),
    ],
)
def test_impossible_blocks_are_refused_by_name(rod, block, message):
    """The argument, what arrived, and what to write instead."""
    with pytest.raises(rk.RFKalmanError, match=message):
        rk.Model(rod, SMOOTH, blocks=[block])


def test_a_source_between_the_quadrature_nodes_is_not_taken_for_one_that_is_held():
    """Seen by no node of the space's own rule its load is zero; a finer rule notices, and the user is told."""
    space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.bubble(rk.GaussianRFF(40, 0.2, seed=0)))
    nodes = np.sort(space.rule.points[:, 0])
    gap = int(np.argmax(np.diff(nodes)))
    middle, width = nodes[gap : gap + 2].mean(), np.diff(nodes).max() / 12.0
    with pytest.warns(rk.RFKalmanWarning, match="holds only"):
        rk.LatentSource(lambda x: np.exp(-0.5 * ((x[:, 0] - middle) / width) ** 2), (0.0, 1.0)).on(space)
