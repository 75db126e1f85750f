"""What learning works on: a whole record, a system in continuous time, and who is left out, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray, as_array, as_count, as_finite, as_nonnegative, assign
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recording(Shown):
    """All readings of n sensors, in T batches, and the known inputs beside them.

    Attributes
    ----------
    gap : (T,) int array
        Which of ``gaps`` lies before each batch; -1 where no time passes.
    gaps : (G,) array
        The distinct gaps, in the unit of time. Every distinct one costs a matrix exponential in each evaluation.
    y : (T, n) array
        Readings; NaN where there is none.
    inputs : (T, m) array
        Known inputs at the time of each batch, linear in between; m may be 0.
    inputs_0 : (m,) array
        The inputs at the start of the first gap.

    Examples
    --------
    >>> record = Recording([0, 0, -1], [0.5], [[1.0], [np.nan], [1.1]], np.zeros((3, 0)), [])
    >>> record.n_batches, record.n_sensors, record.n_inputs
    (3, 1, 0)
    """

    gap: IntArray
    gaps: FloatArray
    y: FloatArray
    inputs: FloatArray
    inputs_0: FloatArray

    def __post_init__(self) -> None:
        gap = np.array(self.gap, dtype=np.int64)
        gap.flags.writeable = False
        gaps, y = as_finite("gaps", self.gaps, (None,)), as_array("y", self.y, (None, None))
        if gap.shape != (len(y),):
            raise ShapeError(f"gap has shape {gap.shape} but y has {len(y)} batches; give one index per batch.")
        if gap.size and not (-1 <= gap.min() and gap.max() < gaps.size):
            raise ValueRangeError(
                f"gap must hold indices into the {gaps.size} distinct gaps, or -1 where no time passes; "
                f"got {gap.min()} to {gap.max()}."
            )
        if (gaps <= 0.0).any():
            raise ValueRangeError(f"gaps must be positive; got {gaps.min()}. Where no time passes, gap is -1.")
        if np.isinf(y).any():
            raise ValueRangeError("y holds infinite readings; a reading that is not there is NaN.")
        inputs = as_finite("inputs", self.inputs, (len(y), None))
        inputs_0 = as_finite("inputs_0", self.inputs_0, (inputs.shape[1],))
        assign(self, gap=gap, gaps=gaps, y=y, inputs=inputs, inputs_0=inputs_0)

    @property
    def n_batches(self) -> int:
        """T."""
        return int(self.y.shape[0])

    @property
    def n_sensors(self) -> int:
        """n."""
        return int(self.y.shape[1])

    @property
    def n_inputs(self) -> int:
        """m."""
        return int(self.inputs.shape[1])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class System(Shown):
    """A linear system in continuous time and its sensors: what a vector of parameters is turned into.

        dz = (A z + B u(t)) dt + L dW,   L L^T = Qc,   z(0) ~ N(m0, P0),   y = H z + C u + e,   e ~ N(0, R)

    Its gradient is a value of the same type and shapes: the entry of a field is the derivative of the objective by
    that entry. Those of the symmetric ``Qc``, ``P0`` and ``R`` are symmetric, and the change of the objective is the
    sum of entries times entries of a symmetric change.

    Attributes
    ----------
    A : (r, r) or (r,) array
        Drift; a diagonal one is a vector, and stays one.
    B : (r, m) array
        How the inputs push.
    Qc : (r, r) array
        Covariance of the noise per unit of time, semidefinite; may be zero.
    m0, P0 : (r,) and (r, r) arrays
        Belief before the first gap; P0 may be singular.
    H : (n, r) array
        What the sensors read of the state.
    C : (n, m) array
        What they read of the inputs.
    R : (n,) or (n, n) array
        Noise variances, or the covariance.
    extra : (n,) array
        Variance added to the prediction of a reading that was left out, because nobody stood at its place.
    """

    A: FloatArray
    B: FloatArray
    Qc: FloatArray
    m0: FloatArray
    P0: FloatArray
    H: FloatArray
    C: FloatArray
    R: FloatArray
    extra: FloatArray

    def __post_init__(self) -> None:
        H = as_array("H", self.H, (None, None))
        n, r = H.shape
        B = as_array("B", self.B, (r, None))
        diagonal, variances = np.ndim(self.A) == 1, np.ndim(self.R) == 1
        assign(
            self,
            A=as_array("A", self.A, (r,) if diagonal else (r, r)),
            B=B,
            Qc=as_array("Qc", self.Qc, (r, r)),
            m0=as_array("m0", self.m0, (r,)),
            P0=as_array("P0", self.P0, (r, r)),
            H=H,
            C=as_array("C", self.C, (n, B.shape[1])),
            R=as_array("R", self.R, (n,) if variances else (n, n)),
            extra=as_array("extra", self.extra, (n,)),
        )

    @property
    def is_diagonal(self) -> bool:
        """Whether the drift is a diagonal."""
        return self.A.ndim == 1

    @property
    def dim(self) -> int:
        """r."""
        return int(self.H.shape[1])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Folds(Shown):
    """Who is left out in each fold, and what counts how much.

    Attributes
    ----------
    left_out : (K, n) bool array
        The sensors that each fold predicts from all others; K may be 0.
    evidence_weight, score_weight : float
        Weights of the log evidence with nobody left out, and of the log scores of all folds.
    skip : int
        Batches at the beginning that are filtered but count neither in the evidence nor in the scores.

    Examples
    --------
    >>> Folds.each(3).left_out.sum(axis=1)
    array([1, 1, 1])
    """

    left_out: NDArray[np.bool_]
    evidence_weight: float = 1.0
    score_weight: float = 1.0
    skip: int = 0

    def __post_init__(self) -> None:
        left_out = np.array(self.left_out, dtype=bool)
        if left_out.ndim != 2:
            raise ShapeError(f"left_out has shape {left_out.shape} but must have one row per fold: (K, n).")
        left_out.flags.writeable = False
        assign(
            self,
            left_out=left_out,
            evidence_weight=as_nonnegative("evidence_weight", self.evidence_weight),
            score_weight=as_nonnegative("score_weight", self.score_weight),
            skip=as_count("skip", self.skip, minimum=0),
        )

    @classmethod
    def each(cls, n: int, **weights: float) -> Folds:
        """One fold per sensor."""
        return cls(np.eye(n, dtype=bool), **weights)  # type: ignore[arg-type]
