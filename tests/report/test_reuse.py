"""What the report reuses to be fast must not show: pictures and sums are those made from scratch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.report.small_runs import Page, column, finished, hours

from rfkalman.report import contents as data
from rfkalman.report.contents import View
from rfkalman.report.page import write_report

pytest.importorskip("matplotlib")

#: B leaves the range for good, A has gaps and glitches, C begins late.
LINES = [
    line if ',"B",' not in line or i < 60 else line.rsplit(",", 1)[0] + ",75.5"
    for i, line in enumerate(hours(40, "ABC"))
    if not (',"A",' in line and 30 < i < 50) and not (',"C",' in line and i < 20)
]


def test_a_picture_does_not_remember_the_one_before(tmp_path: Path) -> None:
    """Strips share one figure; each is, byte for byte, the strip of an artist that has drawn nothing else."""
    with finished(tmp_path, column(), LINES) as (record, setup):
        strips = record.strips("ABC")
        shared = View(record, setup, 1, 3).artist
        for strip in (*strips, strips[0]):
            alone = View(record, setup, 1, 3).artist
            assert shared.strip(strip, "x").png == alone.strip(strip, "x").png
        series = record.unknowns_over_time()["surface"]
        for part in (slice(None), slice(0, 9), slice(3, 4)):
            drawn = [
                artist.series(series.time_ns[part], series.mean[part, 0], series.std[part, 0], "u", "x").png
                for artist in (shared, View(record, setup, 1, 3).artist)
            ]
            assert drawn[0] == drawn[1]


def test_sums_by_sensor_are_those_of_their_strips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass over all readings, cut into groups of any size, against one sensor at a time."""
    with finished(tmp_path, column(), LINES) as (record, setup):
        for held in (1, 30, 1 << 18):
            monkeypatch.setattr("rfkalman.runs.record._AT_ONCE", held)
            for row in data.sensor_rows(record, setup, 0.9):
                strip = record.strip(row.name)
                used = strip.status == "used"
                off = strip.measured[used] - strip.predicted[used]
                std = strip.predicted_std[used]
                assert row.by_status == {str(k): int((strip.status == k).sum()) for k in set(strip.status)}
                assert row.n_band == used.sum() and row.n_inside == (np.abs(off) <= 1.6448536269514722 * std).sum()
                np.testing.assert_allclose([row.rms, row.typical_std], [np.sqrt(np.mean(off**2)), np.median(std)])
                at_end = strip.time_ns[used][-1] == record.analysis_times[-1]
                assert row.last == strip.measured[used][-1] if at_end else np.isnan(row.last)


def test_a_sensor_in_alarm_stands_in_the_head(tmp_path: Path) -> None:
    """Its name, since when and what it said; and the worst band of the head reaches as far as it does."""
    with finished(tmp_path, column(), LINES) as (record, setup):
        page = Page(write_report(record, setup, tmp_path / "report.html", command="x", max_frames=1, max_strips=1))
        (alarm,) = record.refusals()
        head = page.text[: page.text.index("The field at the last time")]
        assert "Sensor B is in alarm since" in head and f"{alarm.n} readings in a row" in head and "75.5" in head
        std = record.field_at(int(record.analysis_times[-1])).std([[0.4]])[0]
        # 75.5 degC is farther than a band may reach: ten times the std before any reading.
        before = setup.model.field(setup.model.initial, setup.model.start).std([[0.4]])[0]
        np.testing.assert_allclose(std, 10.0 * before, rtol=1e-9)
