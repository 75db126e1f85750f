"""Features that know the geometry: what smooth waves cannot follow is added beside them, kind by kind.

Every module here holds one kind of :class:`~rfkalman.features.enrichments.base.Enrichment`;
whichever is put here is found, so a new kind touches one file.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from .base import Addition, Enrichment, Surroundings, enriched

for _module in iter_modules([str(Path(__file__).parent)]):
    import_module(f"rfkalman.features.enrichments.{_module.name}")

__all__ = ["Addition", "Enrichment", "Surroundings", "enriched"]
