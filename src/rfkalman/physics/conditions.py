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

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_number, as_positive
from ..core.codec import Stated
from ..core.errors import ShapeError, ValueRangeError
from ..statespace.processes import Fixed, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk
from . import coefficients

__all__ = ["Condition", "Dirichlet", "Neumann", "Periodic", "Robin", "TimeSeries", "Unknown", "Value"]


@dataclass(frozen=True, slots=True, eq=False)
class TimeSeries(Stated):
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

    def __post_init__(self) -> None:
        times = as_finite("times", self.times, (None,))
        values = as_finite("values", self.values, (times.size,), "One value per time.")
        if times.size == 0 or not (np.diff(times) > 0.0).all():
            raise ValueRangeError("times must be increasing and not empty; sort the series and drop repeated times.")
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "values", values)

    def __call__(self, t: float) -> float:
        return float(np.interp(t, self.times, self.values))

    def settings(self) -> dict[str, list[float]]:
        """Times and values, as lists."""
        return {"times": self.times.tolist(), "values": self.values.tolist()}


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A value to be estimated with the field: one per part, or a function along the part.

    Parameters
    ----------
    prior : float or (mean, std)
        Standard deviation around zero, or mean and standard deviation at the start.
    process : Process, optional
        How it moves in time: ``RandomWalk``, ``OrnsteinUhlenbeck``,
        ``IntegratedRandomWalk``; ``Fixed()`` by default.
    length : float, optional
        Correlation length along the part, in the units of the coordinates; by
        default the part has one common value.
    """

    prior: float | tuple[float, float]
    process: Process = field(default_factory=Fixed)
    length: float | None = None

    def __post_init__(self) -> None:
        mean, std = self.prior if isinstance(self.prior, (tuple, list)) else (0.0, self.prior)
        remedy = "Give the std, or (mean, std)."
        object.__setattr__(self, "prior", (as_number("prior mean", mean), as_positive("prior std", std, remedy)))
        if not isinstance(self.process, Process):
            raise ValueRangeError(f"process must be a Process such as RandomWalk(std=1.0); got {self.process!r:.60}.")
        if self.length is not None:
            object.__setattr__(self, "length", as_positive("length", self.length))

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


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """The field is held at ``value``."""

    value: Value = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", checked_value("Dirichlet value", self.value))


@dataclass(frozen=True, slots=True)
class Neumann:
    """The flux n . A grad u is given, positive into the domain; zero is an insulated wall."""

    flux: Value = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "flux", checked_value("Neumann flux", self.flux))


@dataclass(frozen=True, slots=True)
class Robin:
    """Exchange with surroundings: n . A grad u = coefficient (ambient - u).

    Parameters
    ----------
    coefficient : float
        Transfer coefficient, length / time; not negative.
    ambient : Value
        What the field would relax to.
    """

    coefficient: float
    ambient: Value = 0.0

    def __post_init__(self) -> None:
        number = as_number("Robin coefficient", self.coefficient)
        if number < 0.0:
            raise ValueRangeError(f"Robin coefficient must not be negative; got {number}: it would pump energy in.")
        object.__setattr__(self, "coefficient", number)
        object.__setattr__(self, "ambient", checked_value("Robin ambient", self.ambient))


@dataclass(frozen=True, slots=True)
class Periodic:
    """The field continues on the partner part (``"x-"`` with ``"x+"``)."""

    partner: str


Condition = Dirichlet | Neumann | Robin | Periodic | Unknown


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
    given = np.asarray(value(x, t), dtype=np.float64)
    if given.shape == ():
        given = np.full(len(x), float(given))
    if given.shape != (len(x),):
        raise ShapeError(
            f"{name}(x, t) gave shape {given.shape} for {len(x)} points but must give ({len(x)},): one value per point."
        )
    if not np.isfinite(given).all():
        i = int(np.flatnonzero(~np.isfinite(given))[0])
        raise ValueRangeError(f"{name}(x, t) is {given[i]} at x = {x[i].tolist()}, t = {t}; it must be finite.")
    return given


def value_settings(value: Any) -> Any:
    """A value, a coefficient or a factor of time as JSON-able values; functions appear by name only."""
    if isinstance(value, Unknown):
        process = {"kind": type(value.process).__name__, **asdict(value.process)}  # type: ignore[call-overload]
        return {"unknown": [value.mean, value.std], "process": process, "length": value.length}
    return coefficients.settings_of(value)


def restored_value(settings: Any, domain: Any) -> Any:
    """What gave these settings, on its domain; functions cannot come back this way."""
    if isinstance(settings, Mapping) and "times" in settings:
        return TimeSeries(settings["times"], settings["values"])
    if isinstance(settings, Mapping) and "unknown" in settings:
        kinds = {kind.__name__: kind for kind in (Fixed, RandomWalk, OrnsteinUhlenbeck, IntegratedRandomWalk)}
        described = dict(settings["process"])
        process = kinds[described.pop("kind")](**described)
        return Unknown(tuple(settings["unknown"]), process, settings["length"])
    return coefficients.restored(settings, domain)


def condition_settings(condition: Condition) -> dict[str, Any]:
    """A condition as JSON-able values; functions appear by name only."""
    kind = type(condition).__name__
    if isinstance(condition, Dirichlet):
        return {"kind": kind, "value": value_settings(condition.value)}
    if isinstance(condition, Neumann):
        return {"kind": kind, "flux": value_settings(condition.flux)}
    if isinstance(condition, Robin):
        ambient = value_settings(condition.ambient)
        return {"kind": kind, "coefficient": condition.coefficient, "ambient": ambient}
    if isinstance(condition, Periodic):
        return {"kind": kind, "partner": condition.partner}
    return {"kind": "Dirichlet", "value": value_settings(condition)}


def restored_condition(settings: Mapping[str, Any], domain: Any = None) -> Condition:
    """The condition that gave these settings; functions cannot come back this way."""
    kind = settings["kind"]
    if kind == "Neumann":
        return Neumann(restored_value(settings["flux"], domain))
    if kind == "Robin":
        return Robin(settings["coefficient"], restored_value(settings["ambient"], domain))
    if kind == "Periodic":
        return Periodic(settings["partner"])
    return Dirichlet(restored_value(settings["value"], domain))
