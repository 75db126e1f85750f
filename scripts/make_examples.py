"""Make the sensor tables, readings and withheld truths of the shipped examples.

    python scripts/make_examples.py                          # the shipped files, in src/rfkalman/problem/examples
    python scripts/make_examples.py --out other --seed 7     # the same four places under other weather

Everything here is synthetic. The physics is this file's own and shares nothing with the library: finite volumes for
the soil, Theis' well function for the pumping test, an integral of Gaussian puffs for the plume, and a random field
that obeys no equation for the city. The problem files beside the tables are written by hand.

Each source of randomness has a name of its own, so adding a fault to one sensor leaves the rest as it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from scipy.linalg import solve_banded
from scipy.special import exp1

HOME = Path(__file__).parents[1] / "src" / "rfkalman" / "problem" / "examples"


def stream(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng([seed, *"/".join(names).encode()])


def table(header: str, rows: Iterable[Iterable[object]]) -> str:
    return "\n".join([header, *(",".join(str(cell) for cell in row) for row in rows)]) + "\n"


def wandering(rng: np.random.Generator, n: int, step: float, std: float, time: float) -> np.ndarray:
    """A stationary process at n steps that forgets over ``time``."""
    keep = np.exp(-step / time)
    kicks = std * np.sqrt(1.0 - keep**2) * rng.standard_normal(n)
    value, path = std * rng.standard_normal(), np.empty(n)
    for i, kick in enumerate(kicks):
        value = path[i] = keep * value + kick
    return path


# ---------------------------------------------------------------------------------------------------------------- soil

SOIL_DEPTHS = {"T5cm": 0.05, "T10cm": 0.10, "T20cm": 0.20, "T50cm": 0.50, "T100cm": 1.00}
SOIL_WITHHELD = (0.0, 0.30, 0.75)  # m: the surface and two depths without a thermometer
SOIL_NOISE, SOIL_OFFSET = 0.08, 0.6  # K; the offset is that of the probe at 50 cm
SOIL_DIFFUSIVITY, SOIL_INTERFACE = (0.45e-6, 0.62e-6), 0.35  # m^2/s: loam with roots over denser subsoil
SOIL_ZONE = ZoneInfo("Europe/Berlin")
SOIL_START, SOIL_HOURS, SOIL_SPIN_UP = datetime(2024, 3, 4, tzinfo=SOIL_ZONE), 42 * 24, 30 * 24


def soil_surface(seed: int, hours: np.ndarray) -> np.ndarray:
    """Temperature of the ground at hours of standard time since the start: season, fronts, clouds, days and nights.

    ``hours`` are evenly spaced. A day of clouds has a small swing, a clear one a large one.
    """
    step = hours[1] - hours[0]
    fronts = wandering(stream(seed, "soil", "fronts"), hours.size, step, 2.0, 60.0)
    clouds = wandering(stream(seed, "soil", "clouds"), hours.size, step, 1.0, 40.0)
    swing = 5.5 / (1.0 + np.exp(-0.9 * clouds))
    # The ground has no memory shorter than an hour or two: it does not follow every gust.
    width = max(1, round(2.0 / step))
    fronts = np.convolve(np.pad(fronts, width, mode="edge"), np.ones(width) / width, mode="same")[width:-width]
    of_day = 2.0 * np.pi * (hours - 8.0) / 24.0
    day = np.sin(of_day) + 0.22 * np.sin(2.0 * of_day + 0.4)
    return 6.5 + 0.005 * hours + fronts + swing * day


def soil_profiles(seed: int) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Depths (n,) from the surface down, and the temperature there at each hour of the record.

    Finite volumes to 6 m, finer near the surface, Crank-Nicolson steps of 7.5 minutes, after a month of spin-up.
    """
    per_hour, n = 8, 360
    edges = 6.0 * np.linspace(0.0, 1.0, n + 1) ** 2 * 0.9 + 0.6 * np.linspace(0.0, 1.0, n + 1)
    centres, widths = 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)
    dt = 3600.0 / per_hour
    diffusivity = np.where(centres < SOIL_INTERFACE, *SOIL_DIFFUSIVITY)
    # Between two centres the resistances of the two half cells add up, also where the soil changes.
    half = 0.5 * widths / diffusivity
    joint = 1.0 / (half[1:] + half[:-1])
    top = 1.0 / half[0]
    up, down = np.insert(joint, 0, top) / widths, np.append(joint, 0.0) / widths
    implicit = np.zeros((3, n))
    implicit[0, 1:] = -0.5 * dt * down[:-1]
    implicit[1] = 1.0 + 0.5 * dt * (up + down)
    implicit[2, :-1] = -0.5 * dt * up[1:]
    hours = np.arange(-SOIL_SPIN_UP * per_hour, SOIL_HOURS * per_hour + 1) / per_hour
    held = soil_surface(seed, hours)
    u = 8.0 - 2.5 * np.exp(-centres / 1.5)  # the end of winter: warmer below
    kept = []
    for i in range(hours.size):
        if i:
            right = u - 0.5 * dt * (up + down) * u
            right[:-1] += 0.5 * dt * down[:-1] * u[1:]
            right[1:] += 0.5 * dt * up[1:] * u[:-1]
            right[0] += 0.5 * dt * up[0] * (held[i - 1] + held[i])
            u = solve_banded((1, 1), implicit, right)
        if hours[i] >= 0.0 and i % per_hour == 0:
            kept.append(np.insert(u, 0, held[i]))
    return np.insert(centres, 0, 0.0), lambda hour: kept[hour]


def make_soil(seed: int = 0) -> dict[str, str]:
    """Five thermometers in a column of soil, hourly for six weeks of spring, written in local time."""
    depths, profile = soil_profiles(seed)
    moments = [SOIL_START.astimezone(UTC) + timedelta(hours=h) for h in range(SOIL_HOURS)]
    names = list(SOIL_DEPTHS)
    places = np.array(list(SOIL_DEPTHS.values()))
    values = np.array([np.interp(places, depths, profile(h)) for h in range(SOIL_HOURS)])
    values += SOIL_NOISE * stream(seed, "soil", "noise").standard_normal(values.shape)
    values[:, names.index("T50cm")] += SOIL_OFFSET
    text = {(h, name): f"{values[h, i]:.2f}" for h in range(SOIL_HOURS) for i, name in enumerate(names)}

    # Faults of a kind a digital probe on a long cable has.
    faults = stream(seed, "soil", "faults")
    for h in range(500, 514):
        text[h, "T20cm"] = "NaN"  # a wet connector
    for h, i in zip(faults.choice(SOIL_HOURS, 40, replace=False), faults.integers(5, size=40), strict=True):
        text[int(h), names[i]] = "-9999"
    for h, name, code in (
        (133, "T5cm", "85.00"),
        (134, "T5cm", "85.00"),
        (420, "T100cm", "-127.00"),
        (421, "T100cm", "-127.00"),
        (801, "T10cm", "85.00"),
    ):
        text[h, name] = code  # power-on value and lost probe
    silent = set(range(610, 641))  # the logger's battery

    # Where a line stands in the file is when it arrived. The node at 1 m lost its radio twice: once for an evening,
    # once for a night and the day after.
    arrival = {(h, name): (h, i) for h in range(SOIL_HOURS) for i, name in enumerate(names) if h not in silent}
    arrival |= {(h, "T100cm"): (265, 10 + h) for h in range(260, 265)}
    arrival |= {(h, "T100cm"): (730, 10 + h) for h in range(690, 694)}
    order = sorted(arrival, key=arrival.__getitem__)
    order.insert(order.index((350, "T10cm")) + 7, (350, "T10cm"))  # sent twice
    stamps = [moment.astimezone(SOIL_ZONE).strftime("%Y-%m-%d %H:%M") for moment in moments]
    readings = table("time,sensor_id,temperature_degC", ((stamps[h], name, text[h, name]) for h, name in order))

    sensors = table(
        "sensor_id,depth_m,noise_std_degC,offset_std_degC",
        ((name, f"{z:g}", "0.1", "1.0" if name == "T50cm" else "0") for name, z in SOIL_DEPTHS.items()),
    )
    truth = table(
        "time,depth_m,temperature_degC",
        (
            (moments[h].strftime("%Y-%m-%dT%H:%MZ"), f"{z:g}", f"{np.interp(z, depths, profile(h)):.3f}")
            for h in range(0, SOIL_HOURS, 3)
            for z in SOIL_WITHHELD
        ),
    )
    return {"sensors.csv": sensors, "readings.csv": readings, "truth.csv": truth}


# ------------------------------------------------------------------------------------------------------------- pumping

PUMPED = np.array([60.0, 60.0])
WELLS = {"O1": (70.0, 62.0), "O2": (52.0, 72.0), "O3": (42.0, 50.0), "O4": (78.0, 38.0)}
WITHHELD_WELLS = {"O5": (57.0, 44.0), "O6": (85.0, 66.0)}
TRANSMISSIVITY, STORATIVITY = 4.0e-3, 0.04  # m^2/s and -: a shallow gravel, five metres thick
PUMP_STEPS = ((0.0, 4.3e-3), (1500.0, 3.8e-3))  # s, m^3/s: throttled after 25 minutes


def theis(r: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Drawdown in m at distances r (n,) and times t (m,) in s, (m, n): a well function for each change of the rate."""
    s = np.zeros((t.size, r.size))
    before = 0.0
    for start, rate in PUMP_STEPS:
        on = t > start
        u = r**2 * STORATIVITY / (4.0 * TRANSMISSIVITY * (t[on, None] - start))
        s[on] += (rate - before) / (4.0 * np.pi * TRANSMISSIVITY) * exp1(u)
        before = rate
    return s


def make_pumping(seed: int = 0) -> dict[str, str]:
    """Drawdown in four wells around a pumped one, for an hour, in millimetres, on the clock of the test."""
    times = np.concatenate([np.arange(10, 120, 10), np.arange(120, 600, 30), np.arange(600, 3601, 60)]).astype(float)
    places = np.array(list(WELLS.values()))
    s = theis(np.hypot(*(places - PUMPED).T), times)
    offsets = 0.003 * stream(seed, "pumping", "offsets").standard_normal(len(WELLS))  # where the zero was set
    s += offsets + 0.0008 * stream(seed, "pumping", "noise").standard_normal(s.shape)
    text = {(i, name): f"{s[i, j]:.3f}" for i in range(times.size) for j, name in enumerate(WELLS)}
    for i in range(40, 46):
        text[i, "O3"] = ""  # the cable was pulled
    text[57, "O1"] = "9.999"  # end of the range
    readings = table(
        "time_s,sensor_id,drawdown_m",
        ((f"{times[i]:g}", name, text[i, name]) for i in range(times.size) for name in WELLS),
    )
    sensors = table(
        "sensor_id,x_m,y_m,noise_std_m,offset_std_m",
        ((name, f"{x:g}", f"{y:g}", "0.001", "0.003") for name, (x, y) in WELLS.items()),
    )
    held = np.array(list(WITHHELD_WELLS.values()))
    true = theis(np.hypot(*(held - PUMPED).T), times)
    truth = table(
        "time_s,well,x_m,y_m,drawdown_m",
        (
            (f"{times[i]:g}", name, f"{held[j, 0]:g}", f"{held[j, 1]:g}", f"{true[i, j]:.5f}")
            for i in range(times.size)
            for j, name in enumerate(WITHHELD_WELLS)
        ),
    )
    return {"sensors.csv": sensors, "readings.csv": readings, "truth.csv": truth}


# --------------------------------------------------------------------------------------------------------------- plume

PLUME_WELLS = {
    "A1": (14, 8),
    "A2": (14, 11),
    "A3": (14, 14),
    "B1": (19, 7),
    "B2": (19, 10),
    "B3": (19, 13),
    "B4": (19, 16),
    "C1": (25, 8),
    "C2": (25, 11.5),
    "C3": (25, 15),
    "D1": (31, 7),
    "D2": (31, 10),
    "D3": (31, 13),
    "D4": (31, 16),
    "E1": (38, 9),
    "E2": (38, 12.5),
    "E3": (38, 16),
    "F1": (46, 10),
    "F2": (46, 13.5),
    "F3": (46, 17),
}
PLUME_WITHHELD = {"G1": (22, 11), "G2": (28, 13), "G3": (35, 11)}
SEEPAGE, DISPERSION, DECAY = np.array([0.8, 0.04]), np.array([0.4, 0.08]), 0.01  # m/d, m^2/d along and across, 1/d
LEAK_AT, LEAK_SIZE = np.array([10.0, 11.0]), 2.0  # m
PLUME_NOISE = 0.4  # ug/l
PLUME_DAYS, PLUME_START = 45.0, datetime(2025, 5, 5, 6, tzinfo=UTC)


def leak(t: np.ndarray) -> np.ndarray:
    """Strength at the centre of the leak, ug/l and day: it begins on day 2, and half of it is stopped on day 24."""
    return 14.0 / (1.0 + np.exp(-(t - 3.0) / 0.7)) * (t > 0.0) - 7.0 / (1.0 + np.exp(-(t - 24.0) / 0.7))


def puffs(x: np.ndarray, t: float) -> np.ndarray:
    """Concentration at points (n, 2): what left at each earlier moment has drifted, spread and decayed since.

    The sum over ages is a Gauss-Legendre rule on quarter days; the aquifer is unbounded.
    """
    if t <= 0.0:
        return np.zeros(len(x))
    pieces = max(1, int(np.ceil(4.0 * t)))
    node, weight = np.polynomial.legendre.leggauss(6)
    cuts = np.linspace(0.0, t, pieces + 1)
    half = 0.5 * np.diff(cuts)
    age = (0.5 * (cuts[1:] + cuts[:-1])[:, None] + half[:, None] * node).ravel()
    w = (half[:, None] * weight).ravel() * leak(t - age) * np.exp(-DECAY * age)
    spread = LEAK_SIZE**2 + 2.0 * DISPERSION * age[:, None]  # (ages, 2)
    away = x[:, None, :] - LEAK_AT - SEEPAGE * age[:, None]
    shape = np.prod(LEAK_SIZE / np.sqrt(spread) * np.exp(-0.5 * away**2 / spread), axis=2)
    return shape @ w


def make_plume(seed: int = 0) -> dict[str, str]:
    """Twenty observation wells downstream of a leak, twice a day for 45 days; one column per well."""
    times = np.arange(0.5, PLUME_DAYS + 0.25, 0.5)
    places = np.array(list(PLUME_WELLS.values()), dtype=float)
    values = np.array([puffs(places, t) for t in times])
    values += PLUME_NOISE * stream(seed, "plume", "noise").standard_normal(values.shape)
    text = [[f"{value:.2f}" for value in row] for row in values]
    names = list(PLUME_WELLS)
    faults = stream(seed, "plume", "faults")
    for i, j in zip(faults.choice(times.size, 25), faults.choice(len(names), 25), strict=True):
        text[i][j] = ""  # bottle broken, pump stuck
    for i in range(30, 44):
        text[i][names.index("E2")] = ""
    text[52][names.index("C1")] = "999"  # the laboratory's mark for a failed analysis
    stamps = [(PLUME_START + timedelta(days=t)).strftime("%Y-%m-%dT%H:%MZ") for t in times]
    readings = table("time," + ",".join(names), ((stamp, *row) for stamp, row in zip(stamps, text, strict=True)))
    sensors = table(
        "sensor_id,x_m,y_m,noise_std_ug_l",
        ((name, f"{x:g}", f"{y:g}", f"{PLUME_NOISE:g}") for name, (x, y) in PLUME_WELLS.items()),
    )
    held = np.array(list(PLUME_WITHHELD.values()), dtype=float)
    truth = table(
        "time,well,x_m,y_m,concentration_ug_l,leak_ug_l_d",
        (
            (stamp, name, f"{x:g}", f"{y:g}", f"{value:.4f}", f"{leak(np.array(t)):.4f}")
            for stamp, t in zip(stamps, times, strict=True)
            for (name, (x, y)), value in zip(PLUME_WITHHELD.items(), puffs(held, t), strict=True)
        ),
    )
    return {"sensors.csv": sensors, "readings.csv": readings, "truth.csv": truth}


# ---------------------------------------------------------------------------------------------------------------- city

CITY_OUTLINE = np.array(
    [(-11, -5), (-5, -9), (4, -9.5), (11, -6), (13.5, 0.5), (10, 6.5), (3.5, 9.5), (-5, 9), (-11, 5), (-13, 0)], float
)
CITY_STATIONS, CITY_WITHHELD = 20, 4
CITY_NOISE, CITY_HOURS = 0.2, 14 * 24
CITY_ZONE, CITY_START = ZoneInfo("Europe/Vienna"), datetime(2025, 7, 7, tzinfo=UTC)


def city_places(seed: int) -> np.ndarray:
    """Stations inside the outline, 24 of them in km, none nearer than 2.2 km to another or 0.6 km to the edge."""
    rng = stream(seed, "city", "places")
    edge = np.roll(CITY_OUTLINE, -1, axis=0) - CITY_OUTLINE
    inward = np.stack([-edge[:, 1], edge[:, 0]], axis=1) / np.hypot(*edge.T)[:, None]  # counter-clockwise, convex
    found: list[np.ndarray] = []
    while len(found) < CITY_STATIONS + CITY_WITHHELD:
        x = np.round(rng.normal(0.0, [8.0, 5.5]), 2)  # denser in the centre, as stations are
        if ((x - CITY_OUTLINE) * inward).sum(axis=1).min() < 0.6:
            continue
        if all(np.hypot(*(x - other)) > 2.2 for other in found):
            found.append(x)
    return np.array(found)


def city_field(seed: int, x: np.ndarray, hours: np.ndarray) -> np.ndarray:
    """Air temperature (hours, places): a mean over the city, a warm centre at night, and what nobody explains."""
    mean = 20.5 + 0.006 * hours + wandering(stream(seed, "city", "weather"), hours.size, 1.0, 1.8, 30.0)
    mean += 4.5 * np.sin(2.0 * np.pi * (hours - 7.5) / 24.0)
    night = 0.5 - 0.5 * np.sin(2.0 * np.pi * (hours - 7.5) / 24.0)
    centre = np.exp(-0.5 * ((x / [5.5, 4.0]) ** 2).sum(axis=1)) - 0.35
    field = mean[:, None] + (0.4 + 2.2 * night[:, None]) * centre
    # Waves of random direction, each with an amplitude that forgets over half a day; not the solution of an equation.
    rng = stream(seed, "city", "patches")
    waves, phases = rng.standard_normal((48, 2)) / 5.0, 2.0 * np.pi * rng.random(48)
    amplitudes = np.stack([wandering(rng, hours.size, 1.0, 0.7 / np.sqrt(24.0), 12.0) for _ in range(48)])
    field += amplitudes.T @ np.cos(x @ waves.T + phases).T
    return field


def make_city(seed: int = 0) -> dict[str, str]:
    """Air temperature of twenty stations, hourly for two weeks, stamped in local time with its offset from UTC."""
    places = city_places(seed)
    hours = np.arange(CITY_HOURS, dtype=float)
    field = city_field(seed, places, hours)
    values = field[:, :CITY_STATIONS] + 0.3 * stream(seed, "city", "courtyards").standard_normal(CITY_STATIONS)
    values += CITY_NOISE * stream(seed, "city", "noise").standard_normal(values.shape)
    names = [f"S{i + 1:02d}" for i in range(CITY_STATIONS)]
    stamps = [(CITY_START + timedelta(hours=h)).astimezone(CITY_ZONE).strftime("%Y-%m-%dT%H%z") for h in hours]
    stamps = [f"{s[:13]}:00{s[13:16]}:{s[16:]}" for s in stamps]
    faults = stream(seed, "city", "faults")
    lost = {(int(h), int(i)) for h, i in faults.integers([CITY_HOURS, CITY_STATIONS], size=(120, 2))}
    lost |= {(h, 6) for h in range(150, 190)}  # a station without power for almost two days
    every = ((h, i) for h in range(CITY_HOURS) for i in range(CITY_STATIONS))
    text = {(h, i): f"{values[h, i]:.1f}" for h, i in every if (h, i) not in lost}
    for h, i, code in ((77, 3, "60.0"), (78, 3, "60.0"), (240, 11, "-40.0")):
        text[h, i] = code
    order = sorted(text)
    # A station that reports three hours late.
    order.sort(key=lambda key: (key[0] + (3 if key[1] == 15 and 200 <= key[0] < 206 else 0), key[1]))
    readings = table("time,sensor_id,temperature_degC", ((stamps[h], names[i], text[h, i]) for h, i in order))
    sensors = table(
        "sensor_id,x_km,y_km,noise_std_degC,offset_std_degC",
        ((name, f"{x:g}", f"{y:g}", f"{CITY_NOISE:g}", "0.3") for name, (x, y) in zip(names, places, strict=False)),
    )
    truth = table(
        "time,station,x_km,y_km,temperature_degC",
        (
            (stamps[h], f"W{i + 1}", f"{x:g}", f"{y:g}", f"{field[h, CITY_STATIONS + i]:.3f}")
            for h in range(0, CITY_HOURS, 3)
            for i, (x, y) in enumerate(places[CITY_STATIONS:])
        ),
    )
    outline = {"type": "Polygon", "coordinates": [[*CITY_OUTLINE.tolist(), CITY_OUTLINE[0].tolist()]]}
    return {
        "sensors.csv": sensors,
        "readings.csv": readings,
        "truth.csv": truth,
        "outline.geojson": json.dumps(outline) + "\n",
    }


MAKERS: dict[str, Callable[[int], dict[str, str]]] = {
    "soil": make_soil,
    "pumping": make_pumping,
    "plume": make_plume,
    "city": make_city,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HOME, help="folder that gets one folder per example")
    parser.add_argument("--seed", type=int, default=0, help="names the weather, the noise and the faults")
    arguments = parser.parse_args()
    for name, make in MAKERS.items():
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in make(arguments.seed).items():
            (folder / file).write_text(text, encoding="utf-8", newline="\n")
            print(f"{folder / file}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
