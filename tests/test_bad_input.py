"""What goes wrong in practice: each slip is one clear error, and nothing has changed when it comes.

Every message is checked for three things: the argument's name, what arrived, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import (
    ConformityError,
    DefinitenessError,
    FloorError,
    NoiseWarning,
    OutsideDomainError,
    QuadratureError,
    QuadratureWarning,
    RFKalmanError,
    ShapeError,
    SpaceWarning,
    TimeError,
    ValueRangeError,
)
from rfkalman.features.base import RecipeSum

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
HEAT = rk.Heat(SQUARE, 0.1)
WAVES = rk.bubble(rk.GaussianRFF(40, 0.4))
SENSORS = np.array([[0.2, 0.3], [0.5, 0.5], [0.7, 0.1]])
Y = np.array([0.1, -0.2, 0.3])


@pytest.fixture(scope="module")
def space() -> rk.WhitenedSpace:
    return rk.whiten(HEAT, WAVES, 1e-6)


@pytest.fixture(params=[False, True], ids=["full recursion", "constant gain"])
def asm(space, request) -> rk.Assimilator:
    """In the middle of a stream, with a past."""
    asm = rk.Assimilator(
        space, rk.isotropic(1.0), process_noise=rk.isotropic(0.1), reorder=0.5, constant_gain=request.param
    )
    for t in (0.1, 0.2, 0.4):
        asm.advance(t)
        asm.observe(rk.points(SENSORS), Y, noise_std=0.1)
    return asm


def refuses(asm: rk.Assimilator, call: Callable[[], object], error: type[RFKalmanError], message: str) -> None:
    """The call raises this, and the assimilator goes on as if it had never been made."""
    before = (asm.time, asm.belief, asm.log_evidence, asm.counts, list(asm._moments))
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, RFKalmanError) and isinstance(caught.value, (ValueError, ArithmeticError))
    assert (asm.time, asm.belief, asm.log_evidence, asm.counts, list(asm._moments)) == before
    again = rk.Assimilator(asm.model, reorder=0.5)
    for t in (0.1, 0.2, 0.4):
        again.advance(t)
        again.observe(rk.points(SENSORS), Y, noise_std=0.1)
    for one in (asm, again):
        one.advance(0.7)
        one.observe(rk.points(SENSORS), Y, noise_std=0.1)
    assert_array_equal(asm.belief.mean, again.belief.mean)
    assert_array_equal(asm.belief.root, again.belief.root)


# --- readings and noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "readings, message",
    [
        (
            Y[:2],
            r"readings has shape \(2,\) but there are 3 sensors; give one reading per sensor, NaN where one is missing",
        ),
        (Y[:, None], r"readings has shape \(3, 1\) but there are 3 sensors"),
        (1.0, r"readings has shape \(\) but there are 3 sensors"),
        ([], r"readings has shape \(0,\) but there are 3 sensors"),
        (["a", "b", "c"], r"readings must be numbers, one per sensor; got \['a', 'b', 'c'\]"),
        ([[1.0], [2.0, 3.0], []], "readings must be numbers, one per sensor"),
    ],
)
def test_readings_of_the_wrong_shape(asm, readings, message):
    refuses(asm, lambda: asm.observe(rk.points(SENSORS), readings, noise_std=0.1), ShapeError, message)


@pytest.mark.parametrize(
    "noise, error, message",
    [
        ({}, ValueRangeError, r"Exactly one of noise_std .* and noise_cov .* is needed; got neither"),
        ({"noise_std": 0.1, "noise_cov": np.eye(3)}, ValueRangeError, "is needed; got both"),
        ({"noise_std": 0.0}, ValueRangeError, "noise_std must be positive; got 0.0.*state the sensor's resolution"),
        ({"noise_std": [0.1, 0.0, 0.1]}, ValueRangeError, "noise_std must be positive; got 0.0"),
        ({"noise_std": -0.1}, ValueRangeError, "noise_std must be positive; got -0.1"),
        ({"noise_std": np.nan}, ValueRangeError, "noise_std must be finite; got nan"),
        ({"noise_std": [0.1, np.inf, 0.1]}, ValueRangeError, "noise_std must be finite; 1 of 3 entries"),
        (
            {"noise_std": [0.1, 0.2]},
            ShapeError,
            r"noise_std has shape \(2,\) but must have shape \(3,\). Give one number",
        ),
        ({"noise_std": 0.01 * np.eye(3)}, ShapeError, r"noise_std has shape \(3, 3\)"),
        ({"noise_std": "small"}, ValueRangeError, "noise_std must be a number; got 'small'"),
        (
            {"noise_cov": 0.01},
            ShapeError,
            r"noise_cov has shape \(\) but must have shape \(3, 3\). Independent readings",
        ),
        (
            {"noise_cov": [0.01, 0.01, 0.01]},
            ShapeError,
            r"noise_cov has shape \(3,\).*Independent readings take noise_std",
        ),
        ({"noise_cov": np.eye(2)}, ShapeError, r"noise_cov has shape \(2, 2\) but must have shape \(3, 3\)"),
        ({"noise_cov": np.full((3, 3), np.nan)}, ValueRangeError, "noise_cov must be finite"),
        (
            {"noise_cov": np.ones((3, 3))},
            DefinitenessError,
            "noise_cov must be positive definite.*combine the readings",
        ),
        ({"noise_cov": np.zeros((3, 3))}, DefinitenessError, "noise_cov must be positive definite"),
        ({"noise_cov": np.diag([1.0, -1.0, 1.0])}, DefinitenessError, "smallest eigenvalue is -1"),
        (
            {"noise_cov": np.tril(np.full((3, 3), 0.1))},
            DefinitenessError,
            "noise_cov must be symmetric; .* by up to 0.1 .*For a Cholesky factor L pass L @ L.T",
        ),
    ],
)
def test_noise_that_is_none(asm, noise, error, message):
    """Shape, sign, singular, both or neither; a factor in place of a covariance is not quietly symmetrised."""
    refuses(asm, lambda: asm.observe(rk.points(SENSORS), Y, **noise), error, message)


def test_a_variance_given_as_a_standard_deviation(space):
    """A sensor with a std of 1e-3 has a variance of 1e-6: beside readings near 1 that is worth a question."""
    asm = rk.Assimilator(space, rk.isotropic(1.0))
    with pytest.warns(
        NoiseWarning, match="noise_std is a standard deviation in the units of the field; was a variance"
    ):
        asm.observe(rk.points(SENSORS), [1.0, 0.9, 1.1], noise_std=1e-3**2)
    other = rk.Assimilator(space, rk.isotropic(1.0))
    other.observe(rk.points(SENSORS), [1.0, 0.9, 1.1], noise_std=1e-3)  # and the std itself is not


# --- sensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what, error, message",
    [
        (
            lambda: rk.points([[0.5, 0.5], [1.5, 0.5], [0.5, 0.5]], ids=["north", "east", "south"]),
            OutsideDomainError,
            r"sensors: 1 of 3 points lie outside the domain, which spans .*'east' \(row 1\) at \[1.5, 0.5\]. Check",
        ),
        (
            lambda: rk.points(1000.0 * SENSORS),
            OutsideDomainError,
            r"3 of 3 points lie outside .*or drop these rows with domain.contains",
        ),
        (
            lambda: rk.points(np.hstack([SENSORS, SENSORS])),
            ShapeError,
            "sensors has 4 coordinates per row but the domain has 2",
        ),
        (
            lambda: rk.points(SENSORS.ravel()),
            ShapeError,
            r"sensors must have shape \(N, d\), one row per sensor; got shape \(6,\)",
        ),
        (
            lambda: rk.points([[0.1, np.nan]] * 3),
            ValueRangeError,
            r"sensors must be finite; 3 of 6 entries are not \(first: nan",
        ),
        (lambda: SENSORS, ShapeError, r"sensors are stated as a functional such as rk.points\(sensors\); got ndarray"),
        (lambda: None, ShapeError, r"such as rk.points\(sensors\); got NoneType"),
    ],
)
def test_sensors_that_cannot_be(asm, what, error, message):
    refuses(asm, lambda: asm.observe(what(), Y, noise_std=0.1), error, message)


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda a: a.advance(0.3),
            TimeError,
            r"cannot advance to t = 0.3: the present is 0.4.*observe\(..., time=...\)",
        ),
        (lambda a: a.forecast(0.3), TimeError, "cannot forecast to t = 0.3: the present is 0.4"),
        (lambda a: a.advance(np.nan), ValueRangeError, "t must be finite; got nan"),
        (lambda a: a.advance("noon"), ValueRangeError, "t must be a number; got 'noon'"),
        (lambda a: a.forecast(np.inf), ValueRangeError, "t must be finite; got inf"),
        (
            lambda a: a.observe(rk.points(SENSORS), Y, noise_std=0.1, time=0.5),
            TimeError,
            r"time = 0.5 lies ahead of the present, 0.4; call advance\(0.5\)",
        ),
        (
            lambda a: a.observe(rk.points(SENSORS), Y, noise_std=0.1, time=-0.05),
            TimeError,
            "time = -0.05 lies before the start, 0.0",
        ),
        (
            lambda a: a.observe(rk.points(SENSORS), Y, noise_std=0.1, time=np.nan),
            ValueRangeError,
            "time must be finite",
        ),
    ],
)
def test_time_going_backwards(asm, call, error, message):
    refuses(asm, lambda: call(asm), error, message)


def test_a_reading_older_than_the_lag(asm):
    asm.advance(0.65)
    moments = list(asm._moments)
    with pytest.raises(
        TimeError, match=r"time = 0.1 is 0.55 before the present, 0.65, but reorder is 0.5: beliefs are kept"
    ):
        asm.observe(rk.points(SENSORS), Y, noise_std=0.1, time=0.1)
    assert asm._moments == moments


# --- the equation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["diffusion", "velocity", "reaction", "source"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_coefficients_that_are_not_finite(name, value):
    """As constants when they are stated, as functions when they are evaluated, with the place."""
    shape = (2,) if name == "velocity" else ()
    with pytest.raises(ValueRangeError, match=f"{name} must be finite"):
        rk.LinearPDE(SQUARE, **{name: np.full(shape, value)})
    pde = rk.LinearPDE(SQUARE, **{name: lambda x, *_: np.full((len(x), *shape), value)})
    with pytest.raises(ValueRangeError, match=rf"{name}\(x\) at x = \[0\..*\] must be finite"):
        rk.Model(rk.whiten(pde, WAVES, 1e-6), rk.isotropic(1.0)).step(0.0, 1.0)


@pytest.mark.parametrize("source", [lambda x, t: np.ones(3), lambda x, t: np.full(len(x), np.nan if t > 0.5 else 0.0)])
def test_a_source_that_breaks_does_so_before_anything_moves(source):
    asm = rk.Assimilator(rk.whiten(rk.Heat(SQUARE, 0.1, source=source), WAVES, 1e-6), rk.isotropic(1.0))
    belief = asm.belief
    with pytest.raises(RFKalmanError, match=r"source\(x\)"):
        asm.advance(1.0)
    assert asm.time == 0.0 and asm.belief is belief


# --- features and floors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: rk.GaussianRFF(0, 0.3), ValueRangeError, "n_features must be at least 1; got 0"),
        (lambda: rk.DirichletSine(0), ValueRangeError, "n_features must be at least 1; got 0"),
        (lambda: rk.GaussianRFF(10, 0.0), ValueRangeError, "length_scale must be positive; got 0.0"),
        (lambda: rk.whiten(HEAT, RecipeSum(())), ShapeError, "needs at least one part"),
        (lambda: rk.whiten(HEAT, None), ValueRangeError, r"features must be a recipe such as bubble\(.*got NoneType"),
        (lambda: rk.whiten(HEAT, 40), ValueRangeError, "features must be a recipe.*got int"),
        (lambda: rk.whiten(SQUARE, WAVES), ValueRangeError, r"pde must be an equation such as Heat\(domain\); got Box"),
        (
            lambda: rk.whiten(HEAT, rk.GaussianRFF(40, 0.4)),
            ConformityError,
            r"do not vanish on the boundary.*rk.bubble\(features\)",
        ),
        (
            lambda: rk.whiten(HEAT, WAVES.bind(rk.Box([0.0, 0.0], [1.0, 2.0]))),
            ValueRangeError,
            r"features are bound to a box at \[0.0, 0.0\] with sides \[1.0, 2.0\], but the PDE's is .*pass the recipe",
        ),
        (
            lambda: rk.whiten(HEAT, rk.bubble(rk.GaussianRFF(40, (0.4, 0.4, 0.4)))),
            ShapeError,
            "length_scale has 3 entries",
        ),
    ],
)
def test_features_that_cannot_carry_the_field(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("floor", [1.0, 1.5, -1e-6])
def test_a_floor_that_keeps_nothing(floor):
    with pytest.raises(
        FloorError, match=r"mass_floor must lie in \[0, 1\) and keeps nothing at .*1e-12 is the default"
    ):
        rk.whiten(HEAT, WAVES, floor)


@pytest.mark.parametrize("floor", [np.nan, "small"])
def test_a_floor_that_is_no_number(floor):
    with pytest.raises(ValueRangeError, match="mass_floor must be"):
        rk.whiten(HEAT, WAVES, floor)


def test_a_floor_just_below_one_keeps_the_strongest_direction():
    """The inequality is strict, so the largest eigenvalue itself always stays."""
    assert rk.whiten(HEAT, WAVES, np.nextafter(1.0, 0.0)).rank == 1


@pytest.mark.parametrize("floor", [0.0, 1e-24])
def test_a_floor_that_keeps_rounding_noise(floor):
    """Forty waves of one length have far fewer than forty directions above rounding."""
    smooth = rk.bubble(rk.GaussianRFF(60, 2.0))
    with pytest.raises(FloorError, match=r"keeps \d+ directions, .*rounding noise. Use mass_floor=1e-16 or larger"):
        rk.whiten(HEAT, smooth, floor)
    rk.whiten(HEAT, smooth, 1e-16)


@pytest.mark.parametrize("floors", [(), (0.0, 1e-6), (1e-6, 1.0)])
def test_a_grid_of_floors_that_cannot_be_chosen_from(floors):
    with pytest.raises(FloorError, match=r"floors must be numbers in \[1e-20, 1\)"):
        rk.FloorGrid(floors)


def test_quadrature_that_cannot_carry_the_features():
    """Fewer points than features, or a rule that looks orthonormal on its own nodes alone; the remedy is an order."""
    with pytest.raises(
        QuadratureError, match=r"order=\(5, 5\) gives 25 quadrature points for 40 features; at least 80"
    ):
        rk.whiten(HEAT, WAVES, 1e-6, order=5)
    with pytest.raises(
        QuadratureError, match=r"miss orthonormality by .* on a second quadrature rule .* order=\d+ would do"
    ):
        rk.whiten(HEAT, rk.bubble(rk.GaussianRFF(40, 0.05)), 1e-6, order=10)


def test_a_budget_too_small_names_one_that_is_not():
    with pytest.raises(ValueRangeError, match=r"memory is 0 MB but 40 features in 2 dimensions need at least \d+ MB"):
        rk.whiten(HEAT, WAVES, memory=1e3)


def test_spaces_with_a_property_to_know_warn():
    """All features kept; a coefficient that the rule does not resolve."""
    with pytest.warns(
        SpaceWarning, match="all 6 features survive the floor.*Use more features or a larger length_scale"
    ):
        rk.whiten(HEAT, rk.bubble(rk.GaussianRFF(6, 0.2)), 1e-8)
    stripes = rk.Heat(SQUARE, lambda x: 1.0 + 0.9 * np.sin(300.0 * x[:, 0]))
    with pytest.warns(
        QuadratureWarning, match="a coefficient function varies faster than the rule resolves; raise order"
    ):
        rk.whiten(stripes, WAVES, 1e-6)


# --- the model --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({}, ValueRangeError, r"prior is needed: .*isotropic\(std=1.0\)"),
        ({"prior": 1.0}, ShapeError, r"prior must be a recipe such as isotropic\(std=1.0\), or a Gaussian; got 1.0"),
        ({"prior": rk.Gaussian(np.zeros(3), np.eye(3))}, ShapeError, "prior has 3 coefficients but the space has rank"),
        (
            {"prior": rk.isotropic(1.0), "propagator": "euler"},
            ValueRangeError,
            "propagator must be a Propagator such as",
        ),
        (
            {"prior": rk.isotropic(1.0), "propagator": rk.Exponential},
            ValueRangeError,
            "propagator must be a Propagator",
        ),
        ({"prior": rk.isotropic(1.0), "start": np.nan}, ValueRangeError, "start must be finite"),
        ({"prior": rk.isotropic(1.0), "reorder": -1.0}, ValueRangeError, "reorder must not be negative; got -1.0"),
        ({"prior": rk.isotropic(1.0), "reorder": np.nan}, ValueRangeError, "reorder must be finite"),
        ({"prior": rk.isotropic(1.0), "process_noise": 0.1}, ShapeError, "process_noise must be a recipe"),
    ],
)
def test_models_that_do_not_fit(space, kwargs, error, message):
    with pytest.raises(error, match=message):
        rk.Assimilator(space, **kwargs)


def test_process_noise_has_no_mean(space):
    tendency = rk.Gaussian(np.ones(space.rank), np.eye(space.rank))
    with pytest.raises(ValueRangeError, match=r"process_noise must have zero mean; .* belongs in the PDE's source"):
        rk.Model(space, rk.isotropic(1.0), process_noise=tendency)


@pytest.mark.parametrize("std", [0.0, -1.0, np.nan, "wide"])
def test_a_prior_has_a_positive_spread(std):
    with pytest.raises(ValueRangeError, match="std must be"):
        rk.isotropic(std)


def test_a_space_is_what_whiten_gives(space):
    with pytest.raises(ShapeError, match=r"space must be what whiten\(pde, features\) gives; got Box"):
        rk.Assimilator(SQUARE, rk.isotropic(1.0))
    with pytest.raises(ValueRangeError, match="this space has no coefficient 'viscosity'; it has diffusion"):
        space.with_coefficients({"viscosity": 1.0})
    with pytest.raises(ShapeError, match=r"function\(x\) has shape \(1,\).*one value per row of x"):
        space.project(lambda x: np.ones(1))
    with pytest.raises(ValueRangeError, match=r"function\(x\) must be finite"):
        space.project(lambda x: np.full(len(x), np.nan))
