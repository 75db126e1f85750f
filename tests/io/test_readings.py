"""Tables of readings: what is read, what is refused and why, and that nothing else can happen."""

from __future__ import annotations

import io
import json
import math
import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfkalman.core.errors import ReadingsError, RFKalmanError, ValueRangeError
from rfkalman.io import _lines
from rfkalman.io._csv import Table
from rfkalman.io.readings import from_frame, read_csv, read_jsonl
from rfkalman.io.tables import REASONS, Chunk, Position
from rfkalman.io.timestamps import TimeRule
from rfkalman.job.plan import Limits, TableFormat

HEADER = b"time,sensor_id,value\n"
T0 = "2024-01-02T03:04:05Z"
T0_NS = int(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 10**9


def rows(chunks):
    """All readings as plain tuples; NaN as None, so that they compare."""
    return [
        (int(t), str(s), None if math.isnan(v) else float(v), int(n))
        for chunk in chunks
        for t, s, v, n in zip(chunk.time_ns, chunk.sensor, chunk.value, chunk.line, strict=True)
    ]


def rejected(chunks):
    return [(item.line, item.reason) for chunk in chunks for item in chunk.rejected]


def csv(body: bytes | str, format: TableFormat | None = None, header: bytes = HEADER, **options) -> list[Chunk]:
    text = body if isinstance(body, bytes) else body.encode()
    return list(read_csv(io.BytesIO(header + text), format, **options))


def jsonl(body: bytes, format: TableFormat | None = None) -> list[Chunk]:
    return list(read_jsonl(io.BytesIO(body), format))


# -- the fast road and the code that decides ------------------------------------------------------------------------

CELLS = st.one_of(
    st.sampled_from(
        [
            T0,
            "2024-01-02",
            "2024-02-30",
            "2024-01-02 03:04",
            "2024-01-02T03:04:05.123456789+05:30",
            "2024-13-01T00:00Z",
            "2024-01-02T03:04:60Z",
            "2024-01-02T24:00Z",
            "0000-01-01T00:00Z",
            "9999-12-31T23:59:59Z",
            "1850-01-01T00:00Z",
            "2024-01-02T03:04:05-23:59",
            "2024-01-02T03:04+24:00",
            "2024-01-02T03:04+0100",
            "2024-01-02T03:04+01",
            "",
            " ",
            "a",
            " a",
            "s001",
            "x" * 300,
            "12.5",
            "-0",
            "+3.",
            ".5",
            "-.5e3",
            "1e400",
            "nan",
            "inf",
            "-inf",
            "NA",
            "1_000",
            "0x10",
            "1,5",
            "--1",
            "1.2.3",
            "-9999",
            "-9999.00",
            "123456789012345678",
            "0.1234567890123456",
            "1700000000",
            "é",
            "١٢",
            '"a"',
            '"1.5"',
            'a"b',
            "\t",
            "Z",
            "31.12.2024 14:00",
            "12/31/2024 02:00:30",
            "2024/12/31",
            "01-02-2024T03:04Z",
            "1/5/24 2:30 PM",
            "31.12/2024",
            '"01.02.2024 03:04"',
            f'"{T0}"',
            '""',
            '"',
            '"""',
            '"x',
            'x"',
            '"1,5"',
        ]
    ),
    st.text(alphabet="0123456789-+.:TZ eE", max_size=30),
    st.text(max_size=8).map(lambda s: s.replace("\n", "").replace("\r", "")),
)
LINES = st.lists(
    st.one_of(
        st.lists(CELLS, min_size=0, max_size=4).map(",".join),
        st.tuples(st.sampled_from([f'"{T0}"', "31.12.2024 14:00", "2024/12/31"]), st.just('"b"'), CELLS).map(",".join),
        # Quotes and separators alone, in every order.
        st.text(alphabet=',"a1', max_size=12),
    ),
    max_size=12,
)
FORMATS = st.sampled_from(
    [
        TableFormat(),
        TableFormat(zone="Europe/Berlin"),
        TableFormat(number_ns=10**9),
        TableFormat(missing=("-9999",), decimal=".", factor=0.1, shift=2.0),
        TableFormat(sensor=None, zone="UTC"),
        TableFormat(where={"sensor_id": "a"}, sensor="value", value="sensor_id", zone="UTC"),
        TableFormat(dates="day first", zone="UTC", decimal=",", exclude=("a",)),
        TableFormat(dates="month first", zone="UTC"),
        TableFormat(dates="year first", zone="UTC", sensor=None),
    ]
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(lines=LINES, format=FORMATS, end=st.sampled_from(["\n", "\r\n"]))
def test_lines_cut_together_are_what_each_is_alone(lines, format, end):
    """Both see the same readings and the same rejections: the fast road only ever accepts what is accepted anyway."""
    body = (end.join(lines) + end).encode("utf-8", "surrogatepass")
    together = csv(body, format)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "cut_plain", lambda self, lines: None)
        patch.setattr(Table, "_numbers", lambda self, cells: [self._number(cell) for cell in cells])
        alone = csv(body, format, chunk_rows=1)
    assert rows(together) == rows(alone)
    assert sorted(rejected(together)) == sorted(rejected(alone))
    assert sum(c.skipped for c in together) == sum(c.skipped for c in alone)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.one_of(
            CELLS,
            st.floats(allow_nan=False).map(repr),
            st.decimals(places=4, allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9).map(str),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_decimals_are_rounded_as_float_rounds_them(cells):
    """Bit for bit, whatever stands in the cells beside; ``float`` reads no less."""
    cells = [cell for cell in cells if not set(cell) & set(',"\r\n')]
    value = {n: v for _, _, v, n in rows(csv("".join(f"{T0},a,{cell}\n" for cell in cells)))}
    for line, found in value.items():
        text = cells[line - 2].strip()
        expected = math.nan if text in TableFormat().missing else float(text)
        assert found is None if math.isnan(expected) else np.float64(found).tobytes() == np.float64(expected).tobytes()


def test_plain_decimals_take_the_fast_road():
    """Control for the tests above: lines cut together, numbers read at once, are not simply none."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("cut", "_number"):
            patch.setattr(Table, name, lambda *a: pytest.fail("slow road"))
        [chunk] = csv("".join(f'{T0},"a",{cell}\n' for cell in ("12.345", "-0.5", "7", "+.25")))
    assert chunk.value.tolist() == [12.345, -0.5, 7.0, 0.25]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    when=st.datetimes(datetime(1905, 1, 1), datetime(2190, 1, 1)),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    written=st.sampled_from(["T", " "]),
)
def test_local_times_are_what_the_zone_database_says(when, zone, written):
    """Independent route: datetime with tzinfo; a time that does not come back from UTC does not exist."""
    aware = when.replace(tzinfo=ZoneInfo(zone))
    there = aware.astimezone(UTC)
    exists = there.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == when
    [chunk] = csv(f"{when.isoformat(written, timespec='microseconds')},a,1\n", TableFormat(zone=zone))
    if exists:
        delta = there - datetime(1970, 1, 1, tzinfo=UTC)
        assert rows([chunk])[0][0] == (delta // timedelta(microseconds=1)) * 1000
    else:
        assert rejected([chunk]) == [(2, "no such local time")]


# -- daylight saving ------------------------------------------------------------------------------------------------


def test_the_skipped_hour_of_spring_is_refused_and_its_neighbours_are_an_hour_apart():
    """Berlin, 31 March 2024: clocks go from 02:00 to 03:00."""
    body = "".join(f"2024-03-31T{hour},a,1\n" for hour in ("01:59", "02:00", "02:30", "02:59:59.9", "03:00"))
    [chunk] = csv(body, TableFormat(zone="Europe/Berlin"))
    assert [reason for _, reason in rejected([chunk])] == ["no such local time"] * 3
    assert np.diff(chunk.time_ns).tolist() == [60 * 10**9]


@pytest.mark.parametrize(
    ("rule", "hour"), [("first", 0), ("second", 1), ("reject", None)]
)  # Berlin, 27 October 2024, 02:30: 00:30 UTC in summer time, 01:30 UTC in winter time
def test_the_repeated_hour_of_autumn_follows_the_stated_rule(rule, hour):
    [chunk] = csv("2024-10-27T02:30,a,1\n", TableFormat(zone="Europe/Berlin", ambiguous=rule))
    if hour is None:
        assert rejected([chunk]) == [(2, "ambiguous local time")]
    else:
        want = datetime(2024, 10, 27, hour, 30, tzinfo=UTC).timestamp() * 1e9
        assert chunk.time_ns.tolist() == [int(want)]


def test_a_zone_of_half_an_hour_is_followed():
    """Lord Howe Island moves its clocks by 30 minutes: 02:15 on 6 October 2024 does not exist, 02:45 does."""
    chunks = csv("2024-10-06T02:15,a,1\n2024-10-06T02:45,a,1\n", TableFormat(zone="Australia/Lord_Howe"))
    assert rejected(chunks) == [(2, "no such local time")] and len(rows(chunks)) == 1


def test_times_without_a_zone_are_refused_unless_one_is_named():
    body = "2024-01-02T03:04:05,a,1\n2024-01-02,a,2\n" + f"{T0},a,3\n"
    assert rejected(csv(body)) == [(2, "time without zone"), (3, "time without zone")]
    assert rejected(csv(body, TableFormat(zone="UTC"))) == []
    with pytest.raises(ValueRangeError, match="Europe/Berlin"):
        csv(body, TableFormat(zone="Mars/Olympus"))


def test_every_quarter_of_an_hour_of_a_year_with_changes_is_what_the_zone_database_says():
    """Around both changes of a year in New York; the quarters from 02:00 to 02:45 on 10 March do not exist."""
    zone, rule = ZoneInfo("America/New_York"), TimeRule(TableFormat(zone="America/New_York"))
    refused = 0
    for quarter in range(250 * 96):
        local = datetime(2024, 3, 9) + timedelta(minutes=15) * quarter
        found, there = rule.parse(local.isoformat()), local.replace(tzinfo=zone).astimezone(UTC)
        exists = there.astimezone(zone).replace(tzinfo=None) == local
        assert found == (int(there.timestamp()) * 10**9 if exists else "no such local time")
        refused += not exists
    assert refused == 4


# -- layouts --------------------------------------------------------------------------------------------------------


def test_long_and_wide_tables_say_the_same():
    long = csv(f"{T0},a,1.5\n{T0},b,\n2024-01-02T04:00Z,a,2\n2024-01-02T04:00Z,b,-3e2\n")
    wide = csv(f"{T0},1.5,\n2024-01-02T04:00Z,2,-3e2\n", TableFormat(sensor=None), header=b"time,a,b\n")
    assert [r[:3] for r in rows(long)] == [r[:3] for r in rows(wide)]
    assert [r[3] for r in rows(wide)] == [2, 2, 3, 3]


def test_a_bad_cell_of_a_wide_line_costs_that_cell_alone():
    chunks = csv(f"{T0},1.5,what,3\n", TableFormat(sensor=None), header=b"time,a,b,c\n")
    assert [r[1:3] for r in rows(chunks)] == [("a", 1.5), ("c", 3.0)]
    [item] = chunks[0].rejected
    assert (item.line, item.reason) == (2, "not a number") and item.excerpt == "b: what"


def test_columns_may_be_renamed_restricted_and_chosen_by_another_column():
    header = b"test,t,left,right,note\n"
    body = "A,0,1,2,x\nB,0,3,4,x\nA,1.5,5,6,x\n"
    named = TableFormat("t", None, columns={"right": "r"}, where={"test": "A"}, number_ns=10**9)
    chunks = csv(body, named, header)
    assert [r[:3] for r in rows(chunks)] == [(0, "r", 2.0), (1_500_000_000, "r", 6.0)]
    assert sum(c.skipped for c in chunks) == 1
    known = TableFormat("t", None, known=("left",), where={"test": "B"}, number_ns=10**9)
    assert [r[1:3] for r in rows(csv(body, known, header))] == [("left", 3.0)]


def test_missing_values_are_readings_without_a_value():
    """They arrived; what becomes of them is not the parser's business. A number among the texts matches by value."""
    format = TableFormat(missing=("", "-9999", "gone"))
    chunks = csv(f"{T0},a,\n{T0},b,-9999\n{T0},c,-9999.00\n{T0},d,gone\n{T0},e,0\n", format)
    assert [r[2] for r in rows(chunks)] == [None, None, None, None, 0.0]


def test_decimal_commas_and_units():
    format = TableFormat(delimiter=";", decimal=",", factor=0.01, shift=1.0, zone="UTC")
    chunks = csv("2024-01-02;a;12,5\n2024-01-02;b;1.5\n", format, b"time;sensor_id;value\n")
    assert [r[2] for r in rows(chunks)] == [0.01 * 12.5 + 1.0]
    assert rejected(chunks) == [(3, "not a number")]


def test_quotes_blanks_and_line_ends_of_other_systems_are_understood():
    chunks = csv(f'"{T0}", a ,"1.5"\r\n\r\n{T0},"x,y",2\r\n   \r\n{T0},b,3')
    assert [r[1:] for r in rows(chunks)] == [("a", 1.5, 2), ("x,y", 2.0, 4), ("b", 3.0, 6)]
    assert rejected(chunks) == []


def test_a_byte_order_mark_is_no_part_of_the_first_column():
    assert rows(csv(f"{T0},a,1\n", header=b"\xef\xbb\xbf" + HEADER))


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"when,sensor_id,value\n", "time column is to be 'time'.*it has: when"),
        (b"time,time,sensor_id,value\n", "more than once"),
        ("time,sensor_id,value\n".encode("utf-16"), "UTF-16"),
        (b"\xe9time,value\n", "not UTF-8"),
        (b'"time,sensor_id\n', "cannot be split"),
        (b"time," + b"a," * 30_000 + b"b\n", "30002 columns; the limit is 20000"),
        (b"x" * 3_000_000, "longer than"),
    ],
)
def test_a_header_that_cannot_be_used_is_misuse(header, match):
    with pytest.raises(ReadingsError, match=match):
        csv("", header=header)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ReadingsError, match="one plain character"):
        TableFormat(delimiter="ab")
    with pytest.raises(ReadingsError, match="decimal must be"):
        TableFormat(decimal="/")
    with pytest.raises(ReadingsError, match="encoding must be"):
        TableFormat(encoding="ebcdic")
    with pytest.raises(ReadingsError, match="one after the other; got 3 and 2"):
        TableFormat(names_line=3, data_line=2)
    with pytest.raises(ReadingsError, match="tuple of texts"):
        TableFormat(missing="NA")  # type: ignore[arg-type]
    with pytest.raises(ReadingsError, match="path or a binary stream"):
        list(read_csv(17))  # type: ignore[arg-type]


def test_dates_in_another_order_are_the_iso_instants():
    """One law for both roads: turned into ISO 8601 by hand, a date is the same instant; without being told, refused."""
    for dates, texts in {
        "day first": [
            "31.12.2024 14:00",
            "31/12/2024 14:00:00",
            "31-12-2024T14:00",
            "31.12.24 2:00 PM",
            "31.12.2024, 14:00",
        ],
        "month first": ["12/31/2024 14:00", "12.31.2024 02:00 pm", "12/31/24 2:00:00 PM"],
        "year first": ["2024/12/31 14:00", "2024.12.31 14:00:00", "2024-12-31 14:00"],
    }.items():
        layout = TableFormat(dates=dates, zone="UTC")
        for text in texts:
            [chunk] = csv(f'"{text}",a,1\n'.encode(), layout)
            assert chunk.time_ns.tolist() == [1_735_653_600_000_000_000], text
            if text[4] != "-":
                [chunk] = csv(f'"{text}",a,1\n'.encode(), TableFormat(zone="UTC"))
                assert not len(chunk) and chunk.rejected[0].reason == "time not understood"
    [chunk] = csv(b"31.12.2024 14:00,a,1\n", TableFormat(dates="month first", zone="UTC"))
    assert not len(chunk) and chunk.rejected[0].excerpt == "time: 31.12.2024 14:00"
    # Midnight and noon of a twelve-hour clock.
    rule = TimeRule(TableFormat(zone="UTC", dates="month first"))
    assert rule.parse("1/2/1970 12:00 AM") == 86_400 * 10**9 and rule.parse("1/2/1970 12:00 PM") == 129_600 * 10**9
    assert rule.parse("1/2/1970 13:00 PM") == "time not understood"


def test_a_table_of_a_logger_is_read_with_all_its_lines():
    """Names on the second line, units and processing below, quoted times, NAN: as Campbell's TOA5 is written."""
    data = (
        b'"TOA5","station","CR1000","1234","CR1000.Std.32","CPU:soil.CR1","4711","Table1"\r\n'
        b'"TIMESTAMP","RECORD","T_1","T_2"\r\n"TS","RN","degC","degC"\r\n"","","Avg","Avg"\r\n'
        b'"2024-12-31 14:00:00",0,12.5,"NAN"\r\n"2024-12-31 14:10:00",1,"12.25",-3\r\n'
    )
    layout = TableFormat(time="TIMESTAMP", sensor=None, known=("T_1", "T_2"), zone="UTC", names_line=2, data_line=5)
    with pytest.MonkeyPatch.context() as patch:
        # Quoted cells take the fast road: no line is cut alone.
        patch.setattr(Table, "cut", lambda *a: pytest.fail("slow road"))
        [chunk] = read_csv(io.BytesIO(data), layout)
    assert chunk.sensor.tolist() == ["T_1", "T_2", "T_1", "T_2"] and chunk.line.tolist() == [5, 5, 6, 6]
    np.testing.assert_array_equal(chunk.value, [12.5, np.nan, 12.25, -3.0])
    assert chunk.start == Position() and chunk.end == Position(len(data), 6)
    # A header that is still being written waits; a complete one without readings is no error.
    for cut in (10, data.index(b'"","","Avg"') + 4):
        assert list(read_csv(io.BytesIO(data[:cut]), layout, final=False)) == []
    assert list(read_csv(io.BytesIO(data[: data.index(b'"2024')]), layout)) == []


def test_separators_at_the_ends_of_lines_make_no_field():
    names = b"time;sensor_id;value"
    for header, tail in ((names + b";\n", ";"), (names + b"\n", ";"), (names + b";\n", "")):
        body = f"{T0};a;1,5{tail}\n{T0};b;1.234,56{tail}\n{T0};c;2,5{tail}x\n".encode()
        [chunk] = csv(body, TableFormat(delimiter=";", decimal=","), header=header)
        assert chunk.value.tolist() == [1.5]
        assert chunk.rejected[0].line == 3 and chunk.rejected[0].excerpt == "value: 1.234,56"
        assert chunk.rejected[1].reason in ("wrong number of fields", "not a number")


def test_windows_text_is_read_where_the_format_says_so():
    body = f"{T0};Süd;1,5\n".encode("cp1252")
    header = "time;sensor_id;Wert [°C]\n".encode("cp1252")
    layout = TableFormat(value="Wert [°C]", delimiter=";", decimal=",", encoding="cp1252")
    [chunk] = csv(body, layout, header=header)
    assert chunk.sensor.tolist() == ["Süd"] and chunk.value.tolist() == [1.5]
    with pytest.raises(ReadingsError, match="cp1252"):
        csv(body, TableFormat(delimiter=";"), header=header)


def test_excluded_sensors_are_skipped_by_every_carrier():
    layout = TableFormat(exclude=("b",))
    [chunk] = csv(f"{T0},a,1\n{T0},b,2\n{T0},b,3\n".encode(), layout)
    assert chunk.sensor.tolist() == ["a"] and chunk.names == ("a",) and chunk.skipped == 2
    [chunk] = from_frame({"time": [T0, T0], "sensor_id": ["a", "b"], "value": [1.0, 2.0]}, layout)
    assert chunk.sensor.tolist() == ["a"] and chunk.skipped == 1
    line = b'{"time": "%s", "sensor_id": "b", "value": 2}\n' % T0.encode()
    [chunk] = read_jsonl(io.BytesIO(line), layout)
    assert len(chunk) == 0 and chunk.skipped == 1


# -- where chunks begin and end -------------------------------------------------------------------------------------


def table_of(n: int) -> bytes:
    odd = {3: "nonsense", 7: "", 11: '"' + T0 + '",q,5'}
    lines = [odd.get(i, f"2024-01-02T{i % 24:02d}:{i % 60:02d}Z,s{i % 5},{i / 7:.3f}") for i in range(n)]
    return ("\n".join(lines) + "\n").encode()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(chunk_rows=st.integers(1, 60), block=st.integers(1, 700), stop=st.integers(0, 40))
def test_any_cut_of_a_table_gives_the_same_readings(chunk_rows, block, stop):
    """Chunks cover the bytes without gap or overlap, and reading can go on from the end of any of them."""
    data = HEADER + table_of(40)
    whole = list(read_csv(io.BytesIO(data)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lines, "_BLOCK", block)
        parts = list(read_csv(io.BytesIO(data), chunk_rows=chunk_rows))
        assert rows(parts) == rows(whole) and rejected(parts) == rejected(whole)
        assert parts[0].start == Position(0, 0) and parts[-1].end == Position(len(data), 41)
        assert all(a.end == b.start for a, b in pairwise(parts))
        assert max(len(part) for part in parts) <= chunk_rows
        first = parts[: stop % len(parts) + 1]
        rest = list(read_csv(io.BytesIO(data), start=first[-1].end, chunk_rows=chunk_rows))
    assert rows(first) + rows(rest) == rows(whole)
    assert rejected(first) + rejected(rest) == rejected(whole)


def test_a_line_without_its_end_waits_while_a_file_is_being_written(tmp_path):
    """``12.`` of ``12.34`` must not be read as 12; what is left is read when it is complete."""
    path = tmp_path / "growing.csv"
    path.write_bytes(HEADER + f"{T0},a,1\n{T0},b,12.".encode())
    first = list(read_csv(path, final=False))
    assert [r[1:3] for r in rows(first)] == [("a", 1.0)]
    assert list(read_csv(path, start=first[-1].end, final=False)) == []
    with path.open("ab") as stream:
        stream.write(b"34\n")
    assert [r[1:3] for r in rows(read_csv(path, start=first[-1].end, final=False))] == [("b", 12.34)]
    path.write_bytes(b"time,sens")
    assert list(read_csv(path, final=False)) == []


def test_a_pipe_is_read_as_it_comes():
    """A reader that waited for a full block would never see a sensor that sends a line an hour."""

    class Pipe(io.RawIOBase):
        def __init__(self):
            self.parts = [b'{"time": "2024-01-02T03:04:05Z", "sensor_id": "a", "value": 1}\n'] * 3
            self.taken = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            if not self.parts:
                return 0
            part = self.parts.pop()
            self.taken += 1
            buffer[: len(part)] = part
            return len(part)

    pipe = Pipe()
    chunks = read_jsonl(io.BufferedReader(pipe))
    next(chunks)
    assert pipe.taken == 1


# -- broken input ---------------------------------------------------------------------------------------------------

HANDMADE = [
    (b"2024-01-02T03:04:05Z,a", "wrong number of fields"),
    (b"2024-01-02T03:04:05Z,a,1,2", "wrong number of fields"),
    ("2024-01-02T03:04:05Z,é,1".encode("latin-1"), "not UTF-8"),
    ("2024-01-02T03:04:05Z,a,1".encode("utf-16-le"), "NUL byte"),
    (b"2024-01-02T03:04:05Z,a\x00,1", "NUL byte"),
    (b"2024-01-02T03:04:05Z,,1", "sensor name missing"),
    (b"2024-01-02T03:04:05Z," + b"n" * 201 + b",1", "sensor name not usable"),
    (b"2024-01-02T03:04:05Z,a\x07b,1", "sensor name not usable"),
    (b"2024-01-02T03:04:05Z,a,one", "not a number"),
    (b"2024-01-02T03:04:05Z,a,1 2", "not a number"),
    (b"yesterday,a,1", "time not understood"),
    (b"9999-12-31T23:59:59Z,a,1", "time out of bounds"),
    (b"1492-10-12T00:00Z,a,1", "time out of bounds"),
    (b"-5,a,1", "time not understood"),
    (b'2024-01-02T03:04:05Z,"a,1', "wrong number of fields"),
    (b'2024-01-02T03:04:05Z,"a"b,1', "bad quoting"),
    (b"2024-01-02T03:04:05Z,a\rb,1", "bad quoting"),
    (b"x" * 1_100_000, "line too long"),
    (b"y" * 5_000_000, "line too long"),
]


@pytest.mark.parametrize(("raw", "reason"), HANDMADE, ids=lambda x: x if isinstance(x, str) else "")
def test_every_kind_of_broken_line_is_counted_with_its_reason(raw, reason):
    """And the good lines around it are read."""
    good = f"{T0},good,1\n".encode()
    chunks = csv(good + raw + b"\n" + good)
    found = rejected(chunks)
    if reason == "wrong number of fields" and raw.endswith(b'"a,1'):
        found = [(line, "wrong number of fields" if why == "bad quoting" else why) for line, why in found]
    assert found == [(3, reason)]
    assert [r[3] for r in rows(chunks)] == [2, 4]
    assert all(len(item.excerpt) <= 120 and item.excerpt.isprintable() for c in chunks for item in c.rejected)


def test_infinite_values_are_handed_on():
    """They are numbers; whether they are believed is decided where the range is known."""
    assert [r[2] for r in rows(csv(f"{T0},a,inf\n{T0},b,-1e999\n"))] == [math.inf, -math.inf]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    body=st.one_of(st.binary(max_size=300), st.lists(CELLS).map(lambda c: "\n".join(c).encode("utf-8", "replace"))),
    format=FORMATS,
    carrier=st.sampled_from([read_csv, read_jsonl]),
    final=st.booleans(),
)
def test_nothing_that_arrives_is_fatal_and_nothing_goes_unaccounted(body, format, carrier, final):
    """Every line that is not blank is a reading, a rejection with a known reason, or was not asked for."""
    data = (HEADER if carrier is read_csv else b"") + body
    chunks = list(carrier(io.BytesIO(data), format, final=final))
    lines = data.split(b"\n")
    if not final or not lines[-1]:
        lines = lines[:-1]
    filled = sum(bool(line.strip()) for line in lines) - (carrier is read_csv)
    seen = {line for c in chunks for line in c.line.tolist()} | {item.line for c in chunks for item in c.rejected}
    assert len(seen) + sum(c.skipped for c in chunks) == filled
    assert {item.reason for c in chunks for item in c.rejected} <= set(REASONS)
    for chunk in chunks:
        assert all(name.isprintable() and name.encode() for name in chunk.names)


BOMBS = [
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested too deeply"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a", "value": ' + b"9" * 900_000 + b"}", None),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a", "value": 1, "value": 2}', "key given twice"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a"}', "key missing"),
    (b'{"time": 5, "sensor_id": "a", "value": 1}', "time not understood"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": ["a"], "value": 1}', "sensor name missing"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a\\ud800", "value": 1}', "sensor name not usable"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a", "value": true}', "not a number"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a", "value": "1"}', "not a number"),
    (b'{"time": "' + T0.encode() + b'", "sensor_id": "a", "value": {"b": 1}}', "not a number"),
    (b"[1, 2]", "not a JSON object"),
    (b"{'time': 1}", "not JSON"),
    (b'{"time": ', "not JSON"),
    (b"\xff\xfe{}", "not UTF-8"),
    (b'{"a": "' + b"x" * 2_000_000 + b'"}', "line too long"),
    (b"{" + b",".join(b'"k%d": 1' % i for i in range(30_000)) + b"}", "wrong number of fields"),
]


@pytest.mark.parametrize(("raw", "reason"), BOMBS, ids=lambda x: x if isinstance(x, str) else "bomb")
def test_json_bombs_are_counted_and_do_not_go_off(raw, reason):
    """A number of 900 000 digits is infinite, which is a value; everything else here is no reading."""
    good = json.dumps({"time": T0, "sensor_id": 7, "value": 2.5}).encode() + b"\n"
    chunks = jsonl(good + raw + b"\n" + good)
    expected = [(2, reason)] if reason else []
    assert rejected(chunks) == expected
    assert [r[1:] for r in rows(chunks) if r[2] != math.inf] == [("7", 2.5, 1), ("7", 2.5, 3)]


def test_json_says_what_csv_says():
    """Null, NaN and a missing text are readings without a value; a wide object has a key per sensor."""
    lines = [{"time": T0, "sensor_id": "a", "value": v} for v in (1.5, None, float("nan"), "NA", 3)]
    chunks = jsonl("\n".join(json.dumps(line) for line in lines).encode())
    assert [r[2] for r in rows(chunks)] == [1.5, None, None, None, 3.0]
    wide = jsonl(json.dumps({"time": T0, "a": 1, "b": None, "c": "x"}).encode(), TableFormat(sensor=None))
    assert [r[1:3] for r in rows(wide)] == [("a", 1.0), ("b", None)] and rejected(wide) == [(1, "not a number")]
    numbered = jsonl(b'{"time": 1.5, "sensor_id": "a", "value": 1}', TableFormat(number_ns=10**9))
    assert rows(numbered)[0][0] == 1_500_000_000


class Endless(io.RawIOBase):
    """A stream of one byte that never becomes a line."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        take = min(n, self.left)
        self.left -= take
        return b"a" * take


@pytest.mark.parametrize("carrier", [read_csv, read_jsonl])
def test_a_gigantic_line_takes_no_memory(carrier):
    """200 MB without a line end: at most a few blocks of 1 MB are held (20 MB allowed)."""
    stream = Endless(200_000_000)
    head = io.BytesIO(HEADER)
    if carrier is read_csv:
        stream.readline = lambda n=-1: head.readline()  # type: ignore[method-assign]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    chunks = list(carrier(stream))
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert [item.reason for c in chunks for item in c.rejected] == ["line too long"]
    assert peak < 20_000_000


def test_limits_are_settings():
    format = TableFormat(limits=Limits(name_chars=3, earliest_ns=T0_NS, line_bytes=200))
    body = f"{T0},abcd,1\n2024-01-01T00:00Z,a,1\n{T0},abc,1{'0' * 300}\n{T0},abc,1\n"
    assert [reason for _, reason in rejected(csv(body, format))] == [
        "sensor name not usable",
        "time out of bounds",
        "line too long",
    ]


# -- frames ---------------------------------------------------------------------------------------------------------


def test_a_frame_says_what_its_csv_says():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "time": pd.to_datetime(["2024-01-02T03:04:05Z", "2024-01-02T04:00:00Z", None]),
            "sensor_id": ["a", "b", "c"],
            "value": [1.5, np.nan, 3.0],
        }
    )
    [chunk] = from_frame(frame)
    assert rows([chunk]) == [(T0_NS, "a", 1.5, 1), (T0_NS + 3355 * 10**9, "b", None, 2)]
    assert rejected([chunk]) == [(3, "time not understood")]
    naive = frame.assign(time=frame.time.dt.tz_localize(None))
    assert rejected(from_frame(naive))[:2] == [(1, "time without zone"), (2, "time without zone")]
    berlin = list(from_frame(naive, TableFormat(zone="Europe/Berlin")))
    assert berlin[0].time_ns[0] == T0_NS - 3600 * 10**9


def test_a_wide_frame_with_its_time_as_index():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["3", "x"]}, index=pd.Index([0.0, 0.5], name="time"))
    chunks = list(from_frame(frame, TableFormat(sensor=None, number_ns=10**9), chunk_rows=2))
    assert [r[:3] for r in rows(chunks)] == [(0, "a", 1.0), (0, "b", 3.0), (500_000_000, "a", 2.0)]
    assert rejected(chunks) == [(2, "not a number")]
    assert [c.end for c in chunks] == [Position(1, 1), Position(2, 2)]
    assert rows(from_frame(frame, TableFormat(sensor=None, number_ns=10**9), start=Position(1, 1))) == rows(chunks[1:])


def test_spring_in_a_frame():
    """The same rule as in a file."""
    pd = pytest.importorskip("pandas")
    when = pd.to_datetime(["2024-03-31 01:30", "2024-03-31 02:30", "2024-03-31 03:30"])
    frame = pd.DataFrame({"time": when, "sensor_id": 1, "value": 1.0})
    chunks = list(from_frame(frame, TableFormat(zone="Europe/Berlin")))
    assert rejected(chunks) == [(2, "no such local time")] and [r[1] for r in rows(chunks)] == ["1", "1"]


@pytest.mark.parametrize(
    "columns",
    [
        {"time": [T0, "x", None, 5, True, datetime(2024, 1, 1), datetime(9999, 1, 1, tzinfo=UTC), "1850-01-01T00:00Z"]},
        {"sensor_id": ["a", None, 5, 2.5, "", "\x00", ["b"], "c" * 300]},
        {"value": ["1", "x", None, True, [1], 1e400, "nan", {}]},
        {"time": np.array(["2024-01-01", "NaT"] * 4, dtype="datetime64[D]")},
        {"time": np.array([1e300, np.nan, np.inf, -1.0, 0.0, 1.0, 1e18, -1e18])},
    ],
)
@pytest.mark.parametrize("format", [TableFormat(), TableFormat(zone="UTC"), TableFormat(number_ns=10**9)])
def test_frames_of_anything_are_accounted_for(columns, format):
    frame = {"time": [T0] * 8, "sensor_id": ["a"] * 8, "value": [1.0] * 8, **columns}
    chunks = list(from_frame(frame, format))
    assert len(rows(chunks)) + len(rejected(chunks)) == 8
    assert {reason for _, reason in rejected(chunks)} <= set(REASONS)


def test_a_rejected_cell_of_a_frame_is_shown_under_its_column():
    """As in a file; a time that is no finite number is none, and a whole number among others is a name."""
    columns = {"time": [0.0, np.inf, 0.0, 0.0], "sensor_id": [5, "a", 2.5, "b"], "value": [1.0, 1.0, 1.0, "x"]}
    [chunk] = from_frame(columns, TableFormat(number_ns=10**9))
    assert [tuple(item) for item in chunk.rejected] == [
        (2, "time not understood", "time: inf"),
        (3, "sensor name missing", "sensor_id: 2.5"),
        (4, "not a number", "value: x"),
    ]
    assert rows([chunk]) == [(0, "5", 1.0, 1)]


def test_what_is_no_frame_is_misuse():
    with pytest.raises(ReadingsError, match="DataFrame or a dict"):
        list(from_frame([1, 2]))
    with pytest.raises(ReadingsError, match="different lengths"):
        list(from_frame({"time": [T0], "sensor_id": ["a", "b"], "value": [1.0]}))
    assert issubclass(ReadingsError, RFKalmanError)


def test_plain_numbers_keep_their_nanoseconds():
    """Whole units are counted in integers; a time of ten years in seconds is still exact to its own rounding."""
    rule = TimeRule(TableFormat(number_ns=10**9, origin_ns=T0_NS))
    assert rule.parse("315360000.25") == T0_NS + 315_360_000_250_000_000
    assert rule.parse("1e3") == T0_NS + 10**12
    assert rule.parse("1e30") == "time out of bounds"
    assert rule.parse("nan") == "time not understood"
