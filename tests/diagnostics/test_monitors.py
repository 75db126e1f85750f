"""Sensors that lie: each kind named with its date, liars and not their neighbours, and honest networks left alone.

Most worlds here are predicted by kriging of each batch alone, written out below: quick, and independent of the filters.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import solve_banded

import rfkalman as rk
from rfkalman.diagnostics import LeaveOneOut, Readings, blind_spots, leave_one_out, watch
from rfkalman.diagnostics.monitors import PER_YEAR, UNITS

YEAR = 365.25


def residuals(n_years, n, rng, memory=0.0, season=0.0, per_day=1):
    """Residuals of unit variance with a memory in days, and a season of their own phase with this amplitude."""
    T = int(n_years * YEAR * per_day)
    t = (1.0 + np.arange(T)) / per_day
    e = rng.normal(size=(T, n))
    if memory:
        a = np.exp(-1.0 / (memory * per_day))
        for k in range(1, T):
            e[k] = a * e[k - 1] + np.sqrt(1.0 - a * a) * e[k]
        e = 0.9 * e + 0.44 * rng.normal(size=(T, n))
    return t, e + season * np.sin(2.0 * np.pi * (t[:, None] / YEAR + rng.uniform(size=n)))


def network(t, e, field=None):
    """Leave-one-out whose predictions are the field and whose claimed std is 1."""
    n = e.shape[1]
    mean = np.zeros(e.shape) if field is None else np.broadcast_to(field, e.shape)
    ids = tuple(f"S{i}" for i in range(n))
    value = mean + e
    loo = LeaveOneOut(
        ids, t, value, np.where(np.isfinite(value), mean, np.nan), np.ones(e.shape), np.zeros(n, dtype=bool), 0.0
    )
    return loo, Readings.of(rk.points(np.arange(n)[:, None] / n, ids=list(ids)), t, value, 1.0)


def kriged(x, t, table, length=3.0, noise=0.1):
    """Each sensor from all others of its batch, with a Gaussian covariance; also again without some."""
    x = np.asarray(x, dtype=float).reshape(len(table[0]), -1)
    n = len(x)
    distance = np.linalg.norm(x[:, None] - x[None], axis=2)
    K = np.exp(-0.5 * (distance / length) ** 2) + 4.0  # and a level that all share
    readings = Readings.of(rk.points(x, ids=[f"S{i}" for i in range(n)]), t, table, noise)
    middle = np.nanmean(table)

    def again(without):
        mean, std = np.full(table.shape, np.nan), np.full(table.shape, np.nan)
        for i in range(n):
            others = [j for j in range(n) if j != i and j not in without]
            weights = np.linalg.solve(K[np.ix_(others, others)] + noise**2 * np.eye(len(others)), K[others, i])
            mean[:, i] = middle + (table[:, others] - middle) @ weights
            std[:, i] = np.sqrt(K[i, i] - K[i, others] @ weights + noise**2)
        held = np.isin(np.arange(n), list(without))
        return LeaveOneOut(readings.ids, readings.times, table, mean, std, held, 0.0)

    def judged(**options):
        return watch(again(set()), readings, again=again, coords=x, **{"year": YEAR, **options})

    return judged


def smooth_field(x, T, rng, memory=10.0, length=4.0):
    """A field on a line that the covariance above describes well enough, a row for each time."""
    x = np.asarray(x, dtype=float)
    modes = np.stack([np.exp(-0.5 * ((x - c) / length) ** 2) for c in np.linspace(x.min(), x.max(), 6)])
    a, w = np.exp(-1.0 / memory), np.zeros((T, 6))
    for k in range(1, T):
        w[k] = a * w[k - 1] + np.sqrt(1.0 - a * a) * rng.normal(size=6)
    return w @ modes


# -- honest networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "season"), [(0.0, 0.0), (30.0, 0.0), (30.0, 1.0)], ids=["white", "memory", "memory and season"]
)
def test_honest_sensors_are_named_no_more_often_than_was_asked(memory, season):
    """300 monitored sensor-years each; a sensor has one alarm of a kind at most, so the rate that is asked bounds it.

    At 0.5 a year a sensor that is watched for six years has an alarm with probability 0.95 at most. Above: asked times
    years, and three of its standard deviations. Below, at 0.5: a limit that no honest sensor ever passed would be no
    limit of this rate but a larger one, so one in ten of what was asked must come.
    """
    rng = np.random.default_rng([7, int(memory), int(season)])
    years, n = 6.0, 50
    t, e = residuals(8.0, n, rng, memory, season)
    loo, readings = network(t, e)
    counts = {}
    for rate in (PER_YEAR, 0.5):
        singles = [watch(*single(loo, readings, i), per_year=rate, year=YEAR) for i in range(n)]
        counts[rate] = sum(map(len, singles))
    expected = PER_YEAR * years * n
    assert counts[PER_YEAR] <= expected + 3.0 * np.sqrt(expected)
    assert 0.1 * 0.5 * years * n <= counts[0.5] <= 0.5 * years * n


def single(loo, readings, i):
    """One sensor of a network, so that each is judged by itself."""
    part = np.s_[:, [i]]
    one = LeaveOneOut((loo.ids[i],), loo.times, loo.value[part], loo.mean[part], loo.std[part], np.zeros(1, bool), 0.0)
    return one, Readings.of(rk.points([[0.5]], ids=[loo.ids[i]]), loo.times, loo.value[part], readings.noise_std[i])


def test_the_rate_is_the_only_knob_and_turns_the_limit():
    """The more false alarms are allowed, the lower the limit, and the earlier a drift is named."""
    t, e = residuals(6.0, 1, np.random.default_rng(3))
    e[:, 0] += 1.0 * np.maximum(t - 1400.0, 0.0) / YEAR
    found = [watch(*network(t, e), per_year=rate, year=YEAR)[0] for rate in (0.005, 0.05, 0.5)]
    assert found[0].limit > found[1].limit > found[2].limit
    assert found[0].since >= found[1].since >= found[2].since > 1400.0


def test_a_season_is_not_a_drift_and_hides_none():
    """A yearly cycle of twice the claimed std is known after two years: with and without it the same is named.

    Medians of blocks are not linear, so to within a tenth of the limit and a window of 30 days.
    """
    for drift in (0.0, 1.5):
        plain, seasonal = (residuals(8.0, 4, np.random.default_rng(6), season=season) for season in (0.0, 2.0))
        found = []
        for t, e in (plain, seasonal):
            e[:, 2] += np.clip((t - 1200.0) / 300.0, 0.0, 1.0) * drift
            found.append(watch(*network(t, e), year=YEAR))
        assert [alarm.sensor for alarm in found[0]] == [alarm.sensor for alarm in found[1]] == ["S2"] * bool(drift)
    one, other = found[0][0], found[1][0]
    assert abs(one.since - other.since) <= 30.5 and 1200.0 < one.since < 1500.0
    assert abs(one.limit - other.limit) < 0.1 * one.limit


def test_what_a_record_is_too_short_for_is_said():
    t, e = residuals(1.0, 3, np.random.default_rng(0))
    loo, _ = network(t, e)
    (said,) = blind_spots(loo, YEAR)
    assert "S0, S1, S2" in said and "season" in said
    few, _ = network(t[:100], e[:100])
    assert "no drift" in blind_spots(few, YEAR)[0]
    assert "at all" in blind_spots(network(t[:20], e[:20])[0], YEAR)[0]
    long, _ = network(*residuals(4.0, 3, np.random.default_rng(0)))
    assert blind_spots(long, YEAR) == []


def test_the_rate_stands_in_the_problem_file_and_decides_no_posterior():
    """What monitors may say wrongly moves no hash: a run goes on after it was changed."""
    stated = column().problem
    table = stated.as_dict()
    changed = rk.Problem(**{**table, "monitors": {"false_alarms_per_year": 0.2}})
    assert stated.canonical() == changed.canonical() and "monitors" not in stated.canonical()
    assert (stated.build().false_alarms_per_year, changed.build().false_alarms_per_year) == (PER_YEAR, 0.2)
    with pytest.raises(rk.RFKalmanError, match="false_alarms_per_year"):
        rk.Problem(**{**table, "monitors": {"false_alarms_per_year": 0.0}})


# -- one kind after the other -----------------------------------------------------------------------------------------


def broken(kind, t, e, field):
    """Sensor 1 made to lie from day 1500 on; what an honest one would have read is field + e."""
    e = e.copy()
    late = t >= 1500.0
    if kind == "drift":
        e[:, 1] += 2.0 * np.maximum(t - 1500.0, 0.0) / YEAR
    elif kind == "step":
        e[late, 1] += 2.0
    elif kind == "spike":
        e[np.argmax(late), 1] += 15.0
    elif kind == "stuck":
        part = late & (t < 1540.0)
        e[part, 1] = (field + e[:, [1]])[np.argmax(late)] - field[part, 0]
    elif kind == "silent":
        e[late & (t < 1540.0), 1] = np.nan
    elif kind == "wrong unit":
        e[late, 1] = 0.8 * field[late, 0] + 32.0 + 1.8 * e[late, 1]
    elif kind == "wrong clock":
        moved = np.roll(field[:, 0], 1) + e[:, 1]
        e[late, 1] = (moved - field[:, 0])[late]
    return e


KINDS = ["drift", "step", "spike", "stuck", "silent", "wrong unit", "wrong clock"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_named_with_its_date(kind):
    """Within a window of the monitors (30 days) after it began, but for a drift, which must first become visible."""
    rng = np.random.default_rng(11)
    t, e = residuals(6.0, 3, rng)
    weather = rng.normal(0.0, 8.0 if kind == "wrong clock" else 3.0, (t.size, 1))
    field = 15.0 - 12.0 * np.cos(2.0 * np.pi * t / YEAR)[:, None] + weather
    assert watch(*network(t, e, field), year=YEAR) == []
    (alarm,) = watch(*network(t, broken(kind, t, e, field), field), year=YEAR, unit="degC")
    assert (alarm.sensor, alarm.kind) == ("S1", kind)
    assert 1499.0 <= alarm.since <= (1700.0 if kind == "drift" else 1531.0)
    assert alarm.times.shape == alarm.residual.shape and alarm.limit > 0.0 and alarm.is_lie
    assert any(letter.isdigit() for letter in alarm.evidence)
    at = np.nanargmax(np.where(alarm.times >= 1499.0, np.abs(alarm.residual), 0.0))
    assert abs(alarm.residual[at]) > alarm.limit


@pytest.mark.parametrize("unit", UNITS)
def test_each_wrong_unit_is_told_from_the_others(unit):
    """From the first reading on; where two maps are hard to tell apart the smaller residual decides. The control has
    the same residuals in the right unit."""
    t, e = residuals(1.0, 2, np.random.default_rng(2))
    field = (290.0 if "K is" in unit else 60.0 if "degF is" in unit else 15.0) + 8.0 * np.sin(t / 20.0)[:, None]
    factor, shift = UNITS[unit]
    e = 0.2 * e
    assert watch(*network(t, e, field), year=YEAR) == []
    e[:, 1] = factor * (field[:, 0] + e[:, 1]) + shift - field[:, 0]
    loo, readings = network(t, e, field)
    (alarm,) = watch(loo, readings, year=YEAR)
    assert (alarm.sensor, alarm.kind, alarm.since) == ("S1", "wrong unit", t[0])
    assert unit in alarm.evidence


# -- liars and their neighbours ---------------------------------------------------------------------------------------


def test_the_liar_is_named_and_not_its_neighbour_with_the_larger_residual():
    """At the end of a line a sensor is extrapolated, so its neighbour's lie comes out larger there than at the liar."""
    rng = np.random.default_rng(4)
    x, t = np.arange(6.0), 1.0 + np.arange(1500.0)
    table = smooth_field(x, t.size, rng) + rng.normal(0.0, 0.1, (t.size, 6))
    assert kriged(x, t, table)() == []
    table[t > 900.0, 1] += 0.8
    judged = kriged(x, t, table)
    (alarm,) = judged()
    assert (alarm.sensor, alarm.kind) == ("S1", "step") and 900.0 < alarm.since < 920.0


def test_two_liars_are_named_one_after_the_other():
    rng = np.random.default_rng(6)
    x, t = np.arange(8.0), 1.0 + np.arange(1500.0)
    table = smooth_field(x, t.size, rng) + rng.normal(0.0, 0.1, (t.size, 8))
    table[t > 900.0, 2] += 1.0
    table[t > 1200.0, 6] -= 1.0
    found = {alarm.sensor: alarm for alarm in kriged(x, t, table)()}
    assert set(found) == {"S2", "S6"}
    assert 900.0 < found["S2"].since < 920.0 and 1200.0 < found["S6"].since < 1220.0


def test_what_several_sensors_saw_is_an_event_and_no_lie():
    """A warm spot that is wider than the distance of sensors; without it, or at one sensor alone, there is none."""
    rng = np.random.default_rng(8)
    x, t = np.array(list(itertools.product(range(4), range(3))), dtype=float), 1.0 + np.arange(1500.0)
    table = smooth_field(x[:, 0], t.size, rng) + rng.normal(0.0, 0.1, (t.size, 12))
    seen = 4.0 * np.exp(-0.5 * ((x - [2.0, 1.0]) ** 2).sum(axis=1) / 0.8**2)
    during = (t > 1000.0) & (t < 1060.0)
    found = kriged(x, t, table + np.outer(during, seen), length=1.0)()
    assert [alarm.kind for alarm in found] == ["event"] and not found[0].is_lie
    assert found[0].others and 1000.0 < found[0].since < 1020.0 and found[0].until < 1110.0
    alone = kriged(x, t, table + np.outer(during, seen * (seen == seen.max())), length=1.0)()
    assert [alarm.kind for alarm in alone] != ["event"] and alone[0].sensor == "S7"


@pytest.mark.parametrize("since", [0.0, 700.0])
def test_two_exchanged_sensors_are_named(since):
    """From the first reading on, or from a date on; the control is the same record as it should be."""
    rng = np.random.default_rng(9)
    x, t = np.arange(7.0), 1.0 + np.arange(1200.0)
    table = smooth_field(x, t.size, rng) + 0.8 * x + rng.normal(0.0, 0.1, (t.size, 7))
    assert kriged(x, t, table)() == []
    late = t > since
    table[np.ix_(late, [1, 5])] = table[np.ix_(late, [5, 1])]
    (alarm,) = kriged(x, t, table)()
    assert alarm.kind == "swap" and {alarm.sensor, *alarm.others} == {"S1", "S5"}
    assert abs(alarm.since - since) <= 2.0


def test_sensors_that_are_held_out_are_not_watched():
    t, e = residuals(6.0, 2, np.random.default_rng(1))
    e[t > 1500.0, 1] += 5.0
    loo, readings = network(t, e)
    aside = LeaveOneOut(loo.ids, loo.times, loo.value, loo.mean, loo.std, np.array([False, True]), 0.0)
    assert watch(aside, readings, year=YEAR) == [] and len(watch(loo, readings, year=YEAR)) == 1


# -- studies: how often honest networks are accused, and how soon liars are named -------------------------------------

DEPTHS, IDS = [0.05, 0.1, 0.2, 0.5, 1.0], ["T5", "T10", "T20", "T50", "T100"]


def column(D="0.5 mm2/s"):
    """A soil column as a user states it: one diffusivity, unknown ends, offsets of 0.2 and noise of 0.1 degC."""
    ends = {
        "surface": {"unknown": {"mean": "15 degC", "std": "10 degC", "change": "2.5 degC", "per": "1 d"}},
        "bottom": {"unknown": {"mean": "13 degC", "std": "3 degC", "change": "0.15 degC", "per": "1 d"}},
    }
    parts = {"surface": "x-", "bottom": "x+"}
    return rk.Problem(
        domain={"kind": "interval", "lower": 0, "upper": "2 m", "axes": ["depth"], "parts": parts},
        field={"name": "temperature", "unit": "degC"},
        physics={"diffusion": D, "boundary": ends},
        prior={"mean": "15 degC", "std": "6 degC", "length": "0.5 m"},
        sensors={
            "table": [{"id": name, "at": depth} for name, depth in zip(IDS, DEPTHS, strict=True)],
            "noise": "0.1 degC",
            "offset": "0.2 degC",
        },
        time={"unit": "d", "start": "2010-01-01T00:00:00Z"},
    ).build()


def soil(years, seed, layered):
    """Daily means at five depths by finite volumes, 6 m deep; weather of 4 days, spells of 200 days and a season.

    A layered truth has four layers (diffusivities apart by 30 %, std of the logarithm) and is wetter in spring (20 %).
    """
    rng = np.random.default_rng([seed, 77])
    dx, dt, sub = 0.02, 0.25, 4
    x = (np.arange(300) + 0.5) * dx
    D = np.full(x.size, 0.5e-6 * 86400.0)
    if layered:
        D *= np.exp(rng.normal(0.0, 0.3, 4))[np.searchsorted([0.15, 0.4, 0.8], x)]
    between, top = 2.0 * D[1:] * D[:-1] / (D[1:] + D[:-1]) / dx**2, 2.0 * D[0] / dx**2
    T, weather, spell = np.full(x.size, 13.0), 0.0, 0.0
    out = np.zeros((int(years * YEAR), 5))
    for k in range(-730 * sub, len(out) * sub):
        day = k * dt
        weather = weather * np.exp(-dt / 4) + 3.0 * np.sqrt(1.0 - np.exp(-dt / 2)) * rng.normal()
        spell = spell * np.exp(-dt / 200) + np.sqrt(1.0 - np.exp(-dt / 100)) * rng.normal()
        surface = 13.0 - 12.0 * np.cos(2.0 * np.pi * (day - 20.0) / YEAR) + weather + spell
        wet = dt * (1.0 + 0.2 * np.cos(2.0 * np.pi * (day - 60.0) / YEAR) if layered else 1.0)
        bands = np.zeros((3, x.size))
        bands[1] = 1.0
        bands[1, :-1] += wet * between
        bands[1, 1:] += wet * between
        bands[1, 0] += wet * top
        bands[0, 1:] = bands[2, :-1] = -wet * between
        rhs = T.copy()
        rhs[0] += wet * top * surface
        T = solve_banded((1, 1), bands, rhs)
        if k >= 0:
            out[k // sub] += np.interp(DEPTHS, x, T) / sub
    return np.round(out + rng.normal(0.0, 0.1, 5) + rng.normal(0.0, 0.1, out.shape), 1)


def soil_alarms(setup, table, **options):
    readings = Readings.of(setup.functional(range(5)), 1.0 + np.arange(len(table)), table, 0.1)
    known = {}

    def again(without):
        key = tuple(sorted(without))
        if key not in known:
            known[key] = leave_one_out(setup.model, readings, held_out=list(without))
        return known[key]

    places = np.array(DEPTHS)[:, None]
    return watch(again(set()), readings, again=again, coords=places, year=YEAR, unit="degC", **options)


@pytest.mark.study
@pytest.mark.parametrize("layered", [False, True], ids=["right model", "layered truth"])
def test_soil_columns_are_accused_no_more_often_than_was_asked(layered, study_table):
    """150 monitored sensor-years through the filter, with the right model and with one that is too simple."""
    setup, n, years = column(), 5, 8.0
    found = [alarm for seed in range(n) for alarm in soil_alarms(setup, soil(years, seed, layered))]
    watched = n * 5 * (years - 2.0)
    rate = len(found) / watched
    study_table.add(
        "False alarms of monitors, soil columns",
        truth="layered, wetter in spring" if layered else "as the model",
        sensor_years=watched,
        alarms=len(found),
        per_sensor_year=rate,
        asked=PER_YEAR,
    )
    assert len(found) <= PER_YEAR * watched + 3.0 * np.sqrt(PER_YEAR * watched)


@pytest.mark.study
@pytest.mark.parametrize("memory", [0.0, 10.0, 60.0])
@pytest.mark.parametrize("season", [0.0, 1.0])
def test_rates_over_many_sensor_years(memory, season, study_table):
    """1200 monitored sensor-years of residuals for each kind."""
    rng = np.random.default_rng([3, int(memory), int(season)])
    t, e = residuals(8.0, 200, rng, memory, season)
    loo, readings = network(t, e)
    for rate in (0.05, 0.5):
        singles = [watch(*single(loo, readings, i), per_year=rate, year=YEAR) for i in range(200)]
        accused = sum(map(len, singles))
        study_table.add(
            "False alarms of monitors, residuals",
            memory_days=memory,
            season_in_stds=season,
            sensor_years=1200.0,
            asked=rate,
            per_sensor_year=accused / 1200.0,
        )
        assert accused <= rate * 1200.0 + 3.0 * np.sqrt(rate * 1200.0)


@pytest.mark.study
@pytest.mark.parametrize("size", [0.3, 0.6, 1.2])
@pytest.mark.parametrize("kind", ["drift within a year", "step"])
def test_how_soon_a_soil_probe_is_named(kind, size, study_table):
    """A layered truth and the simple model; each probe in turn, from day 1500 of 2190 on."""
    setup, names, delays = column(), [], []
    for i in range(5):
        table = soil(6.0, 40 + i, layered=True)
        late = np.maximum(np.arange(len(table)) - 1500.0, 0.0)
        table[:, i] += np.round(size * (late > 0.0 if kind == "step" else np.minimum(late / YEAR, 1.0)), 1)
        alarms = [alarm for alarm in soil_alarms(setup, table) if alarm.since > 1500.0]
        right = [alarm.since - 1500.0 for alarm in alarms if alarm.sensor == IDS[i]]
        names += [alarm.sensor for alarm in alarms if alarm.sensor != IDS[i]]
        delays += right[:1]
    study_table.add(
        "How soon a soil probe is named",
        kind=kind,
        size=size,
        named=f"{len(delays)} of 5",
        median_days=float(np.median(delays)) if delays else float("nan"),
        others_named=len(names),
    )
    if size > 1.0:
        assert len(delays) >= 4


def office():
    """Twelve sensors in a room of 20 m by 10 m, every half hour for three weeks, through the filter; what changes it.

    The truth is a sum of cosines that wander, a day that two days of seven do not have, and a warm side.
    """
    rng = np.random.default_rng(3)
    x = np.array(list(itertools.product((2.0, 7.0, 12.0, 17.0), (1.5, 5.0, 8.5)))) + rng.uniform(-0.8, 0.8, (12, 2))
    noise = {"change": "0.5 degC", "per": "1 h", "length": "8 m"}
    setup = rk.Problem(
        domain={"kind": "box", "lower": [0, 0], "upper": [20, 10]},
        field={"name": "air temperature", "unit": "degC"},
        physics={"diffusion": "1e-3 m2/s", "process_noise": noise},
        prior={"mean": "22 degC", "std": "3 degC", "length": "8 m"},
        sensors={
            "table": [{"id": f"S{i}", "at": place.tolist()} for i, place in enumerate(x)],
            "noise": "0.1 degC",
            "offset": "0.2 degC",
        },
        time={"unit": "h", "start": "2024-01-01T00:00:00Z"},
    ).build()
    t = 0.5 * np.arange(1000)
    u = x / [20.0, 10.0]
    table = 22.0 + np.outer(1.5 * np.sin(2.0 * np.pi * (t - 9.0) / 24.0) * (t / 24.0 % 7.0 < 5.0), 1.0 + 0.3 * u[:, 0])
    table += 1.6 * np.cos(np.pi * u[:, 0]) + rng.normal(0.0, 0.15, 12) + rng.normal(0.0, 0.1, (t.size, 12))
    a = np.exp(-0.5 / 6.0)
    for k, (p, q) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1))):
        w = np.zeros(t.size)
        for i, step in enumerate(rng.normal(size=t.size - 1), 1):
            w[i] = a * w[i - 1] + np.sqrt(1.0 - a * a) * step
        table += np.outer(w, np.cos(np.pi * p * u[:, 0]) * np.cos(np.pi * q * u[:, 1])) * 0.5 / (1.0 + k / 2.0)
    return setup, x, t + 0.5, table


def office_alarms(setup, x, t, table):
    readings = Readings.of(setup.functional(range(12)), t, table, 0.1)

    def again(without):
        return leave_one_out(setup.model, readings, held_out=sorted(without))

    return watch(again(set()), readings, again=again, coords=x, year=24.0 * YEAR, unit="degC")


@pytest.mark.study
def test_an_office_with_two_exchanged_sensors_and_with_something_that_overheats(study_table):
    """Exchanged sensors are named with their date; heat that several sensors see is an event and no lie."""
    setup, x, t, table = office()
    exchanged, late = table.copy(), np.arange(t.size) >= 600
    exchanged[np.ix_(late, [4, 7])] = table[np.ix_(late, [7, 4])]
    hot = 8.0 * np.exp(-0.5 * ((x - [12.0, 5.0]) ** 2).sum(axis=1) / 9.0)
    heated = table + np.outer(np.clip((t - 350.0) / 3.0, 0.0, 1.0) * (t < 374.0), hot)
    behind = table.copy()
    behind[2:, 5] = table[:-2, 5]
    cases = {"honest": table, "S4 and S7 exchanged at 300 h": exchanged, "hot around S7, 350 to 374 h": heated}
    cases["clock of S5 1 h off"] = behind
    found = {name: office_alarms(setup, x, t, values) for name, values in cases.items()}
    for name, alarms in found.items():
        told = [f"{a.kind}: {', '.join([a.sensor, *a.others])} since {a.since:.0f} h" for a in alarms]
        study_table.add("An office, watched", world=name, alarms="; ".join(told) or "none")
    honest, (swap,), (event,), (clock,) = found.values()
    assert honest == []
    assert swap.kind == "swap" and {swap.sensor, *swap.others} == {"S4", "S7"} and abs(swap.since - 300.0) < 5.0
    assert event.kind == "event" and event.sensor == "S7" and 350.0 < event.since < 355.0 and not event.is_lie
    assert (clock.sensor, clock.kind) == ("S5", "wrong clock")
