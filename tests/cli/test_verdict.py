"""What `run` says at its end and which exit code it gives, on the shipped soil example with something wrong."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.rod import rod

from rfkalman.cli.app import run

WEEK = 700


@pytest.fixture(scope="module")
def soil(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdict") / "soil"
    assert run(["init", "--example", "soil", "--out", str(folder)]) == 0
    table = folder / "readings.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:WEEK]))
    return folder


def changed(soil, name, pattern, replacement):
    """The problem with one line changed."""
    text, n = re.subn(pattern, replacement, (soil / "problem.toml").read_text(), flags=re.MULTILINE)
    assert n == 1
    path = soil / f"{name}.toml"
    path.write_text(text)
    return [str(path), "--out", str(soil / name), "--no-report"]


def test_consistency_is_one_line_and_a_key(soil, capsys):
    """The keys of the interface; people read one line on standard output."""
    arguments = [str(soil / "problem.toml"), "--no-report"]
    assert run(["run", *arguments, "--out", str(soil / "a"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = facts["consistency"]
    assert set(found) == {"share_90", "nis", "worst", "conflicts"}
    assert 0.0 < found["share_90"] < 1.0 and found["nis"] > 0.0 and found["conflicts"] == 0
    assert len(found["worst"]) == 5 and set(found["worst"][0]) == {"sensor", "share"}
    assert facts["set_aside"]["share"] < 0.05 and facts["alarms"] == []
    assert run(["run", *arguments, "--out", str(soil / "b")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("consistency:")]
    assert len(lines) == 1 and "inside their 90 % bands" in lines[0]


def test_strict_ends_with_one_where_bands_are_too_narrow(soil, capsys):
    """A process noise a hundred times too small: exit 0 with a warning, 1 with --strict."""
    wrong = changed(soil, "narrow", r'^change = "0.6 degC".*$', 'change = "0.006 degC"')
    assert run(["run", *wrong]) == 0
    assert "warning: " in capsys.readouterr().err
    assert run(["run", *wrong, "--resume", "--strict"]) == 1


def test_strict_ends_with_nought_where_the_verdict_is_good_and_with_one_where_it_is_not(tmp_path, capsys):
    """Readings drawn from the problem itself, and the same with two cables exchanged."""
    good, refuted = rod(tmp_path / "good"), rod(tmp_path / "exchanged", exchanged=True)
    for command in (["run", "--no-report"], ["check", "--no-rehearsal"]):
        for path, level, code in ((good, "good", 0), (refuted, "refuted", 1)):
            assert run([command[0], str(path), *command[1:], "--strict", "--json"]) == code, capsys.readouterr().err
            assert json.loads(capsys.readouterr().out)["verdict"]["level"] == level, command


def test_a_check_does_not_say_that_all_is_well_where_the_readings_refute_the_map(tmp_path, capsys):
    """Exit code 1 and a warning without --strict, too; the control says that there is nothing to worry about."""
    assert run(["check", "--no-rehearsal", str(rod(tmp_path / "good"))]) == 0
    assert "A rod: nothing to worry about" in capsys.readouterr().out
    assert run(["check", "--no-rehearsal", str(rod(tmp_path / "exchanged", exchanged=True))]) == 1
    said = capsys.readouterr().out
    assert "nothing to worry about" not in said and "warning verdict: the readings refute" in said


def test_a_refuted_run_withholds_the_bands_of_its_unknowns_and_scores_what_it_held_out(soil, capsys):
    """A diffusivity ten times too large: the sentence before the unknowns, in words and in the report; the control has
    it in neither. The scores of the held-out sensor are in the JSON."""
    sentence = "the verdict above refutes its bands"
    right = changed(soil, "apart", r"^\[sensors\]$", '[sensors]\nhold_out = ["T20cm"]')
    assert run(["run", *right, "--json"]) == 0
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert facts["verdict"]["level"] != "refuted" and sentence not in told.err
    assert set(facts["hold_out"]["sensors"]) == {"T20cm"} and facts["hold_out"]["n"] > 50
    slow = changed(soil, "slow", r'values = \["0.45 mm2/s", "0.62 mm2/s"\]', 'values = ["0.02 mm2/s", "0.02 mm2/s"]')
    assert run(["run", *slow[:-1]]) == 0
    said = capsys.readouterr().out
    assert "verdict: refuted" in said and sentence in said
    assert "refute the map" in (soil / "slow" / "report.html").read_text()


def test_readings_far_from_the_prior_are_a_warning_of_check_and_run(soil, capsys):
    """A profile believed to lie at 60 degC to within 1: later predictions have learnt, and would hide it. The shipped
    prior is the control."""
    sentence = "standard deviations from what the model expects"
    text = (soil / "problem.toml").read_text()
    assert text.count('mean = "6 degC"') == 3
    text = text.replace('mean = "6 degC"', 'mean = "60 degC"').replace('std = "5 degC"', 'std = "1 degC"')
    (soil / "hot.toml").write_text(text.replace('std = "2 degC"', 'std = "1 degC"'))
    assert run(["check", str(soil / "hot.toml"), "--no-rehearsal"]) == 1
    assert sentence in capsys.readouterr().out
    assert run(["run", str(soil / "hot.toml"), "--out", str(soil / "hot")]) == 0
    err, page = capsys.readouterr().err, (soil / "hot" / "report.html").read_text()
    assert "warning: the first readings" in err and sentence in err
    assert sentence in page[page.index("Look at this first") : page.index('<dl class="facts">')]
    assert run(["check", str(soil / "problem.toml"), "--no-rehearsal"]) == 0
    assert sentence not in capsys.readouterr().out


def test_much_set_aside_ends_with_one_and_the_setting_that_keeps_it(soil, capsys):
    """A guessed range: the values it cut off are named, a sensor that lies beyond it is in alarm, and the named range
    keeps them all."""
    narrow = changed(soil, "range", r"^range = .*$", 'range = ["-30 degC", "6.6 degC"]')
    assert run(["run", *narrow, "--json"]) == 1
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["set_aside"]["share"] > 0.05
    assert {alarm["kind"] for alarm in facts["alarms"]} == {"range"}
    assert set(facts["alarms"][0]) == {"sensor", "kind", "since", "until", "n", "evidence"}
    assert "alarm: sensor" in said.err and "were set aside" in said.err
    (kept,) = (re.search(r"input\.range = (\[.*?\])", text) for text in facts["set_aside"]["remedies"])
    assert kept is not None and kept.group(1) in said.err
    wide = changed(soil, "wide", r"^range = .*$", f"range = {kept.group(1)}")
    assert run(["run", *wide, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["out of range"] == 0


def test_alarms_end_with_one_where_that_is_asked_for(soil, capsys):
    """A sensor that writes another unit: exit 0 with its name, 1 with --fail-on-alarm, and 0 for honest readings."""
    honest = [str(soil / "problem.toml"), "--no-report", "--fail-on-alarm"]
    assert run(["run", *honest, "--out", str(soil / "honest")]) == 0
    lines = [line.split(",") for line in (soil / "readings.csv").read_text().splitlines()]
    liar = lines[1][1]
    lines[1:] = [[*line[:2], f"{1.8 * float(line[2]) + 32.0:.2f}"] if line[1] == liar else line for line in lines[1:]]
    (soil / "lying.csv").write_text("\n".join(map(",".join, lines)) + "\n")
    lying = [str(soil / "problem.toml"), str(soil / "lying.csv")]
    capsys.readouterr()
    assert run(["run", *lying, "--out", str(soil / "lying"), "--json"]) == 0
    (alarm,) = json.loads(capsys.readouterr().out)["alarms"]
    assert (alarm["sensor"], alarm["kind"]) == (liar, "wrong unit") and "degF" in alarm["evidence"]
    page = (soil / "lying" / "report.html").read_text()
    first = page[page.index("Look at this first") : page.index('<dl class="facts">')]
    assert f"Sensor {liar}, wrong unit since" in first
    assert "wrong unit since" in page and "What was watched of" in page
    assert run(["run", *lying, "--out", str(soil / "lying"), "--no-report", "--resume", "--fail-on-alarm"]) == 1
    assert run(["validate", *lying, "--no-peers", "--no-rehearsal", "--fail-on-alarm"]) == 1
