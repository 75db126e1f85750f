"""The report: one file that says what the run says, whoever named the sensors, whatever is missing."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtri
from tests.report.small_runs import WRITTEN_NS, Page, block, column, finished, hours, plate, seconds, whole

from rfkalman.certificates.findings import Finding
from rfkalman.certificates.words import Overview
from rfkalman.core.errors import ReportError, ValueRangeError
from rfkalman.domains import Box
from rfkalman.pictures.strokes import encode, grid_of
from rfkalman.problem import Problem, Setup
from rfkalman.problem.validate import validate_run
from rfkalman.report import contents as data
from rfkalman.report import words as say
from rfkalman.report.figures import date_ticks, drawn_of, gaps, numbers_beside
from rfkalman.report.page import SECTIONS, render, write_report
from rfkalman.runs import RunRecord
from rfkalman.runs.record import Strip

pytest.importorskip("matplotlib")

SMALL = {"command": "rfkalman report problem.toml", "max_frames": 3, "max_strips": 2, "written_ns": WRITTEN_NS}
#: The same without slider and with a single strip, where neither matters.
TINY = {**SMALL, "max_frames": 1, "max_strips": 1}
HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><b>$x^2$"
#: Readings with everything that can happen to them, after the clean ones of 26 hours.
FAULTS = [
    "2024-03-31T15:00Z,A,",
    "2024-03-31T15:00Z,B,999",
    "2024-03-31T15:00Z,C,45",
    "2024-03-31T14:00Z,C,1",
    "2024-03-31T03:00Z,A,10",
    "2024-03-31T15:00Z,nobody,10",
    "2024-03-31T15:00Z,A",
    "<script>,x,y",
]


@pytest.fixture(scope="module")
def soil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunRecord, Setup]]:
    lines = hours(26, "ABC") + FAULTS
    with finished(tmp_path_factory.mktemp("soil"), column(), lines, command="rfkalman run problem.toml") as run:
        yield run


@pytest.fixture(scope="module")
def soil_page(soil: tuple[RunRecord, Setup], tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(write_report(*soil, tmp_path_factory.mktemp("page") / "report.html", **SMALL))


# -- the file ---------------------------------------------------------------------------------------------------------


def test_contents_point_to_sections_that_exist(soil_page: Page) -> None:
    """The reader refuses a page that is not well formed; here, that its links lead somewhere."""
    anchors = [ref[1:] for ref in soil_page.references if ref.startswith("#")]
    assert {"field", "time", "sensors", "unknowns", "data", "assumed", "again"} <= set(anchors) <= set(soil_page.ids)


def test_nothing_is_fetched_from_anywhere(soil_page: Page) -> None:
    """Every address is a picture inside the file or a place in it; style and script name no address either."""
    assert len(soil_page.references) > 10
    for reference in soil_page.references:
        assert reference.startswith(("#", "data:image/png;base64,")), reference[:80]
    for code in soil_page.code.values():
        assert not re.search(r"url\(|@import|https?:|//[a-z]|fetch|XMLHttp|WebSocket|sendBeacon|import\(", code)


def test_the_policy_allows_exactly_the_style_and_script_of_the_page(soil_page: Page) -> None:
    """Digests as a browser computes them; no attribute needs an exception."""
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(soil_page.code[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in soil_page.policy
    assert "default-src 'none'" in soil_page.policy and "unsafe" not in soil_page.policy
    assert not [name for _, name in soil_page.attributes if name == "style" or name.startswith("on")]


def test_every_picture_is_a_png_with_a_size_and_words(soil_page: Page) -> None:
    """The two holders of the slider are empty until the script fills them."""
    shown = [image for image in soil_page.images if "src" in image]
    assert len(soil_page.images) - len(shown) == 1 and len(shown) >= 8
    for image in shown:
        assert len(image["alt"]) > 15 and int(image["width"]) > 100 and int(image["height"]) > 20
        png = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
        assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND\xaeB`\x82")


def test_the_same_run_gives_the_same_file(soil: tuple[RunRecord, Setup], tmp_path: Path) -> None:
    told: list[str] = []
    first = write_report(*soil, tmp_path / "a" / "one.html", **TINY)
    second = write_report(*soil, tmp_path / "two.html", **TINY, progress=told.append)
    assert first == tmp_path / "a" / "one.html"
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "two.html"}
    assert told[:2] == ["May it be believed?", "The field at the last time"] and len(told) == SECTIONS == 11


def test_a_report_that_cannot_be_written_leaves_the_old_one(soil: tuple[RunRecord, Setup], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ReportError, match=r"cannot be written to .*file"):
        write_report(*soil, tmp_path / "file" / "report.html", **SMALL)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(ReportError, match="cannot be written"):
        write_report(*soil, tmp_path / "report.html", **SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "report.html"]


@pytest.mark.parametrize("wrong", [{"max_frames": 0}, {"max_strips": -1}])
def test_limits_must_be_positive(soil: tuple[RunRecord, Setup], tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueRangeError, match=next(iter(wrong))):
        write_report(*soil, tmp_path / "report.html", **{**SMALL, **wrong})


# -- what others wrote ------------------------------------------------------------------------------------------------


def test_names_of_others_stay_text(tmp_path: Path) -> None:
    """Sensor, title, field, axis, source, command, excerpt: each may hold markup and must be shown as it is."""
    problem = column(
        title=HOSTILE,
        field={"name": HOSTILE},
        domain={"axes": [HOSTILE]},
        sensors={"table": [{"id": HOSTILE, "at": 0.2, "offset": 0.3}, {"id": "\u202eevil\u0007\n温度", "at": 0.6}]},
    )
    lines = [*hours(4, [HOSTILE]), f"{HOSTILE},x,y", "2024-03-30T18:00Z,<b>,1"]
    with finished(tmp_path, problem, lines, source=f"{HOSTILE}.csv", command=HOSTILE) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **{**SMALL, "command": HOSTILE + "2"}))
    assert page.title == HOSTILE and page.headings[0] == HOSTILE
    assert page.text.count(HOSTILE) > 8
    assert page.source.count("<script") == 1 and "onerror" not in {name for _, name in page.attributes}
    assert all(image.get("src", "data:").startswith("data:") for image in page.images)
    assert not re.search("[\u202e\u0007]", page.source) and "温度" in page.text
    assert page.column("Sources", "source")[0] == f"{HOSTILE}.csv"


def test_a_dollar_is_no_formula_and_a_line_stays_one_line() -> None:
    assert say.for_figure("a$b$\nc") == r"a\$b\$ c"
    assert len(say.for_figure("x" * 500)) == 60


def test_text_that_cannot_be_encoded_is_replaced() -> None:
    """File names may hold bytes that are no text; a page must still be UTF-8."""
    assert say.clean("a\udcffb\x00").encode("utf-8").decode() == "a\ufffdb\ufffd"


# -- accounting -------------------------------------------------------------------------------------------------------


def test_the_rows_of_the_accounting_add_up_to_what_arrived(soil: tuple[RunRecord, Setup], soil_page: Page) -> None:
    """By status and by source, against the counter that the store keeps by itself."""
    record, _ = soil
    *counts, together = [whole(cell) for cell in soil_page.column("What became of readings", "readings")]
    assert sum(counts) == together == record.arrived == 26 * 3 + len(FAULTS)
    head, *rows = soil_page.tables["Sources"]
    assert sum(whole(row[1]) + whole(row[2]) for row in rows[:-1]) == record.arrived
    assert head[1:3] == ["readings", "lines that are no readings"]
    found = {row[0]: (whole(row[1]), row[3]) for row in soil_page.tables["What became of readings"][1:-1]}
    counts = {name: n for name, n in record.counts.items() if n}
    assert {name: n for name, (n, _) in found.items()} == counts
    every = {"used", "missing", "out of range", "late", "gated", "duplicate", "unknown sensor", "malformed"}
    assert set(counts) == every
    for status, reasons in record.reasons.items():
        for reason, n in reasons.items():
            assert f"{reason}: {n}" in found[status][1]


class _Altered:
    """A record with some answers replaced."""

    def __init__(self, record: RunRecord, **answers: Any) -> None:
        self._record, self._answers = record, answers

    def __getattr__(self, name: str) -> Any:
        return self._answers[name] if name in self._answers else getattr(self._record, name)


def test_rows_that_do_not_add_up_are_pointed_out(soil: tuple[RunRecord, Setup], tmp_path: Path) -> None:
    """Control of the sentence above: a store that lost a reading must not read like one that did not."""
    record, setup = soil
    altered = _Altered(record, arrived=record.arrived + 1)
    page = Page(write_report(altered, setup, tmp_path / "report.html", **TINY))
    assert f"give {record.arrived} but {record.arrived + 1} arrived" in page.text
    assert "each of them is in exactly one row" not in page.text


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_head_says_what_where_when_and_how_well(soil: tuple[RunRecord, Setup], soil_page: Page) -> None:
    record, _ = soil
    used, at = record.counts["used"], int(record.analysis_times[-1])
    x = np.linspace(0.0, 1.0, 201)[:, None]
    field = record.field_at(at)
    half = float(ndtri(0.95)) * float(np.median(field.std(x)))
    # A band that left-out sensors refute is claimed as much wider as their errors are.
    judged = validate_run(record).found
    half *= judged.worse
    assert judged.leave_one_out.rms_z > 1.0
    head = soil_page.text[: soil_page.text.index("The field at the last time")]
    assert f"May it be believed? {judged.verdict.level.capitalize()}. {judged.verdict.text[:40]}" in head
    assert "Temperature, over depth 0 to 1 m, from 2024-03-30 14:00 CET to 2024-03-31 17:00 CEST" in head
    assert f"Of {record.arrived} readings that arrived from 3 sensors, {used} were used" in head
    assert f"known to within ±{say.rounded(half, half)}\u00a0°C or better".replace("\u00a0", " ") in head
    mean = field.mean(x)
    assert say.span(float(mean.min()), float(mean.max()), "°C").replace("\u00a0", " ") in head


def test_what_standard_deviations_contain_is_said_with_its_size(soil: tuple[RunRecord, Setup], soil_page: Page) -> None:
    """The two parts over the domain at the end, by averages of their squares on a fine grid: to the digits shown, as
    the functions are orthonormal. Of a prior stated in coefficients the posterior's alone."""
    record, setup = soil
    x = (np.arange(2000)[:, None] + 0.5) / 2000.0
    own, rest, doubt = (np.sqrt(np.mean(part**2)) for part in record.field_at(int(record.analysis_times[-1])).parts(x))
    assert doubt == 0.0
    shown = [say.measured(size, size, "°C").replace("\u00a0", " ") for size in (own, rest)]
    assumed = soil_page.text[soil_page.text.index("What was assumed") :]
    assert f"what the functions cannot hold: {shown[0]} and {shown[1]} over the domain" in assumed
    assert "See docs/trust.md." in assumed
    assert setup.std_contains == "posterior, unresolved"


def test_a_prior_stated_in_coefficients_leaves_nothing_unresolved(tmp_path: Path) -> None:
    tables = column(prior={"mean": 10, "std": 3, "length": "0.5 m", "kind": "isotropic"})
    with finished(tmp_path, tables, hours(3, "AB")) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **SMALL))
    assert "so they hold all of it. See docs/trust.md." in page.text and "cannot hold" not in page.text


def test_shares_inside_the_bands_are_counted_reading_by_reading(soil: tuple[RunRecord, Setup], soil_page: Page) -> None:
    """The slow way: one reading after another from the strips."""
    record, _ = soil
    cells = soil_page.column("Sensors", "inside 90 % band")
    for name, cell in zip("ABC", cells, strict=True):
        strip, inside, n = record.strip(name), 0, 0
        for y, m, s, status in zip(strip.measured, strip.predicted, strip.predicted_std, strip.status, strict=True):
            if status == "used":
                n += 1
                inside += abs(y - m) <= 1.6448536269514722 * s
        assert cell == say.share(inside, n)


def test_images_are_the_field(tmp_path: Path) -> None:
    """Basis functions evaluated once against the field's own maps: the same sums in another order, r <= 30 terms."""
    with finished(tmp_path, plate(), seconds(3, ["W0", "W3"])) as (record, setup):
        at = int(record.analysis_times[-1])
        field = record.field_at(at)
        grid = grid_of(field.space.pde.domain, (0, 1), 13)
        (frame,) = data.frames_of(record, setup, [at], [grid]).frames
        assert_allclose(frame.mean[0], grid.image(field.mean), rtol=1e-11, atol=1e-12)
        assert_allclose(frame.std[0], grid.image(field.std), rtol=1e-11, atol=1e-12)


def test_the_columns_of_the_time_depth_picture_are_the_field_at_their_times(soil: tuple[RunRecord, Setup]) -> None:
    record, setup = soil
    times = data.column_times(record.analysis_times, 5)
    grid = grid_of(setup.space.pde.domain, (0,), 9)
    frames = data.frames_of(record, setup, times.tolist(), [grid]).frames
    assert [frame.time_ns for frame in frames] == times.tolist() and len(frames) == 5
    for frame in frames:
        field = record.field_at(frame.time_ns)
        assert_allclose(frame.mean[0], field.mean(grid.points), rtol=1e-11)
        assert_allclose(frame.std[0], field.std(grid.points), rtol=1e-11)


def test_unknowns_come_in_the_unit_of_the_problem_file(soil: tuple[RunRecord, Setup], soil_page: Page) -> None:
    record, _ = soil
    last = record.unknowns_over_time()["surface"]
    row = next(row for row in soil_page.tables["Unknowns"] if row[0] == "temperature on the boundary surface")
    assert row[1].endswith("°C") and abs(float(row[1].split()[0]) - last.mean[-1, 0]) < last.std[-1, 0]
    assert row[3].endswith("%")
    assert any(row[0] == "offset of sensor C" for row in soil_page.tables["Unknowns"])


@pytest.mark.parametrize(("mean", "std", "unit"), [("4 l/s", "1 l/s", "l/s"), (0.24, 0.06, "m³/min")])
def test_a_strength_is_shown_before_the_division_by_the_capacity(mean: Any, std: Any, unit: str) -> None:
    """4 l/s into an aquifer of storativity 0.04 is 6 m³/min in the equation and 4 l/s (0.24 m³/min) on the page."""
    unknown = {"mean": mean, "std": std, "process": "fixed"}
    source = {"name": "pump", "place": [2, 1], "width": 0.5, "strength": {"unknown": unknown}}
    setup = plate(physics={"capacity": 0.04, "sources": [source]}, features={"focus": "no"}).build()
    (block,) = setup.model.blocks
    measure = say.unknown_measures(setup)["pump"]
    assert measure.unit == unit and "pump" in measure.title
    assert_allclose(measure.factor * block.mean, 4.0 if unit == "l/s" else 0.24, rtol=1e-12)


def test_an_unknown_flux_has_the_unit_of_a_flux() -> None:
    given = {"unknown": {"mean": 0.0, "std": "2 mm degC/h", "process": "fixed"}}
    boundary = {"surface": {"flux": given}, "bottom": {"flux": 0}}
    problem = column(physics={"diffusion": "5 mm2/s", "boundary": boundary})
    measure = say.unknown_measures(problem.build())["surface"]
    assert measure.unit == "mm °C/h"
    assert_allclose(measure.factor, 1000.0, rtol=1e-12)


def test_certificates_are_shown_with_what_would_help(soil: tuple[RunRecord, Setup], tmp_path: Path) -> None:
    findings = [
        Finding("gram", "A statement", "deviation <eta>", 0.7, 0.5, False, "more sensors & patience"),
        Finding("dynamics", "Another", "norm", 0.99, 1.0, True),
        Finding("leverage", "A third", "leverage", 1234567.0),
    ]
    page = Page(write_report(*soil, tmp_path / "report.html", **TINY, certificates=iter(findings)))
    assert page.column("Certificates", "value") == ["0.700", "0.990", "1.23 × 10⁶"]
    assert page.column("Certificates", "limit") == ["0.500", "1.00", "–"]
    assert page.column("Certificates", "") == ["does not hold", "holds", "reported"]
    assert "One check found a problem: deviation <eta> is 0.7; more sensors & patience." in page.text


def _certified(*findings: Finding) -> tuple[str, str]:
    """The section of some findings: what stands above the fold, and what is folded away."""
    text = render("run/certificates.html", found=Overview(findings, ()))
    above, _, folded = text.partition("<details><summary>")
    return above, folded


def test_certificates_fold_away_and_only_what_matters_is_marked() -> None:
    """A sufficient condition that another one replaces is no problem: nothing red, and one sentence above the fold."""
    unharmed = Finding("gram", "A statement", "deviation", 0.7, 0.5, False, "more sensors", needed=False)
    above, folded = _certified(unharmed, Finding("dynamics", "Another", "norm", 0.99, 1.0, True))
    assert above.startswith("<p>Nothing that was checked stands against the estimate")
    assert "not met, not needed" in folded and 'class="mark"' not in folded
    above, folded = _certified(Finding("dynamics", "Another", "norm", 1.2, 1.0, False, "a smaller step"))
    assert 'class="mark"' in folded and "a smaller step" in above


def test_without_certificates_there_is_no_section_and_with_none_a_sentence(soil_page: Page) -> None:
    assert "certificates" not in soil_page.ids
    assert "none applies" in _certified()[0]


def test_it_says_how_to_do_it_again(soil: tuple[RunRecord, Setup], soil_page: Page) -> None:
    """Both commands, the whole problem file, the hash and all versions; the file shown is the problem."""
    record, setup = soil
    for text in (SMALL["command"], "rfkalman run problem.toml", setup.hash, *record.versions.values()):
        assert str(text) in soil_page.text
    shown = "".join(soil_page.words)
    begin = shown.index("version = 1")
    assert Problem.from_text(shown[begin : begin + len(setup.problem.to_toml())]) == setup.problem
    for note in setup.notes:
        assert " ".join(note.split()) in soil_page.text


# -- what may be missing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [[], ["nonsense", "2024-03-30T14:00Z,nobody,1", "2024-03-30T14:00Z,A,"]])
def test_a_run_without_a_used_reading_shows_what_was_assumed(tmp_path: Path, lines: list[str]) -> None:
    with finished(tmp_path, column(), lines) as (record, setup):
        page = Page(write_report(record, setup, tmp_path / "report.html", **TINY))
        assert whole(page.column("What became of readings", "readings")[-1]) == record.arrived == len(lines)
    assert "none was used" in page.text and "before any reading: what was assumed" in page.text
    assert "No reading was used, so nothing moved" in page.text


def test_a_run_of_one_analysis_has_no_slider(tmp_path: Path) -> None:
    with finished(tmp_path, plate(output={"maps": []}), ["60,W0,0.1"]) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **TINY))
    assert "There is one analysis, shown above" in page.text and "Play" not in page.text
    assert "at 1 min. Of 1 readings" in page.text


def test_a_plate_on_a_relative_clock_without_unknowns(tmp_path: Path) -> None:
    """Durations instead of dates; a map asked for after the last reading is called a forecast."""
    with finished(tmp_path, plate(), seconds(7, ["W0", "W3", "W4"])) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **{**SMALL, "max_frames": 5}))
    run_part = page.text[: page.text.index("To do it again")]
    assert not re.search(r"\d{4}-\d\d-\d\d|UTC", run_part)
    assert "from 0.3333 min to 2.333 min after the start" in page.text
    captions = re.findall("<figcaption>([^<]*)</figcaption><div", page.source)
    assert captions == ["1\u00a0min", "2\u00a0min", "2.333\u00a0min", "5\u00a0min (forecast)"]
    assert "Times after the last reading are forecasts" in page.text
    assert "Nothing but the field itself was estimated" in page.text
    assert "sent nothing" in page.column("Sensors", "")


def test_a_block_is_shown_as_slices(tmp_path: Path) -> None:
    lines = hours(4, ["P0", "P1", "P2", "P3"], start="2024-01-01T00:00", level=1.0)
    with finished(tmp_path, block(), lines) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **{**SMALL, "max_frames": 2, "max_strips": 1}))
    assert "mg/l" in page.text and "those away from a plane are grey" in page.text
    assert "Probability of more than 1.2 mg/l at 2024-01-01 04:00 UTC; " in page.text.replace("\u00a0", " ")


def test_the_head_says_where_nobody_has_tried_and_what_was_held_out(tmp_path: Path) -> None:
    """Sensors in the upper part of a metre: below, the band is the filter's word. With one at the bottom, too (the
    control), a left-out sensor was as far from the next as any place is."""
    places, lines = {"A": 0.05, "B": 0.2, "C": 0.35}, hours(12, ["A", "B", "C", "D"])
    for bottom, alone in ((0.3, True), (1.0, False)):
        apart = [] if bottom == 1.0 else ["D"]
        table = [{"id": name, "at": at} for name, at in {**places, "D": bottom}.items()]
        sensors = {"table": table, "noise": "1 degC", "hold_out": apart}
        folder = tmp_path / str(bottom)
        folder.mkdir()
        with finished(folder, column(sensors=sensors), lines) as run:
            verdict = validate_run(run[0]).found.verdict
            page = Page(write_report(*run, folder / "report.html", **TINY))
        assert verdict.level != "refuted"
        assert ("this is the filter's word alone" in page.text) == alone and "everywhere to within" not in page.text
        assert ("held out and never used: of 12 readings" in page.text) == alone


def test_no_threshold_no_exceedance(tmp_path: Path) -> None:
    with finished(tmp_path, column(output={"thresholds": []}), hours(2, "A")) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **TINY))
    assert "No threshold was given" in page.text and "Probability" not in page.text


def test_a_sensor_outside_is_said_to_be_outside(tmp_path: Path) -> None:
    table = [{"id": "A", "at": 0.1}, {"id": "air", "at": -0.5}]
    with finished(tmp_path, column(sensors={"table": table}), hours(3, ["A", "air"])) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **TINY))
    assert page.column("Sensors", "")[1] == "outside the domain, never used"
    assert "Look at this first" in page.text
    assert "outside" in [row[0] for row in page.tables["What became of readings"]]


def test_optional_answers_of_a_record_may_be_empty(soil: tuple[RunRecord, Setup], tmp_path: Path) -> None:
    """A store of an older run may know neither command nor versions."""
    record, setup = soil
    bare = _Altered(record, meta={"created_ns": "soon"}, versions={}, events=[], sources=[], reasons={})
    page = Page(write_report(bare, setup, tmp_path / "report.html", **TINY))
    assert "Sources" not in page.tables and "run started" not in page.text and "used" in page.text


# -- times and choices ------------------------------------------------------------------------------------------------


def test_times_follow_the_plan_and_end_with_the_last_analysis() -> None:
    setup = column().build()
    hour, start = setup.clock.unit_ns, data.starting(setup)
    analyses = start + hour * np.arange(1, 101, dtype=np.int64)
    plan = setup.output

    def times(most: int, **output: Any) -> list[float]:
        chosen = data.frame_times(replace(setup, output=replace(plan, **output)), analyses, most)
        return [(t - start) / hour for t in chosen]

    assert times(50, map_every_ns=24 * hour) == [24.0, 48.0, 72.0, 96.0, 100.0]
    assert times(3, map_every_ns=24 * hour) == [24.0, 48.0, 100.0]
    assert len(times(20, map_every_ns=1)) <= 20 and times(20, map_every_ns=1)[-1] == 100.0
    ahead = (start - hour, start, start + 5 * hour, start + 150 * hour)
    assert times(20, map_times_ns=ahead) == [0.0, 5.0, 100.0, 150.0]
    even = times(20)
    assert len(even) == 16 and even[0] == 1.0 and even[-1] == 100.0 and all(t == int(t) for t in even)
    assert data.frame_times(setup, analyses[:0], 20) == [start]
    assert data.frame_times(setup, analyses[:1], 20) == [int(analyses[0])]


def test_columns_move_onto_analyses_but_not_into_gaps() -> None:
    analyses = np.concatenate([np.arange(0, 1000, 10), np.arange(3000, 4000, 10)]).astype(np.int64)
    chosen = data.column_times(analyses, 50)
    spacing = 3990 // 49
    assert chosen[0] == 0 and chosen[-1] == 3990 and (np.diff(chosen) > 0).all()
    near = np.abs(chosen[:, None] - analyses).min(axis=1)
    assert ((near == 0) | (near > spacing // 2)).all() and (near > 0).sum() > 10
    assert_array_equal(data.column_times(analyses[:7], 50), analyses[:7])


def test_a_pause_is_a_gap_only_against_its_surroundings() -> None:
    """An outage is one; readings that thin out steadily have none, although the last pause is 100 times the first."""
    regular = np.arange(40.0)
    regular[25:] += 30.0
    assert_array_equal(np.flatnonzero(gaps(regular)), [24])
    assert not gaps(np.geomspace(0.1, 100.0, 60)).any()
    assert gaps(np.array([0.0, 1.0])).size == 1 and gaps(np.zeros(0)).size == 0


def test_strips_are_drawn_of_all_sensors_or_of_the_worst_and_some_others() -> None:
    def row(i: int, excess: float, n: int = 5) -> data.SensorRow:
        return data.SensorRow(i, f"S{i}", {"used": n} if n else {}, n, n, 0.1, 0.1, excess, 0.0)

    rows = [row(i, -9.0 if i in (17, 31) else 0.1) for i in range(40)] + [row(40, 0.0, n=0)]
    assert data.choose_strips(rows, 50) == list(range(40))
    chosen = data.choose_strips(rows, 4)
    assert len(chosen) == 4 and {17, 31} < set(chosen) and 40 not in chosen and chosen == sorted(chosen)


def test_many_sensors_are_folded_away_and_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng([1, *b"places"])
    places = rng.uniform([0.1, 0.1], [3.9, 1.9], (45, 2))
    table = [{"id": f"N{i}", "at": at.tolist(), "offset": 0.01} for i, at in enumerate(places)]
    with finished(tmp_path, plate(sensors={"table": table}), seconds(3, [f"N{i}" for i in range(45)])) as run:
        page = Page(write_report(*run, tmp_path / "report.html", **TINY))
    assert "Table of all 45 sensors" in page.text and len(page.column("Sensors", "used")) == 45
    assert "Drawn below are 1 of the 45 sensors" in page.text
    assert "Table of 45 more values" in page.text


# -- words ------------------------------------------------------------------------------------------------------------


def test_numbers_show_what_their_uncertainty_allows() -> None:
    assert [say.rounded(3.14159, s) for s in (0.5, 0.02, 7e-4)] == ["3.14", "3.142", "3.14159"]
    assert say.rounded(12345.678, 300.0) == "12\u202f346" and say.rounded(-0.0004, 1.0) == "0.0"
    assert say.number(float("nan")) == "–" and say.number(-2.5e-9) == "−2.50 × 10⁻⁹"
    assert say.share(999_999, 1_000_000) == "99.9\u00a0%" and say.share(3, 3) == "100\u00a0%" and say.share(0, 0) == "–"
    assert say.span(1.0, 1.0, "m") == "1.00\u00a0m"


def test_dates_are_in_the_zone_of_the_problem_and_carry_its_name() -> None:
    """Summer time began at 02:00 on 31 March 2024: the same hour of UTC has another name before and after."""
    clock = column().build().clock
    when = say.When(clock, "h")
    hour = 3_600_000_000_000
    assert when(clock.origin_ns) == "2024-03-30 12:00\u00a0CET"
    assert when(clock.origin_ns + 24 * hour) == "2024-03-31 13:00\u00a0CEST"
    assert when.short(clock.origin_ns + 1_500_000_000) == "2024-03-30 12:00:01.5"
    assert say.When(replace(clock, zone=None), "h").zone_name == "UTC"


# -- pictures ---------------------------------------------------------------------------------------------------------


def _decoded(png: bytes) -> Any:
    """Read by matplotlib, not by what wrote it."""
    from matplotlib.image import imread

    return np.round(imread(io.BytesIO(png), format="png")[..., :3] * 255).astype(int)


def test_few_colours_survive_the_palette_exactly() -> None:
    rng = np.random.default_rng([2, *b"pixels"])
    colours = rng.integers(0, 256, (200, 3))
    pixels = colours[rng.integers(0, 200, (31, 17))].astype(np.uint8)
    assert_array_equal(_decoded(encode(pixels)), pixels)


def test_a_rare_colour_is_not_replaced_by_a_distant_one() -> None:
    """A colour bar holds each colour once while the map holds few of them often: grey must not stand for yellow.

    A ramp of 130 blues fills the picture, and 256 reds stand in a few pixels each. If all
    256 places were spread evenly over the 386 colours, neighbours would be merged in
    pairs: off by one level. Four are allowed.
    """
    pixels = np.zeros((400, 512, 3), dtype=np.uint8)
    pixels[..., 2] = np.arange(400)[:, None] % 130
    pixels[:2] = 0
    pixels[:2, :, 0] = np.arange(512) // 2
    off = np.abs(_decoded(encode(pixels)) - pixels).max(axis=2)
    assert off.max() <= 4 and off[2:].max() <= 1


def test_a_smooth_map_has_no_visible_steps() -> None:
    """Colours of a map that uses one end of its scale little: steps of the palette stay near those of the scale itself.

    Neighbouring colours of viridis differ by at most 3 levels; merging neighbours gives at most twice that.
    """
    from matplotlib import colormaps

    level = np.tile(np.linspace(0.0, 1.0, 600) ** 6, (400, 1))
    pixels = (255 * colormaps["viridis"](level)[..., :3]).astype(np.uint8)
    greys = np.random.default_rng([3, *b"greys"]).integers(0, 256, 3000).astype(np.uint8)
    pixels[:5, :, :] = greys.reshape(5, 600)[..., None]
    assert np.abs(_decoded(encode(pixels)) - pixels).max() <= 6


def test_numbers_on_a_map_hide_neither_each_other_nor_a_sensor() -> None:
    """Boxes of the numbers and of the sensors, in points; a crowd leaves some without a number."""
    rng = np.random.default_rng([4, *b"crowd"])
    places = np.vstack([rng.uniform(0.0, 1.0, (12, 2)), 0.5 + 0.02 * rng.standard_normal((20, 2))])
    found = numbers_beside(grid_of(Box([0.0, 0.0], [1.0, 1.0]), (0, 1), 2), places)
    dots = 288.0 * places
    boxes = [(dots[i] + at, [2.7 * len(str(i + 1)), 4.0]) for i, at in enumerate(found) if at is not None]
    assert 12 <= len(boxes) < 32
    for i, (centre, half) in enumerate(boxes):
        assert (np.abs(dots - centre) > np.array(half) + 2.0).any(axis=1).all()
        for other, reach in boxes[:i]:
            assert (np.abs(centre - other) >= np.add(half, reach)).any()
        assert (centre >= half).all() and (centre <= 288.0 - np.array(half)).all()


def test_a_strip_leaves_out_what_came_before_the_run() -> None:
    """Years of readings before the start must not squeeze the run into a corner; a sensor never used shows all."""
    status = np.array(["outside", "used", "late"], dtype=object)
    n = np.arange(3.0)
    strip = Strip("A", np.arange(3), n, n, np.ones(3), status)
    assert_array_equal(drawn_of(strip), [False, True, True])
    assert drawn_of(replace(strip, status=np.array(["outside"] * 3, dtype=object))).all()


@pytest.mark.study
@pytest.mark.parametrize("name", ["soil", "pumping", "plume", "city"])
def test_reports_of_the_examples_stay_small(name: str, tmp_path: Path, study_table: Any) -> None:
    """What is shipped, as a user would see it: everything drawn, under 6 MB."""
    import time
    from importlib.resources import files

    from rfkalman.io.readings import read_csv
    from rfkalman.runs import Runner

    setup = Problem.from_toml(str(files("rfkalman.problem").joinpath("examples", name, "problem.toml"))).build()
    with Runner.open(tmp_path / "run.sqlite", setup) as runner:
        for source in setup.input.files:
            runner.consume(source.name, lambda at, source=source: read_csv(source, setup.input, start=at))
        runner.flush()
    with RunRecord.open(tmp_path / "run.sqlite", setup) as record:
        started = time.perf_counter()
        path = write_report(record, setup, tmp_path / "report.html", command="rfkalman report")
        seconds = time.perf_counter() - started
        page = Page(path)
        assert whole(page.column("What became of readings", "readings")[-1]) == record.arrived
    size = path.stat().st_size / 1e6
    study_table.add("Reports of the examples", example=name, megabytes=size, seconds=seconds, pictures=len(page.images))
    assert size < 6.0


def test_any_stretch_of_time_has_its_ticks_without_a_warning() -> None:
    """From seconds to thirty years; warnings are errors here. matplotlib's own table has holes, one at 2 h 45 min."""
    from datetime import UTC, datetime

    from matplotlib.dates import date2num

    start = float(date2num(datetime(2024, 5, 1, 10, 0, tzinfo=UTC)))
    for length in [9_900.0, *np.geomspace(10.0, 1e9, 400)]:
        ticks, words, _ = date_ticks(UTC, start, start + length / 86_400.0)
        assert 2 <= len(ticks) == len(words) <= 7, (length, len(ticks))
