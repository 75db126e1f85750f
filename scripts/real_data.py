"""Real readings by one recipe: init, the blanks, fit inside the calibration window, validate inside the test window.

    RFKALMAN_DATA=folder python scripts/real_data.py [TASK ...] [--to docs/real-data]

The folder holds ``tasks.json`` and a folder of tables for each task. For every task the fitted problem file and a page
with its table are written; the readings stay where they are. See docs/real-data.md.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rfkalman.cli.app import run as rfkalman

#: What no table of a soil or of a city says.
BLANKS = {r'(diffusion = .*)"\?"': r'\1"0.5 mm2/s"', r'zone = "\?"': 'zone = "UTC"'}
#: What no table of a pumping test says; the pumped well and its rate come beside it.
AQUIFER = {r'(diffusion = .*)"\?"': r'\1"0.01 m2/s"', r'(capacity = .*)"\?"': r"\g<1>0.01"}
SCORES = "| | RMSE | CRPS | 50 % | 90 % | 99 % | rms z | readings |\n|---|---|---|---|---|---|---|---|\n"


def said(*words: str) -> dict[str, Any]:
    """What a command says with --json."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = rfkalman([words[0], "--json", *words[1:]])
    if code not in (0, None):
        raise SystemExit(f"rfkalman {' '.join(words)}: {code}\n{err.getvalue()}")
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def tried(data: Path, target: Path, answers: Mapping[str, str], calibration: list[str], test: list[str]) -> Any:
    """Tables copied beside a new problem file, the blanks filled in, fitted and validated; what both say."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for table in data.glob("*.csv"):
            shutil.copyfile(table, table.name)
        with contextlib.redirect_stdout(io.StringIO()):
            rfkalman(["init", "sensors.csv", "--readings", "observations.csv"])
        text = Path("problem.toml").read_text(encoding="utf-8")
        for pattern, answer in answers.items():
            text = re.sub(pattern, answer, text, flags=re.MULTILINE)
        Path("problem.toml").write_text(text, encoding="utf-8")
        fitted = said("fit", "problem.toml", *calibration, "--to", "fitted.toml")
        found = said("validate", "fitted.toml", *test)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile("fitted.toml", target)
    return fitted, found


def row(name: str, found: Mapping[str, Any]) -> str:
    """One line of a table of scores."""
    inside = " | ".join(f"{found['coverage'][level]:.2f}" for level in ("50", "90", "99"))
    z = f"{found['rms_z']:.2f}" if "rms_z" in found else ""
    return f"| {name} | {found['rmse']:.3g} | {found['crps']:.3g} | {inside} | {z} | {found['n']} |\n"


def learnt(fitted: Mapping[str, Any]) -> str:
    """What was learnt, with its 90 % intervals."""
    text = "| learnt | value | 90 % interval | prior stds from the guess |\n|---|---|---|---|\n"
    for name, p in fitted["parameters"].items():
        value = f"{p['value']:.3g} {p['unit']}".strip()
        note = "" if p["learnt"] else " (the prior made it)"
        text += f"| {name} | {value}{note} | {p['low']:.3g} to {p['high']:.3g} | {p['prior_stds_away']:+.1f} |\n"
    return text


def page(task: str, fitted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The table of one task."""
    verdict = found["verdict"]
    text = f"# {task}\n\n{verdict['level'].capitalize()}: {verdict['text']}\n\n" + SCORES
    for name, part in (("hidden", "hold_out"), ("each left out", "leave_one_out")):
        if found[part] is not None:
            text += row(f"**{name}**", found[part])
            text += "".join(row(sensor, one) for sensor, one in found[part]["sensors"].items())
    text += "\nOn the same folds (each left out):\n\n" + SCORES
    for name, peer in found["peers"].items():
        if "missing" not in peer:
            text += row(name.replace("_", " "), peer)
    text += f"\n{learnt(fitted)}\n{fitted['passes']} filter passes in {fitted['seconds']:.0f} s; "
    text += f"validation {found['seconds']:.0f} s.\n"
    for alarm in found["alarms"]:
        text += f"\n- {alarm['sensor']}, {alarm['kind']} since {alarm['since']}: {alarm['evidence']}."
    return text + "\n"


def simple(task: str, given: Mapping[str, Any], data: Path, to: Path) -> dict[str, Any]:
    """A task with hidden sensors and two windows of time."""
    hold_out = (
        {r"^# hold_out = .*$": f"hold_out = {json.dumps(given.get('heldout', []))}"} if given.get("heldout") else {}
    )
    start = {r"^start = .*$": f'start = "{given["calibration"][0]}"'}
    until = ["--until", f"{given['calibration'][1]}T23:59"]
    window = ["--since", given["test"][0], "--until", f"{given['test'][1]}T23:59"]
    fitted, found = tried(data, to / f"{task}.toml", BLANKS | hold_out | start, until, window)
    (to / f"{task}.md").write_text(page(task, fitted, found), encoding="utf-8")
    return {"hold_out": found["hold_out"], "verdict": found["verdict"], "alarms": found["alarms"]}


def folds(data: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each pumping test with each well that is not pumped hidden, and the answers to the blanks."""
    with (data / "tests.csv").open(encoding="utf-8") as stream:
        tests = list(csv.DictReader(stream))
    with (data / "sensors.csv").open(encoding="utf-8") as stream:
        wells = [line["sensor_id"] for line in csv.DictReader(stream)]
    for one in tests:
        for hidden in wells:
            if hidden != one["pumping_well"]:
                yield (
                    f"{one['test']}, {hidden} hidden",
                    AQUIFER
                    | {
                        r'sensor = "\?"': f'sensor = "{one["pumping_well"]}"',
                        r'strength = "\?"': f'strength = "{one["pumping_rate_m3_s"]} m3/s"',
                        r'exclude = \["\?"\]': f'exclude = ["{one["pumping_well"]}"]',
                        r'"test" = "\?"': f'"test" = "{one["test"]}"',
                        r"^# hold_out = .*$": f'hold_out = ["{hidden}"]',
                    },
                )


def wells(task: str, data: Path, to: Path) -> dict[str, Any]:
    """Every fold of the pumping tests, and all of them together."""
    table = SCORES.replace("| readings |", "| T, m2/s | S | verdict |").replace("|---|\n", "|---|---|---|\n", 1)
    every = []
    for k, (name, answers) in enumerate(folds(data)):
        target = to / f"{task}.toml" if k == 0 else Path(tempfile.gettempdir()) / "real_data_fold.toml"
        fitted, found = tried(data, target, answers, [], ["--since", "10", "--until", "6300", "--no-peers"])
        T, S = (fitted["parameters"][f"physics.{key}"] for key in ("diffusion", "capacity"))
        numbers = " | ".join(f"{p['value']:.3g} ({p['low']:.3g} to {p['high']:.3g})" for p in (T, S))
        table += row(name, found["hold_out"]).rsplit("|", 2)[0] + f"| {numbers} | {found['verdict']['level']} |\n"
        every.append(found["hold_out"])
        print(name, {key: round(found["hold_out"][key], 4) for key in ("rmse", "crps", "rms_z")}, flush=True)
    n = sum(one["n"] for one in every)

    def mean(value: Any) -> float:
        return float(sum(one["n"] * value(one) for one in every) / n)

    all_of_them = {
        "rmse": math.sqrt(mean(lambda one: one["rmse"] ** 2)),
        "crps": mean(lambda one: one["crps"]),
        "coverage": {level: mean(lambda one, level=level: one["coverage"][level]) for level in ("50", "90", "99")},
        "rms_z": math.sqrt(mean(lambda one: one["rms_z"] ** 2)),
        "n": n,
    }
    table += row("**all**", all_of_them).rsplit("|", 2)[0] + "| | | |\n"
    text = f"# {task}\n\nDrawdown in m at the hidden well from 10 s to 6300 s; the file is that of the first fold.\n\n"
    (to / f"{task}.md").write_text(text + table, encoding="utf-8")
    return {"hold_out": all_of_them, "verdict": None, "alarms": []}


def main() -> int:
    """Run tasks, all by default, and print what came out."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("tasks", nargs="*")
    asked.add_argument("--to", type=Path, default=Path("docs/real-data"))
    given = asked.parse_args()
    data, to = Path(os.environ["RFKALMAN_DATA"]), given.to.resolve()
    tasks = json.loads((data / "tasks.json").read_text(encoding="utf-8"))
    to.mkdir(parents=True, exist_ok=True)
    for task, about in tasks.items():
        if task.startswith("_") or (given.tasks and task not in given.tasks):
            continue
        folder = data / about["data"]
        found = simple(task, about, folder, to) if "test" in about else wells(task, folder, to)
        print(task, json.dumps(found["hold_out"] and {k: v for k, v in found["hold_out"].items() if k != "sensors"}))
        print(task, found["verdict"] and found["verdict"]["text"])
        for alarm in found["alarms"]:
            print(task, alarm["sensor"], alarm["kind"], alarm["since"])
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
