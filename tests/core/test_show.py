"""Values are short to look at, in a terminal and in a notebook."""

from __future__ import annotations

import html.parser

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.core.show import Shown, short

ROD = rk.Interval(0.0, 1.0)


@pytest.fixture(scope="module")
def filt():
    walls = {"x-": rk.Unknown((1.0, 2.0), rk.RandomWalk(1.0)), "x+": rk.Robin(1.0, rk.TimeSeries([0, 1], [2, 3]))}
    pde = rk.LinearPDE(ROD, diffusion=rk.layers(0, [0.3], [1.0, 2.0]), velocity=[0.1], boundary=walls)
    space = rk.whiten(pde, rk.GaussianRFF(60, length_scale=0.2), 1e-8)
    found = rk.Assimilator(space, rk.Sobolev(1.0, 0.3), blocks=[rk.SensorOffset(["A", "B"], std=0.2)])
    found.observe(rk.points([[0.2], [0.4]], ids=["A", "B"]), [1.0, 2.0], noise_std=0.1)
    return found


class Table(html.parser.HTMLParser):
    """The tags of a page, each closed as it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def held(filt):
    """One of everything a user holds."""
    post = filt.observe(rk.points([[0.2]], ids=["A"]), [1.0], noise_std=0.1)
    space = filt.model.space
    yield from (ROD, space.pde, space, space.features, space.report(), filt, filt.model, post, filt.belief)
    yield from (filt.posterior(), filt.forecast(1.0), rk.points(np.zeros((50, 1))), 2.0 * rk.averages([[0.2]], [[0.4]]))
    yield from (rk.stack(rk.points([[0.2]]), rk.gradients([[0.2]], 0)), *filt.unknowns().values(), *filt.model.blocks)
    yield from (rk.Exponential(), rk.ImplicitEuler(), rk.Sobolev(1.0, 0.3), rk.isotropic(1.0), rk.RandomWalk(1.0))
    yield from (
        rk.FromField(filt.posterior()),
        rk.TimeSeries(np.arange(500), np.arange(500)),
        rk.modulated(1.0, np.sin),
    )
    yield from (
        rk.GaussianRFF(40, 0.3),
        rk.bubble(rk.GaussianRFF(40, 0.3)),
        rk.Dirichlet(1.0),
        rk.SensorOffset(["A"], 0.2),
    )
    yield from (rk.Generator(np.zeros(300)), rk.LinearStep(np.eye(99)), rk.Observation(np.eye(99), std=1.0))


def test_everything_a_user_holds_is_a_line_in_a_terminal_and_a_table_in_a_notebook(filt):
    """No array is poured out; reports, which are text, may have lines."""
    for value in held(filt):
        line = repr(value)
        assert len(line) < 600 or line == str(value), line
        assert "\n" not in line or line == str(value), line
        assert "array([" not in line, line
        page = Table(value._repr_html_())
        assert page.open == [] and len(page.text) < 2500


def test_names_that_are_html_stay_text():
    """What a user calls a sensor cannot become part of the page."""
    page = rk.SensorOffset(["<script>alert(1)</script>"], 0.2)._repr_html_()
    assert "<script" not in page and "&lt;script" in page


def test_a_field_shows_a_picture_and_draws_itself(filt):
    """In a notebook below its numbers, and on its own."""
    field = filt.posterior()
    assert 'src="data:image/png;base64,' in field._repr_html_()
    figure = field.plot(unit="K", title="rod")
    assert figure.axes[0].get_title() == "rod" and "[K]" in figure.axes[0].get_ylabel()


def test_what_stands_at_its_default_is_not_repeated():
    class Empty(Shown):
        def _summary(self):
            return {}

    assert repr(Empty()) == "Empty()"
    assert repr(rk.LinearStep([0.5])) == "LinearStep(transition=[0.5])"
    assert short(list(range(9))) == "[0, 1, 2, 3, 4, 5, ...]"
