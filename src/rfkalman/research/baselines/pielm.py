"""The static, one-shot relative of the filter: a Bayesian physics-informed extreme learning machine.

    -nu Laplace u + b . grad u + c u = f   in the domain,     u = g   on the boundary

The field is a sum of fixed features with Gaussian coefficients. Strong-form
residuals at collocation points, boundary values and readings are all rows of
one linear-Gaussian problem, whose posterior is in closed form: it is the one
Kalman update that a stationary problem needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from ... import Dirichlet, Gaussian, LinearPDE, Observation
from ...core.checks import FloatArray, as_count, as_points, as_positive, frozen
from ...core.errors import ConformityError, ShapeError, ValueRangeError
from ...domains import BallWindow, BoxWindow
from ...domains.base import require_inside
from ...features.base import FeatureMap, FeatureSum
from ...features.fourier import ConstantMap, FourierMap
from ...features.network import ELUMap, TanhMap
from ...features.sine import SineMap
from ...features.wrappers import Windowed
from ...filters import batch, kalman
from ...filters.kernels import finite_readings
from ...physics.conditions import evaluate
from .base import LinearField


def laplacian(features: FeatureMap, x: FloatArray, n_axes: int | None = None) -> FloatArray:
    """Laplace phi_j at the points x (n, d), over the first ``n_axes`` coordinates (all by default): exact, (n, M).

    Waves and sines multiply by -|w|^2, tanh by its second derivative; sums go
    part by part; windows of boxes and balls by the product rule, their own
    second derivative being that of a polynomial. ELU has no second
    derivative in L2 and is refused, as is every map that has no formula here.
    """
    d = x.shape[1] if n_axes is None else n_axes
    if isinstance(features, FeatureSum):
        return np.concatenate([laplacian(part, x, d) for part in features.parts], axis=1)
    if isinstance(features, Windowed) and isinstance(features.window, (BoxWindow, BallWindow)):
        values, gradients = features.inner.jet(x)
        beta, slopes = features.window.jet(x)
        bend = _polynomial_laplacian(features.window, x, features.side[:d])
        rows = beta[:, None] * laplacian(features.inner, x, d)
        rows += bend[:, None] * values
        for gradient, slope in zip(gradients[:d], slopes[:d], strict=True):
            rows += 2.0 * slope[:, None] * gradient
        return rows
    if isinstance(features, (FourierMap, SineMap)):
        waves = features.weights if isinstance(features, FourierMap) else features.frequencies
        return np.asarray(features(x) * -np.square(waves[:, :d]).sum(axis=1))
    if isinstance(features, TanhMap):
        values = features(x)
        t = values / features.scale
        return np.asarray(values * (1.0 - t * t) * (-2.0 * np.square(features.weights[:, :d]).sum(axis=1)))
    if isinstance(features, ConstantMap):
        return np.zeros((len(x), 1))
    reason = "has kinks, so its strong form is meaningless" if isinstance(features, ELUMap) else "has none here"
    raise ConformityError(
        f"Strong-form rows need second derivatives, and {type(features).__name__} {reason}. Use GaussianRFF, "
        "TanhNetwork or DirichletSine, alone, added, or windowed on a box or ball; the Galerkin route takes any map."
    )


def _polynomial_laplacian(window: BoxWindow | BallWindow, x: FloatArray, side: FloatArray) -> FloatArray:
    """Laplace beta (n,) from its exact gradients, over as many coordinates as there are sides.

    The five-point formula is exact for slopes of degree four, and these
    windows are polynomials of degree four at most along any line; so the
    points may be far apart, and nothing but rounding is lost.
    """
    total = np.zeros(len(x))
    for axis in range(len(side)):
        h = 0.25 * side[axis]
        at = []
        for k in (-2, -1, 1, 2):
            moved = x.copy()
            moved[:, axis] += k * h
            at.append(window.jet(moved)[1][axis])
        total += (at[0] - 8.0 * at[1] + 8.0 * at[2] - at[3]) / (12.0 * h)
    return total


def collocation_rows(features: FeatureMap, pde: LinearPDE, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Strong-form rows at points inside, (n, M), and their right-hand side f, (n,); both in the units of f.

    Features with one coordinate more than the domain have time as their last:
    the rows are then those of u_t + b . grad u + c u - nu Laplace u = f.
    """
    if callable(pde.diffusion) or np.ndim(pde.diffusion) != 0:
        raise ValueRangeError(
            "pde.diffusion must be one number: the strong form of a variable or tensor diffusion needs second "
            "derivatives one by one. Use the Galerkin route for such a PDE."
        )
    if pde.factors:
        raise ValueRangeError(f"pde must be stationary, but {', '.join(pde.factors)} has a factor of time.")
    if pde.conservative:
        raise ValueRangeError("pde must be in advective form, b . grad u; write a conservative one with c = div b.")
    d = pde.domain.dimension
    values, gradients = features.jet(x)
    b, c = pde.velocity_at(x[:, :d]), pde.reaction_at(x[:, :d])
    rows = -float(np.asarray(pde.diffusion)) * laplacian(features, x, d)
    for gradient, speed in zip(gradients[:d], b.T, strict=True):
        rows += speed[:, None] * gradient
    rows += c[:, None] * values
    if features.dimension == d:
        return rows, np.array(pde.source_at(x, 0.0), dtype=np.float64)
    rows += gradients[d]
    rhs = np.empty(len(x))
    for t in np.unique(x[:, d]):
        now = x[:, d] == t
        rhs[now] = pde.source_at(x[now, :d], float(t))
    return rows, rhs


def coefficient_prior(features: FeatureMap, std: float) -> Gaussian:
    """Independent coefficients of zero mean for which the field has about this standard deviation.

    The variance of the field is the coefficients' times |Phi(x)|^2; it is
    scaled by the features' own bound on that, which waves of random phase
    attain up to a factor of two.
    """
    scale = as_positive("std", std) / np.sqrt(features.envelope / 2.0)
    return Gaussian(np.zeros(features.n_features), scale * np.eye(features.n_features))


def fit(
    features: FeatureMap,
    pde: LinearPDE,
    prior: Gaussian,
    *,
    interior: ArrayLike,
    residual_std: float = 1e-6,
    boundary_order: int = 24,
    boundary_std: float = 1e-6,
) -> LinearField:
    """The law of a field given its PDE and its boundary values; :func:`condition` and :func:`fit_scale` add readings.

    The field is stationary, or, with features over space and time (one
    coordinate more than the domain, time last), the whole trajectory at once. One orthogonal
    factorisation of all rows, O(rows M^2); no normal equations. Rows of the PDE grow with the square of
    the frequency; each is measured by its own standard deviation under the prior, so that none outweighs the rest.

    Parameters
    ----------
    features : FeatureMap
        Bound to the PDE's domain; what :func:`laplacian` knows. Or to the box of
        that domain and an interval of time, windowed on the faces of space.
    pde : LinearPDE
        Constant scalar diffusion, Dirichlet conditions; velocity, reaction and
        source may vary in space, the source in time too if the features do.
    prior : Gaussian
        Of the raw coefficients, such as :func:`coefficient_prior`.
    interior : (N_c, d) array_like
        Collocation points; points in space and time, (N_c, d + 1), for such features.
    residual_std, boundary_std : float
        How far a row may miss, as a fraction of its standard deviation under the prior.
    boundary_order : int
        Quadrature order whose nodes carry the boundary rows; parts on which
        all features vanish and the value is zero need none and get none.
    """
    d = pde.domain.dimension
    if features.dimension not in (d, d + 1):
        raise ShapeError(
            f"features have {features.dimension} coordinates but the domain {d}; they need as many, or one more: time."
        )
    if prior.dim != features.n_features:
        raise ShapeError(f"prior has {prior.dim} coefficients but there are {features.n_features} features.")
    inside = as_points("interior", interior, features.dimension)
    require_inside(pde.domain, inside[:, :d], "interior")
    blocks = [(*collocation_rows(features, pde, inside), as_positive("residual_std", residual_std))]
    noise = as_positive("boundary_std", boundary_std)
    blocks += [(*rows, noise) for rows in _boundary_rows(features, pde, as_count("boundary_order", boundary_order))]
    H, rhs = np.vstack([rows for rows, _, _ in blocks]), np.concatenate([values for _, values, _ in blocks])
    std = np.concatenate([np.full(len(rows), share) for rows, _, share in blocks])
    size = np.linalg.norm(H @ prior.root, axis=1)
    # A row the prior is certain about says nothing; on its own scale it would have no noise either.
    live = size > 0.0
    obs = Observation(H[live], std=(std * size)[live])
    result = batch.solve(prior, [(None, obs, frozen(rhs[live]))])
    return LinearField(features, result.final, result.log_evidence)


def condition(
    features: FeatureMap, belief: Gaussian, sensors: ArrayLike, noise_std: float | FloatArray, y: ArrayLike
) -> LinearField:
    """The posterior given readings, from the law of the coefficients before them; those not finite drop out.

    ``log_evidence`` of the result is the density of the readings.
    """
    at = as_points("sensors", sensors, features.dimension)
    post = kalman.analyse(belief, Observation(features(at), std=noise_std), y)
    return LinearField(features, post, post.log_evidence)


def fit_scale(
    features: FeatureMap, belief: Gaussian, sensors: ArrayLike, noise_std: float | FloatArray, y: ArrayLike
) -> LinearField:
    """The posterior given readings, with the width of a zero-mean belief chosen by their evidence.

    The belief is that of the coefficients before the readings: a prior, or what
    :func:`fit` made of one and a homogeneous equation without readings. Its root is
    multiplied by the s > 0 that maximises the density of the readings,
    N(y; 0, s^2 A A^T + R) with A = Phi S, which one singular value decomposition of
    A gives for every s. ``log_evidence`` of the result is that density, so that
    other hyper-parameters (length scales, residual_std) can be chosen by it.

    Parameters
    ----------
    features : FeatureMap
    belief : Gaussian
        Zero mean, root (M, M).
    sensors, noise_std, y : (N_o, d), float or (N_o,), (N_o,) array_like
        Readings in the units of u; those that are not finite drop out.
    """
    if belief.mean.any():
        raise ValueRangeError("belief must have zero mean: only then is a change of its width one number.")
    at = as_points("sensors", sensors, features.dimension)
    obs, values = finite_readings(belief.dim, Observation(features(at), std=noise_std), y)
    U, size, _ = np.linalg.svd(obs.whiten(obs.H @ belief.root), full_matrices=False)
    data = np.square(U.T @ obs.whiten(values))

    def evidence(log_scale: FloatArray) -> FloatArray:
        """Up to a constant."""
        spread = 1.0 + np.square(np.exp(log_scale)[..., None] * size)
        return np.asarray(-0.5 * (data / spread + np.log(spread)).sum(axis=-1))

    if size.size and size[0] > 0.0:
        # Flat where the strongest direction is below the noise, falling where every one is above the readings.
        grid = np.linspace(-10.0, 30.0, 400) - math.log(size[0])
        best = int(evidence(grid).argmax())
        around = (grid[max(0, best - 1)], grid[min(best + 1, grid.size - 1)])
        top = minimize_scalar(lambda t: -float(evidence(np.array(t))), bounds=around, method="bounded")
        belief = Gaussian(belief.mean, math.exp(float(top.x)) * belief.root)
    post = kalman.analyse(belief, obs, values)
    return LinearField(features, post, post.log_evidence)


def _boundary_rows(features: FeatureMap, pde: LinearPDE, order: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Rows u = g on each part of the boundary, and their g."""
    for part, condition in pde.conditions.items():
        if not isinstance(condition, Dirichlet):
            raise ConformityError(
                f"boundary part {part!r} carries a {type(condition).__name__} condition, and only Dirichlet ones have "
                "rows here; use the Galerkin route for natural conditions."
            )
        g = condition.value
        if part in features.zero_parts and not callable(g) and g == 0.0:
            continue
        if features.dimension != pde.domain.dimension:
            raise ConformityError(
                f"features over space and time must vanish on {part!r}, where the value must be zero: window them with "
                "bubble(recipe, parts=...) on the faces of space."
            )
        x = np.concatenate([points for points, _, _ in pde.domain.boundary_rule(part, order).blocks(4096)])
        yield features(x), evaluate(f"boundary[{part!r}]", g, x, 0.0)
