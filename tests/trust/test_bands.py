"""The promise of a band: truths that share no code with the library, problem files that leave all else to it.

Every problem of the study, with its control: the plain filter, which believes that smooth features hold the field.
"""

from __future__ import annotations

import pytest

from .oracles import PROBLEMS
from .study import Judged, study

#: What a 90 % band may hold, and how much worse than the exact filter's its score may be.
COVERAGE, SCORE = (0.85, 0.95), 1.15
#: Problems for every run of the tests: about three seconds each, with the features of a kind each.
FAST = ("column-100", "jump", "peclet-112", "heat-early-moving")
#: Where the plain filter is right too: early waves have faded, or the space has corners by hand.
EASY = {"heat-0.1-moving", "heat-0.1-fixed", "heat-1-moving", "heat-1-fixed", "peclet-4", "peclet-22"}


def require(name: str, found: Judged) -> None:
    """Inside what is promised, with the plain filter outside of it or beside it."""
    (share, error), (score, _) = found.ours.at(0.9), found.crps
    assert COVERAGE[0] <= share <= COVERAGE[1], f"{share:.3f} ± {error:.3f}"
    assert score <= SCORE
    if name not in EASY and found.plain is not None:
        wrong, worse = found.plain.at(0.9)[0], found.plain.crps.mean() / found.exact.crps.mean()
        assert wrong < COVERAGE[0] or worse > SCORE or wrong < share - 2.0 * error


@pytest.mark.parametrize("name", FAST)
def test_bands_hold_truths_of_other_discretisations(name):
    """24 twins, shipped defaults; figures in docs/trust.md."""
    require(name, study(name))


@pytest.mark.study
@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in FAST])
def test_bands_hold_truths_of_other_discretisations_everywhere(name, study_table):
    """The same for every problem. The table has those of the fast tests too, in the order of docs/trust.md."""
    require(name, study(name))
