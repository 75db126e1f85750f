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

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ..core.errors import ValueRangeError
from ._reasons import Reason

__all__ = ["AMBIGUOUS", "DATES", "ISO", "TimeRule", "Zone", "decimals", "written_date"]

IntArray = NDArray[np.int64]
ByteArray = NDArray[np.uint8]
Mask = NDArray[np.bool_]

DAY_NS = 86_400_000_000_000
SECOND_NS = 1_000_000_000
#: What may be done with a local time that comes twice.
AMBIGUOUS = ("first", "second", "reject")

ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1)

#: Orders in which a date may be written besides ISO 8601.
DATES = ("day first", "month first", "year first")
_CLOCK = (
    r"(?:(?:,? |T)(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
    r"(?: ?([AaPp])\.?[Mm]\.?)?(Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_YEAR_LAST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d\d)" + _CLOCK, re.ASCII)
_YEAR_FIRST = re.compile(r"(\d{4})([./-])(\d{1,2})\2(\d{1,2})" + _CLOCK, re.ASCII)


def written_date(text: str, dates: str | None) -> tuple[str | None, ...] | None:
    """Year, month, day, hour, minute, second, fraction and zone of a date as texts; None for no date.

    ISO 8601 is always one; ``dates`` names another order that is understood as well. A year of
    two digits is one of this century.

    Examples
    --------
    >>> written_date("1/5/24 2:30 PM", "month first")
    ('2024', '1', '5', '14', '30', None, None, None)
    """
    found = ISO.fullmatch(text)
    if found is not None:
        return found.groups()
    if dates is None:
        return None
    found = (_YEAR_FIRST if dates == "year first" else _YEAR_LAST).fullmatch(text)
    if found is None:
        return None
    one, _, two, three, hour, minute, second, fraction, half, zone = found.groups()
    if dates == "year first":
        year, month, day = one, two, three
    else:
        day, month = (one, two) if dates == "day first" else (two, one)
        year = three if len(three) == 4 else "20" + three
    if half is not None:
        if not 1 <= int(hour) <= 12:
            return None
        hour = str(int(hour) % 12 + (12 if half in "Pp" else 0))
    return year, month, day, hour, minute, second, fraction, zone


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

    def number(self, value: str | float) -> int | str:
        """The instant of a plain number."""
        assert self.number_ns is not None
        try:
            number = float(value) if not isinstance(value, str) else _plain_float(value)
            whole = int(number // 1)
        except (ValueError, OverflowError):
            return Reason.NOT_A_TIME
        return self.bounded(self.origin_ns + whole * self.number_ns + round((number - whole) * self.number_ns))

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

    def parse_many(self, cells: ByteArray, length: IntArray) -> tuple[IntArray, Mask]:
        """Instants of texts given as rows of bytes (n, W); where the mask is False, :meth:`parse` decides.

        Whatever is accepted here is accepted by :meth:`parse` with the same instant.
        """
        n, width = cells.shape
        if n == 0 or width == 0:
            return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        # Sensors that report together repeat a time line after line: parse it once.
        new = np.ones(n, dtype=np.bool_)
        new[1:] = (cells[1:] != cells[:-1]).any(axis=1)
        heads = np.flatnonzero(new)
        which = np.cumsum(new) - 1
        parse = self._iso_many if self.number_ns is None else self._number_many
        ns, ok = parse(cells[heads], length[heads])
        ok &= (ns >= self.earliest_ns) & (ns <= self.latest_ns)
        return ns[which], ok[which]

    def from_numbers(self, values: NDArray[np.float64]) -> tuple[IntArray, Mask]:
        """Instants of plain numbers; where the mask is False the number is not finite or out of reach."""
        assert self.number_ns is not None
        limit = 4.0e18 / self.number_ns
        ok = np.abs(values) < limit  # False for NaN too
        safe = np.where(ok, values, 0.0)
        whole = np.floor(safe)
        ns = self.origin_ns + whole.astype(np.int64) * self.number_ns
        return ns + np.rint((safe - whole) * self.number_ns).astype(np.int64), ok

    def _number_many(self, cells: ByteArray, length: IntArray) -> tuple[IntArray, Mask]:
        values, ok = decimals(cells, length)
        ns, reached = self.from_numbers(values)
        return ns, ok & reached

    def _iso_many(self, cells: ByteArray, length: IntArray) -> tuple[IntArray, Mask]:
        n = len(cells)
        ns, ok = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        for size in np.unique(length):
            if size < 10 or size > cells.shape[1]:
                continue
            rows = np.flatnonzero(length == size)
            ns[rows], ok[rows] = self._iso_of_length(self._year_first(cells[rows, : int(size)]))
        return ns, ok

    def _year_first(self, cells: ByteArray) -> ByteArray:
        """Dates of ten characters in another order, put into that of ISO 8601; all other rows stay as they are."""
        if self.dates is None:
            return cells
        a, b = (4, 7) if self.dates == "year first" else (2, 5)
        mark = cells[:, a]
        other = (mark == cells[:, b]) & ((mark == ord(".")) | (mark == ord("/")) | (mark == ord("-")))
        order = {"day first": [6, 7, 8, 9, 2, 3, 4, 5, 0, 1], "month first": [6, 7, 8, 9, 2, 0, 1, 5, 3, 4]}
        turned = cells[other]
        turned[:, :10] = turned[:, order.get(self.dates, list(range(10)))]
        turned[:, 4] = turned[:, 7] = ord("-")
        out = cells.copy()
        out[other] = turned
        return out

    def _iso_of_length(self, cells: ByteArray) -> tuple[IntArray, Mask]:
        """Times of one length; each kind of tail is a subset of the rows."""
        size = cells.shape[1]
        local, ok = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.bool_)
        offset, zoned = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.bool_)
        kinds = [(0, np.ones(len(cells), dtype=np.bool_))]
        if size > 10:
            ends_in_z = cells[:, -1] == ord("Z")
            sign = cells[:, -6] if size >= 22 else np.zeros(len(cells), dtype=np.uint8)
            written = ((sign == ord("+")) | (sign == ord("-"))) & ~ends_in_z
            kinds = [(0, ~ends_in_z & ~written), (1, ends_in_z), (6, written)]
        for tail, chosen in kinds:
            rows = np.flatnonzero(chosen)
            if rows.size == 0:
                continue
            part = cells[rows]
            local[rows], ok[rows] = _civil(part[:, : size - tail])
            if tail == 6:
                hours, good_hours = _digits(part[:, -5:-3])
                minutes, good_minutes = _digits(part[:, -2:])
                good = good_hours & good_minutes & (part[:, -3] == ord(":")) & (hours < 24) & (minutes < 60)
                negative = part[:, -6] == ord("-")
                offset[rows] = np.where(negative, -1, 1) * (hours * 3600 + minutes * 60) * SECOND_NS
                ok[rows] &= good
            zoned[rows] = tail > 0
        utc = local - offset
        bare = np.flatnonzero(ok & ~zoned)
        if bare.size:
            if self.zone is None:
                ok[bare] = False
            else:
                utc[bare], ok[bare] = self.zone.to_utc_many(local[bare])
        return utc, ok


def decimals(cells: ByteArray, length: IntArray) -> tuple[NDArray[np.float64], Mask]:
    """Plain decimal numbers in rows of bytes (n, W): sign, digits, one point. The mask says which rows are one.

    With at most 15 digits the mantissa and the power of ten are exact doubles, so
    their quotient is the correctly rounded value: the same bits that ``float`` gives.
    """
    n, width = cells.shape
    mantissa = np.zeros(n, dtype=np.int64)
    n_digits, n_points, n_after = (np.zeros(n, dtype=np.int64) for _ in range(3))
    ok = (length > 0) & (length <= min(width, 17))
    negative = np.zeros(n, dtype=np.bool_)
    for j in range(min(width, 17)):
        c = cells[:, j]
        inside = length > j
        digit = c - np.uint8(48)
        is_digit = (digit <= 9) & inside
        is_point = (c == 46) & inside
        mantissa = np.where(is_digit, mantissa * 10 + digit, mantissa)
        n_digits += is_digit
        n_after += is_digit & (n_points > 0)
        n_points += is_point
        other = inside & ~is_digit & ~is_point
        if j == 0:
            negative = inside & (c == 45)
            other &= ~negative & (c != 43)
        ok &= ~other
    ok &= (n_digits >= 1) & (n_digits <= 15) & (n_points <= 1)
    value = np.where(ok, mantissa, 0) / _POWERS[np.minimum(n_after, 22)]
    return np.where(negative, -value, value), ok


_POWERS = np.array([float(10**k) for k in range(23)])


def _civil(cells: ByteArray) -> tuple[IntArray, Mask]:
    """Local nanoseconds of YYYY-MM-DD[THH:MM[:SS[.f]]] in rows of exactly that length."""
    size = cells.shape[1]
    if size not in (10, 16, 19) and not 21 <= size <= 29:
        return np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.bool_)
    year, ok = _digits(cells[:, 0:4])
    month, good = _digits(cells[:, 5:7])
    ok &= good & (month >= 1) & (month <= 12) & (cells[:, 4] == 45) & (cells[:, 7] == 45)
    day, good = _digits(cells[:, 8:10])
    # Year 0 exists for NumPy but not for datetime, which decides in the end.
    ok &= good & (day >= 1) & (year >= 1)
    index = (np.where(ok, year, 1970) - 1970) * 12 + np.where(ok, month, 1) - 1
    first = index.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (index + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = first + day - 1
    ok &= days < after
    seconds = np.zeros(len(cells), dtype=np.int64)
    nano = np.zeros(len(cells), dtype=np.int64)
    if size >= 16:
        hour, good_hour = _digits(cells[:, 11:13])
        minute, good_minute = _digits(cells[:, 14:16])
        ok &= good_hour & good_minute & (hour < 24) & (minute < 60)
        ok &= ((cells[:, 10] == ord("T")) | (cells[:, 10] == 32)) & (cells[:, 13] == 58)
        seconds = hour * 3600 + minute * 60
    if size >= 19:
        second, good = _digits(cells[:, 17:19])
        ok &= good & (second < 60) & (cells[:, 16] == 58)
        seconds = seconds + second
    if size >= 21:
        nano, good = _digits(cells[:, 20:])
        nano = nano * 10 ** (29 - size)
        ok &= good & (cells[:, 19] == 46)
    # Beyond about 290 years from 1970 nanoseconds leave 64 bits; parse() counts in unbounded integers.
    ok &= np.abs(days) < 100_000
    return np.where(ok, days, 0) * DAY_NS + np.where(ok, seconds, 0) * SECOND_NS + np.where(ok, nano, 0), ok


def _digits(cells: ByteArray) -> tuple[IntArray, Mask]:
    """The whole number in each row of digits, and whether the row is one."""
    values = cells - np.uint8(48)
    ok = (values <= 9).all(axis=1)
    powers = 10 ** np.arange(cells.shape[1] - 1, -1, -1, dtype=np.int64)
    return values.astype(np.int64) @ powers, np.asarray(ok)


def _plain_float(text: str) -> float:
    """``float`` without its extras: no underscores, no words."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def _written_offset(zone: str) -> int | None:
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return None
    return (-1 if zone[0] == "-" else 1) * (hours * 3600 + minutes * 60) * SECOND_NS
