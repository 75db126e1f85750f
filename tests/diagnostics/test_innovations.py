"""Innovations: independent standard normals under a right model, and what departs from that under a wrong one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.diagnostics.worlds import IDS, PLACES, TIMES, model, record

import rfkalman as rk
from rfkalman.diagnostics.innovations import Innovations, band, innovations


def made(white: np.ndarray, std: np.ndarray | None = None) -> Innovations:
    """Innovations as if a filter had found them."""
    n = white.shape[1]
    ids = tuple(str(i) for i in range(n))
    return Innovations(ids, np.arange(float(len(white))), white, np.ones_like(white) if std is None else std, white,
                       rk.Gaussian([0.0], root=[[1.0]]))  # fmt: skip


def test_their_squares_are_those_of_the_filter():
    """Whitening by the symmetric root or by a Cholesky factor gives the same sum; two routes, rtol 1e-9."""
    stated, readings = model("heat"), record("heat", 0)
    found = innovations(stated, readings)
    runs = rk.filters.kalman.run(stated.initial, readings.batches(stated))
    assert_allclose(np.square(found.white).sum(axis=1), [post.nis for post in runs], rtol=1e-9)
    assert_allclose(found.nis, np.square(found.white).mean(), rtol=1e-12)


def test_observe_gives_them_for_each_reading():
    """What the assimilator returns is what one pass over the record finds; two routes, rtol 1e-9."""
    stated, readings = model("unknown boundary"), record("unknown boundary", 1).between(None, TIMES[4])
    table = readings.table().copy()
    table[2, 3] = np.nan
    readings = rk.Readings.of(readings.sensors, readings.times, table, readings.noise_std)
    found, filt = innovations(stated, readings), rk.Assimilator(stated)
    for t, when in enumerate(readings.times.tolist()):
        filt.advance(when)
        post = filt.observe(readings.sensors, table[t], noise_std=0.03)
        assert_allclose(post.innovations, found.value[t] / found.std[t], rtol=1e-9)
        assert np.isnan(post.innovations[3]) == (t == 2)


def test_a_later_window_leaves_the_filter_as_it_is():
    stated, readings = model("heat"), record("heat", 2)
    whole, late = innovations(stated, readings), innovations(stated, readings, since=float(TIMES[100]))
    assert np.array_equal(whole.white[100:], late.white) and len(late.times) == len(TIMES) - 100


def test_the_band_of_the_squares_holds_95_of_100():
    """Chi-squared over its degrees of freedom; four standard errors of 4000 draws."""
    low, high = band(40)
    draws = np.random.default_rng(0).chisquare(40, 4000) / 40
    assert abs(((low < draws) & (draws < high)).mean() - 0.95) < 4 * np.sqrt(0.05 * 0.95 / 4000)


def test_each_test_rejects_independent_normals_once_in_twenty():
    """Of 1000 tables 50 are expected, with a std of 7: within four of them, and half of that more for tests whose law
    holds for long records only. With gaps in the tables, which every law allows."""
    rng = np.random.default_rng(1)
    counts: dict[str, int] = {}
    for _ in range(1000):
        white = rng.standard_normal((120, 6))
        white[rng.random(white.shape) < 0.1] = np.nan
        for test in made(white, np.where(np.isfinite(white), rng.uniform(1.0, 2.0, white.shape), np.nan)).tests():
            counts[test.name] = counts.get(test.name, 0) + test.rejects
    assert len(counts) == 8
    assert {name: n for name, n in counts.items() if not 50 - 28 <= n <= 50 + 42} == {}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("squares", lambda w: 1.2 * w),
        ("squares of a sensor", lambda w: w * np.where(np.arange(6) == 2, 1.5, 1.0)),
        ("squares over time", lambda w: w * np.where(np.arange(len(w)) > 260, 1.6, 1.0)[:, None]),
        ("means", lambda w: w + 0.4 * (np.arange(6) == 3)),
        ("whiteness in time", lambda w: (w + np.vstack([w[:1], w[:-1]])) / np.sqrt(2.0)),
        ("whiteness across sensors", lambda w: w @ np.linalg.cholesky(0.7 * np.eye(6) + 0.3).T),
        ("prior against data", lambda w: w * np.where(np.arange(len(w)) == 0, 6.0, 1.0)[:, None]),
        ("spread against error", lambda w: w * np.where(np.arange(6) < 2, 1.5, 1.0)),
    ],
)
def test_each_test_sees_what_it_is_for(name, change):
    """Three hundred batches of six sensors: a departure of the size that matters is beyond chance."""
    white = change(np.random.default_rng(2).standard_normal((300, 6)))
    std = np.broadcast_to(np.where(np.arange(6) < 2, 1.0, 2.0), white.shape)
    found = {test.name: test for test in made(white, np.array(std)).tests()}
    assert found[name].sure and found[name].rejects


def test_sensors_keep_their_names():
    found = innovations(model("heat"), record("heat", 0, "one drifts"))
    assert found.ids == IDS and len(PLACES) == len(found.per_sensor())
    assert int(np.argmax(found.per_sensor())) == 3
