"""Quantities with units: converted exactly, checked by dimension, refused with a sentence that helps."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfkalman.core.errors import RFKalmanError, ValueRangeError
from rfkalman.problem import units as units_module
from rfkalman.problem.units import DIMENSIONS, Units, registry

# Conversions multiply a few correctly rounded factors: rounding of each, no more.
ROUNDING = 1e-14
DEGREES = Units("m", "h", "degC")


@pytest.fixture(scope="module")
def soil():
    return Units("m", "h", "degC", dimension=1)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("0.5 mm2/s", "diffusivity", 0.5e-6 * 3600),
        ("0.5 mm^2/s", "diffusivity", 0.5e-6 * 3600),
        ("0.5mm**2/s", "diffusivity", 0.5e-6 * 3600),
        ("1 cm2 / d", "diffusivity", 1e-4 / 24),
        ("2 m/s", "velocity", 7200.0),
        ("0.24 1/d", "reaction", 0.01),
        ("0.24/d", "reaction", 0.01),
        ("0.24 d-1", "reaction", 0.01),
        ("50 cm", "length", 0.5),
        ("2 d", "duration", 48.0),
        ("20 degC", "field", 20.0),
        ("293.15 K", "field", 20.0),
        ("68 degF", "field", 20.0),
        ("0.1 degC", "spread", 0.1),
        ("0.1 K", "spread", 0.1),
        ("0.18 degF", "spread", 0.1),
        ("24 degC/d", "source", 1.0),
        ("1 K m/h", "flux", 1.0),
        ("3", "length", 3.0),
        (3, "length", 3.0),
    ],
)
def test_quantities_convert_to_the_units_of_the_problem(soil, text, kind, expected):
    """By hand; temperatures are offset as values and not as spreads."""
    assert soil.convert(text, kind) == pytest.approx(expected, rel=ROUNDING, abs=1e-12)


def test_a_number_is_already_in_the_units_of_the_problem(soil):
    """No unit, no conversion: the very same number."""
    for kind in DIMENSIONS:
        assert soil.convert(0.3, kind) == 0.3


def test_a_capacity_divides_fluxes_and_sources_but_not_velocities():
    """Heat capacity 2 MJ/m3/K: 100 W/m2 warm by 5e-5 K m/s, a conductivity of 1 W/m/K is 5e-7 m2/s."""
    units = Units("m", "s", "degC", dimension=1, capacity="2 MJ/m3/K")
    assert units.convert("100 W/m2", "flux") == pytest.approx(5e-5, rel=ROUNDING)
    assert units.convert("1 W/m/K", "diffusivity") == pytest.approx(5e-7, rel=ROUNDING)
    assert units.convert("10 W/m2/K", "exchange") == pytest.approx(5e-6, rel=ROUNDING)
    assert units.convert("1 m/s", "velocity") == 1.0
    # A diffusivity has been divided already: its dimension leaves no doubt.
    assert units.convert("0.5 mm2/s", "diffusivity") == pytest.approx(5e-7, rel=ROUNDING)


def test_a_storage_coefficient_without_a_dimension_divides_always():
    """Aquifer: S ds/dt = div(T grad s) + Q, in two dimensions."""
    units = Units("m", "s", "m", dimension=2, capacity=1e-3)
    assert units.convert("0.01 m2/s", "diffusivity") == pytest.approx(10.0, rel=ROUNDING)
    assert units.convert("5 L/s", "strength") == pytest.approx(5.0, rel=ROUNDING)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("0.3 mm/s", "diffusivity", ["velocity", "diffusivity", "0.3 mm2/s", "m2/h"]),
        ("20 C", "field", ["charge", "degC"]),
        ("3 m", "spread", ["length", "spread"]),
        ("3 parsnips", "length", ["parsnips", "not a unit"]),
        ("three m", "length", ["number with a unit"]),
        ("", "length", ["number with a unit"]),
        ("0,3 m", "length", ["not a unit"]),
        ("-1 mm2/s", "diffusivity", ["positive"]),
        ("-1 h", "delay", ["not be negative"]),
        ("1e999 m", "length", ["finite"]),
        ("1 m**99999999", "length", ["unit"]),
        ("1 " + "m" * 200, "length", ["number with a unit"]),
    ],
)
def test_a_wrong_quantity_is_named_with_what_would_be_right(soil, text, kind, words):
    with pytest.raises(RFKalmanError) as caught:
        soil.convert(text, kind)
    for word in words:
        assert word in str(caught.value)


@given(st.text(max_size=90), st.sampled_from(sorted(DIMENSIONS)))
@settings(max_examples=200, deadline=None)
def test_any_text_converts_or_is_refused_politely(text, kind):
    """Fuzz: nothing else than the library's own error, and never a NaN."""
    with contextlib.suppress(RFKalmanError):
        assert math.isfinite(DEGREES.convert(text, kind))


@given(st.floats(-1e6, 1e6), st.sampled_from(["degC", "degF", "K"]))
@settings(max_examples=50, deadline=None)
def test_the_affine_map_of_a_table_is_the_conversion_of_its_values(value, unit):
    """factor * x + shift = conversion of x; 500 K of offset times rounding is the error allowed."""
    factor, shift = DEGREES.affine(unit)
    assert factor * value + shift == pytest.approx(DEGREES.convert(f"{value!r} {unit}", "field"), rel=1e-12, abs=1e-9)


def test_units_of_length_and_time_must_be_that():
    with pytest.raises(RFKalmanError, match="not a length"):
        Units("s")
    with pytest.raises(RFKalmanError, match="not a time"):
        Units("m", "km")
    with pytest.raises(RFKalmanError, match="not between"):
        Units("m", "s").nanoseconds("ps")
    assert Units().nanoseconds("h") == 3_600_000_000_000
    assert Units("km").length_factor("m") == pytest.approx(1e-3, rel=ROUNDING)
    with pytest.raises(RFKalmanError, match="the field is in"):
        Units("m", "h", "degC").affine("m")


def test_there_is_one_registry():
    """Quantities of two registries refuse to meet."""
    assert registry() is registry()


@pytest.mark.parametrize(
    ("written", "meant"),
    [(text, "degC") for text in ("Celsius", "celsius", "°C", "º C", "deg C", "Deg C", "degrees Celsius", "degc", "℃")]
    + [(text, "degF") for text in ("Fahrenheit", "°F", "deg F", "degrees fahrenheit")]
    + [(text, "K") for text in ("Kelvin", "kelvin", "deg K")]
    + [("% RH", "percent"), ("%RH", "percent"), ("Vol.-%", "percent"), ("%", "percent"), ("ppb", "1e-3 ppm"), ("-", "")]
    + [("m a.s.l.", "m"), ("masl", "m"), ("m ü. NN", "m"), ("Metres", "m"), ("Hours", "h"), ("l/s", "dm3/s")]
    + [("degrees C/m", "degC/m"), ("µg/m³", "ug/m3"), ("hPa", "mbar"), ("W/m²", "W/m2")],
)
def test_units_as_people_write_them_are_understood(written, meant):
    """The same quantity: 7 in the one is 7 in the other."""
    factor, _, unit = meant.partition(" ") if meant[:1].isdigit() else ("1", "", meant)
    ureg = units_module.registry()
    given, wanted = (units_module._parsed(text) for text in (written, unit))
    assert ureg.Quantity(7.0, given).to(wanted).magnitude == pytest.approx(7.0 * float(factor), rel=1e-12)


@pytest.mark.parametrize(("written", "hint"), [("hpa", "hPa"), ("mgl", "mg/l"), ("persent", "percent")])
def test_units_that_are_nearly_right_name_the_right_one(written, hint):
    with pytest.raises(ValueRangeError, match=f"did you mean '{hint}'"):
        units_module._parsed(written)


def test_a_field_in_coulomb_is_a_temperature_misspelt():
    for letter in "CF":
        with pytest.raises(ValueRangeError, match=f"did you mean 'deg{letter}'"):
            Units(field=letter)


def test_a_decimal_comma_is_recognised():
    """Not the unit is wrong but the number before it: the message says how numbers are written."""
    with pytest.raises(RFKalmanError, match="written with a decimal point"):
        Units("m", "s", "degC").convert("0,58 mm2/s", "diffusivity")
