"""Why a line, or a cell of a wide line, is not a reading: a small fixed vocabulary."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """All there is."""

    NOT_TEXT = "not UTF-8"
    NUL = "NUL byte"
    TOO_LONG = "line too long"
    FIELDS = "wrong number of fields"
    QUOTES = "bad quoting"
    NOT_A_TIME = "time not understood"
    NO_ZONE = "time without zone"
    SKIPPED_HOUR = "no such local time"
    TWICE = "ambiguous local time"
    ABSURD = "time out of bounds"
    NO_NAME = "sensor name missing"
    BAD_NAME = "sensor name not usable"
    NOT_A_NUMBER = "not a number"
    NOT_JSON = "not JSON"
    NOT_AN_OBJECT = "not a JSON object"
    TOO_DEEP = "nested too deeply"
    TWO_KEYS = "key given twice"
    NO_KEY = "key missing"
