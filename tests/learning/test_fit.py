"""Learning: a wrong start is forgotten, flat directions are said, error bars hold the truth as they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import rfkalman as rk
from rfkalman.diagnostics import Readings
from rfkalman.learning import Learn, fit
from rfkalman.learning.family import family_of
from rfkalman.learning.fit import _between, _moved, _parameter, _Search
from rfkalman.learning.objective import left_out_errors
from rfkalman.learning.profile import LIKE, rises
from rfkalman.learning.recording import Folds
from rfkalman.learning.steps import discretise

PLACES = np.array([[0.1], [0.3], [0.55], [0.9]])
LEARN = {"diffusion": Learn(2.0), "change of x-": Learn(2.0), "process noise": Learn(2.0), "noise": Learn(2.0)}


@pytest.fixture(scope="module")
def model():
    boundary = {"x-": rk.Dirichlet(rk.Unknown((0.0, 1.0), rk.RandomWalk(0.5))), "x+": rk.Neumann(0.0)}
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), diffusion=0.2, boundary=boundary)
    space = rk.whiten(pde, rk.GaussianRFF(30, length_scale=0.3, seed=2), 1e-8)
    law = rk.Sobolev(0.2, reach=0.5)
    return rk.Model(space, rk.Sobolev(1.0, reach=0.6), process_noise=law, check="later")


def drawn(model, theta, rng, batches=160, gap=0.2):
    """Readings of a truth with these parameters, drawn step by step from the discretised system."""
    times = gap * np.arange(1, batches + 1)
    sensors = rk.points(PLACES)
    empty = Readings.of(sensors, times, np.zeros((batches, 4)), 0.1)
    family, record = family_of(model, empty, LEARN)
    system = family.system(theta)
    steps = discretise(system, record.gaps)
    root = np.linalg.cholesky(steps.Q[0] + 1e-14 * np.eye(system.dim))
    values, U = np.linalg.eigh(system.P0)
    z = system.m0 + U @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(system.dim))
    R = system.R if system.R.ndim == 2 else np.diag(system.R)
    noise, rows = np.linalg.cholesky(R), []
    for _ in range(batches):
        z = (steps.F[0] @ z if steps.F.ndim == 3 else steps.F[0] * z) + root @ rng.standard_normal(z.size)
        rows.append(system.H @ z + noise @ rng.standard_normal(4))
    return Readings.of(sensors, times, np.array(rows), 0.1)


def errors(model, worlds, seed):
    """What is off of the true parameters of worlds drawn from the prior, over the half-widths of their 90 % intervals,
    and these over the half-width of the prior's; (worlds, p) each."""
    off, width = [], []
    for k in range(worlds):
        rng = np.random.default_rng([seed, k])
        theta = np.log(2.0) * rng.standard_normal(4)
        found = fit(model, drawn(model, theta, rng), LEARN, starts=1)
        low, at, high = np.log([[p.low, p.factor, p.high] for p in found.parameters]).T
        off.append(np.abs(theta - at) / (0.5 * (high - low)))
        width.append(0.5 * (high - low) / (norm.ppf(0.95) * np.log(2.0)))
    return np.array(off), np.array(width)


def test_error_bars_hold_the_truth(model):
    """A fast witness: 6 worlds, 24 parameters; fewer than 15 inside has a chance of 1e-4 at 90 %.

    The prior itself would hold as many, so the bars must also be narrow: half of them at most half as wide. The
    control: bars a fifth as wide hold 26 % of a normal law, and 15 or more of 24 with a chance of 1e-4.
    """
    off, width = errors(model, 6, 1)
    assert (off < 1.0).sum() >= 15 and np.median(width) < 0.5
    assert (off < 0.2).sum() < 15


@pytest.mark.study
def test_error_bars_cover_as_they_promise(model, study_table):
    """60 worlds drawn from the prior, 240 true parameters; the issue asks for 0.8 to 0.97. The control: bars a fifth as
    wide are far below. All learnt together: the prior, which would cover too, is several times as wide."""
    off, width = errors(model, 60, 7)
    for name, some, wide in [("all", off, width), *zip(LEARN, off.T, width.T, strict=True)]:
        study_table.add(
            "Learning: true parameters inside their 90 % intervals, 60 worlds",
            parameter=name,
            inside=float((some < 1.0).mean()),
            inside_a_fifth_as_wide=float((some < 0.2).mean()),
            width_over_prior=float(np.median(wide)),
        )
    assert 0.8 <= (off < 1.0).mean() <= 0.97 and np.median(width) < 0.5
    assert (off < 0.2).mean() < 0.5


def test_what_the_readings_say_nothing_about_is_not_called_learnt(model):
    """Three batches of two sensors that agree say nothing of what drives the field; its level stays the stated one and
    is not called learnt. The control: the whole record of all sensors tells it."""
    readings, learn = drawn(model, np.zeros(4), np.random.default_rng(3)), {"process noise": Learn(2.0)}
    table = np.full((3, 4), np.nan)
    table[:, :2] = 0.1
    few = Readings.of(readings.sensors, readings.times[:3], table, 0.1)
    said, told = fit(model, few, learn, starts=1), fit(model, readings, learn, starts=1)
    assert not said.parameters[0].learnt and "say little about process noise" in " ".join(said.notes)
    assert told.parameters[0].learnt and "say little" not in " ".join(told.notes)


def test_one_sensor_is_too_few_and_nothing_to_learn_is_said(model):
    readings = drawn(model, np.zeros(4), np.random.default_rng(4), batches=5)
    with pytest.raises(rk.RFKalmanError, match="two sensors at least"):
        fit(model, readings.without([1, 2, 3]), LEARN)
    with pytest.raises(rk.RFKalmanError, match="learn names nothing"):
        fit(model, readings, {})


def test_a_parabola_rises_as_it_bends_and_what_is_not_one_does_not():
    """Exact for a quadratic with correlated parameters, else against a fine search over the other parameter.

    An end that rises as it should is taken where one Newton step of the others leads: to a tenth.
    """
    H = np.array([[2.0, 0.9], [0.9, 1.0]])
    half = np.array([1.0, 2.0])
    bowl = rises(lambda x: (0.5 * float(x @ H @ x), H @ x), 0.0, np.zeros(2), H, half, 5.0)
    np.testing.assert_allclose(bowl, 1.0, rtol=1e-12)

    def skewed(x):
        y = x[0] + 0.5 * np.sin(x[1])
        value = np.exp(-3.5 * y) + 3.5 * y - 1.0 + 0.5 * x[1] ** 2
        by = 3.5 - 3.5 * np.exp(-3.5 * y)
        return float(value), np.array([by, by * 0.5 * np.cos(x[1]) + x[1]])

    bend = np.array([[12.25, 6.125], [6.125, 1.0 + 12.25 / 4.0]])
    found = rises(skewed, 0.0, np.zeros(2), bend, np.array([1.0, np.nan]), 5.0)
    grid = np.linspace(-3.0, 3.0, 6001)
    slow = [min(skewed(np.array([end, v]))[0] for v in grid) for end in (-1.0, 1.0)]
    bent = 0.5 / np.linalg.inv(bend)[0, 0]
    np.testing.assert_allclose(found[0], np.array(slow) / bent, rtol=0.1)
    assert found[0, 0] > LIKE[1] and np.isnan(found[1]).all()


def test_an_interval_that_the_profile_does_not_bear_out_is_said_to_be_rough(model, monkeypatch):
    """On the readings of the model itself nothing is said; with an interval of a flat objective it is."""
    readings = drawn(model, np.zeros(4), np.random.default_rng(5))
    found = fit(model, readings, LEARN, starts=1)
    assert not any("parabola" in note for note in found.notes)
    bend = _Search.bend
    monkeypatch.setattr(_Search, "bend", lambda self, *args: 4.0 * bend(self, *args))
    told = fit(model, readings, LEARN, starts=1, called={"noise": "sensors.noise"}).notes
    assert any("not a parabola around sensors.noise" in note for note in told)


def test_what_lies_far_from_its_guess_was_made_by_the_readings():
    """However wide its interval is: the prior alone would have stayed at the guess."""
    near, far = (_parameter("x", theta, 1.0, 1.0, False) for theta in (0.5, -2.5))
    assert not near.learnt and far.learnt


def test_what_places_have_is_one_draw_for_each_sensor(model):
    """Four departures of std 0.3 that stay: 320 batches tell no more of that std than four numbers can.

    Of n draws the logarithm of their std is known to sqrt(1 / 2n) at best: a 90 % interval for four is at least 3.2
    times as high as low, and its middle within a factor of three of the truth with a chance of 97 %.
    """
    rng = np.random.default_rng(5)
    readings = drawn(model, np.zeros(4), rng, batches=320)
    table = readings.table() + 0.3 * np.array([1.0, -1.2, 0.6, -0.9])
    shifted = Readings.of(readings.sensors, readings.times, table, 0.1)
    learn = {"noise": Learn(2.0), "place": Learn(3.0)}
    place = fit(model, shifted, learn, place_std=0.1, coords=PLACES, starts=1).parameters[1]
    assert place.name == "place" and 1.0 < place.factor < 9.0
    assert place.low < 3.0 < place.high and place.high / place.low > 2.5
    # The control: without departures the same record says that there are none of that size.
    none = fit(model, readings, learn, place_std=0.1, coords=PLACES, starts=1).parameters[1]
    assert none.factor < 1.5 < 0.7 * place.factor


def test_the_map_moves_with_the_parameters_as_draws_of_them_say(model):
    """Two routes to one size: differences along the axes of the ellipsoid, and predictions at the same places under 60
    draws from it, whose std scatters by 1 / sqrt(2 * 60); where the map is not linear in them they differ by more, so
    within 30 %. The control: half the ellipsoid."""
    readings = drawn(model, np.zeros(4), np.random.default_rng(11), batches=40)
    place, cov = np.zeros(4), np.diag(np.square([0.2, 0.1, 0.1, 0.1]))
    moved, share = _moved(model, readings, LEARN, place, PLACES, np.zeros(4), cov)
    x = _between(model, PLACES, np.random.default_rng([0, *b"between"]))
    both = rk.points(np.vstack([PLACES, x]))
    wide = Readings.of(both, readings.times, np.hstack([readings.table(), np.zeros((40, len(x)))]), 0.1)
    family, record = family_of(model, wide, LEARN)
    folds = Folds((np.arange(4 + len(x)) >= 4)[None], skip=4)
    rng = np.random.default_rng(12)
    draws = rng.standard_normal((60, 4)) * np.sqrt(np.diag(cov))
    found = np.array([left_out_errors(family.system(theta), record, folds)[0][4:, 4:] for theta in draws])
    wanted = np.sqrt(np.median(found.var(axis=0, ddof=1).mean(axis=0)))
    assert abs(moved / wanted - 1.0) < 0.3 and 0.0 < share < 1.0
    half = _moved(model, readings, LEARN, place, PLACES, np.zeros(4), cov / 4.0)[0]
    assert half < 0.7 * wanted
