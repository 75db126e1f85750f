"""Options and fixtures shared by all tests: the study table, floating-point errors as failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: Run on its own by `make test`, where NumPy and SciPy are all there is.
collect_ignore = ["bare_import.py"]


class StudyTable:
    """Rows measured by the full studies; written as one Markdown page by `make test-all`."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, study: str, **columns: Any) -> None:
        self.rows.setdefault(study, []).append(columns)

    def markdown(self, before: str = "") -> str:
        """The page; sections of the page that was there ``before`` stay where their study was not run now."""
        sections = {part.partition("\n")[0]: part.rstrip("\n") for part in before.split("\n## ")[1:]}
        for study, rows in self.rows.items():
            names = list(dict.fromkeys(name for row in rows for name in row))
            lines = [study, "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
            lines += ["| " + " | ".join(_show(row.get(name, "")) for name in names) + " |" for row in rows]
            sections[study] = "\n".join(lines)
        head = "# Full studies\n\nWritten by `make test-all`; each row comes from the test that checks it.\n"
        return "\n".join([head, *(f"## {sections[study]}\n" for study in sorted(sections))])


def _show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


_TABLE = StudyTable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--studies", metavar="FILE", default=None, help="write the table of the full studies to FILE")
    parser.addoption("--keep-studies", action="store_true", help="keep the sections of FILE whose study is not run now")


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--studies")
    if target and _TABLE.rows:
        page, keep = Path(target), session.config.getoption("--keep-studies")
        before = page.read_text(encoding="utf-8") if keep and page.exists() else ""
        page.write_text(_TABLE.markdown(before), encoding="utf-8")


@pytest.fixture
def study_table() -> StudyTable:
    """Where a study records what it measured."""
    return _TABLE


@pytest.fixture(autouse=True)
def floating_point_errors_are_failures() -> Iterator[None]:
    """Underflow is not one: fast modes die."""
    with np.errstate(divide="raise", over="raise", invalid="raise", under="ignore"):
        yield
