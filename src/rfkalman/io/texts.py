"""Small tables as lines of texts, to be looked at cell by cell (sensors, first readings); the number in a cell."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from typing import Any

from ..core.errors import ReadingsError
from .workbook import is_workbook, opened_workbook, require_readable_kind


def number(text: str, decimal: str = ".") -> float | None:
    """The number that a cell holds, None for none; thousands are never separated."""
    if decimal != ".":
        if "." in text:
            return None
        text = text.replace(decimal, ".")
    # float() also reads "1_000" and digits of other scripts, which no instrument writes.
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def cut_lines(
    path: str | os.PathLike[str],
    *,
    delimiter: str = ",",
    encoding: str = "utf-8",
    sheet: str | None = None,
    decimal: str = ".",
) -> Iterator[tuple[int, list[str]]]:
    """Number (from 1) and cells, stripped, of each line or row that is not empty."""
    require_readable_kind(path)
    if is_workbook(path):
        with opened_workbook(path) as book:
            for row, cells in book.rows(sheet, decimal):
                yield row, [cell.strip() for cell in cells]
        return
    try:
        with open(path, encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as stream:
            lines = csv.reader(stream, delimiter=delimiter, strict=True)
            for cells in lines:
                if any(cells):
                    yield lines.line_num, [cell.strip() for cell in cells]
    except UnicodeDecodeError as error:
        raise ReadingsError(
            f'is not UTF-8 text ({error.reason} at byte {error.start}); save it in UTF-8, or say encoding = "cp1252" '
            "where Windows wrote it."
        ) from error
    except csv.Error as error:
        raise ReadingsError(f"is not a CSV table: {error}.") from error


def sheet_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names of the sheets of a workbook, in order."""
    with opened_workbook(path) as book:
        return book.sheets


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Number and cells by key of each JSON object; nested values are left out, null is an empty cell."""
    with open(path, encoding="utf-8-sig", errors="replace") as stream:
        for line, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                found = json.loads(text[:1_000_000], parse_int=str, parse_float=str)
            except (ValueError, RecursionError) as error:
                raise ReadingsError(f"line {line} is not JSON ({error!s:.60}): {text.strip()[:60]!r}.") from error
            if not isinstance(found, dict):
                raise ReadingsError(f'line {line} is not a JSON object such as {{"time": ...}}: {text.strip()[:60]!r}.')
            yield line, {key: _text(value) for key, value in found.items() if not isinstance(value, (dict, list))}


def _text(value: Any) -> str:
    """What a JSON value would be in a cell."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
