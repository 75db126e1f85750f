"""Error bars that cover in spite of bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from tests.certificates.problems import problem

import rfkalman as rk
from rfkalman.certificates import error_bars as eb
from rfkalman.certificates import propagation as pr
from rfkalman.core.errors import ValueRangeError


def folded(c, beta):
    return ndtr(c - beta) - ndtr(-c - beta)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_half_width_is_the_smallest_that_covers(level):
    """Exactly the level at the worst bias, more at any smaller one; a hair narrower fails."""
    std, bias = np.full(60, 0.3), np.concatenate([[0.0], np.logspace(-4, 2, 59)])
    bar = eb.error_bar(std, bias, level)
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
    bar = eb.error_bar([0.2], 0.3, 0.9)
    errors = 0.3 + 0.2 * rng.standard_normal(20000)
    hit = (np.abs(errors) <= bar.half_width[0]).mean()
    assert abs(hit - 0.9) < 4 * math.sqrt(0.09 / 20000)
    plain = (np.abs(errors) <= bar.naive_half_width[0]).mean()
    assert plain < 0.65 and abs(plain - bar.coverage[0]) < 4 * 0.5 / math.sqrt(20000)


def test_error_bars_of_a_field_cover_its_error_in_spite_of_dynamics_bias():
    """Theorem's data, long steps: the plain interval undercovers at the last time, the aware one does not anywhere."""
    p = problem(7)
    x = np.linspace(0.05, 0.95, 19)[:, None]
    belief = p.analyses[-1]
    field = rk.Field(p.space, belief)
    # Pointwise: the distance of zbar from the field is known here, so no L2 number has to stand for it.
    offset = np.abs(p.space(x) @ p.zbar[-1] - p.truth(x, p.route.times[-1]))
    bar = eb.error_bar(field, offset, 0.9, x=x)
    assert (bar.std == field.std(x)).all() and (bar.half_width >= offset).all()
    rng = np.random.default_rng(6)
    E = pr.error_propagators(p.steps, p.observations, p.forecasts)
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
    bound = eb.pointwise_bias(space, x, 0.1)
    assert (np.abs(space(x) @ (0.1 * d)).max(axis=1) <= bound + 1e-14).all()
    Psi = space(x[[50]])[0]
    assert Psi @ (0.1 * Psi / np.linalg.norm(Psi)) == pytest.approx(bound[50])
    assert bound.max() > 0.1
    assert_allclose(eb.pointwise_bias(space, x, 0.1, outside=0.5), bound + 0.5)


def test_certain_points_and_extreme_ratios():
    """std = 0 leaves the bias; ratios beyond any table neither overflow nor lose the level."""
    bar = eb.error_bar([0.0, 0.0, 1e-300, 1.0], [0.0, 0.5, 1.0, 1e12], 0.9)
    assert_allclose(bar.half_width, [0.0, 0.5, 1.0, 1e12])
    assert_allclose(bar.coverage, [1.0, 0.0, 0.0, 0.0])


def test_error_bar_inputs_are_checked():
    field = rk.Field(problem(0).space, problem(0).analyses[-1])
    with pytest.raises(ValueRangeError, match="points x"):
        eb.error_bar(field, 0.1)
    with pytest.raises(ValueRangeError, match="x belongs"):
        eb.error_bar([1.0], 0.1, x=[[0.5]])
    with pytest.raises(ValueRangeError, match="negative"):
        eb.error_bar([1.0], -0.1)
    with pytest.raises(ValueRangeError, match="level"):
        eb.error_bar([1.0], 0.1, level=1.0)
