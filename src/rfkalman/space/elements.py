"""A checker of another kind: the same equation by finite elements (extra ``fem``), to judge what features share.

A space and its richer twin are made of the same features. A flaw that they
share, such as a jump inside a function that nobody declared, is invisible to a
comparison of the two. Quadratic elements on a mesh of their own do not share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh, splu
from scipy.spatial import cKDTree

from ..core.checks import FloatArray, frozen
from ..core.pieces import row_blocks
from ..core.show import Shown
from ..domains import Box
from ..domains.cells import CellDomain
from ..features.base import FeatureMap
from ..physics.conditions import Dirichlet, Periodic
from ..physics.pde import LinearPDE
from .space import WhitenedSpace

#: Elements along the longest side of a line and of a plane domain: about 800 and 5000 nodes.
_ACROSS = {1: 400, 2: 28}
#: Modes that are compared.
_MODES = {1: 24, 2: 40}
#: Elements between two cuts.
_FEWEST = 4
#: Steps of the L-stable scheme of second order over the time that is compared.
_STEPS = 64
#: 1 - 1 / sqrt 2.
_GAMMA = 1.0 - math.sqrt(0.5)


def can_check(pde: LinearPDE) -> bool:
    """Whether finite elements can follow this equation here: installed, a line or a plane, nothing periodic."""
    plain = isinstance(pde.domain, (Box, CellDomain)) and not getattr(pde.domain, "curved", False)
    periodic = any(isinstance(condition, Periodic) for condition in pde.conditions.values())
    steady = not pde.factors and not pde.conservative
    return find_spec("skfem") is not None and plain and pde.domain.dimension < 3 and not periodic and steady


def element_error(space: WhitenedSpace, columns: FloatArray, after: FloatArray, t: float) -> float:
    """How far fields carried by a space are from the same fields carried by finite elements, rms beside the field.

    ``columns`` (r, p) are coefficients of the fields at the start, ``after`` (r, p) those a time ``t`` later; held
    values count as zero, sources as absent.
    """
    found = _assembled(space.pde, space.features)
    x = np.clip(found.basis.doflocs.T[found.free], space.pde.domain.lower, space.pde.domain.upper)
    inside = np.asarray(space.pde.domain.contains(x), dtype=np.bool_)
    Psi = np.zeros((len(x), space.rank))
    Psi[inside] = space(x[inside])
    M, K = (A[found.free][:, found.free] for A in (found.M, found.K))
    u, h = Psi @ columns, t / _STEPS
    solve = splu((M + _GAMMA * h * K).tocsc()).solve
    for _ in range(_STEPS):
        first = solve(-(K @ u))
        u = u + h * ((1.0 - _GAMMA) * first + _GAMMA * solve(-(K @ (u + (1.0 - _GAMMA) * h * first))))
    ours = Psi @ after
    missed, size = ((np.einsum("ij,ij->", e, M @ e)) for e in (u - ours, ours))
    return math.sqrt(max(missed, 0.0) / size) if size > 0.0 else 0.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ElementModes(Shown):
    """The slowest c modes of an equation by finite elements: what they say of a field carried by features.

    Whatever the field does elsewhere, its integral z against a mode obeys dz/dt = -rate z + loads, so each mode is a
    check of its own and none is lost by having only some of them.

    Attributes
    ----------
    rates : (c,) array
        Of decay.
    overlap : (c, R + R1) array
        Integrals of the modes times the directions of a space and its lifts.
    walls : (c, R1) array
        What boundary values of the lift directions add to dz/dt.
    """

    rates: FloatArray
    overlap: FloatArray
    walls: FloatArray


def element_modes(space: WhitenedSpace) -> ElementModes:
    """The slowest modes of a symmetric equation beside the directions of a space."""
    found, frame, r = _assembled(space.pde, space.features), space.frame, space.rank
    free, basis, volume = found.free, found.basis, space.pde.domain.volume
    M, K = (A[free][:, free] for A in (found.M, found.K))
    count = min(_MODES[space.dimension], len(free) - 2)
    # Just below the lowest rate, which is zero on an insulated domain.
    shift = -0.1 * float(K.diagonal().sum() / M.diagonal().sum()) / len(free)
    rates, modes = eigsh(K, count, M, sigma=shift, which="LM")
    modes = modes * math.sqrt(volume)  # of unit mean square
    nodal = np.zeros((basis.N, count))
    nodal[free] = modes
    points = np.moveaxis(np.asarray(basis.global_coordinates()), 0, -1).reshape(-1, space.dimension)
    inside = np.asarray(space.pde.domain.contains(points), dtype=np.bool_)
    values = np.stack([np.asarray(basis.interpolate(mode)).ravel() for mode in nodal.T])
    weighted = (values * (basis.dx.ravel() / volume))[:, inside]
    points = points[inside]
    overlap = np.zeros((count, frame.rank))
    for some in row_blocks(len(points), 4096):
        overlap += weighted[:, some] @ frame(points[some])
    # With g on the held nodes: z = mode . (M u + M g), and M u' + M g' = -K u - K g.
    held = np.setdiff1d(np.arange(basis.N), free)
    pull = (rates[:, None] * (modes.T @ found.M[free][:, held]) - modes.T @ found.K[free][:, held]) / volume
    at = np.clip(basis.doflocs.T[held], space.pde.domain.lower, space.pde.domain.upper)
    return ElementModes(frozen(rates), frozen(overlap), frozen(pull @ frame(at)[:, r:]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Assembled(Shown):
    """Mass and stiffness of all nodes of a mesh, and which of them are not held."""

    basis: Any
    M: Any
    K: Any
    free: Any


def _assembled(pde: LinearPDE, features: FeatureMap) -> _Assembled:
    import skfem as fem
    from skfem.helpers import dot, grad

    d = pde.domain.dimension
    mesh, element = _mesh(pde, features)
    basis = fem.Basis(mesh, element, intorder=4)

    def at(w: Any, values: Any) -> Any:
        x = np.moveaxis(np.asarray(w.x), 0, -1)
        found = values(x.reshape(-1, d))
        return np.moveaxis(found.reshape(*x.shape[:-1], *found.shape[1:]), (0, 1), (-2, -1))

    def stiffness(u: Any, v: Any, w: Any) -> Any:
        A, c = at(w, pde.diffusion_at), at(w, pde.reaction_at)
        flux = A * grad(u) if A.ndim == 2 else np.einsum("ij...,j...->i...", A, grad(u))
        return dot(flux, grad(v)) + dot(at(w, pde.velocity_at), grad(u)) * v + c * u * v

    def mass(u: Any, v: Any, w: Any) -> Any:
        return u * v

    M, K = (fem.BilinearForm(form).assemble(basis).tocsc() for form in (mass, stiffness))
    held: set[int] = set()
    for name, facets in _facets(pde, mesh).items():
        condition = pde.conditions[name]
        if isinstance(condition, Dirichlet):
            held.update(basis.get_dofs(facets).all().tolist())
        elif condition.exchange is not None:
            edge = fem.FacetBasis(mesh, element, facets=facets)
            K = K + condition.exchange * fem.BilinearForm(mass).assemble(edge).tocsc()
    return _Assembled(basis, M, K, np.setdiff1d(np.arange(basis.N), sorted(held)))


def _mesh(pde: LinearPDE, features: FeatureMap) -> tuple[Any, Any]:
    """A mesh of the domain that is not aligned with what nobody declared, and its quadratic element.

    It is finer where the quadrature of features is cut: in the layer of an outflow elements must be small too.
    """
    import skfem as fem

    domain, n = pde.domain, _ACROSS[pde.domain.dimension]
    if isinstance(domain, Box):
        lines = []
        for axis, (a, b) in enumerate(zip(domain.lower, domain.upper, strict=True)):
            count = max(8, math.ceil(n * domain.side[axis] / domain.side.max()))
            cuts = {*features.kinks[axis].tolist(), *([] if pde.breaks is None else pde.breaks[axis])}
            ends = [a, *sorted(v for v in cuts if a < v < b), b]
            shares = [max(_FEWEST, round(count * (q - p) / (b - a))) for p, q in pairwise(ends)]
            pieces = [np.linspace(p, q, k + 1) for (p, q), k in zip(pairwise(ends), shares, strict=True)]
            lines.append(np.unique(np.concatenate(pieces)))
        if domain.dimension == 1:
            return fem.MeshLine(lines[0]), fem.ElementLineP2()
        return fem.MeshTri.init_tensor(*lines), fem.ElementTriP2()
    assert isinstance(domain, CellDomain)
    nodes = domain._nodes + domain.lower
    places, index = np.unique(nodes.reshape(-1, 2).round(12), axis=0, return_inverse=True)
    mesh = fem.MeshTri(places.T, index.reshape(-1, 3).T)
    while mesh.t.shape[1] < n * n:
        mesh = mesh.refined()
    return mesh, fem.ElementTriP2()


def _facets(pde: LinearPDE, mesh: Any) -> dict[str, Any]:
    """The boundary facets of each part: that of the nearest point of its boundary rule."""
    domain = pde.domain
    own = mesh.boundary_facets()
    middles = mesh.p[:, mesh.facets[:, own]].mean(axis=1).T
    points = [np.vstack([x for x, *_ in domain.boundary_rule(part, 64).blocks(65536)]) for part in domain.parts]
    owner = np.repeat(np.arange(len(points)), [len(x) for x in points])
    nearest = owner[cKDTree(np.vstack(points)).query(middles)[1]]
    return {part: own[nearest == i] for i, part in enumerate(domain.parts)}
