"""What a recipe is, what a bound feature map offers, and how maps are saved and added.

A map is bound to a bounding box (``lower``, ``side``) and every coordinate it
sees is first taken relative to ``lower``: coordinates far from the origin lose
no digits, and moving the domain moves the features with it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from ..core.checks import FloatArray, as_count, as_finite, as_positive, frozen
from ..core.errors import ArchiveError, ShapeError, ValueRangeError
from ..domains.base import Domain

__all__ = ["FeatureMap", "FeatureSum", "Recipe", "RecipeSum", "RidgeMap", "register", "restore"]


class Recipe(ABC):
    """Features stated without a domain, in the user's unit of length; a value that never changes.

    Recipes add: ``a + b`` asks for the features of both. Parts of one family
    that share a seed share their underlying draws, so give them different seeds.
    """

    __slots__ = ()

    @abstractmethod
    def bind(self, domain: Domain) -> FeatureMap:
        """Draw the arrays on this domain and freeze them; the same recipe and domain give the same bits."""

    def finest(self, domain: Domain) -> tuple[str, FloatArray] | None:
        """The shortest lengths over which these features vary, per axis (d,), and the argument that says so.

        None where no argument does. What is nested counts: the recipe with the smallest length speaks.
        """
        value: Any = self
        found: list[tuple[str, FloatArray]] = []
        for entry in fields(value) if is_dataclass(value) else ():
            inner = getattr(value, entry.name)
            if entry.name == "length_scale":
                found.append((f"length_scale {inner}", lengths_per_axis(inner, domain)))
            for part in inner if isinstance(inner, tuple) else (inner,):
                nested = part.finest(domain) if isinstance(part, Recipe) else None
                found += [] if nested is None else [nested]
        return min(found, key=lambda one: float((one[1] / domain.side).prod())) if found else None

    def __add__(self, other: object) -> RecipeSum:
        return RecipeSum((self, other)) if isinstance(other, Recipe) else NotImplemented


class FeatureMap(ABC):
    """M frozen features on a domain: values, exact gradients, and bounds that hold everywhere on it.

    ``lower`` and ``side`` (d,) are the bounding box the map is bound to. Points
    are not checked here; whoever takes them from a user does that once.
    """

    __slots__ = ()

    kind: ClassVar[str]
    lower: FloatArray
    side: FloatArray

    @property
    def dimension(self) -> int:
        """Number of coordinates, d."""
        return int(self.lower.size)

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Raw feature count, M."""

    @abstractmethod
    def __call__(self, x: FloatArray) -> FloatArray:
        """Phi at the points x (n, d): a new C-ordered (n, M) array."""

    @abstractmethod
    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values (n, M) and exact gradients (d, n, M) at the points x (n, d), for little more than the values."""

    @property
    @abstractmethod
    def sup_values(self) -> FloatArray:
        """A bound on |phi_j| over the domain, (M,)."""

    @property
    @abstractmethod
    def sup_gradients(self) -> FloatArray:
        """A bound on the Euclidean norm of grad phi_j over the domain, (M,); per unit of length."""

    @property
    @abstractmethod
    def sup_curvatures(self) -> FloatArray:
        """A bound on the Frobenius norm of D^2 phi_j, (M,); infinite where the gradient jumps inside the domain."""

    @property
    def envelope(self) -> float:
        """The paper's E_Phi: sum of squared ``sup_values``, a bound on |Phi(x)|^2."""
        return float(np.square(self.sup_values).sum())

    @property
    def gradient_envelope(self) -> float:
        """The paper's G_Phi: sum of squared ``sup_gradients``."""
        return float(np.square(self.sup_gradients).sum())

    @property
    def curvature_envelope(self) -> float:
        """Sum of squared ``sup_curvatures``."""
        return float(np.square(self.sup_curvatures).sum())

    @property
    def zero_parts(self) -> frozenset[str]:
        """Names of the boundary parts on which every feature vanishes."""
        return frozenset()

    @property
    def zero_trace(self) -> bool:
        """Whether every feature vanishes on the whole boundary: ``zero_parts`` is all of the domain's."""
        return False

    @property
    def smallest_floor(self) -> float:
        """The smallest mass floor a quadrature of affordable order can carry for these features."""
        return 1e-20

    @abstractmethod
    def quadrature_order(self, floor: float) -> tuple[int, ...]:
        """Gauss-Legendre points per axis of the bounding box that whitening at this mass floor calls for."""

    @property
    def breaks(self) -> tuple[FloatArray, ...]:
        """Inner coordinates per axis at which all features lose smoothness together; empty for most maps."""
        return (np.empty(0),) * self.dimension

    def composite_order(self, floor: float) -> tuple[int, ...]:
        """Like :meth:`quadrature_order`, for a rule that is composite on :attr:`breaks`: often far fewer points."""
        return self.quadrature_order(floor)

    @abstractmethod
    def arrays(self) -> dict[str, FloatArray]:
        """The frozen arrays by name; with :meth:`settings`, all that :func:`restore` needs."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The rest of the map as JSON-able values; ``"kind"`` names the family."""

    @classmethod
    @abstractmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> FeatureMap:
        """The map of these settings and arrays; called by :func:`restore`."""

    def __add__(self, other: object) -> FeatureSum:
        return FeatureSum((self, other)) if isinstance(other, FeatureMap) else NotImplemented


_KINDS: dict[str, type[FeatureMap]] = {}
_Map = TypeVar("_Map", bound=type[FeatureMap])


def register(cls: _Map) -> _Map:
    """Make a family known to :func:`restore` under its ``kind``."""
    _KINDS[cls.kind] = cls
    return cls


def restore(settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> FeatureMap:
    """The very map that gave these settings and arrays, bit for bit; nothing is drawn again.

    Parameters
    ----------
    settings : mapping
        What ``features.settings()`` gave, possibly through JSON.
    arrays : mapping of str to array
        What ``features.arrays()`` gave.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman.domains import Box
    >>> from rfkalman.features import GaussianRFF
    >>> features = GaussianRFF(5, length_scale=0.1).bind(Box([0.0], [1.0]))
    >>> again = restore(features.settings(), features.arrays())
    >>> x = np.array([[0.25]])
    >>> bool((again(x) == features(x)).all())
    True
    """
    kind = settings.get("kind")
    if kind not in _KINDS:
        raise ArchiveError(
            f"The saved features are of kind {kind!r}, which this version does not know; it knows "
            f"{', '.join(sorted(_KINDS))}. Was the file written by a newer version of the library?"
        )
    try:
        return _KINDS[kind]._restored(settings, arrays)
    except ArchiveError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(
            f"The saved features of kind {kind!r} cannot be rebuilt ({type(error).__name__}: {error}). "
            f"Arrays found: {', '.join(sorted(arrays)) or 'none'}. The file is incomplete or was edited."
        ) from error


def prefixed(prefix: str, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The arrays of a nested map under names that begin with ``prefix``."""
    return {prefix + name: array for name, array in arrays.items()}


def unprefixed(prefix: str, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The arrays of a nested map, taken back out of the flat collection."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream of one source; keyed by name, so that no other draw can shift it."""
    return np.random.default_rng([seed, *name.encode()])


_Recipe = TypeVar("_Recipe", bound=Recipe)


def reseeded(recipe: _Recipe, *key: int) -> _Recipe:
    """The recipe with every seed in it, nested ones included, replaced by one derived from it and the key."""
    value: Any = recipe
    if not is_dataclass(value):
        return recipe
    changes: dict[str, Any] = {}
    for entry in fields(value):
        value = getattr(recipe, entry.name)
        if entry.name == "seed":
            changes["seed"] = int(np.random.SeedSequence([value, *key]).generate_state(1, np.uint64)[0])
        elif isinstance(value, Recipe):
            changes[entry.name] = reseeded(value, *key)
        elif isinstance(value, tuple) and value and all(isinstance(part, Recipe) for part in value):
            changes[entry.name] = tuple(reseeded(part, *key) for part in value)
    return replace(recipe, **changes)  # type: ignore[type-var]


def box_faces(dimension: int) -> tuple[str, ...]:
    """Names of the faces of a box: x-, x+, y-, ..."""
    return tuple(f"{axis}{end}" for axis in "xyz"[:dimension] for end in "-+")


def as_seed(seed: Any) -> int:
    """A whole number that is not negative."""
    return as_count("seed", seed, minimum=0)


def predicted_rank(side: FloatArray, length_scale: float | FloatArray, floor: float) -> float:
    """About how many directions of Gaussian waves lie above a floor on a box.

    Fitted to draws at floors of 1e-6 to 1e-16: within a tenth of them for sides
    of 4 to 16 length scales in one and two dimensions; up to twice too many for
    shorter sides, where it does not matter, and in three.
    """
    digits = -math.log10(floor)
    each = 1.5 + 0.53 * digits + 0.9 * side / length_scale
    share = (1.0, 0.68, 0.3)[side.size - 1]
    return float(share * np.prod(each))


def as_length_scale(value: Any) -> float | tuple[float, ...]:
    """One positive length for all axes, or one per axis."""
    remedy = "It is the distance over which a feature varies, in the units of the coordinates."
    if np.ndim(value) == 0:
        return as_positive("length_scale", value, remedy)
    return tuple(as_positive(f"length_scale[{i}]", length, remedy) for i, length in enumerate(value))


def lengths_per_axis(length_scale: float | Sequence[float], domain: Domain) -> FloatArray:
    """The checked length scales spread over the axes of a domain, (d,)."""
    lengths = np.atleast_1d(np.asarray(length_scale, dtype=np.float64))
    if np.ndim(length_scale) == 1 and lengths.size != domain.dimension:
        raise ShapeError(
            f"length_scale has {lengths.size} entries but the domain has {domain.dimension} axes; "
            "give one number for all axes, or one per axis."
        )
    return np.broadcast_to(lengths, (domain.dimension,))


@dataclass(frozen=True, slots=True, eq=False)
class RidgeMap(FeatureMap):
    """Features of one variable each, phi_j(x) = sigma(w_j . (x - lower) + b_j).

    Parameters
    ----------
    lower, side : (d,) array_like
        Bounding box of the domain.
    weights : (M, d) array_like
        w, per unit of length.
    offsets : (M,) array_like
        b, referred to the lower corner.
    """

    lower: FloatArray
    side: FloatArray
    weights: FloatArray
    offsets: FloatArray

    def __post_init__(self) -> None:
        lower = as_finite("lower", self.lower, (None,))
        weights = as_finite("weights", self.weights, (None, lower.size))
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "side", as_finite("side", self.side, (lower.size,)))
        # One memory order, whatever arrived: the product below then gives a restored map the same bits.
        object.__setattr__(self, "weights", frozen(np.asfortranarray(weights)))
        object.__setattr__(self, "offsets", as_finite("offsets", self.offsets, (weights.shape[0],)))

    @property
    def n_features(self) -> int:
        return int(self.offsets.size)

    @abstractmethod
    def activate(self, z: FloatArray) -> FloatArray:
        """sigma(z), in place where possible."""

    @abstractmethod
    def activate_with_slope(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """sigma(z) and sigma'(z), in place where possible."""

    def _argument(self, x: FloatArray) -> FloatArray:
        z = (x - self.lower) @ self.weights.T
        z += self.offsets
        return z

    def __call__(self, x: FloatArray) -> FloatArray:
        return self.activate(self._argument(x))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        values, slopes = self.activate_with_slope(self._argument(x))
        gradients = np.empty((self.dimension, *values.shape))
        for along_axis, w in zip(gradients, self.weights.T, strict=True):
            np.multiply(slopes, w, out=along_axis)
        return values, gradients

    @property
    def weight_norms(self) -> FloatArray:
        """Euclidean norms of the weights, (M,)."""
        return np.asarray(np.sqrt(np.square(self.weights).sum(axis=1)))

    @property
    def argument_range(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest w.(x - lower) + b over the bounding box, (M,) each; both are attained at corners."""
        reach = self.weights * self.side
        return self.offsets + np.minimum(reach, 0.0).sum(axis=1), self.offsets + np.maximum(reach, 0.0).sum(axis=1)

    @property
    def steepest(self) -> FloatArray:
        """max_j |w_ji| side_i along each axis, (d,): the largest change of an argument across the box."""
        return np.asarray(np.abs(self.weights).max(axis=0) * self.side)

    def arrays(self) -> dict[str, FloatArray]:
        return {"lower": self.lower, "side": self.side, "weights": self.weights, "offsets": self.offsets}

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        return cls(**arrays, **{name: value for name, value in settings.items() if name != "kind"})


def oscillation_order(phase_change: FloatArray) -> tuple[int, ...]:
    """Gauss-Legendre points per axis for products of waves whose phase changes this much across it, (d,).

    Products oscillate twice as fast, so resolving them takes half a point per
    radian; beyond that the remainder falls faster than any power, and fourteen
    more points outrun its amplification by 1 / floor. Measured defect of
    whitened waves at floors down to 1e-20: 2e-6 at 30 radians, 2e-5 at 300,
    5e-4 at 900.
    """
    return tuple(int(n) for n in np.ceil(0.5 * phase_change) + 14)


@dataclass(frozen=True, slots=True)
class RecipeSum(Recipe):
    """The features of several recipes side by side; write it ``a + b``."""

    parts: tuple[Recipe, ...]

    def __post_init__(self) -> None:
        flat = (part.parts if isinstance(part, RecipeSum) else (part,) for part in self.parts)
        object.__setattr__(self, "parts", tuple(part for group in flat for part in group))

    def bind(self, domain: Domain) -> FeatureSum:
        return FeatureSum(tuple(part.bind(domain) for part in self.parts))


@register
@dataclass(frozen=True, slots=True, eq=False)
class FeatureSum(FeatureMap):
    """The features of several maps side by side, M = M_1 + M_2 + ...; write it ``a + b``."""

    parts: tuple[FeatureMap, ...]
    lower: FloatArray = field(init=False)
    side: FloatArray = field(init=False)

    kind: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        groups = (part.parts if isinstance(part, FeatureSum) else (part,) for part in self.parts)
        parts = tuple(part for group in groups for part in group)
        if not parts:
            raise ShapeError("A sum of feature maps needs at least one part.")
        first = parts[0]
        for part in parts[1:]:
            if not (np.array_equal(part.lower, first.lower) and np.array_equal(part.side, first.side)):
                raise ValueRangeError(
                    f"Feature maps add only on one domain; these are bound to boxes at {first.lower.tolist()} with "
                    f"sides {first.side.tolist()} and at {part.lower.tolist()} with sides {part.side.tolist()}. "
                    "Add the recipes and bind the sum once."
                )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "lower", first.lower)
        object.__setattr__(self, "side", first.side)

    @property
    def n_features(self) -> int:
        return sum(self.sizes)

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.concatenate([part(x) for part in self.parts], axis=1)

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        jets = [part.jet(x) for part in self.parts]
        return np.concatenate([v for v, _ in jets], axis=1), np.concatenate([g for _, g in jets], axis=2)

    @property
    def sup_values(self) -> FloatArray:
        return np.concatenate([part.sup_values for part in self.parts])

    @property
    def sup_gradients(self) -> FloatArray:
        return np.concatenate([part.sup_gradients for part in self.parts])

    @property
    def sup_curvatures(self) -> FloatArray:
        return np.concatenate([part.sup_curvatures for part in self.parts])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Feature counts M_1, M_2, ... of the parts, in the order of their columns."""
        return tuple(part.n_features for part in self.parts)

    @property
    def zero_parts(self) -> frozenset[str]:
        return frozenset.intersection(*(part.zero_parts for part in self.parts))

    @property
    def zero_trace(self) -> bool:
        return all(part.zero_trace for part in self.parts)

    @property
    def smallest_floor(self) -> float:
        return max(part.smallest_floor for part in self.parts)

    def quadrature_order(self, floor: float) -> tuple[int, ...]:
        orders = [part.quadrature_order(floor) for part in self.parts]
        return tuple(max(axis) for axis in zip(*orders, strict=True))

    @property
    def breaks(self) -> tuple[FloatArray, ...]:
        axes = zip(*(part.breaks for part in self.parts), strict=True)
        return tuple(np.unique(np.concatenate(axis)) for axis in axes)

    def composite_order(self, floor: float) -> tuple[int, ...]:
        orders = [part.composite_order(floor) for part in self.parts]
        return tuple(max(axis) for axis in zip(*orders, strict=True))

    def arrays(self) -> dict[str, FloatArray]:
        flat: dict[str, FloatArray] = {}
        for i, part in enumerate(self.parts):
            flat.update(prefixed(f"{i}.", part.arrays()))
        return flat

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [part.settings() for part in self.parts]}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        return cls(tuple(restore(part, unprefixed(f"{i}.", arrays)) for i, part in enumerate(settings["parts"])))
