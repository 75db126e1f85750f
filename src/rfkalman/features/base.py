"""What a recipe is, what a bound feature map offers, and how maps are saved and added.

A map is bound to a bounding box (``lower``, ``side``) and every coordinate it
sees is first taken relative to ``lower``: coordinates far from the origin lose
no digits, and moving the domain moves the features with it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from ..core.checks import FloatArray, as_count, as_finite, as_positive, assign, frozen
from ..core.codec import Table, to_dict
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown
from ..domains import Box, Domain


class Recipe(Shown, ABC):
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


#: Two arrays: values (n, M) and gradients (d, n, M), or bounds on |phi_j| and on |grad phi_j|, (M,) each.
Pair = tuple[FloatArray, FloatArray]


class FeatureMap(Table, sort="features are"):
    """M frozen features on a domain: values, exact gradients, and bounds that hold everywhere on it.

    ``lower`` and ``side`` (d,) are the bounding box the map is bound to. Points
    are not checked here; whoever takes them from a user does that once. A family
    is a dataclass: its fields are what a file holds of it.
    """

    __slots__ = ()

    lower: FloatArray
    side: FloatArray

    def __post_init__(self) -> None:
        lower = as_finite("lower", self.lower, (None,))
        assign(self, lower=lower, side=as_finite("side", self.side, lower.shape))

    @property
    def dimension(self) -> int:
        """Number of coordinates, d."""
        return int(self.lower.size)

    @property
    def nested(self) -> dict[str, FeatureMap]:
        """The maps of which this one is made, by the label under which their arrays are saved; none for most."""
        names = getattr(self, "__dataclass_fields__", ())
        return {name: entry for name in names if isinstance(entry := getattr(self, name), FeatureMap)}

    @property
    def n_features(self) -> int:
        """Raw feature count, M; of a map made of others, theirs together."""
        return sum(part.n_features for part in self.nested.values())

    def __call__(self, x: FloatArray) -> FloatArray:
        """Phi at the points x (n, d): a new C-ordered (n, M) array."""
        return self.jet(x, slopes=False)[0]

    @abstractmethod
    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        """Values (n, M) and exact gradients (d, n, M) at the points x (n, d), for little more than the values.

        Without ``slopes`` there are no gradients: an array (0, n, M).
        """

    def _blank(self, x: FloatArray, slopes: bool) -> Pair:
        """Zeros in the shape of a jet, for what is filled in part by part."""
        shape = (len(x), self.n_features)
        return np.zeros(shape), np.zeros((self.dimension if slopes else 0, *shape))

    @abstractmethod
    def bounds(self) -> Pair:
        """``sup_values`` and ``sup_gradients`` at once."""

    @property
    def sup_values(self) -> FloatArray:
        """A bound on |phi_j| over the domain, (M,)."""
        return self.bounds()[0]

    @property
    def sup_gradients(self) -> FloatArray:
        """A bound on the Euclidean norm of grad phi_j over the domain, (M,); per unit of length."""
        return self.bounds()[1]

    @property
    def envelope(self) -> float:
        """The paper's E_Phi: sum of squared ``sup_values``, a bound on |Phi(x)|^2."""
        return float(np.square(self.sup_values).sum())

    @property
    def gradient_envelope(self) -> float:
        """The paper's G_Phi: sum of squared ``sup_gradients``."""
        return float(np.square(self.sup_gradients).sum())

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
        return max((part.smallest_floor for part in self.nested.values()), default=1e-20)

    @abstractmethod
    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        """Change of phase across each axis of the bounding box that whitening at this mass floor must resolve, (d,).

        Of waves, twice a whole number; what is no wave has that of waves that take as many quadrature points.
        ``aligned`` is asked for a rule that is composite on :attr:`breaks`: often far less.
        """

    @property
    def breaks(self) -> tuple[FloatArray, ...]:
        """Inner coordinates per axis at which all features lose smoothness together; empty for most maps."""
        return self._collected("breaks")

    @property
    def kinks(self) -> tuple[FloatArray, ...]:
        """Those of :attr:`breaks` at which features bend; seams of patches are smoother than that."""
        return self._collected("kinks")

    @property
    def towards(self) -> tuple[FloatArray, ...]:
        """Coordinates per axis at whose crossings gradients are unbounded; empty for most maps."""
        return self._collected("towards")

    @property
    def singular(self) -> FloatArray:
        """Vertices of a planar domain near which features go like a power of the distance: x, y, power, (n, 3)."""
        return np.concatenate([np.empty((0, 3)), *(part.singular for part in self.nested.values())])

    def _collected(self, name: str, *own: Iterable[FloatArray]) -> tuple[FloatArray, ...]:
        """Coordinates per axis of the maps of which this one is made, and its own."""
        axes = zip(
            (np.empty(0),) * self.dimension, *(getattr(p, name) for p in self.nested.values()), *own, strict=True
        )
        return tuple(np.unique(np.concatenate(axis)) for axis in axes)

    def arrays(self) -> dict[str, FloatArray]:
        """The frozen arrays by name; with :meth:`settings`, all that :func:`restore` needs."""
        own = {name: value for name, value in self._entries().items() if isinstance(value, np.ndarray)}
        flat = {name: frozen(np.asarray(array, dtype=np.float64)) for name, array in own.items()}
        for label, part in self.nested.items():
            flat |= prefixed(f"{label}.", part.arrays())
        return flat

    def settings(self) -> dict[str, Any]:
        """The rest of the map as JSON-able values; ``"kind"`` names the family."""
        entries = self._entries()
        return {"kind": self.kind} | {n: to_dict(v) for n, v in entries.items() if not isinstance(v, np.ndarray)}

    def __add__(self, other: object) -> FeatureSum:
        return FeatureSum((self, other)) if isinstance(other, FeatureMap) else NotImplemented


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
    return FeatureMap.restore(settings, arrays)


def prefixed(prefix: str, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The arrays of a nested map under names that begin with ``prefix``."""
    return {prefix + name: array for name, array in arrays.items()}


def unprefixed(prefix: str, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The arrays of a nested map, taken back out of the flat collection."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def reseeded(value: Any, *key: int) -> Any:
    """The recipe with every seed in it, nested ones included, replaced by one derived from it and the key."""
    if isinstance(value, tuple):
        return tuple(reseeded(part, *key) for part in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {entry.name: reseeded(getattr(value, entry.name), *key) for entry in fields(value)}
    if "seed" in changes:
        changes["seed"] = int(np.random.SeedSequence([changes["seed"], *key]).generate_state(1, np.uint64)[0])
    return replace(value, **changes)


def check_draw(recipe: Any) -> None:
    """Check what most recipes are drawn from: ``n_features``, ``seed`` and, where there is one, ``length_scale``."""
    assign(recipe, n_features=as_count("n_features", recipe.n_features), seed=as_count("seed", recipe.seed, minimum=0))
    if "length_scale" in recipe.__dataclass_fields__:
        assign(recipe, length_scale=as_length_scale(recipe.length_scale))


def check_inner(taker: str, recipe: Any, call: str) -> None:
    """Refuse what is no recipe, handed to ``taker``; ``call`` shows how to bind the result."""
    if not isinstance(recipe, Recipe):
        raise ValueRangeError(
            f"{taker} takes a recipe, such as GaussianRFF(...); got a {type(recipe).__name__}. "
            f"Bind afterwards: {call}.bind(domain)."
        )


def require_box(domain: Domain, what: str) -> None:
    """Refuse a domain that is no box for features that are made for one."""
    if not isinstance(domain, Box):
        raise ValueRangeError(
            f"{what}, but the domain is a {type(domain).__name__}; use GaussianRFF there, or describe the domain as a "
            "Box."
        )


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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
        FeatureMap.__post_init__(self)  # by name: a slotted dataclass is a new class, which super() does not see
        weights = as_finite("weights", self.weights, (None, self.lower.size))
        # One memory order, whatever arrived: the product below then gives a restored map the same bits.
        assign(self, weights=frozen(np.asfortranarray(weights)))
        assign(self, offsets=as_finite("offsets", self.offsets, (len(weights),)))

    @property
    def n_features(self) -> int:
        return int(self.offsets.size)

    @abstractmethod
    def activate(self, z: FloatArray, slopes: bool) -> Pair:
        """sigma(z) and, with ``slopes``, sigma'(z), in place where possible; without, anything for the second."""

    def _local(self, x: FloatArray) -> FloatArray:
        """Coordinates from the lower corner."""
        return x - self.lower

    def _argument(self, x: FloatArray) -> FloatArray:
        z = self._local(x) @ self.weights.T
        z += self.offsets
        return z

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, slope = self.activate(self._argument(x), slopes)
        gradients = np.empty((self.dimension if slopes else 0, *values.shape))
        for axis, along_axis in enumerate(gradients):
            np.multiply(slope, self.weights[:, axis], out=along_axis)
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


def whole_bandwidth(phase_change: FloatArray) -> FloatArray:
    """The bandwidth of waves whose phase changes this much across each axis, (d,), in steps of one quadrature point."""
    return 2.0 * np.ceil(0.5 * phase_change)


@dataclass(frozen=True, slots=True)
class RecipeSum(Recipe):
    """The features of several recipes side by side; write it ``a + b``."""

    parts: tuple[Recipe, ...]

    def __post_init__(self) -> None:
        flat = (part.parts if isinstance(part, RecipeSum) else (part,) for part in self.parts)
        assign(self, parts=tuple(part for group in flat for part in group))

    def bind(self, domain: Domain) -> FeatureSum:
        return FeatureSum(tuple(part.bind(domain) for part in self.parts))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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
        assign(self, parts=parts, lower=first.lower, side=first.side)

    @property
    def nested(self) -> dict[str, FeatureMap]:
        return {str(i): part for i, part in enumerate(self.parts)}

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, gradients = zip(*(part.jet(x, slopes) for part in self.parts), strict=True)
        return np.concatenate(values, axis=1), np.concatenate(gradients, axis=2)

    def bounds(self) -> Pair:
        values, gradients = zip(*(part.bounds() for part in self.parts), strict=True)
        return np.concatenate(values), np.concatenate(gradients)

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

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return np.asarray(np.max([part.bandwidth(floor, aligned) for part in self.parts], axis=0))

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        return cls(tuple(restore(part, unprefixed(f"{i}.", arrays)) for i, part in enumerate(settings["parts"])))


# -- windows -----------------------------------------------------------------------------------------------------------


def times_window(
    values: FloatArray, gradients: Iterable[FloatArray], window: FloatArray, slopes: Iterable[FloatArray]
) -> None:
    """Multiply a jet in place, (n, M) and (n, M) per axis, by a function (n,) with slopes (n,): the product rule.

    Where there are no gradients, the values alone.
    """
    for along_axis, slope in zip(gradients, slopes, strict=False):
        along_axis *= window[:, None]
        along_axis += slope[:, None] * values
    values *= window[:, None]


def product_jet(lines: Iterable[Pair], shape: tuple[int, ...], axes: int) -> Pair:
    """The product of functions of one coordinate each, given with their slopes, and its gradient along some axes."""
    values, gradients = np.ones(1), np.ones((axes, *shape))
    for axis, (value, slope) in enumerate(lines):
        values = values * value if axis else value
        for i, along_axis in enumerate(gradients):
            along_axis *= slope if i == axis else value
    return values, gradients


#: Largest slope of the step, attained at 1/2.
LARGEST_SLOPE = 630.0 / 256.0


def smooth_step(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """S(u) and S'(u): 0 below 0, 1 above 1, and between them the polynomial of degree nine that is C^4 at both ends.

    S(u) + S(1 - u) = 1, so mirrored steps make a partition of unity.

    Examples
    --------
    >>> value, slope = smooth_step(np.array([-1.0, 0.0, 0.5, 1.0]))
    >>> value.tolist(), slope.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 2.4609375, 0.0])
    """
    inside = np.minimum(np.maximum(u, 0.0), 1.0)
    # Horner's scheme from the nearer end: near 1 the powers of u would cancel, those of 1 - u do not.
    v = np.minimum(inside, 1.0 - inside)
    low = v**5 * (126.0 + v * (-420.0 + v * (540.0 + v * (-315.0 + v * 70.0))))
    return np.where(inside > 0.5, 1.0 - low, low), 630.0 * (v * (1.0 - v)) ** 4
