"""A toy of each kind is added from outside and used: what CONTRIBUTING says a new one touches is enough.

The toys stand here, in no file of the package. Where a kind cannot be added from outside (a status of a reading, a key
of the problem file, a command), the files of the package that would have to change are counted instead.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.certificates.findings import Finding
from rfkalman.certificates.overview import Overview
from rfkalman.domains.base import BoundaryRule, Domain, Rule, listed_rule, tensor_rule
from rfkalman.domains.box import BoxPieces
from rfkalman.features.base import FeatureMap, Recipe
from rfkalman.filters import kalman
from rfkalman.model.sensors import Functional
from rfkalman.online.readings import MEANINGS, STATUSES
from rfkalman.physics.conditions import Condition
from rfkalman.propagators.base import Kernel, Propagator
from rfkalman.statespace.processes import Process

ROOT = Path(rk.__file__).parent
ROD = rk.Interval(0.0, 1.0)


def space_of(domain=ROD, boundary=None, features=None, floor=1e-8):
    pde = rk.Heat(domain, 0.1, boundary=rk.Neumann() if boundary is None else boundary)
    return rk.whiten(pde, rk.Constant() + rk.GaussianRFF(40, 0.3) if features is None else features, floor)


# -- toys --------------------------------------------------------------------------------------------------------------


def half_hearted(prior, obs, y):
    """A filter: believes every reading with twice its noise."""
    doubled = rk.Observation(obs.H, std=2.0 * np.asarray(obs.std))
    return kalman.analyse(prior, doubled, y)


@dataclass(frozen=True, slots=True)
class ExplicitEuler(Propagator):
    """A propagator: F = I + dt A."""

    max_step: float | None = None
    order: ClassVar[int] = 1
    stiff_order: ClassVar[float] = 1.0

    def _discretise(self, generator, dt):
        F = 1.0 + dt * generator.drift if generator.is_diagonal else np.eye(generator.dim) + dt * generator.drift
        return Kernel(dt, F, np.empty(0))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rod(Domain):
    """A domain: a stretch of a line, by its length."""

    length: float
    names: dict[str, str] = field(default_factory=dict)
    lower: Any = field(init=False)
    upper: Any = field(init=False)
    kind: ClassVar[str] = "a rod"

    def __post_init__(self):
        self._bound(np.zeros(1), np.array([self.length]))

    volume = property(lambda self: self.length)
    native_parts = property(lambda self: ("left", "right"))

    def contains(self, x):
        return (x[:, 0] >= -self.slack[0]) & (x[:, 0] <= self.length + self.slack[0])

    def sample(self, n, rng):
        return self.length * rng.random((n, 1))

    def quadrature(self, order, breaks=None) -> Rule:
        nodes, weights = np.polynomial.legendre.leggauss(order if isinstance(order, int) else order[0])
        return tensor_rule([(0.5 * self.length * (nodes + 1.0), 0.5 * weights)], self.volume)

    def pieces(self, breaks=None):
        return BoxPieces(self.lower, self.upper)

    def rule_within(self, lower, upper, order):
        return None

    def _native_rule(self, natives, order) -> BoundaryRule:
        ends = {"left": (0.0, -1.0), "right": (self.length, 1.0)}
        chosen = [ends[name] for name in natives]
        listed = [(np.array([[x]]), np.array([1.0 / self.length]), np.array([[n]])) for x, n in chosen]
        return listed_rule(listed, self.volume, float(len(chosen)))


@dataclass(frozen=True, slots=True)
class Radiator(Condition):
    """A condition: exchange with surroundings at 20, by its strength alone."""

    strength: float

    natural = property(lambda self: (20.0, self.strength))
    exchange = property(lambda self: self.strength)


@dataclass(frozen=True, slots=True)
class Monomials(Recipe):
    """A feature family: 1, x, x^2, ..."""

    n_features: int

    def bind(self, domain):
        return MonomialMap(domain.lower, domain.side, self.n_features)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MonomialMap(FeatureMap):
    lower: Any
    side: Any
    count: int
    kind: ClassVar[str] = "monomials"

    n_features = property(lambda self: self.count)

    def jet(self, x, slopes=True):
        u, k = (x - self.lower) / self.side, np.arange(self.count)
        slope = k * u ** np.maximum(k - 1, 0) / self.side
        return u**k, slope[None] if slopes else np.zeros((0, len(x), self.count))

    def bounds(self):
        k = np.arange(self.count, dtype=float)
        return np.ones(self.count), k / self.side[0]

    def bandwidth(self, floor, aligned=False):
        return np.array([2.0 * self.count])


@dataclass(frozen=True, slots=True)
class Decay(Process):
    """A process: a value that dies out."""

    rate: float

    drift = property(lambda self: np.array([[-self.rate]]))
    noise = property(lambda self: np.zeros((1, 0)))


@dataclass(frozen=True)
class Doubled(Functional):
    """A sensor: reads twice the field."""

    sensors: Any = None

    def matrix(self, space):
        return 2.0 * space(self.sensors)


# -- from outside ------------------------------------------------------------------------------------------------------


def test_a_filter_is_a_function():
    """It runs where any analysis runs, and does what it says."""
    prior, sensor = rk.Gaussian([0.0], root=[[1.0]]), rk.Observation([[1.0]], std=0.5)
    (last,) = kalman.run(prior, [(None, sensor, [1.0])], half_hearted)
    assert_allclose(last.cov, [[0.5]])


def test_a_propagator_is_a_class():
    """It steps a model; half the steps give half the error, as its order says."""
    space = space_of()
    exact = rk.Model(space, rk.isotropic(1.0)).step(0.0, 1e-3).F
    errors = [
        np.abs(rk.Model(space, rk.isotropic(1.0), ExplicitEuler(max_step=h)).step(0.0, 1e-3).F - exact).max()
        for h in (1e-5, 5e-6)
    ]
    assert 1.8 < errors[0] / errors[1] < 2.2


def test_a_domain_is_a_class():
    """The same rod as an interval: the same eigenvalues, a field, a file."""
    features = rk.Constant() + rk.GaussianRFF(40, 0.3)
    ours, theirs = space_of(Rod(1.0), features=features), space_of(features=features)
    assert_allclose(ours.report().stiffness_low[1:], theirs.report().stiffness_low[1:], rtol=1e-8)
    assert Rod(2.0).renamed({"left": "wall"}).parts == ("wall", "right")
    assert ours.pde.domain.grid(3).tolist() == [[0.0], [0.5], [1.0]]
    assert Domain.restore(ours.pde.domain.settings()).length == 1.0


def test_a_condition_is_a_class():
    """It enters the operator and the load as the same exchange does under its usual name."""
    ours = space_of(boundary={"x-": Radiator(2.0), "x+": rk.Neumann()})
    theirs = space_of(boundary={"x-": rk.Robin(2.0, 20.0), "x+": rk.Neumann()})
    assert_allclose(ours.stiffness, theirs.stiffness, rtol=0, atol=1e-10 * np.abs(theirs.stiffness).max())
    means = [rk.Assimilator(space, rk.isotropic(1e-6)).forecast(50.0).mean([[0.5]]).item() for space in (ours, theirs)]
    assert_allclose(means[0], means[1], rtol=1e-9)
    # Nothing else passes the walls, so the rod comes to its surroundings; the slowest mode has died by e^-10.
    assert_allclose(means[0], 20.0, atol=0.01)


def test_a_feature_family_is_a_recipe_and_a_map():
    """Polynomials of degree 11 find the second eigenvalue of an insulated rod, 0.1 pi^2; a saved space has them."""
    space = space_of(features=Monomials(12), floor=1e-14)
    assert_allclose(space.report().stiffness_low[1], 0.1 * np.pi**2, rtol=1e-6)
    assert FeatureMap.restore(space.features.settings() | space.features.arrays()).count == 12


def test_a_process_and_a_sensor_are_classes():
    """An unknown that dies out, and a sensor that reads double, in one filter."""
    space = space_of(boundary={"x-": rk.Unknown(1.0, Decay(50.0)), "x+": rk.Neumann()})
    filt = rk.Assimilator(space, rk.isotropic(1.0))
    filt.advance(1.0)
    assert filt.unknowns()["x-"].std[0] < 1e-12
    filt.observe(Doubled(1, None, np.array([[0.5]])), [4.0], noise_std=1e-3)
    assert_allclose(filt.posterior().mean([[0.5]]), 2.0, atol=0.02)


def test_a_certificate_is_findings_in_the_overview():
    """It is printed, counted among what failed, and written for machines with the others."""
    toy = Finding("toy", "A toy statement", "what it counts", 3.0, limit=2.0, remedy="count less")
    overview = Overview((toy,), ())
    assert overview.failed == (toy,) and "count less" in str(overview)
    assert overview.as_dict()["findings"][0]["holds"] is False


# -- from inside: how many files ---------------------------------------------------------------------------------------


def texts() -> dict[str, set[str]]:
    """The string constants of every file, docstrings left out."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and ast.get_docstring(node)
        }
        found[str(path.relative_to(ROOT))] = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
        }
    return found


def test_a_status_of_a_reading_is_shown_without_being_known():
    """Its name and meaning stand in online/readings; the report draws any status, and sums go over all of them."""
    from rfkalman.job import Clock
    from rfkalman.pictures.strokes import AxisLabels
    from rfkalman.report.figures import Artist
    from rfkalman.report.words import When
    from rfkalman.runs.record import Strip

    assert tuple(MEANINGS) == STATUSES
    hour = 3_600_000_000_000
    artist = Artist(AxisLabels("level", "m", "m", ("x",)), When(Clock("UTC", 0, hour), "h"), 0.9, np.zeros((1, 1)))
    one = np.ones(3)
    status = np.array(["used", "toy", "toy"], dtype=object)
    strip = Strip("A", hour * np.arange(3), one, one, 0.1 * one, status)
    plain = Strip("A", hour * np.arange(3), one, one, 0.1 * one, np.array(["used"] * 3, dtype=object))
    assert artist.strip(strip, "").png != artist.strip(plain, "").png
    assert artist.key(["toy", "used"], "").height > 0
    named = [name for name, strings in texts().items() if "gated" in strings]
    assert named == ["online/readings.py", "report/figures.py", "runs/verdict.py"]


@pytest.mark.parametrize("key", ["gate", "reorder", "smoothness", "map_every"])
def test_a_key_of_the_problem_file_is_named_in_few_files(key):
    """Its place in the schema, and where it is used: nobody looks it up by a text."""
    dotted = re.compile(rf"\w+\.{key}$")
    files = [name for name, strings in texts().items() if any(dotted.fullmatch(text) for text in strings)]
    assert len(files) <= 2, files


def test_a_command_is_a_file_and_a_line():
    """Every command is the function of its name in the file of its name."""
    from rfkalman.cli.app import COMMANDS

    for name in COMMANDS:
        assert (ROOT / "cli" / f"{name}.py").is_file()
