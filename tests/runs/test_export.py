"""Exports read back by programs that know nothing of this library: every number, time, unit and mask."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import tracemalloc
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import pytest
import tifffile
import xarray as xr
import zarr
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.checks import EPS
from rfkalman.core.errors import ExportError, MissingExtraError, TimeError, ValueRangeError
from rfkalman.job import Clock, Labels, OutputPlan, SensorTable, Setup
from rfkalman.model.field import exceedance
from rfkalman.problem import Problem
from rfkalman.runs import maps
from rfkalman.runs.cf import axis_names, udunits
from rfkalman.runs.export import export, readings_to_frame, to_xarray
from rfkalman.runs.maps import iso, make_grid
from rfkalman.runs.session import Run, run

HOUR = 3_600_000_000_000
#: Half a unit in the last place of float32.
SINGLE = 2.0**-24

ELBOW = [[0.0, 0.0], [4.0, 0.0], [4.0, 1.0], [1.0, 1.0], [1.0, 3.0], [0.0, 3.0]]


def utc(*parts: int) -> int:
    return (datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def readings(times: list[str] | np.ndarray, ids: tuple[str, ...], mean: float, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng([seed, *b"export"])
    n = len(times) * len(ids)
    return {
        "time": np.repeat(np.asarray(times, dtype=object), len(ids)),
        "sensor_id": np.tile(np.array(ids, dtype=object), len(times)),
        "value": mean + rng.standard_normal(n),
    }


@pytest.fixture(scope="module")
def soil() -> Iterator[Run]:
    """A profile over the night in which German clocks go forward; surface and an offset are unknown."""
    problem = Problem(
        title="Soil, with a comma",
        domain={"kind": "interval", "lower": 0, "upper": "50 cm", "axes": ["depth"], "parts": {"surface": "x-"}},
        field={"name": "soil temperature", "unit": "degC"},
        physics={
            "diffusion": "0.5 mm2/s",
            "boundary": {
                "surface": {"unknown": {"mean": 8, "std": 3, "process": "random walk", "change": 1, "per": 1}},
                "x+": {"flux": 0},
            },
        },
        prior={"mean": 8, "std": 2, "length": 0.3},
        sensors={"table": [{"id": "A", "at": 0.1}, {"id": 'B, "deep"', "at": 0.4, "offset": 0.3}], "noise": 0.1},
        time={"unit": "h", "zone": "Europe/Berlin", "start": "2024-03-30T20:00"},
        output={"thresholds": ["7 degC", "9 degC"], "resolution": 21, "level": 0.8},
    )
    stamps = [iso(utc(2024, 3, 30, 20) + i * HOUR, None) for i in range(10)]
    with run(problem.build(), readings(stamps, ("A", 'B, "deep"'), 8.0)) as done:
        yield done


@pytest.fixture(scope="module")
def city() -> Iterator[Run]:
    """An elbow in kilometres: most of its bounding box lies outside."""
    problem = Problem(
        title="Elbow & Sons",
        domain={"kind": "polygon", "exterior": ELBOW, "unit": "km", "axes": ["east", "north"]},
        field={"name": "air temperature", "unit": "degC"},
        physics={"diffusion": "0.5 km2/h"},
        features={"count": 40, "length_scale": 2},
        prior={"mean": 20, "std": 3, "length": 2},
        sensors={"table": [{"id": "s", "at": [0.5, 0.5]}, {"id": "t", "at": [3.0, 0.5]}], "noise": 0.5},
        time={"unit": "h", "start": "2025-07-01T00:00Z"},
        output={"every": "2 h", "thresholds": [20.5], "resolution": 41},
    )
    stamps = [iso(utc(2025, 7, 1, h), None) for h in range(1, 10)]
    with run(problem.build(), readings(stamps, ("s", "t"), 20.0)) as done:
        yield done


@pytest.fixture(scope="module")
def pump() -> Iterator[Run]:
    """A relative clock in minutes; no thresholds, no plan of maps."""
    problem = Problem(
        domain={"kind": "box", "lower": [0, 0], "upper": [20, 10]},
        field={"name": "drawdown", "unit": "m"},
        physics={"diffusion": "10 m2/min"},
        features={"count": 30, "length_scale": 8},
        prior={"mean": 0, "std": 0.5, "length": 8},
        sensors={"table": [{"id": "w1", "at": [5, 5]}, {"id": "w2", "at": [15, 5]}], "noise": 0.01},
        time={"unit": "min"},
        input={"time_unit": "s"},
    )
    with run(problem.build(), readings(np.arange(1, 131) * 15, ("w1", "w2"), 0.0)) as done:
        yield done


class Fields:
    """A record of fields that someone made up: one belief, whose mean grows with the hour."""

    def __init__(self, domain: Any, features: Any, n_times: int, **labels: Any) -> None:
        space = rk.whiten(rk.Heat(domain, diffusion=1.0), features, mass_floor=1e-8)
        rng = np.random.default_rng([7, *b"fields"])
        self.space, self.base = space, rng.standard_normal(space.rank)
        self.root = 0.3 * rng.standard_normal((space.rank, space.rank))
        self.analysis_times = HOUR * np.arange(1, n_times + 1)
        self.meta, self.versions = {}, {}
        self.asked: list[int] = []
        names = ("x", "y", "z")[: domain.dimension]
        shown = {"title": "", "field": "head", "unit": "m", "length_unit": "m", "axes": names, "time_unit": "h"}
        self.setup = Setup(
            rk.Model(space, prior=rk.isotropic(1.0)),
            SensorTable((), np.zeros((0, domain.dimension)), np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0)),
            Clock(None, origin_ns=0, unit_ns=HOUR),
            labels=Labels(**(shown | labels)),
            output=OutputPlan(resolution=11),
            hash="0" * 64,
            toml="version = 1\n",
        )

    def field_at(self, t_ns: int) -> rk.Field:
        self.asked.append(t_ns)
        return rk.Field(self.space, rk.Gaussian(self.base * (t_ns / HOUR), root=self.root), t_ns / HOUR)

    def readings(self) -> Iterator[Any]:
        return iter(())

    def unknowns_over_time(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def cube() -> Fields:
    return Fields(rk.Box([0.0, 0.0, 0.0], [2.0, 1.0, 1.0]), rk.DirichletSine(3), 4)


def line(n_times: int) -> Fields:
    return Fields(rk.Interval(0.0, 1.0), rk.DirichletSine(5), n_times)


def rounding(field: rk.Field, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far two ways of summing may lie apart in mean and std: (M + r) eps times the sum of the magnitudes.

    Small mass eigenvalues make large entries of the transform that cancel, which is why this is not 1e-15.
    """
    basis, belief = field.basis, field.belief
    sizes = np.abs(basis.features(x)) @ np.abs(basis.transform)
    factor = 2.0 * EPS * sum(basis.transform.shape)
    return factor * sizes @ np.abs(belief.mean), factor * np.linalg.norm(sizes @ np.abs(belief.root), axis=1)


def assert_within(actual: Any, desired: np.ndarray, tolerance: np.ndarray) -> None:
    assert (np.abs(np.asarray(actual) - desired) <= tolerance).all()


def assert_is_the_field(ds: Any, record: Any, axes: tuple[str, ...], thresholds: Any) -> None:
    """Values at some random points and all times of a dataset are those of the record's own fields."""
    rng = np.random.default_rng([1, *b"places"])
    times = ds["time"].values.astype("datetime64[ns]").astype(np.int64)
    inside = ds["mean"].isel(time=0).transpose(*axes).notnull().values
    places = rng.permutation(np.argwhere(inside))[:40]
    x = np.stack([ds[name].values[places[:, i]] for i, name in enumerate(axes)], axis=-1)
    at = {name: xr.DataArray(places[:, i], dims="place") for i, name in enumerate(axes)}
    for i, t in enumerate(times):
        field, here = record.field_at(int(t)), ds.isel(time=i, **at)
        mean, std = rounding(field, x)
        assert_within(here["mean"], field.mean(x), mean)
        assert_within(here["std"], field.std(x), std)
        # The control: the tolerance tells this time from the next one.
        assert i + 1 == times.size or (np.abs(ds["mean"].isel(time=i + 1, **at) - field.mean(x)) > mean).any()
        unsure = field.std(x) > 0.0
        for threshold in thresholds:
            found = here["exceedance"].sel(threshold=threshold).values
            # The derivatives of a normal probability by mean and std are at most 0.4 and 0.25 over the std.
            slack = (0.4 * mean + 0.25 * std)[unsure] / field.std(x[unsure])
            assert_within(found[unsure], field.exceedance(x[unsure], threshold), slack + EPS)
            assert_array_equal(found[~unsure], field.exceedance(x[~unsure], threshold))


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.part*")]


# -- labelled arrays ---------------------------------------------------------------------------------------------------


def opened(path: Path) -> Any:
    return xr.open_zarr(path) if path.suffix == ".zarr" else xr.open_dataset(path)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_profile_comes_back_as_the_record_has_it(soil, tmp_path, suffix):
    """float64 is stored, so only the order of summation differs."""
    (path,) = export(soil.record, soil.setup, tmp_path / f"a.{suffix}", level=0.8)
    with opened(path) as ds:
        assert ds["mean"].dims == ("time", "depth") and ds["exceedance"].dims == ("threshold", "time", "depth")
        assert_array_equal(ds["threshold"], [7.0, 9.0])
        assert_array_equal(ds["time"].values.astype(np.int64), soil.record.analysis_times)
        assert_is_the_field(ds, soil.record, ("depth",), (7.0, 9.0))
        field, x = soil.record.field_at(int(soil.record.analysis_times[3])), ds["depth"].values[:, None]
        slack = np.array([1.0, 1.3]) @ rounding(field, x)  # 1.28 standard deviations are the half-width of 80 %
        for name, end in zip(("lower", "upper"), field.interval(x, 0.8), strict=True):
            assert_within(ds[name].isel(time=3), end, slack)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_outside_the_polygon_there_is_nothing(city, tmp_path, suffix):
    """Inside is told here by two rectangles; points on the boundary belong to the domain."""
    (path,) = export(city.record, city.setup, tmp_path / f"a.{suffix}")
    with opened(path) as ds:
        assert ds["mean"].dims == ("time", "north", "east") and ds["mean"].shape[1:] == (31, 41)
        x, y = np.meshgrid(ds["east"], ds["north"])
        slack = 1e-9
        inside = (y <= 1.0 + slack) | (x <= 1.0 + slack)
        for name in ("mean", "std"):
            assert_array_equal(np.isfinite(ds[name].values), np.broadcast_to(inside, ds[name].shape))
        assert_array_equal(np.isfinite(ds["exceedance"].values[0, 0]), inside)
        assert_is_the_field(ds, city.record, ("east", "north"), (20.5,))


def test_a_box_of_three_axes_is_stored_last_axis_first(cube, tmp_path):
    """CF asks for T, Z, Y, X; the mean of a made-up record grows with the hour, so a mixed-up axis would show."""
    (path,) = export(cube, cube.setup, tmp_path / "a.nc", thresholds=[0.5])
    with xr.open_dataset(path) as ds:
        assert ds["mean"].dims == ("time", "z", "y", "x") and ds["mean"].shape == (4, 6, 6, 11)
        assert_is_the_field(ds, cube, ("x", "y", "z"), (0.5,))
        # On the faces a sine basis is exactly zero and certain: the probability is 0, not NaN.
        assert (ds["exceedance"].isel(x=0) == 0.0).all()


def test_the_netcdf_file_speaks_cf(city, tmp_path):
    (path,) = export(city.record, city.setup, tmp_path / "a.nc", crs="EPSG:25833")
    with netCDF4.Dataset(path) as file:
        assert file.Conventions == "CF-1.10" and file.title == "Elbow & Sons" and file.crs == "EPSG:25833"
        assert city.setup.hash in file.history and "rfkalman 0" in file.history and "run by" in file.history
        assert Problem.from_text(file.problem) == city.setup.problem
        time = file["time"]
        assert (time.standard_name, time.axis, time.calendar) == ("time", "T", "standard")
        assert time.units == "seconds since 1970-01-01 00:00:00"
        dates = netCDF4.num2date(time[:], time.units, time.calendar, only_use_cftime_datetimes=False)
        assert list(dates) == [datetime(2025, 7, 1, h) for h in (2, 4, 6, 8)]
        assert [file[name].axis for name in ("east", "north")] == ["X", "Y"]
        assert file["east"].units == "km" and file["threshold"].units == "degC"
        mean, std = file["mean"], file["std"]
        assert (mean.standard_name, mean.units, mean.ancillary_variables) == ("air_temperature", "degC", "std")
        # A standard deviation of 1 degC is a difference, 1 K; as a temperature it would be 274.15 K.
        assert (std.standard_name, std.units) == ("air_temperature standard_error", "K")
        assert std.cell_methods == "time: point realization: standard_deviation"
        assert file["exceedance"].units == "1" and np.isnan(mean._FillValue)
        assert mean.chunking() == [4, 31, 41] and mean.filters()["zlib"]
        assert file.dimensions["time"].isunlimited()


def test_a_vertical_axis_says_which_way_it_points(soil, tmp_path):
    (path,) = export(soil.record, soil.setup, tmp_path / "a.nc")
    with netCDF4.Dataset(path) as file:
        depth = file["depth"]
        assert (depth.axis, depth.positive, depth.standard_name, depth.units) == ("Z", "down", "depth", "m")


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_relative_clock_gives_plain_durations(pump, tmp_path, suffix):
    """Nobody knows the date of a pumping test; 130 analyses are thinned to 100 that keep the first and the last."""
    (path,) = export(pump.record, pump.setup, tmp_path / f"a.{suffix}", resolution=5)
    with opened(path) as ds:
        assert ds["time"].dtype == np.float64 and ds["time"].attrs["units"] == "min"
        assert ds["time"].size == 100 and ds["time"].values[[0, -1]].tolist() == [0.25, 32.5]
        assert ds.attrs["last_analysis"] == "32.5 min"
        t = int(pump.record.analysis_times[-1])
        x = np.stack(np.meshgrid(ds["x"], ds["y"]), axis=-1).reshape(-1, 2)
        field = pump.record.field_at(t)
        assert_within(ds["mean"].values[-1].ravel(), field.mean(x), rounding(field, x)[0])
        assert "exceedance" not in ds


def test_the_zarr_store_is_chunked_by_time_with_one_file_of_metadata(city, tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "_CHUNK", 2 * 31 * 41)
    (path,) = export(city.record, city.setup, tmp_path / "a.zarr")
    group = zarr.open_group(str(path), mode="r")
    assert group.metadata.consolidated_metadata is not None
    assert group["mean"].chunks == (2, 31, 41) and group["exceedance"].chunks == (1, 2, 31, 41)
    assert dict(group.attrs)["Conventions"] == "CF-1.10"
    assert "mean" in json.loads((path / "zarr.json").read_text())["consolidated_metadata"]["metadata"]
    with xr.open_zarr(path, consolidated=True) as ds:
        assert_is_the_field(ds, city.record, ("east", "north"), (20.5,))


@pytest.mark.parametrize(
    ("step", "unit"),
    [(1_000_000_000, "seconds"), (1_000_000, "milliseconds"), (1_000, "microseconds"), (1, "nanoseconds")],
)
def test_times_are_whole_numbers_of_the_coarsest_unit_that_is_exact(tmp_path, step, unit):
    """Instants survive to the nanosecond: no float holds 1.7e18 of them."""
    made = line(1)
    when = 1_700_000_000_000_000_000 + step * np.array([0, 1, 7])
    (path,) = export(made, made.setup, tmp_path / "a.nc", times=when)
    with netCDF4.Dataset(path) as file:
        assert file["time"].units.startswith(unit + " since") and file["time"].dtype == np.int64
    with xr.open_dataset(path) as ds:
        assert_array_equal(ds["time"].values.astype(np.int64), when)


# -- tables ------------------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_table_holds_every_point_of_every_time(soil, tmp_path):
    """Texts are the shortest that read back as the same float64; only the order of summation differs."""
    paths = export(soil.record, soil.setup, tmp_path / "a.csv")
    assert [p.name for p in paths] == ["a.csv", "a_sensors.csv", "a_unknowns.csv", "a.csv-metadata.json"]
    rows = rows_of(paths[0])
    assert list(rows[0]) == ["time", "depth", "mean", "std", "lower", "upper", "exceedance_7", "exceedance_9"]
    assert len(rows) == 10 * 21
    for row in rows[::13]:
        x = np.array([[float(row["depth"])]])
        field = soil.record.field_at(nanoseconds(row["time"]))
        (mean,), (std,) = rounding(field, x)
        low, high = field.interval(x, 0.8)
        expected = [field.mean(x), field.std(x), low, high, field.exceedance(x, 7.0), field.exceedance(x, 9.0)]
        chance = (0.4 * mean + 0.25 * std) / float(field.std(x)[0])
        slack = [mean, std, mean + 1.3 * std, mean + 1.3 * std, chance, chance]
        assert_within([float(v) for v in list(row.values())[2:]], np.ravel(expected), np.array(slack))


def nanoseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def test_times_of_a_table_carry_the_offset_of_their_zone(soil, tmp_path):
    """On 31 March 2024 the hour from 02:00 to 03:00 did not exist in Berlin: 01:00+01:00 is followed by 03:00+02:00."""
    (path, *_) = export(soil.record, soil.setup, tmp_path / "a.csv", resolution=2)
    stamps = list(dict.fromkeys(row["time"] for row in rows_of(path)))
    assert stamps[3:6] == ["2024-03-31T00:00:00+01:00", "2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"]
    assert [nanoseconds(text) for text in stamps] == soil.record.analysis_times.tolist()


def test_an_hour_that_comes_twice_is_two_times(soil, tmp_path):
    """27 October 2024, 02:30 in Berlin: once in summer time, once in winter time. Both lie in the forecast."""
    when = [utc(2024, 10, 27, 0, 30), utc(2024, 10, 27, 1, 30)]
    (path, *_) = export(soil.record, soil.setup, tmp_path / "a.csv", resolution=2, times=when)
    stamps = list(dict.fromkeys(row["time"] for row in rows_of(path)))
    assert stamps == ["2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00+01:00"]


def test_strips_and_unknowns_are_those_of_the_record(soil, tmp_path):
    _, sensors, unknowns, _ = export(soil.record, soil.setup, tmp_path / "a.csv", resolution=2)
    rows = rows_of(sensors)
    for strip in soil.record.strips(list(soil.setup.sensors.ids)):
        mine = [row for row in rows if row["sensor"] == strip.sensor]
        assert [nanoseconds(row["time"]) for row in mine] == strip.time_ns.tolist()
        for name in ("measured", "predicted", "predicted_std"):
            assert [float(row[name]) for row in mine] == getattr(strip, name).tolist()
        assert [row["status"] for row in mine] == list(strip.status)
    assert len(rows) == 20
    series = soil.record.unknowns_over_time()
    found = rows_of(unknowns)
    assert len(found) == sum(one.mean.size for one in series.values()) and len(series) == 2
    for name, one in series.items():
        mine = [row for row in found if row["unknown"] == name]
        assert [float(row["mean"]) for row in mine] == one.mean.T.ravel().tolist()
        assert [float(row["std"]) for row in mine] == one.std.T.ravel().tolist()


def test_strips_do_not_depend_on_how_many_are_read_at_a_time(soil, tmp_path, monkeypatch):
    whole = export(soil.record, soil.setup, tmp_path / "a.csv", resolution=2)[1].read_text()
    monkeypatch.setattr("rfkalman.runs.record._AT_ONCE", 1)
    assert export(soil.record, soil.setup, tmp_path / "b.csv", resolution=2)[1].read_text() == whole


def test_no_name_is_a_formula_in_a_spreadsheet(tmp_path):
    """What begins like one gets an apostrophe, which spreadsheets take for "this is text"; numbers stay numbers."""
    names = ["=1+2", "+1", "-1", "@SUM(A1)", "T-1", "a=b"]
    table = [{"id": name, "at": 0.1 + 0.1 * i} for i, name in enumerate(names)]
    problem = Problem(
        domain={"kind": "interval", "lower": 0, "upper": 1},
        physics={"diffusion": 1},
        prior={"mean": 0, "std": 1},
        features={"count": 8, "length_scale": 0.5},
        sensors={"table": table, "noise": 0.1},
        time={"unit": "h", "start": "2024-01-01T00:00Z"},
    )
    when = ["2024-01-01T01:00Z"] * len(names)
    with run(problem.build(), {"time": when, "sensor_id": names, "value": [-1.0] * len(names)}) as done:
        rows = rows_of(export(done.record, done.setup, tmp_path / "a.csv", resolution=2)[1])
    assert [row["sensor"] for row in rows] == ["'=1+2", "'+1", "'-1", "'@SUM(A1)", "T-1", "a=b"]
    assert all(row["measured"] == "-1.0" for row in rows)


def test_points_outside_the_domain_have_no_line(city, tmp_path):
    (path, *_) = export(city.record, city.setup, tmp_path / "a.csv", times=[utc(2025, 7, 1, 9)])
    rows = rows_of(path)
    # 11 rows of 41 points and 20 rows of 11 points: the two arms of the elbow at a spacing of 0.1.
    assert len(rows) == 11 * 41 + 20 * 11
    assert all(float(row["east"]) <= 1 + 1e-9 or float(row["north"]) <= 1 + 1e-9 for row in rows)


def test_what_the_columns_are_stands_beside_the_table(city, tmp_path):
    paths = export(city.record, city.setup, tmp_path / "a.csv", resolution=5)
    about = json.loads(paths[-1].read_text())
    assert about["dc:title"] == "Elbow & Sons" and city.setup.hash in about["dc:provenance"]
    for table in about["tables"]:
        with (tmp_path / table["url"]).open(encoding="utf-8", newline="") as stream:
            assert [column["titles"] for column in table["tableSchema"]["columns"]] == next(csv.reader(stream))
    units = {c["titles"]: c.get("schema:unitText") for c in about["tables"][0]["tableSchema"]["columns"]}
    assert (units["east"], units["mean"], units["std"], units["exceedance_20.5"]) == ("km", "degC", "K", "1")


def test_a_relative_table_counts_in_the_unit_of_its_clock(pump, tmp_path):
    paths = export(pump.record, pump.setup, tmp_path / "a.csv", resolution=2, times=[90_000_000_000])
    assert {row["time"] for row in rows_of(paths[0])} == {"1.5"}
    assert [p.name for p in paths] == ["a.csv", "a_sensors.csv", "a.csv-metadata.json"]


# -- GeoTIFF -----------------------------------------------------------------------------------------------------------

KINDS = {2: "s", 3: "H", 4: "I", 5: "II", 12: "d"}


def tags_and_bands(path: Path) -> tuple[dict[int, Any], np.ndarray]:
    """A TIFF taken apart by hand: its tags, and its planar float32 bands."""
    data = path.read_bytes()
    assert data[:4] == b"II*\x00"
    (start,) = struct.unpack_from("<I", data, 4)
    tags: dict[int, Any] = {}
    for i in range(struct.unpack_from("<H", data, start)[0]):
        tag, kind, count = struct.unpack_from("<HHI", data, start + 2 + 12 * i)
        form = f"<{count}s" if kind == 2 else f"<{count * len(KINDS[kind])}{KINDS[kind][0]}"
        place = start + 2 + 12 * i + 8
        if struct.calcsize(form) > 4:
            (place,) = struct.unpack_from("<I", data, place)
        tags[tag] = struct.unpack_from(form, data, place)
    width, height, n_bands = tags[256][0], tags[257][0], tags[277][0]
    assert tags[258] == (32,) * n_bands and tags[339] == (3,) * n_bands and tags[284] == (2,) and tags[259] == (8,)
    pieces = [zlib.decompress(data[o : o + n]) for o, n in zip(tags[273], tags[279], strict=True)]
    return tags, np.frombuffer(b"".join(pieces), dtype="<f4").reshape(n_bands, height, width)


def test_a_geotiff_lies_where_the_domain_lies(city, tmp_path):
    """Kilometres become metres; a pixel is the cell around its point; rows run from north to south."""
    t = utc(2025, 7, 1, 9)
    (path,) = export(city.record, city.setup, tmp_path / "a.tif", times=[t], crs=25833)
    tags, bands = tags_and_bands(path)
    assert bands.shape == (3, 31, 41)
    dx, dy, _ = tags[33550]
    assert_allclose((dx, dy), (100.0, 100.0), rtol=1e-12)  # a few roundings of 4000 m / 40
    *pixel, west, north, height = tags[33922]
    assert (pixel, height) == ([0.0, 0.0, 0.0], 0.0)
    assert_allclose((west, north), (-50.0, 3050.0), rtol=1e-12)
    head, keys = tags[34735][:4], np.reshape(tags[34735][4:], (-1, 4)).tolist()
    assert head == (1, 1, 0, 4) and keys == [[1024, 0, 1, 1], [1025, 0, 1, 1], [3072, 0, 1, 25833], [3076, 0, 1, 9001]]
    assert tags[42113][0].rstrip(b"\0") == b"nan"
    about = ET.fromstring(tags[42112][0].rstrip(b"\0").decode("ascii"))
    named = {item.get("sample"): item.text for item in about if item.get("role") == "description"}
    assert named == {"0": "mean", "1": "std", "2": "exceedance_20.5"}
    assert {item.get("name"): item.text for item in about}["TITLE"] == "Elbow & Sons"
    rows, columns = np.nonzero(np.isfinite(bands[0]))
    assert len(rows) == 11 * 41 + 20 * 11
    x = np.stack([west + (columns + 0.5) * dx, north - (rows + 0.5) * dy], axis=-1) / 1000.0
    # The cell centre of a boundary pixel may round to just outside; the field is as smooth there as anywhere.
    field = city.record.field_at(t)
    expected = [field.mean(x), field.std(x), field.exceedance(x, 20.5)]
    # One rounding to float32, and what summing in another order may change: of a probability 0.4 / std < 4 times.
    slack = SINGLE * np.abs(expected) + 4.0 * np.sum(rounding(field, x), axis=0)
    assert_within(bands[:, rows, columns], np.array(expected), slack)
    assert slack.max() < 1e-5 and field.std(x).min() > 0.1
    assert_array_equal(tifffile.imread(path), bands)


@pytest.mark.parametrize("suffix", [".nc", ".zarr", ".csv", ".tif"])
def test_every_format_says_what_the_standard_deviation_contains(city, tmp_path, suffix):
    """What the readings leave open, and what the space cannot hold where the prior is a law; of a prior stated in
    coefficients (the control) the former alone."""
    plain = replace(city.setup, model=rk.Model(city.setup.space, rk.isotropic(1.0), check="later"))
    for setup, contains in ((city.setup, "posterior, unresolved"), (plain, "posterior")):
        target, options = tmp_path / f"{len(contains)}{suffix}", {"resolution": 5, "times": [utc(2025, 7, 1, 9)]}
        (path, *_) = export(city.record, setup, target, **options | ({"crs": 25833} if suffix == ".tif" else {}))
        if suffix == ".csv":
            about = json.loads((tmp_path / f"{path.name}-metadata.json").read_text())
            [std] = [c for c in about["tables"][0]["tableSchema"]["columns"] if c["titles"] == "std"]
            assert std["dc:description"].endswith(f"std contains: {contains}")
            assert f"std contains: {contains} (" in about["dc:description"]
        elif suffix == ".tif":
            tags, _ = tags_and_bands(path)
            about = ET.fromstring(tags[42112][0].rstrip(b"\0").decode("ascii"))
            assert {item.get("name"): item.text for item in about}["STD_CONTAINS"] == contains
        else:
            with opened(path) as ds:
                assert ds.attrs["std_contains"] == contains
                assert ds["std"].attrs["comment"] == f"std contains: {contains}"


def test_several_times_are_several_files(city, tmp_path):
    paths = export(city.record, city.setup, tmp_path / "a.tif", crs=25833, resolution=9)
    assert [p.name for p in paths] == [f"a_20250701T0{h}0000Z.tif" for h in (2, 4, 6, 8)]
    assert all(p.is_file() for p in paths)


def test_degrees_make_a_geographic_geotiff(tmp_path):
    made = Fields(rk.Box([10.0, 50.0], [12.0, 51.0]), rk.DirichletSine(3), 1, length_unit="degree")
    (path,) = export(made, made.setup, tmp_path / "a.tif", crs=4326)
    tags, _ = tags_and_bands(path)
    keys = np.reshape(tags[34735][4:], (-1, 4))[:, [0, 3]].tolist()
    assert keys == [[1024, 2], [1025, 1], [2048, 4326], [2054, 9102]]
    assert_allclose(tags[33922][3:5], (10.0 - 0.1, 51.0 + 0.1), rtol=1e-12)


def test_a_map_that_cannot_be_placed_is_refused(soil, city, cube, tmp_path):
    def attempt(record: Any, setup: Any, crs: Any) -> None:
        export(record, setup, tmp_path / "a.tif", crs=crs)

    with pytest.raises(ValueRangeError, match="needs crs"):
        attempt(city.record, city.setup, None)
    with pytest.raises(ValueRangeError, match="EPSG code such as"):
        attempt(city.record, city.setup, "UTM 33")
    with pytest.raises(ValueRangeError, match="1024 to 32766"):
        attempt(city.record, city.setup, 102100)
    with pytest.raises(ValueRangeError, match="is in degrees"):
        attempt(city.record, city.setup, 4326)
    with pytest.raises(ValueRangeError, match="this domain has 1"):
        attempt(soil.record, soil.setup, 25833)
    with pytest.raises(ValueRangeError, match="this domain has 3"):
        attempt(cube, cube.setup, 25833)
    feet = Fields(rk.Box([0.0, 0.0], [2.0, 1.0]), rk.DirichletSine(2), 1, length_unit="ft")
    with pytest.raises(ValueRangeError, match="'ft'"):
        attempt(feet, feet.setup, 25833)
    assert list(tmp_path.iterdir()) == []


# -- Python ------------------------------------------------------------------------------------------------------------


def test_a_dataset_computes_what_is_looked_at_and_nothing_else(cube):
    ds = to_xarray(cube, cube.setup, thresholds=[0.0])
    assert cube.asked == [] and ds["mean"].dims == ("time", "z", "y", "x")
    one = ds["mean"].isel(time=2, x=5, y=slice(1, 3)).values
    assert cube.asked == [3 * HOUR] and one.shape == (6, 2)
    ds["std"].isel(time=2).values  # noqa: B018 - the same slab, remembered
    assert cube.asked == [3 * HOUR]
    x = np.stack(np.broadcast_arrays(ds["x"].values[5], ds["y"].values[None, 1:3], ds["z"].values[:, None]), axis=-1)
    field = cube.field_at(3 * HOUR)
    assert_within(one.ravel(), field.mean(x.reshape(-1, 3)), rounding(field, x.reshape(-1, 3))[0])


def test_every_way_of_indexing_a_lazy_map_gives_what_loading_first_gives(cube):
    lazy = to_xarray(cube, cube.setup, thresholds=[-0.5, 0.5])
    loaded = to_xarray(cube, cube.setup, thresholds=[-0.5, 0.5]).load()
    places = xr.DataArray([0, 3, 1], dims="place")
    for take in (
        {"time": 1},
        {"time": [3, 1], "x": 2},
        {"threshold": 0, "time": slice(1, 3), "z": [0, 5]},
        {"time": slice(0, 0)},
        {"threshold": [1], "time": places, "x": places},
        {"threshold": 1, "time": slice(None, None, -1), "y": -1},
        {"threshold": 0, "time": slice(0, 0), "x": 3},
    ):
        for name in ("mean", "exceedance"):
            mine = {dim: key for dim, key in take.items() if dim in lazy[name].dims}
            xr.testing.assert_identical(lazy[name].isel(mine).load(), loaded[name].isel(mine))


def test_the_dataset_and_the_file_say_the_same(soil, tmp_path):
    (path,) = export(soil.record, soil.setup, tmp_path / "a.nc")
    lazy = to_xarray(soil.record, soil.setup)
    with xr.open_dataset(path) as ds:
        xr.testing.assert_equal(lazy.load(), ds.load())
        for name in ds.variables:
            assert lazy[name].attrs == ds[name].attrs
    lazy.to_netcdf(tmp_path / "b.nc")
    with xr.open_dataset(tmp_path / "b.nc") as again:
        xr.testing.assert_equal(again.load(), lazy)


def test_readings_come_as_a_frame_in_the_zone_of_the_problem(soil):
    frame = readings_to_frame(soil.record)
    assert list(frame) == ["time", "sensor", "measured", "predicted", "predicted_std", "status"]
    assert len(frame) == 20 and str(frame["time"].dt.tz) == "Europe/Berlin" and frame["time"].is_monotonic_increasing
    strip = soil.record.strip("A")
    mine = frame[frame["sensor"] == "A"]
    assert_array_equal(mine["predicted"], strip.predicted)
    assert_array_equal(mine["time"].dt.tz_convert(None).to_numpy("datetime64[ns]").astype(np.int64), strip.time_ns)


def test_readings_of_a_relative_clock_have_durations(pump):
    frame = readings_to_frame(pump.record)
    assert frame["time"].iloc[0] == pd.Timedelta(seconds=15) and len(frame) == 260


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_times_may_be_written_in_many_ways(soil):
    """All of them are 31 March 2024, 04:00 in Berlin; the text without a zone is read in that of the problem."""
    t = utc(2024, 3, 31, 2)
    for given in (
        [t],
        np.array([t]),
        np.array(["2024-03-31T02:00"], dtype="datetime64[m]"),
        "2024-03-31T02:00Z",
        ["2024-03-31T04:00"],
        ["2024-03-31T04:00:00+02:00"],
        datetime(2024, 3, 31, 2, tzinfo=UTC),
        pd.DatetimeIndex(["2024-03-31T02:00"]),
        [pd.Timestamp("2024-03-31T02:00Z")],
    ):
        assert maps.chosen_times(given, soil.record, soil.setup).tolist() == [t], given


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([1.5], "floats"),
        ([], "empty"),
        (["2024-03-31T02:30"], "no such local time"),
        (["soon"], "cannot be used"),
        ([None], "must be UTC"),
        ([0], "before the start"),
        (np.array(["NaT"], dtype="datetime64[s]"), "NaT"),
        (np.array([5], dtype="timedelta64[s]"), "must be"),
    ],
)
def test_a_time_that_is_none_is_refused(soil, given, complaint):
    with pytest.raises(TimeError, match=complaint):
        to_xarray(soil.record, soil.setup, times=given)


def test_durations_are_for_relative_clocks(pump):
    for given in ([timedelta(seconds=90)], np.array([90], dtype="timedelta64[s]"), [90_000_000_000]):
        assert maps.chosen_times(given, pump.record, pump.setup).tolist() == [90_000_000_000]
    with pytest.raises(TimeError, match="durations"):
        to_xarray(pump.record, pump.setup, times=["2024-01-01T00:00Z"])


def test_a_run_without_analyses_has_no_default_times():
    made = line(0)
    with pytest.raises(TimeError, match="no analysis yet"):
        to_xarray(made, made.setup)


def test_maps_do_not_depend_on_blocks_nor_on_what_is_kept(city, monkeypatch):
    """Basis values are evaluated in blocks of points and kept between times only where they fit."""
    whole = to_xarray(city.record, city.setup).load()
    monkeypatch.setattr(maps, "_ROWS", 7)
    for kept in (0, 1 << 20):
        monkeypatch.setattr(maps, "_KEPT", kept)
        assert_is_the_field(to_xarray(city.record, city.setup).load(), city.record, ("east", "north"), (20.5,))
    assert_is_the_field(whole, city.record, ("east", "north"), (20.5,))


def test_what_is_too_large_is_refused_before_anything_is_computed(cube, tmp_path, monkeypatch):
    for options, complaint in (
        ({"resolution": 1000}, "1000 x 501 x 501"),
        ({"times": HOUR * np.arange(100_001)}, "at most 100000"),
        ({"resolution": 201, "times": HOUR * np.arange(1000)}, "fewer times"),
        ({"resolution": 1}, "at least 2"),
        ({"level": 1.0}, "between 0 and 1"),
        ({"thresholds": [np.nan]}, "thresholds"),
    ):
        with pytest.raises(ValueRangeError, match=complaint):
            export(cube, cube.setup, tmp_path / "a.nc", **options)
    monkeypatch.setattr("rfkalman.runs.export.MAX_ROWS", 1000)
    with pytest.raises(ValueRangeError, match="1584 lines"):
        export(cube, cube.setup, tmp_path / "a.csv")
    assert cube.asked == [] and list(tmp_path.iterdir()) == []


def test_the_format_is_told_by_the_suffix_or_by_name(cube, tmp_path):
    with pytest.raises(ValueRangeError, match="does not say in which format"):
        export(cube, cube.setup, tmp_path / "a.dat")
    with pytest.raises(ValueRangeError, match="csv, geotiff, netcdf, zarr"):
        export(cube, cube.setup, tmp_path / "a.nc", format="hdf")
    (path,) = export(cube, cube.setup, tmp_path / "a.dat", format="netcdf", resolution=3)
    with netCDF4.Dataset(path) as file:
        assert file.Conventions == "CF-1.10"


def test_the_probability_of_exceedance_is_that_of_the_field():
    """0 or 1 where the value is certain, whatever the size of the quotient elsewhere."""
    mean, std = np.array([1.0, 1.0, 1.0, 1e300]), np.array([0.0, 0.5, 0.0, 1e-300])
    assert_allclose(exceedance(mean, std, np.array([0.5, 1.0])), [[1, 0.8413447460685429, 1, 1], [0, 0.5, 0, 1]])


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("", "1"),
        ("degC", "degC"),
        ("ug/l", "ug/l"),
        ("µg/m³", "ug/m3"),
        ("W/m²", "W/m2"),
        ("mm**2/s", "mm^2/s"),
        ("kg m-2 s-1", "kg m-2 s-1"),
        ("°C", "degC"),
        ("percent", "percent"),
        ("1/d", "1/d"),
        ("mg/a", "mg/Julian_year"),
        ("mol/l", "mol/l"),
        ("delta_degF", "degR"),
        ("1e-3", "1e-3"),
        ("mbar", "mbar"),
        ("kilometers", "kilometers"),
    ],
)
def test_units_are_written_as_udunits_reads_them(unit, text):
    assert udunits(unit) == (text, True)


def test_a_unit_that_udunits_does_not_know_is_kept_and_said(tmp_path):
    """Better an honest text than a wrong number; 'a' alone would be read as are."""
    assert udunits("cal") == ("cal", False)
    made = Fields(rk.Interval(0.0, 1.0), rk.DirichletSine(2), 1, unit="cal")
    (path,) = export(made, made.setup, tmp_path / "a.nc")
    with netCDF4.Dataset(path) as file:
        assert file["mean"].units == "cal" and "udunits" in file["mean"].comment


def test_axes_get_names_that_do_not_collide():
    assert axis_names(("mean", "mean_axis", "größe")) == ("mean_axis", "mean_axis_axis", "gr_e")


def test_the_spacing_is_nearly_the_same_on_every_axis():
    grid = make_grid(rk.Box([0.0, 1.0, 0.0], [3.0, 2.0, 0.01]), 31)
    assert [len(one) for one in grid.lines] == [31, 11, 2] and grid.shape == (2, 11, 31)
    assert_array_equal(grid.points(np.array([0, 1, 31, 341])), [[0, 1, 0], [0.1, 1, 0], [0, 1.1, 0], [0, 1, 0.01]])


# -- writing -----------------------------------------------------------------------------------------------------------


def test_each_time_is_computed_once_and_in_order(tmp_path):
    """A record replays forwards; going back would start it anew."""
    for suffix in ("nc", "zarr", "csv"):
        made = line(25)
        told: list[float] = []
        export(made, made.setup, tmp_path / f"a.{suffix}", progress=told.append)
        assert made.asked == made.analysis_times.tolist()
        assert told == sorted(told) and told[-1] == 1.0


def test_memory_does_not_grow_with_the_number_of_times(tmp_path, monkeypatch):
    """A slab of 201 x 101 points takes 0.16 MB; forty of them at once would show."""
    monkeypatch.setattr(maps, "_CHUNK", 1)
    made = Fields(rk.Box([0.0, 0.0], [2.0, 1.0]), rk.DirichletSine(3), 4)

    def peak(suffix: str, n: int) -> int:
        tracemalloc.start()
        try:
            times = HOUR * np.arange(1, n + 1)
            export(made, made.setup, tmp_path / f"{n}.{suffix}", resolution=201, times=times)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for suffix in ("nc", "zarr"):
        peak(suffix, 1)
        # A handful of slabs, not forty: 2 x 40 x 0.16 MB = 13 MB would be the whole.
        assert peak(suffix, 42) - peak(suffix, 2) < 2_000_000
    # The control: the same measurement sees a dataset that is loaded whole.
    tracemalloc.start()
    whole = to_xarray(made, made.setup, resolution=201, times=HOUR * np.arange(1, 43)).load()
    assert tracemalloc.get_traced_memory()[1] > 10_000_000 and whole["mean"].shape == (42, 101, 201)
    tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv", "tif"])
def test_what_exists_is_replaced_only_on_request(city, tmp_path, suffix):
    target, options = tmp_path / f"a.{suffix}", {"times": [utc(2025, 7, 1, 9)], "crs": 25833, "resolution": 5}
    first = export(city.record, city.setup, target, **options)
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    with pytest.raises(ExportError, match="exists; choose another name, or replace it with overwrite=True"):
        export(city.record, city.setup, target, **options)
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} == before
    assert export(city.record, city.setup, target, overwrite=True, **(options | {"resolution": 9})) == first
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} != before
    assert leftovers(tmp_path) == []


def test_a_folder_that_is_no_zarr_store_is_never_replaced(cube, tmp_path):
    mine = tmp_path / "a.zarr" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    with pytest.raises(ExportError, match="no Zarr store"):
        export(cube, cube.setup, mine.parent, overwrite=True)
    assert mine.read_text() == "years of work"


@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv", "tif"])
def test_an_interrupted_export_leaves_what_was_there(city, tmp_path, suffix):
    """Also when the user presses Ctrl-C half-way."""
    target = tmp_path / f"a.{suffix}"
    when = [utc(2025, 7, 1, 9)]
    export(city.record, city.setup, target, times=when, crs=25833, resolution=5)
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}

    def pressed(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(city.record, city.setup, target, times=when, crs=25833, overwrite=True, progress=pressed)
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} == before


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to let files grow beyond a size: what a full disk looks like to a program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 2_000, 40_000])
@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv", "tif"])
def test_a_full_disk_is_said_and_leaves_nothing(city, tmp_path, suffix, size):
    """Random numbers do not compress, so that every file outgrows the limit."""
    noise = np.random.default_rng(3).standard_normal(1 << 16)

    class Noisy:
        def __getattr__(self, name: str) -> Any:
            return getattr(city.record, name)

        def field_at(self, t_ns: int) -> Any:
            field = city.record.field_at(t_ns)
            root = noise[: field.belief.dim**2].reshape(field.belief.dim, -1)
            return rk.Field(field.space, rk.Gaussian(noise[: field.belief.dim], root=root), field.time)

    error: BaseException | None = None
    with largest_file(size):
        try:
            export(Noisy(), city.setup, tmp_path / f"a.{suffix}", times=[utc(2025, 7, 1, 9)], crs=25833, resolution=161)
        except ExportError as caught:
            error = caught
    assert error is not None and "the disk is full" in str(error) and isinstance(error, OSError)
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere, so the test steps down while it lasts."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv", "tif"])
def test_a_read_only_folder_is_said_before_anything_is_computed(suffix):
    made = Fields(rk.Box([0.0, 0.0], [2.0, 1.0]), rk.DirichletSine(2), 1)
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o555)
        with as_nobody(), pytest.raises(ExportError, match="choose a folder that can be written"):
            export(made, made.setup, folder / f"a.{suffix}", crs=25833)
        assert made.asked == [] and list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv", "tif"])
def test_a_folder_that_is_not_there_is_said(tmp_path, suffix):
    made = Fields(rk.Box([0.0, 0.0], [2.0, 1.0]), rk.DirichletSine(2), 1)
    with pytest.raises(ExportError, match="there is no folder"):
        export(made, made.setup, tmp_path / "nowhere" / f"a.{suffix}", crs=25833)


@pytest.mark.parametrize(("suffix", "package"), [("nc", "netCDF4"), ("zarr", "zarr"), ("tif", "tifffile")])
def test_a_missing_package_is_named_with_the_line_that_installs_it(tmp_path, monkeypatch, suffix, package):
    made = Fields(rk.Box([0.0, 0.0], [2.0, 1.0]), rk.DirichletSine(2), 1)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}; install it with: pip install 'rfkalman\[export\]'"):
        export(made, made.setup, tmp_path / f"a.{suffix}", crs=25833)
    assert list(tmp_path.iterdir()) == []


def test_without_any_package_there_are_still_tables(cube, tmp_path, monkeypatch):
    for package in ("xarray", "pandas", "netCDF4", "zarr", "tifffile"):
        monkeypatch.setitem(sys.modules, package, None)
    assert export(cube, cube.setup, tmp_path / "a.csv", resolution=3)[0].is_file()
    with pytest.raises(MissingExtraError, match=r"rfkalman\[export\]"):
        to_xarray(cube, cube.setup)
    with pytest.raises(MissingExtraError, match=r"rfkalman\[export\]"):
        readings_to_frame(cube)


def test_the_shipped_soil_example_is_exported_whole(tmp_path):
    """As its file says: a map a day, and the probability of more than 5 degC."""
    folder = Path(rk.__file__).parent / "problem" / "examples" / "soil"
    problem = Problem.from_toml(folder / "problem.toml")
    with run(problem.build()) as done:
        (path,) = export(done.record, done.setup, tmp_path / "soil.nc")
        with xr.open_dataset(path) as ds:
            assert ds["mean"].sizes == {"time": 42, "depth": 101} and ds["threshold"].item() == 5.0
            steps = np.diff(ds["time"].values.astype(np.int64))
            assert (steps == 24 * HOUR).all()
            assert_is_the_field(ds.isel(time=slice(0, None, 10)), done.record, ("depth",), (5.0,))
            assert np.isfinite(ds["mean"]).all()


def test_a_plan_given_beforehand_counts(soil, tmp_path):
    """Times of maps in the problem file are taken as they stand, a forecast included."""
    later = utc(2024, 4, 2)
    setup = replace(soil.setup, output=replace(soil.setup.output, map_times_ns=(later, utc(2024, 3, 31))))
    ds = to_xarray(soil.record, setup)
    assert ds["time"].values.astype(np.int64).tolist() == [utc(2024, 3, 31), later]
    assert (ds["std"].isel(time=1) > ds["std"].isel(time=0)).all()
