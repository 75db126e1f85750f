"""``python -m rfkalman`` is the ``rfkalman`` command."""

from __future__ import annotations

from .cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
