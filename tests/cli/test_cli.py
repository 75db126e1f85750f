"""The command line: it parses, calls and prints; exit codes mean what they say."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings

import pytest

from rfkalman.cli.app import COMMANDS, run
from rfkalman.research.experiments import error_mechanisms as mechanisms


def test_reproduce_prints_a_table_and_writes_a_report(tmp_path, capsys):
    assert run(["reproduce", "mechanisms", "--quick", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "truncation-tail slope" in said and "3 of 3 published numbers reproduced" in said
    assert "reproduce.html" in said
    assert (tmp_path / "reproduce.html").exists() and (tmp_path / "three_scalings.svg").exists()


def test_reproduce_json_is_alone_on_standard_output(tmp_path, capsys):
    assert run(["reproduce", "mechanisms", "--quick", "--json", "--out", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["experiment"] for row in rows} == {"mechanisms"}


def test_a_number_that_does_not_hold_ends_with_one(tmp_path, capsys, monkeypatch):
    """Another initial field has another tail: the published slope is then missed, said so, and the exit code is 1."""
    monkeypatch.setattr(mechanisms, "MODES", (2, 4, 8))
    assert run(["reproduce", "mechanisms", "--quick", "--out", str(tmp_path)]) == 1
    assert "not reproduced" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "haet"], "no experiment 'haet'"),
        (["reproduce", "--seeds", "2"], "seeds"),
        (["certify", "no-such-file.toml"], "no-such-file.toml"),
        (["nonsense"], "nonsense"),
    ],
)
def test_misuse_ends_with_two_and_one_clear_message(arguments, said, capsys):
    assert run(arguments) == 2
    spoken = capsys.readouterr()
    assert said in spoken.err and "Traceback" not in spoken.err


def test_debug_shows_the_trace(capsys):
    assert run(["reproduce", "haet", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_certify_speaks_in_five_sentences_and_keeps_the_numbers_for_details(capsys):
    """What was checked, how far off, the band, what limits it and what would help, the sensors; 188 lines before."""
    assert run(["certify", "heat"]) == 0
    spoken = capsys.readouterr()
    said = " ".join(spoken.out.split())
    assert sum(said.count(f"{word} ") for word in ("Checked:", "With", "The band", "what would help:", "The 24")) == 5
    assert "at every analysis" in said and "at the last" in said
    assert len(spoken.out.splitlines()) <= 20 and "--details" in spoken.err + spoken.out
    assert "Psi" not in said and "alpha" not in said
    assert run(["certify", "heat", "--details"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fails" in said and "sensors" in said and "alpha" in said and "Checked:" in said


def test_certify_strict_and_json(capsys):
    assert run(["certify", "heat", "--json", "--strict"]) == 1
    found = json.loads(capsys.readouterr().out)
    groups = {finding["certificate"] for finding in found["findings"]}
    assert groups >= {"leverage", "gram", "approximation", "dynamics", "contraction"}
    assert any(f["holds"] is False and f["remedy"] for f in found["findings"])
    assert len(found["summary"]) == 5 and set(found) == {"target", "summary", "findings", "refused"}


def test_the_installed_command_answers():
    """The console script and the module entry are one program."""
    done = subprocess.run([sys.executable, "-m", "rfkalman", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("rfkalman 0.")


def test_help_loads_nothing_that_a_command_needs():
    """A list of commands needs their names and first lines: no NumPy, none of our rooms but core and cli."""
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from rfkalman.cli.app import run; run()\n"
        "names = [name.split('.')[:2] for name in sys.modules]\n"
        "print(sorted({room for top, *room in names if top == 'rfkalman' for room in room}), 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "['_moved', 'cli', 'core'] False"
    for name in COMMANDS:
        assert f" {name} " in done.stdout


def test_only_our_own_warnings_reach_the_terminal(capsys, monkeypatch):
    """What matplotlib, a parser or NumPy say to programmers tells a user nothing; ours come as one sentence, once."""
    from rfkalman.cli import app as application
    from rfkalman.core.errors import RFKalmanWarning

    def noisy(args):
        with warnings.catch_warnings():
            # As a user has it: the tests turn warnings into errors.
            warnings.simplefilter("always")
            shown = warnings.showwarning
            for _ in range(3):
                shown(UserWarning("AutoDateLocator was unable"), UserWarning, "dates.py", 1)
                shown(RFKalmanWarning("the gap is long."), RFKalmanWarning, "model.py", 1)
        logging.getLogger("matplotlib.font_manager").warning("findfont: not found")

    monkeypatch.setattr(application, "app", noisy)
    before = warnings.showwarning
    assert run(["check"]) == 0 and warnings.showwarning is before
    spoken = capsys.readouterr()
    assert spoken.out == "" and spoken.err == "warning: the gap is long.\n"
