"""A level that the whole field shares, beside departures that relax towards it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import rfkalman as rk
from rfkalman.core.errors import ValueRangeError
from rfkalman.diagnostics import rehearsal
from rfkalman.extensions import Closure
from rfkalman.filters import kalman

# Two exact routes (STYLE, tolerances); prior over noise variance is at most 1e5 below, eps times that is 1e-11.
EXACT = 1e-9
RATE, NU = 0.4, 0.02
SWING = rk.RandomWalk(0.8) + rk.Harmonic(2.0, 1.0)
LEVEL = rk.Level((15.0, 3.0), SWING)
PLACES = np.array([[0.1], [0.35], [0.62], [0.9]])
SENSORS = rk.points(PLACES)


@pytest.fixture(scope="module")
def space() -> rk.WhitenedSpace:
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), NU, reaction=RATE, boundary=rk.Neumann())
    return rk.whiten(pde, rk.GaussianRFF(40, 0.2, seed=0) + rk.Constant())


def swing_cov(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Of the level: where it starts, what it wanders, its cycle."""
    return 3.0**2 + 0.8**2 * np.minimum(s, t) + 2.0**2 * np.cos(2.0 * np.pi * (s - t))


def record(n: int = 12) -> list[tuple[float, np.ndarray]]:
    """Irregular times, some readings missing."""
    rng = np.random.default_rng([3, *b"level"])
    times = np.cumsum(rng.uniform(0.02, 0.4, n))
    values = 15.0 + 4.0 * rng.standard_normal((n, len(PLACES)))
    values[rng.random(values.shape) < 0.2] = np.nan
    return list(zip(times.tolist(), values, strict=True))


def filtered(model: rk.Model, batches, noise: float = 0.1) -> tuple[rk.Gaussian, float, float]:
    belief, now, evidence = model.initial, model.start, 0.0
    for t, y in batches:
        belief, now = kalman.forecast(belief, model.step(now, t)), t
        belief = kalman.analyse(belief, model.observe(SENSORS, t, noise_std=noise), y)
        evidence += belief.log_evidence
    return belief, now, evidence


def test_the_filter_is_the_regression_on_level_and_departures(space):
    """Dense conditioning on all readings at once, with the covariance of the level (closed form) plus that of the
    departures, mode by mode an Ornstein-Uhlenbeck process with its own rate. Mean, covariance and evidence agree."""
    p0, q = 0.7, 0.5
    model = rk.Model(space, rk.isotropic(p0), process_noise=rk.isotropic(q), blocks=[LEVEL])
    belief, now, evidence = filtered(model, record())
    k = np.diagonal(space.stiffness)

    def departures(s: float, t: float) -> np.ndarray:
        stay = np.exp(-k * (s + t))
        return p0**2 * stay + q**2 * (np.exp(-k * abs(s - t)) - stay) / (2.0 * k)

    seen = [(t, i, v) for t, y in record() for i, v in enumerate(y) if np.isfinite(v)]
    times, y = np.array([t for t, _, _ in seen]), np.array([v for _, _, v in seen])
    Psi = space(PLACES)[[i for _, i, _ in seen]]
    x = np.linspace(0.0, 1.0, 7)[:, None]
    all_times, rows = np.concatenate([times, np.full(len(x), now)]), np.vstack([Psi, space(x)])
    K = np.array(
        [
            [(a * departures(s, t)) @ b for b, t in zip(rows, all_times, strict=True)]
            for a, s in zip(rows, all_times, strict=True)
        ]
    )
    K += swing_cov(all_times[:, None], all_times)
    n = len(y)
    S = K[:n, :n] + 0.1**2 * np.eye(n)
    gain = np.linalg.solve(S, K[:n, n:]).T
    field = model.field(belief, now)
    assert_allclose(field.mean(x), 15.0 + gain @ (y - 15.0), rtol=EXACT)
    assert_allclose(field.cov(x), K[n:, n:] - gain @ K[:n, n:], atol=EXACT * 10.0)
    expected = -0.5 * ((y - 15.0) @ np.linalg.solve(S, y - 15.0) + np.linalg.slogdet(2.0 * np.pi * S)[1])
    assert_allclose(evidence, expected, rtol=EXACT)
    # The level itself, alone.
    cross = swing_cov(now, times)
    found = model.unknowns(belief, now)["level"]
    assert_allclose(found.mean, 15.0 + cross @ np.linalg.solve(S, y - 15.0), rtol=EXACT)
    assert_allclose(found.std**2, swing_cov(now, now) - cross @ np.linalg.solve(S, cross), rtol=1e-7)


def test_a_constant_added_to_all_readings_is_added_to_the_map(space):
    """The mean of the level moved along: exactly, with the bands as they were. Without: as far as a wide prior lets it,
    1 / (1 + noise variance / prior variance). The control has no level: departures relax to zero, and so does the map.
    """
    x = np.linspace(0.0, 1.0, 9)[:, None]
    batches = record()
    shifted = [(t, y + 7.0) for t, y in batches]

    def mapped(level: rk.Level | None, readings) -> rk.Field:
        blocks = [] if level is None else [level]
        model = rk.Model(space, rk.Sobolev(1.0, 0.2), process_noise=rk.Sobolev(0.5, 0.2), blocks=blocks)
        belief, now, _ = filtered(model, readings)
        return model.field(belief, now + 0.0)

    one, two = mapped(LEVEL, batches), mapped(rk.Level((22.0, 3.0), SWING), shifted)
    assert_allclose(two.mean(x), one.mean(x) + 7.0, rtol=0.0, atol=1e-8)
    assert_allclose(two.std(x), one.std(x), rtol=1e-10)
    wide = rk.Level((15.0, 1e4), SWING)
    assert_allclose(mapped(wide, shifted).mean(x), mapped(wide, batches).mean(x) + 7.0, rtol=0.0, atol=1e-5)
    control = mapped(None, shifted).mean(x) - mapped(None, batches).mean(x)
    assert np.abs(control - 7.0).max() > 1e-2


def test_a_level_is_the_same_everywhere_and_none_of_what_the_space_cannot_hold(space):
    """Shape 1 to rounding, in the space and in its richer twin; gradients see nothing of it."""
    model = rk.Model(space, rk.Sobolev(1e-3, 0.2), blocks=[rk.Level((15.0, 5.0))])
    x = np.linspace(0.0, 1.0, 33)[:, None]
    field = model.field(model.initial, 0.0)
    assert_allclose(field.mean(x), 15.0, rtol=1e-9)
    assert_allclose(field.std(x), 5.0, rtol=1e-6)
    assert_allclose(field.cov(x)[0], 25.0, rtol=1e-6)
    assert np.abs(field.gradient(x)).max() < 1e-6
    beyond = field.parts(x).unresolved
    plain = rk.Model(space, rk.Sobolev(1e-3, 0.2)).field(rk.Model(space, rk.Sobolev(1e-3, 0.2)).initial, 0.0)
    assert_allclose(beyond, plain.parts(x).unresolved, atol=1e-8)
    mean = rk.averages([[0.2]], [[0.7]])
    obs = model.observe(mean, 0.0, noise_std=1.0)
    assert_allclose(obs.offset, [15.0], rtol=1e-9)
    assert_allclose(obs.H[0, -1], 1.0, rtol=1e-9)


def test_a_closed_model_carries_the_level(space):
    """Models beside the usual one see it through the same calls."""
    model = rk.Model(space, rk.Sobolev(1.0, 0.2), blocks=[LEVEL])
    closed = Closure(model)
    field = closed.field(closed.initial, 0.0)
    x = np.array([[0.3], [0.8]])
    # The richer space keeps directions of less mass, and with them 1e-7 of rounding.
    assert_allclose(field.mean(x), 15.0, rtol=1e-6)
    assert_allclose(closed.unknowns(closed.initial, 0.0)["level"].std, [np.hypot(3.0, 2.0)], rtol=1e-8)


# -- worlds that share nothing with the library -----------------------------------------------------------------------


def world(rng: np.random.Generator, times: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Level plus departures on the cosines of the rod, each mode drawn exactly in time, (T, N)."""
    modes = np.arange(60)
    Psi = np.where(modes == 0, 1.0, np.sqrt(2.0)) * np.cos(np.pi * x * modes)
    rate = NU * (np.pi * modes) ** 2 + RATE
    size = (1.0 + (0.1 * np.pi * modes) ** 2) ** -1.0
    size /= np.linalg.norm(size)
    z, value, found, now = size * rng.standard_normal(60), 3.0 * rng.standard_normal(), [], 0.0
    a, b = 2.0 * rng.standard_normal(2)
    for t in times:
        dt, now = t - now, t
        spread = 0.9 * size * np.sqrt(-np.expm1(-2.0 * rate * dt) / (2.0 * rate))
        z = np.exp(-rate * dt) * z + spread * rng.standard_normal(60)
        value += 0.8 * np.sqrt(dt) * rng.standard_normal()
        cycle = a * np.cos(2.0 * np.pi * t) + b * np.sin(2.0 * np.pi * t)
        found.append(15.0 + value + cycle + Psi @ z)
    return np.array(found)


def covered(model: rk.Model, n: int = 60) -> float:
    """Share of hidden values inside bands of 90 %, in n worlds that the library did not draw: early, when few readings
    tell of the level, and after a forecast."""
    rng = np.random.default_rng([11, *b"worlds"])
    hidden = np.array([[0.22], [0.5], [0.77]])
    times, ahead = np.array([0.1, 0.25, 0.3, 0.55, 0.7]), 0.95
    inside = []
    for _ in range(n):
        truth = world(rng, np.append(times, ahead), np.vstack([PLACES, hidden]))
        y = truth[:-1, : len(PLACES)] + 0.1 * rng.standard_normal((len(times), len(PLACES)))
        belief, now, _ = filtered(model, list(zip(times.tolist(), y, strict=True)))
        last = kalman.forecast(belief, model.step(now, ahead))
        for b, t, values in ((belief, now, truth[-2]), (last, ahead, truth[-1])):
            field = model.field(b, t)
            off = np.abs(field.mean(hidden) - values[len(PLACES) :])
            inside.append(off < norm.ppf(0.95) * field.std(hidden))
    return float(np.mean(inside))


def test_bands_hold_worlds_with_a_level_and_not_those_of_a_model_without():
    """60 worlds with 6 hidden values each, which hang together: the standard error of 90 % is about 2.5 %, the region
    three of them to either side. The control states the same departures and no level."""
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), NU, reaction=RATE, boundary=rk.Neumann())
    fine = rk.whiten(pde, rk.GaussianRFF(80, 0.08, seed=0) + rk.Constant())
    law = {"process_noise": rk.Sobolev(0.9, 0.1)}
    assert 0.825 < covered(rk.Model(fine, rk.Sobolev(1.0, 0.1), blocks=[LEVEL], **law)) < 0.975
    blind = rk.Model(fine, rk.FromFunction(lambda x: np.full(len(x), 15.0), rk.Sobolev(1.0, 0.1)), **law)
    assert covered(blind, 20) < 0.8


def test_a_rehearsal_draws_the_level_too(space, monkeypatch):
    """Truths are drawn from what was stated: level, cycle, departures.

    The 90 % share lies within three of its standard errors over the truths. Readings tell of the level at once, so what
    shows that it was drawn is the score without them: of a normal law that is right it is std / sqrt(pi) on average,
    std 3.8 here; over 100 truths it is known to 6 %. The control draws truths whose level stays what it is on average.
    """
    model = rk.Model(space, rk.Sobolev(1.0, 0.1), process_noise=rk.Sobolev(0.9, 0.1), blocks=[LEVEL])
    when = [0.1, 0.3, 0.6, 1.1]
    stated = np.sqrt([swing_cov(t, t) + 1.0**2 for t in when]).mean() / np.sqrt(np.pi)
    trial = rk.rehearse(model, SENSORS, when, noise_std=0.1, n=100)
    assert abs(trial.coverage["90"] - 0.9) < 3.0 * trial.coverage["standard_error"] < 0.03
    assert abs(trial.crps_no_data / stated - 1.0) < 0.2
    dim = model.parts[-1][0].dim  # the last of the state; the twin has a rank of its own
    drawn = rehearsal._draws

    def without(law, n, rng):
        states = drawn(law, n, rng)
        states[-dim:] = law.mean[-dim:, None]
        return states

    monkeypatch.setattr(rehearsal, "_draws", without)
    assert rk.rehearse(model, SENSORS, when, noise_std=0.1, n=100).crps_no_data < 0.6 * stated


# -- files and misuse -------------------------------------------------------------------------------------------------


def test_a_level_comes_back_from_a_file_and_goes_on_bit_for_bit(space, tmp_path):
    """Of the assimilator, of the field; another mean of the level is another model."""
    model = rk.Model(space, rk.Sobolev(1.0, 0.2), blocks=[LEVEL])
    filt = rk.Assimilator(model)
    for t, y in record(4):
        filt.advance(t)
        filt.observe(SENSORS, y, noise_std=0.1)
    path = rk.save(tmp_path / "filter", filt)
    again = rk.load(path)
    for one in (filt, again):
        one.advance(3.0)
        one.observe(SENSORS, [14.0, 15.0, 16.0, 15.0], noise_std=0.1)
    x = np.linspace(0.0, 1.0, 9)[:, None]
    field = filt.posterior()
    assert_array_equal(filt.belief.root, again.belief.root)
    assert_array_equal(field.mean(x), again.posterior().mean(x))
    assert_array_equal(field.std(x), rk.load(rk.save(tmp_path / "field", field)).std(x))
    assert again.unknowns()["level"].mean == filt.unknowns()["level"].mean
    other = rk.Model(space, rk.Sobolev(1.0, 0.2), blocks=[rk.Level((16.0, 3.0), SWING)])
    with pytest.raises(rk.RFKalmanError, match="does not match"):
        rk.load(path, model=other)


@pytest.mark.parametrize(
    "walls",
    [rk.Dirichlet(2.0), {"x-": rk.Robin(1.0, 15.0), "x+": rk.Neumann()}, {"x-": rk.Unknown(1.0), "x+": rk.Neumann()}],
)
def test_walls_that_tie_the_field_to_a_value_are_refused(walls):
    """The constant is not admissible there; the message names the part and what would do."""
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), NU, reaction=RATE, boundary=walls)
    space = rk.whiten(pde, rk.GaussianRFF(40, 0.2, seed=0) + rk.Constant())
    with pytest.raises(ValueRangeError, match=r"'level' lifts the whole field, but the part 'x-'.*Neumann"):
        rk.Model(space, rk.isotropic(1.0), blocks=[LEVEL])


def test_a_space_without_the_constant_is_refused():
    """Waves alone, cut at a coarse floor, come near the constant and not near enough; the message says what to add."""
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), NU, reaction=RATE, boundary=rk.Neumann())
    with pytest.raises(ValueRangeError, match=r"add rk.Constant\(\)"):
        rk.Model(rk.whiten(pde, rk.GaussianRFF(60, 0.1, seed=0), 1e-4), rk.isotropic(1.0), blocks=[LEVEL])
