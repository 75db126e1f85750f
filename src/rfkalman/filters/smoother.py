"""What later readings say about earlier times, without inverting a forecast covariance.

Fast modes of a diffusion underflow to exact zeros in F, so the textbook
backward pass (Rauch-Tung-Striebel) divides by a singular matrix. Here the
future is carried backwards instead, as the adjoint does: everything read after
time n is compressed to at most r rows of unit noise,

    p(later readings | z_n)  proportional to  exp(-|A z_n - b|^2 / 2),

and the smoothed belief at n is one more ordinary analysis of the filter's
belief at n, with H = A and readings b. F is only multiplied by; Q may vanish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count
from ..core.errors import ShapeError
from ..statespace.values import Gaussian, LinearStep, Observation
from . import kalman
from .batch import compressed_rows, eliminate, unit_noise_rows
from .kernels import Batch, require_step

_Analyse = Callable[[Gaussian, Observation, FloatArray], kalman.Analysis]


def fixed_interval(analyses: Sequence[Gaussian], sequence: Iterable[Batch]) -> list[Gaussian]:
    """Beliefs about every analysis time given the whole record.

    Parameters
    ----------
    analyses : sequence of Gaussian, length N + 1
        The filter's posteriors, as ``kalman.run`` yielded them.
    sequence : iterable of (step, obs, y), length N + 1
        The very items the filter was run on.

    Returns
    -------
    list of Gaussian, length N + 1
        Law of z_n given the readings of all times; the last entry is the
        filter's own. Cost O(r^3) per time.

    Examples
    --------
    A constant seen twice: the first belief learns of the second reading.

    >>> from rfkalman import Gaussian, LinearStep, Observation
    >>> sensor = Observation([[1.0]], std=1.0)
    >>> sequence = [(None, sensor, [3.0]), (LinearStep([1.0]), sensor, [3.0])]
    >>> analyses = list(kalman.run(Gaussian([0.0], root=[[1.0]]), sequence))
    >>> [round(float(belief.mean[0]), 12) for belief in analyses]
    [1.5, 2.0]
    >>> [round(float(belief.mean[0]), 12) for belief in fixed_interval(analyses, sequence)]
    [2.0, 2.0]
    """
    items = list(sequence)
    if len(analyses) != len(items):
        raise ShapeError(
            f"analyses has {len(analyses)} entries but the sequence has {len(items)} items; "
            "pass every belief kalman.run yielded, together with the items it was run on."
        )
    return _backward(analyses, items, kalman.analyse)


def fixed_lag(
    prior: Gaussian, sequence: Iterable[Batch], lag: int, analyse: _Analyse = kalman.analyse
) -> Iterator[tuple[int, Gaussian]]:
    """Filter a stream and deliver each time again once ``lag`` later batches have been seen.

    Parameters
    ----------
    prior : Gaussian
        Law of the coefficients before the first item.
    sequence : iterable of (step, obs, y)
        As for ``kalman.run``; may be endless.
    lag : int
        How many later batches inform a belief; 0 gives the filter.
    analyse : callable, optional
        The analysis kernel of the forward filter.

    Yields
    ------
    (n, belief)
        Law of z_n given the readings up to n + lag, in order of n, as soon as
        batch n + lag has arrived; when the sequence ends, the remaining times
        follow with what was read until then. Holds ``lag + 1`` items at most;
        costs O(lag r^3) per batch.

    Examples
    --------
    >>> from rfkalman import Gaussian, LinearStep, Observation
    >>> sensor = Observation([[1.0]], std=1.0)
    >>> sequence = [(None, sensor, [3.0]), (LinearStep([1.0]), sensor, [3.0])]
    >>> [(n, round(float(belief.mean[0]), 12)) for n, belief in fixed_lag(Gaussian([0.0], root=[[1.0]]), sequence, 1)]
    [(0, 2.0), (1, 2.0)]
    """
    return _fixed_lag(prior, sequence, as_count("lag", lag, minimum=0), analyse)


def _fixed_lag(
    prior: Gaussian, sequence: Iterable[Batch], lag: int, analyse: _Analyse
) -> Iterator[tuple[int, Gaussian]]:
    window: deque[tuple[Gaussian, Batch]] = deque(maxlen=lag + 1)
    items, read = tee(sequence)
    n = -1
    for n, (item, belief) in enumerate(zip(items, kalman.run(prior, read, analyse), strict=False)):
        window.append((belief, item))
        if n >= lag:
            *_, future = _futures([item for _, item in window], belief.dim)
            yield n - lag, future.known_to(window[0][0], analyse)
    rest = list(window) if n < lag else list(window)[1:]
    smoothed = _backward([belief for belief, _ in rest], [item for _, item in rest], analyse)
    yield from enumerate(smoothed, start=max(0, n - lag + 1))


def _backward(analyses: Sequence[Gaussian], items: Sequence[Batch], analyse: _Analyse) -> list[Gaussian]:
    """Every belief given all batches of ``items``; the last one is the filter's."""
    futures = _futures(items, analyses[-1].dim if analyses else 0)
    return [future.known_to(belief, analyse) for belief, future in zip(reversed(analyses), futures, strict=False)][::-1]


def _futures(items: Sequence[Batch], r: int) -> Iterator[Future]:
    """What was read after each item; from the last item, which has no future, back."""
    future = Future(np.zeros((0, r)), np.zeros(0))
    yield future
    for step, obs, y in reversed(items[1:]):
        future = future.before(obs, y).earlier(step)
        yield future


class Future(NamedTuple):
    """All that later readings say of the state at one time, as at most r rows of unit noise: b = A z + noise."""

    A: FloatArray
    b: FloatArray

    def before(self, obs: Observation, y: ArrayLike) -> Future:
        """The future of the same time before a batch was read there."""
        r = self.A.shape[1]
        H, data, _ = unit_noise_rows(obs, y, r)
        A, b = np.vstack([self.A, H]), np.concatenate([self.b, data])
        if b.size > r:
            # What is left of b beyond the r rows does not depend on z: pure misfit, no information.
            A, b, _ = compressed_rows(A, b)
        return Future(A, b)

    def earlier(self, step: LinearStep | None) -> Future:
        """The future of the time at which a step begins, given that of its end.

        With z_{n+1} = F z_n + g + Q_root w the noise of the rows grows to
        I + (A Q_root)(A Q_root)^T. Rather than factorising that matrix, w is
        eliminated orthogonally from [A Q_root, A F | b - A g; I, 0 | 0], which squares nothing.
        """
        A, b = self
        if step is None or b.size == 0:
            return self
        require_step(step, A.shape[1])
        b = b if step.shift is None else b - A @ step.shift
        rows = step.apply_adjoint(A)
        if step.noise_root is None:
            return Future(rows, b)
        k = step.noise_root.shape[1]
        carried = np.zeros((b.size + k, A.shape[1] + 1))
        carried[: b.size, :-1], carried[: b.size, -1] = rows, b
        _, _, turned = eliminate(np.vstack([A @ step.noise_root, np.eye(k)]), carried)
        return Future(turned[k:, :-1], turned[k:, -1])

    def known_to(self, belief: Gaussian, analyse: _Analyse = kalman.analyse) -> Gaussian:
        """The filter's belief about that time, given what came later."""
        return belief if self.b.size == 0 else analyse(belief, Observation(self.A, std=1.0), self.b)
