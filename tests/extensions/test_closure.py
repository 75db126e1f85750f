"""The closure: W's law in a few numbers. Held against its definition written out, W's own filter, and known truths."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import ArchiveError, ShapeError, SpaceWarning, TimeError, ValueRangeError
from rfkalman.extensions import Closure
from rfkalman.filters import kalman, smoother
from rfkalman.space.twin import twin_of

# Two exact routes (STYLE, tolerances); prior over noise variance is at most 1e3 below, eps times that is 1e-13.
EXACT = 1e-10
#: Of steps around a late reading: found from products of columns, so the root of eps, times prior over noise std.
LATE = 1e-6
NOISE = 0.05
X = np.linspace(0.03, 0.97, 41)[:, None]
PLACES = np.array([[0.12], [0.31], [0.52], [0.64], [0.87]])
NAMES = tuple("abcde")
SENSORS = rk.points(PLACES, ids=NAMES)
#: Irregular; the first readings come when the fine structure is still there.
TIMES = (0.002, 0.005, 0.006, 0.015, 0.03)
ROUGH = rk.Sobolev(std=1.0, length=0.02)


def rod(rank: int = 6, **more: object) -> rk.WhitenedSpace:
    """Waves, so that the space also makes errors of its own in following the equation."""
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), diffusion=0.5, boundary=rk.Dirichlet(0.0), **more)
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(40, 0.25, seed=0)))
    s = np.square(space.singular_values / space.singular_values[0])
    return rk.whiten(pde, space.features, math.sqrt(s[rank - 1] * s[rank]))


@lru_cache(maxsize=1)
def models() -> dict[str, rk.Model]:
    """Known forcing in all of them; with and without noise in the dynamics, with every kind of unknown."""
    pushed = rod(source=lambda x, t: 5.0 * np.sin(9.0 * t) * x[:, 0])
    pde = rk.LinearPDE(
        rk.Interval(0.0, 1.0),
        diffusion=0.5,
        boundary={"x-": rk.Unknown((0.5, 1.0), rk.RandomWalk(2.0)), "x+": rk.Dirichlet(0.3)},
    )
    walled = rk.whiten(pde, rk.GaussianRFF(12, 0.25, seed=1), 1e-8)
    blocks = [
        rk.LatentSource(lambda x: np.exp(-0.5 * ((x[:, 0] - 0.4) / 0.1) ** 2), (1.0, 20.0), rk.Fixed(), "leak"),
        rk.SensorOffset(NAMES, 0.2, rk.RandomWalk(0.5)),
    ]
    return {
        "undriven": rk.Model(pushed, ROUGH, check="later"),
        "driven": rk.Model(pushed, ROUGH, process_noise=rk.Sobolev(3.0, 0.02), check="later"),
        "unknowns": rk.Model(walled, ROUGH, blocks=blocks, check="later"),
    }


def readings(model: rk.Model | Closure, times: tuple[float, ...] = TIMES, seed: int = 0) -> list[np.ndarray]:
    """Any numbers of the right size: most laws below hold whatever was read."""
    return list(np.random.default_rng(seed).standard_normal((len(times), len(PLACES))))


def record(model: rk.Model | Closure, times: tuple[float, ...] = TIMES, data: list[np.ndarray] | None = None) -> list:
    data = readings(model, times) if data is None else data
    items, t = [], model.start
    for now, y in zip(times, data, strict=True):
        items.append((model.step(t, now), model.observe(SENSORS, now, noise_std=NOISE), y))
        t = now
    return items


def fields(model: rk.Model | Closure, times: tuple[float, ...] = TIMES) -> list[rk.Field]:
    analyses = kalman.run(model.initial, record(model, times))
    return [model.field(belief, t) for belief, t in zip(analyses, times, strict=True)]


def maps(found: list[rk.Field]) -> np.ndarray:
    """Means and standard deviations at X, all times."""
    return np.array([(field.mean(X), field.std(X)) for field in found])


def whole(model: rk.Model) -> Closure:
    """One that follows everything: enough lags of enough sensors for as many rows as W has components."""
    return Closure(model, rk.points(np.linspace(0.05, 0.95, 40)[:, None], ids=[f"p{i}" for i in range(40)]), 0.003)


class WrittenOut:
    """The closure by its table: bases from an SVD, maps and remainders by subtraction, drivers never turned."""

    def __init__(self, closure: Closure, turn_drivers: int = 0, turn_rows: int = 0) -> None:
        self.W, self.k, self.O = closure.rich, closure.dim, closure._followed
        rng = np.random.default_rng(0)
        self.S = self.W.initial.root
        if turn_drivers:
            self.S = self.S @ np.linalg.qr(rng.standard_normal((self.S.shape[1],) * 2))[0]
        if turn_rows:
            self.O = np.linalg.qr(rng.standard_normal((len(self.O),) * 2))[0] @ self.O
        self.mean, self.t = self.W.initial.mean, self.W.start
        self.V = self.basis()

    def basis(self) -> np.ndarray:
        return np.linalg.svd(self.O @ self.S, full_matrices=False)[2][: self.k].T

    def fields(self) -> list[rk.Field]:
        found, belief = [], rk.Gaussian(np.zeros(self.k), np.eye(self.k))
        for t, y in zip(TIMES, readings(self.W), strict=True):
            step, self.t, before = self.W.step(self.t, t), t, self.V
            self.mean, self.S = step.F @ self.mean + step.g, step.F @ self.S
            if step.noise_root is not None:
                self.S = np.hstack([self.S, step.noise_root])
                before = np.vstack([before, np.zeros((step.noise_root.shape[1], self.k))])
            self.V = self.basis()
            Phi, M = self.V.T @ before, self.S @ self.V
            E = self.S - M @ self.V.T
            seen = self.W.observe(SENSORS, t, noise_std=NOISE)
            known = seen.H @ self.mean + (0.0 if seen.offset is None else seen.offset)
            R = seen.R + seen.H @ E @ E.T @ seen.H.T
            belief = kalman.forecast(belief, rk.LinearStep(Phi, None, self.V.T - Phi @ before.T))
            belief = kalman.analyse(belief, rk.Observation.from_cov(seen.H @ M, R, known), y)
            all_of_it = rk.Gaussian(self.mean + M @ belief.mean, np.hstack([M @ belief.root, E]))
            found.append(self.W.field(all_of_it, t))
        return found


@pytest.mark.parametrize("turns", [(0, 0), (1, 0), (0, 1)], ids=["as given", "drivers turned", "rows turned"])
@pytest.mark.parametrize("name", ["undriven", "driven", "unknowns"])
def test_it_is_its_definition_whatever_the_basis(name, turns):
    """QR of turned drivers against an SVD of drivers that are never turned, and of turned drivers and rows.

    Any orthonormal basis of the row space gives the same field. 1e-12 of the field: some hundred roundings.
    """
    closure = Closure(models()[name], SENSORS, 0.005, lags=(0, 1) if name == "unknowns" else (0,))
    assert closure.dim < closure.rich.dim  # something is left out
    assert_allclose(maps(fields(closure)), maps(WrittenOut(closure, *turns).fields()), atol=1e-12 * 5.0)


@pytest.mark.parametrize("name", ["undriven", "driven", "unknowns"])
def test_without_data_it_has_the_law_of_the_richer_space(name):
    """Means, variances and covariances between places at every time, also after fifty times the gaps."""
    closure = Closure(models()[name], SENSORS, 0.005)
    own, rich, t = closure.initial, closure.rich.initial, 0.0
    for now in (*TIMES, 0.3, 0.75):
        own, rich = kalman.forecast(own, closure.step(t, now)), kalman.forecast(rich, closure.rich.step(t, now))
        found, true = closure.field(own, now), closure.rich.field(rich, now)
        assert_allclose(found.mean(X), true.mean(X), atol=EXACT)
        assert_allclose(found.cov(X), true.cov(X), atol=EXACT)
        t = now
    small = closure.field(closure.initial, 0.0).parts(X)
    assert small.unresolved.max() > 0.1  # control: the part that a filter of V alone would not have


@pytest.mark.parametrize("name", ["undriven", "driven", "unknowns"])
def test_what_is_followed_has_the_right_covariance_between_neighbouring_times(name):
    """O w = O M zeta exactly, so cov(O w_t, O w_s) = O F cov(w_s) O^T is that of the state: O M Phi (O M)^T."""
    closure = Closure(models()[name], SENSORS, 0.005)
    W, O, k, t = closure.rich, closure._followed, closure.dim, 0.0
    law = W.initial
    for now in TIMES:
        before, after = (O @ closure._at(time).columns[:, :k] for time in (t, now))
        cross = O @ W.step(t, now).F @ law.cov @ O.T
        assert_allclose(after @ closure.step(t, now).F @ before.T, cross, atol=EXACT * np.abs(cross).max())
        law, t = kalman.forecast(law, W.step(t, now)), now


@pytest.mark.parametrize("name", ["undriven", "driven", "unknowns"])
def test_a_step_is_a_contraction_with_the_noise_that_keeps_the_variance(name):
    """norm(Phi) <= 1 and Phi Phi^T + Q = I; also where L has lost its rank (fifty times the gaps) and past known times.

    1e-12: some thousand roundings, as many as there are drivers squared.
    """
    closure = Closure(models()[name], SENSORS, 0.005)
    times = [0.0, *TIMES, *(50.0 * np.array(TIMES[2:])), 4.0]
    lost = closure._followed @ closure._at(4.0).columns[:, : closure.dim]
    assert name != "undriven" or np.linalg.matrix_rank(lost) < closure.dim
    gaps = [*itertools.pairwise(times), (0.0, TIMES[2]), (TIMES[0], 4.0)]
    for a, b in gaps:
        step = closure.step(a, b)
        assert np.linalg.norm(step.F, 2) <= 1.0 + 1e-12
        assert_allclose(step.F @ step.F.T + step.Q, np.eye(closure.dim), atol=1e-12)


@pytest.mark.parametrize("gaps", [1.0, 50.0])
def test_where_everything_is_followed_it_is_the_richer_filter(gaps):
    """k = p: nothing is approximated. A prior in coefficients of V has as many drivers; a law needs more rows."""
    times = tuple(gaps * np.array(TIMES))
    stated = rk.Model(models()["undriven"].space, rk.isotropic(1.0), check="later")
    for closure in (Closure(stated), *(whole(models()[name]) for name in ("undriven", "driven"))):
        assert closure.field(closure.initial, 0.0).beyond is None
        assert_allclose(maps(fields(closure, times)), maps(fields(closure.rich, times)), atol=EXACT)
        a, b = ([p.log_evidence for p in kalman.run(m.initial, record(m, times))] for m in (closure, closure.rich))
        assert_allclose(a, b, rtol=EXACT)
    # Six numbers, and yet not the filter of V, which strays from the equation; nor is the cut one the richer filter.
    assert Closure(stated).dim == stated.dim == 6
    assert np.abs(maps(fields(Closure(stated))) - maps(fields(stated)))[:, 0].max() > 1e-3
    cut = Closure(models()["undriven"])
    assert np.abs(maps(fields(cut)) - maps(fields(cut.rich))).max() > 0.05


def test_smoother_and_unknowns_are_those_of_the_richer_space_where_everything_is_followed():
    stated = models()["unknowns"]
    closure, data = whole(stated), readings(stated)
    given = [record(model, TIMES, data) for model in (closure, closure.rich)]
    both = [list(kalman.run(model.initial, items)) for model, items in zip((closure, closure.rich), given, strict=True)]
    smoothed = [smoother.fixed_interval(a, items) for a, items in zip(both, given, strict=True)]
    for n, t in enumerate(TIMES):
        for a, b in (both, smoothed):
            own, rich = closure.field(a[n], t), closure.rich.field(b[n], t)
            assert_allclose(own.mean(X), rich.mean(X), atol=EXACT)
            assert_allclose(own.std(X), rich.std(X), atol=EXACT)
            found, true = closure.unknowns(a[n], t), closure.rich.unknowns(b[n], t)
            assert set(found) == {"x-", "leak", "offset"}
            for name in found:
                assert_allclose(found[name].mean, true[name].mean, atol=EXACT * 20.0)  # the leak has a std of 20
                assert_allclose(found[name].std, true[name].std, atol=EXACT * 20.0)


@pytest.mark.parametrize("name", ["undriven", "driven", "unknowns"])
def test_unknowns_are_followed_whole(name):
    """What is left out has no part in walls, sources and offsets: identity rows in O."""
    closure = Closure(models()[name])
    R, k = closure.rich.space.rank, closure.dim
    assert closure.rich.dim - R == {"unknowns": 7}.get(name, 0)
    for t in TIMES:
        columns = closure._at(t).columns
        assert np.abs(columns[R:, k:]).max(initial=0.0) <= 1e-13 * np.abs(columns).max()


@pytest.mark.parametrize("name", ["undriven", "driven"])
def test_a_late_reading_gives_what_reading_in_order_gives(name):
    """With a new time between known ones, a forecast beyond, and a replay at known times, which is bit for bit."""
    model, data = models()[name], readings(models()[name])
    ordered = rk.Assimilator(Closure(model), reorder=math.inf)
    late = rk.Assimilator(Closure(model), reorder=math.inf)
    for filt, order in ((ordered, range(5)), (late, (0, 3, 4, 1, 2))):
        for n in order:
            filt.forecast(max(filt.time, 0.02))
            filt.advance(max(filt.time, TIMES[n]))
            filt.observe(SENSORS, data[n], noise_std=NOISE, time=TIMES[n])
    a, b = ordered.posterior(), late.posterior()
    assert_allclose(a.mean(X), b.mean(X), atol=LATE)
    assert_allclose(a.std(X), b.std(X), atol=LATE)
    assert late.log_evidence == pytest.approx(ordered.log_evidence, rel=LATE)
    assert_allclose(late.smooth()[0].mean(X), ordered.smooth()[0].mean(X), atol=LATE)
    again = rk.Assimilator(ordered.model, reorder=math.inf)
    again.advance(TIMES[-1])
    for n in (4, 1, 2, 0, 3):
        again.observe(SENSORS, data[n], noise_std=NOISE, time=TIMES[n])
    assert_array_equal(again.posterior().mean(X), a.mean(X))
    without = rk.Assimilator(Closure(model))
    for n in (0, 3, 4):
        without.advance(TIMES[n])
        without.observe(SENSORS, data[n], noise_std=NOISE)
    assert np.abs(without.posterior().mean(X) - a.mean(X)).max() > 1e-2  # control: the late readings said something


def test_the_cap_on_drivers_keeps_what_is_followed_and_owns_up_to_the_rest():
    """At the start the band is W's whatever the cap; later the part that was given up before is missing.

    Given up are the smallest columns, 13 of 33 at first: less than 2 % of the variance of any later time.
    """
    model = models()["driven"]
    free, tight = Closure(model), Closure(model, p_max=20)
    assert_array_equal(maps(fields(Closure(model, p_max=free.rich.dim))), maps(fields(free)))
    assert [c._at(TIMES[2]).p for c in (free, tight)] == [free.rich.dim, 20]
    own, t = [free.initial, tight.initial], 0.0
    for now in (0.0, *TIMES):
        own = [kalman.forecast(belief, c.step(t, now)) for c, belief in zip((free, tight), own, strict=True)]
        before, after = (c.field(b, now).std(X) ** 2 for c, b in zip((free, tight), own, strict=True))
        assert (after <= before * (1.0 + EXACT)).all()
        assert_allclose(after, before, rtol=EXACT if now == 0.0 else 0.02)
        seen = [c.observe(SENSORS, now, noise_std=NOISE) for c in (free, tight)]
        read = [obs.H @ obs.H.T + obs.R for obs in seen]
        assert_allclose(read[1], read[0], atol=(EXACT if now == 0.0 else 0.02) * read[0].max())
        t = now
    bare = tight._at(0.0).columns[:, :20]  # control: what is given up is no rounding
    assert (np.square(bare).sum() - np.square(tight._at(0.0).columns).sum()) < -1e-3


COVERAGE_TIMES = tuple(0.001 * (1 + np.arange(20)))


def coverage(model: rk.Model | Closure, truth: rk.Model, n: int = 60) -> float:
    """Share of places and times inside the 90 % band, over n truths drawn from a model on another, larger space."""
    rng = np.random.default_rng(5)
    states = truth.initial.mean[:, None] + truth.initial.root @ rng.standard_normal((truth.initial.root.shape[1], n))
    inside, true, t = [], [], 0.0

    def batches():
        nonlocal states, t
        for now in COVERAGE_TIMES:
            step = truth.step(t, now)
            states = step.move(states)
            if step.noise_root is not None:
                states = states + step.noise_root @ rng.standard_normal((step.noise_root.shape[1], n))
            seen = truth.observe(SENSORS, now, noise_std=NOISE)
            y = seen.H @ states + (0.0 if seen.offset is None else seen.offset[:, None])
            y = y + NOISE * rng.standard_normal(y.shape)
            true.append(truth.space.frame(X) @ truth.coefficients(states, now))
            yield model.step(t, now), model.observe(SENSORS, now, noise_std=NOISE), y
            t = now

    for now, found in zip(COVERAGE_TIMES, kalman.run_streams(model.initial, batches()), strict=True):
        means = model.space.frame(X) @ model.coefficients(found.means.T, now)
        std = model.field(rk.Gaussian(found.means[0], found.root), now).std(X)
        inside.append(np.abs(true[-1] - means) <= 1.6449 * std[:, None])
    return float(np.mean(inside))


@pytest.mark.parametrize("name", ["undriven", "driven", "unknowns"])
def test_bands_hold_what_they_promise_where_those_of_the_space_alone_do_not(name):
    """60 truths from a larger space drawn apart; their 90 % bands hold 85 to 95 % of them. Plain is the control.

    The standard error over truths is about 0.01; W's own filter has 0.905, 0.905, 0.913, V's (plain) 0.27, 0.66, 0.57.
    """
    model = models()[name]
    truth = model.restated(twin_of(model.space, draw=1, rank=model.rank_for(0.99)))
    prior, noise, blocks = model._given
    with pytest.warns(SpaceWarning, match="shorter than the space can carry"):
        laws = [None if law is None else law.on(model.space) for law in (prior, noise)]
    plain = rk.Model(model.space, laws[0], process_noise=laws[1], blocks=blocks, check="later")
    assert plain.unresolved is None
    ours, theirs = coverage(Closure(model, SENSORS, 0.001), truth), coverage(plain, truth)
    assert 0.85 <= ours <= 0.95
    assert theirs < 0.7


def test_old_times_can_be_forgotten():
    closure = Closure(models()["driven"])
    expected = maps(fields(closure))
    closure.forget(TIMES[3])
    assert sorted(closure._moments) == [TIMES[2], *TIMES[3:]]
    with pytest.raises(TimeError, match=r"lies before 0\.006, the first time that is kept"):
        closure.step(0.0, TIMES[1])
    fresh = Closure(models()["driven"])
    assert_array_equal(maps(fields(fresh)), expected)


def test_misuse_is_explained(tmp_path):
    model = models()["undriven"]
    with pytest.raises(ShapeError, match="model must be a Model"):
        Closure(model.space)
    with pytest.raises(ValueRangeError, match="gap is needed with sensors"):
        Closure(model, SENSORS)
    with pytest.raises(ValueRangeError, match="p_max must be at least 6"):
        Closure(model, p_max=3)
    closure = Closure(model)
    with pytest.raises(TimeError, match="a step goes forward"):
        closure.step(0.2, 0.1)
    with pytest.raises(TimeError, match=r"lies before 0\.0,"):
        closure.step(-1.0, 0.1)
    with pytest.raises(ShapeError, match="belief has 3 components but the state of this model has 6"):
        closure.field(rk.Gaussian(np.zeros(3), np.eye(3)), 0.0)
    with pytest.raises(ArchiveError, match="an Assimilator of a Closure cannot be saved"):
        rk.save(tmp_path / "filter.npz", rk.Assimilator(closure))
    with pytest.raises(ValueRangeError, match="a Model already has its prior"):
        rk.Assimilator(closure, rk.isotropic(1.0))
    assert repr(closure).startswith("Closure(dim=6, space=WhitenedSpace(")
