"""Cycles, a level and a discrepancy as a problem file states them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.problem import Problem, ProblemError

HOUSE = {
    "version": 1,
    "domain": {"kind": "interval", "lower": 0.0, "upper": "30 cm", "axes": ["depth"]},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {
        "diffusion": "0.5 mm2/s",
        "boundary": {
            "x-": {"unknown": {"mean": "12 degC", "std": "2 degC", "change": "1 degC", "per": "1 d"}},
            "x+": {"flux": 0.0},
        },
    },
    "prior": {"std": "2 degC", "mean": "12 degC", "reach": "20 cm"},
    "sensors": {"noise": "0.05 degC", "table": [{"id": "A", "at": "3 cm"}, {"id": "B", "at": "12 cm"}]},
    "time": {"unit": "h", "start": "2024-05-01T00:00Z"},
}


def with_cycles(*cycles: dict, **more: object) -> dict:
    tables = copy.deepcopy(HOUSE)
    tables["physics"]["boundary"]["x-"]["unknown"] |= {"cycles": list(cycles), **more}
    return tables


def test_cycles_of_a_file_are_harmonics_beside_the_process():
    """Days and years, in the units of the problem; a memory where one is given."""
    problem = Problem.from_dict(
        with_cycles({"period": "1 d", "std": "3 degC"}, {"period": "1 a", "std": "18 degF", "memory": "5 yr"})
    )
    unknown = problem.converted.physics.boundary["x-"].unknown.build()
    walk, day, year = unknown.process.parts
    assert_allclose(walk.std, 1.0 / np.sqrt(24.0))
    assert day == rk.Harmonic(3.0, 24.0)
    assert_allclose([year.std, year.period, year.memory], [10.0, 365.25 * 24.0, 5 * 365.25 * 24.0])
    assert Problem.from_text(problem.to_toml()) == problem


def test_an_unknown_of_the_library_with_cycles_is_written_as_a_table():
    """Python and the file say the same; what a file has no form for is refused in words."""
    tables = copy.deepcopy(HOUSE)
    tables["physics"]["boundary"]["x-"] = rk.Unknown((12.0, 2.0), rk.RandomWalk(0.2) + rk.Harmonic(3.0, 24.0, 240.0))
    problem = Problem.from_dict(tables)
    back = problem.converted.physics.boundary["x-"].unknown.build()
    assert back.process.parts[1] == rk.Harmonic(3.0, 24.0, 240.0)
    assert_allclose(back.process.parts[0].std, 0.2)
    for process in (rk.Harmonic(1.0, 24.0), rk.Fixed() + rk.OrnsteinUhlenbeck(1.0, 3.0)):
        tables["physics"]["boundary"]["x-"] = rk.Unknown((12.0, 2.0), process)
        with pytest.raises(ProblemError, match="cycle"):
            Problem.from_dict(tables)


@pytest.mark.parametrize(
    ("cycle", "words"),
    [
        ({"period": "3 m", "std": 1.0}, "a length"),
        ({"period": "1 d"}, "std"),
        ({"period": 0.0, "std": 1.0}, "positive"),
        ({"period": "1 d", "std": "3 m"}, "a length"),
        ({"period": "1 d", "std": 1.0, "amplitude": 2.0}, "not a key"),
    ],
)
def test_impossible_cycles_are_refused_under_their_key(cycle, words):
    """The key names the entry of the list."""
    with pytest.raises(ProblemError, match=r"x-\.unknown\.cycles\[0\]") as caught:
        Problem.from_dict(with_cycles(cycle))
    assert words in str(caught.value)


def day(t: np.ndarray | float) -> np.ndarray:
    return 4.0 * np.sin(2.0 * np.pi * (np.asarray(t) - 9.0) / 24.0)


def damped(t: float, depth: float) -> float:
    """The daily wave in a deep medium: exp(-depth / d) of it, as much later; d = sqrt(diffusion period / pi)."""
    d = np.sqrt(0.5e-6 * 86400.0 / np.pi)
    return 12.0 + float(np.exp(-depth / d) * 4.0 * np.sin(2.0 * np.pi * (t - 9.0) / 24.0 - depth / d))


def test_a_forecast_goes_on_with_the_cycle_of_the_days_before():
    """Six days of a daily wave from the surface (an exact solution that the library does not know): the forecast of
    the seventh follows it. The control, a walk without a cycle, stays flat over the day."""
    times = np.arange(1.0, 145.0)
    ahead = np.arange(146.0, 169.0)
    truth = np.array([damped(t, 0.03) for t in ahead])
    found = {}
    for name, cycles in {"cycle": [{"period": "1 d", "std": "3 degC"}], "flat": []}.items():
        tables = with_cycles(*cycles) if cycles else copy.deepcopy(HOUSE)
        # Deep enough that the far end does not feel the wave.
        tables["domain"]["upper"] = "80 cm"
        setup = Problem.from_dict(tables).build()
        filt = rk.Assimilator(setup.model)
        for t in times.tolist():
            filt.advance(t)
            y = [damped(t, 0.03), damped(t, 0.12)]
            filt.observe(setup.functional(np.arange(2)), y, noise_std=0.05)
        found[name] = [filt.forecast(t) for t in ahead.tolist()]
    mean = {name: np.array([field.mean([[0.03]])[0] for field in fields]) for name, fields in found.items()}
    std = {name: np.array([field.std([[0.03]])[0] for field in fields]) for name, fields in found.items()}
    error = {name: np.sqrt(np.square(mean[name] - truth).mean()) for name in found}
    assert np.ptp(mean["cycle"]) > 0.8 * np.ptp(truth) > 3.0
    assert error["cycle"] < 0.25 * error["flat"]
    # The flat one hardly moves once the heat on its way has arrived.
    assert np.ptp(mean["flat"][8:]) < 0.1 * np.ptp(truth)
    # What it promises holds, and is worth more.
    assert (np.abs(mean["cycle"] - truth) < 3.0 * std["cycle"]).all()
    assert std["cycle"].max() < 1.5 * std["flat"].max()


def test_an_assimilator_with_cycles_comes_back_from_a_file_and_goes_on_bit_for_bit(tmp_path):
    """The process is part of the equation's settings, its state part of the belief."""
    setup = Problem.from_dict(with_cycles({"period": "1 d", "std": "3 degC", "memory": "10 d"})).build()
    filt, seen = rk.Assimilator(setup.model), setup.functional(np.arange(2))
    for t in (1.0, 2.5, 7.0):
        filt.advance(t)
        filt.observe(seen, [12.0 + float(day(t)), 12.0], noise_std=0.05)
    again = rk.load(rk.save(tmp_path / "filter", filt))
    for one in (filt, again):
        one.advance(9.0)
        one.observe(seen, [13.0, 12.5], noise_std=0.05)
    np.testing.assert_array_equal(filt.belief.mean, again.belief.mean)
    np.testing.assert_array_equal(filt.belief.root, again.belief.root)


# -- a level ----------------------------------------------------------------------------------------------------------

TOWN = {
    "version": 1,
    "domain": {"kind": "box", "lower": [0.0, 0.0], "upper": ["20 km", "10 km"], "unit": "km"},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {
        "diffusion": "1 km2/h",
        "reaction": "0.3 1/h",
        "process_noise": {"change": "0.5 degC", "per": "1 h"},
        "level": {
            "mean": "18 degC",
            "std": "5 degC",
            "change": "0.5 degC",
            "per": "1 h",
            "cycles": [{"period": "1 d", "std": "4 degC"}],
        },
    },
    "features": {"length_scale": "4 km"},
    "prior": {"std": "1.5 degC", "reach": "8 km"},
    "sensors": {
        "noise": "0.2 degC",
        "table": [{"id": "A", "at": [2.0, 3.0]}, {"id": "B", "at": [11.0, 7.0]}, {"id": "C", "at": [18.0, 2.0]}],
    },
    "time": {"unit": "h", "start": "2024-07-01T00:00Z"},
}


def town(**physics: object) -> dict:
    tables = copy.deepcopy(TOWN)
    tables["physics"] |= physics
    return tables


def test_a_level_of_a_file_is_a_block_beside_the_field():
    """The mean of the field is the level's; the automatic features hold the constant."""
    setup = Problem.from_dict(TOWN).build()
    assert [block.name for block in setup.model.blocks] == ["level"]
    x = setup.space.pde.domain.grid(7)
    field = setup.model.field(setup.model.initial, 0.0)
    assert_allclose(field.mean(x), 18.0, rtol=1e-7)
    report = setup.model.unknowns(setup.model.initial, 0.0)["level"]
    assert_allclose(report.std, [np.hypot(5.0, 4.0)])
    assert not any("prior.mean" in note for note in setup.notes)
    assert Problem.from_text(setup.problem.to_toml()) == setup.problem


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"prior": {"std": 1.0, "mean": "18 degC"}}, "prior.mean", "give it as level.mean"),
        ({"physics": {"boundary": {"*": {"value": 3.0}}}}, "physics", "lifts the whole field"),
        ({"physics": {"boundary": {"*": {"coefficient": 1.0, "ambient": 3.0}}}}, "physics", "lifts the whole field"),
        ({"physics": {"level": {"std": 1.0, "change": 1.0, "length": 2.0}}}, "physics.level.length", "no meaning"),
        ({"physics": {"level": {"std": "1 m", "change": 1.0}}}, "physics.level.std", "a length"),
    ],
)
def test_what_goes_against_a_level_is_refused_in_words(change, key, words):
    """Named by its key, with the remedy."""
    tables = copy.deepcopy(TOWN)
    for section, values in change.items():
        tables[section] |= values
    with pytest.raises(ProblemError) as caught:
        Problem.from_dict(tables).build()
    assert key in str(caught.value) and words in str(caught.value)


def test_a_run_with_a_level_stops_and_goes_on_bit_for_bit(tmp_path):
    """Stored, resumed and reported like any other unknown."""
    hours = np.arange(1, 13)
    table = {
        "time": [f"2024-07-01T{h:02d}:00Z" for h in hours for _ in "ABC"],
        "sensor_id": ["A", "B", "C"] * len(hours),
        "value": [18.0 + 4.0 * np.sin(h / 4.0) + i for h in hours for i in range(3)],
    }
    problem = Problem.from_dict(TOWN)
    whole = problem.run(table, tmp_path / "whole")
    problem.run(table, tmp_path / "parts", until_ns="2024-07-01T06:30Z").close()
    again = problem.run(table, tmp_path / "parts", resume=True)
    x = [[5.0, 5.0], [15.0, 3.0]]
    one, two = (run.field("2024-07-01T12:00Z") for run in (whole, again))
    np.testing.assert_array_equal(one.mean(x), two.mean(x))
    np.testing.assert_array_equal(one.std(x), two.std(x))
    assert abs(one.mean(x).mean() - (18.0 + 4.0 * np.sin(3.0) + 1.0)) < 1.0


# -- a discrepancy ----------------------------------------------------------------------------------------------------

FIELD = {
    "version": 1,
    "domain": {"kind": "box", "lower": ["-100 m", "-100 m"], "upper": ["100 m", "100 m"]},
    "field": {"name": "drawdown", "unit": "m"},
    "physics": {
        "diffusion": "50 m2/h",
        "sources": [{"name": "pump", "place": [0.0, 0.0], "width": "20 m", "strength": "80 m3/h"}],
        "discrepancy": {"std": 0.1, "reach": "60 m"},
    },
    "features": {"length_scale": "30 m", "focus": "no", "max_rank": 100},
    "prior": {"std": "2 mm", "reach": "100 m"},
    "sensors": {
        "noise": "2 mm",
        "table": [{"id": "A", "at": [15.0, 0.0]}, {"id": "B", "at": [0.0, 40.0]}, {"id": "C", "at": [-60.0, -10.0]}],
    },
    "time": {"unit": "h", "start": "2024-05-01T00:00Z"},
}


def test_a_discrepancy_of_a_file_multiplies_the_drawdown(tmp_path):
    """Bands are a tenth of what the pump makes; a run stops, goes on, is exported and replayed to the same bits."""
    problem = Problem.from_dict(FIELD)
    setup = problem.build()
    model = setup.model
    assert [block.name for block in model.blocks] == ["discrepancy"]
    x = np.array([[10.0, 5.0], [0.0, 30.0]])
    free = model.field(rk.Gaussian(model.step(0.0, 6.0).move(model.initial.mean), model.initial.root), 6.0)
    share = free.parts(x).posterior / free.mean(x)
    assert ((share > 0.05) & (share < 0.2)).all()
    hours = np.arange(1, 9)
    makes = [model.known(float(h)) for h in hours]
    at = setup.space.frame(setup.sensors.coords)
    table = {
        "time": [f"2024-05-01T{h:02d}:00Z" for h in hours for _ in "ABC"],
        "sensor_id": ["A", "B", "C"] * len(hours),
        "value": [float(v) for known in makes for v in (at @ known.mean) * np.array([1.15, 0.9, 1.0])],
    }
    whole = problem.run(table, tmp_path / "whole")
    problem.run(table, tmp_path / "parts", until_ns="2024-05-01T04:30Z").close()
    again = problem.run(table, tmp_path / "parts", resume=True)
    one, two = (run.field("2024-05-01T08:00Z") for run in (whole, again))
    np.testing.assert_array_equal(one.mean(x), two.mean(x))
    np.testing.assert_array_equal(one.std(x), two.std(x))
    # The readings are followed, and the drawdown beside A is raised with A's.
    assert_allclose(one.mean(setup.sensors.coords), table["value"][-3:], atol=0.006)
    assert 1.03 < one.mean([[18.0, 4.0]])[0] / (setup.space.frame([[18.0, 4.0]]) @ makes[-1].mean)[0] < 1.2
    # Maps keep the values of the basis from time to time; the products are made anew.
    from rfkalman.runs.maps import Maps

    maps = Maps(whole.record, setup, ["2024-05-01T03:00Z", "2024-05-01T08:00Z"], 9, None, None)
    for t in maps.times_ns.tolist():
        points = maps.grid.points(maps.grid.places)
        field = whole.record.field_at(t)
        assert_allclose(maps.quantities(t)["mean"], field.mean(points), rtol=1e-9, atol=1e-12)
        assert_allclose(maps.quantities(t)["std"], field.std(points), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"sources": []}, "physics.discrepancy", "nothing is known to drive"),
        ({"discrepancy": {"std": "3 m", "reach": "60 m"}}, "physics.discrepancy.std", "a plain number"),
        ({"discrepancy": {"std": 0.0}}, "physics.discrepancy.std", "positive"),
        ({"discrepancy": {"std": 0.1, "reach": 3.0, "length": 2.0}}, "physics.discrepancy", "either `length` or"),
    ],
)
def test_a_discrepancy_that_means_nothing_is_refused_in_words(change, key, words):
    """Named by its key, with the remedy."""
    tables = copy.deepcopy(FIELD)
    tables["physics"] |= change
    with pytest.raises(ProblemError) as caught:
        Problem.from_dict(tables).build()
    assert key in str(caught.value) and words in str(caught.value)


def test_files_that_are_silent_about_the_new_keys_have_the_form_that_they_had():
    """Nothing of cycles, level and discrepancy stands in the canonical form unless it is said."""
    for tables in (HOUSE, {**TOWN, "physics": {"diffusion": 1.0}}):
        text = Problem.from_dict(tables).canonical()
        assert not any(word in text for word in ("cycles", "level", "discrepancy"))
    for tables, word in ((TOWN, "level"), (FIELD, "discrepancy"), (TOWN, "cycles")):
        assert word in Problem.from_dict(tables).canonical()
