"""What a whitened space says about itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..core.errors import (
    BoundaryJumpWarning,
    GrowthWarning,
    JointWarning,
    PecletWarning,
    QuadratureWarning,
    RFKalmanWarning,
    SpaceWarning,
)
from ..core.show import Told
from .traces import LARGE_MISFIT, misfit_text


@dataclass(frozen=True, slots=True, repr=False)
class SpaceReport(Told):
    """The health of a whitened space, for reading (``print``) and for machines (``as_dict``).

    Attributes
    ----------
    rank, n_features : int
        Effective rank r of M features.
    mass_floor, floor_candidates
        The floor, and the grid it was chosen from if it was.
    order, n_quad
        Quadrature points per axis and in all.
    eta : float
        Departure from orthonormality on a second rule.
    operator_defect : float
        Relative change of the stiffness on that rule; 0 for constant coefficients.
    smallest_kept, discarded_tail : float
        Relative mass eigenvalue of the weakest kept direction; share of the total mass that was discarded.
    stiffness_low, stiffness_high : list of float
        Lowest and highest eigenvalues of the symmetric part of the stiffness (1 / time).
    growth : float
        w0 = max(0, -lambda_min): |exp(-K t)| <= exp(w0 t). A reaction that feeds, or a flow that converges, gives one.
    inflow : float
        Largest -(coefficient + b.n / 2) on a free boundary part: above 0 what flows in there makes the field grow.
    leverage : float
        Largest |Psi(x)|^2 found on the quadrature points and a grid with the boundary.
    field_std, field_std_peak : float
        Field standard deviation that ``isotropic(std=1)`` implies: root mean square, and largest.
    peclet : float
        |velocity| / sqrt(diffusion lambda_max): above 1 the space may not resolve the layers of the flow.
    resolution : float
        Half a wavelength of the finest direction kept; sources and wells narrower than that are not resolved.
    n_lifts : int
        Directions set apart to carry Dirichlet values.
    trace_eps : float
        Largest rms trace that counts as zero; 0 where a window makes it exactly zero. The consistency defect of the
        dynamics is at most this times the rms flux through those parts.
    lift_norm, lift_misfit : float
        Size of the lifted boundary values in the domain, and the part of them the space cannot follow, both
        relative to the rms of the values.
    lift_place : list of float
        Where on the boundary they are followed worst.
    mixed_corners : int
        Re-entrant corners, joints of a held and a free boundary part, and in space edges of either kind by the parts
        that meet there, at which the field is singular and no feature is.
    is_conforming : bool
        Whether the features satisfy the boundary condition.
    smallest_floor : float
        The smallest floor the features' quadrature can carry.
    equation : float or None
        How far the space strays from its own equation, judged by a richer one; None until a model was built on it.
    added : list of str
        What was added to the features asked for because the problem declares it.
    notes : list of str
        What was noticed when the domain was read (turned cells, dropped coordinates).
    """

    rank: int
    n_features: int
    dimension: int
    mass_floor: float
    floor_candidates: list[float]
    order: list[int]
    n_quad: int
    eta: float
    operator_defect: float
    smallest_kept: float
    discarded_tail: float
    stiffness_low: list[float]
    stiffness_high: float
    growth: float
    inflow: float
    leverage: float
    field_std: float
    field_std_peak: float
    peclet: float
    resolution: float
    n_lifts: int
    trace_eps: float
    lift_norm: float
    lift_misfit: float
    lift_place: list[float]
    mixed_corners: int
    is_conforming: bool
    smallest_floor: float
    equation: float | None
    added: list[str]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers and lists, ready for JSON."""
        return {**asdict(self), "warnings": self.warnings}

    def __str__(self) -> str:
        chosen = ""
        if len(self.floor_candidates) > 1:
            chosen = f", chosen from {len(self.floor_candidates)} candidates (union bound over them)"
        order = " x ".join(str(n) for n in self.order)
        low = ", ".join(f"{v:.5g}" for v in self.stiffness_low)
        lines = [
            f"whitened space: rank {self.rank} of {self.n_features} features in {self.dimension}D",
            f"  floor       {self.mass_floor:g}{chosen}; weakest kept direction {self.smallest_kept:.2g}, "
            f"discarded mass {self.discarded_tail:.2g}",
            f"  quadrature  Gauss-Legendre {order} ({self.n_quad} points); orthonormality defect eta {self.eta:.1e}"
            + (f", operator defect {self.operator_defect:.1e}" if self.operator_defect else ""),
            f"  stiffness   {low}, ... {self.stiffness_high:.5g} per unit of time"
            + (f"; growth bound {self.growth:.3g}" if self.growth else ""),
            f"  leverage    {self.leverage:.1f} (at least the rank, {self.rank})",
            f"  prior       isotropic(std=1) means a field std of {self.field_std:.3g} (rms), "
            f"{self.field_std_peak:.3g} at most",
        ]
        lines.append(f"  resolution  {self.resolution:.3g} (half a wavelength of the finest direction)")
        if self.n_lifts:
            lines.append(
                f"  boundary    {self.n_lifts} directions carry Dirichlet values; trace of the others at most "
                f"{self.trace_eps:.1e}"
                + (f"; lift {self.lift_norm:.2g} x the data, misfit {self.lift_misfit:.1e}" if self.lift_norm else "")
            )
        if self.peclet:
            lines.append(f"  transport   Peclet number of the space {self.peclet:.2g}")
        if self.equation is not None:
            lines.append(f"  equation    followed to {100 * self.equation:.2g} % (judged by a richer space)")
        lines += [f"  added       {text}" for text in self.added]
        lines += [f"  note        {text}" for text in self.notes]
        lines += [f"  warning     {text}" for text in self.warnings] or ["  warnings    none"]
        return "\n".join(lines)

    @property
    def warnings(self) -> list[str]:
        """What its user should know, in words; empty for a healthy space."""
        return [text for _, text in self.noticed]

    @property
    def noticed(self) -> list[tuple[type[RFKalmanWarning], str]]:
        """The same with the kind of each; those of a kind of their own are Python warnings too."""
        finer = max(self.peclet, 1.0) ** 1.2  # as measured: the highest eigenvalues grow more slowly than waves shorten
        conditions: list[tuple[bool, type[RFKalmanWarning], str]] = [
            (self.eta > 1e-3, QuadratureWarning, f"eta {self.eta:.1e} is visible: raise order or mass_floor"),
            (
                self.operator_defect > 1e-3,
                QuadratureWarning,
                "a coefficient function varies faster than the quadrature resolves: raise order",
            ),
            (
                not self.is_conforming,
                SpaceWarning,
                "the features ignore the Dirichlet condition: this is the natural Neumann dynamics",
            ),
            (
                self.rank == self.n_features > 1,
                SpaceWarning,
                "every feature survived the floor: the draw may under-sample its bandwidth",
            ),
            (
                self.mass_floor < self.smallest_floor,
                SpaceWarning,
                f"features with kinks limit the quadrature: floors below {self.smallest_floor:g} keep its error",
            ),
            (
                self.leverage > 10 * self.rank,
                SpaceWarning,
                "leverage far above the rank: the basis peaks, usually at an unconstrained boundary or an interface",
            ),
            (
                self.n_lifts > 3 * self.rank,
                SpaceWarning,
                f"{self.n_lifts} directions went to the boundary and {self.rank} are left: use more features, or a "
                "larger trace_eps (1e-2 in three dimensions)",
            ),
            (
                self.mixed_corners > 0,
                JointWarning,
                f"the field is singular at {self.mixed_corners} corner(s), joint(s) of a held and a free boundary "
                "part, or edge(s) where no feature is: values around them are wrong and the bands do not know "
                "(planar domains are given such features by whiten, unless enrich=False, a window that ends there or "
                "features bound before forbid it; in space let a part end at an edge of 90 degrees)",
            ),
            (self.lift_misfit > LARGE_MISFIT, BoundaryJumpWarning, misfit_text(self.lift_misfit, self.lift_place)),
            (
                self.growth > 0.0 and self.inflow > 0.0,
                GrowthWarning,
                f"the dynamics may grow by up to exp({self.growth:.3g} t): check the flow through Neumann parts "
                "(inflow wants Robin with a coefficient of at least -b.n / 2)",
            ),
            (
                # Features of an outflow are as thin as its layer, and have a number of one by themselves.
                self.peclet > (2.0 if any("outflow" in text for text in self.added) else 1.0),
                PecletWarning,
                f"advection dominates the smallest scale kept, {self.resolution:.2g}, with a Peclet number of "
                f"{self.peclet:.2g}: a length_scale {finer:.2g} times smaller with about "
                f"{self.n_features * finer**self.dimension:.2g} features brings it to about 1",
            ),
        ]
        return [(kind, text) for holds, kind, text in conditions if holds]
