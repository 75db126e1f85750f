"""Problems people have, stated by hand: soil temperatures, a city. Needs the data (RFKALMAN_DATA)."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from rfkalman.filters import kalman
from rfkalman.problem import Problem
from rfkalman.problem.validate import validate_problem

DATA = os.environ.get("RFKALMAN_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="RFKALMAN_DATA is not set: real readings are not at hand")

SOIL = """
version = 1
title = "Soil temperature, Manhattan KS"

[domain]
kind = "interval"
lower = 0
upper = "2 m"
axes = ["depth"]
parts = { surface = "x-", bottom = "x+" }

[field]
name = "soil temperature"
unit = "degC"

[physics]
diffusion = "0.5 mm2/s"
[physics.boundary.surface]
unknown = { mean = "15 degC", std = "10 degC", change = "2.5 degC", per = "1 d" }
[physics.boundary.bottom]
unknown = { mean = "13 degC", std = "3 degC", change = "0.15 degC", per = "1 d" }

[prior]
mean = "15 degC"
std = "6 degC"
length = "0.5 m"

[sensors]
file = "sensors.csv"
id = "sensor_id"
coordinates = ["depth_m"]
noise = "0.1 degC"

[time]
unit = "d"
zone = "UTC"
start = 2013-09-01

[input]
files = ["observations.csv"]
value = "temperature_degC"
range = ["-40 degC", "60 degC"]
"""

CITY = """
version = 1
title = "Berlin, July 2019"
[domain]
kind = "box"
unit = "km"
lower = [-60, -60]
upper = [60, 60]
[field]
name = "air temperature"
unit = "degC"
[physics]
diffusion = "10 km2/h"
reaction = "0.05 1/h"
source = 0.95
source_field = { std = 1.2, memory = "8 h", length = "100 km", modes = 3 }
process_noise = { change = "0.5 degC", per = "1 h", length = "40 km" }
[prior]
mean = "19 degC"
std = "4 degC"
length = "60 km"
[sensors]
file = "sensors.csv"
id = "sensor_id"
coordinates = ["x_km", "y_km"]
noise = "0.5 degC"
[time]
unit = "h"
zone = "Europe/Berlin"
start = "2019-06-24"
step = "1 h"
[input]
files = ["observations.csv"]
value = "temperature_degC"
"""


def batches(setup, folder, column, start, end, where=None):
    """Readings of a long table by timestamp, the obvious way."""
    found = defaultdict(dict)
    with (folder / "observations.csv").open() as stream:
        for row in csv.DictReader(stream):
            time = row[setup.input.time]
            if row[column] and start <= time <= end and (where is None or row[where[0]] == where[1]):
                found[time][row["sensor_id"]] = float(row[column])
    return found


def scored(setup, series, to_model, held, score_from):
    """Errors and standardised errors of the held-out sensors, each predicted from the others up to that moment."""
    model, sensors = setup.model, setup.sensors
    belief, t, errors, scaled = model.initial, model.start, [], []
    rows = [sensors.index(name) for name in held]
    spread = np.hypot(sensors.noise_std[rows], sensors.offset_std[rows])
    for stamp, values in series.items():
        when = to_model(stamp)
        if when > t:
            belief, t = kalman.forecast(belief, model.step(t, when)), when
        use = [i for i, name in enumerate(sensors.ids) if name in values and name not in held]
        if use:
            obs = model.observe(setup.functional(use), t, noise_std=sensors.noise_std[use])
            belief = kalman.analyse(belief, obs, [values[sensors.ids[i]] for i in use])
        if stamp >= score_from:
            field, x = model.field(belief, t), sensors.coords[rows]
            miss = field.mean(x) - np.array([values.get(name, np.nan) for name in held])
            errors.append(miss)
            scaled.append(miss / np.hypot(field.std(x), spread))
    errors, scaled = np.array(errors), np.array(scaled)
    good = np.isfinite(errors)
    return np.sqrt(np.mean(np.square(errors[good]))), np.mean(np.abs(scaled[good]) < 1.645)


def stated(text, name):
    return Problem.from_text(text, folder=Path(DATA) / name)


def test_soil_temperatures_between_unknown_boundaries_beat_interpolation():
    """Two depths from three others, a year; the best interpolator of the data's own page reaches 0.38 over two.

    Measured 0.295: what is asked is to stay below the heat equation between measured boundaries, 0.332.

    The 90 % band holds 48 % of the hidden readings, and no reading at the other depths tells: the probe at 50 cm sits
    0.35 degC off. It must not become worse, and a band that held them all would have to be far too wide.
    """
    setup = stated(SOIL, "uscrn_manhattan").build()
    folder = Path(DATA) / "uscrn_manhattan"
    series = batches(setup, folder, "temperature_degC", "2013-09-01", "2014-12-31")
    days = {stamp: float(i) for i, stamp in enumerate(series)}
    rmse, share = scored(setup, series, days.get, ["T10cm", "T50cm"], "2014-01-01")
    assert rmse < 0.332
    assert 0.45 < share < 0.97


def test_a_city_that_no_equation_governs_is_still_interpolated():
    """Six stations from seventeen others, a week: 0.85 degC; linear interpolation reaches 1.31 over the month.

    The 90 % band holds 80 %: no equation governs the city. It must not become worse.
    """
    setup = stated(CITY, "berlin_uco").build()
    folder = Path(DATA) / "berlin_uco"
    series = batches(setup, folder, "temperature_degC", "2019-06-24 00:00:00", "2019-07-07 23:00:00")
    hours = {stamp: float(i) for i, stamp in enumerate(series)}
    held = ["bamberger", "tiergarten", "jagen91", "marzahn", "potsdam", "lindenberg"]
    rmse, share = scored(setup, series, hours.get, held, "2019-07-01 00:00:00")
    assert rmse < 1.31
    assert 0.77 < share < 0.97


def test_the_probe_that_drifts_is_named_and_no_other_before():
    """Bedford: T50cm leaves the others in July 2014. The year before, and all others until then, are quiet.

    A recipe made for these data (30-day means at 5 std of 2010 and 2011) names it on 2014-08-05. Asked: between July
    2014 and the end of 2015, and at most one false alarm in five sensor-years before, which are four in all.
    """
    text = SOIL.replace("start = 2013-09-01", "start = 2010-01-01").replace("[time]", 'offset = "0.2 degC"\n[time]')
    setup = stated(text, "uscrn_bedford").build()
    end = setup.clock.from_model(2829.0)
    alarms = validate_problem(setup, until_ns=end, rehearsal=False, peers=False).alarms
    early = [alarm for alarm in alarms if alarm.since < 1642.0]  # 2014-07-01
    named = [alarm for alarm in alarms if alarm.sensor == "T50cm" and alarm.since >= 1642.0]
    assert len(early) <= 4 and "T50cm" not in {alarm.sensor for alarm in early}
    assert named[0].since == min(alarm.since for alarm in alarms if alarm.since >= 1642.0)
    assert named[0].since < 2191.0 and named[0].kind in ("drift", "step")


@pytest.mark.parametrize(("text", "name"), [(SOIL, "uscrn_manhattan"), (CITY, "berlin_uco")])
def test_the_check_of_real_tables_adds_up(text, name):
    problem = stated(text, name)
    data = problem.check(True, batches=20).data
    total = data.unknown_sensor + data.outside + data.missing + data.out_of_range + data.before_start
    assert data.readings == total + data.duplicate + data.usable
    assert data.usable > 2000 and not data.rejected
