"""What a space cannot hold: in the noise of readings, in every band, and nowhere where there is nothing."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import ResolutionWarning, ValueRangeError
from rfkalman.diagnostics.scores import crps

NU, LENGTH, NOISE = 0.1, 0.03, 0.05
TIMES = np.linspace(0.0005, 0.01, 12)
LAW = rk.Sobolev(std=1.0, length=LENGTH)
#: Sine modes of a rod held at zero at both ends: the closed form, with all but 1e-6 of the variance.
MODES = np.arange(1, 400)
RATES = np.square(np.pi * MODES)
VARIANCES = (1.0 + LENGTH**2 * RATES) ** -2.0
VARIANCES = VARIANCES / VARIANCES.sum()


@functools.cache
def rod(n: int = 30, length_scale: float = 0.12) -> rk.WhitenedSpace:
    """Rank 14 for fields that need 40."""
    return rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), NU), rk.bubble(rk.GaussianRFF(n, length_scale)))


@functools.cache
def rough() -> rk.Model:
    return rk.Model(rod(), LAW)


def sines(x: np.ndarray) -> np.ndarray:
    return np.sqrt(2.0) * np.sin(np.pi * np.asarray(x)[:, :1] * MODES)


def twins(model: rk.Model, n: int, moving: bool) -> tuple[float, float, float]:
    """Coverage of 90 % bands over truths of the closed form, its standard error over twins, and the score."""
    shares, scores = [], []
    probe = np.linspace(0.03, 0.97, 40)[:, None]
    at = sines(probe)
    for seed in range(n):
        rng = np.random.default_rng([seed, 7])
        truth = np.sqrt(VARIANCES) * rng.standard_normal(MODES.size)
        fixed = rng.uniform(0.02, 0.98, (8, 1))
        filt, inside, own = rk.Assimilator(model), [], []
        for t in TIMES:
            now = truth * np.exp(-NU * RATES * t)
            x = rng.uniform(0.02, 0.98, (8, 1)) if moving else fixed
            filt.advance(t)
            filt.observe(rk.points(x), sines(x) @ now + NOISE * rng.standard_normal(8), noise_std=NOISE)
            field = filt.posterior()
            error, std = at @ now - field.mean(probe), field.std(probe)
            inside.append(np.mean(np.abs(error) <= 1.6448536 * std))
            own.append(crps(error, std).mean())
        shares.append(np.mean(inside))
        scores.append(np.mean(own))
    return float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(n)), float(np.mean(scores))


@pytest.mark.parametrize("moving", [True, False], ids=["moving", "fixed"])
def test_bands_hold_fields_that_the_space_cannot(moving):
    """Truths by sine series, drawn from the very law of the prior: 90 % bands hold 85 to 95 % of them. The control is
    the same filter with a prior that is stated in its coefficients: it knows of nothing else, and holds half."""
    share, error, score = twins(rough(), 24, moving)
    assert 0.85 - 2.0 * error < share < 0.95 + 2.0 * error
    plain = rk.Model(rod(), LAW.on(rod()))
    blind, _, worse = twins(plain, 24, moving)
    assert blind < 0.75
    assert score < worse


def test_the_law_is_divided_between_the_space_and_the_rest():
    """In coefficients: what the space has is the law seen through the overlap, never scaled up to the whole; with what
    it has not, and with what the twin has not, the variance is the one stated."""
    model = rough()
    twin = model.twin()
    held = np.square(model.initial.root).sum()
    field = model.field(model.initial, 0.0)
    whole = np.square(LAW.within(twin.space).root).sum()
    assert 0.9 * LAW.variance < whole < 0.99 * LAW.variance
    assert_allclose(field.total_variance(), LAW.variance, rtol=1e-6)
    assert held < 0.9 * whole
    assert model.report().prior == pytest.approx(held / LAW.variance)
    # The law in the twin is that of the closed form, as far as the twin goes: Weyl's count of the rest is right to 1 %.
    own = np.sort(np.square(np.linalg.svd(LAW.within(twin.space).root, compute_uv=False)))[::-1]
    assert_allclose(own[:15], VARIANCES[:15], rtol=0.02)


def test_nothing_is_unresolved_of_a_prior_in_coefficients():
    """The space is the prior: noise, bands and numbers are those of the plain filter, to the bit."""
    for prior in (rk.isotropic(1.0), LAW.on(rod())):
        model = rk.Model(rod(), prior)
        assert model.unresolved is None
        x = np.array([[0.3], [0.6]])
        assert model.observe(rk.points(x), 0.01, noise_std=0.1).std == 0.1
        assert not model.field(model.initial, 0.0).parts(x).unresolved.any()


def test_where_nothing_is_left_unresolved_the_noise_is_the_stated_one():
    """After a while diffusion has removed what the space cannot hold: the observation is the plain one, to the bit."""
    model, sensors = rough(), rk.points([[0.3], [0.6]])
    early, late = (model.observe(sensors, t, noise_std=0.1) for t in (1e-4, 1.0))
    assert early.std is None and early.factor is not None
    assert late.std == 0.1 and late.factor is None


def test_what_is_unresolved_does_not_depend_on_who_asked_before():
    """A time has one answer, whatever was asked earlier: bits, also in another model of the same statements."""
    times = [0.003, 0.0001, 0.02, 0.0007, 0.0001]
    models = [rk.Model(rod(), LAW, check=check) for check in ("now", "later")]
    first = {t: models[0].unresolved.columns(t) for t in times}
    for t in reversed(times):
        assert_array_equal(models[1].unresolved.columns(t), first[t])


def test_readings_in_any_order_and_a_restart_give_the_same_bits(tmp_path):
    """Late readings, a saved assimilator that goes on, and a saved field: bands included."""
    rng = np.random.default_rng(1)
    sensors, record = rk.points(rng.uniform(0.05, 0.95, (5, 1))), [(t, rng.standard_normal(5)) for t in TIMES[:6]]
    in_order, shuffled = (rk.Assimilator(rough(), reorder=1.0) for _ in range(2))
    for t, y in record:
        in_order.advance(t)
        in_order.observe(sensors, y, noise_std=NOISE)
    shuffled.advance(record[-1][0])
    for i in (3, 0, 5, 1, 4, 2):
        shuffled.observe(sensors, record[i][1], noise_std=NOISE, time=record[i][0])
    assert_array_equal(shuffled.belief.mean, in_order.belief.mean)
    x = np.linspace(0.0, 1.0, 21)[:, None]
    half = rk.Assimilator(rough())
    for t, y in record[:3]:
        half.advance(t)
        half.observe(sensors, y, noise_std=NOISE)
    again = rk.load(rk.save(tmp_path / "half", half))
    for t, y in record[3:]:
        for filt in (half, again):
            filt.advance(t)
            filt.observe(sensors, y, noise_std=NOISE)
    assert_array_equal(again.belief.root, half.belief.root)
    assert_array_equal(again.posterior().std(x), half.posterior().std(x))
    field = half.posterior()
    back = rk.load(rk.save(tmp_path / "field", field))
    assert_array_equal(back.std(x), field.std(x))
    assert (field.parts(x).unresolved[1:-1] > 0.0).all()


def test_samples_covariances_and_parts_say_the_same():
    """The variance of 4000 samples is std^2 (4 standard errors of a variance, sqrt(2 / 4000)), the diagonal of the
    covariance is std^2, the squares of the parts add up, and so for gradients."""
    model = rough()
    filt = rk.Assimilator(model)
    filt.advance(0.001)
    filt.observe(rk.points([[0.3], [0.7]]), [0.5, -0.2], noise_std=NOISE)
    field, x = filt.posterior(), np.linspace(0.1, 0.9, 9)[:, None]
    std, parts = field.std(x), field.parts(x)
    assert_allclose(np.square(parts.posterior) + np.square(parts.unresolved), np.square(std), rtol=1e-12)
    assert_allclose(np.sqrt(np.diagonal(field.cov(x))), std, rtol=1e-12)
    drawn = field.sample(4000, seed=3)(x)
    assert_allclose(drawn.var(axis=0), np.square(std), rtol=4.0 * np.sqrt(2.0 / 4000.0))
    assert np.abs(drawn.var(axis=0) / np.square(parts.posterior) - 1.0).max() > 0.2  # the control: without the rest
    h = 1e-4
    stacked = field.cov(np.vstack([x + h, x - h]))
    n = len(x)
    slopes = (np.diagonal(stacked[:n, :n]) + np.diagonal(stacked[n:, n:]) - 2.0 * np.diagonal(stacked[:n, n:])) / (
        4.0 * h * h
    )
    assert_allclose(field.gradient_std(x)[:, 0], np.sqrt(slopes), rtol=1e-3)
    low, high = field.interval(x)
    assert_allclose(high - low, 2.0 * 1.6448536 * std, rtol=1e-7)


def test_a_space_that_carries_its_problem_is_silent_and_one_that_does_not_is_warned_about_or_refused():
    """The limits are 80 and 30 % of the variance and 1 % in the equation; an error instead of a warning builds
    nothing."""
    pde = rk.Heat(rk.Interval(0.0, 1.0), NU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine = rk.Model(rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, 0.1))), rk.Sobolev(1.0, 0.1))
    assert fine.report().prior > 0.99 and fine.report().equation < 1e-3 and not fine.report().warnings
    with pytest.warns(ResolutionWarning, match=r"holds 7\d % of the variance of the prior"):
        coarse = rk.Model(rod(), rk.Sobolev(1.0, 0.02))
    assert "length_scale" in str(coarse.report())
    with pytest.raises(ValueRangeError, match=r"holds only \d+ % of the variance of the prior .* at least 30 %"):
        rk.Model(rk.whiten(pde, rk.bubble(rk.GaussianRFF(30, 0.5))), rk.Sobolev(1.0, 0.005))
    jump = rk.Heat(rk.Interval(0.0, 1.0), rk.layers(0, [0.4], [1.0, 100.0]))
    with pytest.warns(ResolutionWarning, match=r"strays from its own equation by \d\d %"):
        rk.Model(rk.whiten(jump, rk.bubble(rk.GaussianRFF(60, 0.2)), enrich=False), rk.isotropic(1.0))
    with pytest.raises(ValueRangeError, match='check must be "now" or "later"'):
        rk.Model(rod(), LAW, check="never")


def test_unknown_walls_sources_and_offsets_ride_along():
    """A rehearsal with a wandering wall of its own length, a source field and offsets: bands hold the truths, and with
    process noise too. The control: a filter that takes the noise of readings for half of what it is."""
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    wall = rk.Unknown((0.0, 1.0), rk.RandomWalk(1.0), length=0.4)
    pde = rk.Heat(box, 0.05, boundary={"x-": wall, "*": rk.Neumann()})
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(120, 0.35))
    blocks = [rk.SourceField(0.5, 0.3, 1.0), rk.SensorOffset(["a", "b"], std=0.2)]
    model = rk.Model(space, rk.Sobolev(1.0, 0.12), process_noise=rk.Sobolev(0.3, 0.12), blocks=blocks)
    places = np.random.default_rng(2).uniform(0.05, 0.95, (10, 2))
    sensors = rk.points(places, ids=["a", "b", *"cdefghij"])
    trial = rk.rehearse(model, sensors, np.linspace(0.05, 1.0, 10), noise_std=0.1, n=24)
    assert 0.84 < trial.coverage["90"] < 0.96 and trial.holds
    assert trial.crps < trial.crps_no_data
    assert trial.as_dict()["count"] == 24


@pytest.mark.parametrize(
    ("factor", "clock"),
    [
        (
            rk.TimeSeries([0.0, 0.01, 0.02], [0.002, 0.002, 1.0]),
            lambda t: 0.002 * t + 0.998 * max(t - 0.01, 0.0) ** 2 / 0.02,
        ),
        (lambda t: 0.01 + 2.0 * np.exp(-200.0 * t), lambda t: 0.01 * t + 0.01 * (1.0 - np.exp(-200.0 * t))),
    ],
    ids=["series", "function"],
)
def test_where_one_factor_moves_the_whole_drift_the_law_is_that_of_its_own_time(factor, clock):
    """exp(-K s) with s the integral of the factor: what is unresolved at t is what constant coefficients leave at s.
    Nodes lie elsewhere, between which it is interpolated: a tenth. By the average of the factor it was off by 40 to
    1e8 times, and 90 % bands held 35 and 42 %."""
    features, sensors = rk.bubble(rk.GaussianRFF(30, 0.12)), rk.points([[0.21], [0.52], [0.8]])
    steady = rk.Heat(rk.Interval(0.0, 1.0), NU)
    moving = rk.LinearPDE(rk.Interval(0.0, 1.0), rk.modulated(NU, factor), boundary=rk.Dirichlet(0.0))
    plain, changing = (rk.Model(rk.whiten(pde, features), LAW, check="later").unresolved for pde in (steady, moving))
    for t in (0.001, 0.008, 0.015, 0.02):
        ours, exact = changing.covariance(sensors, t), plain.covariance(sensors, clock(t))
        assert_allclose(np.diagonal(ours), np.diagonal(exact), rtol=0.1)


def test_the_time_of_changing_coefficients_is_saved_and_does_not_depend_on_who_asked(tmp_path):
    """A loaded model has the bits of the saved one, also where the twin's law has a time of its own."""
    factor = rk.TimeSeries([0.0, 0.01, 0.02], [0.1, 2.0, 1.0])
    pde = rk.LinearPDE(rk.Interval(0.0, 1.0), rk.modulated(NU, factor), boundary=rk.Dirichlet(0.0))
    filt = rk.Assimilator(rk.Model(rk.whiten(pde, rk.bubble(rk.GaussianRFF(30, 0.12))), LAW, check="later"))
    filt.advance(0.004)
    rk.save(tmp_path / "filter.npz", filt)
    again = rk.load(tmp_path / "filter.npz")
    for one in (filt, again):
        one.advance(0.013)
        one.observe(rk.points([[0.3], [0.6]]), [0.2, 0.1], noise_std=NOISE)
    assert_array_equal(filt.posterior().std([[0.45]]), again.posterior().std([[0.45]]))


def test_what_not_even_the_twin_holds_is_in_the_band():
    """A cube of which the space holds 60 % and the twin 66 %: the field has the stated variance, all of it."""
    law = rk.Sobolev(std=1.5, length=0.1)
    space = rk.whiten(rk.Heat(rk.Box([0.0] * 3, [1.0] * 3)), rk.bubble(rk.GaussianRFF(200, 0.7)))
    model = rk.Model(space, law, check="later")
    twin = np.square(law.within(model.twin().space).root).sum()
    assert twin < 0.6 * law.variance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model._pending.clear()
        total = model.field(model.initial, 0.0).total_variance()
    assert_allclose(total, law.variance, rtol=1e-6)
