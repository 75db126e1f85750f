"""What people bring: every kind of table, through init, check and run, ends where the plain CSV of it ends."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("pint")

from tests.io.workbooks import write_workbook

from rfkalman.cli.app import run
from rfkalman.core.errors import MissingExtraError
from rfkalman.problem import Problem, ProblemError
from rfkalman.problem.templates import noticed, problem_text, to_fill_in

IDS = ("T_1", "T_2", "T_3")
START = datetime(2024, 12, 28, 22, 0)
N = 30


def readings() -> list[tuple[datetime, str, float]]:
    """Ten-minute readings of three depths: binary fractions and others, negative ones, one missing."""
    rng = np.random.default_rng([5, *b"inputs"])
    rows = []
    for k in range(N):
        for j, name in enumerate(IDS):
            value = round(8.0 * float(np.exp(-j) * np.sin(k / 9.0 - j)) + 0.1 * float(rng.standard_normal()), 2)
            rows.append((START + timedelta(hours=3 * k), name, float("nan") if (k, j) == (4, 1) else value))
    return rows


ROWS = readings()
SENSORS = [("id", "depth_m", "noise_std_degC"), ("T_1", 0.05, 0.1), ("T_2", 0.2, 0.1), ("T_3", 0.5, 0.15)]


def number(x: float, mark: str = ".", none: str = "") -> str:
    return none if np.isnan(x) else f"{x:.2f}".replace(".", mark)


def lines(path: Path, texts: list[str], *, end: str = "\n", encoding: str = "utf-8") -> Path:
    path.write_bytes((end.join(texts) + end).encode(encoding))
    return path


def long(path: Path, stamp: Callable[[datetime], str], mark: str = ".", cut: str = ",", none: str = "", **how) -> Path:
    head = cut.join(["time", "sensor_id", "temperature_degC"])
    return lines(path, [head, *(cut.join([stamp(t), n, number(x, mark, none)]) for t, n, x in ROWS)], **how)


def iso(t: datetime) -> str:
    return t.isoformat()


def plain(folder: Path) -> Path:
    return long(folder / "readings.csv", iso)


def wide_rows() -> list[tuple[datetime, list[float]]]:
    return [(ROWS[3 * k][0], [ROWS[3 * k + j][2] for j in range(3)]) for k in range(N)]


def decimal_comma(folder: Path) -> Path:
    return long(folder / "readings.csv", iso, ",", ";", none="--")


def decimal_comma_quoted(folder: Path) -> Path:
    head = '"time","sensor_id","temperature_degC"'
    return lines(folder / "readings.csv", [head, *(f'"{iso(t)}","{n}","{number(x, ",", "n/a")}"' for t, n, x in ROWS)])


def day_first(folder: Path) -> Path:
    return long(folder / "readings.csv", lambda t: f"{t:%d.%m.%Y %H:%M}", ",", ";")


def month_first(folder: Path) -> Path:
    return long(folder / "readings.csv", lambda t: f"{t.month}/{t.day}/{t:%Y %I:%M} {t:%p}")


def year_first(folder: Path) -> Path:
    return long(folder / "readings.csv", lambda t: f"{t:%Y/%m/%d %H:%M:%S}", cut="\t")


def windows(folder: Path) -> Path:
    """As a logger program of Windows exports: cp1252, CRLF, separators at the ends, lines about the device above."""
    texts = ["Gerät: Bodenfühler;;;", "# Standort: Süd", "", "Datum/Uhrzeit;Messstelle;Temperatur [°C];"]
    texts += [f"{t:%d.%m.%Y %H:%M:%S};{n};{number(x, ',', '---')};" for t, n, x in ROWS]
    return lines(folder / "readings.csv", texts, end="\r\n", encoding="cp1252")


def with_units_row(folder: Path) -> Path:
    texts = ["time,sensor_id,value", "yyyy-mm-dd,-,degC", *(f'"{iso(t)}",{n},"{number(x)}"' for t, n, x in ROWS)]
    return lines(folder / "readings.csv", texts, end="\r\n", encoding="utf-8-sig")


def toa5(folder: Path) -> Path:
    texts = [
        '"TOA5","soil","CR1000","1234","CR1000.Std.32","CPU:soil.CR1","4711","Table1"',
        '"TIMESTAMP","RECORD","T_1_Avg","T_2_Avg","T_3_Avg"',
        '"TS","RN","Deg C","Deg C","Deg C"',
        '"","","Avg","Avg","Avg"',
    ]
    for k, (t, row) in enumerate(wide_rows()):
        texts.append(f'"{t:%Y-%m-%d %H:%M:%S}",{k},' + ",".join(number(x, none='"NAN"') for x in row))
    return lines(folder / "readings.dat", texts, end="\r\n")


def jsonl(folder: Path) -> Path:
    def line(t: datetime, name: str, x: float) -> str:
        value = None if np.isnan(x) else x
        return json.dumps({"time": iso(t), "meta": {"rssi": -71}, "sensor_id": name, "temperature_degC": value})

    texts = [line(*row) for row in ROWS]
    return lines(folder / "readings.jsonl", texts)


def epoch(factor: int) -> Callable[[Path], Path]:
    return lambda folder: long(
        folder / "readings.csv", lambda t: str(round(t.replace(tzinfo=UTC).timestamp()) * factor)
    )


def xlsx(folder: Path) -> Path:
    rows = [["time", "sensor_id", "temperature_degC"], *([t, n, None if np.isnan(x) else x] for t, n, x in ROWS)]
    return write_workbook(folder / "readings.xlsx", {"About": [["made by hand"]], "Data": rows})


def xlsx_wide(folder: Path) -> Path:
    """The names in row 3, the values stored results of formulas, one never computed."""
    rows: list[list] = [["Soil"], [], ["time", *(f"{n} (degC)" for n in IDS)]]
    rows += [[t, *(None if np.isnan(x) else ("A1*2", x) for x in row)] for t, row in wide_rows()]
    return write_workbook(folder / "readings.xlsx", {"Data": rows}, date_style=3)


KINDS: dict[str, Callable[[Path], Path]] = {
    "decimal comma": decimal_comma,
    "quoted decimal comma": decimal_comma_quoted,
    "day first": day_first,
    "month first": month_first,
    "year first": year_first,
    "windows": windows,
    "units row": with_units_row,
    "TOA5": toa5,
    "JSON lines": jsonl,
    "epoch s": epoch(1),
    "epoch ms": epoch(1000),
    "epoch ns": epoch(10**9),
    "xlsx": xlsx,
    "xlsx wide": xlsx_wide,
}


def sensors(folder: Path) -> Path:
    return lines(folder / "sensors.csv", [",".join(map(str, row)) for row in SENSORS])


def answered(text: str, answers: dict[str, str], scale: float = 0.3) -> str:
    for key, value in answers.items():
        text = re.sub(rf'^({key} = .*?)"\?"', rf'\g<1>"{value}"', text, flags=re.MULTILINE)
    assert to_fill_in(text) == ()
    # Another basis than the default one, only because it is built in no time.
    return text + f"\n[features]\ncount = 60\nlength_scale = {scale}\n"


def through(
    folder: Path, table: Path, where: Path | None = None, capsys=None, scale: float = 0.3
) -> tuple[dict, dict[str, np.ndarray]]:
    """init, fill in what is asked for, check, run: the tables of the problem file, and the posterior."""
    assert run(["init", str(where or sensors(folder)), "--readings", str(table), "--out", str(folder / "p.toml")]) == 0
    asked = {"diffusion": "0.5 mm2/s", "zone": "UTC", "unit": "degC"}
    text = answered((folder / "p.toml").read_text(encoding="utf-8"), asked, scale)
    (folder / "p.toml").write_text(text, encoding="utf-8")
    if capsys is not None:
        capsys.readouterr()
    assert run(["check", str(folder / "p.toml"), "--json"]) == 0
    if capsys is not None:
        data = json.loads(capsys.readouterr().out)["data"]
        assert (data["readings"], data["missing"], data["usable"], data["rejected"]) == (3 * N, 1, 3 * N - 1, {})
        assert data["unknown_sensor"] == 0 and data["silent"] == []
    assert run(["run", str(folder / "p.toml"), "--no-report"]) == 0
    with np.load(folder / "out" / "posterior.npz") as archive:
        return tomllib.loads(text), {name: archive[name] for name in archive.files if archive[name].dtype.kind == "f"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("plain")
    return through(folder, plain(folder))[1]


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_table_ends_with_the_posterior_of_the_plain_one(kind, tmp_path, expected, capsys):
    """The readings are the same numbers at the same instants, so nothing may differ: not in the last bit."""
    stated, found = through(tmp_path, KINDS[kind](tmp_path), capsys=capsys)
    assert found.keys() == expected.keys() and len(found) > 3
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert stated["time"]["start"][:16].replace(" ", "T") == "2024-12-28T22:00"


def test_what_was_found_stands_in_the_file(tmp_path):
    """Nothing is guessed when readings are taken in: each peculiarity of a table is a key."""
    wanted = {
        "decimal comma": {"decimal": ",", "delimiter": ";"},
        "day first": {"dates": "day first", "decimal": ","},
        "month first": {"dates": "month first"},
        "year first": {"dates": "year first", "delimiter": "\t"},
        "windows": {"encoding": "cp1252", "names_line": 4, "value": "Temperatur [°C]", "dates": "day first"},
        "units row": {"data_line": 3},
        "TOA5": {
            "names_line": 2,
            "data_line": 5,
            "layout": "wide",
            "time": "TIMESTAMP",
            "columns": {f"{name}_Avg": name for name in IDS},
        },
        "JSON lines": {"format": "jsonl"},
        "epoch s": {"time_unit": "s", "time_since": "1970-01-01T00:00:00Z"},
        "epoch ms": {"time_unit": "ms", "time_since": "1970-01-01T00:00:00Z"},
        "xlsx": {"sheet": "Data"},
        "xlsx wide": {"names_line": 3, "columns": {f"{name} (degC)": name for name in IDS}},
    }
    where = sensors(tmp_path)
    for kind, keys in wanted.items():
        stated = tomllib.loads(problem_text(where, KINDS[kind](tmp_path)))["input"]
        assert {key: stated.get(key) for key in keys} == keys, kind
        if kind != "JSON lines" and "epoch" not in kind:
            assert "time_unit" not in stated, kind
    plainly = tomllib.loads(problem_text(where, plain(tmp_path)))["input"]
    assert plainly.keys() == {"files", "time", "sensor", "value", "range"}
    for kind in ("windows", "TOA5", "units row", "xlsx wide"):
        assert tomllib.loads(problem_text(where, KINDS[kind](tmp_path)))["field"]["unit"] == "degC", kind


def test_latitude_and_longitude_are_projected_with_the_origin_in_the_file(tmp_path, capsys):
    """The same sensors in kilometres east and north of the stated origin: the same posterior, bit for bit."""
    from rfkalman.problem.places import local_plane

    lat, lon = np.array([48.1, 48.16, 48.13]), np.array([11.5, 11.55, 11.65])
    rows = [f"{n};{a:.2f};{b:.2f};{e}" for n, a, b, e in zip(IDS, lat, lon, (500, 510, 520), strict=True)]
    text = ["station;Latitude;Longitude;elevation_m", *(row.replace(".", ",") for row in rows)]
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    stated, found = through(one, plain(one), lines(one / "sensors.csv", text), capsys, 8.0)
    origin = stated["sensors"]["origin"]
    assert origin == [48.13, 11.575] and stated["domain"]["unit"] == "km" and stated["sensors"]["decimal"] == ","
    assert any("elevation_m" in remark for remark in noticed((one / "p.toml").read_text()))
    flat = local_plane(lat, lon, tuple(origin)) * 0.001
    text = ["station,x_km,y_km", *(f"{n},{x!r},{y!r}" for n, (x, y) in zip(IDS, flat.tolist(), strict=True))]
    _, expected = through(two, plain(two), lines(two / "sensors.csv", text), capsys, 8.0)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_sensors_and_readings_may_share_a_workbook(tmp_path, expected, capsys):
    rows = [["time", "sensor_id", "temperature_degC"], *([t, n, None if np.isnan(x) else x] for t, n, x in ROWS)]
    book = write_workbook(tmp_path / "all.xlsx", {"Readings": rows, "Sensors": [list(row) for row in SENSORS]})
    stated, found = through(tmp_path, book, book, capsys)
    assert stated["sensors"]["sheet"] == "Sensors" and stated["input"]["sheet"] == "Readings"
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


# -- what cannot be read is named -----------------------------------------------------------------------------------


def spoilt(path: Path, line: int, old: str, new: str) -> Path:
    texts = path.read_bytes().split(b"\n")
    assert old.encode() in texts[line - 1], texts[line - 1]
    texts[line - 1] = texts[line - 1].replace(old.encode(), new.encode())
    path.write_bytes(b"\n".join(texts))
    return path


@pytest.mark.parametrize(
    ("kind", "line", "old", "new", "said"),
    [
        (
            "decimal comma",
            7,
            "T_3;-",
            "T_3;-1.23",
            r"line 7, column 'temperature_degC': '-1\.23\d,\d\d' separates thousands",
        ),
        (
            "day first",
            4,
            "28.12.2024",
            "12.28.2024",
            r"line 2, column 'time': '28.12.2024 22:00' has the day first, line 4, .* the month",
        ),
        ("JSON lines", 3, "{", "[", r"line 3 is not JSON"),
    ],
)
def test_init_names_the_cell_that_it_cannot_read(kind, line, old, new, said, tmp_path):
    with pytest.raises(ProblemError, match=said):
        problem_text(sensors(tmp_path), spoilt(KINDS[kind](tmp_path), line, old, new))


def test_a_cell_that_is_no_number_is_noticed_and_named_by_the_run(tmp_path, capsys):
    """init remarks on one broken cell; the run sets it aside with line, column and text, and goes on."""
    from rfkalman.runs.session import run as run_problem

    table = spoilt(day_first(tmp_path), 5, ",", ",5*")
    text = problem_text(sensors(tmp_path), table)
    assert [r for r in noticed(text) if "line 5, column 'temperature_degC'" in r and "*" in r]
    problem = Problem.from_text(answered(text, {"diffusion": "0.5 mm2/s", "zone": "UTC"}), folder=tmp_path)
    said = str(problem.check([table]))
    assert "readings.csv, line 5: not a number ('temperature_degC: " in said
    with run_problem(problem.build()) as done:
        assert done.counts["used"] == 3 * N - 2 and sum(done.counts.values()) >= 3 * N
    [item] = [r for chunk in _chunks(problem) for r in chunk.rejected]
    assert item.line == 5 and item.excerpt.startswith("temperature_degC: ") and item.reason == "not a number"


def _chunks(problem: Problem):
    from rfkalman.io.readings import read_csv

    return list(read_csv(problem.path(problem.input.files[0]), problem.build().input))


def test_days_up_to_twelve_are_asked_for(tmp_path):
    """03.04. may be the third of April or the fourth of March: nobody but the user knows."""

    def stamp(t: datetime) -> str:
        return f"{1 + (t - START).days:02d}/04/2024 {t:%H:%M}"

    text = problem_text(sensors(tmp_path), long(tmp_path / "readings.csv", stamp))
    stated = tomllib.loads(text)
    assert stated["input"]["dates"] == "?" and stated["time"]["start"] == "?"
    asked = [text.splitlines()[i - 1] for i in to_fill_in(text)]
    assert any("01/04/2024" in line and "month first" in line for line in asked)
    with pytest.raises(ProblemError, match=r"input\.dates: is still to be filled in .*day first"):
        Problem.from_text(text)


def test_an_offset_of_a_workbook_is_refused_where_it_was_never_computed(tmp_path):
    rows: list[list] = [["time", "sensor_id", "temperature_degC"], *([t, n, 0.5] for t, n, _ in ROWS)]
    rows[4][2] = ("B2*2", None)
    table = write_workbook(tmp_path / "readings.xlsx", {"Data": rows})
    text = problem_text(sensors(tmp_path), table)
    assert any("line 5, column 'temperature_degC': '=B2*2'" in r for r in noticed(text))
    problem = Problem.from_text(answered(text, {"diffusion": "0.5 mm2/s", "zone": "UTC"}), folder=tmp_path)
    [chunk] = _chunks(problem)
    assert len(chunk) == 3 * N - 1
    assert (chunk.rejected[0].line, chunk.rejected[0].excerpt) == (5, "temperature_degC: =B2*2")


def test_commas_that_both_cut_and_point_are_refused(tmp_path):
    table = long(tmp_path / "readings.csv", iso, ",", ",")
    with pytest.raises(ProblemError, match=r"line 2 has 4 cells under 3 names.*comma both"):
        problem_text(sensors(tmp_path), table)


def test_day_and_time_in_two_columns_are_refused_with_the_remedy(tmp_path):
    texts = ["date,clock,sensor_id,value", *(f"{t:%d.%m.%Y},{t:%H:%M},{n},{number(x)}" for t, n, x in ROWS)]
    with pytest.raises(ProblemError, match=r"'28.12.2024' is a day and 'clock' the time of day; join"):
        problem_text(sensors(tmp_path), lines(tmp_path / "readings.csv", texts))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.xlsx", b"PK\x03\x04nonsense", "not an .xlsx workbook"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0rest", "password"),
        ("a.xls", b"\xd0\xcf\x11\xe0rest", "save the sheet as .xlsx or as CSV"),
        ("a.ods", b"PK", "save the sheet as .xlsx or as CSV"),
        ("a.csv", "time,a\n".encode("utf-16"), "UTF-16"),
        ("a.json", b'[{"time": 1}]', "one JSON array"),
        ("a.jsonl", b"1\n", "line 1 is not a JSON object"),
        ("a.csv", b"\n", "holds no table"),
    ],
)
def test_files_of_other_kinds_are_refused_by_what_they_are(name, data, said, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ProblemError, match=said):
        problem_text(sensors(tmp_path), tmp_path / name)


def test_a_workbook_that_tries_to_do_harm_is_refused(tmp_path):
    """Entities that multiply, rows that never come, parts that are not there: a sentence, at once."""
    book = write_workbook(tmp_path / "a.xlsx", {"S": [["time", "b"], [1.0, 2.0]]})
    with zipfile.ZipFile(book) as old:
        parts = {item: old.read(item).decode() for item in old.namelist()}
    ten = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
    sheet = parts["xl/worksheets/s1.xml"]
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "0123456789">{ten}]><worksheet>&a9;</worksheet>'
    for part, text, said in (
        ("xl/worksheets/s1.xml", bomb, "not XML"),
        ("xl/worksheets/s1.xml", sheet.replace('r="2"', 'r="99999999999"'), "row beyond 1048576"),
        ("xl/worksheets/s1.xml", "<worksheet><row>", "not XML"),
        ("xl/_rels/workbook.xml.rels", "<Relationships/>", "cannot be read"),
        ("xl/workbook.xml", "<workbook/>", "damaged|no sheet"),
    ):
        with zipfile.ZipFile(tmp_path / "evil.xlsx", "w", zipfile.ZIP_DEFLATED) as new:
            for item, old_text in parts.items():
                new.writestr(item, text if item == part else old_text)
        with pytest.raises(ProblemError, match=said):
            problem_text(sensors(tmp_path), tmp_path / "evil.xlsx")


def test_a_workbook_too_large_to_unpack_is_refused_unread(tmp_path):
    """The sizes stand in the archive's list, so that nothing is unpacked to learn them."""
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as book:
        for k in range(21):
            book.writestr(f"xl/media/{k}.bin", bytes(100))
        for info in book.infolist():
            info.file_size = 100_000_000  # as the list at the end of the archive states it
    with pytest.raises(ProblemError, match="2100000000 bytes unpacked; save the sheet as CSV"):
        problem_text(sensors(tmp_path), tmp_path / "a.xlsx")


def test_a_workbook_with_damaged_bytes_ends_in_a_sentence_or_in_its_own_cells(tmp_path):
    """Whatever stands in the file, no error and no warning of another package comes through."""
    from rfkalman.core.errors import ReadingsError
    from rfkalman.io.texts import cut_lines

    rows: list[list] = [["time", "b"], [START, 2.0], [START, ("A1", None)]]
    whole = write_workbook(tmp_path / "a.xlsx", {"S": rows}).read_bytes()
    rng, refused = np.random.default_rng(0), 0
    with zipfile.ZipFile(tmp_path / "a.xlsx") as old:
        parts = {item: old.read(item) for item in old.namelist()}
    for k in range(200):
        if k % 2:  # the archive itself
            data = bytearray(whole)
            data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
            (tmp_path / "b.xlsx").write_bytes(data)
        else:  # a part of it, well packed
            hit = list(parts)[rng.integers(len(parts))]
            data = bytearray(parts[hit])
            data[rng.integers(len(data))] = int(rng.integers(32, 127))
            with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as new:
                for item, text in parts.items():
                    new.writestr(item, bytes(data) if item == hit else text)
        try:
            list(cut_lines(tmp_path / "b.xlsx"))
        except ReadingsError:
            refused += 1
    assert 20 < refused < 200


def test_a_workbook_without_its_package_names_the_extra(tmp_path, monkeypatch):
    from rfkalman.io.texts import sheet_names

    book = write_workbook(tmp_path / "a.xlsx", {"S": [["time"]]})
    assert sheet_names(book) == ("S",)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"openpyxl; install it with: pip install 'rfkalman\[app\]'"):
        sheet_names(book)


# -- no limit is guessed ----------------------------------------------------------------------------------------------


def test_a_rise_beyond_a_calm_sample_is_never_set_aside(tmp_path):
    """The file is written from 22.9 to 23.1 degC; then 33 degC come. No limit may stand between them and the map."""
    calm = [
        f"{iso(START + timedelta(minutes=10 * k))},{n},{23 + 0.1 * ((k + j) % 3 - 1):.1f}"
        for k in range(20)
        for j, n in enumerate(IDS)
    ]
    table = lines(tmp_path / "readings.csv", ["time,sensor_id,temperature_degC", *calm])
    problem = Problem.from_text(
        answered(problem_text(sensors(tmp_path), table), {"diffusion": "0.5 mm2/s", "zone": "UTC"})
    )
    low, high = problem.converted.input.range
    assert (low, high) == (-273.15, np.inf)
    for unit, zero in (("degF", -459.67), ("K", 0.0)):
        lines(tmp_path / "readings.csv", [f"time,sensor_id,temperature_{unit}", *calm])
        assert tomllib.loads(problem_text(sensors(tmp_path), table))["input"]["range"] == [zero, float("inf")]
    # Differences in K may be negative; heads, humidities and concentrations have no limit that noise does not cross.
    lines(tmp_path / "readings.csv", ["time,sensor_id,anomaly_K", *(c.replace("23.", "-3.") for c in calm)])
    assert "range" not in tomllib.loads(problem_text(sensors(tmp_path), table))["input"]
    for unit in ("m", "percent", "ug_l"):
        lines(tmp_path / "readings.csv", [f"time,sensor_id,value_{unit}", *calm])
        assert "range" not in tomllib.loads(problem_text(sensors(tmp_path), table))["input"]


def test_codes_of_unwell_instruments_are_marks_only_where_they_stand_alone(tmp_path):
    """85 among readings near 8 is the power-on value of a probe; among readings of an oven it is a temperature."""
    rng = np.random.default_rng([3, *b"codes"])

    def missing(middle: float, extra: list[str]) -> list[str]:
        cold = [f"{middle + 3 * rng.standard_normal():.2f}" for _ in range(60)] + extra
        texts = [f"{iso(START + timedelta(minutes=k))},{IDS[k % 3]},{x}" for k, x in enumerate(cold)]
        table = lines(tmp_path / "readings.csv", ["time,sensor_id,temperature_degC", *texts])
        return tomllib.loads(problem_text(sensors(tmp_path), table))["input"].get("missing", [])

    found = missing(8.0, ["85.0", "-127.00", "999.9", "33.0", "33.0", "99", "9.99"])
    assert set(found) - {"", "NaN", "nan", "NA", "null"} == {"85.0", "-127.00", "999.9"}
    assert "85.0" not in missing(80.0, ["85.0"])


def test_reorder_is_that_of_the_history(tmp_path):
    """Devices that send 0 to 120 s late in order of arrival: all of them fit; sorted tables say nothing of lateness."""
    rng = np.random.default_rng([7, *b"jitter"])
    sent = [(10.0 * k, f"n{j}") for k in range(84) for j in range(24)]
    arrived = sorted((t + rng.uniform(0.0, 120.0), t, n) for t, n in sent)
    where = lines(tmp_path / "sensors.csv", ["id,x_m,y_m", *(f"n{j},{j % 5},{j // 5}" for j in range(24))])

    def stated(rows) -> dict:
        texts = [f"{iso(START + timedelta(seconds=t))}Z,{n},{20 + t / 1e4:.2f}" for _, t, n in rows]
        table = lines(tmp_path / "readings.csv", ["time,sensor_id,temperature_degC", *texts])
        return tomllib.loads(problem_text(where, table))["time"]

    worst, newest = 0.0, 0.0
    for _, t, _ in arrived:
        newest = max(newest, t)
        worst = max(worst, newest - t)
    unit = {"s": 1.0, "min": 60.0}[stated(arrived)["unit"]]
    assert worst > 60.0
    assert worst <= unit * stated(arrived)["reorder"] <= 2.0 * worst + 6.0
    # One clock that is five hours ahead makes nothing late.
    ahead = [(a, t + 18_000.0 * (i == 700), n) for i, (a, t, n) in enumerate(arrived)]
    assert unit * stated(ahead)["reorder"] <= 2.0 * worst + 6.0
    assert "reorder" not in stated(sorted(arrived, key=lambda row: row[1]))
    assert "reorder" not in stated(sorted(arrived, key=lambda row: row[2]))


# -- names that do not fit --------------------------------------------------------------------------------------------


def test_init_notices_names_that_do_not_fit(tmp_path, capsys):
    """Twice listed, never heard of, never heard: said on the terminal, in the file and in --json."""
    table = plain(tmp_path)
    table.write_text(table.read_text().replace("T_3", "T_9"))
    where = lines(tmp_path / "s.csv", ["id,depth_m", "T_1,0.1", "T_2,0.2", "T_3,0.3", "T_1,0.4"])
    assert run(["init", str(where), "--readings", str(table), "--out", str(tmp_path / "p.toml"), "--json"]) == 0
    said = " ".join(json.loads(capsys.readouterr().out)["noticed"])
    assert "'T_1' is listed 2 times (lines 2, 5)" in said
    assert f"{N} readings are of sensors that the table of sensors does not have: 'T_9'" in said
    assert "1 sensors have no reading among the first 90 lines: 'T_3'" in said


def test_excluded_sensors_are_not_unknown(tmp_path):
    """Who leaves a sensor out knows it; its readings are passed over in check and run alike."""
    text = answered(problem_text(sensors(tmp_path), plain(tmp_path)), {"diffusion": "0.5 mm2/s", "zone": "UTC"})
    text = text.replace("[sensors]", '[sensors]\nexclude = ["T_2"]')
    problem = Problem.from_text(text, folder=tmp_path)
    report = problem.check([tmp_path / "readings.csv"])
    assert report.data is not None and report.data.unknown_sensor == 0 and report.data.unknown_names == []
    with problem.run() as done:
        assert done.counts.get("unknown sensor", 0) == 0 and done.counts["used"] == 2 * N


def test_workbooks_of_another_writer_are_read_cell_by_cell(tmp_path):
    """Every kind of cell as openpyxl writes it; a cell is read as the same text wherever it stands."""
    import openpyxl
    from openpyxl.worksheet.formula import ArrayFormula

    from rfkalman.core.errors import ReadingsError
    from rfkalman.io.texts import cut_lines, sheet_names

    book = openpyxl.Workbook()
    book.create_chartsheet("Chart", 0).add_chart(openpyxl.chart.LineChart())
    sheet = book.worksheets[0]
    for row in (
        ["time", "id", "x"],
        [START, "Süd & <Nord>", -1.25],
        [START + timedelta(milliseconds=7040), 12, 1e-7],
        [START.time(), 12.0, True],
        [timedelta(hours=30), 1712345678901, float("nan")],
        ["#DIV/0!", None, 0.1],
    ):
        sheet.append(row)
    sheet["C8"], sheet["D8"] = "=1+1", ArrayFormula("D8:D9", "=A1:A2*2")
    sheet["B9"].number_format = "0.0"
    book.save(tmp_path / "a.xlsx")
    assert sheet_names(tmp_path / "a.xlsx") == (sheet.title,)
    assert list(cut_lines(tmp_path / "a.xlsx", decimal=",")) == [
        (1, ["time", "id", "x"]),
        (2, ["2024-12-28T22:00:00", "Süd & <Nord>", "-1,25"]),
        (3, ["2024-12-28T22:00:07.040", "12", "1e-07"]),
        (4, ["22:00:00", "12", "TRUE"]),
        (5, ["1 day, 6:00:00", "1712345678901"]),
        (6, ["#DIV/0!", "", "0,1"]),
        (8, ["", "", "=1+1", "=A1:A2*2"]),
    ]
    with pytest.raises(ReadingsError, match=f"no sheet 'Other'; it has: {sheet.title}"):
        list(cut_lines(tmp_path / "a.xlsx", sheet="Other"))


def test_a_workbook_is_cut_anywhere_and_gone_on_with_but_never_followed(tmp_path):
    """Small chunks cover it without gap or overlap; reading goes on after any of them; a growing one is refused."""
    from rfkalman.core.errors import ReadingsError
    from rfkalman.io.readings import read_csv
    from rfkalman.io.tables import Position
    from rfkalman.job.plan import TableFormat

    layout = TableFormat(value="temperature_degC", zone="UTC", sheet="Data")
    table = xlsx(tmp_path)
    [whole] = read_csv(table, layout)
    parts = list(read_csv(table, layout, chunk_rows=7))
    assert len(parts) > 10 and parts[0].start == Position() and parts[-1].end == whole.end
    assert whole.end.offset == table.stat().st_size
    for before, after in pairwise(parts):
        assert before.end == after.start and before.end.offset <= after.end.offset
    np.testing.assert_array_equal(np.concatenate([c.value for c in parts]), whole.value)
    rest = list(read_csv(table, layout, start=parts[4].end))
    np.testing.assert_array_equal(np.concatenate([c.value for c in parts[:5] + rest]), whole.value)
    assert list(read_csv(table, layout, start=whole.end)) == []
    with pytest.raises(ReadingsError, match="written whole and cannot be followed"):
        list(read_csv(table, layout, final=False))
