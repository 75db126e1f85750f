"""Finite elements that share nothing with the library: own meshes, own quadrature, own elimination, own time stepping.

scikit-fem assembles quadratic elements; a two-stage SDIRK marches them. Both
sides are compared at fifty random points. The difference must fall as the
finite-element mesh is refined, until what is left is the library's own error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import splu

import rfkalman as rk
from rfkalman.features import log_radius
from rfkalman.filters import kalman

pytest.importorskip("skfem")
pytest.importorskip("shapely")
meshio = pytest.importorskip("meshio")

from skfem import Basis, BilinearForm, ElementTriP2, FacetBasis, LinearForm, MeshTri, MeshTri2  # noqa: E402

Array = np.ndarray
STEPS = 100
#: Required of the finest mesh, relative to the largest value of the field at the probes.
TOLERANCE = 1e-4


# -- the finite-element side -------------------------------------------------------------------------------------------


def at_rows(function: Callable[[Array], Array], x: Array) -> Array:
    """A function of (n, 2) points at skfem's (2, ...) coordinates."""
    return function(np.moveaxis(x, 0, -1).reshape(-1, 2)).reshape(x.shape[1:])


@BilinearForm
def inner(u, v, _):
    return u * v


@BilinearForm
def energy(u, v, w):
    """Unit diffusion and a constant velocity."""
    gu, gv = u.grad, v.grad
    return gu[0] * gv[0] + gu[1] * gv[1] + (w.bx * gu[0] + w.by * gu[1]) * v


def sdirk2(mass, stiffness, load: Array, z: Array, horizon: float) -> Array:
    """Alexander's L-stable two-stage method in constant steps."""
    dt, g = horizon / STEPS, 1.0 - np.sqrt(0.5)
    solver = splu((mass + g * dt * stiffness).tocsc())
    for _ in range(STEPS):
        first = solver.solve(load - stiffness @ z)
        second = solver.solve(load - stiffness @ (z + (1.0 - g) * dt * first))
        z = z + dt * ((1.0 - g) * first + g * second)
    return z


def eliminated(basis, stiffness, load: Array, values: Array, held: Array, horizon: float) -> Array:
    """March the free nodes with the others held at their initial values; all nodal values at the end."""
    free = np.setdiff1d(np.arange(basis.N), held)
    mass, stiffness = inner.assemble(basis).tocsr(), stiffness.tocsr()
    driven = (load - stiffness[:, held] @ values[held])[free]
    values = values.copy()
    values[free] = sdirk2(mass[free][:, free], stiffness[free][:, free], driven, values[free], horizon)
    return values


def forecast_mean(pde: rk.LinearPDE, features: object, start: Callable[[Array], Array], horizon: float, x: Array):
    """The library's field at probes after one exact step from a known start."""
    space = rk.whiten(pde, features)
    model = rk.Model(space, rk.FromFunction(start, rk.isotropic(1e-3)), check="later")
    belief = kalman.forecast(model.initial, model.step(0.0, horizon))
    return model.field(belief, horizon).mean(x), space


def differences(ours: Array, theirs: list[Array]) -> list[float]:
    size = float(np.abs(theirs[-1]).max())
    return [float(np.abs(ours - values).max()) / size for values in theirs]


# -- the L-shape: a re-entrant corner, all of the boundary at zero -----------------------------------------------------

L_SHAPE = [[-1.0, -1.0], [1.0, -1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [-1.0, 1.0]]
L_TIME = 0.05
L_PROBES = rk.Polygon(L_SHAPE).sample(50, np.random.default_rng(5))


def l_start(x: Array) -> Array:
    """Zero on the boundary, smooth, and not an eigenfunction: it feeds the singular mode of the corner."""
    return np.asarray(np.sin(np.pi * x).prod(axis=1) * (1.5 + x[:, 0] + 0.5 * x[:, 1]))


def l_fem(level: int, velocity: tuple[float, float]) -> Array:
    """Values at the probes on a mesh halved ``level`` times everywhere and further towards the corner."""
    mesh = MeshTri.init_lshaped().refined(level)
    # A uniform mesh is limited by r^(2/3) at the corner, not by its order.
    for _ in range(2 * level + 4):
        at_corner = (np.abs(mesh.p[:, mesh.t]).sum(axis=0) < 1e-12).any(axis=0)
        mesh = mesh.refined(np.flatnonzero(at_corner))
    basis = Basis(mesh, ElementTriP2(), intorder=6)
    held = basis.get_dofs().all()
    values = l_start(basis.doflocs.T)
    values[held] = 0.0
    stiffness = energy.assemble(basis, bx=velocity[0], by=velocity[1])
    values = eliminated(basis, stiffness, np.zeros(basis.N), values, held, L_TIME)
    return np.asarray(basis.probes(L_PROBES.T) @ values)


def l_ours(velocity: tuple[float, float], waves: int, corner: int, scale: float):
    pde = rk.AdvectionDiffusion(rk.Polygon(L_SHAPE), 1.0, velocity)
    features = rk.GaussianRFF(waves, scale, seed=1) + rk.CornerRFF(corner)
    return forecast_mean(pde, features, l_start, L_TIME, L_PROBES)


@pytest.mark.parametrize("velocity", [(0.0, 0.0), (4.0, 2.0)], ids=["heat", "advection"])
def test_l_shape_agrees_with_finite_elements_ever_better(velocity: tuple[float, float]) -> None:
    """Measured: 1.5e-3, 1.4e-4, 3.1e-5 (heat) and 2.2e-3, 1.9e-4, 4.1e-5 (advection) on three meshes.

    The last figures hardly depend on the features (2.9e-5 to 3.1e-5 for 300 to
    600 waves): they are the finite elements' own. A factor of 3 per level is
    what quadratic elements on a graded mesh give at least.
    """
    ours, _ = l_ours(velocity, 300, 150, 0.3)
    coarse, medium, fine = differences(ours, [l_fem(level, velocity) for level in (3, 4, 5)])
    assert medium < coarse / 3.0 and fine < medium / 3.0
    assert fine < TOLERANCE


def test_l_shape_control_a_reversed_flow_is_seen() -> None:
    """A wrong sign of the velocity would be noticed: it moves the coarse solution by 1.08 of its size."""
    right, wrong = l_fem(3, (4.0, 2.0)), l_fem(3, (-4.0, -2.0))
    assert differences(wrong, [right])[0] > 1000.0 * TOLERANCE


@pytest.mark.study
@pytest.mark.parametrize("velocity", [(0.0, 0.0), (4.0, 2.0)], ids=["heat", "advection"])
def test_l_shape_on_a_finer_mesh_and_more_features(velocity: tuple[float, float], study_table) -> None:
    """One more halving and twice the features: the agreement must not get worse than on the fast meshes."""
    theirs = [l_fem(level, velocity) for level in (3, 4, 5, 6)]
    for waves, corner, scale in ((300, 150, 0.3), (600, 200, 0.25)):
        ours, space = l_ours(velocity, waves, corner, scale)
        found = differences(ours, theirs)
        for level, difference in zip((3, 4, 5, 6), found, strict=True):
            study_table.add(
                "finite elements, L-shape",
                velocity=str(velocity),
                features=waves + corner,
                rank=space.rank,
                level=level,
                difference=difference,
            )
        assert found[3] < TOLERANCE


# -- a plate with a round hole: mixed conditions, a file in gmsh's format ----------------------------------------------

RADIUS, EXCHANGE, WALL, PLATE_TIME = 0.3, 2.0, 0.5, 0.1


def plate_start(x: Array) -> Array:
    """Meets its own boundary values; its even derivatives vanish at the corners, so the field stays smooth there."""
    return np.asarray(WALL + 0.5 * np.cos(0.5 * np.pi * x[:, 1]) * (1.0 + x[:, 0]))


def surroundings(x: Array, t: float = 0.0) -> Array:
    """The ambient of the hole for which ``plate_start`` satisfies the Robin condition; the normal there is -x / R."""
    c, s = np.cos(0.5 * np.pi * x[:, 1]), np.sin(0.5 * np.pi * x[:, 1])
    slope = 0.5 * x[:, 0] * c - 0.25 * np.pi * x[:, 1] * s * (1.0 + x[:, 0])
    return np.asarray(plate_start(x) - slope / (RADIUS * EXCHANGE))


def drifting_start(x: Array) -> Array:
    """Even along the whole outer edge with its gradient zero at the corners, so that a flow keeps the field smooth."""
    return np.asarray(WALL + np.cos(0.5 * np.pi * x[:, 0]) * np.cos(0.5 * np.pi * x[:, 1]))


def drifting_surroundings(x: Array, t: float = 0.0) -> Array:
    """As above, for ``drifting_start``."""
    a, b = 0.5 * np.pi * x[:, 0], 0.5 * np.pi * x[:, 1]
    slope = -a * np.sin(a) * np.cos(b) - b * np.cos(a) * np.sin(b)
    return np.asarray(drifting_start(x) - slope / (RADIUS * EXCHANGE))


#: Initial field, ambient of the hole and velocity of the two problems on the plate.
STILL = (plate_start, surroundings, (0.0, 0.0))
DRIFTING = (drifting_start, drifting_surroundings, (4.0, 2.0))


def plate_cells(n: int) -> tuple[Array, Array, Array, Array]:
    """Quadratic triangles between circle and square, n rings of 8 n pairs: nodes, cells, hole, outer edges.

    Nodes lie on a regular grid in (ring, angle), so those of n are among those of 2 n.
    """
    rings, spokes = 2 * n + 1, 16 * n
    s = np.expm1(1.2 * np.linspace(0.0, 1.0, rings)) / np.expm1(1.2)
    angle = 2.0 * np.pi * np.arange(spokes) / spokes
    way = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    square = 1.0 / np.abs(way).max(axis=1)
    nodes = ((RADIUS * (1.0 - s[:, None]) + s[:, None] * square)[:, :, None] * way).reshape(-1, 2)

    def number(i: Array, j: Array) -> Array:
        return np.asarray(i * spokes + j % spokes)

    i, j = (part.ravel() for part in np.meshgrid(2 * np.arange(n), 2 * np.arange(8 * n), indexing="ij"))
    one = [(0, 0), (2, 0), (2, 2), (1, 0), (2, 1), (1, 1)]
    two = [(0, 0), (2, 2), (0, 2), (1, 1), (1, 2), (0, 1)]
    cells = np.concatenate([np.stack([number(i + a, j + b) for a, b in t], axis=1) for t in (one, two)])
    k = 2 * np.arange(8 * n)
    hole, outer = (np.stack([number(np.full_like(k, r), k + m) for m in (0, 2, 1)], axis=1) for r in (0, 2 * n))
    return nodes, cells, hole, outer


def plate_probes() -> Array:
    """Fifty of the inner nodes of the coarsest mesh, which all finer ones share."""
    rings = plate_cells(4)[0].reshape(9, 64, 2)[1:-1].reshape(-1, 2)
    return np.asarray(rings[np.random.default_rng(3).choice(len(rings), 50, replace=False)])


def plate_fem(n: int, exchange: float = EXCHANGE, problem=STILL) -> Array:
    """Values at the probes; they are nodes, so nothing is interpolated."""
    start, ambient, (bx, by) = problem
    nodes, cells, _, _ = plate_cells(n)
    mesh = MeshTri2(np.ascontiguousarray(nodes.T), np.ascontiguousarray(cells.T))
    basis = Basis(mesh, ElementTriP2(), intorder=6)
    rim = mesh.facets_satisfying(lambda x: np.hypot(x[0], x[1]) < RADIUS + 0.02, boundaries_only=True)
    edge = FacetBasis(mesh, ElementTriP2(), facets=rim, intorder=6)
    load = LinearForm(lambda v, w: exchange * at_rows(ambient, w.x) * v).assemble(edge)
    stiffness = energy.assemble(basis, bx=bx, by=by) + exchange * inner.assemble(edge)
    x = basis.doflocs.T
    held = np.flatnonzero(np.abs(x).max(axis=1) > 1.0 - 1e-9)
    values = eliminated(basis, stiffness, load, start(x), held, PLATE_TIME)
    nearest = [int(np.argmin(np.square(x - probe).sum(axis=1))) for probe in plate_probes()]
    assert np.abs(x[nearest] - plate_probes()).max() < 1e-12
    return np.asarray(values[nearest])


def plate_domain(path: Path, n: int = 3) -> rk.Mesh:
    """The plate from a file in gmsh's format, on a coarser mesh than any of the finite elements'."""
    nodes, cells, hole, outer = plate_cells(n)
    sides = np.where(nodes[outer[:, 2], 0] > 1.0 - 1e-9, 1, 2)
    tags = [np.full(len(cells), 4), np.full(len(hole), 3), sides]
    mesh = meshio.Mesh(
        np.column_stack([nodes, np.zeros(len(nodes))]),
        [("triangle6", cells), ("line3", hole), ("line3", outer)],
        cell_data={"gmsh:physical": tags, "gmsh:geometrical": tags},
        field_data={
            name: np.array([tag, dim])
            for name, tag, dim in (("right", 1, 1), ("walls", 2, 1), ("hole", 3, 1), ("plate", 4, 2))
        },
    )
    meshio.write(path, mesh, file_format="gmsh22", binary=False)
    return rk.Mesh.from_file(path)


def plate_ours(domain: rk.Mesh, waves: int, scale: float, problem=STILL):
    start, ambient, velocity = problem
    boundary = {
        "right": rk.Dirichlet(lambda x, t: start(x)),
        "walls": rk.Dirichlet(WALL),
        "hole": rk.Robin(EXCHANGE, ambient),
    }
    # Continued into the hole, the field is singular at its centre; features in a logarithmic radius know that.
    around = rk.mapped(rk.GaussianRFF(waves, 0.6, seed=1), log_radius([0.0, 0.0], 0.15))
    features = rk.GaussianRFF(waves, scale, seed=2) + around
    pde = rk.AdvectionDiffusion(domain, 1.0, velocity, boundary=boundary)
    return forecast_mean(pde, features, start, PLATE_TIME, plate_probes())


def test_the_mesh_file_gives_the_plate_back(tmp_path: Path) -> None:
    """Parts by their physical names; quadratic arcs of 15 degrees miss the area of the circle by 2.8e-6."""
    domain = plate_domain(tmp_path / "plate.msh")
    assert set(domain.parts) == {"right", "walls", "hole"}
    assert abs(domain.volume - (4.0 - np.pi * RADIUS**2)) < 1e-5
    assert abs(domain.part_measure("hole") - 2.0 * np.pi * RADIUS) < 1e-4
    assert domain.contains(plate_probes()).all()
    assert not domain.reentrant_corners()


def test_plate_with_a_hole_agrees_with_finite_elements_ever_better(tmp_path: Path) -> None:
    """Measured: 7.1e-4, 4.4e-5 and 1.4e-5, of which the last is mostly the library's (5.9e-6 with 400 features)."""
    ours, _ = plate_ours(plate_domain(tmp_path / "plate.msh"), 120, 0.5)
    coarse, medium, fine = differences(ours, [plate_fem(n) for n in (4, 8, 16)])
    assert medium < coarse / 3.0 and fine < medium
    assert fine < TOLERANCE


def test_a_flow_around_the_hole_agrees_with_finite_elements_ever_better(tmp_path: Path) -> None:
    """Advection-diffusion on the plate, b = (4, 2). Measured: 2.4e-3, 1.3e-4, 6.8e-5, the last mostly the library's
    (2.0e-5 with 500 features). Data that a flow makes incompatible at the corners (``plate_start``) stop at 1.3e-4."""
    ours, _ = plate_ours(plate_domain(tmp_path / "plate.msh"), 160, 0.45, DRIFTING)
    coarse, medium, fine = differences(ours, [plate_fem(n, problem=DRIFTING) for n in (4, 8, 16)])
    assert medium < coarse / 3.0 and fine < medium
    assert fine < TOLERANCE


def test_plate_control_a_forgotten_exchange_is_seen() -> None:
    """Without the Robin term the finite elements themselves move by 9 %."""
    assert differences(plate_fem(4, exchange=0.0), [plate_fem(4)])[0] > 100.0 * TOLERANCE


@pytest.mark.study
def test_plate_on_a_finer_mesh_and_more_features(tmp_path: Path, study_table) -> None:
    """With 400 features on a finer file the difference must stay under a fifth of the tolerance."""
    domain = plate_domain(tmp_path / "plate.msh", 4)
    ours, space = plate_ours(domain, 200, 0.4)
    found = differences(ours, [plate_fem(n) for n in (4, 8, 16, 32)])
    for n, difference in zip((4, 8, 16, 32), found, strict=True):
        study_table.add("finite elements, plate with a hole", rank=space.rank, rings=n, difference=difference)
    assert found[3] < 0.2 * TOLERANCE
