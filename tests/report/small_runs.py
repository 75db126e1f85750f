"""Small runs to report on, and a reader of pages that is strict where browsers forgive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from rfkalman.io.readings import read_csv
from rfkalman.problem import Problem, Setup
from rfkalman.runs import Runner, RunRecord

VOID = {"meta", "img", "input", "br"}
WRITTEN_NS = 1_750_000_000_000_000_000


# -- problems ---------------------------------------------------------------------------------------------------------


def column(**sections: Any) -> Problem:
    """Three thermometers in a metre of soil with an unknown surface."""
    surface = {"unknown": {"mean": 10, "std": 3, "process": "random walk", "change": 0.5, "per": "1 h"}}
    return _problem(
        sections,
        title="A column",
        domain={
            "kind": "interval",
            "lower": 0,
            "upper": "1 m",
            "axes": ["depth"],
            "parts": {"surface": ["x-"], "bottom": ["x+"]},
        },
        field={"name": "temperature", "unit": "degC"},
        physics={"diffusion": "5 mm2/s", "boundary": {"surface": surface, "bottom": {"flux": 0}}},
        features={"count": 24, "length_scale": "0.3 m", "floor": 1e-8},
        prior={"mean": 10, "std": 3, "length": "0.5 m"},
        sensors={
            "table": [{"id": "A", "at": 0.1}, {"id": "B", "at": 0.4}, {"id": "C", "at": 0.8, "offset": 0.5}],
            "noise": "0.1 degC",
        },
        time={"unit": "h", "zone": "Europe/Berlin", "start": "2024-03-30T12:00", "reorder": "3 h"},
        input={"range": [-30, 60], "gate": 8.0},
        output={"thresholds": [9.5, 11.0], "resolution": 21},
    )


def plate(**sections: Any) -> Problem:
    """Five sensors on a rectangle; nothing but the field is unknown; times are minutes since the start."""
    places = [(1.0, 0.5), (2.0, 1.5), (3.0, 0.4), (0.5, 1.6), (3.5, 1.8)]
    return _problem(
        sections,
        title="A plate",
        domain={"kind": "box", "lower": [0, 0], "upper": [4, 2], "unit": "m", "axes": ["x", "y"]},
        field={"name": "drawdown", "unit": "m"},
        physics={"diffusion": "1 cm2/s"},
        features={"count": 30, "length_scale": "1 m", "floor": 1e-6},
        prior={"mean": 0, "std": 0.2, "length": "1 m"},
        sensors={"table": [{"id": f"W{i}", "at": list(at)} for i, at in enumerate(places)], "noise": "1 cm"},
        time={"unit": "min"},
        input={"time_unit": "s"},
        output={"maps": [1, 2, 5], "thresholds": ["5 cm"], "resolution": 21},
    )


def block(**sections: Any) -> Problem:
    """Four sensors in a block of three dimensions."""
    places = [(0.2, 0.3, 0.4), (0.7, 0.6, 0.2), (0.5, 0.5, 0.5), (0.9, 0.1, 0.8)]
    return _problem(
        sections,
        title="A block",
        domain={"kind": "box", "lower": [0, 0, 0], "upper": [1, 1, 1], "unit": "m", "axes": ["x", "y", "z"]},
        field={"name": "concentration", "unit": "mg/l"},
        physics={"diffusion": "10 mm2/s"},
        features={"count": 30, "length_scale": "0.6 m", "floor": 1e-4},
        prior={"mean": 1, "std": 0.5, "length": "0.3 m"},
        sensors={"table": [{"id": f"P{i}", "at": list(at)} for i, at in enumerate(places)], "noise": 0.05},
        time={"unit": "h", "start": "2024-01-01T00:00Z"},
        output={"every": "2 h", "thresholds": [1.2], "resolution": 11},
    )


def _problem(changes: Mapping[str, Any], **sections: Any) -> Problem:
    for key, change in changes.items():
        sections[key] = {**sections.get(key, {}), **change} if isinstance(change, dict) else change
    return Problem(**sections)


# -- runs -------------------------------------------------------------------------------------------------------------


def hours(n: int, ids: Sequence[str], *, start: str = "2024-03-30T12:00", level: float = 10.0) -> list[str]:
    """One reading per sensor and hour, local times as far as they exist."""
    rng = np.random.default_rng([n, *b"small runs"])
    first = np.datetime64(start, "m")
    lines = []
    for h in range(1, n + 1):
        for i, name in enumerate(ids):
            value = level + np.sin(2 * np.pi * h / 24) * np.exp(-i) + 0.05 * rng.standard_normal()
            lines.append(f'{first + np.timedelta64(h, "h")}Z,"{name.replace(chr(34), chr(34) * 2)}",{value:.3f}')
    return lines


def seconds(n: int, ids: Sequence[str]) -> list[str]:
    """One reading per sensor every twenty seconds, as numbers since the start."""
    rng = np.random.default_rng([n, *b"seconds"])
    return [f"{20 * k},{name},{0.01 * k + 0.01 * rng.standard_normal():.4f}" for k in range(1, n + 1) for name in ids]


@contextmanager
def finished(
    folder: Path, problem: Problem | Setup, lines: Sequence[str], *, source: str = "readings.csv", **facts: str
) -> Iterator[tuple[RunRecord, Setup]]:
    """The record of a run over these lines, and its setup."""
    setup = problem if isinstance(problem, Setup) else problem.build()
    table = folder / "table.csv"
    table.write_text("\n".join(["time,sensor_id,value", *lines]) + "\n", encoding="utf-8")
    store = folder / "run.sqlite"
    with Runner.open(store, setup, facts=facts) as runner:
        if lines:
            runner.consume(source, lambda position: read_csv(table, setup.input, start=position))
        runner.flush()
    with RunRecord.open(store, setup) as record:
        yield record, setup


# -- pages ------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page holds; refuses tags that do not close, close twice or overlap, and ids given twice.

    Attributes
    ----------
    text : str
        All words outside of style and script.
    images : list of dict
        Attributes of every picture.
    tables : dict of str to list of list of str
        Cells of every table by the label of its frame, rows of head, body and foot in one list.
    references : list of str
        Every address anywhere in an attribute.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.stack: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.images: list[dict[str, str]] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.code: dict[str, str] = {}
        self.policy = ""
        self.title = ""
        self.headings: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        assert self.source.startswith("<!DOCTYPE html>\n")
        self.feed(self.source)
        self.close()
        assert not self.stack, f"never closed: {self.stack}"
        assert len(set(self.ids)) == len(self.ids)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"an attribute of <{tag}> is given twice"
        self.attributes += [(tag, name) for name in given]
        self.ids += [given["id"]] if "id" in given else []
        fetched = ("src", "href", "srcset", "action", "data", "poster", "background", "ping")
        self.references += [given[name] for name in fetched if name in given]
        if tag == "img":
            self.images.append(given)
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag == "table":
            label = self.stack[-1][1]["aria-label"]
            assert label not in self.tables, f"two tables are called {label}"
            self.tables[label] = []
        if tag == "tr":
            list(self.tables.values())[-1].append([])
        if tag in ("td", "th"):
            list(self.tables.values())[-1][-1].append("")
        if tag not in VOID:
            self.stack.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1][0] == tag, f"</{tag}> closes {self.stack[-1:]} at {self.getpos()}"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.stack]
        if tags and tags[-1] in ("style", "script"):
            self.code[tags[-1]] = self.code.get(tags[-1], "") + data
        elif tags and tags[-1] == "title":
            self.title += data
        else:
            self.words.append(data)
            if tags and tags[-1] in ("h1", "h2", "h3"):
                self.headings.append(data)
            if "td" in tags or "th" in tags:
                list(self.tables.values())[-1][-1][-1] += data

    def column(self, label: str, heading: str) -> list[str]:
        """The cells of one column of a table, its heading left out."""
        head, *rows = self.tables[label]
        return [row[head.index(heading)] for row in rows]


def whole(text: str) -> int:
    """A count as it is printed."""
    return int(re.sub(r"\s", "", text))
