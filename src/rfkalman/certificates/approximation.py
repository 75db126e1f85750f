"""How far the exact field is from the whitened space: the L2 projection and the graph residual.

Statements: "Effective-rank approximation class" and "Graph-residual consistency certificate for L2-projection
references". All norms are those of the normalised measure, taken of a difference on a rule finer than the one the
space was built with; no difference of squares is formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_increasing, frozen
from ..core.show import Shown
from ..physics.conditions import Robin
from ..space.space import WhitenedSpace
from .exact_field import FineBasis, Trajectory, quadrature_finding, require_unforced
from .findings import Finding

APPROXIMATION = "Effective-rank approximation class"
GRAPH = "Graph-residual consistency certificate for L2-projection references"
_BLOCK = 16384


# -- the L2 projection ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProjectionError(Shown):
    """What the space misses of the exact field, and the reference coefficients that miss nothing else.

    Attributes
    ----------
    times : (n,) array
    coeffs : (n, r) array
        z_n of the L2 projection P_tau u*(t_n).
    errors : (n,) array
        ``||u* - P_tau u*||`` at each time.
    quadrature_defect : float
        Relative change of the coefficients at the first time on a second rule.
    """

    times: FloatArray
    coeffs: FloatArray
    errors: FloatArray
    quadrature_defect: float

    @property
    def supremum(self) -> float:
        """epsilon_{M,tau}(u*): the largest error over the given times."""
        return float(self.errors.max())

    def findings(self, limit: float | None = None) -> list[Finding]:
        """The approximation error, held against ``limit`` if one is given."""
        quantity = f"largest ||u* - P u*||, at t = {self.times[int(np.argmax(self.errors))]:g}"
        remedy = "lower mass_floor, or use more features or a smaller length_scale"
        return [
            Finding("approximation", APPROXIMATION, quantity, self.supremum, limit, remedy=remedy),
            quadrature_finding(APPROXIMATION, self.quadrature_defect),
        ]


def projection_error(
    space: WhitenedSpace, trajectory: Trajectory, times: ArrayLike, *, order: int | tuple[int, ...] | None = None
) -> ProjectionError:
    """The distance of the exact field from the space at each time (paper, "Effective-rank approximation class").

    Parameters
    ----------
    space : WhitenedSpace
    trajectory : Trajectory
        u*(x, t).
    times : (n,) array_like
        The analysis times t_0 .. t_N.
    order : int or tuple of int, optional
        Of the rule; finer than the space's own by default.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman import Box, DirichletSine, Heat, whiten
    >>> space = whiten(Heat(Box([0.0], [1.0])), DirichletSine(2))
    >>> def third_mode(x, t, rate=0):
    ...     return np.sqrt(2.0) * np.sin(3.0 * np.pi * x[:, 0])
    >>> projection_error(space, third_mode, [0.0]).errors.round(12)
    array([1.])
    """
    grid, fine = as_increasing("times", times), FineBasis(space, order)
    coeffs, errors = np.empty((grid.size, space.rank)), np.empty(grid.size)
    for n, t in enumerate(grid.tolist()):
        u = fine.values(trajectory, t)
        coeffs[n] = fine.project(u)
        errors[n] = fine.distance(u, coeffs[n])
    return ProjectionError(grid, frozen(coeffs), frozen(errors), fine.defect(trajectory, float(grid[0]), 0))


# -- the graph residual -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphResidual(Shown):
    """||P L (P u - u)|| at each time, as the filter sees it and in the strong sense.

    Attributes
    ----------
    coeffs : (n, r) array
        z_n of the L2 projection.
    epsilon : float
        epsilon_{M,tau}(u*) over the same times.
    assembled : (n,) array
        ``||project(u_t) + stiffness z||``: what enters the one-step residual of the filter.
    strong : (n,) array
        The same with the boundary integral of psi_i n.(A grad psi_j) added, which turns the assembled form into
        the operator L itself.
    constant : float
        C_L of the assembled residual, the one the lemma's proof needs; infinite if epsilon is zero and it is not.
    strong_constant : float
        C_L of the residual in the strong sense, as the lemma displays it.
    boundary : float
        Spectral norm of that boundary integral; zero for features that vanish on the boundary.
    """

    coeffs: FloatArray
    epsilon: float
    assembled: FloatArray
    strong: FloatArray
    constant: float
    strong_constant: float
    boundary: float

    def findings(self) -> list[Finding]:
        """Both constants; the certificate is for information, since no limit on C_L is stated."""
        line = partial(Finding, "approximation", GRAPH)
        limit = 1e-9 * max(1.0, self.constant)
        remedy = "the features do not vanish on the boundary: window them with bubble(...)"
        return [
            line("C_L, assembled: sup ||P L (P u - u)|| / epsilon", self.constant),
            line("C_L in the strong sense", self.strong_constant),
            line("boundary integral by which the two differ (spectral norm)", self.boundary, limit, remedy=remedy),
        ]


def graph_residual(
    space: WhitenedSpace, trajectory: Trajectory, times: ArrayLike, *, order: int | tuple[int, ...] | None = None
) -> GraphResidual:
    """The graph residual and its constant C_L (paper, "Graph-residual consistency certificate ...").

    P L u is the projection of u_t, because the field solves the unforced
    equation. P L P u exists twice. *Assembled*, it is -stiffness z: the form the
    filter steps with. In the *strong* sense, integration by parts adds the
    boundary integral of psi_i n.(A grad psi_j) (and takes Robin terms back out).

    The lemma displays the strong one, its proof uses the assembled one:
    with z = P u, (I + dt K) z_{n+1} - z_n = dt (K z_{n+1} + P u_t(t_{n+1})) - rho
    and ||rho|| <= M_2 dt^2 / 2, so that the residual of the step taken with K is
    controlled by ||P u_t + K z||, whatever L does in the strong sense. For
    features that vanish on the boundary the two are equal. For unwindowed
    features under a Dirichlet condition the strong residual may be moderate while
    the filter follows Neumann dynamics; only the assembled one shows it.

    The one-step residuals need t_1 .. t_N only: ``times`` may leave out t_0, where
    a rough initial field has no u_t to speak of.

    Parameters
    ----------
    space : WhitenedSpace
        Unforced; conforming or not.
    trajectory : Trajectory
        u*, with one time derivative.
    times : (n,) array_like
    order : int or tuple of int, optional
        Of the rule in space.
    """
    require_unforced(space)
    fine, K, B = FineBasis(space, order), space.stiffness, boundary_form(space)
    found = []
    for t in as_increasing("times", times).tolist():
        u = fine.values(trajectory, t)
        z = fine.project(u)
        residual = fine.project(fine.values(trajectory, t, 1)) + K @ z
        found.append((z, fine.distance(u, z), np.linalg.norm(residual), np.linalg.norm(residual - B @ z)))
    coeffs, errors, assembled, strong = (frozen(np.array(part)) for part in zip(*found, strict=True))
    epsilon = float(errors.max())
    C_L, C_strong = (relative_to(float(residual.max()), epsilon) for residual in (assembled, strong))
    return GraphResidual(coeffs, epsilon, assembled, strong, C_L, C_strong, float(np.linalg.norm(B, 2)))


def boundary_form(space: WhitenedSpace) -> FloatArray:
    """What integration by parts adds to the assembled form: (psi_i, L psi_j) = -K_ij + B_ij, (r, r)."""
    B = np.zeros((space.rank, space.rank))
    pde = space.pde
    for part, condition in pde.conditions.items():
        if part in space.features.zero_parts:
            continue
        for x, w, normal in pde.domain.boundary_rule(part, space.order).blocks(_BLOCK):
            values, gradients = space.features.jet(x)
            Psi, dPsi = values @ space.transform, gradients @ space.transform
            A = pde.diffusion_at(x)
            flux = A[:, None] * normal if A.ndim == 1 else np.einsum("nab,na->nb", A, normal)
            acting = np.einsum("na,anr->nr", flux, dPsi)
            if pde.conservative:
                acting -= np.einsum("na,na->n", pde.velocity_at(x), normal)[:, None] * Psi
            if isinstance(condition, Robin):
                acting += condition.coefficient * Psi
            B += Psi.T @ (w[:, None] * acting)
    return B


def relative_to(value: float, epsilon: float) -> float:
    """A residual in units of epsilon; infinite if epsilon is zero and the residual is not."""
    if epsilon > 0.0:
        return value / epsilon
    return 0.0 if value == 0.0 else math.inf
