"""Where the next sensors tell most: exact against filters that have them, and better than not choosing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from scipy.stats import qmc

import rfkalman as rk
from rfkalman.core.errors import OutsideDomainError, ShapeError, TimeError, ValueRangeError
from rfkalman.filters import kalman
from rfkalman.physics import Bump
from rfkalman.placement import suggest
from rfkalman.placement.course import looks
from rfkalman.placement.suggestion import spread_evenly

ROD = rk.Interval(0.0, 1.0)
TIMES = np.array([0.1, 0.2, 0.35, 0.4, 0.5])
PLACES = np.array([[0.15], [0.3], [0.55], [0.8], [0.97]])


def rod(features=20, length=0.3, prior=None, noise=None, blocks=(), sides=None):
    """A rod with few directions, held at both ends where nothing else is said."""
    recipe = rk.GaussianRFF(features, length_scale=length)
    pde = rk.Heat(ROD, 0.1) if sides is None else rk.Heat(ROD, 0.1, boundary=sides)
    space = rk.whiten(pde, rk.bubble(recipe) if sides is None else recipe, 1e-8)
    return rk.Model(space, prior or rk.isotropic(1.0), process_noise=noise or rk.isotropic(0.5), blocks=list(blocks))


def rough(blocks=()):
    """Much of the prior and of the process noise is beyond the space: noise that neighbours share."""
    law = rk.Sobolev(std=1.0, length=0.06)
    return rod(12, 0.4, law, law, blocks)


def expected_variance(model, sensors, noise, times=TIMES, belief=None, start=None):
    """The slow route: the filter with these sensors, any readings, and the field at every batch."""
    t, belief = (model.start, model.initial) if belief is None else (start, belief)
    rng, batches = np.random.default_rng(0), []
    for now in times.tolist():
        obs = model.observe(sensors, now, noise_std=noise)
        batches.append((model.step(t, now) if now > t else None, obs, rng.standard_normal(sensors.n)))
        t = now
    found = [
        model.field(post, now).total_variance() for post, now in zip(kalman.run(belief, batches), times, strict=True)
    ]
    return float(np.mean([found[k] for k in looks(times.size)]))


def with_one_more(model, sensors, noise, place, new, name="extra"):
    ids = None if sensors.ids is None else [name]
    return expected_variance(model, rk.stack(sensors, rk.points([place], ids)), np.append(noise, new))


UNKNOWN_END = {"x-": rk.Dirichlet(rk.Unknown(prior=1.0, process=rk.RandomWalk(1.0))), "x+": rk.Neumann(0.0)}
MODELS = {
    "plain": rod,
    "beyond the space": rough,
    "an unknown end": lambda: rod(30, 0.3, rk.Sobolev(1.0, 0.2), rk.Sobolev(0.5, 0.2), sides=UNKNOWN_END),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_candidate_is_judged_as_the_filter_that_has_it(name):
    """Candidates share one pass; a pass for each gives the same to 1e-10 (two exact routes)."""
    model, noise = MODELS[name](), np.array([0.1, 0.2])
    sensors = rk.points([[0.4], [0.7]])
    found = suggest(model, sensors, TIMES, noise_std=noise, candidates=PLACES, new_noise_std=0.15, count=1)
    before = expected_variance(model, sensors, noise)
    assert_allclose(found.before**2, before, rtol=1e-10)
    slow = [before - with_one_more(model, sensors, noise, x, 0.15) for x in PLACES]
    assert_allclose(found.gain, slow, rtol=1e-10, atol=1e-10 * before)
    assert_allclose(found.after[0] ** 2, before - max(slow), rtol=1e-10)
    assert found.order[0] == int(np.argmax(slow)) and np.array_equal(found.places[0], PLACES[found.order[0]])
    assert (found.gain > 0.0).all()
    if name == "beyond the space":
        # The control: what neighbours share is no matter of rounding here.
        assert model.observe(sensors, 0.1, noise_std=0.1).factor is not None
        law, model.__dict__["unresolved"] = model.unresolved, None
        bare = suggest(model, sensors, TIMES, noise_std=noise, candidates=PLACES, new_noise_std=0.15, count=1)
        model.__dict__["unresolved"] = law
        assert np.abs(bare.gain / found.gain - 1.0).max() > 0.05


@pytest.mark.parametrize("process", [rk.Fixed(), rk.OrnsteinUhlenbeck(0.3, 0.2), rk.IntegratedRandomWalk(0.5, 0.1)])
def test_offset_and_new_place_count_as_blocks_of_the_filter_would(process):
    """A new sensor's lasting errors are states of its own in the slow route; three choices, each beside the last."""
    old = rk.SensorOffset(["A"], 0.2, rk.RandomWalk(0.1), name="old")
    names = [f"n{i}" for i in range(3)]
    extra = [rk.SensorOffset(names, 0.3, process), rk.SensorOffset(names, 0.4, name="place")]
    model, rich = rough([old]), rough([old, *extra])
    sensors = rk.points([[0.4], [0.7]], ["A", "B"])
    found = suggest(
        model, sensors, TIMES, noise_std=0.1, candidates=PLACES, new_noise_std=0.15, place_std=0.4, count=3,
        offset=rk.SensorOffset(["any"], 0.3, process),
    )  # fmt: skip
    noise, chosen, variance = np.array([0.1, 0.1]), [], []
    for name in names:
        left = [
            np.inf if i in chosen else with_one_more(rich, sensors, noise, x, 0.15, name) for i, x in enumerate(PLACES)
        ]
        if not chosen:
            assert_allclose(found.before**2 - found.gain, left, rtol=1e-10)
        chosen.append(int(np.argmin(left)))
        variance.append(min(left))
        sensors, noise = rk.stack(sensors, rk.points(PLACES[chosen[-1:]], [name])), np.append(noise, 0.15)
    assert found.order.tolist() == chosen
    assert_allclose(found.after**2, variance, rtol=1e-10)
    sure = suggest(model, rk.points([[0.4], [0.7]], ["A", "B"]), TIMES, noise_std=0.1, candidates=PLACES, count=1,
                   new_noise_std=0.15, offset=rk.SensorOffset(["any"], 1e-9))  # fmt: skip
    assert (sure.gain > 1.05 * found.gain).all()


def test_a_new_sensor_has_an_offset_as_most_sensors_have():
    """That of the block with most of them, whatever its process; none where most have none."""
    wander = rk.OrnsteinUhlenbeck(0.3, 0.2)
    model = rod(blocks=[rk.SensorOffset(["A", "B"], 0.3, wander), rk.SensorOffset(["C"], 2.0, name="c")])
    at, ids = np.array([[0.2], [0.4], [0.7], [0.8], [0.9], [0.95]]), ["A", "B", "C", "d", "e", "f"]
    told = {"noise_std": 0.1, "candidates": PLACES, "count": 2}
    for n, offset in ((4, rk.SensorOffset(["x"], 0.3, wander)), (6, rk.SensorOffset(["x"], 1e-12))):
        sensors = rk.points(at[:n], ids[:n])
        usual, stated = suggest(model, sensors, TIMES, **told), suggest(model, sensors, TIMES, offset=offset, **told)
        assert_allclose(usual.gain, stated.gain, rtol=1e-11)
        assert_allclose(usual.after, stated.after, rtol=1e-11)


def path_log_det(model, batches):
    """log det of the covariance of the states at all batches given all readings, by one dense matrix."""
    P, mats, covs, t = model.initial.cov, [], [], model.start
    for now, _, _ in batches:
        step = model.step(t, now)
        P = step.F @ P @ step.F.T + step.Q
        mats.append(step.F)
        covs.append(P)
        t = now
    T, n = len(batches), model.dim
    joint = np.zeros((T * n, T * n))
    for i in range(T):
        block = covs[i]
        joint[i * n : (i + 1) * n, i * n : (i + 1) * n] = block
        for j in range(i + 1, T):
            block = mats[j] @ block
            joint[j * n : (j + 1) * n, i * n : (i + 1) * n] = block
            joint[i * n : (i + 1) * n, j * n : (j + 1) * n] = block.T
    H, R = block_diag(*(H for _, H, _ in batches)), block_diag(*(R for _, _, R in batches))
    # det(P - P H' S^-1 H P) = det P det R / det S
    return np.linalg.slogdet(joint)[1] + np.linalg.slogdet(R)[1] - np.linalg.slogdet(H @ joint @ H.T + R)[1]


def test_information_is_half_the_fall_of_the_log_determinant_along_the_horizon():
    """One dense matrix of the whole path, with and without the candidate; it shares nothing with the recursion."""
    model, sensors = rough(), rk.points([[0.4], [0.7]])

    def batches(functional):
        seen = [model.observe(functional, t, noise_std=0.2) for t in TIMES.tolist()]
        return [(t, obs.H, obs.R) for t, obs in zip(TIMES.tolist(), seen, strict=True)]

    found = suggest(model, sensors, TIMES, noise_std=0.2, candidates=PLACES, count=2)
    before = path_log_det(model, batches(sensors))
    after = [path_log_det(model, batches(rk.stack(sensors, rk.points([x])))) for x in PLACES]
    assert_allclose(found.information, 0.5 * (before - np.array(after)), rtol=1e-8)  # determinants of 1e-30
    assert found.order_d[0] == int(np.argmin(after))


def test_information_falls_when_others_are_there_already():
    """Mutual information of independent readings is submodular; variance need not be, but never falls below none."""
    model, sensors = rod(), rk.points([[0.4]])
    told = {"noise_std": 0.1, "candidates": PLACES, "count": 1}
    alone = suggest(model, sensors, TIMES, **told)
    for x in (0.2, 0.55, 0.9):
        beside = suggest(model, rk.stack(sensors, rk.points([[x]])), TIMES, **told)
        assert (beside.information <= alone.information * (1.0 + 1e-12)).all()
        assert (beside.gain >= 0.0).all() and beside.before < alone.before
        near = int(np.argmin(np.abs(PLACES[:, 0] - x)))
        assert beside.information[near] < 0.9 * alone.information[near]


def test_readings_too_sharp_for_products_go_through_the_filter(monkeypatch):
    """Noise 1e-6 beside a field of std 1: P / sigma^2 = 1e12 costs the products digits that the filter keeps."""
    model, sensors = rod(noise=rk.isotropic(0.5)), rk.points([[0.4]])
    found = suggest(model, sensors, TIMES, noise_std=1e-6, candidates=PLACES, count=1)
    before = expected_variance(model, sensors, np.array([1e-6]))
    slow = [before - with_one_more(model, sensors, np.array([1e-6]), x, 1e-6) for x in PLACES]
    assert_allclose(found.gain, slow, rtol=1e-10)
    monkeypatch.setattr("rfkalman.placement.suggestion.INDICATOR_LIMIT", np.inf)
    quick = suggest(model, sensors, TIMES, noise_std=1e-6, candidates=PLACES, count=1)
    assert np.abs(quick.gain / slow - 1.0).max() > 1e-10
    assert_allclose(quick.information, found.information, rtol=1e-3)


def test_greedy_beats_chance_and_a_space_filling_design():
    """Six sensors of a plate that is stirred at four places of one quarter. The control: a design for a plate that is
    stirred in the opposite quarter is no better here than random ones."""
    plate = rk.Box([0.0, 0.0], [1.0, 1.0])
    space = rk.whiten(rk.Heat(plate, 0.02), rk.bubble(rk.GaussianRFF(60, length_scale=0.3)), 1e-6)

    def stirred(c):
        at = itertools.product((c - 0.12, c + 0.12), repeat=2)
        law = rk.OrnsteinUhlenbeck(3.0, 0.3)
        wild = [rk.LatentSource(Bump(x, 0.13), 3.0, law, name=f"stir {k}") for k, x in enumerate(at)]
        return rk.Model(space, rk.isotropic(0.2), process_noise=rk.isotropic(0.2), blocks=wild, check="later")

    model, none, rng = stirred(0.25), rk.points(np.zeros((0, 2)), []), np.random.default_rng(5)
    told = {"noise_std": 0.05, "candidates": plate.grid(14), "count": 6}
    found, elsewhere = suggest(model, none, TIMES, **told), suggest(stirred(0.75), none, TIMES, **told)

    def std(places):
        return np.sqrt(expected_variance(model, rk.points(places), np.full(6, 0.05)))

    drawn = np.array([std(rng.random((6, 2))) for _ in range(60)])
    sobol = np.mean([std(qmc.Sobol(2, seed=s).random(8)[:6]) for s in range(8)])
    assert_allclose(found.after[-1], std(found.places), rtol=1e-10)
    assert found.after[-1] < drawn.min() and found.after[-1] < 0.95 * min(sobol, drawn.mean())
    assert std(elsewhere.places) > drawn.mean()
    assert (np.diff([found.before, *found.after]) < 0.0).all()


def test_numbers_do_not_depend_on_order_unit_or_how_the_start_is_said():
    """Candidates permute, stds scale with the field, and a belief handed over is the belief that was there."""
    model, sensors = rod(), rk.points([[0.4]])
    told = {"noise_std": 0.1, "count": 2}
    found = suggest(model, sensors, TIMES, candidates=PLACES, **told)
    turned = suggest(model, sensors, TIMES, candidates=PLACES[::-1], **told)
    assert_allclose(turned.gain[::-1], found.gain, rtol=1e-11)
    assert np.array_equal(turned.places, found.places)
    larger = suggest(rod(prior=rk.isotropic(10.0), noise=rk.isotropic(5.0)), sensors, TIMES, candidates=PLACES,
                     noise_std=1.0, count=2)  # fmt: skip
    assert_allclose(larger.after, 10.0 * found.after, rtol=1e-10)
    assert_allclose(larger.information, found.information, rtol=1e-10)
    said = suggest(model, sensors, TIMES, candidates=PLACES, belief=model.initial, start=0.0, **told)
    assert np.array_equal(said.gain, found.gain)
    later = rk.Assimilator(model)
    later.advance(0.05)
    later.observe(sensors, [0.3], noise_std=0.1)
    after = suggest(model, sensors, TIMES, candidates=PLACES, belief=later.belief, start=later.time, **told)
    slow = expected_variance(model, sensors, np.array([0.1]), belief=later.belief, start=later.time)
    assert_allclose(after.before**2, slow, rtol=1e-10)
    assert after.before < found.before


def test_a_sensor_on_a_held_wall_tells_nothing():
    """There the field is known; beside it, it is not."""
    found = suggest(rod(), rk.points([[0.4]]), TIMES, noise_std=0.1, candidates=[[0.0], [0.1], [1.0]], count=1)
    assert found.order[0] == 1 and found.gain[1] > 1e-3
    assert_allclose(found.gain[[0, 2]], 0.0, atol=1e-15)


def test_the_sensor_that_is_missed_least_is_one_of_two_at_one_place():
    """The slow route leaves each out; without noise of its own the twin of a sensor is nearly free."""
    model, at = rough(), np.array([[0.2], [0.5], [0.52], [0.8]])
    sensors = rk.points(at, ["a", "b", "c", "d"])
    found = suggest(model, sensors, TIMES, noise_std=0.1, drop=True, count=2)
    before = expected_variance(model, sensors, np.full(4, 0.1))
    slow = [before - expected_variance(model, rk.points(np.delete(at, i, axis=0)), np.full(3, 0.1)) for i in range(4)]
    assert_allclose(found.gain, slow, rtol=1e-9)
    assert found.order[0] in (1, 2) and found.order[0] == int(np.argmax(slow)) and (found.gain < 0.0).all()
    left = np.delete(at, found.order[0], axis=0)
    pairs = [expected_variance(model, rk.points(np.delete(left, i, axis=0)), np.full(2, 0.1)) for i in range(3)]
    assert_allclose(found.after**2, [before - max(slow), min(pairs)], rtol=1e-9)
    assert found.names == ("a", "b", "c", "d") and "without" in str(found)


def test_it_works_without_any_sensor_and_on_the_whole_domain():
    """The first sensor of a rod held at both ends belongs near its middle; nothing was seen before it."""
    found = suggest(rod(), rk.points(np.zeros((0, 1))), TIMES, noise_std=0.1)
    assert found.candidates.shape == (200, 1) and abs(found.places[0, 0] - 0.5) < 0.1
    assert found.unseen[0] == 1.0 and found.unseen[1] < 0.2 and len(found.order) == 3
    assert_allclose(found.std_before, found.std_unread, rtol=1e-12)
    assert (found.std_after <= found.std_before * (1.0 + 1e-12)).all() and found.passes > 0.0


@pytest.mark.parametrize("domain", [rk.Box([0.0, 0.0], [4.0, 1.0]), rk.Ball([0.0, 0.0], 1.0, inner_radius=0.9),
                                    rk.Ball([0.0, 0.0, 0.0], 1.0)])  # fmt: skip
def test_candidates_are_spread_over_the_whole_domain(domain):
    """Some hundreds to a thousand, all inside, and every point of the domain has one near."""
    x = spread_evenly(domain)
    assert 150 < len(x) < 1300 and domain.contains(x).all()
    drawn = domain.sample(300, np.random.default_rng(0))
    nearest = np.sqrt(np.square(drawn[:, None] - x).sum(axis=2)).min(axis=1)
    assert nearest.max() < 2.0 * (domain.volume / len(x)) ** (1.0 / domain.dimension)


def test_the_mean_of_the_map_is_the_expected_variance():
    """Cells of equal size: the mean of the squares is the domain average up to the midpoint rule."""
    found = suggest(rough(), rk.points([[0.4]]), TIMES, noise_std=0.1, count=1)
    assert_allclose(np.square(found.std_before).mean(), found.before**2, rtol=1e-3)
    assert_allclose(np.square(found.std_after).mean(), found.after[-1] ** 2, rtol=1e-3)


def test_misuse_is_told_in_words():
    model, sensors = rod(), rk.points([[0.4]])
    told = {"noise_std": 0.1}
    with pytest.raises(OutsideDomainError, match="candidates: 1 of 2 points lie outside the domain"):
        suggest(model, sensors, TIMES, candidates=[[0.5], [1.5]], **told)
    with pytest.raises(ShapeError, match=r"candidates must have shape \(N, 1\)"):
        suggest(model, sensors, TIMES, candidates=[0.5], **told)
    with pytest.raises(ValueRangeError, match="count is 3 but there are only 2 candidates"):
        suggest(model, sensors, TIMES, candidates=[[0.5], [0.6]], count=3, **told)
    with pytest.raises(ValueRangeError, match="only 1 sensors to take away"):
        suggest(model, sensors, TIMES, drop=True, count=2, **told)
    with pytest.raises(ValueRangeError, match="leave them out with drop"):
        suggest(model, sensors, TIMES, drop=True, candidates=PLACES, **told)
    with pytest.raises(ValueRangeError, match="belief and start belong together"):
        suggest(model, sensors, TIMES, belief=model.initial, **told)
    with pytest.raises(TimeError, match="before the time of the belief"):
        suggest(model, sensors, TIMES, belief=model.initial, start=0.3, **told)
    with pytest.raises(ShapeError, match="belief has 1 components"):
        suggest(model, sensors, TIMES, belief=rk.Gaussian([0.0], [[1.0]]), start=0.0, **told)
    with pytest.raises(ShapeError, match="stated as a functional"):
        suggest(model, [[0.4]], TIMES, **told)
    with pytest.raises(ValueRangeError, match="give new_noise_std"):
        suggest(model, rk.points(np.zeros((0, 1))), TIMES, noise_std=[])


@pytest.mark.parametrize("domain", [ROD, rk.Box([0.0, 0.0], [2.0, 1.0]), rk.Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])])
def test_it_draws_itself_in_every_dimension(domain):
    """A curve, a map, planes; dots for given candidates and for sensors that might go; numbers for the choices."""
    pytest.importorskip("matplotlib")
    d = domain.dimension
    space = rk.whiten(rk.Heat(domain, 0.1), rk.bubble(rk.GaussianRFF(15 * d, length_scale=0.5)), 1e-4)
    model, sensors = rk.Model(space, rk.isotropic(1.0), check="later"), rk.points(np.full((1, d), 0.3))
    told = {"noise_std": 0.1, "count": 2}
    drawn = suggest(model, sensors, TIMES[:2], **told).plot(sensors=np.full((1, d), 0.3), unit="K", title="where")
    words = [text.get_text().strip() for ax in drawn.axes for text in ax.texts]
    assert words.count("1") == words.count("2") == (6 if d == 3 else 2)
    dots = suggest(model, sensors, TIMES[:2], candidates=domain.sample(5, np.random.default_rng(0)), **told)
    assert len(dots.plot().axes) >= 2
    assert len(suggest(model, sensors, TIMES[:2], drop=True, noise_std=0.1).plot().axes) >= 2
    with pytest.raises(ShapeError, match="axes names 4 coordinates"):
        dots.plot(axes="abcd")


def test_of_fewer_than_three_candidates_all_are_chosen():
    """Three is what is asked for when nothing is; only a count that was stated can be too many."""
    model, sensors = rod(), rk.points([[0.4]])
    found = suggest(model, sensors, TIMES, noise_std=0.1, candidates=PLACES[:2])
    assert sorted(found.order) == [0, 1]
