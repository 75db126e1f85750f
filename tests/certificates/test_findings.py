"""Lines of the table: readable numbers, and values that JSON can hold."""

from __future__ import annotations

import json
import math

import pytest

from rfkalman.certificates.findings import Finding, shown


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0.1, 3.0])
@pytest.mark.parametrize("limit", [None, math.inf, 2.0])
def test_every_number_survives_json(value, limit):
    """JSON has no infinity, and null is taken by "no limit": such numbers travel as text that ``float`` reads back."""
    finding = Finding("gram", "a title", "a quantity", value, limit, holds=False, remedy="more sensors")
    back = json.loads(json.dumps(finding.as_dict(), allow_nan=False))
    assert math.isnan(float(back["value"])) if math.isnan(value) else float(back["value"]) == value
    assert back["limit"] is None if limit is None else float(back["limit"]) == limit
    assert back["holds"] is False and back["remedy"] == "more sensors"


def test_a_line_reads_as_a_verdict():
    assert str(Finding("gram", "", "sensors", 16565.0, 24.0, False)) == "FAILS  sensors: 16565  (limit 24)"
    assert str(Finding("gram", "", "alpha", 1.23456e6)) == "       alpha: 1.235e+06"
    assert (shown(math.inf), shown(0.0), shown(2.0e7)) == ("inf", "0", "2e+07")


def test_the_verdict_follows_from_value_and_limit_and_a_remedy_only_from_a_failure():
    """One rule for every certificate: at most the limit holds, and what holds needs no remedy."""
    above, at = (Finding("gram", "", "deviation", value, 0.5, remedy="more sensors") for value in (0.7, 0.5))
    assert (above.holds, above.remedy, at.holds, at.remedy) == (False, "more sensors", True, "")
    assert Finding("gram", "", "alpha", 0.7, remedy="more sensors").holds is None
    assert Finding("dynamics", "", "observed order", 2.0, 0.9, True).holds, "a lower limit is said by its certificate"
