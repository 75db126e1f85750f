"""What an enrichment is, and how a recipe is given those that its problem asks for.

Fields bend where a coefficient jumps, are singular at corners and steep around
holes. A smooth basis approaches such a field slowly or not at all, while every
number computed in it looks healthy. The places are declared by the domain, the
coefficients and the conditions; features that have the right shape there make
the rest smooth again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...core.checks import FloatArray
from ...core.show import Shown
from ...physics.pde import LinearPDE
from ..base import Recipe, RecipeSum, predicted_rank, reseeded
from ..fourier import Constant
from ..wrappers import Bubble, matching_parts

#: The usual floor, at which ranks are predicted.
_FLOOR = 1e-12


@dataclass(frozen=True, slots=True)
class Addition(Shown):
    """A recipe to be added beside the smooth features, and why: a phrase such as ``"a kink at x = 0.4"``."""

    recipe: Recipe
    why: str


@dataclass(frozen=True, slots=True)
class Surroundings(Shown):
    """What an enrichment is told.

    Attributes
    ----------
    pde : LinearPDE
    smooth : Recipe
        The features that are there already, without window and constant.
    zero_on : frozenset of str
        Boundary parts on which a window makes everything vanish, additions included.
    """

    pde: LinearPDE
    smooth: Recipe
    zero_on: frozenset[str]

    @property
    def count(self) -> int:
        """How many smooth features there are."""
        return size_of(self.smooth)

    @property
    def rank(self) -> float:
        """About how many directions they have."""
        domain = self.pde.domain
        known = self.smooth.finest(domain)
        if known is None:
            return float(self.count)
        return min(float(self.count), predicted_rank(domain.side, known[1], _FLOOR))

    def waves(self, share: float, *key: int) -> Recipe:
        """Smooth features like those that are there, ``share`` times as many, drawn from a stream of their own."""
        drawn: Recipe = reseeded(_resized(self.smooth, share), *key)
        return drawn

    def has(self, *families: type[Recipe]) -> bool:
        """Whether the user already asked for features of such a family."""
        return any(isinstance(part, families) for part in _all_parts(self.smooth))


class Enrichment(Shown, ABC):
    """A kind of features that a problem may ask for; a class below this one is known as soon as it is defined.

    Additions draw from streams of their own (``around.waves(share, key)``), so that the smooth
    features stay what they were without them.
    """

    kinds: ClassVar[dict[str, type[Enrichment]]] = {}

    def __init_subclass__(cls) -> None:
        Enrichment.kinds[cls.__name__] = cls

    @abstractmethod
    def additions(self, around: Surroundings) -> Iterable[Addition]:
        """What this kind adds here; nothing where the problem does not ask for it."""


def enriched(pde: LinearPDE, recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with what the problem asks for beside it, and the reasons, one for each addition.

    Additions go inside a window: they vanish where the smooth features do.

    Examples
    --------
    >>> import rfkalman as rk
    >>> recipe = rk.bubble(rk.GaussianRFF(40, length_scale=0.2))
    >>> enriched(rk.Heat(rk.Interval(0.0, 1.0)), recipe) == (recipe, ())
    True
    """
    return _enriched(pde, recipe, frozenset())


def _enriched(pde: LinearPDE, recipe: Recipe, zero_on: frozenset[str]) -> tuple[Recipe, tuple[str, ...]]:
    if isinstance(recipe, Bubble):
        zero = zero_on.union(matching_parts(recipe.parts, pde.domain))
        inner, why = _enriched(pde, recipe.recipe, zero)
        return (replace(recipe, recipe=inner) if why else recipe), why
    parts = recipe.parts if isinstance(recipe, RecipeSum) else (recipe,)
    windowed = [part for part in parts if isinstance(part, Bubble)]
    if windowed:
        chosen = max(windowed, key=size_of)
        inner, why = _enriched(pde, chosen, zero_on)
        return (RecipeSum(tuple(inner if part is chosen else part for part in parts)) if why else recipe), why
    smooth = tuple(part for part in parts if not isinstance(part, Constant))
    if not smooth:
        return recipe, ()
    around = Surroundings(pde, smooth[0] if len(smooth) == 1 else RecipeSum(smooth), zero_on)
    found = [one for kind in Enrichment.kinds.values() for one in kind().additions(around)]
    if not found:
        return recipe, ()
    return RecipeSum((*parts, *(one.recipe for one in found))), tuple(one.why for one in found)


def even_coordinates(pde: LinearPDE, place: FloatArray) -> FloatArray:
    """The matrix (2, 2) of unit determinant into coordinates in which diffusion at a place is even all around."""
    A = pde.diffusion_at(place[None])[0]
    if np.ndim(A) == 0 or not (np.abs(A - A[0, 0] * np.eye(2)) > 1e-12 * A[0, 0]).any():
        return np.eye(2)
    values, vectors = np.linalg.eigh(A)
    return np.asarray((vectors * np.sqrt(np.sqrt(values.prod()) / values)) @ vectors.T)


def _all_parts(recipe: Recipe) -> list[Recipe]:
    """The recipe and every recipe inside it."""
    value: Any = recipe
    inner = [getattr(value, entry.name) for entry in fields(value)] if is_dataclass(value) else []
    nested = [part for entry in inner for part in (entry if isinstance(entry, tuple) else (entry,))]
    return [recipe, *(found for part in nested if isinstance(part, Recipe) for found in _all_parts(part))]


def size_of(recipe: Recipe) -> int:
    """How many features a recipe asks for, what is nested included; a constant is one."""
    own = (getattr(part, "n_features", 1 if isinstance(part, Constant) else 0) for part in _all_parts(recipe))
    return sum(int(np.prod(n)) for n in own)


def seed_of(recipe: Recipe) -> int:
    """The seed of a recipe, or of the first in it that has one; 0 without any."""
    return next((int(part.seed) for part in _all_parts(recipe) if hasattr(part, "seed")), 0)


def _resized(value: Any, share: float) -> Any:
    """The recipe with that share of the features, at least one of each kind."""
    if isinstance(value, tuple):
        return tuple(_resized(part, share) for part in value)
    if not is_dataclass(value) or isinstance(value, type) or not issubclass(type(value), Recipe):
        return value
    changes = {entry.name: _resized(getattr(value, entry.name), share) for entry in fields(value)}
    if "n_features" in changes:
        n = np.asarray(changes["n_features"])  # one number, or one per axis
        sized = np.maximum(1, np.rint(share ** (1.0 / max(n.size, 1)) * n)).astype(int)
        changes["n_features"] = tuple(sized.tolist()) if n.ndim else int(sized)
    return replace(value, **changes)
