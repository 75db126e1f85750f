"""The laws of windows on parts, corner features, periodic waves, patches and mapped coordinates."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from rfkalman.core.errors import ArchiveError, ShapeError, ValueRangeError
from rfkalman.domains import Ball, BallWindow, Box, BoxWindow, Domain, Polygon, PolygonWindow
from rfkalman.domains.base import order_for
from rfkalman.features import (
    Constant,
    CornerRFF,
    DirichletSine,
    ELUNetwork,
    FeatureMap,
    GaussianRFF,
    PeriodicRFF,
    Recipe,
    TanhNetwork,
    bubble,
    log_axis,
    log_distance,
    log_radius,
    mapped,
    patches,
    restore,
)
from rfkalman.features.base import LARGEST_SLOPE, reseeded, smooth_step

EPS = np.finfo(float).eps


def orders(features: FeatureMap, floor: float, aligned: bool = False) -> tuple[int, ...]:
    """Points per axis that the bandwidth calls for."""
    return order_for(features.bandwidth(floor, aligned))


RFF = GaussianRFF(6, length_scale=0.5, seed=2)

INTERVAL = Box([-1.0], [1.5])
BOX = Box([2.0, -1.0], [3.0, 1.0])
BRICK = Box([0.0, 1.0, -2.0], [1.0, 1.5, 0.0])
DISK = Ball([1.0, -2.0], 1.5)
RING = Ball([0.5, 0.25], 2.0, inner_radius=0.5)
SHELL = Ball([0.0, 1.0, 0.0], 1.0, inner_radius=0.4)
ELL = Polygon([[-1, -1], [1, -1], [1, 1], [0, 1], [0, 0], [-1, 0]])
KITE = Polygon([[0.0, 0.0], [2.0, -0.5], [2.3, 0.9], [0.4, 1.1]])
FRAME = Polygon([[0, 0], [3, 0], [3, 2], [0, 2]], [[[1.0, 0.6], [1.9, 0.7], [1.4, 1.4]]])
NOTCH = Polygon([[0, 0], [3, 0], [3, 3], [2, 3], [2, 1], [1, 1], [1, 3], [0, 3]])

DOMAINS = {
    "interval": INTERVAL,
    "box": BOX,
    "brick": BRICK,
    "disk": DISK,
    "ring": RING,
    "shell": SHELL,
    "ell": ELL,
    "kite": KITE,
    "frame": FRAME,
}
EVERY_DOMAIN = pytest.mark.parametrize("name", list(DOMAINS))
PLANAR = ("ell", "kite", "frame")


def inside(domain: Domain, n: int = 60) -> np.ndarray:
    return domain.sample(n, np.random.default_rng(7))


def on_part(domain: Domain, part: str, order: int = 18) -> tuple[np.ndarray, np.ndarray]:
    """Points of a boundary part, none of them a vertex, and outward normals."""
    blocks = list(domain.boundary_rule(part, order).blocks(10_000))
    return np.concatenate([x for x, _, _ in blocks]), np.concatenate([n for _, _, n in blocks])


def near_vertices(vertices: np.ndarray, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Points of the domain 1e-1 to 1e-6 away from vertices, and these distances."""
    angle = np.linspace(0.05, 2 * math.pi, 37)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points, distances = [], []
    for vertex in vertices:
        for distance in 10.0 ** -np.arange(1, 7):
            x = vertex + distance * circle
            # A stencil of a hundredth of the distance must stay inside too.
            safe = np.all([domain.contains(vertex + distance * (circle + 0.02 * e)) for e in circle[::6]], axis=0)
            points.append(x[safe])
            distances.append(np.full(safe.sum(), distance))
    return np.concatenate(points), np.concatenate(distances)


def differences(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, h: np.ndarray | float) -> np.ndarray:
    """Fourth-order central differences along each axis, (d, n, ...), with a step for each point."""
    step = np.broadcast_to(np.asarray(h, dtype=float), (len(x),))[:, None]
    rows = []
    for axis in range(x.shape[1]):
        e = np.zeros(x.shape[1])
        e[axis] = 1.0
        near = function(x + step * e) - function(x - step * e)
        far = function(x + 2 * step * e) - function(x - 2 * step * e)
        shape = (len(x),) + (1,) * (near.ndim - 1)
        rows.append((8 * near - far) / (12 * step.reshape(shape)))
    return np.array(rows)


def gradient_error(features: FeatureMap, x: np.ndarray, h: np.ndarray | float) -> np.ndarray:
    """Per point, the largest departure of the gradient from differences relative to the largest gradient there."""
    values, gradients = features.jet(x)
    assert_allclose(values, features(x), rtol=0, atol=16 * EPS * np.abs(values).max())
    scale = np.abs(gradients).max(axis=(0, 2))
    return np.abs(gradients - differences(features, x, h)).max(axis=(0, 2)) / scale


def families() -> dict[str, tuple[Recipe, Domain]]:
    """One of each new map on a domain it is made for."""
    return {
        "window-faces": (bubble(RFF, ["x-", "y+"]), BOX),
        "window-disk": (bubble(RFF), DISK),
        "window-ring": (bubble(RFF, "inner"), RING),
        "window-shell": (bubble(RFF), SHELL),
        "window-ell": (bubble(RFF), ELL),
        "window-edges": (bubble(RFF, ["edge0", "hole0.*"]), FRAME),
        "corner": (CornerRFF(5, seed=1), ELL),
        "corner-windowed": (RFF + CornerRFF(5, scale=0.3), FRAME),
        "periodic": (PeriodicRFF(8, 0.4, seed=5), BOX),
        "periodic-mixed": (bubble(PeriodicRFF(8, [0.3, 0.5], axes=0), "y*"), BOX),
        "constant": (Constant() + RFF, BRICK),
        "patches": (patches(RFF, (2, 3)), BOX),
        "patches-ell": (bubble(patches(RFF + TanhNetwork(3, 0.4), 3, overlap=0.5)), ELL),
        "patches-line": (patches(RFF, 4, overlap=1.0), INTERVAL),
        "patches-brick": (patches(DirichletSine(3), (2, 1, 2)), BRICK),
        "log-axis": (mapped(RFF, log_axis(1, -1.0, 0.2)), BOX),
        "log-radius": (bubble(mapped(RFF, log_radius([0.9, -2.2], 0.3))), DISK),
        "log-distance": (mapped(RFF, log_distance([0.9, -2.2], 0.3)) + Constant(), DISK),
    }


FAMILIES = pytest.mark.parametrize("name", list(families()))


# --- every new map ----------------------------------------------------------------------------------------------


@FAMILIES
def test_gradients_are_the_derivatives_of_the_values(name):
    """Fourth-order differences with h = 2e-4: truncation (h / 0.1)^4, rounding eps / h = 1e-12, both below 1e-8.

    Points within 0.02 of a re-entrant vertex have a test with steps of their own.
    """
    recipe, domain = families()[name]
    features = recipe.bind(domain)
    x = inside(domain)
    for corner in domain.reentrant_corners():
        x = x[np.linalg.norm(x - corner.vertex, axis=1) > 0.02]
    assert features.jet(x)[1].shape == (domain.dimension, len(x), features.n_features)
    assert gradient_error(features, x, 2e-4).max() < 1e-7


@FAMILIES
def test_values_are_new_arrays_and_no_points_are_no_rows(name):
    """Callers overwrite what they get; an empty batch is routine."""
    recipe, domain = families()[name]
    features = recipe.bind(domain)
    x = inside(domain, 5)
    kept, first = x.copy(), features(x)
    assert first.flags.c_contiguous and first.flags.writeable and first.shape == (5, features.n_features)
    again = first.copy()
    first[:] = np.nan
    assert_array_equal(features(x), again)
    assert_array_equal(x, kept)
    values, gradients = features.jet(x[:0])
    assert values.shape == (0, features.n_features)
    assert gradients.shape == (domain.dimension, 0, features.n_features)
    assert len(features.bandwidth(1e-8)) == len(features.bandwidth(1e-8, aligned=True)) == domain.dimension


@FAMILIES
def test_restored_maps_are_the_same_bits(name):
    """Through JSON and an archive of arrays; nothing is drawn again, and what the map claims is kept."""
    recipe, domain = families()[name]
    features = recipe.bind(domain)
    settings = json.loads(json.dumps(features.settings()))
    file = io.BytesIO()
    np.savez(file, **features.arrays())
    file.seek(0)
    with np.load(file) as archive:
        again = restore(settings, dict(archive))
    x = inside(domain)
    for have, want in zip(again.jet(x), features.jet(x), strict=True):
        assert_array_equal(have, want)
    assert_array_equal(again(x), features(x))
    for claim in ("sup_values", "sup_gradients"):
        assert_array_equal(getattr(again, claim), getattr(features, claim))
    assert again.settings() == features.settings()
    assert again.zero_parts == features.zero_parts and again.zero_trace == features.zero_trace
    assert orders(again, 1e-9) == orders(features, 1e-9)


@FAMILIES
def test_binding_twice_gives_the_same_bits(name):
    """A recipe is a value; what it draws is read-only."""
    recipe, domain = families()[name]
    once, twice = recipe.bind(domain).arrays(), families()[name][0].bind(domain).arrays()
    assert recipe == families()[name][0] and hash(recipe) == hash(families()[name][0])
    for key, array in once.items():
        assert_array_equal(array, twice[key])
        assert not array.flags.writeable


def moved(domain: Domain, shift: np.ndarray, factor: float = 1.0) -> Domain:
    if isinstance(domain, Box):
        return Box(factor * domain.lower + shift, factor * domain.upper + shift)
    if isinstance(domain, Ball):
        inner = None if domain.inner_radius is None else factor * domain.inner_radius
        return Ball(factor * domain.centre + shift, factor * domain.radius, inner)
    return Polygon(factor * domain.exterior + shift, [factor * hole + shift for hole in domain.holes])


def restated(recipe: Recipe, shift: np.ndarray, factor: float) -> Recipe:
    """The recipe with its lengths and places carried along with the domain."""
    changes = {}
    for entry in dataclasses.fields(recipe):
        value = getattr(recipe, entry.name)
        if isinstance(value, Recipe):
            changes[entry.name] = restated(value, shift, factor)
        elif isinstance(value, tuple) and value and isinstance(value[0], Recipe):
            changes[entry.name] = tuple(restated(part, shift, factor) for part in value)
        elif entry.name == "length_scale":
            changes[entry.name] = (factor * np.array(value)).tolist()
    if hasattr(recipe, "forward"):
        own = recipe.forward
        if own.kind in ("log-radius", "log-distance"):
            place = type(own)((factor * np.array(own.centre) + shift).tolist(), factor * own.scale)
        else:
            place = log_axis(own.axis, factor * own.origin + shift[own.axis], factor * own.scale)
        # Length scales count in the mapped coordinates, which have no unit here.
        return mapped(recipe.recipe, place)
    return dataclasses.replace(recipe, **changes)


@FAMILIES
def test_moving_the_domain_changes_nothing(name):
    """Coordinates of 4.6e6 carry 1e-9 of rounding; |grad phi| stays below 1e2 away from singular vertices."""
    recipe, domain = families()[name]
    shift = 4.6e6 + np.arange(domain.dimension)
    there = moved(domain, shift)
    x = inside(domain)
    for corner in domain.reentrant_corners():
        x = x[np.linalg.norm(x - corner.vertex, axis=1) > 0.02]
    here, there = recipe.bind(domain), restated(recipe, shift, 1.0).bind(there)
    assert_allclose(there(x + shift), here(x), atol=1e-6)
    assert_allclose(there.jet(x + shift)[1], here.jet(x)[1], rtol=1e-5, atol=1e-4)
    assert orders(there, 1e-8) == orders(here, 1e-8)


@pytest.mark.parametrize("name", [name for name in families() if name != "log-axis"])
def test_units_of_length_are_the_users(name):
    """Metres or kilometres: values stay, gradients carry 1 / length; 1024 keeps all digits but those of the sums.

    log_axis is left out: its other coordinates keep the user's unit while the length scale cannot.
    """
    recipe, domain = families()[name]
    factor, none = 1024.0, np.zeros(domain.dimension)
    x = inside(domain)
    small, large = recipe.bind(domain), restated(recipe, none, factor).bind(moved(domain, none, factor))
    assert_allclose(large(factor * x), small(x), atol=1e-11)
    gradients = small.jet(x)[1]
    assert_allclose(factor * large.jet(factor * x)[1], gradients, atol=1e-10 * np.abs(gradients).max())
    assert_allclose(factor * large.sup_gradients, small.sup_gradients, rtol=1e-12)
    assert orders(large, 1e-8) == orders(small, 1e-8)


@FAMILIES
def test_sup_bounds_hold(name):
    """Values and gradients at many points; infinity holds trivially."""
    recipe, domain = families()[name]
    features = recipe.bind(domain)
    x = inside(domain, 1500)
    values, gradients = features.jet(x)
    assert (np.abs(values).max(axis=0) <= features.sup_values * (1 + 1e-13)).all()
    norms = np.sqrt(np.square(gradients).sum(axis=0))
    assert (norms.max(axis=0) <= features.sup_gradients * (1 + 1e-13)).all()


def test_sums_keep_the_sizes_of_their_parts():
    """Mixed families are scaled part by part; flattening keeps one entry per map."""
    features = (RFF + (CornerRFF(4) + bubble(GaussianRFF(3, 0.5)))).bind(ELL)
    assert features.sizes == (6, 4, 3) and sum(features.sizes) == features.n_features
    assert (RFF + ELUNetwork(2, 0.5)).bind(BOX).smallest_floor == 1e-6
    assert patches(ELUNetwork(2, 0.5), 2).bind(BOX).smallest_floor == 1e-6
    assert mapped(ELUNetwork(2, 0.5), log_axis(0, 2.0, 1.0)).bind(BOX).smallest_floor == 1e-6
    assert CornerRFF(2).bind(ELL).smallest_floor == PeriodicRFF(2, 0.5).bind(BOX).smallest_floor == 1e-20


# --- windows on parts -------------------------------------------------------------------------------------------


@EVERY_DOMAIN
def test_windows_vanish_on_the_chosen_parts_and_nowhere_else(name):
    """Exactly where the coordinates of a point satisfy the equation of its part; to rounding on circles and slopes."""
    domain = DOMAINS[name]
    choices = [[part] for part in domain.parts] + [list(domain.parts), list(domain.parts[:2])]
    exact = name in ("interval", "box", "brick", "ell")
    for chosen in choices:
        features = bubble(Constant(), chosen).bind(domain)
        assert features.zero_parts == set(chosen)
        assert features.zero_trace == (set(chosen) == set(domain.parts))
        assert features(inside(domain)).min() > 0.0
        for part in domain.parts:
            beta = features(on_part(domain, part)[0])
            if part not in chosen:
                assert beta.min() > 1e-6
            elif exact:
                assert_array_equal(beta, 0.0)
            else:
                assert np.abs(beta).max() < 20 * EPS


def test_the_window_of_all_faces_is_the_papers_bubble_bit_by_bit():
    """prod s_i (1 - s_i), whether the faces are named or not."""
    for box in (INTERVAL, BOX, BRICK):
        x = inside(box)
        s = (x - box.lower) / box.side
        beta = (s * (1.0 - s)).prod(axis=1)
        whole, named = BoxWindow(box.lower, box.side), box.window(box.parts)
        assert_array_equal(whole(x), beta)
        assert_array_equal(named(x), beta)
        assert_array_equal(bubble(RFF).bind(box)(x), bubble(RFF, box.parts).bind(box)(x))


def test_windows_are_their_formulas():
    """The slow, obvious way; rounding of a few operations."""
    x = inside(BRICK)
    s = (x - BRICK.lower) / BRICK.side
    have = bubble(Constant(), ["x+", "y-", "z-", "z+"]).bind(BRICK)(x)[:, 0]
    assert_allclose(have, (1 - s[:, 0]) * s[:, 1] * s[:, 2] * (1 - s[:, 2]), rtol=8 * EPS)
    x = inside(RING)
    q, R, a = np.square(x - RING.centre).sum(axis=1), 2.0, 0.5
    outer, inner = (R**2 - q) / (2 * R) / R, (q - a**2) / (2 * a) / R
    for parts, want in (("outer", outer), ("inner", inner), (["inner", "outer"], outer * inner)):
        assert_allclose(bubble(Constant(), parts).bind(RING)(x)[:, 0], want, atol=16 * EPS)


def distance_function(px: mpmath.mpf, py: mpmath.mpf, edges: np.ndarray, m: int) -> mpmath.mpf:
    """Sukumar and Srivastava's joined edge functions in sixty digits, term by term."""
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for (ax, ay), (bx, by) in edges.tolist():
            ax, ay, bx, by = (mpmath.mpf(c) for c in (ax, ay, bx, by))
            L = mpmath.sqrt((bx - ax) ** 2 + (by - ay) ** 2)
            f = ((px - ax) * -(by - ay) + (py - ay) * (bx - ax)) / L
            t = ((L / 2) ** 2 - (px - (ax + bx) / 2) ** 2 - (py - (ay + by) / 2) ** 2) / L
            rho = mpmath.sqrt(f**2 + ((mpmath.sqrt(t**2 + f**4) - t) / 2) ** 2)
            total += rho**-m
        return total ** (mpmath.mpf(-1) / m)


def distance_gradient(x: np.ndarray, edges: np.ndarray) -> list[float]:
    """Central differences with a step of 1e-20, of which sixty digits leave forty."""
    with mpmath.workdps(60):
        h = mpmath.mpf(10) ** -20
        px, py = (mpmath.mpf(float(c)) for c in x)
        rows = [
            (distance_function(px + a, py + b, edges, 1), distance_function(px - a, py - b, edges, 1))
            for a, b in ((h, 0), (0, h))
        ]
        return [float((up - down) / (2 * h)) for up, down in rows]


@pytest.mark.parametrize("join", [1, 2])
@pytest.mark.parametrize("name", PLANAR)
def test_polygon_windows_are_the_joined_edge_functions_to_all_digits(name, join):
    """Also close to edges and vertices, where the textbook form cancels; rounding of the coordinates alone is left.

    A point at distance r from an edge knows it to eps / r.
    """
    domain = DOMAINS[name]
    edges, size = domain.window(domain.parts).segments, float(domain.side.max())
    window = PolygonWindow(edges, edges[:, 0], size, join)
    close, distance = near_vertices(domain.exterior, domain)
    x = np.vstack([inside(domain, 20), close[::9]])
    exact = np.array([float(distance_function(*(mpmath.mpf(c) for c in p / size), edges / size, join)) for p in x])
    reach = np.concatenate([np.full(20, 1e-3), distance[::9]])
    assert (np.abs(window(x) / exact - 1) <= 40 * EPS * (1 + size / reach / 0.05)).all()


@pytest.mark.parametrize("name", PLANAR)
def test_polygon_window_gradients_are_exact_up_to_the_vertices(name):
    """Against differences in sixty digits: a layer of width distance^2 across the ends of edges defeats plain ones.

    Coordinates of size one are rounded: at distance r from a vertex, directions are known to eps / r.
    """
    domain = DOMAINS[name]
    vertices = np.concatenate([domain.exterior, *domain.holes])
    x, distance = near_vertices(vertices, domain)
    # Every seventh, and on an L those straight ahead of the edges that end at its re-entrant vertex.
    ahead = np.abs(x).min(axis=1) < 1e-15
    some = np.union1d(np.arange(0, len(x), 7), np.flatnonzero(ahead))
    assert ahead.any() or name != "ell"
    x, distance = x[some], distance[some]
    edges, size = domain.window(domain.parts).segments, float(domain.side.max())
    for parts in (domain.parts, domain.parts[:1]):
        chosen = edges[[part in parts for part in domain.parts]] / size
        window = domain.window(parts)
        beta, gradient = window.jet(x)
        assert_array_equal(beta, window(x))
        exact = np.array([distance_gradient(p / size, chosen) for p in x]).T
        assert (np.abs(gradient * size - exact).max(axis=0) <= 1e-14 + 40 * EPS * size / distance).all()
        # Control: the gradient of the nearest edge alone, a unit vector, is not it.
        assert np.abs(np.hypot(*gradient) * size - 1).max() > 0.1


@pytest.mark.parametrize("name", [*PLANAR, "disk", "ring", "shell"])
def test_windows_are_distances_to_first_order(name):
    """On a part the gradient is the inward normal over the unit of length, far from the origin too."""
    domain = DOMAINS[name]
    for shift in (0.0, 4.6e6 / 7):
        there = moved(domain, np.full(domain.dimension, shift))
        for part in there.parts:
            x, normal = on_part(there, part)
            unit = there.radius if isinstance(there, Ball) else there.side.max()
            gradient = there.window((part,)).jet(x)[1]
            assert_allclose(gradient * unit, -normal.T, atol=1e-12 + 40 * EPS * (1 + shift))


def test_polygon_windows_at_a_vertex_are_zero_with_a_finite_gradient():
    """No gradient exists there; what is returned must not poison a sum over points."""
    beta, gradient = ELL.window(ELL.parts).jet(ELL.exterior)
    assert_array_equal(beta, 0.0)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["interval", "box", "brick", "disk", "ring", "shell"])
def test_smooth_window_bounds_are_attained(name):
    """Every choice of parts. Slack: a grid of 24 cells meets face centres and corners; rays meet every radius."""
    domain = DOMAINS[name]
    rng = np.random.default_rng(3)
    for _ in range(8):
        some = [part for part in domain.parts if rng.random() < 0.6] or [domain.parts[0]]
        window = domain.window(some)
        if isinstance(domain, Box):
            x = domain.grid(25)
        else:
            e = rng.standard_normal((1, domain.dimension))
            radii = np.linspace(domain.inner_radius or 0.0, domain.radius, 4001)
            x = domain.centre + radii[:, None] * e / np.linalg.norm(e)
        beta, gradient = window.jet(x)
        have = (beta.max(), np.sqrt(np.square(gradient).sum(axis=0)).max())
        for bound, value in zip((window.sup_value, window.sup_gradient), have, strict=True):
            assert value <= bound * (1 + 1e-9) + 1e-11
            assert value >= bound * (1 - 1e-5) - 1e-11


@pytest.mark.parametrize("name", PLANAR)
def test_polygon_window_bounds_hold(name):
    """Values and gradients stay below, also close to the vertices."""
    domain = DOMAINS[name]
    vertices = np.concatenate([domain.exterior, *domain.holes])
    x = np.vstack([inside(domain, 4000), near_vertices(vertices, domain)[0]])
    for parts in (domain.parts, domain.parts[:1]):
        window = domain.window(parts)
        beta, gradient = window.jet(x)
        assert beta.max() <= window.sup_value
        assert np.sqrt(np.square(gradient).sum(axis=0)).max() <= window.sup_gradient
    # The bound on the value is of the right size; the bound on the gradient is generous.
    window = domain.window(domain.parts)
    assert window.sup_value < 10 * window(x).max() and window.sup_gradient < 100 / domain.side.max()


def test_parts_may_be_patterns_and_renamed():
    """Names are the domain's; several faces under one name vanish together."""
    named = BOX.renamed({"x-": "inlet", "y-": "wall", "y+": "wall"})
    features = bubble(RFF, ["w*"]).bind(named)
    assert features.zero_parts == {"wall"} and not features.zero_trace
    assert_array_equal(features(on_part(named, "wall")[0]), 0.0)
    assert np.abs(features(on_part(named, "inlet")[0])).max() > 0.01
    assert bubble(RFF).bind(named).zero_parts == set(named.parts)
    assert DirichletSine(3).bind(named).zero_parts == set(named.parts)
    assert bubble(RFF, "hole*").bind(FRAME).zero_parts == {f"hole0.edge{k}" for k in range(3)}
    assert bubble(RFF, ("edge[01]",)).bind(FRAME).zero_parts == {"edge0", "edge1"}
    outline = FRAME.renamed({f"edge{k}": "outline" for k in range(4)})
    assert_array_equal(
        bubble(RFF, "outline").bind(outline)(inside(FRAME)), bubble(RFF, "edge*").bind(FRAME)(inside(FRAME))
    )


def test_sums_vanish_where_all_their_parts_do_and_windows_add_up():
    """Intersection for sums, union for nested windows."""
    left, right = bubble(RFF, "x-"), bubble(RFF, ["x-", "y*"])
    assert (left + right).bind(BOX).zero_parts == {"x-"}
    assert (left + RFF).bind(BOX).zero_parts == frozenset() and not (left + RFF).bind(BOX).zero_trace
    nested = bubble(right, "x+").bind(BOX)
    assert nested.zero_parts == set(BOX.parts) and nested.zero_trace
    assert (nested + DirichletSine(2).bind(BOX)).zero_trace
    assert bubble(DirichletSine(2), "x-").bind(BOX).zero_trace
    for plain in (RFF, patches(DirichletSine(2), 2), PeriodicRFF(3, 0.5), mapped(RFF, log_axis(0, 2.0, 1.0))):
        assert plain.bind(BOX).zero_parts == frozenset()


def test_windows_saved_before_parts_had_names_are_whole_boxes():
    """An older file says nothing of parts."""
    features = (bubble(RFF) + DirichletSine(2)).bind(BOX)
    old = features.settings()
    window, sine = old["parts"]
    for key in ("zero_on", "parts"):
        del window[key]
    del window["cutoff"]["parts"], sine["parts"]
    again = restore(old, features.arrays())
    assert again.zero_trace and again.zero_parts == set(BOX.parts)
    assert_array_equal(again(inside(BOX)), features(inside(BOX)))


# --- corners ----------------------------------------------------------------------------------------------------


def edge_points(corner, side: int) -> np.ndarray:
    """Points on one of the two edges of a corner, up to half its reach."""
    angle = corner.direction + (corner.angle if side else 0.0)
    r = corner.reach * np.array([1e-6, 1e-3, 0.1, 0.3, 0.5])
    return corner.vertex + r[:, None] * np.array([math.cos(angle), math.sin(angle)])


@pytest.mark.parametrize("domain", [ELL, FRAME, NOTCH], ids=["ell", "frame", "notch"])
def test_the_conformal_variable_opens_every_corner_to_a_half_plane(domain):
    """Im zeta = 0 on both edges and > 0 between; real on one side, -|zeta| on the other. Rounding of the angles."""
    features = CornerRFF(3).bind(domain)
    corners = domain.reentrant_corners()
    assert features.n_features == 3 * len(corners)
    for i, corner in enumerate(corners):
        first, second = (features.conformal(edge_points(corner, side), i)[0] for side in (0, 1))
        r = corner.reach * np.array([1e-6, 1e-3, 0.1, 0.3, 0.5])
        modulus = (r / domain.side.max()) ** (math.pi / corner.angle)
        # A point at 1e-6 of the reach knows its direction to eps / 1e-6.
        assert_allclose(first, modulus, atol=1e-9 * modulus[-1])
        assert_allclose(second, -modulus, atol=1e-9 * modulus[-1])
        middle = corner.direction + corner.angle * np.linspace(0.02, 0.98, 40)
        x = corner.vertex + 0.5 * corner.reach * np.stack([np.cos(middle), np.sin(middle)], axis=1)
        assert features.conformal(x, i)[0].imag.min() > 0.0


def test_powers_of_the_conformal_variable_are_harmonic():
    """Real and imaginary parts of zeta^k by a five-point Laplacian: truncation h^2 of order 1e-8, rounding eps / h^2.

    Control: |zeta|^2 is not.
    """
    features = CornerRFF(3).bind(ELL)
    x = inside(ELL)
    x = x[np.linalg.norm(x, axis=1) > 0.2]
    h = 1e-3

    def laplacian(function):
        total = -4.0 * function(features.conformal(x, 0)[0])
        for e in ([h, 0], [-h, 0], [0, h], [0, -h]):
            total = total + function(features.conformal(x + np.array(e), 0)[0])
        return np.abs(total / h**2).max()

    for k in (1, 2, 3):
        assert laplacian(lambda zeta, k=k: zeta**k) < 1e-3
    assert laplacian(lambda zeta: np.abs(zeta) ** 2) > 0.1


@pytest.mark.parametrize("domain", [ELL, FRAME, NOTCH], ids=["ell", "frame", "notch"])
def test_corner_gradients_are_exact_up_to_the_vertex(domain):
    """Steps of a thousandth of the distance to the vertex; relative to the largest gradient there.

    The gradient grows like distance^(pi/omega - 1), so rounding of values of order one, eps / step, stays below
    30 eps / (1e-3 distance) of it.
    """
    features = CornerRFF(4).bind(domain)
    vertices = np.array([corner.vertex for corner in domain.reentrant_corners()])
    x, distance = near_vertices(vertices, domain)
    assert (gradient_error(features, x, 1e-3 * distance) <= 1e-8 + 30 * EPS / (1e-3 * distance)).all()


def test_corner_features_are_singular_like_the_solution():
    """|grad phi| ~ distance^(2/3 - 1) at a corner of 3 pi / 2: the bounds are infinite for a reason."""
    features = CornerRFF(50).bind(ELL)
    sizes = []
    for r in (1e-3, 1e-6, 1e-9):
        x = r * np.array([[math.cos(1.25 * math.pi), math.sin(1.25 * math.pi)]])
        sizes.append(np.sqrt(np.square(features.jet(x)[1]).sum()))
    slope = np.diff(np.log(sizes)) / np.log(1e-3)
    assert_allclose(slope, -1 / 3, atol=0.02)
    assert np.isinf(features.sup_gradients).all()
    assert_array_equal(features.sup_values, math.sqrt(2))
    at_vertex = features.jet(np.zeros((1, 2)))
    assert_allclose(at_vertex[0][0], math.sqrt(2) * np.cos(features.phases[0]), atol=4 * EPS)
    assert np.isnan(at_vertex[1]).all()


@pytest.mark.parametrize("domain", [ELL, FRAME, NOTCH], ids=["ell", "frame", "notch"])
def test_corner_features_are_continuous_throughout_the_domain(domain):
    """No branch cut inside: points 1e-7 apart differ by at most the gradient between them.

    Control: with its cut turned into the domain the map jumps.
    """
    features = CornerRFF(20).bind(domain)
    rng = np.random.default_rng(0)
    # Crossings of the rays from each vertex are the places where a cut would show.
    points = [inside(domain, 2000)]
    for corner in domain.reentrant_corners():
        angle = np.linspace(0, 2 * math.pi, 721)
        for r in np.linspace(0.05, 3, 12):
            points.append(corner.vertex + r * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    x = np.concatenate(points)
    step = 1e-7 * rng.standard_normal(x.shape)
    both = domain.contains(x - step) & domain.contains(x + step)
    x, step = x[both], step[both]

    def jump(f: FeatureMap) -> float:
        return float(np.abs(f(x + step) - f(x - step)).max())

    assert jump(features) < 1e-4
    # A cut along the middle of the sector; the ray above passes 0.35 degrees or less from a sample point.
    turned = dataclasses.replace(features, cuts=features.angles / 2)
    on_cut = []
    for corner in domain.reentrant_corners():
        angle = corner.direction + corner.angle / 2
        on_cut.append(corner.vertex + 0.2 * corner.reach * np.array([math.cos(angle), math.sin(angle)]))
        x, step = np.array(on_cut[-1:]), 1e-7 * np.array([[-math.sin(angle), math.cos(angle)]])
        assert jump(turned) > 0.1 and jump(features) < 1e-4


def test_only_corners_that_see_the_domain_again_are_windowed():
    """An L needs no window, a notch has a free ray, a hole has none; a window ends within its reach."""
    assert_array_equal(CornerRFF(2).bind(ELL).reaches, 0.0)
    notch = CornerRFF(2).bind(NOTCH)
    assert_array_equal(notch.reaches, 0.0)
    bisectors = math.pi + notch.angles / 2
    assert (np.abs(notch.cuts - bisectors) > 0.1).all()
    features = CornerRFF(7).bind(FRAME)
    corners = FRAME.reentrant_corners()
    assert_allclose(features.reaches, [corner.reach for corner in corners])
    x = inside(FRAME, 3000)
    values, gradients = features.jet(x)
    for i, corner in enumerate(corners):
        far = np.linalg.norm(x - corner.vertex, axis=1) >= corner.reach
        own = slice(7 * i, 7 * (i + 1))
        assert far.any() and not far.all()
        assert_array_equal(values[far, own], 0.0)
        assert_array_equal(gradients[:, far, own], 0.0)
        assert np.abs(values[~far, own]).max() > 0.5


def test_every_corner_has_its_own_draw_and_longer_draws_begin_with_shorter_ones():
    """Streams are keyed by the number of the corner."""
    few, many = (CornerRFF(n, seed=3).bind(NOTCH) for n in (4, 9))
    assert_array_equal(many.weights[:, :4], few.weights)
    assert not np.allclose(few.weights[0], few.weights[1])
    assert_allclose(CornerRFF(4, scale=0.3, seed=3).bind(NOTCH).weights, few.weights / 2, rtol=4 * EPS)


def lowest_eigenvalue(recipe: Recipe, domain: Domain, floor: float, trace: float | None) -> float:
    """Of the Dirichlet Laplacian: whiten, drop the directions with a trace, project. Slow and obvious."""
    features = recipe.bind(domain)
    order = orders(features, floor)
    rule = domain.quadrature(order)
    root = np.sqrt(rule.weights)[:, None]
    _, s, Vt = np.linalg.svd(np.linalg.qr(root * features(rule.points), mode="r"))
    keep = s**2 > floor * s[0] ** 2
    T = Vt[keep].T / s[keep]
    if trace is not None:
        blocks = [b for part in domain.parts for b in domain.boundary_rule(part, order).blocks(10**6)]
        E = np.concatenate([np.sqrt(w)[:, None] * (features(x) @ T) for x, w, _ in blocks])
        _, s, Vt = np.linalg.svd(np.linalg.qr(E, mode="r"))
        T = T @ Vt[int((s > trace).sum()) :].T
    K = sum((root * (g @ T)).T @ (root * (g @ T)) for g in features.jet(rule.points)[1])
    return float(np.linalg.eigvalsh(K)[0])


def test_corner_features_give_the_l_shape_its_lowest_eigenvalue():
    """lambda_1 = 9.63972384402194 (known to 1e-14). Measured error 1e-8 with 250 features, trace allowed 1e-5.

    Control: the same number of smooth features alone misses it by as much again.
    """
    exact = 9.63972384402194
    both = lowest_eigenvalue(GaussianRFF(150, 0.4) + CornerRFF(100), ELL, 1e-16, 1e-5)
    assert abs(both - exact) < 1e-6
    smooth = lowest_eigenvalue(GaussianRFF(250, 0.4), ELL, 1e-16, 1e-5)
    assert abs(smooth - exact) > 1.0


def test_windowed_features_give_disk_and_mixed_square_their_lowest_eigenvalues():
    """j_{0,1}^2 on the disk; pi^2 / 4 with three free sides, through the faces of a box and the edges of a polygon.

    The smooth windows reach the accuracy of the features, measured 2e-10 and better; the distance to one edge of a
    square, not smooth at its ends, 3e-4.
    """
    disk = lowest_eigenvalue(bubble(GaussianRFF(200, 0.4)), Ball([0.0, 0.0], 1.0), 1e-12, None)
    assert disk == pytest.approx(5.783185962946785, abs=1e-8)
    unit = [[0, 0], [1, 0], [1, 1], [0, 1]]
    face = lowest_eigenvalue(bubble(GaussianRFF(150, 0.3), "x-"), Box([0.0, 0.0], [1.0, 1.0]), 1e-12, None)
    assert face == pytest.approx(math.pi**2 / 4, abs=1e-8)
    edge = lowest_eigenvalue(bubble(GaussianRFF(150, 0.3), "edge3"), Polygon(unit), 1e-12, None)
    assert edge == pytest.approx(math.pi**2 / 4, abs=1e-3)


# --- periodic waves and the constant ----------------------------------------------------------------------------


@pytest.mark.parametrize("box", [INTERVAL, BOX, BRICK], ids=["interval", "box", "brick"])
def test_periodic_features_agree_on_opposite_faces_to_the_last_bit(box):
    """Values and gradients; also where coordinates are large. Control: ordinary waves do not."""
    for shift in (0.0, 4.6e6):
        there = Box(box.lower + shift, box.upper + shift)
        features = PeriodicRFF(9, 0.3).bind(there)
        for axis in range(there.dimension):
            low = there.sample(20, np.random.default_rng(0))
            high = low.copy()
            low[:, axis], high[:, axis] = there.lower[axis], there.upper[axis]
            for a, b in zip(features.jet(low), features.jet(high), strict=True):
                assert_array_equal(a, b)
            assert np.abs(GaussianRFF(9, 0.3).bind(there)(low) - GaussianRFF(9, 0.3).bind(there)(high)).max() > 0.1


@pytest.mark.parametrize("box", [INTERVAL, BOX, BRICK], ids=["interval", "box", "brick"])
def test_periodic_features_are_orthonormal(box):
    """A uniform grid integrates products exactly as long as it has more points than twice the largest k; rounding."""
    features = PeriodicRFF(15, 0.3).bind(box)
    k = features.weights * box.side / (2 * math.pi)
    assert_allclose(k, np.rint(k), atol=1e-12)
    n = 2 * int(np.abs(np.rint(k)).max()) + 1
    lines = [a + s * np.arange(n) / n for a, s in zip(box.lower, box.side, strict=True)]
    Phi = features(np.stack(np.meshgrid(*lines), axis=-1).reshape(-1, box.dimension))
    assert_allclose(Phi.T @ Phi / len(Phi), np.eye(15), atol=1e-12)
    assert_array_equal(Phi[:, 0], 1.0)
    assert features.sup_values[0] == 1.0 and features.sup_gradients[0] == 0.0


@pytest.mark.parametrize("n", [1, 2, 7, 8, 45])
def test_periodic_draws_have_the_count_asked_for_and_no_wave_twice(n):
    """k and -k are one wave; cosine and sine follow each other."""
    features = PeriodicRFF(n, 0.3).bind(BOX)
    assert features.n_features == n
    k = np.rint(features.weights * BOX.side / (2 * math.pi)).astype(int)
    waves = {max(tuple(row), tuple(-row)) for row in k[1::2]}
    assert len(waves) == n // 2 and (0, 0) not in waves
    assert_array_equal(k[2::2], k[1:-1:2] if n % 2 else k[1:-2:2])
    longer = PeriodicRFF(60, 0.3).bind(BOX)
    assert_array_equal(longer.weights[:n], features.weights)


def test_all_waves_of_the_lattice_can_be_had_and_no_more():
    """Within six standard deviations, 6 * 2.5 / (2 pi 0.9) + 1/2 rounds down to 3: seven features."""
    assert PeriodicRFF(7, 0.9).bind(INTERVAL).n_features == 7
    k = PeriodicRFF(7, 0.9).bind(INTERVAL).weights[1::2, 0] * 2.5 / (2 * math.pi)
    assert sorted(np.rint(np.abs(k))) == [1, 2, 3]
    with pytest.raises(ValueRangeError, match=r"n_features=8 asks for more.*at most 7, or shorten length_scale"):
        PeriodicRFF(8, 0.9).bind(INTERVAL)
    with pytest.raises(ValueRangeError, match="at most 1,"):
        PeriodicRFF(2, 100.0).bind(INTERVAL)


def test_the_first_wave_follows_the_rounded_normal_law():
    """P(|k| = j) given k != 0, over 2000 seeds, to four binomial standard errors. Control: another length scale."""
    sigma = 2.5 / (2 * math.pi * 0.2)
    n = 2000
    first = [PeriodicRFF(2, 0.2, seed=seed).bind(INTERVAL).weights[1, 0] for seed in range(n)]
    k = np.rint(np.abs(first) * 2.5 / (2 * math.pi))

    def fits(sigma: float) -> bool:
        p = np.array([2 * (ndtr((j + 0.5) / sigma) - ndtr((j - 0.5) / sigma)) for j in range(1, 5)])
        p /= 2 * (1 - ndtr(0.5 / sigma))
        share = np.array([(k == j).mean() for j in range(1, 5)])
        return bool((np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / n)).all())

    assert fits(sigma) and not fits(1.25 * sigma)


def test_large_lattices_are_drawn_without_being_listed():
    """Three fine axes have 1e8 waves; repeats are as good as excluded by drawing on, and none is kept twice."""
    features = PeriodicRFF(4001, [0.004, 0.002, 0.008]).bind(BRICK)
    k = np.rint(features.weights[1::2] * BRICK.side / (2 * math.pi)).astype(int)
    assert len({max(tuple(row), tuple(-row)) for row in k}) == 2000


def test_mixed_axes_repeat_along_the_periodic_ones_only():
    """Periodic in x, windowed in y: the channel."""
    features = PeriodicRFF(12, 0.3, axes=[0]).bind(BOX)
    assert PeriodicRFF(12, 0.3, axes=0) == PeriodicRFF(12, 0.3, axes=(0,))
    low, high = inside(BOX), inside(BOX)
    low[:, 0], high[:, 0] = BOX.lower[0], BOX.upper[0]
    assert_array_equal(features(low), features(high))
    low, high = inside(BOX), inside(BOX)
    low[:, 1], high[:, 1] = BOX.lower[1], BOX.upper[1]
    assert np.abs(features(low) - features(high)).max() > 0.1
    windowed = bubble(PeriodicRFF(12, 0.3, axes=0), parts="y*").bind(BOX)
    assert windowed.zero_parts == {"y-", "y+"}
    assert_array_equal(windowed(low), 0.0)
    assert_array_equal(windowed(high), 0.0)
    # The normals of the other axis are those of ordinary waves: standard deviation 1 / length_scale.
    w = PeriodicRFF(20_001, 0.3, axes=0).bind(BOX).weights[1::2, 1]
    assert abs(w.std() * 0.3 - 1) < 5 / math.sqrt(2 * len(w))


def test_the_constant_is_one():
    """Exactly, with no gradient; it costs one point."""
    features = Constant().bind(BRICK)
    values, gradients = features.jet(inside(BRICK))
    assert_array_equal(values, 1.0)
    assert_array_equal(gradients, 0.0)
    assert features.envelope == 1.0 and features.gradient_envelope == 0.0
    assert orders(features, 1e-12) == (1, 1, 1)


# --- patches ----------------------------------------------------------------------------------------------------


def test_the_smooth_step_is_c4_and_its_bounds_are_attained():
    """S(u) + S(1 - u) = 1; four derivatives vanish at the ends, so S leaves 0 like 126 u^5."""
    u = np.linspace(-0.5, 1.5, 40_001)
    value, slope = smooth_step(u)
    assert_allclose(value + smooth_step(1 - u)[0], 1.0, atol=2 * EPS)
    assert (np.diff(value) >= 0).all()
    assert_allclose(slope, differences(lambda x: smooth_step(x[:, 0])[0], u[:, None], 1e-4)[0], atol=1e-10)
    assert slope.max() == pytest.approx(LARGEST_SLOPE, rel=1e-12)
    small = np.array([1e-3, 1e-4])
    assert_allclose(smooth_step(small)[0] / small**5, 126, rtol=4e-3)


SETS_OF_PATCHES = pytest.mark.parametrize(
    ("domain", "counts", "overlap"),
    [
        (INTERVAL, 5, 0.25),
        (INTERVAL, 3, 1.0),
        (BOX, (3, 1), 0.1),
        (BRICK, (2, 3, 2), 0.6),
        (ELL, 4, 0.3),
        (RING, 5, 0.5),
    ],
    ids=["line", "line-full", "strip", "brick", "ell", "ring"],
)


@SETS_OF_PATCHES
def test_windows_of_patches_sum_to_one_and_their_gradients_to_zero(domain, counts, overlap):
    """Everywhere in the domain, whatever was dropped: products of sums that are exactly one. Rounding of 2^d terms."""
    features = patches(Constant(), counts, overlap).bind(domain)
    parts = [on_part(domain, part)[0] for part in domain.parts]
    x = np.concatenate([inside(domain, 2000), *parts])
    values, gradients = features.jet(x)
    assert_allclose(values.sum(axis=1), 1.0, atol=8 * EPS)
    assert_allclose(gradients.sum(axis=2), 0.0, atol=1e-13 * max(np.abs(gradients).max(), 1.0))
    assert values.min() >= 0.0
    assert (np.count_nonzero(values, axis=1) <= 2**domain.dimension).all()


@SETS_OF_PATCHES
def test_patch_gradients_are_exact_at_the_seams(domain, counts, overlap):
    """At every break and a little to each side; steps of 1e-4 within windows of width 0.05 and more.

    The windows are C^4, so the fourth-order formula loses nothing but (h / width)^4 across a break: 2e-11 * 126.
    """
    features = patches(GaussianRFF(3, 0.5), counts, overlap).bind(domain)
    base = inside(domain, 400)
    points = []
    for axis, line in enumerate(features.breaks):
        for place in line:
            for off in (-1e-3, -1e-5, 0.0, 1e-5, 1e-3):
                x = base[: 400 // len(line)].copy()
                x[:, axis] = place + off
                points.append(x)
    x = np.concatenate(points)
    x = x[domain.contains(x)]
    assert len(x) > 300
    assert gradient_error(features, x, 1e-4).max() < 1e-6


def test_patched_features_are_their_formula():
    """Patch by patch, point by point, with windows written out by hand in one dimension."""
    features = patches(RFF, 3, overlap=0.5).bind(Box([0.0], [3.0]))
    x = np.linspace(0, 3, 61)[:, None]
    values = features(x)
    for i, local in enumerate(features.maps):
        rise = smooth_step((x[:, 0] - i) / 0.5 + 0.5)[0] if i > 0 else np.ones(61)
        fall = smooth_step((i + 1 - x[:, 0]) / 0.5 + 0.5)[0] if i < 2 else np.ones(61)
        assert_allclose(values[:, 6 * i : 6 * (i + 1)], (rise * fall)[:, None] * local(x), atol=8 * EPS)
        assert_allclose(local.lower, max(i - 0.25, 0.0), atol=EPS)
        assert_allclose(local.lower + local.side, min(i + 1.25, 3.0), atol=4 * EPS)


class Counting:
    """A feature map that counts the points it is asked about."""

    def __init__(self, inner: FeatureMap, tally: list[int]) -> None:
        self.inner, self.tally = inner, tally

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def jet(self, x: np.ndarray, slopes: bool):
        self.tally.append(len(x))
        return self.inner.jet(x, slopes)


def test_a_point_costs_only_the_patches_it_lies_in():
    """64 patches, but each point is evaluated once per window that is not zero there: 1.5 on average here."""
    features = patches(RFF, 8, overlap=0.25).bind(BOX)
    tally: list[int] = []
    counted = dataclasses.replace(features, maps=tuple(Counting(local, tally) for local in features.maps))
    x = inside(BOX, 3000)
    needed = np.count_nonzero(patches(Constant(), 8, overlap=0.25).bind(BOX)(x))
    for evaluate in (counted, counted.jet):
        tally.clear()
        evaluate(x)
        assert sum(tally) == needed < 2 * len(x)
        assert len(tally) <= 64


def test_patches_that_miss_the_domain_are_dropped_and_shift_no_other_draw():
    """A sixth of the box around an L, the middle of a ring; a patch keeps its draw whatever else is there."""
    ell = patches(RFF, 4).bind(ELL)
    assert set(range(16)) - set(ell.kept) == {3}  # its neighbours reach into the domain with their overlap
    wide = patches(RFF, 6).bind(ELL)
    assert set(range(36)) - set(wide.kept) == {4, 5, 10, 11}
    ring = patches(RFF, 9).bind(RING)
    assert 40 not in ring.kept and {0, 8, 72, 80}.isdisjoint(ring.kept)
    whole = patches(RFF, 4).bind(Box(ELL.lower, ELL.upper))
    for number, local in zip(ell.kept, ell.maps, strict=True):
        assert_array_equal(local.weights, whole.maps[number].weights)
    draws = {tuple(local.weights.ravel()) for local in whole.maps}
    assert len(draws) == 16


def test_a_sliver_of_domain_keeps_its_patch():
    """A triangle of width 1e-3 crosses patches without a vertex in them or a corner of them in it."""
    needle = Polygon([[0.0, 0.0], [10.0, 5.0], [10.0, 5.001]])
    features = patches(Constant(), (5, 5), 0.2).bind(needle)
    x = inside(needle, 500)
    assert_allclose(features(x).sum(axis=1), 1.0, atol=8 * EPS)
    assert len(features.kept) < 25


def test_seeds_inside_a_recipe_are_all_replaced():
    """Sums, windows and maps included; other settings stay."""
    recipe = bubble(RFF + mapped(TanhNetwork(3, 0.4, seed=9), log_axis(0, 2.0, 1.0)), "x-") + DirichletSine(2)
    other = reseeded(recipe, 1, 2)
    first, sine = other.parts
    assert sine == DirichletSine(2) and first.parts == ("x-",)
    rff, tanh = first.recipe.parts
    assert rff.seed != RFF.seed and tanh.recipe.seed not in (9, rff.seed)
    assert dataclasses.replace(rff, seed=RFF.seed) == RFF
    assert reseeded(recipe, 1, 2) == other != reseeded(recipe, 2, 1)


# --- mapped coordinates -----------------------------------------------------------------------------------------


def polar(x: np.ndarray) -> np.ndarray:
    y = x - RING.centre
    return np.stack([np.log(np.hypot(y[:, 0], y[:, 1])), y[:, 0] * y[:, 1]], axis=1)


def polar_jacobian(x: np.ndarray) -> np.ndarray:
    y = x - RING.centre
    q = np.square(y).sum(axis=1)
    return np.stack([y / q[:, None], y[:, ::-1]], axis=1)


def test_features_of_a_users_map_follow_the_chain_rule():
    """phi(x) = inner(forward(x)) on a ring whose centre the map does not know; as for every family, h = 2e-4."""
    features = mapped(RFF, polar, polar_jacobian).bind(RING)
    x = inside(RING)
    assert_array_equal(features(x), features.inner(polar(x)))
    assert gradient_error(features, x, 2e-4).max() < 1e-7
    # The image box holds the image, and not much else: a cell of the grid on each side.
    y = polar(inside(RING, 4000))
    low, high = features.inner.lower, features.inner.lower + features.inner.side
    assert (y >= low).all() and (y <= high).all()
    assert_allclose(low, [math.log(0.5), -2.0], atol=0.3)
    assert_allclose(high, [math.log(2.0), 2.0], atol=0.3)
    # Only samples of its slope are known, so nothing is claimed about it.
    assert np.isinf(features.sup_gradients).all()
    assert_array_equal(features.sup_values, math.sqrt(2))
    windowed = bubble(mapped(RFF, polar, polar_jacobian)).bind(RING)
    assert windowed.zero_trace


def test_maps_may_change_the_number_of_coordinates():
    """A field that depends on the distance from a line only: two coordinates in, one out."""
    features = mapped(RFF, lambda x: np.square(x).sum(axis=1, keepdims=True), lambda x: 2.0 * x[:, None, :]).bind(BOX)
    assert features.dimension == 2 and features.inner.dimension == 1
    assert gradient_error(features, inside(BOX), 2e-4).max() < 1e-7


@pytest.mark.parametrize(
    ("forward", "box"),
    [
        (log_axis(0, -1.0, 0.1), INTERVAL),
        (log_axis(1, 1.0, -0.3), BOX),
        (log_axis(2, -2.5, 0.2), BRICK),
        (log_radius([2.3, 0.2], 0.1), BOX),
        (log_radius([0.0, 0.0], 0.5), BOX),
        (log_radius([5.0, 0.0], 0.5), BOX),
        (log_radius([0.5, 1.2, -3.0], 0.3), BRICK),
        (log_distance([2.3, 0.2], 0.1), BOX),
        (log_distance([5.0, 0.0], 0.5), BOX),
        (log_distance([0.5, 1.2, -3.0], 0.3), BRICK),
    ],
    ids=str,
)
def test_ready_made_maps_know_their_image_and_their_bound(forward, box):
    """The image box is met by a fine grid from inside, both bounds hold; the Jacobian is the derivative."""
    x = box.grid({1: 4001, 2: 201, 3: 41}[box.dimension])
    y = forward(x)
    low, high = forward.image(box.lower, box.upper)
    assert (y >= low - 1e-14).all() and (y <= high + 1e-14).all()
    # The grid passes within half a cell of the place where an extreme is attained, which is flat there.
    assert_allclose(y.min(axis=0), low, atol=2e-3 * (high - low).max())
    assert_allclose(y.max(axis=0), high, atol=2e-3 * (high - low).max())
    J = forward.jacobian(x)
    slope = forward.bound(box.lower, box.upper)
    norms = np.linalg.norm(J, 2, axis=(1, 2))
    assert 0.9 * slope <= norms.max() <= slope * (1 + 1e-12)
    some = x[:: max(len(x) // 2000, 1)]
    h = 2e-5
    assert_allclose(np.moveaxis(differences(forward, some, h), 0, -1), forward.jacobian(some), atol=1e-8 * slope)


def test_ready_made_maps_are_values():
    """They compare, hash and print."""
    assert log_axis(0, 1, 2) == log_axis(0, 1.0, 2.0) != log_axis(1, 1, 2)
    assert len({log_radius([0, 1], 2), log_radius((0.0, 1.0), 2.0)}) == 1
    assert "scale=2.0" in repr(log_axis(0, 1, 2))
    centre = np.array([[2.3, 0.2]])
    crowd = log_radius([2.3, 0.2], 0.1)
    assert_array_equal(crowd(centre), 0.0)
    assert_allclose(crowd.jacobian(centre)[0], np.eye(2) / 0.1, rtol=4 * EPS)


def test_features_in_a_logarithm_resolve_a_boundary_layer():
    """exp(-x / 0.002) by least squares with 60 features: plain waves cannot, waves in log(1 + x / 0.002) can.

    Measured 2e-5; the control misses a quarter of the layer's height.
    """
    box = Box([0.0], [1.0])
    x = np.concatenate([np.linspace(0, 0.02, 800), np.linspace(0.02, 1, 800)])[:, None]
    layer = np.exp(-x[:, 0] / 0.002)

    def misfit(recipe: Recipe) -> float:
        Phi = recipe.bind(box)(x)
        return float(np.abs(Phi @ np.linalg.lstsq(Phi, layer, rcond=1e-12)[0] - layer).max())

    assert misfit(mapped(GaussianRFF(60, 0.7), log_axis(0, 0.0, 0.002))) < 1e-4
    assert misfit(GaussianRFF(60, 0.1)) > 0.1


# --- quadrature -------------------------------------------------------------------------------------------------


def defect(features: FeatureMap, domain: Domain, floor: float, composite: bool = False, part: float = 1.0) -> float:
    """Whiten on the rule the map asks for (or a part of it), measure on the check rule."""
    order = orders(features, floor, aligned=True) if composite else orders(features, floor)
    order = tuple(max(int(part * n), 4) for n in order)
    if composite:
        rules = [domain.quadrature(n, breaks=features.breaks) for n in (order, tuple(n + 7 for n in order))]
    else:
        rules = [domain.quadrature(order), domain.check_quadrature(order)]
    own, other = (np.sqrt(rule.weights)[:, None] * features(rule.points) for rule in rules)
    _, s, Vt = np.linalg.svd(np.linalg.qr(own, mode="r"))
    keep = s**2 > floor * s[0] ** 2
    Psi = other @ (Vt[keep].T / s[keep])
    return float(np.abs(np.linalg.eigvalsh(Psi.T @ Psi) - 1).max())


@pytest.mark.parametrize(
    ("recipe", "domain", "floor", "target"),
    [
        # Smooth windows: as good as the waves. Edge distances, with eight points more per axis: measured 2e-5 here.
        (bubble(GaussianRFF(80, 0.4)), DISK, 1e-12, 1e-6),
        (bubble(GaussianRFF(80, 0.4)), RING, 1e-12, 1e-6),
        (bubble(GaussianRFF(80, 0.4)), KITE, 1e-12, 1e-3),
        (bubble(GaussianRFF(80, 0.4)), ELL, 1e-12, 1e-3),
        (GaussianRFF(80, 0.4) + CornerRFF(40), ELL, 1e-14, 1e-6),
        (PeriodicRFF(81, 0.15), BOX, 1e-12, 1e-6),
        (bubble(PeriodicRFF(80, 0.2, axes=0), "y*"), BOX, 1e-12, 1e-6),
        (patches(GaussianRFF(15, 0.3), 2), BOX, 1e-12, 1e-3),
        (mapped(GaussianRFF(40, 0.5), log_axis(0, 2.0, 0.05)), BOX, 1e-10, 1e-3),
        (mapped(GaussianRFF(40, 0.5), log_radius([2.4, 0.1], 0.3)), BOX, 1e-10, 1e-3),
    ],
    ids=str,
)
def test_the_order_each_map_asks_for_keeps_whitened_features_orthonormal(recipe, domain, floor, target):
    """1e-3 is where whitening warns."""
    assert defect(recipe.bind(domain), domain, floor) < target


@pytest.mark.parametrize(
    ("recipe", "part"),
    [
        (PeriodicRFF(81, 0.15), 0.5),
        (patches(GaussianRFF(15, 0.3), 2), 0.3),
        (mapped(GaussianRFF(40, 0.5), log_axis(0, 2.0, 0.05)), 0.25),
    ],
    ids=str,
)
def test_a_fraction_of_the_order_does_not(recipe, part):
    """Control: the rules are not idle."""
    assert defect(recipe.bind(BOX), BOX, 1e-10, part=part) > 1e-3


def test_a_rule_composite_on_the_breaks_is_spectral():
    """Between the breaks everything is analytic: fewer points, and a defect at rounding over the floor.

    Measured 7e-11 at a floor of 1e-12 with a quarter of the points. Windows and sums pass the breaks on.
    """
    recipe = bubble(patches(GaussianRFF(15, 0.3), 2)) + GaussianRFF(10, 0.5)
    features = recipe.bind(BOX)
    for line, axis in zip(features.breaks, range(2), strict=True):
        middle = BOX.lower[axis] + BOX.side[axis] / 2
        assert_allclose(line, middle + BOX.side[axis] / 16 * np.array([-1, 1]))
    assert defect(features, BOX, 1e-12, composite=True) < 1e-6
    assert all(n < m / 2 for n, m in zip(orders(features, 1e-12, aligned=True), orders(features, 1e-12), strict=True))
    smooth = RFF.bind(BOX)
    assert all(line.size == 0 for line in smooth.breaks)
    assert orders(smooth, 1e-9, aligned=True) == orders(smooth, 1e-9)


def test_corner_orders_count_the_oscillations_of_zeta():
    """Half a point per radian of 2 |w| max |zeta|, plus fourteen; a window concentrates them."""
    features = CornerRFF(30).bind(ELL)
    fastest = np.linalg.norm(features.weights[0], axis=1).max()
    phase = 2 * fastest * (math.sqrt(2) / 2) ** (2 / 3)
    assert orders(features, 1e-9) == (math.ceil(phase / 2) + 14,) * 2
    windowed = CornerRFF(30).bind(FRAME)
    assert orders(windowed, 1e-9)[0] > 14


# --- misuse -----------------------------------------------------------------------------------------------------


class Cloud(Domain):
    """A domain of a new shape: what every domain must answer, and nothing else."""

    lower, upper, names = np.zeros(2), np.ones(2), {}
    volume, native_parts = 1.0, ("rim",)

    def contains(self, x: np.ndarray) -> np.ndarray:
        return Box(self.lower, self.upper).contains(x)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((n, 2))

    quadrature = pieces = rule_within = _native_rule = None


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: bubble(RFF, "z-").bind(BOX),
            ValueRangeError,
            r"vanish on 'z-'.*the Box has no such.*x-, x\+.*'edge\*'",
        ),
        (lambda: bubble(RFF, ["outer", "hole*"]).bind(DISK), ValueRangeError, r"'hole\*', but the Ball has no such"),
        (lambda: bubble(RFF, []), ValueRangeError, "parts must be names.*all parts.*unwindowed"),
        (lambda: bubble(RFF, [3]), ValueRangeError, r"parts must be names.*got \[3\]"),
        (lambda: bubble(RFF).bind(Cloud()), ValueRangeError, "a box, a ball and a polygon.*Cloud.*unwindowed"),
        (lambda: BoxWindow([0.0], [1.0], ["y-"]), ValueRangeError, r"among x-, x\+; got 'y-'"),
        (
            lambda: BallWindow([0.0, 0.0], 1.0, 2.0),
            ValueRangeError,
            "inner_radius must be below radius; got 2.0 and 1.0",
        ),
        (lambda: BallWindow([0.0, 0.0], 1.0, None, ["inner"]), ValueRangeError, "among outer; got 'inner'"),
        (
            lambda: PolygonWindow(np.zeros((3, 2)), np.zeros((3, 2)), 1.0),
            ShapeError,
            r"segments must have shape \(E, 2, 2\)",
        ),
        (lambda: CornerRFF(0), ValueRangeError, "n_features must be at least 1"),
        (lambda: CornerRFF(3, scale=-1.0), ValueRangeError, "scale must be positive; got -1.0.*without unit"),
        (lambda: CornerRFF(3).bind(KITE), ValueRangeError, "re-entrant corners, but the Polygon has none.*GaussianRFF"),
        (lambda: CornerRFF(3).bind(BOX), ValueRangeError, "the Box has none; leave it out"),
        (lambda: PeriodicRFF(3, 0.5, axes=2).bind(BOX), ValueRangeError, "axis 2, but the domain has axes 0 to 1"),
        (lambda: PeriodicRFF(3, 0.5, axes=[]), ValueRangeError, "at least one periodic axis.*GaussianRFF"),
        (lambda: PeriodicRFF(3, 0.5, axes="x"), ValueRangeError, r"axes\[0\] must be a whole number; got 'x'"),
        (lambda: PeriodicRFF(3, 0.5).bind(DISK), ValueRangeError, "across a box, but the domain is a Ball"),
        (lambda: patches(RFF.bind(BOX), 2), ValueRangeError, "takes a recipe.*FourierMap.*Bind afterwards"),
        (lambda: patches(RFF, 0), ValueRangeError, "counts must be at least 1; got 0"),
        (lambda: patches(RFF, (2, 0)), ValueRangeError, r"counts\[1\] must be at least 1"),
        (lambda: patches(RFF, (2, 2)).bind(BRICK), ShapeError, "counts has 2 entries but the domain has 3 axes"),
        (lambda: patches(RFF, 2, overlap=0.0), ValueRangeError, "overlap must be positive.*continuous"),
        (lambda: patches(RFF, 2, overlap=1.5), ValueRangeError, "overlap must be at most 1; got 1.5.*neighbours"),
        (lambda: patches(CornerRFF(3), 2).bind(ELL), ValueRangeError, "the Box has none"),
        (lambda: mapped(RFF.bind(BOX), polar, polar_jacobian), ValueRangeError, "takes a recipe.*FourierMap"),
        (lambda: mapped(RFF, polar), ValueRangeError, "must be functions.*NoneType.*log_axis.*needs no jacobian"),
        (lambda: mapped(RFF, log_axis(0, 0.0, 1.0), polar_jacobian), ValueRangeError, "brings its own Jacobian"),
        (
            lambda: mapped(RFF, log_axis(0, 2.5, 0.1)).bind(BOX),
            ValueRangeError,
            "not defined on the whole.*negative scale",
        ),
        (lambda: mapped(RFF, log_axis(2, 0.0, 0.1)).bind(BOX), ValueRangeError, "maps axis 2, but.*axes 0 to 1"),
        (lambda: log_axis(0, 0.0, 0.0), ValueRangeError, "scale must not be 0"),
        (lambda: log_radius([0.0, 0.0], -1.0), ValueRangeError, "scale must be positive"),
        (lambda: mapped(RFF, lambda x: x[:, 0], polar_jacobian).bind(BOX), ShapeError, r"forward\(x\) has shape"),
        (
            lambda: mapped(RFF, lambda x: x, lambda x: x).bind(BOX),
            ShapeError,
            r"jacobian\(x\) has shape.*columns old ones",
        ),
        (
            lambda: mapped(RFF, lambda x: x * np.nan, lambda x: x[:, None] * x[:, :, None]).bind(BOX),
            ValueRangeError,
            "forward.* must be finite.*defined on the whole domain",
        ),
        (
            lambda: mapped(RFF, lambda x: 0 * x, lambda x: np.zeros((len(x), 2, 2))).bind(BOX),
            ValueRangeError,
            "new coordinate 0 the same value 0.0 everywhere",
        ),
        (
            lambda: mapped(RFF, lambda x: np.hstack([x, x]), lambda x: np.zeros((len(x), 4, 2))).bind(BOX),
            ShapeError,
            "4 coordinates, but features take 1 to 3",
        ),
    ],
)
def test_misuse_says_what_to_do(make, error, match):
    """The argument, what arrived, what it must be, and the remedy."""
    with pytest.raises(error, match=match):
        make()


def test_features_of_a_function_cannot_be_saved_and_say_so():
    """A function has no settings; a sum or window around it has none either."""
    features = mapped(RFF, polar, polar_jacobian).bind(RING)
    for claimed in (features, features + Constant().bind(RING), bubble(mapped(RFF, polar, polar_jacobian)).bind(RING)):
        with pytest.raises(ArchiveError, match=r"cannot be saved; use a ready-made map \(log_axis, log_radius\)"):
            claimed.settings()
    ready = mapped(RFF, log_axis(0, 2.0, 0.1)).bind(BOX)
    settings = ready.settings()
    with pytest.raises(ArchiveError, match=r"coordinate map is of kind 'swirl'.*log-axis, log-distance, log-radius"):
        restore({**settings, "forward": {"kind": "swirl"}}, ready.arrays())


def test_damaged_archives_are_refused_with_a_reason():
    """Missing or misshapen arrays of every new kind."""
    for recipe, domain, drop in (
        (CornerRFF(3), ELL, "cuts"),
        (PeriodicRFF(3, 0.4), BOX, "weights"),
        (Constant(), BOX, "side"),
        (patches(RFF, 2), BOX, "2.offsets"),
        (mapped(RFF, log_axis(0, 2.0, 0.1)), BOX, "stretch"),
    ):
        features = recipe.bind(domain)
        arrays = {key: value for key, value in features.arrays().items() if key != drop}
        with pytest.raises(ArchiveError, match=r"cannot be rebuilt.*incomplete or was edited"):
            restore(features.settings(), arrays)
    features = patches(RFF, 2).bind(BOX)
    settings = features.settings()
    with pytest.raises(ArchiveError, match="cannot be rebuilt"):
        restore({**settings, "kept": [0, 1, 2]}, features.arrays())
    with pytest.raises(ArchiveError, match="counts has 1 entries but the domain has 2 axes"):
        restore({**settings, "counts": [4]}, features.arrays())
