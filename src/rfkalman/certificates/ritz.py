"""The Ritz quantity: how far the Galerkin solution can be from the exact field, and the start it needs.

Statement: "Conforming Galerkin consistency via Ritz approximation".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from ..core.checks import FloatArray, as_count, as_number, as_positive, frozen
from ..core.errors import ConformityError, DefinitenessError, ValueRangeError
from ..core.linalg import symmetrise
from ..core.show import Shown
from ..space.space import WhitenedSpace
from .exact_field import FineBasis, Trajectory, quadrature_finding, require_unforced
from .findings import Finding

RITZ = "Conforming Galerkin consistency via Ritz approximation"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ritz(Shown):
    """The parabolic Ritz quantity epsilon^G: a supremum and a time integral, with what they rest on.

    Attributes
    ----------
    start, horizon : float
        The interval of time.
    start_coeffs : (r,) array
        Coefficients of R u*(start), from which the Galerkin solution starts.
    supremum : float
        A bound on ``||u - R u||`` over all times, also between the nodes.
    integral, integral_error : float
        Of ``||u_t - R u_t||`` over time, and its estimated error.
    growth : float
        w0 >= 0 with a(v, v) >= -w0 ||v||^2 on the space; zero for heat.
    trace_eps : float
        rms trace up to which a direction counts as zero on the boundary; 0 where features vanish there.
    quadrature_defect : float
        Relative change of P u_tt(start) on a second rule.
    """

    start: float
    horizon: float
    start_coeffs: FloatArray
    supremum: float
    integral: float
    integral_error: float
    growth: float
    trace_eps: float
    quadrature_defect: float

    @property
    def value(self) -> float:
        """epsilon^G, with the estimated quadrature error added and the integral grown by exp(w0 T) where w0 > 0."""
        growth = math.exp(self.growth * (self.horizon - self.start))
        return self.supremum + growth * (self.integral + self.integral_error)

    def findings(self, limit: float | None = None) -> list[Finding]:
        """Both parts, their sum, and whether the integral and the rule can be believed."""
        line = partial(Finding, "approximation", RITZ)
        settle = "raise max_panels, or certify from a later start"
        remedy = "lower mass_floor, use more features, or certify from a later start"
        rows = [
            line("largest ||u - R u||, bounded between times", self.supremum),
            line("integral over t of ||u_t - R u_t||", self.integral),
            line("estimated error of the time integral", self.integral_error, 0.05 * self.integral, remedy=settle),
            line("Ritz quantity epsilon^G", self.value, limit, remedy=remedy),
            quadrature_finding(RITZ, self.quadrature_defect, "u_tt"),
        ]
        if self.trace_eps > 0.0:
            rows.append(line("rms trace that counts as zero on the boundary", self.trace_eps))
        return rows


def ritz(
    space: WhitenedSpace,
    trajectory: Trajectory,
    horizon: float,
    *,
    start: float = 0.0,
    rtol: float = 0.01,
    max_panels: int = 48,
    order: int | tuple[int, ...] | None = None,
) -> Ritz:
    """The Ritz quantity epsilon^G (paper, "Conforming Galerkin consistency via Ritz approximation").

    R u is defined by a(R u - u, v) = 0 for all v of the space, a being the full
    bilinear form, advection and reaction included. The field solves the
    unforced equation, so a(u, v) = -(u_t, v): the coefficients of R u follow
    from ``stiffness @ z = -project(u_t)`` and no gradient of u is needed;
    likewise R u_t from u_tt.

    Why it bounds the Galerkin error: theta = u^G - R u has
    (theta_t, v) + a(theta, v) = (u_t - R u_t, v) and theta(start) = 0, so
    d/dt ||theta|| <= w0 ||theta|| + ||u_t - R u_t|| with w0 = 0 wherever
    a(v, v) >= 0. A form that is not symmetric is therefore covered as well.

    The integral is composite Clenshaw-Curtis (9 points, the nested 5 for the
    error) on panels that shrink by 4 towards ``start``, halved where the error is
    largest. Between two nodes a < b, ||u - R u|| is at most half of
    (its values at a and b, plus the integral of ||u_t - R u_t|| from a to b): the
    supremum is bounded, not sampled.

    Parameters
    ----------
    space : WhitenedSpace
        Conforming and unforced.
    trajectory : Trajectory
        u*, with two time derivatives.
    horizon, start : float
        The interval of time. A field that does not vanish on the boundary at
        t = 0 has ||u_t|| of about t^(-3/4): integrable, but a truncated series gives
        nothing to believe at 0 itself; start later then.
    rtol : float
        Panels are halved until the estimated error is below this part of the integral...
    max_panels : int
        ...or there are this many.
    order : int or tuple of int, optional
        Of the rule in space.
    """
    T, t0 = as_number("horizon", horizon), as_number("start", start)
    if not T > t0:
        raise ValueRangeError(f"horizon must lie after start; got horizon={T:g}, start={t0:g}.")
    if not space.health["conforming"]:
        raise ConformityError(
            "the Ritz projection needs a conforming space, and this one was built with nonconforming=True: its "
            "features do not vanish where the field is held. Use graph_residual, or window the features: bubble(...)."
        )
    require_unforced(space)
    K = space.stiffness
    sizes = np.linalg.svd(K, compute_uv=False)
    if not sizes[-1] > 1e-12 * sizes[0]:
        raise DefinitenessError(
            f"the stiffness of this space is singular (smallest value {sizes[-1]:.2g} beside {sizes[0]:.2g}), so "
            "the Ritz projection is not defined: nothing holds the field. Hold a part of the boundary, add a "
            "reaction, or use graph_residual."
        )
    solve, fine = partial(lu_solve, lu_factor(K)), FineBasis(space, order)
    lowest = float(np.linalg.eigvalsh(symmetrise(K))[0])
    nodes: dict[float, tuple[float, float, FloatArray]] = {}

    def rate_error(t: float) -> float:
        if t not in nodes:
            u, u1, u2 = (fine.values(trajectory, t, rate) for rate in (0, 1, 2))
            z, dz = solve(-fine.project(u1)), solve(-fine.project(u2))
            nodes[t] = (fine.distance(u, z), fine.distance(u1, dz), z)
        return nodes[t][1]

    edges = t0 + (T - t0) * np.concatenate([[0.0], 4.0 ** np.arange(-6.0, 1.0)])
    panels = _integrated(rate_error, edges.tolist(), as_positive("rtol", rtol), as_count("max_panels", max_panels, 8))
    # The second entry of a node bounds the rate of change of the first.
    between = [0.5 * (nodes[p.a][0] + nodes[p.b][0] + p.integral + p.error) for p in panels]
    return Ritz(
        start=t0,
        horizon=T,
        start_coeffs=frozen(nodes[t0][2]),
        supremum=max(*between, *(error for error, _, _ in nodes.values())),
        integral=math.fsum(p.integral for p in panels),
        integral_error=math.fsum(p.error for p in panels),
        growth=0.0 if abs(lowest) <= 1e-12 * float(np.abs(K).max()) else max(0.0, -lowest),
        trace_eps=float(space.health["trace_eps"]),
        quadrature_defect=fine.defect(trajectory, t0, 2),
    )


class _Panel(NamedTuple):
    """The integral from a to b, and its estimated error."""

    error: float
    integral: float
    a: float
    b: float


def _integrated(function: Callable[[float], float], edges: list[float], rtol: float, max_panels: int) -> list[_Panel]:
    """Composite nested Clenshaw-Curtis; the worst panel is halved until the errors add up to little enough."""
    s, weights, nested = np.cos(np.pi * np.arange(7, 0, -1) / 8.0), _clenshaw_curtis(8), _clenshaw_curtis(4)

    def panel(a: float, b: float) -> _Panel:
        half = 0.5 * (b - a)
        g = np.array([function(t) for t in (a, *(0.5 * (a + b) + half * s).tolist(), b)])
        fine, coarse = half * float(weights @ g), half * float(nested @ g[::2])
        return _Panel(abs(fine - coarse), fine, a, b)

    panels = [panel(a, b) for a, b in pairwise(edges)]
    while len(panels) < max_panels:
        worst = max(panels, key=lambda p: p.error)
        middle = 0.5 * (worst.a + worst.b)
        enough = math.fsum(p.error for p in panels) <= rtol * math.fsum(p.integral for p in panels)
        if enough or not worst.a < middle < worst.b:
            break
        panels.remove(worst)
        panels += [panel(worst.a, middle), panel(middle, worst.b)]
    return panels


def _clenshaw_curtis(n: int) -> FloatArray:
    """Weights of the n + 1 points cos(k pi / n) on [-1, 1], n even."""
    k, j = np.arange(n + 1), np.arange(1, n // 2 + 1)
    b = np.where(2 * j == n, 1.0, 2.0) / (4.0 * j**2 - 1.0)
    w = 1.0 - np.cos(2.0 * np.pi * np.outer(k, j) / n) @ b
    w *= np.where((k == 0) | (k == n), 1.0, 2.0) / n
    return np.asarray(w)
