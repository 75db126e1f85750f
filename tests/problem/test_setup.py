"""Clock and sensor table: what batches and rows depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfkalman.core.errors import RFKalmanError, TimeError, ValueRangeError
from rfkalman.problem import Clock, SensorTable

HOUR = 3_600_000_000_000
stamps = st.integers(-(2**61), 2**61)


@given(stamps, stamps, st.integers(1, 10**15))
def test_a_batch_is_the_nearest_multiple_of_the_step_and_ties_go_up(origin, t, step):
    """Integer arithmetic alone: the batch of a reading may not depend on rounding."""
    clock = Clock("UTC", origin, HOUR, step_ns=step)
    batch = clock.batch_ns(t)
    assert (batch - origin) % step == 0
    assert -step < 2 * (batch - t) <= step
    assert clock.batch_ns(batch) == batch


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20), st.integers(1, 10**9))
def test_arrays_give_the_batches_of_their_elements(times, step):
    clock = Clock("UTC", 7, HOUR, step_ns=step)
    array = np.array(times, dtype=np.int64)
    assert clock.batch_ns(array).tolist() == [clock.batch_ns(t) for t in times]
    assert clock.to_model(array).tolist() == [clock.to_model(t) for t in times]


@given(st.integers(-(10**6), 10**6), st.integers(0, HOUR - 1))
def test_model_time_and_timestamps_are_inverse(hours, rest):
    """Up to the digits a float has at that size: 1e6 h in units of 2^-33 h is below half a microsecond."""
    clock = Clock(None, 1_700_000_000_000_000_000, HOUR)
    t = clock.origin_ns + hours * HOUR + rest
    assert abs(clock.from_model(clock.to_model(t)) - t) <= 500
    assert clock.from_model(float(hours)) == clock.origin_ns + hours * HOUR


def test_a_clock_refuses_what_is_no_clock():
    with pytest.raises(ValueRangeError, match="step_ns must be positive"):
        Clock("UTC", 0, HOUR, step_ns=0)
    with pytest.raises(ValueRangeError, match="unit_ns"):
        Clock("UTC", 0, 0)
    with pytest.raises(ValueRangeError, match="reorder_ns"):
        Clock("UTC", 0, HOUR, reorder_ns=-1)
    for t in (np.nan, np.inf, 1e30):
        with pytest.raises(TimeError, match="1678 to 2262"):
            Clock("UTC", 0, HOUR).from_model(t)


def test_sensors_are_found_by_name():
    table = SensorTable(("a", "b"), np.zeros((2, 1)), np.ones(2), np.array([True, False]), np.zeros(2))
    assert (table.index("b"), table.index("c"), table.n) == (1, None, 2)
    assert table.indices(["c", "a", "b"]).tolist() == [-1, 0, 1]
    assert not table.inside.flags.writeable and not table.coords.flags.writeable
    with pytest.raises(RFKalmanError, match="different"):
        SensorTable(("a", "a"), np.zeros((2, 1)), np.ones(2), np.array([True, True]), np.zeros(2))
    with pytest.raises(RFKalmanError, match="inside has shape"):
        SensorTable(("a",), np.zeros((1, 1)), np.ones(1), np.array([True, True]), np.zeros(1))
