"""Sources of known shape: bumps and functions, with known and unknown strengths, alike in Python and in files."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.codec import from_dict, to_dict
from rfkalman.core.errors import ArchiveError, SourceWarning, ValueRangeError
from rfkalman.filters import kalman
from rfkalman.physics import Bump, Source, pde
from rfkalman.space import space as space_module
from rfkalman.space import traces

BOX = rk.Box([0.0, 0.0], [2.0, 1.0])
WAVES = rk.GaussianRFF(80, 0.4) + rk.Constant()
BUMP = Bump([0.7, 0.5], 0.1)
RAMP = rk.TimeSeries([0.0, 1.0, 2.0], [0.0, 2.0, 1.0])


def gaussian(x: np.ndarray) -> np.ndarray:
    """The bump as a function; far from the walls the two are the same."""
    return np.exp(-np.square(x - BUMP.centre).sum(axis=1) / (2 * BUMP.width**2)) / (2 * np.pi * BUMP.width**2)


def model_with(*sources: Source, **options) -> rk.Model:
    equation = rk.LinearPDE(BOX, 0.05, boundary=rk.Neumann(0.0), sources=sources, **options)
    return rk.Model(rk.whiten(equation, WAVES, 1e-8), rk.Sobolev(1.0, 0.5))


def mean_after(model: rk.Model, t: float) -> float:
    """Average of the mean field over the domain, nothing having been read."""
    belief = kalman.forecast(model.initial, model.step(0.0, t))
    return model.space.rule.integrate(model.field(belief, t).mean)


@pytest.mark.parametrize("strength, total", [(3.0, 6.0), (RAMP, 1.0 + 1.5)], ids=["number", "series"])
def test_nothing_leaves_so_the_mean_grows_by_strength_over_volume(strength, total):
    """A bump has a unit integral, also one half behind a wall."""
    for bump in (BUMP, Bump([0.05, 0.5], 0.15)):
        assert mean_after(model_with(Source(bump, strength)), 2.0) == pytest.approx(total / 2.0, rel=1e-8)


def test_a_bump_and_the_same_function_push_alike():
    """Two routes to the same integrals: a rule of its own, and the space's rule cut finer where it is narrow.

    6e-7 of the bump lies beyond the walls, five widths away.
    """
    a, b = model_with(Source(BUMP, 1.3)), model_with(Source(gaussian, 1.3))
    assert_allclose(a.generator.forcing, b.generator.forcing, atol=1e-6 * np.abs(a.generator.forcing).max())


def test_an_unknown_strength_in_the_equation_is_a_latent_source():
    """The same prior, process and shape; the mean of the strength pushes either way."""
    process, wide = rk.RandomWalk(0.4), Bump([0.7, 0.5], 0.2)
    declared = model_with(Source(wide, rk.Unknown((0.7, 0.5), process), "leak"))
    plain = rk.whiten(rk.LinearPDE(BOX, 0.05, boundary=rk.Neumann(0.0)), WAVES, 1e-8)
    ridden = rk.Model(plain, rk.Sobolev(1.0, 0.5), blocks=[rk.LatentSource(wide, (0.7, 0.5), process, name="leak")])
    a, b = declared.step(0.0, 0.6), ridden.step(0.0, 0.6)
    for of in ("F", "g", "Q"):
        assert_array_equal(getattr(a, of), getattr(b, of))
    assert_array_equal(declared.initial.root, ridden.initial.root)
    report = declared.unknowns(declared.initial, 0.0)["leak"]
    assert report.mean == [0.7] and report.std == [0.5]


def test_sources_add_to_all_that_drives_the_field():
    """Forcing is linear: constant source, wall, known and unknown sources together are the sum of each alone."""
    sources = [Source(BUMP, 2.0), Source(Bump([1.5, 0.6], 0.1), RAMP), Source(BUMP, rk.Unknown((0.3, 1.0)), "u")]
    times = np.array([0.0, 0.4, 1.7])

    def force(*given: Source, **options) -> np.ndarray:
        model = model_with(*given, **options)
        return model.generator.force(times)[:, : model.space.rank]

    together = force(*sources, source=0.7)
    apart = force(source=0.7) + sum(force(source) for source in sources)
    assert_allclose(together, apart, atol=1e-12 * np.abs(together).max())


def test_a_source_narrower_than_the_space_resolves_is_said():
    """Up to three have features of their own; more would cut the quadrature into too many pieces."""
    wells = [Source(Bump([0.3 * i, 0.4], 0.001), 1.0, "well") for i in (1, 2, 3, 4)]
    with pytest.warns(SourceWarning, match=r"holds only \d+ % of the shape of the source 'well'.*Its total is kept"):
        model_with(*wells)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SourceWarning)
        assert "around the source at (0.3, 0.4)" in model_with(wells[0]).space.added[0]


def test_a_filter_with_sources_comes_back_from_a_file_alone(tmp_path):
    """Bumps, series and unknown strengths are values; a shape that is a function must be passed again."""
    sources = [Source(BUMP, RAMP), Source(Bump([1.5, 0.6], 0.1), rk.Unknown((0.3, 1.0), rk.RandomWalk(0.2)), "leak")]
    asm = rk.Assimilator(model_with(*sources))
    asm.advance(0.3)
    asm.observe(rk.points([[0.5, 0.5], [1.4, 0.6]]), [0.2, 0.4], noise_std=0.1)
    again = rk.load(rk.save(tmp_path / "filter.npz", asm))
    for filt in (asm, again):
        filt.advance(1.1)
    assert_array_equal(again.belief.mean, asm.belief.mean)
    assert_array_equal(again.belief.root, asm.belief.root)
    shaped = model_with(Source(gaussian, 1.0)).space
    path = rk.save(tmp_path / "space.npz", shaped)
    with pytest.raises(ArchiveError, match=r"functions for sources\.0"):
        rk.load(path)
    assert rk.load(path, pde=shaped.pde).pde is shaped.pde
    other = rk.LinearPDE(BOX, 0.05, boundary=rk.Neumann(0.0), sources=[Source(lambda x: 2 * gaussian(x), 1.0)])
    with pytest.raises(ArchiveError, match=r"its function sources\.0 gives other values"):
        rk.load(path, pde=other)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Bump([0.1, 0.2], 0.0), "width must be positive"),
        (lambda: Bump([0.1, np.nan], 1.0), "centre must be finite"),
        (lambda: Source(3.0, 1.0), "shape must be a Bump or a function of points"),
        (lambda: Source(BUMP, np.inf, "leak"), "the strength of 'leak' must be finite"),
        (lambda: Source(BUMP, lambda x, t: t), "must be a number, a TimeSeries or Unknown"),
        (lambda: Source(BUMP, rk.Unknown(1.0, length=0.3)), "a strength has one value.*no length"),
        (lambda: rk.LinearPDE(BOX, sources=[BUMP]), r"sources must be a sequence of Source"),
    ],
)
def test_misuse_is_refused(make, message):
    with pytest.raises(ValueRangeError, match=message):
        make()


VALUES = [
    2.5,
    None,
    rk.layers(0, [0.7], [1.0, 3.0]),
    rk.profile(0, [0.5, 1.5], [0.1, 0.7], log=True),
    rk.inclusion([0.5, 0.2], [1.0, 0.6], 2.0, 1.0),
    RAMP,
    rk.Dirichlet(rk.Unknown((1.0, 2.0), rk.OrnsteinUhlenbeck(1.0, 3.0), 0.4)),
    rk.Neumann(RAMP),
    rk.Robin(2.0, rk.layers(1, [0.3], [0.0, 1.0])),
    rk.Periodic("x+"),
    Source(BUMP, rk.Unknown(1.0, rk.IntegratedRandomWalk(0.1, 0.2)), "leak"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_value_survives_its_table(value):
    table = to_dict(value)
    assert type(from_dict(table)) is type(value)
    assert to_dict(from_dict(table)) == table


def test_functions_are_named_and_not_written():
    assert to_dict(rk.Neumann(lambda x, t: t)) == {"kind": "Neumann", "flux": "callable"}
    assert to_dict(Source(gaussian, 1.0))["shape"] == "callable"


def test_conditions_lift_and_frame_of_a_model_are_computed_once(monkeypatch):
    """However often space, model, filter and report ask for them."""
    counts = dict.fromkeys(("conditions", "lift", "frame"), 0)

    def counted(name: str, made):
        def count(*args, **options):
            counts[name] += 1
            return made(*args, **options)

        return count

    monkeypatch.setattr(pde, "resolve_parts", counted("conditions", pde.resolve_parts))
    monkeypatch.setattr(traces.Lift, "__init__", counted("lift", traces.Lift.__init__))
    monkeypatch.setattr(space_module.np, "hstack", counted("frame", np.hstack))
    walls = {"x-": rk.Dirichlet(RAMP), "x+": rk.Unknown((1.0, 0.5)), "*": rk.Robin(0.2, 1.0)}
    space = rk.whiten(rk.LinearPDE(BOX, 0.05, boundary=walls), rk.GaussianRFF(60, 0.5))
    counts["frame"] = 0
    assert space.frame is space.frame and counts["frame"] == 1
    asm = rk.Assimilator(space, rk.Sobolev(1.0, 0.5))
    asm.advance(0.3)
    asm.observe(rk.points([[0.5, 0.5], [1.4, 0.6]]), [0.2, 0.4], noise_std=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert space.report().lift_norm > 0.0
    assert asm.posterior().basis is space.frame
    assert (counts["conditions"], counts["lift"]) == (1, 2)  # the lift of the space, and that of its richer twin
