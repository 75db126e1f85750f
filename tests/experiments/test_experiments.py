"""The quick set: every number that should hold does, and the comparison would notice if it did not."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest

from rfkalman.errors import RFKalmanError
from rfkalman.experiments import honest, page, streaming
from rfkalman.experiments.base import Effort, Outcome, mean_and_error, slope
from rfkalman.experiments.catalogue import EXPERIMENTS, find, reproduce

QUICK = Effort(seeds=48, quick=True)


@pytest.fixture(scope="module")
def small():
    """Outcomes of two experiments that cost nothing."""
    return reproduce(["mechanisms", "scaling"], Effort(seeds=8, quick=True))


@pytest.mark.parametrize("name", [experiment.name for experiment in EXPERIMENTS])
def test_every_number_that_should_hold_does(name):
    """The quick set of `rfkalman reproduce`; each row states its own tolerance and where it comes from."""
    (outcome,) = reproduce([name], QUICK)
    failed = [f"{row.quantity}: paper {row.paper}, ours {row.ours}, {row.tolerance}" for row in outcome.rows
              if row.holds is False]  # fmt: skip
    assert not failed
    judged = [row for row in outcome.rows if row.holds is not None]
    assert judged, "an experiment that judges nothing tests nothing"
    assert all(row.tolerance for row in judged)
    for draw in outcome.figures.values():
        assert draw().axes


@pytest.mark.parametrize(
    ("change", "published"),
    [({"MARGIN": 0.0}, 1.84e-7), ({"MARGIN": 0.05}, 1.84e-7), ({"N_TIMES": 21}, 1.84e-7), ({"SIGMA": 0.011}, 1.84e-7)],
    ids=["sensors up to the wall", "sensors further inside", "21 times", "more noise"],
)
def test_another_setting_misses_the_published_trace(monkeypatch, change, published):
    """Control: the 3 % of the trace are narrow enough to tell the inferred settings from their neighbours."""
    for name, value in change.items():
        monkeypatch.setattr(streaming, name, value)
    space = streaming.bubble_space(streaming.HEAT_DRAWS[0])
    arguments = {"sigma": streaming.SIGMA, "n_times": streaming.N_TIMES}
    traces = [streaming.trace(streaming.kalman_final(streaming.draw_stream(space, seed, **arguments)).root)
              for seed in range(32)]  # fmt: skip
    assert abs(np.mean(traces) / published - 1.0) > 0.03


def test_inflating_the_covariance_instead_of_the_deviations_misses_the_published_trace():
    """Control for the recovered meaning of rho: covariance times 1.05 gives about 3.1e-7, not 5.09e-7."""
    space = streaming.bubble_space(streaming.HEAT_DRAWS[0])
    traces = [
        streaming.trace(streaming.etkf_final(streaming.draw_stream(space, s), 100, math.sqrt(1.05), s).belief.root)
        for s in range(12)
    ]
    assert abs(np.mean(traces) / 5.09e-7 - 1.0) > 0.2


def test_judgements_can_fail():
    """Each kind of comparison says no when it should."""
    out = Outcome("x")
    out.near("q", 1.0, 1.04, 0.03, "why")
    out.agree("q", 1.0, 1.3, 0.1, 0.05, "why")
    out.between("q", 0.0, 1.0, 1.1, "why")
    out.below("q", 1.0, 1.1, "why")
    out.near("q", 1.0, math.nan, 0.03, "why")
    assert [row.holds for row in out.rows] == [False] * 5
    out.report("q", 1.0)
    assert out.rows[-1].holds is None


def test_crps_of_a_gaussian_is_its_integral():
    """The closed form against the definition, integral of (Phi - 1[x >= value])^2; trapezoid error 1e-6."""
    from scipy.special import ndtr

    grid = np.linspace(-12.0, 12.0, 200_001)
    for value in (-1.3, 0.0, 2.5):
        step = np.where(grid >= value, 1.0, 0.0)
        integral = np.trapezoid((ndtr((grid - 0.4) / 1.7) - step) ** 2, grid)
        ours = honest.crps(np.array([0.4]), np.array([1.7]), np.array([value]))
        np.testing.assert_allclose(ours, integral, atol=1e-4)


def test_slope_and_error_of_known_numbers():
    assert slope([1.0, 10.0, 100.0], [5.0, 0.5, 0.05]) == pytest.approx(-1.0)
    mean, se = mean_and_error([1.0, 3.0])
    assert (mean, se) == (2.0, pytest.approx(1.0))


def test_names_are_checked():
    with pytest.raises(RFKalmanError, match="no experiment 'haet'"):
        find(["haet"])
    assert [e.name for e in find([])] == [e.name for e in EXPERIMENTS]


def test_rows_are_json_with_the_promised_keys(small):
    rows = json.loads(page.as_json(small))
    assert rows
    for row in rows:
        assert {"experiment", "quantity", "paper", "ours", "stderr", "holds", "note"} <= set(row)


class _Links(HTMLParser):
    """Everything in a page that would make a browser fetch something, and whether its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.scripts = 0
        self.headings: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.scripts += tag == "script"
        if tag == "h2":
            self.headings.append(given.get("id", ""))
        for key in ("src", "href"):
            value = given.get(key) or ""
            if value and not value.startswith(("data:", "#")):
                self.fetched.append(value)


def test_the_page_needs_nothing_but_itself(small):
    """No script, no request: a report can be mailed and opened anywhere."""
    text = page.as_html(small, "rfkalman reproduce <b>", 8)
    links = _Links()
    links.feed(text)
    assert links.scripts == 0 and not links.fetched
    assert "http" not in text.replace("http-equiv", "")
    assert "&lt;b&gt;" in text and "<b>" not in text
    assert set(links.headings) >= {"mechanisms", "scaling"}


def test_everything_is_written(small, tmp_path):
    written = page.write(small, tmp_path / "new" / "folder", "command", 8)
    names = {path.name for path in written}
    assert {"reproduce.html", "reproduce.json", "three_scalings.png", "three_scalings.svg"} <= names
    assert all(path.stat().st_size > 0 for path in written)


def test_text_and_markdown_show_every_row(small):
    for outcome in small:
        text, table = page.as_text(outcome), page.as_markdown([outcome], "T")
        for row in outcome.rows:
            assert row.quantity in text and row.quantity in table


def test_streams_of_one_seed_share_places_and_errors_across_bases():
    """Paired comparisons: the sine and the bubble basis see the same sensors and the same noise."""
    a = streaming.draw_stream(streaming.sine_space(60), 3)
    b = streaming.draw_stream(streaming.bubble_space(9), 3)
    np.testing.assert_array_equal(a.sensors, b.sensors)
