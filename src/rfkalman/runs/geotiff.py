"""What makes an image a GeoTIFF: the place on Earth in GeoKeys, and what its bands are."""

from __future__ import annotations

import re
from typing import Any
from xml.sax.saxutils import escape

from ..core.errors import ValueRangeError
from .cf import bands, moment
from .maps import Maps

#: A tag as tifffile takes it: number, type, count, value, once.
Tag = tuple[int, str, int, Any, bool]
_METRES = {"mm": 0.001, "cm": 0.01, "dm": 0.1, "m": 1.0, "dam": 10.0, "hm": 100.0, "km": 1000.0} | {
    f"{prefix}{name}{s}": factor
    for prefix, factor in (("milli", 0.001), ("centi", 0.01), ("", 1.0), ("kilo", 1000.0))
    for name in ("meter", "metre")
    for s in ("", "s")
}
_DEGREES = {"deg", "degree", "degrees", "degree_east", "degrees_east", "°"}
#: Codes that everybody uses for coordinates in degrees; with metres they are a slip.
_GEOGRAPHIC = {4230, 4258, 4267, 4269, 4283, 4326, 4490, 4612, 4617, 4674, 4979, 6318, 6668, 7844}

# TIFF tags and GeoKeys, by the names of the GeoTIFF standard.
_PIXEL_SCALE, _TIEPOINT, _GEO_KEYS = 33550, 33922, 34735
_GDAL_METADATA, _GDAL_NODATA = 42112, 42113
_MODEL_TYPE, _RASTER_TYPE, _GEOGRAPHIC_TYPE, _ANGULAR_UNITS = 1024, 1025, 2048, 2054
_PROJECTED_TYPE, _LINEAR_UNITS = 3072, 3076
_PROJECTED, _GEOGRAPHIC_MODEL, _PIXEL_IS_AREA, _METRE, _DEGREE = 1, 2, 1, 9001, 9102


def as_epsg(crs: Any) -> int:
    """An EPSG code from a number or a text such as ``"EPSG:25833"``."""
    found = re.fullmatch(r"(?:EPSG:)?(\d+)", str(crs).strip(), re.IGNORECASE)
    if found is None or isinstance(crs, bool):
        raise ValueRangeError(f"crs must be an EPSG code such as 25833 or 'EPSG:25833'; got {crs!r:.60}.")
    code = int(found.group(1))
    # The GeoTIFF standard reserves 1024 to 32766 of its 16 bits for EPSG codes.
    if not 1024 <= code <= 32766:
        raise ValueRangeError(f"crs = {code} is no EPSG code that a GeoTIFF can hold (1024 to 32766).")
    return code


def placed(maps: Maps, crs: int | None) -> list[Tag]:
    """The tags that say where the pixels lie; refuses what cannot be placed."""
    labels, d = maps.setup.labels, len(maps.grid.lines)
    if d != 2:
        raise ValueRangeError(f"a GeoTIFF holds maps of two axes; this domain has {d}. Write NetCDF, Zarr or CSV.")
    if crs is None:
        raise ValueRangeError(
            "a GeoTIFF needs crs, the EPSG code of the coordinates of the problem (for instance 25833 for ETRS89 / UTM "
            "33N); for local coordinates write NetCDF, Zarr or CSV."
        )
    unit = labels.length_unit.strip()
    if unit in _DEGREES:
        factor, model, unit_key = 1.0, (_GEOGRAPHIC_MODEL, _GEOGRAPHIC_TYPE), (_ANGULAR_UNITS, _DEGREE)
    elif unit in _METRES:
        if crs in _GEOGRAPHIC:
            raise ValueRangeError(
                f"crs = EPSG:{crs} is in degrees, but the coordinates of the problem are in {unit}; give the code of "
                "the projection they are in."
            )
        factor, model, unit_key = _METRES[unit], (_PROJECTED, _PROJECTED_TYPE), (_LINEAR_UNITS, _METRE)
    else:
        raise ValueRangeError(
            f"a GeoTIFF is placed in metres (or degrees), and lengths of this problem are in {unit!r}; set domain.unit "
            "to 'm' or 'km'."
        )
    keys = [(_MODEL_TYPE, model[0]), (_RASTER_TYPE, _PIXEL_IS_AREA), (model[1], crs), unit_key]
    directory = [1, 1, 0, len(keys)]
    for key, value in sorted(keys):
        directory += [key, 0, 1, value]
    x, y = (factor * line for line in maps.grid.lines)
    dx, dy = (float((line[-1] - line[0]) / (line.size - 1)) for line in (x, y))
    # Values are those at points; a pixel is the cell around its point, so the corner lies half a cell outside.
    corner = (0.0, 0.0, 0.0, float(x[0]) - 0.5 * dx, float(y[-1]) + 0.5 * dy, 0.0)
    return [
        (_PIXEL_SCALE, "d", 3, (dx, dy, 0.0), True),
        (_TIEPOINT, "d", 6, corner, True),
        (_GEO_KEYS, "H", len(directory), tuple(directory), True),
        (_GDAL_NODATA, "s", 0, "nan", True),
    ]


def described(maps: Maps, t_ns: int) -> Tag:
    """The tag that GDAL shows: names and units of the bands, the time, the configuration."""
    labels, setup = maps.setup.labels, maps.setup
    items = {
        "TITLE": labels.title,
        "FIELD": labels.field,
        "TIME": moment(t_ns, setup.clock),
        "CONFIGURATION_SHA256": setup.hash,
        "STD_CONTAINS": setup.std_contains,
    }
    lines = [f'<Item name="{name}">{_ascii(value)}</Item>' for name, value in items.items()]
    for i, (name, attrs) in enumerate(bands(maps).items()):
        lines.append(f'<Item name="DESCRIPTION" sample="{i}" role="description">{_ascii(name)}</Item>')
        lines.append(f'<Item name="UNITTYPE" sample="{i}" role="unittype">{_ascii(attrs["units"])}</Item>')
    return (_GDAL_METADATA, "s", 0, "<GDALMetadata>\n" + "\n".join(lines) + "\n</GDALMetadata>", True)


def _ascii(text: str) -> str:
    """TIFF holds ASCII; other characters as XML writes them."""
    return escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")
