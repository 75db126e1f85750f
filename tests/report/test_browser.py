"""The report as a browser shows it: on a phone, on a desk, on paper, without scripts; and it asks for nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.report.browser import NAMES, Browser, find
from tests.report.small_runs import WRITTEN_NS, column, finished, hours, plate, seconds

from rfkalman.report.page import write_report

pytest.importorskip("matplotlib")
PROGRAM = find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
#: Everything that sticks out of the window and cannot be scrolled by itself.
STICKING_OUT = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, .skip')
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 60))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A column with names that bite, and a plate; few pictures, all sections."""
    found = {}
    sensors = {"table": [{"id": HOSTILE, "at": 0.2}, {"id": "S" * 120, "at": 0.6, "offset": 0.2}]}
    for name, problem, lines in (
        ("line", column(title=HOSTILE, sensors=sensors), [*hours(12, [HOSTILE, "S" * 120]), "broken"]),
        ("plate", plate(), seconds(9, ["W0", "W1", "W2"])),
    ):
        folder = tmp_path_factory.mktemp(name)
        with finished(folder, problem, lines) as run:
            limits = {"max_frames": 3, "max_strips": 2}
            found[name] = write_report(
                *run, folder / "report.html", command="rfkalman report " + "long " * 60, written_ns=WRITTEN_NS, **limits
            )
    return found


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
@pytest.mark.parametrize("name", ["line", "plate"])
def test_it_fits_every_width_and_asks_for_nothing(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    """No request but the file itself, no error, no sideways scrolling, every picture decoded."""
    browser.load(pages[name], width)
    assert browser.requests() == [pages[name].resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(STICKING_OUT) == []
    assert browser.value("[...document.images].filter(i => !i.complete || i.naturalWidth < 50).length") == 0


def test_a_page_that_asks_is_noticed_and_the_policy_stops_it(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Control of the test above: an address slipped in is refused by the policy, and seen where there is none."""
    text = pages["plate"].read_text(encoding="utf-8")
    slipped = text.replace("<main", '<img src="http://127.0.0.1:9/x.png" alt=""><main')
    (tmp_path / "kept.html").write_text(slipped, encoding="utf-8")
    browser.load(tmp_path / "kept.html", 800)
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())
    (tmp_path / "dropped.html").write_text(slipped.replace("Content-Security-Policy", "x"), encoding="utf-8")
    browser.load(tmp_path / "dropped.html", 800)
    assert "http://127.0.0.1:9/x.png" in browser.requests()


def test_a_wide_element_is_noticed(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """Control: something broader than the phone sticks out."""
    text = pages["plate"].read_text(encoding="utf-8").replace("<main", '<img width="900" height="9" alt="">\n<main')
    (tmp_path / "wide.html").write_text(text.replace("max-width: 100%", "max-width: none"), encoding="utf-8")
    browser.load(tmp_path / "wide.html", 360)
    assert browser.value(STICKING_OUT) != []


def test_names_of_others_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    browser.load(pages["line"], 1280)
    assert browser.value("document.querySelector('h1').textContent") == HOSTILE
    assert browser.value("document.querySelector('h1').children.length") == 0
    assert browser.value("document.scripts.length") == 1
    assert not [event for event in browser.events if event.get("method") == "Page.javascriptDialogOpening"]


@pytest.mark.parametrize("name", ["line", "plate"])
def test_the_slider_shows_the_time_it_stands_at(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """The large pictures are those of the small frame with the same number, its words are those of the slider."""
    browser.load(pages[name], 1280)
    assert browser.value("document.querySelector('.slider').hidden") is False
    assert browser.value("document.querySelector('.multiples').open") is False
    n = browser.value("document.querySelectorAll('.frame').length")
    last = n - 1
    for action, expected in (
        ("", last),
        ("document.querySelector('[data-on]').click()", 0),
        ("document.querySelector('[data-back]').click()", last),
        ("r.value = 1; r.dispatchEvent(new Event('input'))", 1),
    ):
        shown, wanted, text, caption, number = browser.value(
            f"""(() => {{ const r = document.querySelector('.slider input'); {action};
            const f = document.querySelectorAll('.frame')[{expected}];
            return [[...document.querySelectorAll('.slider img')].map(i => i.src + i.alt),
                    [...f.querySelectorAll('img')].map(i => i.src + i.alt),
                    document.querySelector('.slider output').textContent, f.querySelector('figcaption').textContent,
                    Number(r.value)]; }})()"""
        )
        assert shown == wanted and text == caption and number == expected
    assert len({*browser.value("[...document.querySelectorAll('.frame img:first-child')].map(i => i.src)")}) == n
    browser.value("document.querySelector('[data-play]').click()")
    assert browser.value("document.querySelector('[data-play]').textContent") == "Pause"
    browser.value("document.querySelector('[data-play]').click()")
    assert browser.value("document.querySelector('[data-play]').textContent") == "Play"


@pytest.mark.parametrize("width", [360, 1280])
def test_without_scripts_all_times_stand_side_by_side(browser: Browser, pages: dict[str, Path], width: int) -> None:
    """The slider stays hidden, nothing is folded that only a script could show."""
    browser.load(pages["plate"], width, scripts=False)
    seen = "e => { const b = e.getBoundingClientRect(); return b.width > 40 && b.height > 20; }"
    # Expressions of the protocol run although the page's own scripts do not.
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.value(f"[...document.querySelectorAll('.frame img')].every({seen})") is True
    assert browser.value("getComputedStyle(document.querySelector('.slider')).display") == "none"
    assert browser.value("document.documentElement.scrollWidth") == width


def test_on_paper_everything_is_unfolded_and_folded_again(browser: Browser, pages: dict[str, Path]) -> None:
    browser.load(pages["plate"], 1280)
    closed = "document.querySelectorAll('details:not([open])').length"
    folded = browser.value(closed)
    browser.value(f"addEventListener('beforeprint', () => {{ window.left = {closed}; }})")
    printed = browser.printed()
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") >= 3
    assert folded >= 2 and browser.value("window.left") == 0
    assert browser.value(closed) == folded
    browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.value("getComputedStyle(document.querySelector('.slider')).display") == "none"
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")


def test_it_is_dark_on_white(browser: Browser, pages: dict[str, Path]) -> None:
    """Most of the screen is white, some of it nearly black, whatever the browser prefers; decoded by matplotlib."""
    from matplotlib.image import imread

    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        browser.load(pages["line"], 360)
        seen = imread(io.BytesIO(browser.screenshot()), format="png")[..., :3].mean(axis=2)
    finally:
        browser.ask("Emulation.setEmulatedMedia", features=[])
    assert seen.shape[1] == 360 and seen.shape[0] > 3000
    assert np.mean(seen > 0.99) > 0.6 and 0.005 < np.mean(seen < 0.3) < 0.3
