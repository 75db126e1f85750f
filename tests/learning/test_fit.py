"""Learning: a wrong start is forgotten, flat directions are said, error bars hold the truth as they promise."""

from __future__ import annotations

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.diagnostics import Readings
from rfkalman.learning import Learn, fit
from rfkalman.learning.family import family_of
from rfkalman.learning.fit import _parameter, _Search
from rfkalman.learning.profile import LIKE, rises
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


def covered(model, worlds, seed):
    """Of the true parameters of worlds drawn from the prior, those inside their 90 % intervals, (worlds, p)."""
    inside = []
    for k in range(worlds):
        rng = np.random.default_rng([seed, k])
        theta = np.log(2.0) * rng.standard_normal(4)
        found = fit(model, drawn(model, theta, rng), LEARN, starts=1)
        inside.append([np.log(p.low) <= t <= np.log(p.high) for p, t in zip(found.parameters, theta, strict=True)])
    return np.array(inside)


def test_error_bars_hold_the_truth(model):
    """A fast witness: 6 worlds, 24 parameters; fewer than 15 inside has a chance of 1e-4 at 90 %."""
    inside = covered(model, 6, 1)
    assert inside.sum() >= 15
    # The control: intervals a fifth as wide would hold far fewer; here, of a truth five prior stds away.
    rng = np.random.default_rng(0)
    found = fit(model, drawn(model, np.zeros(4), rng), LEARN, starts=1)
    assert all(p.low > 1.0 / 8.0 and p.high < 8.0 for p in found.parameters)


@pytest.mark.study
def test_error_bars_cover_as_they_promise(model, study_table):
    """60 worlds drawn from the prior, 240 true parameters; the issue asks for 0.8 to 0.97."""
    inside = covered(model, 60, 7)
    share = inside.mean()
    each = {name: float(part) for name, part in zip(LEARN, inside.mean(axis=0), strict=True)}
    study_table.add("Learning: true parameters inside their 90 % intervals, 60 worlds", all=float(share), **each)
    assert 0.8 <= share <= 0.97


def test_what_the_readings_say_nothing_about_is_not_called_learnt(model):
    """A new place is never seen: its std is the prior's, and is said to be."""
    rng = np.random.default_rng(3)
    readings = drawn(model, np.zeros(4), rng).without([0, 2, 3])
    two = Readings.of(readings.sensors, readings.times[:3], readings.table()[:3], 0.1)
    few = Readings.of(two.sensors, two.times, np.where(np.arange(4) < 2, 0.1, np.nan) * np.ones((3, 1)), 0.1)
    found = fit(model, few, {"process noise": Learn(2.0)}, starts=1)
    assert not found.parameters[0].learnt and "say little about process noise" in " ".join(found.notes)


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
    monkeypatch.setattr(_Search, "bend", lambda self, theta: 4.0 * bend(self, theta))
    told = fit(model, readings, LEARN, starts=1, called={"noise": "sensors.noise"}).notes
    assert any("not a parabola around sensors.noise" in note for note in told)


def test_what_lies_far_from_its_guess_was_made_by_the_readings():
    """However wide its interval is: the prior alone would have stayed at the guess."""
    near, far = (_parameter("x", theta, 1.0, 1.0) for theta in (0.5, -2.5))
    assert not near.learnt and far.learnt
