"""The honest benchmark again, with a truth from finite elements: another discretisation in space and in time."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse.linalg as spla
from scipy.special import ndtri
from skfem import Basis, BilinearForm, ElementTriP2, MeshTri, condense
from skfem.helpers import dot, grad

from rfkalman.research.experiments import all_methods
from rfkalman.research.experiments.streaming import DT, N_TIMES
from rfkalman.research.experiments.truth import bumps


@BilinearForm
def mass_form(u, v, w):
    return u * v


@BilinearForm
def stiffness_form(u, v, w):
    return dot(grad(u), grad(v))


class FiniteElements:
    """Heat on the unit square by quadratic triangles and SDIRK2; shares no code with the library."""

    def __init__(self, cells: int, substeps: int) -> None:
        mesh = MeshTri.init_tensor(np.linspace(0, 1, cells + 1), np.linspace(0, 1, cells + 1))
        self.basis = Basis(mesh, ElementTriP2(), intorder=4)
        self.mass = mass_form.assemble(self.basis).tocsc()
        self.stiffness = stiffness_form.assemble(self.basis).tocsc()
        inside = self.basis.complement_dofs(self.basis.get_dofs())
        self.inside = inside
        M = condense(self.mass, I=inside, expand=False)
        K = condense(self.stiffness, I=inside, expand=False)
        gamma, h = 1.0 - 1.0 / np.sqrt(2.0), DT / substeps
        solve = spla.splu((M + gamma * h * K).tocsc()).solve
        u = bumps(self.basis.doflocs.T)[inside]
        self.states = [u]
        for _ in range(N_TIMES - 1):
            for _ in range(substeps):
                k1 = solve(-(K @ u))
                k2 = solve(-(K @ (u + (1.0 - gamma) * h * k1)))
                u = u + h * ((1.0 - gamma) * k1 + gamma * k2)
            self.states.append(u)

    def __call__(self, x, t):
        full = np.zeros(self.basis.N)
        full[self.inside] = self.states[round(t / DT)]
        return self.basis.probes(x.T) @ full


@pytest.fixture(scope="module")
def elements():
    return FiniteElements(40, 8)


@pytest.fixture(scope="module")
def contestants():
    return all_methods.methods()


def test_sine_series_and_finite_elements_agree(elements):
    """Two independent solutions: 40 x 40 quadratic elements are good to a few 1e-5 from the second reading on."""
    x = np.random.default_rng(0).uniform(0.02, 0.98, (200, 2))
    series = all_methods.truth()
    for n in (4, 10, 19):
        difference = np.abs(elements(x, n * DT) - series(x, n * DT)).max()
        assert difference < 1e-4, (n, difference)


def test_the_posterior_does_not_depend_on_who_made_the_truth(elements, contestants):
    """Readings of finite elements: the error stays at the level of the posterior, and most of the field in its band.

    Six records; the band of one record holds between 40 and 100 % (few degrees of freedom), so their mean has a
    standard error of about 8 %. The control keeps the paper's implicit Euler, whose bias the band does not know.
    """
    middle = (np.arange(30) + 0.5) / 30
    points = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    values = elements(points, DT * (N_TIMES - 1))
    inside = {"RFM-Kalman": [], "RFM-Kalman, the paper's space and step": []}
    for seed in range(6):
        data = all_methods.record(elements, seed)
        for name, shares in inside.items():
            *_, field = contestants[name](data, seed)
            half = float(ndtri(0.95)) * field.std(points)
            shares.append(np.mean(np.abs(field.mean(points) - values) <= half))
    ours, control = (np.mean(shares) for shares in inside.values())
    assert 0.65 <= ours <= 1.0
    assert control < 0.6
