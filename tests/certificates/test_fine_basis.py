"""A basis on a finer rule: the same numbers whether its values are kept or computed again."""

from __future__ import annotations

from dataclasses import replace

from numpy.testing import assert_allclose
from tests.certificates.fields import SQUARE

import rfkalman as rk
from rfkalman.certificates.fine_basis import FineBasis
from rfkalman.research.experiments.truth import SineSeries, bumps


def test_blocks_that_are_not_kept_give_the_same_numbers():
    """More points than a block holds, once within the memory budget and once beyond it; sums in the same order."""
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(30, 0.3)), mass_floor=1e-4)
    small = replace(space, memory=1e6, _spaces={})
    kept, fresh = FineBasis(space, 140), FineBasis(small, 140)
    assert kept._kept is not None and fresh._kept is None and len(kept.points) > 16384
    u = kept.values(SineSeries.of(SQUARE, bumps, n_modes=8), 0.0)
    z = kept.project(u)
    assert_allclose(fresh.project(u), z, rtol=1e-13, atol=1e-15)
    assert_allclose(fresh.distance(u, z), kept.distance(u, z), rtol=1e-13)
