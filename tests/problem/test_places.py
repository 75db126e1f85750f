"""Latitude and longitude on a plane: distances against arcs that are integrated, and symmetries of the earth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.integrate import quad

pytest.importorskip("pydantic")
pytest.importorskip("pint")

from rfkalman.problem import Problem, ProblemError
from rfkalman.problem.places import local_plane

# WGS 84 once more, by its axes: nothing is shared with the code under test.
A, B = 6_378_137.0, 6_356_752.314245


def meridian_arc(lat0: float, lat1: float) -> float:
    """Length of a meridian between two latitudes: the ellipse (A cos s, B sin s), integrated."""
    s0, s1 = (np.arctan(B / A * np.tan(np.radians(lat))) for lat in (lat0, lat1))
    return quad(lambda s: np.hypot(A * np.sin(s), B * np.cos(s)), s0, s1, epsabs=1e-6)[0]


@pytest.mark.parametrize("lat0", [-60.0, 0.0, 48.1, 71.0])
@pytest.mark.parametrize("km", [1.0, 100.0, 480.0])
def test_distances_from_the_origin_are_true(lat0, km):
    """Along a meridian, either way. The arc is taken on a sphere of the mean radius of curvature, off by at most
    0.7 %; the arc exceeds its chord by (s/R)^2 / 24 of itself, so the distance is off by 0.7 % of twice that: 3e-6 at
    480 km, and the ellipse itself bends by as much again. 1e-5 holds both."""
    lat = lat0 + np.array([1.0, -1.0]) * km / 111.2
    found = local_plane(lat, np.full(2, 11.5), (lat0, 11.5))
    expected = [meridian_arc(lat0, float(x)) for x in lat]
    np.testing.assert_allclose(found[:, 0], 0.0, atol=1e-6)
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-5)


def test_along_the_equator_and_across():
    """East along the equator the arc is A times the angle; across, lengths grow as (rho / R)^2 / 6."""
    found = local_plane(np.zeros(2), np.array([2.0, -3.0]), (0.0, 0.0))
    np.testing.assert_allclose(found, [[A * np.radians(2.0), 0.0], [-A * np.radians(3.0), 0.0]], rtol=1e-5, atol=1e-6)
    # Two places 1 km apart on a parallel, 400 km north of the origin: the parallel's own radius gives their distance.
    lat = 48.0 + 400.0 / 111.2
    half = np.degrees(500.0 / (A * np.cos(np.arctan(B / A * np.tan(np.radians(lat))))))
    pair = local_plane(np.full(2, lat), np.array([-half, half]), (48.0, 0.0))
    stretch = np.linalg.norm(pair[1] - pair[0]) / 1000.0 - 1.0
    assert stretch == pytest.approx((400.0 / 6371.0) ** 2 / 6.0, rel=0.05)


def test_a_turn_of_the_globe_changes_nothing():
    """The date line is a line like any other: only differences of longitude count, and whole turns do not."""
    lat, lon = np.array([-17.0, -16.5, -18.2]), np.array([178.9, 180.4, 179.5])
    here = local_plane(lat, lon, (-17.2, 179.8))
    np.testing.assert_allclose(local_plane(lat, lon - 360.0, (-17.2, 179.8)), here, atol=1e-6)
    np.testing.assert_allclose(local_plane(lat, lon - 100.0, (-17.2, 79.8)), here, atol=1e-6)
    assert here[1, 0] > here[2, 0] > here[0, 0]


def tables(tmp_path, **sensors):
    ring = [[11.4, 48.0], [11.7, 48.0], [11.7, 48.2], [11.4, 48.2], [11.4, 48.0]]
    (tmp_path / "city.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    (tmp_path / "s.csv").write_text("id,lat,lon\nA,48.1,11.5\nB,48.15,11.6\n")
    return {
        "version": 1,
        "domain": {"kind": "polygon", "file": "city.geojson", "file_unit": "degree", "unit": "km"},
        "field": {"unit": "degC"},
        "physics": {"diffusion": "1 km2/h"},
        "prior": {"std": 1.0, "length": 8.0},
        "sensors": {"file": "s.csv", "coordinates": ["lat", "lon"], "noise": 0.1, **sensors},
        "time": {"start": "2024-01-01T00:00Z"},
        "features": {"count": 40, "length_scale": 20.0},
    }


def test_an_outline_in_degrees_goes_with_the_origin(tmp_path):
    """Sensors and outline share one projection; without an origin the file is refused, with the key."""
    pytest.importorskip("shapely")
    from rfkalman.problem.build import first_look

    problem = Problem.from_dict(tables(tmp_path, origin=[48.1, 11.5]), folder=tmp_path)
    complaints, seen = first_look(problem)
    assert complaints == []
    corner = local_plane(np.array([48.0]), np.array([11.4]), (48.1, 11.5))[0] / 1000.0
    np.testing.assert_allclose(seen["domain"].lower, corner, atol=0.05)
    np.testing.assert_allclose(seen["sensors"].coords[0], 0.0, atol=1e-9)
    with pytest.raises(ProblemError, match=r"sensors\.origin: is needed"):
        Problem.from_dict(tables(tmp_path), folder=tmp_path)


def test_places_that_are_too_far_or_no_degrees_are_named(tmp_path):
    pytest.importorskip("shapely")
    problem = Problem.from_dict(tables(tmp_path, origin=[40.0, 11.5]), folder=tmp_path)
    with pytest.raises(ProblemError, match=r"sensors\.origin: the sensor 'A' lies 900 km from it"):
        problem.build()
    problem = Problem.from_dict(tables(tmp_path, origin=[48.1, 11.5]), folder=tmp_path)
    (tmp_path / "s.csv").write_text("id,lat,lon\nA,148.1,11.5\nB,48.15,11.6\n")
    with pytest.raises(ProblemError, match=r"'A' has latitude 148\.1 and longitude 11\.5; these are no degrees"):
        problem.build()
