"""A filter that was saved and loaded goes on as if it had never stopped: the same bits, whatever it carries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import ArchiveError, TimeError

LINE = rk.Interval(0.0, 2.0)
NAMES = ("a", "b", "c")
AT = np.array([[0.4], [1.0], [1.7]])


@cache
def space_of(name: str) -> rk.WhitenedSpace:
    wall = rk.TimeSeries([-100.0, 0.5, 3000.0], [1.0, 3.0, 2.0])
    pde = {
        "plain": rk.LinearPDE(LINE, 0.3, boundary=rk.Neumann(0.0)),
        "lifts": rk.LinearPDE(
            LINE, 0.3, source=0.2, boundary={"x-": rk.Dirichlet(wall), "x+": rk.Unknown((1.0, 0.5), rk.RandomWalk(0.3))}
        ),
        "flux": rk.LinearPDE(
            LINE,
            rk.layers(0, [0.7], [0.2, 0.6]),
            velocity=[0.3],
            boundary={"x-": rk.Dirichlet(wall), "x+": rk.Neumann(rk.Unknown(0.5, rk.OrnsteinUhlenbeck(0.4, 2.0)))},
        ),
        "functions": rk.LinearPDE(
            LINE, lambda x: 0.3 + 0.1 * x[:, 0], source=lambda x, t: np.cos(3.0 * t) * x[:, 0], boundary=rk.Neumann(0.0)
        ),
    }[name]
    return rk.whiten(pde, rk.GaussianRFF(24, 0.6, seed=3) + rk.Constant())


def spot(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.square((x[:, 0] - 1.2) / 0.4))


UNKNOWNS = (
    rk.LatentSource(spot, (0.5, 1.0), rk.RandomWalk(0.2), name="leak"),
    rk.SensorOffset(NAMES, 0.3, rk.RandomWalk(0.05)),
    rk.SourceField(0.3, 0.8, 2.0),
)

MAKERS: dict[str, Callable[[], rk.Assimilator]] = {
    "plain": lambda: rk.Assimilator(space_of("plain"), rk.Sobolev(1.0, 0.5), start=0.2),
    "another scheme": lambda: rk.Assimilator(
        space_of("plain"), rk.isotropic(1.0), rk.SDIRK2(max_step=0.05), process_noise=rk.isotropic(0.2)
    ),
    "walls and an unknown wall": lambda: rk.Assimilator(
        space_of("lifts"), rk.Sobolev(1.0, 0.5), start=-1.0, process_noise=rk.Sobolev(0.2, 0.5)
    ),
    "layers, flow, an unknown flux and a lag": lambda: rk.Assimilator(
        space_of("flux"), rk.Sobolev(1.0, 0.5), process_noise=rk.Sobolev(0.2, 0.5), reorder=0.45
    ),
    "a leak, offsets, a source field and a lag": lambda: rk.Assimilator(
        space_of("lifts"), rk.FromFunction(spot, rk.Sobolev(1.0, 0.5)), blocks=UNKNOWNS, reorder=0.25
    ),
    "constant gain": lambda: rk.Assimilator(
        space_of("plain"), rk.Sobolev(1.0, 0.5), process_noise=rk.Sobolev(1.0, 0.5), constant_gain=True
    ),
    "constant gain, walls and a lag": lambda: rk.Assimilator(
        space_of("lifts"), rk.Sobolev(1.0, 0.5), process_noise=rk.Sobolev(1.0, 0.5), constant_gain=True, reorder=0.25
    ),
}

Act = Callable[[rk.Assimilator], object]


def acts(asm: rk.Assimilator, n: int) -> Iterator[Act]:
    """Advance and observe in turn; every kind of noise, missing readings, and readings that come late."""
    rng = np.random.default_rng(11)
    sensors, cov = rk.points(AT, ids=NAMES), 0.01 * (np.eye(3) + 0.5)
    start = asm.time
    for k in range(1, n + 1):
        t = start + 0.1 * k
        yield lambda f, t=t: f.advance(t)
        y = 1.0 + rng.standard_normal(3)
        if k % 7 == 3:
            y[k % 3] = np.nan
        noise = {"noise_cov": cov} if k % 11 == 5 else {"noise_std": 0.1 if k % 13 else [0.1, 0.2, 0.3]}
        yield lambda f, y=y, noise=noise: f.observe(sensors, y, **noise)
        if asm.reorder and k % 9 == 8:
            late = rng.standard_normal(1)
            yield lambda f, t=t, late=late: f.observe(rk.points([[0.9]], ids=["b"]), late, noise_std=0.2, time=t - 0.15)


def assert_same(a: rk.Assimilator, b: rk.Assimilator) -> None:
    assert (a.time, a.counts, a.reorder, a.model.start) == (b.time, b.counts, b.reorder, b.model.start)
    assert a.log_evidence == b.log_evidence
    assert_array_equal(a.belief.mean, b.belief.mean)
    assert_array_equal(a.belief.root, b.belief.root)
    ahead = a.time + 0.7
    assert_array_equal(a.forecast(ahead).mean(AT), b.forecast(ahead).mean(AT))
    assert_array_equal(a.forecast(ahead).std(AT), b.forecast(ahead).std(AT))
    ours, theirs = a.unknowns(), b.unknowns()
    assert list(ours) == list(theirs)
    for name in ours:
        for part in ("mean", "std", "identified"):
            assert_array_equal(getattr(ours[name], part), getattr(theirs[name], part))


def restarted(asm: rk.Assimilator, folder, **given) -> rk.Assimilator:
    found = rk.load(rk.save(folder / "filter.npz", asm), **given)
    assert isinstance(found, rk.Assimilator)
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_restart_from_a_file_equals_never_stopped(name, tmp_path):
    """Saved and loaded after an advance, after a batch, and three times in a row: not one bit of any answer differs.

    Belief, forecast, evidence, counts, and how far each unknown has been identified since the start.
    """
    whole, parts = MAKERS[name](), MAKERS[name]()
    for i, act in enumerate(acts(whole, 40)):
        act(whole)
        act(parts)
        if i in (0, 7, 16, 17, 18, 40, 63):
            parts = restarted(parts, tmp_path)
            assert_same(parts, whole)
    assert_same(parts, whole)


def test_a_constant_gain_is_kept_through_a_restart(tmp_path):
    """The law above would also hold for a filter that never settles; these do, before and after the restart."""
    for name in ("constant gain", "constant gain, walls and a lag"):
        sensors = rk.points(AT, ids=NAMES)
        whole = MAKERS[name]()
        rng = np.random.default_rng(5)
        roots = []
        for k in range(1, 140):
            whole.advance(whole.model.start + 0.5 * k)
            whole.observe(sensors, rng.standard_normal(3), noise_std=0.1)
            roots.append(whole.belief.root)
        assert roots[-1] is roots[-2]
        parts = restarted(whole, tmp_path)
        settled = parts.belief.root
        for k in range(140, 144):
            y = rng.standard_normal(3)
            for f in (whole, parts):
                f.advance(f.model.start + 0.5 * k)
                f.observe(sensors, y, noise_std=0.1)
            assert parts.belief.root is settled
        assert_same(parts, whole)


def test_a_late_reading_is_still_placed_after_a_restart_and_one_too_late_refused(tmp_path):
    whole = MAKERS["layers, flow, an unknown flux and a lag"]()
    for act in acts(whole, 12):
        act(whole)
    parts = restarted(whole, tmp_path)
    for f in (whole, parts):
        f.observe(rk.points([[0.3]]), [1.5], noise_std=0.1, time=f.time - 0.37)
    assert_same(parts, whole)
    with pytest.raises(TimeError, match=r"but reorder is 0.45"):
        parts.observe(rk.points([[0.3]]), [1.5], noise_std=0.1, time=parts.time - 0.5)


def test_functions_of_the_equation_are_passed_again(tmp_path):
    space = space_of("functions")
    whole = rk.Assimilator(space, rk.Sobolev(1.0, 0.5))
    for act in acts(whole, 5):
        act(whole)
    path = rk.save(tmp_path / "filter.npz", whole)
    with pytest.raises(ArchiveError, match=r"functions for diffusion, source, which a file cannot hold.*pde="):
        rk.load(path)
    parts = rk.load(path, pde=space.pde)
    for f in (whole, parts):
        f.advance(1.3)
    assert_same(parts, whole)
    with pytest.raises(ArchiveError, match="the PDE does not match the file"):
        rk.load(path, pde=space_of("plain").pde)


LOOK = """
import sys
import numpy as np
import rfkalman as rk
filt = rk.load(sys.argv[1])
filt.advance(filt.time + 0.1)
filt.observe(rk.points([[0.4], [1.1]]), [1.0, 2.0], noise_std=0.1)
field = filt.posterior()
print(filt.log_evidence.hex(), *(v.hex() for v in [*field.mean([[0.3], [1.6]]), *field.std([[0.3], [1.6]])]))
"""


def test_another_process_goes_on_with_the_same_bits(tmp_path, capsys):
    """Nothing is kept outside the file: an interpreter that has seen nothing else prints the same hexadecimals."""
    whole = MAKERS["walls and an unknown wall"]()
    for act in acts(whole, 9):
        act(whole)
    path = str(rk.save(tmp_path / "filter.npz", whole))
    there = subprocess.run([sys.executable, "-c", LOOK, path], capture_output=True, text=True, check=True).stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["-c", path])
        patch.setattr(rk, "load", lambda _: whole)
        exec(LOOK, {})
    assert there == capsys.readouterr().out


class Doubled(rk.Model):
    """A model of a user's own."""


def test_a_model_of_its_own_class_is_passed_again_and_must_be_the_same(tmp_path):
    """A file cannot hold code; it holds a digest of the numbers, which another model does not have."""
    model = Doubled(space_of("lifts"), rk.Sobolev(1.0, 0.5))
    whole = rk.Assimilator(model, reorder=0.2)
    for act in acts(whole, 5):
        act(whole)
    path = rk.save(tmp_path / "filter.npz", whole)
    with pytest.raises(ArchiveError, match=r"a part of its own, Doubled, which a file cannot hold.*model="):
        rk.load(path)
    parts = rk.load(path, model=Doubled(space_of("lifts"), rk.Sobolev(1.0, 0.5)))
    for f in (whole, parts):
        f.advance(1.3)
    assert_same(parts, whole)
    for other in (
        Doubled(space_of("lifts"), rk.Sobolev(1.1, 0.5)),
        Doubled(space_of("plain"), rk.Sobolev(1.0, 0.5)),
        Doubled(space_of("lifts"), rk.Sobolev(1.0, 0.5), blocks=[rk.SensorOffset(["a"], 0.1)]),
    ):
        with pytest.raises(ArchiveError, match="the model does not match the file"):
            rk.load(path, model=other)


def test_an_array_that_is_used_often_is_stored_once(tmp_path):
    """A long lag with fixed sensors: the file grows by beliefs, not by copies of the sensors' matrix."""
    whole = rk.Assimilator(space_of("plain"), rk.isotropic(1.0), reorder=10.0)
    many = rk.points(np.linspace(0.1, 1.9, 400)[:, None])
    for k in range(1, 21):
        whole.advance(0.1 * k)
        whole.observe(many, np.ones(400), noise_std=0.1)
    size = rk.save(tmp_path / "filter.npz", whole).stat().st_size
    matrix, root = 8 * 400 * space_of("plain").rank, 8 * space_of("plain").rank ** 2
    assert size < 2 * matrix + 20 * (2 * root + 8 * 400 + 4000) + 100_000
    assert 20 * matrix > size  # the control: that many copies would show
    assert_same(rk.load(tmp_path / "filter.npz"), whole)


def test_an_edited_state_is_refused(tmp_path):
    path = rk.save(tmp_path / "filter.npz", MAKERS["walls and an unknown wall"]())
    with np.load(path) as bundle:
        content = {name: bundle[name] for name in bundle.files}
    header = json.loads(bytes(content["header"]))

    def refused(**changes: np.ndarray) -> None:
        with open(path, "wb") as stream:
            np.savez(stream, **{**content, **changes})
        with pytest.raises(ArchiveError, match=r"incomplete or was edited|cannot be rebuilt"):
            rk.load(path)

    for name, array in content.items():
        if name[0] == "a" and name[1:].isdigit() and array.size:
            refused(**{name: np.full_like(array, np.nan)})
            refused(**{name: array[..., None]})
    for key in ("moments", "used"):
        table = {k: v for k, v in header["state"]["table"].items() if k != key}
        changed = {**header, "state": {"table": table}}
        refused(header=np.frombuffer(json.dumps(changed).encode(), dtype=np.uint8))
    changed = {**header, "state": {"table": {**header["state"]["table"], "moments": []}}}
    refused(header=np.frombuffer(json.dumps(changed).encode(), dtype=np.uint8))
    assert os.listdir(tmp_path) == ["filter.npz"]
