"""Times as people write them -> UTC nanoseconds since 1970, one at a time or many at once.

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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ..core.checks import IntArray
from ..core.errors import ValueRangeError
from ._reasons import Reason
from .columns import ByteArray, ByteColumn, Mask, decimals, number

DAY_NS = 86_400_000_000_000
SECOND_NS = 1_000_000_000
#: What may be done with a local time that comes twice.
AMBIGUOUS = ("first", "second", "reject")
#: Orders in which a date may be written besides ISO 8601.
DATES = ("day first", "month first", "year first")

_EPOCH = datetime(1970, 1, 1)
_PARTS = ("year", "month", "day", "hour", "minute", "second", "fraction", "zone")
_ZONE = r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
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
#: Ways of writing a date that are read at once, in one stretch of a table; more are read one by one.
_SHAPES = 16


def _matched(text: str, dates: str | None) -> re.Match[str] | None:
    # Where the order is still asked for ("?"), what is a date can be told, if not which.
    return _ISO.fullmatch(text) or (dates and _OTHER.get(dates, _OTHER["month first"]).fullmatch(text)) or None


def written_date(text: str, dates: str | None) -> tuple[str | None, ...] | None:
    """Year, month, day, hour, minute, second, fraction and zone of a date as texts; None for no date.

    ISO 8601 is always one; ``dates`` names another order that is understood as well. A year of
    two digits is one of this century.

    Examples
    --------
    >>> written_date("1/5/24 2:30 PM", "month first")
    ('2024', '1', '5', '14', '30', None, None, None)
    """
    found = _matched(text, dates)
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


class Zone:
    """Local times of one place -> UTC.

    Parameters
    ----------
    name : str
        From the IANA list, for instance ``"Europe/Berlin"`` or ``"UTC"``.
    ambiguous : str
        ``"first"``, ``"second"`` or ``"reject"``: the meaning of a local time that comes twice.

    Examples
    --------
    >>> Zone("Europe/Berlin").to_utc(0) == -3_600_000_000_000
    True
    """

    def __init__(self, name: str, ambiguous: str = "first") -> None:
        if ambiguous not in AMBIGUOUS:
            raise ValueRangeError(f"ambiguous must be one of {', '.join(AMBIGUOUS)}; got {ambiguous!r}.")
        try:
            self._info = ZoneInfo(name)
        except (KeyError, ValueError, OSError, TypeError) as error:
            raise ValueRangeError(
                f"zone must be a name of the IANA list such as 'Europe/Berlin' or 'UTC'; got {name!r:.80}. Where the "
                "system has no such list: pip install tzdata."
            ) from error
        self.name = name
        self.ambiguous = ambiguous
        # A stream names few days; the bound only keeps an adversary's thousands of years from piling up.
        self._day = lru_cache(maxsize=4096)(self._constant_offset)

    def to_utc(self, local_ns: int) -> int | str:
        """The instant of a local time, or the reason why there is none."""
        micro, rest = divmod(int(local_ns), 1000)
        try:
            naive = _EPOCH + timedelta(microseconds=micro)
            first, second = (self._offset_ns(naive, fold) for fold in (0, 1))
        except (OverflowError, ValueError):
            return Reason.ABSURD
        if first != second:
            instant = _EPOCH + timedelta(microseconds=(micro * 1000 - first) // 1000)
            # Only a time that exists comes back from UTC as itself.
            back = instant.replace(tzinfo=ZoneInfo("UTC")).astimezone(self._info).replace(tzinfo=None)
            if back != naive:
                return Reason.SKIPPED_HOUR
            if self.ambiguous == "reject":
                return Reason.TWICE
            if self.ambiguous == "second":
                first = second
        return micro * 1000 + rest - first

    def to_utc_many(self, local_ns: IntArray) -> tuple[IntArray, Mask]:
        """Instants of many local times, and which of them have one; the others must be asked one by one."""
        days, place = np.unique(local_ns // DAY_NS, return_inverse=True)
        known = [self._day(int(day)) for day in days]
        regular = np.array([offset is not None for offset in known], dtype=np.bool_)
        offsets = np.array([0 if offset is None else offset for offset in known], dtype=np.int64)
        ok = regular[place]
        utc = local_ns - offsets[place]
        for i in np.flatnonzero(~ok):
            instant = self.to_utc(int(local_ns[i]))
            if isinstance(instant, int):
                utc[i], ok[i] = instant, True
        return utc, ok

    def _offset_ns(self, naive: datetime, fold: int) -> int:
        offset = naive.replace(tzinfo=self._info, fold=fold).utcoffset()
        assert offset is not None
        return (offset.days * 86_400 + offset.seconds) * SECOND_NS + offset.microseconds * 1000

    def _constant_offset(self, day: int) -> int | None:
        """The offset of a local day on which the clocks run evenly; None for a day with a change."""
        try:
            start = _EPOCH + timedelta(days=day)
            offsets = {self._offset_ns(start + timedelta(hours=hour), fold) for hour in range(25) for fold in (0, 1)}
        except (OverflowError, ValueError):
            return None
        return offsets.pop() if len(offsets) == 1 else None


@dataclass(frozen=True, slots=True)
class TimeRule:
    """How the time column of a table is read.

    Parameters
    ----------
    zone : Zone, optional
        Where times without a zone were written; None refuses them.
    number_ns : int, optional
        Times are plain numbers, in this many nanoseconds, since ``origin_ns``.
    origin_ns : int
    earliest_ns, latest_ns : int
        Other times are refused as "time out of bounds".
    dates : str, optional
        One of :data:`DATES`: how dates are written that are not ISO 8601; None refuses them.

    Examples
    --------
    >>> TimeRule().parse("1970-01-01T01:00+01:00")
    0
    >>> str(TimeRule().parse("1970-01-01 00:00"))
    'time without zone'
    >>> TimeRule(number_ns=60_000_000_000).parse("1.5")
    90000000000
    """

    zone: Zone | None = None
    number_ns: int | None = None
    origin_ns: int = 0
    earliest_ns: int = -2_208_988_800 * SECOND_NS
    latest_ns: int = 7_258_118_400 * SECOND_NS
    dates: str | None = None

    def __post_init__(self) -> None:
        if self.dates is not None and self.dates not in DATES:
            raise ValueRangeError(f"dates must be one of {', '.join(DATES)}; got {self.dates!r:.40}.")

    def parse(self, text: str) -> int | str:
        """Nanoseconds since 1970 in UTC, or the reason why not."""
        if self.number_ns is not None:
            return self.number(text)
        found = written_date(text, self.dates)
        if found is None:
            return Reason.NOT_A_TIME
        *parts, fraction, zone = found
        try:
            year, month, day, hour, minute, second = (int(part or 0) for part in parts)
            naive = datetime(year, month, day, hour, minute, second)
        except ValueError:
            return Reason.NOT_A_TIME
        whole = naive - _EPOCH
        local = (whole.days * 86_400 + whole.seconds) * SECOND_NS + int((fraction or "0").ljust(9, "0"))
        if zone is None:
            return self.local(local)
        offset = _written_offset(zone)
        return Reason.NOT_A_TIME if offset is None else self.bounded(local - offset)

    def number(self, text: str) -> int | str:
        """The instant of a plain number."""
        assert self.number_ns is not None
        value = number(text)
        if value is None or not math.isfinite(value):
            return Reason.NOT_A_TIME
        whole = int(value // 1)
        return self.bounded(self.origin_ns + whole * self.number_ns + round((value - whole) * self.number_ns))

    def local(self, local_ns: int) -> int | str:
        """The instant of a time written without a zone."""
        if self.zone is None:
            return Reason.NO_ZONE
        instant = self.zone.to_utc(local_ns)
        return instant if isinstance(instant, str) else self.bounded(instant)

    def bounded(self, t_ns: int) -> int | str:
        """The instant itself, or that it is absurd."""
        return t_ns if self.earliest_ns <= t_ns <= self.latest_ns else Reason.ABSURD

    # -- many at once -------------------------------------------------------------------------------------------------

    def parse_many(self, column: ByteColumn) -> tuple[IntArray, Mask]:
        """Instants of the cells of a text table, and which of them are sure; on the others :meth:`parse` decides."""
        if self.number_ns is not None:
            values, plain = decimals(column)
            ns, sure = self.from_numbers(values)
            return ns, sure & plain
        cells = column.rows
        ns, sure = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.bool_)
        zeros = np.where((cells > 48) & (cells <= 57), np.uint8(48), cells)
        left = np.flatnonzero(column.length == (cells > 0).sum(axis=1))
        for _ in range(_SHAPES):
            if left.size == 0:
                break
            alike = (zeros[left] == zeros[left[0]]).all(axis=1)
            rows, left = left[alike], left[~alike]
            found = _matched(bytes(zeros[rows[0]]).rstrip(b"\0").decode("ascii"), self.dates)
            if found is not None:
                ns[rows], sure[rows] = self._alike(found, cells[rows])
        return ns, sure & (ns >= self.earliest_ns) & (ns <= self.latest_ns)

    def from_local(self, local_ns: IntArray) -> tuple[IntArray, Mask]:
        """Instants of times written without a zone, and which of them are sure; on the others :meth:`local` decides."""
        if self.zone is None:
            return local_ns, np.zeros(local_ns.size, dtype=np.bool_)
        return self.zone.to_utc_many(local_ns)

    def from_datetimes(self, values: Any) -> tuple[IntArray, dict[int, str]]:
        """Instants of datetimes of NumPy or pandas, and by its place the reason where there is none."""
        zoned = getattr(values.dtype, "tz", None) is not None
        given = values.to_numpy(dtype=f"datetime64[{values.dtype.unit}]") if zoned else np.asarray(values)
        near = (given < np.datetime64("2260-01-01")) & (given >= np.datetime64("1680-01-01"))  # False for NaT too
        local = np.where(near, given, np.datetime64(0, "s")).astype("datetime64[ns]").astype(np.int64)
        ns, sure = (local.copy(), near) if zoned else self.from_local(local)

        def decide(i: int) -> int | str:
            if not near[i]:
                return Reason.NOT_A_TIME if np.isnat(given[i]) else Reason.ABSURD
            return self.bounded(int(local[i])) if zoned else self.local(int(local[i]))

        return ns, decided(ns, ~(sure & near & (ns >= self.earliest_ns) & (ns <= self.latest_ns)), decide)

    def from_numbers(self, values: NDArray[np.float64]) -> tuple[IntArray, Mask]:
        """Instants of plain numbers, and which of them lie within the bounds."""
        assert self.number_ns is not None
        far = self.origin_ns + self.number_ns * values
        ok = (np.abs(self.number_ns * values) < 9.2e18) & (np.abs(far) < 9.2e18)  # False for NaN too
        safe = np.where(ok, values, 0.0)
        whole = np.floor(safe)
        ns = self.origin_ns + whole.astype(np.int64) * self.number_ns
        ns += np.rint((safe - whole) * self.number_ns).astype(np.int64)
        return ns, ok & (ns >= self.earliest_ns) & (ns <= self.latest_ns)

    def _alike(self, found: re.Match[str], cells: ByteArray) -> tuple[IntArray, Mask]:
        """Instants of dates that differ in their digits alone; the mask says which are sure."""

        def whole(first: int, last: int) -> IntArray:
            """The number that the digits from ``first`` to ``last`` make; 0 where there are none."""
            powers = 10 ** np.arange(last - first - 1, -1, -1, dtype=np.int64)
            return np.asarray((cells[:, max(first, 0) : max(last, 0)] - np.uint8(48)).astype(np.int64) @ powers)

        year, month, day, hour, minute, second, nano = (whole(*found.span(name)) for name in _PARTS[:7])
        year = year + (2000 if len(found["year"]) == 2 else 0)
        nano = nano * 10 ** (9 - len(found["fraction"] or "000000000"))
        half = found.groupdict().get("half")
        good = (year >= 1680) & (year < 2260) & (month >= 1) & (month <= 12) & (day >= 1)
        if half is not None:
            good &= (hour >= 1) & (hour <= 12)
            hour = hour % 12 + (12 if half in "Pp" else 0)
        index = np.where(good, (year - 1970) * 12 + month - 1, 0)
        first, after = ((index + k).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for k in (0, 1))
        days = first + day - 1
        good &= (days < after) & (hour < 24) & (minute < 60) & (second < 60)
        ns = np.where(good, days, 0) * DAY_NS + (hour * 3600 + minute * 60 + second) * SECOND_NS + nano
        if found["zone"] is None:
            ns, sure = self.from_local(ns)
            return ns, sure & good
        at = found.start("zone")
        if found["zone"] != "Z":
            hours, minutes = whole(at + 1, at + 3), whole(found.end() - 2, found.end())
            minutes = minutes * (found.end() - at > 3)
            good &= (hours < 24) & (minutes < 60)
            ns -= (-1 if found["zone"][0] == "-" else 1) * (hours * 3600 + minutes * 60) * SECOND_NS
        return ns, good


def decided(ns: IntArray, unsure: Mask, decide: Callable[[int], int | str]) -> dict[int, str]:
    """Fill in the instants of single places; the reasons of those that have none."""
    why: dict[int, str] = {}
    for i in np.flatnonzero(unsure).tolist():
        one = decide(i)
        if isinstance(one, str):
            why[i] = one
        else:
            ns[i] = one
    return why


def _written_offset(zone: str) -> int | None:
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return None
    return (-1 if zone[0] == "-" else 1) * (hours * 3600 + minutes * 60) * SECOND_NS
