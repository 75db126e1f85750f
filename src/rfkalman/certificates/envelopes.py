"""How large and how steep the raw features get: bounds known from a draw, or from the law it was drawn from.

E bounds the sum of squared values, G the sum of squared slopes. A frozen draw
knows both for certain; before it is drawn they hold with a stated probability
(paper, "Gaussian RFF approximation and leverage certificate", "Conditional ELU/RFM
approximation and leverage certificate", "Dirichlet-bubble Gaussian RFF certificate").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.checks import as_count, as_nonnegative, as_positive, as_share
from ..domains import Window
from ..features.base import FeatureMap
from .findings import CHANCE


@dataclass(frozen=True, slots=True)
class Envelopes:
    """Bounds on the raw features, known from the draw or from the law it was drawn from.

    Attributes
    ----------
    values : float
        E, a bound on sum_j phi_j(x)^2.
    gradients : float
        G, a bound on sum_j sup |grad phi_j|^2.
    failure_prob : float
        Probability over the draw that E or G is exceeded; zero for a draw that was looked at.
    gradients_failure_prob : float
        That G is.
    source : str
        Where they come from, in words.
    """

    values: float
    gradients: float
    failure_prob: float = 0.0
    gradients_failure_prob: float = 0.0
    source: str = "the draw"

    def windowed(self, window: Window) -> Envelopes:
        """Envelopes of the features times a window b, such as ``features.window`` of a bubble.

        The deterministic adjustment of "Dirichlet-bubble Gaussian RFF
        certificate": |b phi| <= |b|_inf |phi| and |grad(b phi)| <= |b|_inf |grad phi| + |grad b|_inf |phi|,
        the latter summed over the features by the triangle inequality.
        ``values`` must bound the sum of squared suprema, as those of the families here do.
        """
        E, G = math.sqrt(self.values), math.sqrt(self.gradients)
        slope = window.sup_value * G + window.sup_gradient * E
        # The new gradient envelope leans on both of the old ones, so it fails when either does.
        both = self.failure_prob
        return Envelopes((window.sup_value * E) ** 2, slope**2, both, both, f"{self.source}, windowed")


def drawn_envelopes(features: FeatureMap) -> Envelopes:
    """The envelopes of a frozen draw, which are certain."""
    return Envelopes(features.envelope, features.gradient_envelope)


def rff_envelopes(n_features: int, dimension: int, gamma: float, failure_prob: float) -> Envelopes:
    """Envelopes of Gaussian random Fourier features: E = 2 M, which is certain, and a bound on G = 2 sum_j |w_j|^2.

    The Laurent-Massart tail of chi^2 with M d degrees of freedom (paper,
    "Gaussian RFF approximation and leverage certificate").

    Parameters
    ----------
    n_features, dimension : int
        M and d.
    gamma : float
        1 / length_scale; the largest where it differs between axes.
    failure_prob : float
        delta_grad.

    Examples
    --------
    >>> rff_envelopes(100, 2, gamma=1.0, failure_prob=0.01).gradients > 2 * 100 * 2
    True
    """
    G = 2.0 * as_positive("gamma", gamma) ** 2 * _chi2_tail(n_features, dimension, failure_prob)
    return Envelopes(2.0 * n_features, G, failure_prob, failure_prob, "the law of Gaussian random Fourier features")


def elu_envelopes(
    n_features: int,
    dimension: int,
    scale: float,
    alpha: float,
    weight_std: float,
    offset_std: float,
    failure_prob: float,
    diameter: float | None = None,
) -> Envelopes:
    """Envelopes of shallow ELU features, each exceeded with at most half of the failure probability.

    "Conditional ELU/RFM approximation and leverage certificate". E is the paper's B_elu squared: with the centre c
    of a feature in the domain, |w.x + b| <= |w| diameter + |xi|; Gaussian concentration bounds
    every |w_j| and every |xi_j|, each of the 2 M events with its share of the probability. G bounds
    s^2 max(1, alpha)^2 sum_j |w_j|^2, by the tail of chi^2 with M d degrees of freedom.

    Parameters
    ----------
    n_features, dimension : int
        M and d.
    scale, alpha : float
        s and alpha, ``scale`` and ``alpha`` of ``ELUNetwork``.
    weight_std : float
        a: w is normal with variance a^2 / d. It is 1 / length_scale of ``ELUNetwork``,
        the largest where that differs between axes.
    offset_std : float
        beta, ``offset_std`` of ``ELUNetwork``.
    failure_prob : float
        delta_env + delta_grad.
    diameter : float, optional
        Of the domain; sqrt(d), that of the unit cube, by default.
    """
    half = 0.5 * as_share("failure_prob", failure_prob, CHANCE)
    M, d = as_count("n_features", n_features), as_count("dimension", dimension)
    s, a, bend = as_positive("scale", scale), as_positive("weight_std", weight_std), as_positive("alpha", alpha)
    across = 1.0 if diameter is None else as_positive("diameter", diameter) / math.sqrt(d)
    t = math.sqrt(2.0 * math.log(2.0 * M / half))
    largest = bend + a * across * (math.sqrt(d) + t) + as_nonnegative("offset_std", offset_std) * t
    G = (s * max(1.0, bend) * a) ** 2 / d * _chi2_tail(M, d, half)
    return Envelopes(M * (s * largest) ** 2, G, 2.0 * half, half, "the law of shallow ELU features")


def _chi2_tail(n_features: int, dimension: int, failure_prob: float) -> float:
    k = as_count("n_features", n_features) * as_count("dimension", dimension)
    t = -math.log(as_share("failure_prob", failure_prob, CHANCE))
    return k + 2.0 * math.sqrt(k * t) + 2.0 * t
