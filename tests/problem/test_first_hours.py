"""What a new user tries first: an office, a field plot, two sensors exchanged, something that overheats.

By ``init``, its blanks, ``fit``, and nothing else; truths by finite volumes (``first_hours``), sensors held out.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.problem.first_hours import START, office, plot

from rfkalman.problem.fit import fit_problem
from rfkalman.problem.validate import validate_problem

# Heat that comes within three hours from the place of S4 on and stays for a day, 3 m around it.
HOT, SINCE = 8.0, 24.0 * 3.0 + 10.0


def judged(setup, readings=True):
    return validate_problem(setup, readings, rehearsal=False, peers=False).as_dict()


def hidden(found):
    return found["hold_out"]["coverage"]["90"]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Five days in an L-shaped office, and its problem, begun and fitted when three had passed."""
    folder = tmp_path_factory.mktemp("office")
    world = office(1, days=5.0)
    fitted = fit_problem(world.until(72.0).problem(folder), starts=1).problem
    return folder, world, fitted, fitted.build()


def test_an_office_that_is_well_has_no_alarm_and_its_bands_hold(calm):
    """One truth and three hidden sensors, whose 240 readings each hang together: at least 80 % inside; the study has
    the share over ten. Bands are no excuse: the hidden ones are predicted better than by the mean of the others."""
    folder, world, _, setup = calm
    found = judged(setup, world.write(folder, "all.csv"))
    assert found["alarms"] == [] and hidden(found) >= 0.8
    apart = [int(name[1:]) for name in world.hidden]
    others = np.delete(world.read, apart, axis=1).mean(axis=1, keepdims=True)
    assert found["hold_out"]["rmse"] < 0.8 * np.sqrt(np.square(world.read[:, apart] - others).mean())


@pytest.mark.parametrize("since", [0.0, 72.0])
def test_two_exchanged_sensors_are_named(calm, since):
    """From the first reading on, or from the fourth day; without the exchange there is no alarm (above)."""
    folder, world, _, setup = calm
    read, late = world.read.copy(), world.hours > since
    read[np.ix_(late, [1, 8])] = read[np.ix_(late, [8, 1])]
    found = judged(setup, world.changed(read).write(folder, "exchanged.csv"))
    (alarm,) = found["alarms"]
    assert alarm["kind"] == "swap" and alarm["sensor"] in ("S1", "S8")
    assert all(name in alarm["evidence"] for name in ("S1", "S8"))
    assert abs(np.datetime64(alarm["since"][:16]) - START - np.timedelta64(round(since), "h")) <= np.timedelta64(2, "h")


def test_what_overheats_is_kept_shown_and_alarmed(calm):
    """Eight degrees for a day, far beyond what ``init`` and ``fit`` ever saw.

    Kept: every reading is used. Shown: the mean there is within half of what was added, and that it is above 27 degC is
    nearly certain. Alarmed: an alarm names the sensor (as a step that ends, not yet as an event that others saw). The
    controls: without the heat there is no alarm (above), and 27 degC are out of the question before it began and after
    it ended.
    """
    folder, world, fitted, setup = calm
    shape = np.exp(-0.5 * ((world.places - world.places[4]) ** 2).sum(axis=1) / 3.0**2)
    heat = HOT * np.clip((world.hours - SINCE) / 3.0, 0.0, 1.0) * (world.hours < SINCE + 24.0)
    readings = world.changed(world.read + np.outer(heat, shape)).write(folder, "hot.csv")
    alarms = judged(setup, readings)["alarms"]
    assert any("S4" in (alarm["sensor"], *alarm["evidence"].replace(",", " ").split()) for alarm in alarms), alarms
    place, above = world.places[[4]], {}
    with fitted.run(readings) as run:
        outcomes = {status: n for status, n in run.counts.items() if n}
        assert outcomes == {"used": 9 * len(world.hours), "held out": 3 * len(world.hours)}
        for hours in (SINCE - 2.0, SINCE + 6.0, SINCE + 23.0, SINCE + 35.0):
            field = run.field_at(f"{START + np.timedelta64(round(hours), 'h')}Z")
            k = np.argmin(np.abs(world.hours - hours))
            assert abs(field.mean(place)[0] - world.truth[k, 4] - heat[k]) < 0.5 * HOT
            above[hours] = field.exceedance(place, 27.0)[0]
    before, *during, after = above.values()
    assert min(during) > 0.99 and max(before, after) < 0.01


def test_a_plot_whose_noise_is_guessed_from_the_readings_and_not_from_the_last_digit(tmp_path):
    """Hundredths are written, the noise is 0.15: no less than 0.03 is learnt, and four hidden sensors are held. The
    control: with the last digit typed as noise, and nothing that sensors or places have of their own, fewer than 80 %
    lie inside."""
    world = plot(1, days=4.0)
    nothing = [(key, f"# {key}") for key in ('offset = "auto"', "offset_memory", 'place_std = "auto"')]
    typed = world.problem(tmp_path, ('noise = "auto"', "noise = 0.01"), *nothing)
    assert hidden(judged(typed.build())) < 0.75
    found = fit_problem(world.problem(tmp_path), starts=1)
    assert 0.03 < found.values["sensors.noise"]["value"] < 0.3
    assert 0.8 <= hidden(judged(found.problem.build())) <= 0.97


@pytest.mark.study
@pytest.mark.parametrize("name", ["office, L", "office, plain", "plot"])
def test_bands_hold_at_hidden_sensors_of_ten_truths(name, tmp_path, study_table):
    """Five days each; the share over all ten lies in [0.8, 0.97], as the issue asks. Hidden sensors have places and
    offsets of their own, so one truth tells little: its share is between 0.5 and 1. No honest truth has an alarm."""
    shares, z, before, alarms = [], [], [], 0
    for seed in range(10):
        world = plot(seed, days=5.0) if name == "plot" else office(seed, "L" if name == "office, L" else "plain", 5.0)
        problem = world.problem(tmp_path / str(seed))
        before.append(hidden(judged(problem.build())))
        found = judged(fit_problem(problem, starts=1).problem.build())
        shares.append(hidden(found))
        z.append(found["hold_out"]["rms_z"])
        alarms += len(found["alarms"])
    study_table.add(
        "First hours: hidden sensors inside bands of 90 %, ten truths each",
        world=name,
        by_init=float(np.mean(before)),
        fitted=float(np.mean(shares)),
        standard_error=float(np.std(shares, ddof=1) / np.sqrt(10.0)),
        least=float(min(shares)),
        rms_z=float(np.sqrt(np.mean(np.square(z)))),
        false_alarms=alarms,
    )
    assert 0.8 <= np.mean(shares) <= 0.97 and alarms == 0
