"""Features x quadrature x PDE, streamed in two passes.

Pass 1 finds the whitening transform from a QR of the weighted feature matrix,
pass 2 assembles every operator from *whitened* features. Two detours are
avoided on purpose: the Gram matrix squares the condition (below a floor of
1e-10 its eigenvectors are noise), and T^T K T cancels catastrophically (at a
floor of 1e-20 it turned an eigenvalue of 19.7 into -8700).

Peak memory is set by the caller's budget and does not depend on N_c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.linalg import svd

from ..core.checks import FloatArray, as_number, frozen
from ..core.errors import DefinitenessError, FloorError, ValueRangeError
from ..core.linalg import qr_factor
from ..core.show import Shown
from ..domains import BoundaryRule, Rule
from ..features.base import FeatureMap
from ..features.enrichments.jumps import AngleMap
from ..physics.pde import LinearPDE

AXES = "xyz"
#: Below this floor the Gram route returns rounding noise as features.
GRAM_FLOOR = 1e-10
#: Allocator and LAPACK workspace outside our arrays, in bytes (measured: 2 to 4 MB).
_SLACK = 6e6


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spectrum(Shown):
    """Singular values of the weighted features and their right singular vectors.

    ``values`` (M,) descending, ``vectors`` (M, M) by columns; the paper's mass
    eigenvalues are ``values**2``.
    """

    values: FloatArray
    vectors: FloatArray

    def rank(self, floor: float) -> int:
        """The effective rank r: eigenvalues strictly above ``floor`` times the largest, as in the paper."""
        lam = np.square(self.values)
        return int((lam > floor * lam[0]).sum())

    def transform(self, floor: float) -> FloatArray:
        """T (M, r) with whitened features Psi = Phi T."""
        r = self.rank(floor)
        return self.vectors[:, :r] / self.values[:r]


SpectrumRoute = Callable[[FeatureMap, Rule, float, float], Spectrum]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Term(Shown):
    """One affine term of the stiffness: ``value`` times ``matrix``, times ``factor(t)`` if it changes in time."""

    name: str
    value: float
    matrix: FloatArray
    factor: Callable[[float], float] | None = None

    def factor_at(self, t: float) -> float:
        """The factor at a time, 1 where there is none; a diffusion must stay positive."""
        if self.factor is None:
            return 1.0
        name = self.name.split(".")[0]
        value = as_number(f"the factor of {name} at t = {t:g}", self.factor(t))
        if name == "diffusion" and value <= 0.0:
            raise DefinitenessError(
                f"the factor of diffusion is {value:g} at t = {t:g} but must be positive: a diffusivity of zero or "
                "below makes the problem ill-posed."
            )
        return value

    @property
    def is_advection(self) -> bool:
        """Whether an implicit-explicit scheme may treat it explicitly."""
        return self.name.startswith("velocity")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Assembly(Shown):
    """What the second pass gives."""

    terms: tuple[Term, ...]
    gradient_form: FloatArray  # unit-coefficient integral of grad Psi . grad Psi, (r, r)
    unit_load: FloatArray  # integral of Psi, (r,)
    mass: FloatArray  # integral of Psi^T Psi, (r, r)
    leverage: float  # largest |Psi|^2 at the quadrature points
    fastest: float  # largest |velocity|
    slowest_diffusion: float  # smallest (eigenvalue of the) diffusion

    @property
    def stiffness(self) -> FloatArray:
        """The sum of the terms, (r, r)."""
        return sum((term.value * term.matrix for term in self.terms), np.zeros_like(self.mass))


def block_rows(features: FeatureMap, rank: int, memory: float) -> int:
    """Quadrature points per block within ``memory`` bytes, or an error that names the smallest budget.

    Counts what is alive at once: values, gradients and the temporaries of one
    jet, their whitened images, the QR work array, and the r x r sums.
    """
    M, d = features.n_features, features.dimension
    fixed, per_row = _needs(M, rank, d)
    if least_memory(M, rank, d) > memory:
        raise ValueRangeError(
            f"memory is {memory / 1e6:.0f} MB but {M} features in {d} dimensions need at least "
            f"{least_memory(M, rank, d) / 1e6:.0f} MB; raise memory= or use fewer features."
        )
    # Past a few thousand rows larger blocks are no faster and only evict the cache.
    return int(min((memory - fixed) / per_row, max(4096, 4 * M)))


def least_memory(M: int, rank: int, d: int) -> float:
    """The smallest budget in bytes with which M features in d dimensions can be assembled."""
    fixed, per_row = _needs(M, rank, d)
    return fixed + min(2 * M, 256) * per_row


def _needs(M: int, rank: int, d: int) -> tuple[float, float]:
    """Bytes needed at any rate, and for each quadrature point."""
    fixed = 8.0 * (6 * M * M + (d * d + 6) * rank * rank) + _SLACK
    return fixed, 8.0 * ((4 + 2 * d) * M + (3 + 2 * d) * rank)


def svd_spectrum(features: FeatureMap, rule: Rule, floor: float, memory: float) -> Spectrum:
    """Streamed QR of the weighted feature matrix, then an SVD of its M x M factor.

    R <- qr([R; sqrt(w) Phi]) block by block: singular values keep their digits
    down to about 1e-15 of the largest, that is floors down to 1e-20.
    """
    M = features.n_features
    R = np.zeros((0, M))
    for x, w in rule.blocks(block_rows(features, M, memory)):
        rows = features(x)
        rows *= np.sqrt(w)[:, None]
        stacked = np.empty((R.shape[0] + rows.shape[0], M), order="F")
        stacked[: R.shape[0]] = R
        stacked[R.shape[0] :] = rows
        R = qr_factor(stacked)
    _, values, vectors = svd(R, overwrite_a=True, check_finite=False, lapack_driver="gesvd")
    return Spectrum(frozen(values), frozen(vectors.T))


def gram_spectrum(features: FeatureMap, rule: Rule, floor: float, memory: float) -> Spectrum:
    """The paper's route: eigenvectors of the mass matrix. For comparison; refuses floors below 1e-10.

    Squaring the features costs half the digits: at a floor of 1e-14 the whitened
    features are orthonormal only to 1e-2, at 1e-16 they are not at all.
    """
    if floor < GRAM_FLOOR:
        raise FloorError(
            f"mass_floor is {floor:g}, but the Gram route keeps rounding noise below {GRAM_FLOOR:g}; "
            "use the default route (svd_spectrum), which is good to 1e-20."
        )
    lam, vectors = np.linalg.eigh(mass_matrix(features, rule, memory))
    order = np.argsort(-lam, kind="stable")
    values = np.sqrt(np.where(lam[order] > 0.0, lam[order], 0.0))
    return Spectrum(frozen(values), frozen(vectors[:, order]))


def mass_matrix(features: FeatureMap, rule: Rule, memory: float) -> FloatArray:
    """Raw mass matrix of the paper, normalised measure, (M, M)."""
    M = features.n_features
    mass = np.zeros((M, M))
    for x, w in rule.blocks(block_rows(features, M, memory)):
        mass += weighted_gram(w, features(x))
    return mass


def weighted_gram(w: FloatArray, values: FloatArray) -> FloatArray:
    """The weighted sum of products of columns, values^T diag(w) values, symmetric to the bit."""
    rows = np.sqrt(w)[:, None] * values
    return rows.T @ rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace(Shown):
    """How whitened directions meet a part of the boundary.

    ``kept`` (r0, r) spans the directions whose rms trace is at most ``eps``,
    ``lifts`` (r0, r1) the others, with rms traces ``strengths`` (r1,). Data g at
    the boundary points, in the order of the rules, have the lift coefficients
    ``(rows.T @ g) / strengths`` with ``rows`` (n, r1).
    """

    kept: FloatArray
    lifts: FloatArray
    strengths: FloatArray
    rows: FloatArray
    eps: float


def trace_split(features: FeatureMap, T: FloatArray, rules: Sequence[BoundaryRule], eps: float, memory: float) -> Trace:
    """Split whitened directions by their trace on the given boundary parts.

    The boundary measure is normalised to one, so a strength is the rms trace of
    a direction of unit norm, whatever the units. QR first, then an SVD of the
    small factor; the left vectors are kept, because lifting data through
    E^T g would square the condition and leave nothing of a strength of 1e-6.
    """
    _, w, Psi = gathered(block for rule in rules for block in whitened_blocks(features, T, rule, memory))
    root = np.sqrt(w / w.sum())
    Q, R = np.linalg.qr(root[:, None] * Psi)
    left, values, right = svd(R, check_finite=False, lapack_driver="gesvd")
    lifted = values > eps
    kept = right[: values.size][~lifted]
    if R.shape[0] < R.shape[1]:
        # Fewer boundary points than directions (end points of an interval): the rest has no trace at all.
        kept = np.vstack([kept, right[R.shape[0] :]])
    return Trace(
        frozen(np.ascontiguousarray(kept.T)),
        frozen(np.ascontiguousarray(right[: values.size][lifted].T)),
        frozen(values[lifted]),
        frozen(root[:, None] * (Q @ left[:, lifted])),
        eps,
    )


def whitened_blocks(
    features: FeatureMap, T: FloatArray, rule: Rule | BoundaryRule, memory: float
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Points, weights and whitened features of a rule, block by block."""
    for x, w, *_ in rule.blocks(block_rows(features, T.shape[1], memory)):
        yield x, w, features(x) @ T


def gathered(blocks: Iterable[tuple[FloatArray, ...]]) -> tuple[FloatArray, ...]:
    """The arrays of all blocks, each as one."""
    return tuple(np.concatenate(arrays) for arrays in zip(*blocks, strict=True))


def assemble(
    pde: LinearPDE,
    features: FeatureMap,
    T: FloatArray,
    rule: Rule,
    memory: float,
    boundary: Mapping[str, BoundaryRule] | None = None,
) -> Assembly:
    """Second pass: every operator of the PDE in whitened coordinates.

    K_kl = a(psi_l, psi_k), row = test function: it matters as soon as there is
    a velocity. Constant coefficients are kept apart from their matrices, so
    that another value needs no new assembly. ``boundary`` holds the rules of
    the parts that contribute to the operator (Robin conditions).
    """
    M, r = T.shape
    d = features.dimension
    sums: dict[str, FloatArray] = {name: np.zeros((r, r)) for name in _term_values(pde)}
    mass, form, unit_load = np.zeros((r, r)), np.zeros((r, r)), np.zeros(r)
    leverage, fastest, slowest = 0.0, 0.0, np.inf
    for x, w in rule.blocks(block_rows(features, r, memory)):
        values, gradients = features.jet(x)
        Psi = values @ T
        dPsi = (gradients.reshape(-1, M) @ T).reshape(d, len(x), r)
        del values, gradients
        root = np.sqrt(w)[:, None]
        leverage = max(leverage, float(np.einsum("ij,ij->i", Psi, Psi).max()))
        unit_load += w @ Psi
        mass += weighted_gram(w, Psi)
        slowest = min(slowest, _add_diffusion(sums, pde, x, w, dPsi))
        if callable(pde.diffusion) or isinstance(pde.diffusion, np.ndarray):
            rows = (root * dPsi).reshape(-1, r)
            form += rows.T @ rows
        if pde.velocity is not None:
            fastest = max(fastest, _add_advection(sums, pde, x, w, Psi, dPsi))
        if callable(pde.reaction):
            sums["reaction"] += Psi.T @ ((w * pde.reaction_at(x))[:, None] * Psi)
    if "reaction" in sums and not callable(pde.reaction):
        sums["reaction"] = np.eye(r)
    for part, edge in (boundary or {}).items():
        for _, w, Psi in whitened_blocks(features, T, edge, memory):
            sums[f"robin.{part}"] += weighted_gram(w, Psi)
    if not callable(pde.diffusion) and not isinstance(pde.diffusion, np.ndarray):
        form = sums["diffusion"]
    terms = tuple(
        Term(name, value, frozen(sums[name]), pde.factors.get(name.split(".")[0]))
        for name, value in _term_values(pde).items()
    )
    return Assembly(terms, frozen(form.copy()), frozen(unit_load), frozen(mass), leverage, fastest, slowest)


def without_wall_flux(
    pde: LinearPDE,
    features: FeatureMap,
    T: FloatArray,
    angles: AngleMap,
    rule: Rule,
    memory: float,
    held: Mapping[str, BoundaryRule],
    free: Mapping[str, BoundaryRule],
) -> FloatArray:
    """What the diffusion form of angles lacks against functions that vanish on held parts only nearly, (n, J).

    By parts, the integral of A grad theta . grad psi has a flux through held parts, like 1 / r along them, that a
    small trace of psi multiplies. Without it, and with B = A(vertex), for which theta has no sources, what is left is
    the integral of (A - B) grad theta . grad psi, less the flux of (A - B) grad theta through held parts, and the flux
    of B grad theta through the others: bounded integrands, and zero for a constant A and no other parts.
    """
    n, J, d = T.shape[1], angles.n_features, features.dimension
    fix = np.zeros((n, J))
    at = pde.diffusion_at(angles.vertices)
    B = at if at.ndim == 3 else at[:, None, None] * np.eye(d)

    def flux(x: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("jab,bnj->anj", B, angles.jet(x)[1]))

    for x, w in rule.blocks(block_rows(features, n, memory)):
        dPsi = (features.jet(x)[1].reshape(-1, len(T)) @ T).reshape(d * len(x), n)
        fix -= dPsi.T @ (w[:, None] * flux(x)).reshape(-1, J)
    for edges, sign in ((held, -1.0), (free, 1.0)):
        for edge in edges.values():
            for x, w, normal in edge.blocks(block_rows(features, n, memory)):
                through = flux(x)
                if edges is held:
                    A = pde.diffusion_at(x)
                    own = A if A.ndim == 3 else A[:, None, None] * np.eye(d)
                    through = np.einsum("nab,bnj->anj", own, angles.jet(x)[1]) - through
                fix += sign * (features(x) @ T).T @ (w[:, None] * np.einsum("na,anj->nj", normal, through))
    return fix


def project(
    function: Callable[[FloatArray], FloatArray], features: FeatureMap, T: FloatArray, rule: Rule, memory: float
) -> FloatArray:
    """Integral of ``function`` times each whitened feature: the L2 projection, (r,)."""
    total = np.zeros(T.shape[1])
    for x, w in rule.blocks(block_rows(features, T.shape[1], memory)):
        total += (w * function(x)) @ features(x) @ T
    return total


def _term_values(pde: LinearPDE) -> dict[str, float]:
    """Names of the affine terms of this PDE and the coefficient each one carries."""
    values: dict[str, float] = {}
    for name in ("diffusion", "velocity", "reaction"):
        given: Any = getattr(pde, name)
        if callable(given):
            values[name] = 1.0
        elif isinstance(given, np.ndarray):
            # The entries of a vector, or of a symmetric tensor from its diagonal on.
            for index in combinations_with_replacement(range(len(given)), given.ndim):
                values[f"{name}.{''.join(AXES[i] for i in index)}"] = float(given[index])
        elif given:
            values[name] = float(given)
    for part, condition in pde.conditions.items():
        if condition.exchange is not None:
            values[f"robin.{part}"] = condition.exchange
    return values


def _add_diffusion(
    sums: dict[str, FloatArray], pde: LinearPDE, x: FloatArray, w: FloatArray, dPsi: FloatArray
) -> float:
    """Add this block's gradient forms; give the smallest diffusivity seen."""
    d, _, r = dPsi.shape
    if isinstance(pde.diffusion, np.ndarray):
        for a in range(d):
            for b in range(a, d):
                product = dPsi[a].T @ (w[:, None] * dPsi[b])
                sums[f"diffusion.{AXES[a]}{AXES[b]}"] += product if a == b else product + product.T
        return _along_flow(pde, x, np.broadcast_to(pde.diffusion, (len(x), d, d)))
    if not callable(pde.diffusion):
        rows = (np.sqrt(w)[:, None] * dPsi).reshape(-1, r)
        sums["diffusion"] += rows.T @ rows
        return float(pde.diffusion)
    A = pde.diffusion_at(x)
    if A.ndim == 1:
        rows = (np.sqrt(w * A)[:, None] * dPsi).reshape(-1, r)
        sums["diffusion"] += rows.T @ rows
        return float(A.min())
    flux = np.einsum("nab,bnr->anr", A * w[:, None, None], dPsi)
    form = dPsi.reshape(-1, r).T @ flux.reshape(-1, r)
    sums["diffusion"] += 0.5 * (form + form.T)
    return _along_flow(pde, x, A)


def _along_flow(pde: LinearPDE, x: FloatArray, A: FloatArray) -> float:
    """The smallest diffusivity that acts against the flow; the smallest of all where nothing flows."""
    b = pde.velocity_at(x)
    speed2 = np.square(b).sum(axis=1)
    moving = speed2 > 0.0
    if not moving.any():
        return float(np.linalg.eigvalsh(A)[:, 0].min())
    return float((np.einsum("na,nab,nb->n", b, A, b)[moving] / speed2[moving]).min())


def _add_advection(
    sums: dict[str, FloatArray], pde: LinearPDE, x: FloatArray, w: FloatArray, Psi: FloatArray, dPsi: FloatArray
) -> float:
    """Add this block's integral of (b . grad psi_l) psi_k, or of -psi_l b . grad psi_k; give the largest speed seen."""
    test = (w[:, None] * Psi).T

    def form(transported: FloatArray) -> FloatArray:
        product = test @ transported
        return -product.T if pde.conservative else product

    if callable(pde.velocity):
        b = pde.velocity_at(x)
        sums["velocity"] += form(np.asarray(np.einsum("na,anr->nr", b, dPsi)))
        return float(np.linalg.norm(b, axis=1).max())
    assert pde.velocity is not None
    for a in range(dPsi.shape[0]):
        sums[f"velocity.{AXES[a]}"] += form(dPsi[a])
    return float(np.linalg.norm(pde.velocity))
