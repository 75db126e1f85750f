"""Every derivative against differences in extended precision of the objective computed another way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.learning.slow import LD, objective
from tests.learning.worlds import fields, routes, world

from rfkalman.learning.objective import block_scores, value_and_gradient

KINDS = [
    {"diagonal": True},
    {"diagonal": False},
    {"diagonal": True, "correlated": True, "m": 0, "seed": 1},
    {"diagonal": False, "correlated": True, "m": 0, "seed": 2},
    {"diagonal": False, "driven": False, "seed": 3},
]
SYMMETRIC = {"Qc", "P0", "R"}


def differences(system, record, folds, name):
    """Derivatives by all entries of one field: differences of fourth order, error about h^4 and eps / h.

    A symmetric matrix is changed with its mirror image.
    """
    given, rest, h = fields(system), (fields(record), fields(folds)), LD(1e-4)
    out = np.zeros(given[name].shape)
    for index in np.ndindex(out.shape):
        direction = np.zeros(out.shape)
        direction[index] = 1.0
        if name in SYMMETRIC and out.ndim == 2:
            direction = (direction + direction.T) / 2.0
        at = [objective({**given, name: given[name] + LD(k) * h * direction}, *rest).sum() for k in (1, -1, 2, -2)]
        out[index] = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h)
    return out


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_gradient_is_that_of_the_objective(kind):
    """One backward sweep and one adjoint Frechet derivative per gap, against differences: the issue asks for 1e-7."""
    system, record, folds = world(**kind)
    wanted = {name: differences(system, record, folds, name) for name in fields(system)}
    for route in routes():
        found = value_and_gradient(system, record, folds).gradient
        for name, by in wanted.items():
            atol = 1e-9 * np.abs(by).max(initial=1.0)
            assert_allclose(getattr(found, name), by, rtol=1e-9, atol=atol, err_msg=f"{route}, {name}")


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
def test_scores_of_blocks_are_gradients_of_their_part_of_the_objective(kind):
    """Their sum is the whole gradient; the first block alone is the gradient of a record that ends with it."""
    system, record, folds = world(**kind, T=9)
    first = replace(record, gap=record.gap[:4], y=record.y[:4], inputs=record.inputs[:4])
    for _ in routes():
        scores = block_scores(system, record, folds, 3)
        whole = value_and_gradient(system, record, folds).gradient
        alone = value_and_gradient(system, first, folds).gradient
        for name in fields(system):
            total = sum(getattr(score, name) for score in scores)
            scale = np.abs(getattr(whole, name)).max(initial=1.0)
            assert_allclose(total, getattr(whole, name), atol=1e-11 * scale)
            assert_allclose(getattr(scores[0], name), getattr(alone, name), atol=1e-11 * scale)


@pytest.mark.parametrize("diagonal", [True, False])
def test_a_block_that_is_forgotten_may_be_left_early(diagonal):
    """Over 900 batches the filter forgets: each way back stops soon before its block, and nothing is missing."""
    system, record, folds = world(diagonal=diagonal, T=900)
    for _ in routes():
        scores = block_scores(system, record, folds, 5)
        whole = value_and_gradient(system, record, folds).gradient
        assert not scores[-1].m0.any()
        for name in fields(system):
            total = sum(getattr(score, name) for score in scores)
            assert_allclose(total, getattr(whole, name), rtol=1e-10, atol=1e-11 * np.abs(total).max(initial=1.0))
