"""Panels in the paper's arrangement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...pictures.strokes import BLUE, GREEN, INK, ORANGE, TICK, label, named_values, new_figure, rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, "#7b4fa3", "#8c6d1f", "#4d4d4d", "#c2378a", "#2f8f8f")
MARKERS = "osD^vP*X"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One line of a panel; ``error`` (n,) draws bars of one standard error."""

    label: str
    x: Any
    y: Any
    error: Any = None
    line: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One set of axes."""

    heading: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    log: str = "xy"  #: which axes are logarithmic
    reference: float | None = None  #: a slope drawn through the last point of the first curve
    draw: Callable[[Any], None] | None = None


def panels(parts: Sequence[Panel], columns: int | None = None, width: float = 4.4, height: float = 3.9) -> Figure:
    """Panels side by side, or in as many columns as divide them."""
    columns = columns or len(parts)
    rows = len(parts) // columns
    figure = new_figure(width * columns, height * rows)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for ax, panel in zip(axes, parts, strict=True):
        for i, curve in enumerate(panel.curves):
            style = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "ms": 5.0, "lw": 1.6 if curve.line else 0.0}
            ax.errorbar(curve.x, curve.y, yerr=curve.error, capsize=3.0, label=curve.label or None, **style)
        if "x" in panel.log:
            ax.set_xscale("log")
            _whole_ticks(ax, panel.curves)
        if "y" in panel.log:
            ax.set_yscale("log")
        if panel.reference is not None:
            x, y = np.asarray(panel.curves[0].x, float), np.asarray(panel.curves[0].y, float)
            through = 0.6 * y[-1] * (x / x[-1]) ** panel.reference
            ax.plot(x, through, color=INK, lw=1.0, ls=":", label=f"slope {panel.reference:g}")
        rule(ax)
        if panel.draw is not None:
            panel.draw(ax)
        label(ax, panel.heading, panel.xlabel, panel.ylabel)
        if ax.get_legend_handles_labels()[0]:
            # Below the axes, where it hides nothing.
            ax.legend(fontsize=TICK - 1, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    return figure


def _whole_ticks(ax: Any, curves: Sequence[Curve]) -> None:
    """Counts are labelled by themselves, not by powers of ten."""
    x = sorted({float(v) for curve in curves for v in curve.x})
    if x and len(x) <= 8 and all(v == round(v) and v >= 2.0 for v in x):
        ax.set_xticks(x, [f"{v:g}" for v in x])
        ax.minorticks_off()


def bar_panel(
    heading: str,
    label: str,
    values: Mapping[str, tuple[float, float]],
    expected: float | None = None,
    legend: str = "",
    log: bool = False,
) -> Panel:
    """Named values with bars of one standard error, one below the other; a line at what is ``expected``."""

    def draw(ax: Any) -> None:
        middle, error = np.array(list(values.values())).T
        named_values(ax, list(values), middle, error, TICK - 1, color=BLUE, ms=6.0, capsize=3.0)
        ax.set_ylim(len(values) - 0.5, -0.5)
        if log:
            ax.set_xscale("log")
        else:
            ax.set_xlim(left=0.0)
        if expected is not None:
            ax.axvline(expected, color=ORANGE, lw=1.4, ls="--", label=legend or None)

    return Panel(heading, label, "", [], log="", draw=draw)
