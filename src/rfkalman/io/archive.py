"""Save and load spaces, beliefs, fields and assimilators: one npz with a versioned JSON header, no pickle.

Values with settings (layers, profiles, series, ...) are saved as those. Functions
of the PDE are not. Their values at fixed points are, so that ``load(path, pde=...)``
can re-attach them and refuse another equation.

Version 2 writes the settings of coefficients and factors, for which version 1
kept values at points like those of any function, and knows assimilators.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from .. import propagators
from ..core.checks import FloatArray, as_finite
from ..core.codec import from_dict, to_dict
from ..core.errors import ArchiveError
from ..core.files import whole
from ..domains import Mesh
from ..domains import restore as restore_domain
from ..features.base import prefixed, restore, unprefixed
from ..features.enrichments.jumps import without_angles
from ..filters.kalman import Analysis
from ..filters.steady import ConstantGain
from ..model.field import Beyond, Field, Known
from ..model.model import Model
from ..model.sensors import NewSensor
from ..model.unknowns import BoundBlock
from ..model.unresolved import Pace, Unresolved
from ..online.assimilator import Assimilator
from ..physics.pde import PROBE_TIMES, LinearPDE
from ..space.galerkin import Term
from ..space.space import Basis, WhitenedSpace
from ..statespace.values import Gaussian, Generator, LinearStep, Observation

FORMAT = "rfkalman"
VERSION = 2
#: Versions that :func:`load` reads.
READS = (1, 2)
#: Refuse files whose arrays unpack to more than this many bytes.
MAX_BYTES = 8 * 2**30


#: Arrays of a space and their shapes: M features, r1 lifts, n = r + r1 directions, r2 lifts that are no angles; None
#: where any length will do.
_SPACE_ARRAYS: dict[str, tuple[str | None, ...]] = {
    "transform": ("M", None),
    "lifts": ("M", None),
    "angles": ("r1", None),
    "strengths": ("r1",),
    "trace_rows": (None, "r2"),
    "form": ("n", "n"),
    "singular_values": (None,),
    "unit_load": ("n",),
}
_SPACE_VALUES = ("mass_floor", "floor_candidates", "order", "memory", "breaks", "added")

#: Of the law of what a space cannot hold, what stands beside its basis.
_UNRESOLVED = ("overlap", "generator", "initial", "rich", "own", "sizes", "start", "first", "settled", "doubt")

#: Records that stand in an assimilator's state, by the name they have in a file.
_RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        Analysis,
        BoundBlock,
        ConstantGain,
        Gaussian,
        Generator,
        LinearStep,
        NewSensor,
        Observation,
        propagators.Exponential,
        propagators.ImplicitEuler,
        propagators.CrankNicolson,
        propagators.SDIRK2,
        propagators.SDIRK3,
        propagators.ARS222,
        propagators.ARS443,
    )
}


def save(path: str | os.PathLike[str], thing: WhitenedSpace | Gaussian | Field | Assimilator) -> Path:
    """Write a space, a belief, a field or an assimilator to one ``.npz``; a file in the way is replaced in one move.

    An assimilator comes back as it was: what was believed when, its readings
    inside ``reorder``, its evidence so far, its start and its unknowns.

    Returns
    -------
    Path
        Where it was written.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> import pathlib, tempfile
    >>> space = rk.whiten(rk.Heat(rod), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-6)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = pathlib.Path(folder) / "space.npz"
    ...     _ = save(place, space)
    ...     load(place).rank == space.rank
    True
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
        header |= {"std": list(thing.contains)}
        _pack_belief(thing.belief, arrays)
        if thing.sensor is not None:
            header["sensor"] = asdict(thing.sensor)
        if thing.known is not None:
            arrays |= {"known.mean": thing.known.mean, "known.modes": thing.known.modes}
        if thing.beyond is not None:
            header["beyond"] = _pack_basis(thing.beyond.basis, arrays)
            arrays["beyond.columns"] = thing.beyond.columns
            header["beyond"]["doubtful"] = thing.beyond.doubtful
    elif isinstance(thing, Assimilator):
        if not isinstance(thing.model, Model):
            raise ArchiveError(
                f"an Assimilator of a {type(thing.model).__name__} cannot be saved: its state means something else in "
                "another one. Save the readings and replay them, or the field: save(path, filt.posterior())."
            )
        names: dict[int, str] = {}
        header |= {"kind": "assimilator", "model": _pack_model(thing.model, arrays, names)}
        header |= {"state": _packed(thing.state(), arrays, names)}
    else:
        raise ArchiveError(
            f"save takes a WhitenedSpace, a Gaussian, a Field or an Assimilator; got {type(thing).__name__}."
        )
    arrays["header"] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
    target = Path(path)
    with whole(target) as (part,), open(part, "wb") as stream:
        np.savez(stream, **arrays)
    return target


def load(path: str | os.PathLike[str], pde: LinearPDE | None = None, model: Model | None = None) -> Any:
    """Read back what :func:`save` wrote, a value of the same kind; evaluations are bit-identical.

    Parameters
    ----------
    path
    pde : LinearPDE, optional
        Needed when the saved PDE had functions as coefficients, source or
        boundary values; it must be the same equation.
    model : Model, optional
        Needed when the model of a saved assimilator, or its propagator, is of a
        class of its own; it must be the same model.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> import pathlib, tempfile
    >>> space = rk.whiten(rk.Heat(rod), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-6)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = pathlib.Path(folder) / "space.npz"
    ...     _ = save(place, space)
    ...     load(place, pde=space.pde).transform.shape == space.transform.shape
    True
    """
    header, arrays = _read(Path(path))
    kind = header.get("kind")
    try:
        if kind == "belief":
            return _unpack_belief(arrays)
        if kind in ("space", "field"):
            space = _unpack_space(header["space"], arrays, pde)
            if kind == "space":
                return space
            beyond = None
            if "beyond" in header:
                basis = _unpack_basis(header["beyond"], arrays, space.pde)
                beyond = Beyond(basis, arrays["beyond.columns"], int(header["beyond"].get("doubtful", 0)))
            sensor = NewSensor(**header["sensor"]) if "sensor" in header else None
            known = Known(arrays["known.mean"], arrays["known.modes"]) if "known.mean" in arrays else None
            return Field(space, _unpack_belief(arrays), float(header["time"]), beyond, sensor, known)
        if kind == "assimilator":
            own = _unpack_model(header["model"], arrays, pde, model)
            for array in arrays.values():
                array.flags.writeable = False
            return Assimilator.from_state(own, _unpacked(header["state"], arrays))
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
    except (zipfile.BadZipFile, zlib.error, TokenError, ValueError, KeyError, EOFError, RuntimeError) as error:
        raise ArchiveError(f"{path} is not a file that rfkalman wrote ({type(error).__name__}: {error}).") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ArchiveError(f"{path} is an npz file, but not one that rfkalman wrote.")
    if header.get("version") not in READS:
        raise ArchiveError(
            f"{path} has format version {header.get('version')!r}; this rfkalman reads versions "
            f"{' and '.join(map(str, READS))}. Use the rfkalman that wrote it."
        )
    return header, arrays


def _pack_belief(belief: Gaussian, arrays: dict[str, FloatArray]) -> None:
    arrays["belief.mean"], arrays["belief.root"] = belief.mean, belief.root


def _unpack_belief(arrays: dict[str, FloatArray]) -> Gaussian:
    return Gaussian(arrays["belief.mean"], arrays["belief.root"])


def _pack_space(space: WhitenedSpace, arrays: dict[str, FloatArray]) -> dict[str, Any]:
    arrays |= prefixed("features.", space.features.arrays())
    probe = space.pde.probe()
    arrays |= prefixed("probe.", {name: probe[name] for name in space.pde.functions})
    arrays |= {f"term.{term.name}": term.matrix for term in space.terms}
    arrays |= prefixed("domain.", space.pde.domain.arrays())
    arrays |= {name: getattr(space, name) for name in _SPACE_ARRAYS if name != "angles" or space.angles.size}
    return {
        "pde": space.pde.settings(),
        "features": space.features.settings(),
        "coefficients": space.coefficients,
        **{name: to_dict(getattr(space, name)) for name in _SPACE_VALUES},
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
    sizes: dict[str | None, int | None] = {None: None, "M": features.n_features}
    checked: dict[str, Any] = {}
    for name, letters in _SPACE_ARRAYS.items():
        if name == "angles" and without_angles(features)[1] is None:
            arrays = arrays | {"angles": np.zeros((sizes["r1"] or 0, 0))}
        checked[name] = as_finite(name, arrays[name], tuple(sizes[letter] for letter in letters))
        if name == "lifts":
            r1 = checked["lifts"].shape[1]
            sizes |= {"r1": r1, "n": checked["transform"].shape[1] + r1}
        if name == "angles":
            sizes["r2"] = (sizes["r1"] or 0) - checked["angles"].shape[1]
    terms = tuple(
        Term(
            name,
            float(value),
            as_finite(f"term.{name}", arrays[f"term.{name}"], (sizes["n"], sizes["n"])),
            pde.factors.get(name.split(".")[0]),
        )
        for name, value in header["coefficients"].items()
    )
    written = {"breaks": [], "added": []} | header  # not in every file
    values: dict[str, Any] = {name: _tuples(written[name]) for name in _SPACE_VALUES}
    return WhitenedSpace(pde=pde, features=features, terms=terms, health=header["health"], **values, **checked)


def _pack_basis(basis: Basis, arrays: dict[str, FloatArray]) -> dict[str, Any]:
    """A basis of the same PDE beside the space."""
    arrays |= prefixed("beyond.features.", basis.features.arrays())
    arrays["beyond.transform"] = basis.transform
    return {
        "features": basis.features.settings(),
        **{name: to_dict(getattr(basis, name)) for name in ("order", "memory", "breaks")},
    }


def _unpack_basis(header: dict[str, Any], arrays: dict[str, FloatArray], pde: LinearPDE) -> Basis:
    features = restore(header["features"], unprefixed("beyond.features.", arrays))
    transform = as_finite("beyond.transform", arrays["beyond.transform"], (features.n_features, None))
    values = {name: _tuples(header[name]) for name in ("order", "memory", "breaks")}
    return Basis(pde=pde, features=features, transform=transform, **values)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _rebuilt_pde(saved: dict[str, Any], arrays: dict[str, FloatArray]) -> LinearPDE:
    domain = restore_domain(saved["domain"], arrays)
    makers = {"by_region": domain.by_region} if isinstance(domain, Mesh) else {}
    tables = saved | {"factors": saved["factors"] or {}}  # an empty list in version 1, where a factor is a function
    several: dict[str, Any] = {
        name: {part: from_dict(entry, makers) for part, entry in tables.pop(name).items()}
        for name in ("boundary", "factors")
    }
    single = {name: from_dict(entry, makers) for name, entry in tables.items() if name != "domain"}
    return LinearPDE(domain, **single, **several)


def _require_same(pde: LinearPDE, saved: dict[str, Any], probe: dict[str, FloatArray]) -> None:
    given = json.loads(json.dumps(pde.settings()))
    for name in saved:
        # What is a function to the file (to version 1, layers are) is compared by its values, below.
        if _plain(saved[name], given.get(name)) != saved[name]:
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


def _plain(saved: Any, given: Any) -> Any:
    """The given settings as the file would have them: "callable" where it has that and a value with settings came."""
    if saved == "callable" and isinstance(given, Mapping) and "unknown" not in given:
        return saved
    if isinstance(saved, list) and isinstance(given, Mapping):
        return sorted(given)  # the factors of version 1
    if isinstance(saved, Mapping) and isinstance(given, Mapping) and saved.keys() == given.keys():
        return {name: _plain(saved[name], given[name]) for name in saved}
    return given


# -- assimilators -----------------------------------------------------------------------------------------------------


def _pack_model(model: Model, arrays: dict[str, FloatArray], names: dict[int, str]) -> dict[str, Any]:
    header: dict[str, Any] = {"class": type(model).__name__, "digest": _digest(model)}
    if type(model) is not Model or type(model.propagator).__name__ not in _RECORDS:
        # It has a part that no file holds: it must be given again, and is compared.
        return header if type(model) is not Model else header | {"class": type(model.propagator).__name__}
    own = {
        "start": model.start,
        "propagator": model.propagator,
        "prior": model.initial,
        "process_noise": model.process_noise,
        # Blocks on the space are arrays, also those of a source whose shape was a function.
        "blocks": model.blocks[len(model.space.unknowns()) :],
    }
    if model.sensor is not None:
        own["sensor"] = model.sensor
    packed = header | {"space": _pack_space(model.space, arrays), "parts": _packed(own, arrays, names)}
    if model.unresolved is None:
        return packed
    given = model.unresolved
    law = {name: getattr(given, name) for name in _UNRESOLVED}
    return packed | {"beyond": _pack_basis(given.basis, arrays), "unresolved": _packed(law, arrays, names)}


def _unpack_model(
    header: dict[str, Any], arrays: dict[str, FloatArray], pde: LinearPDE | None, model: Model | None
) -> Model:
    if model is not None:
        if _digest(model) != header["digest"]:
            raise ArchiveError(
                "the model does not match the file: its prior, space, dynamics or known forcing give other numbers "
                "than those of the saved one. Build it from the same settings, with the same rfkalman."
            )
        return model
    if "parts" not in header:
        raise ArchiveError(
            f"the saved model has a part of its own, {header['class']}, which a file cannot hold; pass the same model: "
            "load(path, model=...). For a problem file it is Problem.from_toml(file).build().model."
        )
    space = _unpack_space(header["space"], arrays, pde)
    unresolved = None
    if "unresolved" in header:
        basis = _unpack_basis(header["beyond"], arrays, space.pde)
        law = _unpacked(header["unresolved"], arrays)
        pace = Pace(space, law["start"], law["settled"]) if space.pde.factors else None
        unresolved = Unresolved(basis, **law, pace=pace)
    return Model(space, **_unpacked(header["parts"], arrays), unresolved=unresolved)


def _digest(model: Model) -> str:
    """Of the numbers that a belief about this model hangs on."""
    digest = hashlib.sha256()
    generator = model.generator
    forcing = generator.force(model.start + np.array(PROBE_TIMES))
    beyond = () if model.unresolved is None else (model.unresolved.basis.transform, model.unresolved.initial)
    # What stands in none of these: the mean of a level, the functions by which the known is multiplied.
    means = [b.mean for b in model.blocks if b.shown is not None] + [
        b.modes for b in model.blocks if b.modes is not None
    ]
    for array in (
        model.initial.mean,
        model.initial.root,
        model.space.transform,
        generator.drift,
        forcing,
        *beyond,
        *means,
    ):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _packed(value: Any, arrays: dict[str, FloatArray], names: dict[int, str]) -> Any:
    """Records, tuples and tables as JSON-able values; an array goes to ``arrays``, once however often it is used."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": value.hex()}
    if isinstance(value, np.ndarray):
        if id(value) not in names:
            names[id(value)] = f"a{len(arrays)}"
            arrays[names[id(value)]] = value
        return {"array": names[id(value)]}
    if isinstance(value, tuple):
        return [_packed(entry, arrays, names) for entry in value]
    if isinstance(value, Mapping):
        return {"table": {name: _packed(entry, arrays, names) for name, entry in value.items()}}
    record = type(value).__name__
    if _RECORDS.get(record) is not type(value):
        raise ArchiveError(f"a {record} cannot be saved.")
    entries = {f.name: _packed(getattr(value, f.name), arrays, names) for f in fields(value) if f.init}
    return {"record": record, "table": entries}


def _unpacked(given: Any, arrays: dict[str, FloatArray]) -> Any:
    if isinstance(given, list):
        return tuple(_unpacked(entry, arrays) for entry in given)
    if not isinstance(given, dict):
        return given
    if "array" in given:
        return arrays[given["array"]]
    if "float" in given:
        return float.fromhex(given["float"])
    table = {name: _unpacked(entry, arrays) for name, entry in given["table"].items()}
    if "record" not in given:
        return table
    record = _RECORDS[given["record"]](**table)
    for name, entry in table.items():
        if isinstance(entry, np.ndarray):
            # Checked by the constructor, which copies: an array that was shared is to be shared again.
            object.__setattr__(record, name, entry)
    return record
