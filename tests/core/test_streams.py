"""Named random streams: what one source draws is nobody else's business."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from rfkalman.core.streams import stream, streams


def test_a_stream_is_its_seed_and_its_name():
    """The draws are those of the seed followed by the letters of the name: stores and published tables rest on it."""
    expected = np.random.default_rng([7, *b"sensors"]).random(5)
    assert_array_equal(stream(7, "sensors").random(5), expected)
    assert_array_equal(streams(7, "noise", "sensors")["sensors"].random(5), expected)


def test_another_size_of_one_source_leaves_the_others_unchanged():
    """Order and additions change nothing. Control: another name, and another seed, draw something else."""
    few, many = streams(3, "a", "b"), streams(3, "c", "b", "a")
    few["a"].random(1), many["a"].random(1000)
    b = few["b"].random(4)
    assert_array_equal(b, many["b"].random(4))
    assert (stream(3, "a").random(4) != b).all() and (stream(4, "b").random(4) != b).all()
