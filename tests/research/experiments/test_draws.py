"""The draws of the tables are what the rule finds, and the rule knows published properties alone."""

from __future__ import annotations

import warnings
from itertools import count, islice

import pytest

from rfkalman.core.errors import QuadratureWarning
from rfkalman.research.experiments import draws
from rfkalman.research.experiments.draws import ADVECTION, HEAT, QUADRATURE_LIMIT, VANILLA
from rfkalman.research.experiments.streaming import heat_space

FAMILIES = {"heat": HEAT, "advection": ADVECTION, "vanilla": VANILLA}


def qualifies(family: draws.Draws, seed: int) -> bool:
    """Both published properties: the rank, and order 24 below 1e-13."""
    with warnings.catch_warnings():
        # A draw too steep for order 24 is told so; here that is the question.
        warnings.simplefilter("ignore", QuadratureWarning)
        rank = heat_space.__wrapped__(family, seed).rank
    return rank == family.rank and family.quadrature_error(seed) < QUADRATURE_LIMIT


def first(family: draws.Draws, n: int) -> tuple[int, ...]:
    """The first n seeds that qualify, by search."""
    return tuple(islice((seed for seed in count() if qualifies(family, seed)), n))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_draw_of_the_tables_has_the_published_rank_and_quadrature(name):
    """61, 51 and 60 and order 24 below 1e-13 are printed in the paper; each seed is asked anew."""
    family = FAMILIES[name]
    assert len(set(family.seeds)) == 12
    for seed in family.seeds:
        assert heat_space(family, seed).rank == family.rank
        assert family.quadrature_error(seed) < QUADRATURE_LIMIT


@pytest.mark.parametrize(("name", "n"), [("advection", 2), ("vanilla", 3)])
def test_no_earlier_seed_was_passed_over(name, n):
    """The search from seed 0 gives the same first draws; all twelve, and the heat draws, in the study below."""
    assert first(FAMILIES[name], n) == FAMILIES[name].seeds[:n]


def test_rank_alone_would_choose_other_draws():
    """Control: seeds 0 and 8 have rank 61 but are too steep for order 24, so the second property decides."""
    for seed in (0, 8):
        assert heat_space(HEAT, seed).rank == 61
        assert HEAT.quadrature_error(seed) > QUADRATURE_LIMIT
        assert not qualifies(HEAT, seed)


@pytest.mark.study
@pytest.mark.parametrize("name", FAMILIES)
def test_study_the_draws_are_the_first_twelve(name):
    """The whole search; about a minute and a half for the heat draws."""
    family = FAMILIES[name]
    assert first(family, 12) == family.seeds


def test_raw_matrices_are_those_of_one_feature():
    """Mass of one wave: integral of 2 cos^2(w.x + b) over the square, closed form; rounding."""
    import numpy as np

    from rfkalman.features import GaussianRFF

    recipe = GaussianRFF(1, 0.5, seed=3)
    (w,), (b,) = recipe.bind(draws.SQUARE).weights, recipe.bind(draws.SQUARE).offsets
    # 2 cos^2 = 1 + cos 2(w.x + b); the integral of e^{2 i w.x} is a product of (e^{2 i w_k} - 1) / (2 i w_k).
    wave = np.exp(2j * b) * np.prod((np.exp(2j * w) - 1.0) / (2j * w))
    mass, stiffness = draws.matrices(recipe, 24)
    assert mass[0, 0] == pytest.approx(1.0 + wave.real, rel=1e-13)
    assert stiffness[0, 0] == pytest.approx((1.0 - wave.real) * (w @ w), rel=1e-13)
