"""Module paths of the first version go on importing what took their place, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "errors": "core.errors",
    "processes": "statespace.processes",
    "coefficients": "physics.coefficients",
    "conditions": "physics.conditions",
    "pde": "physics.pde",
    "galerkin": "space.galerkin",
    "whitening": "space.whitening",
    "observation": "model.sensors",
    "prior": "model.priors",
    "blocks": "model.unknowns",
    "field": "model.field",
    "assimilator": "online.assimilator",
    "baselines": "research.baselines",
    "experiments": "research.experiments",
    "io.export": "runs.export",
    "report.plots": "pictures.plots",
    "domains.simplex": "domains.rules",
    "features.taper": "features.base",
    "features.window": "features.wrappers",
    "certificates.degrees": "certificates.polynomials",
    "certificates.fine_basis": "certificates.exact_field",
    "certificates.peak": "certificates.leverage",
    "certificates.routes": "certificates.implicit_euler",
    "certificates.trajectory": "certificates.exact_field",
}


class _Moved(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for old, new in MOVED.items():
            if f"{fullname}.".startswith(f"rfkalman.{old}."):
                return ModuleSpec(fullname, self, loader_state=fullname.replace(old, new, 1))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {spec.loader_state}.", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(spec.loader_state)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # the import system has put the old path there


# Before the others: a moved package would find its modules a second time, under its old path.
sys.meta_path.insert(0, _Moved())
