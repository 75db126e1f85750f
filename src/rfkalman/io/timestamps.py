"""Times as people write them -> UTC nanoseconds since 1970, or the reason why not.

Understood: ISO 8601 dates and times (``2024-03-31``, ``2024-03-31T12:00``,
``2024-03-31 12:00:00.25``), with a zone (``Z``, ``+02``, ``+0200``, ``+02:00``) or in the
zone that the table names; and, where the table says so, dates with another order or
separator (``31.12.2024 14:00``, ``12/31/2024 2:00 PM``, ``2024/12/31``). Rules for the two odd
hours of a year in a named zone:

* spring: a local time that the clocks skip is refused ("no such local time");
* autumn: a local time that comes twice means its first pass, unless told otherwise. The rule
  looks at one line alone, so it gives the same instant wherever a table is cut or resumed;
  a second pass then shows up as duplicates, counted. Loggers should write an offset.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from ..core.checks import IntArray
from ..core.errors import TimeError, ValueRangeError
from ..job.clock import EARLIEST_NS, LATEST_NS, Clock
from ..job.plan import TableFormat
from ._reasons import Reason
from .texts import number

#: What may be done with a local time that comes twice.
AMBIGUOUS = ("first", "second", "reject")
#: Orders in which a date may be written besides ISO 8601.
DATES = ("day first", "month first", "year first")

_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
_PARTS = ("year", "month", "day", "hour", "minute", "second", "fraction", "zone")
_ZONE = r"(?P<zone>Z|[+-]\d\d(?::?[0-5]\d)?)?"
_ISO = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    rf"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{{1,9}}))?)?{_ZONE})?",
    re.ASCII,
)
_CLOCK = (
    r"(?:(?:,? |T)(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    rf"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?{_ZONE})?"
)
_DAY, _MONTH = r"(?P<day>\d{1,2})", r"(?P<month>\d{1,2})"
_OTHER = {
    order: re.compile(rf"{one}(?P<mark>[./-]){two}(?P=mark){three}{_CLOCK}", re.ASCII)
    for order, one, two, three in (
        ("day first", _DAY, _MONTH, r"(?P<year>\d{4}|\d\d)"),
        ("month first", _MONTH, _DAY, r"(?P<year>\d{4}|\d\d)"),
        ("year first", r"(?P<year>\d{4})", _MONTH, _DAY),
    )
}


def written_date(text: str, dates: str | None) -> tuple[str | None, ...] | None:
    """Year, month, day, hour, minute, second, fraction and zone of a date as texts; None for no date.

    ISO 8601 is always one; ``dates`` names another order that is understood as well. A year of
    two digits is one of this century.

    Examples
    --------
    >>> written_date("1/5/24 2:30 PM", "month first")
    ('2024', '1', '5', '14', '30', None, None, None)
    """
    found = _ISO.fullmatch(text)
    if found is not None:
        return found.groups()
    if dates is not None:
        # Where the order is still asked for ("?"), what is a date can be told, if not which.
        found = _OTHER.get(dates, _OTHER["month first"]).fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict()
    if len(parts["year"]) == 2:
        parts["year"] = "20" + parts["year"]
    half = parts.get("half")
    if half is not None:
        hour = int(parts["hour"])
        if not 1 <= hour <= 12:
            return None
        parts["hour"] = str(hour % 12 + (12 if half in "Pp" else 0))
    return tuple(parts[name] for name in _PARTS)


class TimeRule:
    """How the time column of a table is read: its zone, its order of dates or the unit of its numbers, its bounds.

    Examples
    --------
    >>> TimeRule(TableFormat()).parse("1970-01-01T01:00+01:00")
    0
    >>> str(TimeRule(TableFormat()).parse("1970-01-01 00:00"))
    'time without zone'
    >>> TimeRule(TableFormat(zone="Europe/Berlin")).parse("1970-01-01 01:00")
    0
    >>> TimeRule(TableFormat(number_ns=60_000_000_000)).parse("1.5")
    90000000000
    """

    def __init__(self, layout: TableFormat) -> None:
        if layout.ambiguous not in AMBIGUOUS:
            raise ValueRangeError(f"ambiguous must be one of {', '.join(AMBIGUOUS)}; got {layout.ambiguous!r}.")
        if layout.dates is not None and layout.dates not in DATES:
            raise ValueRangeError(f"dates must be one of {', '.join(DATES)}; got {layout.dates!r:.40}.")
        self.layout = layout
        self._midnight = lru_cache(1024)(self._first_of)  # readings of a day share it
        try:
            self._zone = None if layout.zone is None else ZoneInfo(layout.zone)
        except (KeyError, ValueError, OSError, TypeError) as error:
            raise ValueRangeError(
                f"zone must be a name of the IANA list such as 'Europe/Berlin' or 'UTC'; got {layout.zone!r:.80}. "
                "Where the system has no such list: pip install tzdata."
            ) from error

    def parse(self, text: str) -> int | Reason:
        """Nanoseconds since 1970 in UTC, or the reason why not."""
        try:
            instant = self._dated(text) if self.layout.number_ns is None else self._counted(text, self.layout.number_ns)
        except ValueError:
            return Reason.NOT_A_TIME
        except OverflowError:
            return Reason.ABSURD
        if isinstance(instant, Reason):
            return instant
        limits = self.layout.limits
        return instant if limits.earliest_ns <= instant <= limits.latest_ns else Reason.ABSURD

    def _counted(self, text: str, unit_ns: int) -> int:
        """The instant of a plain number; ValueError for none."""
        value = number(text)
        if value is None or not math.isfinite(value):
            raise ValueError
        whole = int(value // 1)
        return self.layout.origin_ns + whole * unit_ns + round((value - whole) * unit_ns)

    def _dated(self, text: str) -> int | Reason:
        """The instant of a date; ValueError for none, OverflowError for one at an end of the calendar."""
        found = written_date(text, self.layout.dates)
        if found is None:
            return Reason.NOT_A_TIME
        *day, hour, minute, second, fraction, zone = found
        clock = int(hour or 0), int(minute or 0), int(second or 0)
        if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
            return Reason.NOT_A_TIME
        # A datetime has no nanoseconds: they are counted beside it.
        beside = int((fraction or "0").ljust(9, "0"))
        midnight = self._midnight(*day, zone)
        if isinstance(midnight, int):
            return midnight + (3600 * clock[0] + 60 * clock[1] + clock[2]) * 1_000_000_000 + beside
        naive = midnight + timedelta(hours=clock[0], minutes=clock[1], seconds=clock[2])
        offset = self._local_offset(naive)
        return offset if isinstance(offset, Reason) else _nanoseconds(naive, offset) + beside

    def _first_of(self, year: str, month: str, day: str, zone: str | None) -> int | datetime:
        """The instant at which a day begins; where the clocks change on it or no zone is known, its local midnight."""
        naive = datetime(int(year), int(month), int(day))
        if zone is not None:
            return _nanoseconds(naive, time.fromisoformat(f"00:00{zone}").utcoffset())
        offset, *others = (self._local_offset(naive + timedelta(hours=h)) for h in (0, 12, 24))
        if isinstance(offset, Reason) or any(other != offset for other in others):
            return naive
        return _nanoseconds(naive, offset)

    def _local_offset(self, naive: datetime) -> timedelta | Reason | None:
        """How far the clocks of the zone are ahead of UTC at a local time, or why there is no such time."""
        if self._zone is None:
            return Reason.NO_ZONE
        first, second = (naive.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        if first.utcoffset() != second.utcoffset():
            # Only a time that exists comes back from UTC as itself.
            if first.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != naive:
                return Reason.SKIPPED_HOUR
            if self.layout.ambiguous == "reject":
                return Reason.TWICE
            if self.layout.ambiguous == "second":
                first = second
        return first.utcoffset()


def _nanoseconds(naive: datetime, offset: timedelta | None) -> int:
    """The instant of a local time whose clocks are so far ahead of UTC."""
    return (naive - _EPOCH - (offset or timedelta())) // _MICROSECOND * 1000


# -- times that a user gives in Python ---------------------------------------------------------------------------------

#: UTC nanoseconds, a datetime or a text like 2024-03-31T12:00Z; of a relative clock nanoseconds or a timedelta.
Time = int | str | datetime | timedelta | np.datetime64 | np.timedelta64


def instants(times: Any, clock: Clock) -> IntArray:
    """UTC nanoseconds of one time or several, however they are given; see :data:`Time`.

    Datetimes and texts without a zone are in that of the problem; those of NumPy, and an index or a column of pandas
    without one, are in UTC, as the times of labelled arrays are.

    Examples
    --------
    >>> clock = Clock("Europe/Berlin", origin_ns=0, unit_ns=3_600_000_000_000)
    >>> instants(["1970-01-01 02:00", "1970-01-01T01:00Z", datetime(1970, 1, 1, 2), 3_600_000_000_000], clock) // 10**9
    array([3600, 3600, 3600, 3600])
    """
    listed = times if isinstance(times, (list, tuple)) else np.atleast_1d(np.asarray(times))
    rule = TimeRule(TableFormat(zone=clock.zone))
    found = [_instant(value, clock, rule) for value in listed]
    for t, value in zip(found, listed, strict=True):
        if not EARLIEST_NS <= t <= LATEST_NS:
            raise TimeError(f"the time {value!r:.60} lies outside the years 1678 to 2262 that timestamps can hold.")
    return np.array(found, dtype=np.int64)


def instant(when: Time, clock: Clock) -> int:
    """UTC nanoseconds of one time."""
    return int(instants([when], clock)[0])


def _instant(value: Any, clock: Clock, rule: TimeRule) -> int:
    wanted = "durations (whole nanoseconds, timedelta)" if clock.relative else "UTC nanoseconds, datetimes or ISO texts"
    if isinstance(value, (float, np.floating)):
        raise TimeError(
            f"times are floats; give {wanted} (got {float(value)!r}; setup.clock.from_model turns model time into "
            "nanoseconds)."
        )
    if isinstance(value, timedelta):
        value = np.timedelta64(value)
    if isinstance(value, np.timedelta64 if clock.relative else np.datetime64):
        if np.isnat(value):
            raise TimeError("times contains NaT, which is no time.")
        # By whole seconds: NumPy wraps what 64-bit nanoseconds cannot hold.
        seconds = value.astype(f"{value.dtype.kind}8[s]")
        return int(seconds.astype(np.int64)) * 1_000_000_000 + int((value - seconds) / np.timedelta64(1, "ns"))
    # numpy counts its timedeltas among the integers.
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        return int(value)
    if isinstance(value, (str, datetime)) and not clock.relative:
        if getattr(value, "fold", 0):
            rule = TimeRule(replace(rule.layout, ambiguous="second"))
        found = rule.parse(str(value).strip())
        if isinstance(found, int):
            return found
        raise TimeError(
            f"times: {value!r:.60} cannot be used ({found}); write it like '2024-03-31T12:00Z', with a zone unless the "
            "problem names one."
        )
    raise TimeError(f"times must be {wanted}; got {value!r:.60}.")
