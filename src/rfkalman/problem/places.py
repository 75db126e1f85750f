"""Latitude and longitude -> distances east and north of an origin, for extents up to some hundred kilometres."""

from __future__ import annotations

import numpy as np

from ..core.checks import FloatArray

#: Metres from the origin beyond which the earth is no plane: distances across are 1e-3 too long there.
FARTHEST_M = 500_000.0
#: The ellipsoid of WGS 84: equatorial radius in metres, first eccentricity squared.
_A, _E2 = 6_378_137.0, 0.006_694_379_990_141_316


def local_plane(lat: FloatArray, lon: FloatArray, origin: tuple[float, float]) -> FloatArray:
    """Metres east and north of the origin, (n, 2), for places given in degrees (WGS 84).

    The direction is that on the plane that touches the ellipsoid at the origin, the distance is that along the
    surface: true from the origin (to 1e-5 within 500 km), too long across by (distance / 6371 km)^2 / 6, which is
    4e-5 at 100 km. In between, places are points in space, so the date line and the poles are places like others.

    Examples
    --------
    >>> local_plane([52.5, 52.6], [13.4, 13.4], (52.5, 13.4)).round()[:, 1]
    array([    0., 11128.])
    """
    phi0, lam0 = np.radians(origin)
    east = np.array([-np.sin(lam0), np.cos(lam0), 0.0])
    north = np.array([-np.sin(phi0) * np.cos(lam0), -np.sin(phi0) * np.sin(lam0), np.cos(phi0)])
    here = _geocentric(np.array([phi0]), np.array([lam0]))
    apart = (
        _geocentric(np.radians(np.asarray(lat, dtype=np.float64)), np.radians(np.asarray(lon, dtype=np.float64))) - here
    )
    flat = np.stack([apart @ east, apart @ north], axis=1)
    # Geometric mean of the two radii of curvature at the origin.
    radius = _A * np.sqrt(1.0 - _E2) / (1.0 - _E2 * np.sin(phi0) ** 2)
    chord = np.linalg.norm(apart, axis=1)
    along = 2.0 * radius * np.arcsin(np.minimum(chord / (2.0 * radius), 1.0))
    length = np.linalg.norm(flat, axis=1)
    stretch = np.divide(along, length, out=np.ones_like(along), where=length > 0.0)
    return np.asarray(flat * stretch[:, None])


def _geocentric(phi: FloatArray, lam: FloatArray) -> FloatArray:
    normal = _A / np.sqrt(1.0 - _E2 * np.sin(phi) ** 2)
    return np.stack(
        [normal * np.cos(phi) * np.cos(lam), normal * np.cos(phi) * np.sin(lam), (1.0 - _E2) * normal * np.sin(phi)],
        axis=1,
    )
