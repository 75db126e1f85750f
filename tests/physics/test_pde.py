"""The equation in words: what is accepted, what is refused, and when a function is checked."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import DefinitenessError, RFKalmanError, ShapeError, ValueRangeError
from rfkalman.physics.pde import resolve_parts

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
X = SQUARE.sample(9, np.random.default_rng(0))
ZERO = rk.Dirichlet()


# --- what is accepted -------------------------------------------------------------------------------------------------


def test_constants_are_the_same_everywhere():
    pde = rk.LinearPDE(SQUARE, diffusion=0.5, velocity=[1.0, -2.0], reaction=3.0, source=4.0)
    assert_array_equal(pde.diffusion_at(X), np.full(9, 0.5))
    assert_array_equal(pde.velocity_at(X), np.tile([1.0, -2.0], (9, 1)))
    assert_array_equal(pde.reaction_at(X), np.full(9, 3.0))
    assert_array_equal(pde.source_at(X, 7.0), np.full(9, 4.0))
    assert not pde.is_symmetric and not pde.has_functions


def test_a_tensor_is_the_same_everywhere_and_kept_symmetric():
    tensor = [[2.0, 0.5], [0.5, 1.0]]
    pde = rk.LinearPDE(SQUARE, diffusion=tensor)
    assert pde.is_symmetric
    assert_array_equal(pde.diffusion_at(X), np.broadcast_to(tensor, (9, 2, 2)))


def test_a_rotated_tensor_is_symmetric_though_its_last_bits_are_not():
    """R D R^T in floating point: off-diagonals that are rounding must not be compared with each other."""
    for angle in (np.pi / 2, np.pi, 0.3, 1e-9):
        R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        tensor = (R * [3.0, 0.1]) @ R.T
        tensor[0, 1] += 1e-16
        rk.LinearPDE(SQUARE, diffusion=tensor)
        rk.LinearPDE(SQUARE, diffusion=lambda x, t=tensor: np.tile(t, (len(x), 1, 1))).diffusion_at(X)


def test_functions_give_one_value_per_point():
    pde = rk.LinearPDE(
        SQUARE,
        diffusion=lambda x: 1.0 + x[:, 0],
        velocity=lambda x: x[:, ::-1],
        reaction=lambda x: x[:, 1].tolist(),
        source=lambda x, t: t * x[:, 0],
    )
    assert pde.has_functions and not pde.is_symmetric
    assert_array_equal(pde.diffusion_at(X), 1.0 + X[:, 0])
    assert_array_equal(pde.velocity_at(X), X[:, ::-1])
    assert_array_equal(pde.reaction_at(X), X[:, 1])
    assert_array_equal(pde.source_at(X, 2.0), 2.0 * X[:, 0])
    assert_array_equal(rk.LinearPDE(SQUARE, reaction=lambda x: 2.0).reaction_at(X), 2.0)  # a constant may be a number
    tensors = rk.LinearPDE(SQUARE, diffusion=lambda x: (1.0 + x[:, 0])[:, None, None] * np.eye(2)).diffusion_at(X)
    assert tensors.shape == (9, 2, 2)


def test_nothing_is_nothing():
    """No velocity, a zero velocity and no source at all are the plain symmetric equation."""
    for pde in (rk.Heat(SQUARE), rk.LinearPDE(SQUARE, velocity=[0.0, 0.0], source=0.0)):
        assert pde.is_symmetric and pde.velocity is None and pde.source is None
        assert_array_equal(pde.velocity_at(X), 0.0)
        assert_array_equal(pde.source_at(X, 0.0), 0.0)


def test_the_short_names_are_the_general_equation():
    heat = rk.Heat(SQUARE, diffusion=0.2, source=1.0, boundary={"*": ZERO})
    flow = rk.AdvectionDiffusion(SQUARE, 0.2, [1.0, 0.0], source=1.0)
    assert heat.settings() == rk.LinearPDE(SQUARE, diffusion=0.2, source=1.0).settings()
    assert flow.settings() == rk.LinearPDE(SQUARE, diffusion=0.2, velocity=[1.0, 0.0], source=1.0).settings()


def test_signs_are_those_of_the_physics():
    """Reaction removes, source adds, velocity carries downstream: seen in one short step of a bump.

    The centre of mass of a bump moves by velocity times time, up to what leaves through the boundary and to
    the 3 % of the bump that this rank cannot hold.
    """
    features = rk.bubble(rk.GaussianRFF(300, 0.15))

    def bump(x: np.ndarray) -> np.ndarray:
        return np.exp(-60.0 * np.square(x - 0.4).sum(axis=1))

    def after(**terms) -> tuple[float, np.ndarray]:
        space = rk.whiten(rk.LinearPDE(SQUARE, diffusion=0.02, **terms), features, 1e-10)
        model = rk.Model(space, rk.Gaussian(space.project(bump), np.zeros((space.rank, 1))))
        asm = rk.Assimilator(model)
        asm.advance(0.1)
        u, rule = asm.posterior().mean, space.rule
        mass = rule.integrate(u)
        return mass, np.array([rule.integrate(lambda x, i=i: x[:, i] * u(x)) for i in (0, 1)]) / mass

    mass, centre = after()
    assert_allclose(after(reaction=2.0)[0] / mass, np.exp(-0.2), rtol=1e-6)
    assert after(source=1.0)[0] > mass + 0.05
    assert_allclose(after(velocity=[1.0, -0.5])[1] - centre, [0.1, -0.05], atol=1e-3)


def test_diffusivity_goes_on_working_under_its_old_name():
    with pytest.warns(DeprecationWarning, match="diffusivity of Heat is called diffusion now"):
        assert rk.Heat(SQUARE, diffusivity=0.2).diffusion == 0.2
    with pytest.warns(DeprecationWarning, match="diffusivity of AdvectionDiffusion is called diffusion now"):
        assert rk.AdvectionDiffusion(SQUARE, diffusivity=0.2, velocity=[1.0, 0.0]).diffusion == 0.2


# --- the boundary -----------------------------------------------------------------------------------------------------


def test_one_condition_or_one_per_part_by_name_or_pattern():
    parts = {"x-": ZERO, "x+": ZERO, "y-": ZERO, "y+": ZERO}
    for boundary in (ZERO, parts, {"*": ZERO}, {"x*": ZERO, "y-": ZERO, "*": ZERO}, {"?+": ZERO, "?-": ZERO}):
        assert rk.LinearPDE(SQUARE, boundary=boundary).conditions == parts


def test_exact_names_win_over_patterns_and_earlier_patterns_over_later():
    a, b, c = rk.Dirichlet(1.0), rk.Dirichlet(2.0), rk.Dirichlet(3.0)
    found = resolve_parts({"*": a, "x*": b, "x+": c}, ("x-", "x+", "y-"))
    assert found == {"x-": a, "x+": c, "y-": a}
    assert resolve_parts({"x*": b, "*": a}, ("x-", "y-")) == {"x-": b, "y-": a}


@pytest.mark.parametrize(
    "boundary, message",
    [
        ({"z-": ZERO, "*": ZERO}, "names the part 'z-', but this domain has the parts x-, x\\+, y-, y\\+"),
        ({"left": ZERO}, "names the part 'left'"),
        ({"X-": ZERO, "*": ZERO}, "names the part 'X-'"),
        ({"x-": ZERO}, "leaves the part 'x\\+' without a condition .*add it, or '\\*' for the rest"),
        ({"x*": ZERO, "y-": ZERO}, "leaves the part 'y\\+' without a condition"),
        ({}, "leaves the part 'x-' without a condition"),
        (0.0, "boundary must be a condition such as Dirichlet\\(0.0\\)"),
        ({"*": 0.0}, "boundary must be a condition"),
        (None, "boundary must be a condition"),
    ],
)
def test_boundaries_that_do_not_fit_are_refused(boundary, message):
    with pytest.raises(ValueRangeError, match=message):
        rk.LinearPDE(SQUARE, boundary=boundary)


@pytest.mark.parametrize("make", [rk.Heat, lambda *a, **k: rk.AdvectionDiffusion(*a, 0.1, [1.0, 0.0], **k)])
def test_an_empty_mapping_is_no_default(make):
    """No condition for any part is a slip, not a wish for the default."""
    with pytest.raises(ValueRangeError, match="leaves the part 'x-' without a condition"):
        make(SQUARE, boundary={})


@pytest.mark.parametrize("value", [np.nan, np.inf, "zero", None])
def test_a_boundary_value_is_a_finite_number(value):
    with pytest.raises(ValueRangeError, match="Dirichlet value must be"):
        rk.Dirichlet(value)


def test_minus_zero_is_zero():
    """They compare equal, so they must also print and save alike."""
    assert repr(rk.Dirichlet(-0.0)) == repr(rk.Dirichlet(0.0))


def test_a_mapping_changed_afterwards_changes_nothing():
    boundary = {"*": ZERO}
    pde = rk.LinearPDE(SQUARE, boundary=boundary)
    boundary["nonsense"] = ZERO
    assert len(pde.conditions) == 4


# --- what is refused at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({"diffusion": -1.0}, ValueRangeError, "diffusion must be positive; got -1.0.*ill-posed"),
        ({"diffusion": 0.0}, ValueRangeError, "diffusion must be positive; got 0.0.*small positive one"),
        ({"diffusion": np.nan}, ValueRangeError, "diffusion must be finite"),
        ({"diffusion": "fast"}, ValueRangeError, "diffusion must be a number"),
        ({"diffusion": [1.0, 2.0]}, ShapeError, r"diffusion has shape \(2,\) but must have shape \(2, 2\)"),
        ({"diffusion": np.eye(3)}, ShapeError, r"diffusion has shape \(3, 3\)"),
        ({"diffusion": [[1.0, 2.0], [2.0, 1.0]]}, DefinitenessError, "positive definite; .* has the eigenvalue -1"),
        ({"diffusion": [[1.0, 1.0], [1.0, 1.0]]}, DefinitenessError, "positive definite"),
        ({"diffusion": [[1.0, 0.1], [0.0, 1.0]]}, DefinitenessError, "must be a symmetric tensor"),
        ({"diffusion": [[1.0, np.nan], [np.nan, 1.0]]}, ValueRangeError, "diffusion must be finite"),
        ({"velocity": [1.0]}, ShapeError, r"velocity has shape \(1,\).*one component per axis"),
        ({"velocity": 1.0}, ShapeError, r"velocity has shape \(\)"),
        ({"velocity": [np.inf, 0.0]}, ValueRangeError, "velocity must be finite"),
        ({"reaction": np.nan}, ValueRangeError, "reaction must be finite"),
        ({"reaction": [1.0, 2.0]}, ValueRangeError, "reaction must be a number"),
        ({"source": np.inf}, ValueRangeError, "source must be finite"),
        ({"source": [1.0, 2.0]}, ValueRangeError, "source must be a number"),
        ({"domain": [0.0, 1.0]}, ShapeError, "domain must be a Domain such as Box"),
    ],
)
def test_bad_constants_are_refused(kwargs, error, message):
    with pytest.raises(error, match=message):
        rk.LinearPDE(**{"domain": SQUARE, **kwargs})


# --- what is refused when it is evaluated -----------------------------------------------------------------------------


def somewhere_bad(value: float):
    """A function that is 1 except at one of the points."""

    def of(x: np.ndarray, *_) -> np.ndarray:
        out = np.ones(len(x))
        out[len(x) // 2] = value
        return out

    return of


@pytest.mark.parametrize(
    "name, function, error, message",
    [
        ("diffusion", somewhere_bad(np.nan), ValueRangeError, r"diffusion\(x\) at x = \[.*\] must be finite"),
        ("diffusion", somewhere_bad(-1.0), DefinitenessError, r"positive everywhere; it is -1 at x = \["),
        ("diffusion", somewhere_bad(0.0), DefinitenessError, r"positive everywhere; it is 0 at x"),
        (
            "diffusion",
            lambda x: np.ones((len(x), 1)),
            ShapeError,
            r"gave shape \(9, 1\).*must give \(9,\) or \(9, 2, 2\)",
        ),
        ("diffusion", lambda x: np.ones(3), ShapeError, r"diffusion\(x\) gave shape \(3,\) for 9 points"),
        (
            "diffusion",
            lambda x: somewhere_bad(-1.0)(x)[:, None, None] * np.eye(2),
            DefinitenessError,
            "the smallest eigenvalue of diffusion must be positive everywhere; it is -1",
        ),
        (
            "diffusion",
            lambda x: np.tile([[1.0, 0.2], [0.1, 1.0]], (len(x), 1, 1)),
            DefinitenessError,
            r"symmetric tensor at every point; at x = .* it is \[\[1.0, 0.2\], \[0.1, 1.0\]\]",
        ),
        (
            "velocity",
            lambda x: x[:, 0],
            ShapeError,
            r"velocity\(x\) gave shape \(9,\) for 9 points but must give \(9, 2\)",
        ),
        ("velocity", lambda x: x.T, ShapeError, r"velocity\(x\) gave shape \(2, 9\)"),
        ("velocity", lambda x: x / 0.0, ValueRangeError, r"velocity\(x\) at x = .* must be finite; 2 of 2"),
        ("reaction", somewhere_bad(np.inf), ValueRangeError, r"reaction\(x\) at x = .* must be finite"),
        ("reaction", lambda x: x, ShapeError, r"reaction\(x\) gave shape \(9, 2\)"),
        ("source", somewhere_bad(np.nan), ValueRangeError, r"source\(x\) at x = .* must be finite"),
        ("source", lambda x, t: np.ones((1, len(x))), ShapeError, r"source\(x\) gave shape \(1, 9\)"),
    ],
)
def test_functions_are_checked_where_they_are_evaluated(name, function, error, message):
    """By the equation itself, and on the way through whiten or the first forced step."""
    pde = rk.LinearPDE(SQUARE, **{name: function})
    with np.errstate(all="ignore"):
        with pytest.raises(error, match=message):
            pde.source_at(X, 0.0) if name == "source" else getattr(pde, f"{name}_at")(X)
        with pytest.raises(error):
            space = rk.whiten(pde, rk.DirichletSine(4))
            rk.Model(space, rk.isotropic(1.0)).step(0.0, 0.1)


def test_a_failed_forced_step_leaves_the_assimilator_where_it_was():
    """A source that breaks at some time raises there and then; up to that time everything stays usable."""

    def source(x: np.ndarray, t: float) -> np.ndarray:
        return np.full(len(x), np.nan if t > 1.0 else 1.0)

    asm = rk.Assimilator(rk.whiten(rk.Heat(SQUARE, source=source), rk.DirichletSine(4)), rk.isotropic(1.0), reorder=2.0)
    asm.advance(0.5)
    belief = asm.belief
    for call in (asm.advance, asm.forecast):
        with pytest.raises(RFKalmanError, match=r"source\(x\) at x"):
            call(1.5)
    assert asm.time == 0.5 and asm.belief is belief and len(asm._moments) == 2
    asm.advance(0.9)


# --- identity ---------------------------------------------------------------------------------------------------------


def test_settings_and_probes_tell_equations_apart():
    """Constants by value, functions by their values at fixed points: what a saved file compares."""

    def f(x: np.ndarray) -> np.ndarray:
        return 1.0 + x[:, 0]

    a = rk.LinearPDE(SQUARE, diffusion=f, source=lambda x, t: t * x[:, 0])
    b = rk.LinearPDE(SQUARE, diffusion=lambda x: 1.0 + x[:, 0], source=lambda x, t: t * x[:, 0])
    c = rk.LinearPDE(SQUARE, diffusion=lambda x: 1.0 + x[:, 1], source=lambda x, t: t * x[:, 0])
    assert a.settings() == b.settings() == c.settings()
    assert set(a.probe()) == {"diffusion", "source"}
    assert_array_equal(a.probe()["diffusion"], b.probe()["diffusion"])
    assert np.abs(a.probe()["diffusion"] - c.probe()["diffusion"]).max() > 0.1
    assert rk.Heat(SQUARE).probe() == {}
    assert rk.Heat(SQUARE, 1.0).settings() != rk.Heat(SQUARE, 2.0).settings()


# --- coefficients after assembly --------------------------------------------------------------------------------------


def test_velocity_may_be_switched_off_and_on_again():
    """A space whose velocity was set to zero is symmetric, but its next velocity is the one asked for.

    Checked against a space assembled for that velocity: the spectra agree to the rounding of whitening.
    """
    recipe = rk.bubble(rk.GaussianRFF(40, 0.4))
    space = rk.whiten(rk.AdvectionDiffusion(SQUARE, 0.1, [1.0, 0.5]), recipe, 1e-8, enrich=False)
    still = space.with_coefficients({"velocity.x": 0.0, "velocity.y": 0.0})
    assert still.pde.is_symmetric
    plain = rk.whiten(rk.Heat(SQUARE, 0.1), recipe, 1e-8)
    assert_allclose(np.diagonal(still.stiffness), np.diagonal(plain.stiffness), rtol=1e-9)
    again = still.with_coefficients({"velocity.x": 2.0, "velocity.y": -1.0})
    fresh = rk.whiten(rk.AdvectionDiffusion(SQUARE, 0.1, [2.0, -1.0]), recipe, 1e-8, enrich=False)

    def spectrum(s: rk.WhitenedSpace) -> np.ndarray:
        return np.sort_complex(np.round(np.linalg.eigvals(s.stiffness), 7))

    assert_allclose(spectrum(again), spectrum(fresh), rtol=1e-6)
    assert np.abs(spectrum(fresh) - np.diagonal(plain.stiffness)).max() > 0.1


def test_a_function_multiplied_by_zero_cannot_be_brought_back():
    space = rk.whiten(rk.AdvectionDiffusion(SQUARE, 0.5, lambda x: x[:, ::-1]), rk.DirichletSine(4))
    still = space.with_coefficients({"velocity": 0.0})
    with pytest.raises(ValueRangeError, match="velocity is a function that this space has already multiplied by 0"):
        still.with_coefficients({"velocity": 1.0})
    assert_allclose(space.with_coefficients({"velocity": 2.0}).pde.velocity_at(X), 2.0 * X[:, ::-1], rtol=1e-15)
