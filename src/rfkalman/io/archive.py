"""Save and load spaces, beliefs and fields: one npz with a versioned JSON header, no pickle.

Functions of the PDE are not saved. Their values at fixed points are, so that
``load(path, pde=...)`` can re-attach them and refuse another equation.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import FloatArray, as_finite
from ..conditions import restored_condition
from ..domains import restore as restore_domain
from ..errors import ArchiveError
from ..features.base import prefixed, restore, unprefixed
from ..field import Field
from ..galerkin import Term
from ..pde import LinearPDE
from ..space import WhitenedSpace
from ..statespace import Gaussian
from ._files import delete, part_of

__all__ = ["load", "save"]

FORMAT = "rfkalman"
VERSION = 1
#: Refuse files whose arrays unpack to more than this many bytes.
MAX_BYTES = 8 * 2**30


def save(path: str | os.PathLike[str], thing: WhitenedSpace | Gaussian | Field) -> Path:
    """Write a space, a belief or a field to one ``.npz`` file; a file in the way is replaced in one move.

    Returns
    -------
    Path
        Where it was written.
    """
    arrays: dict[str, Any] = {}
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if isinstance(thing, WhitenedSpace):
        header |= {"kind": "space", "space": _pack_space(thing, arrays)}
    elif isinstance(thing, Gaussian):
        header |= {"kind": "belief"}
        _pack_belief(thing, arrays)
    elif isinstance(thing, Field):
        header |= {"kind": "field", "time": thing.time, "space": _pack_space(thing.space, arrays)}
        _pack_belief(thing.belief, arrays)
    else:
        raise ArchiveError(
            f"save takes a WhitenedSpace, a Gaussian or a Field; got {type(thing).__name__}. An Assimilator is saved "
            "as its posterior(): pass field.belief back as the prior to go on."
        )
    arrays["header"] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
    target = Path(path)
    # A name of our own, opened by open(): the file gets the permissions its user's other files have.
    scratch = part_of(target)
    try:
        with open(scratch, "xb") as stream:
            np.savez(stream, **arrays)
        os.replace(scratch, target)
    finally:
        delete(scratch)
    return target


def load(path: str | os.PathLike[str], pde: LinearPDE | None = None) -> WhitenedSpace | Gaussian | Field:
    """Read back what :func:`save` wrote; evaluations are bit-identical.

    Parameters
    ----------
    path
    pde : LinearPDE, optional
        Needed when the saved PDE had functions as coefficients or source; it
        must be the same equation.
    """
    header, arrays = _read(Path(path))
    kind = header.get("kind")
    try:
        if kind == "belief":
            return _unpack_belief(arrays)
        if kind in ("space", "field"):
            space = _unpack_space(header["space"], arrays, pde)
            return space if kind == "space" else Field(space, _unpack_belief(arrays), float(header["time"]))
    except ArchiveError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ArchiveError(f"{path} is incomplete or was edited: {type(error).__name__} {error}.") from error
    raise ArchiveError(f"{path} holds {kind!r}, which this version of rfkalman does not know.")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    try:
        with zipfile.ZipFile(path) as bundle:
            size = sum(entry.file_size for entry in bundle.infolist())
        if size > MAX_BYTES:
            raise ArchiveError(f"{path} unpacks to {size / 2**30:.1f} GiB; the limit is {MAX_BYTES / 2**30:.0f} GiB.")
        with np.load(path, allow_pickle=False) as bundle:
            arrays = {name: bundle[name] for name in bundle.files}
        header = json.loads(bytes(arrays.pop("header")).decode())
    except (OSError, ArchiveError):
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, RuntimeError) as error:
        raise ArchiveError(f"{path} is not a file that rfkalman wrote ({type(error).__name__}: {error}).") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ArchiveError(f"{path} is an npz file, but not one that rfkalman wrote.")
    if header.get("version") != VERSION:
        raise ArchiveError(
            f"{path} has format version {header.get('version')!r}; this rfkalman reads version {VERSION}. "
            "Use the rfkalman that wrote it."
        )
    return header, arrays


def _pack_belief(belief: Gaussian, arrays: dict[str, FloatArray]) -> None:
    arrays["belief.mean"], arrays["belief.root"] = belief.mean, belief.root


def _unpack_belief(arrays: dict[str, FloatArray]) -> Gaussian:
    return Gaussian(arrays["belief.mean"], arrays["belief.root"])


def _pack_space(space: WhitenedSpace, arrays: dict[str, FloatArray]) -> dict[str, Any]:
    arrays |= prefixed("features.", space.features.arrays())
    arrays |= prefixed("probe.", space.pde.probe())
    arrays |= {f"term.{term.name}": term.matrix for term in space.terms}
    arrays |= prefixed("domain.", space.pde.domain.arrays())
    arrays |= {
        "transform": space.transform,
        "lifts": space.lifts,
        "strengths": space.strengths,
        "trace_rows": space.trace_rows,
        "form": space.form,
        "singular_values": space.singular_values,
        "unit_load": space.unit_load,
    }
    return {
        "pde": space.pde.settings(),
        "features": space.features.settings(),
        "coefficients": space.coefficients,
        "mass_floor": space.mass_floor,
        "floor_candidates": list(space.floor_candidates),
        "order": list(space.order),
        "memory": space.memory,
        "health": dict(space.health),
    }


def _unpack_space(header: dict[str, Any], arrays: dict[str, FloatArray], pde: LinearPDE | None) -> WhitenedSpace:
    probe = unprefixed("probe.", arrays)
    if pde is None:
        if probe:
            raise ArchiveError(
                f"the saved PDE has functions for {', '.join(probe)}, which a file cannot hold; "
                "pass the same equation: load(path, pde=...)."
            )
        pde = _rebuilt_pde(header["pde"], unprefixed("domain.", arrays))
    _require_same(pde, header["pde"], probe)
    features = restore(header["features"], unprefixed("features.", arrays))
    transform = as_finite("transform", arrays["transform"], (features.n_features, None))
    lifts = as_finite("lifts", arrays["lifts"], (features.n_features, None))
    n = transform.shape[1] + lifts.shape[1]
    terms = tuple(
        Term(
            name,
            float(value),
            as_finite(f"term.{name}", arrays[f"term.{name}"], (n, n)),
            pde.factors.get(name.split(".")[0]),
        )
        for name, value in header["coefficients"].items()
    )
    return WhitenedSpace(
        pde=pde,
        features=features,
        transform=transform,
        lifts=lifts,
        strengths=as_finite("strengths", arrays["strengths"], (lifts.shape[1],)),
        trace_rows=as_finite("trace_rows", arrays["trace_rows"], (None, lifts.shape[1])),
        form=as_finite("form", arrays["form"], (n, n)),
        singular_values=as_finite("singular_values", arrays["singular_values"], (None,)),
        terms=terms,
        unit_load=as_finite("unit_load", arrays["unit_load"], (n,)),
        mass_floor=float(header["mass_floor"]),
        floor_candidates=tuple(header["floor_candidates"]),
        order=tuple(header["order"]),
        memory=float(header["memory"]),
        health=dict(header["health"]),
    )


def _rebuilt_pde(saved: dict[str, Any], arrays: dict[str, FloatArray]) -> LinearPDE:
    return LinearPDE(
        restore_domain(saved["domain"], arrays),
        diffusion=saved["diffusion"],
        velocity=saved["velocity"],
        reaction=saved["reaction"],
        source=saved["source"],
        boundary={part: restored_condition(condition) for part, condition in saved["boundary"].items()},
        conservative=bool(saved["conservative"]),
    )


def _require_same(pde: LinearPDE, saved: dict[str, Any], probe: dict[str, FloatArray]) -> None:
    given = json.loads(json.dumps(pde.settings()))
    for name in saved:
        if given.get(name) != saved[name]:
            raise ArchiveError(
                f"the PDE does not match the file: its {name} is {given.get(name)}, the file has {saved[name]}."
            )
    values = pde.probe()
    for name, expected in probe.items():
        # Functions are compared by value; 1e-9 leaves room for another build of libm, not for another equation.
        if values[name].shape != expected.shape or not np.allclose(values[name], expected, rtol=1e-9, atol=1e-300):
            raise ArchiveError(
                f"the PDE does not match the file: its function {name} gives other values than the saved one did."
            )
