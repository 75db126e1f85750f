"""What holds on the boundary, and values that may be numbers, functions, time series or unknown.

    Dirichlet(value)               u = value
    Neumann(flux)                  n . A grad u = flux            (positive: into the domain)
    Robin(coefficient, ambient)    n . A grad u = coefficient (ambient - u)
    Periodic(partner)              the part continues on its partner
    Unknown(prior, process)        u = something to be estimated

Values are numbers, functions of (x, t), or :class:`TimeSeries`; ``Unknown``
may also stand where a value stands: an unknown flux, an unknown ambient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_increasing, as_number, as_positive, as_values, assign
from ..core.codec import coded
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..statespace.processes import Fixed, Harmonic, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk, Sum

for _process in (Fixed, RandomWalk, OrnsteinUhlenbeck, IntegratedRandomWalk, Harmonic, Sum):
    coded(_process)


class Condition(Shown):
    """What holds on a part of the boundary."""

    __slots__ = ()

    @property
    def natural(self) -> tuple[Value, float] | None:
        """What enters through the weak form: a value, and the weight of its integral; None where nothing does."""
        return None

    @property
    def exchange(self) -> float | None:
        """The factor of the field itself in the weak form, length / time; None where it does not enter."""
        return None


@partial(coded, mark="times")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimeSeries(Shown):
    """Values at times, linear in between and constant beyond the ends.

    Parameters
    ----------
    times : (n,) array_like
        Increasing, in the PDE's unit of time.
    values : (n,) array_like

    Examples
    --------
    >>> warm = TimeSeries([0.0, 1.0], [10.0, 14.0])
    >>> warm(0.25), warm(9.0)
    (11.0, 14.0)
    """

    times: FloatArray
    values: FloatArray

    if TYPE_CHECKING:

        def __init__(self, times: ArrayLike, values: ArrayLike) -> None: ...

    def __post_init__(self) -> None:
        times = as_increasing("times", self.times, "Sort the series and drop repeated times.")
        assign(self, times=times, values=as_finite("values", self.values, (times.size,), "One value per time."))

    def __call__(self, t: float) -> float:
        return float(np.interp(t, self.times, self.values))


@partial(coded, mark="unknown", prior="unknown")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unknown(Condition):
    """A value to be estimated with the field: one per part, or a function along the part.

    Parameters
    ----------
    prior : float or (mean, std)
        Standard deviation around zero, or mean and standard deviation at the start.
    process : Process, optional
        How it moves in time: ``RandomWalk``, ``OrnsteinUhlenbeck``, ``IntegratedRandomWalk``, ``Harmonic``, or a sum
        of them; ``Fixed()`` by default.
    length : float, optional
        Correlation length along the part, in the units of the coordinates; by
        default the part has one common value.

    Examples
    --------
    >>> wall = Unknown((10.0, 2.0), RandomWalk(std=0.5))
    >>> wall.mean, wall.std
    (10.0, 2.0)
    """

    prior: float | tuple[float, float]
    process: Process = field(default_factory=Fixed)
    length: float | None = None

    def __post_init__(self) -> None:
        mean, std = self.prior if isinstance(self.prior, (tuple, list)) else (0.0, self.prior)
        remedy = "Give the std, or (mean, std)."
        assign(self, prior=(as_number("prior mean", mean), as_positive("prior std", std, remedy)))
        if not isinstance(self.process, Process):
            raise ValueRangeError(f"process must be a Process such as RandomWalk(std=1.0); got {self.process!r:.60}.")
        if self.length is not None:
            assign(self, length=as_positive("length", self.length))

    @property
    def mean(self) -> float:
        """Prior mean."""
        return self.prior[0]  # type: ignore[index]

    @property
    def std(self) -> float:
        """Prior standard deviation."""
        return self.prior[1]  # type: ignore[index]


#: A number, a function of points (N, d) and a time, a time series, or an unknown.
Value = float | Callable[[FloatArray, float], ArrayLike] | TimeSeries | Unknown


@coded
@dataclass(frozen=True, slots=True)
class Dirichlet(Condition):
    """The field is held at ``value``.

    Examples
    --------
    >>> Dirichlet(TimeSeries([0.0, 1.0], [10.0, 14.0])).value(0.5)
    12.0
    """

    value: Value = 0.0

    def __post_init__(self) -> None:
        assign(self, value=checked_value("Dirichlet value", self.value))


@coded
@dataclass(frozen=True, slots=True)
class Neumann(Condition):
    """The flux n . A grad u is given, positive into the domain; zero is an insulated wall.

    Examples
    --------
    >>> Neumann().flux
    0.0
    """

    flux: Value = 0.0

    def __post_init__(self) -> None:
        assign(self, flux=checked_value("Neumann flux", self.flux))

    @property
    def natural(self) -> tuple[Value, float]:
        return self.flux, 1.0


@coded
@dataclass(frozen=True, slots=True)
class Robin(Condition):
    """Exchange with surroundings: n . A grad u = coefficient (ambient - u).

    Parameters
    ----------
    coefficient : float
        Transfer coefficient, length / time; not negative.
    ambient : Value
        What the field would relax to.

    Examples
    --------
    >>> Robin(2.0, ambient=15.0)
    Robin(coefficient=2.0, ambient=15.0)
    """

    coefficient: float
    ambient: Value = 0.0

    def __post_init__(self) -> None:
        number = as_number("Robin coefficient", self.coefficient)
        if number < 0.0:
            raise ValueRangeError(f"Robin coefficient must not be negative; got {number}: it would pump energy in.")
        assign(self, coefficient=number, ambient=checked_value("Robin ambient", self.ambient))

    @property
    def natural(self) -> tuple[Value, float]:
        return self.ambient, self.coefficient

    @property
    def exchange(self) -> float:
        return self.coefficient


@coded
@dataclass(frozen=True, slots=True)
class Periodic(Condition):
    """The field continues on the partner part (``"x-"`` with ``"x+"``).

    Examples
    --------
    >>> {"x-": Periodic("x+"), "x+": Periodic("x-")}["x-"].partner
    'x+'
    """

    partner: str


def checked_value(name: str, value: Any) -> Value:
    """A value as the user may write it, checked."""
    if isinstance(value, (TimeSeries, Unknown)) or callable(value):
        return value  # type: ignore[no-any-return]
    return as_number(name, value) + 0.0  # -0.0 is 0.0


def evaluate(name: str, value: Value, x: FloatArray, t: float) -> FloatArray:
    """A known value at points and one time, (N,)."""
    if isinstance(value, Unknown):
        raise ValueRangeError(f"{name} is unknown and has no value to evaluate.")
    if isinstance(value, TimeSeries):
        return np.full(len(x), value(t))
    if not callable(value):
        return np.full(len(x), value)
    return as_values(f"{name}(x, t)", value(x, t), x, when=f", t = {t:g}")
