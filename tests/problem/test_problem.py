"""The problem file: what is refused and how, and that file and Python say the same."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rfkalman as rk
from rfkalman.core.errors import RFKalmanError
from rfkalman.problem import Problem, ProblemError

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED, PAGE = DOCS / "problem.schema.json", DOCS / "problem-file.md"

BASE = {
    "version": 1,
    "domain": {"kind": "interval", "lower": 0.0, "upper": "2 m", "axes": ["depth"], "parts": {"top": "x-"}},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {
        "diffusion": "0.5 mm2/s",
        "boundary": {
            "top": {"unknown": {"mean": 10.0, "std": "5 degC", "change": "1 degC", "per": "1 h"}},
            "x+": {"flux": 0.0},
        },
    },
    "prior": {"std": "3 degC", "mean": "10 degC"},
    "sensors": {"noise": "0.1 degC", "table": [{"id": "A", "at": "5 cm"}, {"id": "B", "at": 0.5, "noise": 0.2}]},
    "time": {"start": "2024-01-01T00:00Z"},
}


def changed(path: str, value: object) -> dict:
    """The base problem with one key replaced; ``None`` removes it."""
    tables = copy.deepcopy(BASE)
    *above, last = path.split("/")
    at = tables
    for key in above:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return tables


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "key", "words"),
    [
        ("version", 2, "version", ["must be 1"]),
        ("version", None, "version", ["version = 1"]),
        ("physics", None, "physics", ["is needed"]),
        ("physics", 3, "physics", ["must be a table"]),
        ("physics/difusion", 1.0, "physics.difusion", ["did you mean 'diffusion'"]),
        ("physics/qqqqq", 1.0, "physics.qqqqq", ["keys here are diffusion, "]),
        ("physics/diffusion", "0.3 mm/s", "physics.diffusion", ["is a velocity", "a diffusivity", "'0.3 mm2/s'"]),
        ("physics/diffusion", True, "physics.diffusion", ["number or a text with a unit"]),
        ("physics/diffusion", -1.0, "physics.diffusion", ["positive"]),
        ("physics/diffusion", [1.0, 2.0], "physics.diffusion", ["2 components", "1 axes"]),
        ("physics/diffusion", {"x": 1}, "physics.diffusion", ["interfaces", "regions"]),
        ("prior", {"std": 1, "length": 1, "reach": 2}, "prior", ["either `length` or `reach`", "correlation is 1/e"]),
        ("prior", {"std": 1, "reach": 1, "smoothness": 0.5}, "prior.smoothness", ["above 0.5", "length instead of"]),
        ("prior", {"std": 1, "reach": "1 h"}, "prior.reach", ["a duration", "a length is wanted"]),
        (
            "physics/process_noise",
            {"change": 1, "length": 1, "reach": 2},
            "physics.process_noise",
            ["either `length` or `reach`"],
        ),
        (
            "physics/source_field",
            {"std": 1, "memory": 1, "reach": 1, "smoothness": 0.4},
            "physics.source_field.smoothness",
            ["above 0.5"],
        ),
        ("physics/diffusion", {"interfaces": [0.1, 0.2], "values": [1, 2]}, "physics.diffusion.values", ["3 layers"]),
        (
            "physics/diffusion",
            {"interfaces": [0.2, 0.1], "values": [1, 2, 3]},
            "physics.diffusion.interfaces",
            ["must be increasing"],
        ),
        (
            "physics/diffusion",
            {"axis": "width", "interfaces": [0.2], "values": [1, 2]},
            "physics.diffusion.axis",
            ["'width'", "depth"],
        ),
        ("physics/diffusion", {"regions": {"a": 1.0}}, "physics.diffusion.regions", ["of a mesh"]),
        ("physics/velocity", ["1 m/s", "1 m/s"], "physics.velocity", ["2 components"]),
        ("physics/capacity", 0.0, "physics.capacity", ["positive"]),
        ("physics/boundary/x+", {}, 'physics.boundary."x+"', ["exactly one of value, flux"]),
        ("physics/boundary/x+", {"value": 1.0, "flux": 0.0}, 'physics.boundary."x+"', ["got value, flux"]),
        ("physics/boundary/x+", {"coefficient": 1.0}, 'physics.boundary."x+"', ["go together"]),
        ("physics/boundary/x+", {"value": "3 m"}, 'physics.boundary."x+".value', ["is a length", "value of the field"]),
        ("physics/boundary/x+", {"value": {"fil": "a.csv"}}, 'physics.boundary."x+".value.fil', ["mean 'file'"]),
        ("physics/boundary/top/unknown/change", None, "physics.boundary.top.unknown", ["needs `change`"]),
        ("physics/boundary/top/unknown/process", "ou", "physics.boundary.top.unknown", ["needs `memory`"]),
        ("physics/boundary/top/unknown/process", "fixed", "physics.boundary.top.unknown", ["change has no meaning"]),
        ("physics/boundary/top/unknown/process", "walk", "physics.boundary.top.unknown.process", ["'random walk'"]),
        ("physics/sources", [{"name": "w", "strength": 1.0}], "physics.sources[0]", ["`place` or `sensor`"]),
        (
            "physics/sources",
            [{"name": "w", "strength": 1.0, "place": [1.0, 2.0]}],
            "physics.sources[0].place",
            ["2 coordinates"],
        ),
        (
            "physics/sources",
            [{"name": "w", "strength": "1 m", "place": [1.0]}],
            "physics.sources[0].strength",
            ["strength of a source"],
        ),
        (
            "physics/sources",
            2 * [{"name": "w", "strength": 1.0, "place": [1.0]}],
            "physics.sources[1].name",
            ["names of their own"],
        ),
        ("domain/kind", "bax", "domain.kind", ["'bax'", "interval, box, ball, polygon, mesh"]),
        ("domain/kind", None, "domain.kind", ["is needed"]),
        ("domain/lower", None, "domain.lower", ["is needed"]),
        ("domain/upper", -1.0, "domain.upper", ["must exceed lower", "swapped"]),
        ("domain/unit", "s", "domain.unit", ["not a length"]),
        ("domain/axes", ["a", "b"], "domain.axes", ["2 axes"]),
        ("domain", {"kind": "polygon"}, "domain", ["`exterior`", "`file`"]),
        ("domain", {"kind": "polygon", "file": "a.geojson"}, "domain", ["degrees", "file_unit"]),
        (
            "domain",
            {"kind": "ball", "centre": [0, 0], "radius": 1.0, "inner_radius": 2.0},
            "domain.inner_radius",
            ["must be below radius"],
        ),
        ("domain", {"kind": "box", "lower": [0, 0], "upper": [1]}, "domain.lower", ["but upper has 1"]),
        ("domain", {"kind": "box", "lower": [0, 0], "upper": [1, 0]}, "domain.upper", ["every axis"]),
        ("time/unit", "m", "time.unit", ["is a length, not a time"]),
        ("time/start", 3, "time.start", ["must be a date"]),
        ("time/reorder", "-1 h", "time.reorder", ["not be negative"]),
        ("features/count", "many", "features.count", ["whole number from 4", "or 'auto'"]),
        ("features/count", 10**6, "features.count", ["from 4 to 4000"]),
        ("features/floor", 2.0, "features.floor", ["between 0 and 1"]),
        ("prior/std", float("nan"), "prior.std", ["finite"]),
        ("prior/std", 0.0, "prior.std", ["positive"]),
        ("prior", {"mean": 1.0}, "prior.std", ["is needed"]),
        ("sensors/noise", None, "sensors.table[0].noise", ["sensors.noise for all"]),
        ("sensors/table/0/at", [1.0, 2.0], "sensors.table[0].at", ["2 coordinates"]),
        ("sensors/table/1/id", "A", "sensors", ["'A' is listed twice"]),
        ("sensors/file", "a.csv", "sensors", ["either `file` or"]),
        ("input/range", [3.0], "input.range", ["1 entries", "at least 2"]),
        ("input/range", [3.0, 2.0], "input.range", ["[low, high]"]),
        ("input/unit", "m", "input.unit", ["the field is in 'degC'"]),
        ("output/every", "1 h", None, []),
        ("output", {"every": "1 h", "maps": [1.0]}, "output.every", ["not both"]),
    ],
)
def test_a_mistake_is_named_by_file_key_and_remedy(path, value, key, words):
    """Each message: the file, the key as written there, what is wrong, what would be right."""
    tables = changed(path, value)
    if key is None:  # the control: a change that is fine
        Problem.from_dict(tables, file="soil.toml")
        return
    with pytest.raises(ProblemError) as caught:
        Problem.from_dict(tables, file="soil.toml")
    # Another domain may also contradict the sensors; otherwise there is one complaint.
    [complaint] = [c for c in caught.value.complaints if path != "domain" or c.key == key]
    assert complaint.key == key
    for word in words:
        assert word in complaint.message
    assert str(caught.value).startswith("soil.toml: ") and f"{key}: {complaint.message}" in str(caught.value)


def test_all_mistakes_are_told_at_once():
    tables = changed("prior/std", "3 m") | {"field": {"name": "temperature", "unit": "degC"}}
    tables["prior"]["mean"] = "3 m"
    with pytest.raises(ProblemError, match="2 things to correct") as caught:
        Problem.from_dict(tables)
    assert [c.key for c in caught.value.complaints] == ["prior.std", "prior.mean"]
    assert isinstance(caught.value, RFKalmanError) and isinstance(caught.value, ValueError)


def test_mistakes_of_all_kinds_are_told_at_once(tmp_path):
    """Keys, units, cross checks, files, names of parts and rows of the sensor table: one message, each with its key."""
    (tmp_path / "sensors.csv").write_text("id,depth_m\nA,deep\nB,0.2\nB,0.3\n,0.4\n")
    (tmp_path / "p.toml").write_text(
        """
title = "no version"
[domain]
kind = "interval"
lower = 0
upper = 2
axes = ["depth"]
[field]
unit = "degC"
[physics]
difusion = "0.5 mm2/s"
reaction = "3 m"
[physics.boundary."x-"]
value = { file = "wall.csv" }
[prior]
std = "3 m"
mean = true
[sensors]
file = "sensors.csv"
coordinates = ["depth_m"]
noise = "0.1 degC"
[time]
unit = "h"
zone = "Mars/Olympus"
start = "yesterday"
[input]
range = [3, 2]
unit = "hPa"
[output]
levels = 3
level = 2.0
"""
    )
    with pytest.raises(ProblemError) as caught:
        Problem.from_toml(tmp_path / "p.toml")
    keys = [c.key for c in caught.value.complaints]
    assert sorted(keys) == sorted(
        [
            "version",
            "physics.difusion",
            "physics.reaction",
            "prior.mean",
            "prior.std",
            "output.levels",
            "output.level",
            "input.range",
            "input.unit",
            "time.zone",
            "sensors.file",
            "sensors.file",
            "sensors.file",
        ]
    )
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'p.toml'}: 13 things to correct")
    assert "line 2, column 'depth_m': must be a number; got 'deep'" in said
    assert "line 4: the sensor 'B' is listed twice (first on line 3)" in said
    assert "line 5: the sensor has no name" in said


def test_files_that_are_not_there_are_all_named_before_anything_is_built(tmp_path):
    """A sensor table, a table in time and a wrong part: one message of build, check and run."""
    tables = changed("physics/boundary/x+", {"value": {"file": "wall.csv"}})
    del tables["sensors"]["table"]
    tables["sensors"] |= {"file": "sensors.csv"}
    tables["physics"]["boundary"]["y+"] = {"flux": 0.0}
    problem = Problem.from_dict(tables, folder=tmp_path)
    with pytest.raises(ProblemError, match="3 things to correct") as caught:
        problem.build()
    assert [c.key for c in caught.value.complaints] == [
        'physics.boundary."x+".value.file',
        "sensors.file",
        'physics.boundary."y+"',
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = ", "is not TOML"),
        ("a" * 100, "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
        ("version = 1\nversion = 1", "is not TOML"),
        ("", "version"),
    ],
)
def test_a_file_that_is_no_toml_says_so(text, words):
    with pytest.raises(ProblemError, match=words):
        Problem.from_text(text, file="a.toml")


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ProblemError, match=r"nowhere\.toml: cannot be read: No such file"):
        Problem.from_toml(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe4'")
    with pytest.raises(ProblemError, match="not UTF-8"):
        Problem.from_toml(tmp_path / "latin.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * 5_000_000)
    with pytest.raises(ProblemError, match=r"input\.files"):
        Problem.from_toml(tmp_path / "big.toml")


@given(
    st.dictionaries(
        st.sampled_from(["version", "domain", "physics", "prior", "sensors", "time", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["kind", "lower", "diffusion", "boundary", "std", "table", "at", "y"]), inner
                )
            ),
            max_leaves=8,
        ),
    )
)
@settings(max_examples=150, deadline=None)
def test_any_tables_are_a_problem_or_a_problem_error(tables):
    """Fuzz: no other exception escapes."""
    try:
        Problem.from_dict(tables)
    except ProblemError as error:
        assert error.complaints


@pytest.mark.parametrize("section", sorted(set(BASE) - {"version"}))
@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=4), st.lists, max_leaves=4))
@settings(max_examples=15, deadline=None)
def test_rubbish_in_a_section_is_a_problem_error(section, value):
    """As above, with everything else right, so that the inner checks are reached."""
    for tables in ({**BASE, section: value}, {**BASE, section: {**BASE[section], next(iter(BASE[section])): value}}):
        try:
            Problem.from_dict(tables)
        except ProblemError as error:
            assert error.complaints


# -- the same in both forms -------------------------------------------------------------------------------------------

number = st.floats(0.01, 100.0).map(lambda v: round(v, 6))
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


def with_unit(*units: str) -> st.SearchStrategy:
    return number | st.builds(lambda v, u: f"{v!r} {u}", number, st.sampled_from(units))


unknown_flux = st.fixed_dictionaries(
    {"std": with_unit("degC m/h"), "change": with_unit("K cm/s")}, optional={"per": with_unit("h")}
)
unknown = st.one_of(
    st.fixed_dictionaries({"std": with_unit("degC", "K"), "change": with_unit("K")}, optional={"per": with_unit("h")}),
    st.fixed_dictionaries({"std": number, "process": st.just("ou"), "memory": with_unit("d")}),
    st.fixed_dictionaries({"std": number, "process": st.just("fixed")}, optional={"length": with_unit("cm")}),
    st.fixed_dictionaries(
        {"std": number, "process": st.just("integrated random walk"), "change": number}, optional={"trend": number}
    ),
)
series = st.fixed_dictionaries({"file": names}, optional={"time": names, "unit": st.just("degC")})
condition = st.one_of(
    st.fixed_dictionaries({"value": with_unit("degC", "K") | series}),
    st.fixed_dictionaries({"flux": number | st.fixed_dictionaries({"unknown": unknown_flux})}),
    st.fixed_dictionaries({"coefficient": with_unit("mm/h"), "ambient": with_unit("degC") | series}),
    st.fixed_dictionaries({"unknown": unknown}),
    st.fixed_dictionaries({"periodic": names}),
)
domain = st.one_of(
    st.builds(
        lambda a, b: {"kind": "interval", "lower": 0.0, "upper": b, "unit": a},
        st.sampled_from(["m", "cm"]),
        with_unit("m"),
    ),
    st.builds(
        lambda v, p: {"kind": "box", "lower": [-v, "-1 m"], "upper": [v, "1 m"], "parts": p},
        number,
        st.dictionaries(names, st.just("x-") | st.just(["x-", "y*"]), max_size=2),
    ),
    st.builds(lambda r: {"kind": "ball", "centre": [0.0, "1 km"], "radius": r}, with_unit("m", "km")),
    st.just({"kind": "polygon", "exterior": [[0, 0], [4, 0], [0, 3]], "holes": [[[1, 1], [1.5, 1], [1, 1.5]]]}),
    st.builds(lambda f: {"kind": "mesh", "file": f, "file_unit": "mm", "axes": ["x", "y"]}, names),
)
layered = st.just({"axis": 0, "interfaces": ["10 cm", "0.4 m"], "values": ["1 mm2/s", 2.0, 3.0]})


@st.composite
def problems(draw):
    where = draw(domain)
    d = 1 if where["kind"] == "interval" else 2
    physics = {"diffusion": draw(with_unit("mm2/s", "cm2/h") | layered)}
    physics |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "reaction": with_unit("1/d"),
                "source": number,
                "conservative": st.booleans(),
                "capacity": number,
                "velocity": st.lists(with_unit("m/s"), min_size=d, max_size=d),
                "boundary": st.dictionaries(names, condition, max_size=3),
                "process_noise": st.fixed_dictionaries(
                    {"change": with_unit("K")}, optional={draw(st.sampled_from(["length", "reach"])): with_unit("cm")}
                ),
                "source_field": st.fixed_dictionaries({"std": number, "memory": with_unit("h"), "modes": st.just(3)}),
                "sources": st.just(
                    [{"name": "w", "place": [1.0] * d, "strength": {"unknown": {"std": 1.0, "change": 2.0}}}]
                ),
            },
        )
    )
    tables = {
        "version": 1,
        "domain": where,
        "field": {"name": draw(names), "unit": "degC"},
        "physics": physics,
        "prior": {"std": draw(with_unit("degC"))} | draw(st.fixed_dictionaries({}, optional={"mean": with_unit("K")})),
        "sensors": {"noise": draw(with_unit("degC")), "table": [{"id": draw(names), "at": [1.0] * d}]},
    }
    tables |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "title": names,
                "features": st.fixed_dictionaries(
                    {},
                    optional={
                        "count": st.integers(4, 100) | st.just("auto"),
                        "floor": st.sampled_from([1e-6, "auto"]),
                        "length_scale": with_unit("m") | st.just("auto"),
                        "focus": st.sampled_from(["auto", "yes", "no"]),
                    },
                ),
                "time": st.fixed_dictionaries(
                    {},
                    optional={
                        "start": st.dates() | st.datetimes() | st.just("2020-01-01T00:00Z"),
                        "zone": names,
                        "step": with_unit("h", "min"),
                    },
                ),
                "input": st.fixed_dictionaries(
                    {},
                    optional={
                        "files": st.lists(names, max_size=3),
                        "missing": st.lists(st.integers() | names, max_size=3),
                        "where": st.dictionaries(names, names, max_size=2),
                        "range": st.just([-40, "60 degC"]),
                        "layout": st.sampled_from(["long", "wide"]),
                        "gate": number,
                    },
                ),
                "output": st.fixed_dictionaries(
                    {},
                    optional={
                        "thresholds": st.lists(with_unit("degC"), max_size=3),
                        "maps": st.lists(st.dates() | number, max_size=3),
                    },
                ),
            },
        )
    )
    return tables


@given(problems())
@settings(max_examples=120, deadline=None)
def test_file_and_python_round_trip(tables):
    """tables -> Problem -> TOML -> Problem is the identity, in what was said and in every converted number."""
    problem = Problem.from_dict(tables)
    text = problem.to_toml()
    again = Problem.from_text(text)
    assert again == problem
    assert again.to_toml() == text
    assert again.converted == problem.converted
    assert again.canonical() == problem.canonical()


def test_problems_that_differ_are_not_equal():
    """Control of the round trip: equality sees one digit."""
    assert Problem.from_dict(BASE) != Problem.from_dict(changed("prior/std", "3.0001 degC"))
    assert Problem.from_dict(BASE) != BASE


def test_defaults_written_out_change_neither_canonical_form_nor_digest():
    """The hash of a run is about what is computed, not about what is spelled out; output and files are not part."""
    one, two = Problem.from_dict(BASE), Problem.from_dict(changed("features/count", "auto"))
    three = Problem.from_dict(changed("output/folder", "elsewhere"))
    four = Problem.from_dict(changed("input/files", ["more.csv"]))
    assert one.digest() == two.digest() == three.digest() == four.digest()
    assert one.digest() != Problem.from_dict(changed("features/seed", 1)).digest()


#: One key of BASE changed, and the digest that the first version gave it.
DIGESTS = [
    ("title", "the same", "082a904242ba3401"),
    (
        "physics/diffusion",
        {"axis": "depth", "interfaces": ["30 cm"], "values": ["0.3 mm2/s", 0.001]},
        "bbeb2edf53fb23dd",
    ),
    (
        "physics/boundary/top",
        {"coefficient": "1 mm/h", "ambient": {"unknown": {"std": 1, "process": "fixed"}}},
        "24749391c95294b1",
    ),
    ("physics/process_noise", {"change": "0.5 K", "per": "1 d", "length": "20 cm"}, "fd07d863a192a53f"),
    (
        "physics/sources",
        [{"name": "leak", "place": ["50 cm"], "strength": {"unknown": {"std": 1, "change": 2}}}],
        "66dddd5a5693057b",
    ),
    ("features", {"length_scale": "10 cm", "count": 30, "floor": 1e-10, "seed": 3}, "b61fa965afac5068"),
    ("sensors/offset", "0.5 K", "312b79d1c4b066b8"),
    (
        "time",
        {"unit": "min", "start": "2024-05-01", "zone": "Europe/Berlin", "step": "1 h", "reorder": "2 h"},
        "184d409461723b93",
    ),
    (
        "input",
        {"layout": "wide", "unit": "degF", "range": ["-40 degF", 50], "gate": 5, "missing": ["", -9999]},
        "7d713f4ef5f5bbd9",
    ),
]


@pytest.mark.parametrize(("path", "value", "digest"), DIGESTS, ids=[path for path, _, _ in DIGESTS])
def test_a_file_of_version_1_keeps_its_digest(path, value, digest):
    """Runs that were begun with the first version go on: they are known by it."""
    assert Problem.from_dict(changed(path, value)).digest()[:16] == digest


def test_a_converted_problem_holds_numbers_in_its_units_and_says_the_same():
    """Converted once more, in the same units, numbers stay as they are."""
    problem = Problem.from_dict(changed("sensors/offset", "0.5 K"))
    found = problem.converted
    assert found.domain.upper == 2.0 and found.sensors.table[0].at == [0.05] and found.sensors.offset == 0.5
    assert found.physics.diffusion == problem.number("physics.diffusion") == pytest.approx(0.0018)
    assert found.physics.boundary["top"].unknown.std == 5.0 and found.time.step is None
    assert Problem.from_dict(found.as_dict()).converted == found
    assert problem.domain.upper == "2 m"


def test_the_digest_sees_the_files_that_are_part_of_the_problem(tmp_path):
    (tmp_path / "sensors.csv").write_text("id,depth\nA,0.1\n")
    tables = changed("sensors", {"file": "sensors.csv", "noise": 0.1})
    before = Problem.from_dict(tables, folder=tmp_path).digest()
    assert before == Problem.from_dict(tables, folder=tmp_path).digest()
    (tmp_path / "sensors.csv").write_text("id,depth\nA,0.2\n")
    assert Problem.from_dict(tables, folder=tmp_path).digest() != before


def test_a_problem_in_python_takes_the_librarys_own_objects():
    """Domains and conditions as they are used everywhere else; the file says the same."""
    problem = Problem(
        domain=rk.Box([0.0, 0.0], [4.0, 2.0]).renamed({"x-": "inlet"}),
        field={"name": "temperature", "unit": "degC"},
        physics={
            "diffusion": 0.1,
            "boundary": {
                "inlet": rk.Dirichlet(rk.Unknown((20.0, 3.0), rk.OrnsteinUhlenbeck(3.0, 2.0), length=0.5)),
                "x+": rk.Robin(0.2, 8.0),
                "y*": rk.Neumann(0.0),
            },
        },
        prior={"std": 2.0, "mean": 20.0},
        sensors={"table": [{"id": "A", "at": [1.0, 1.0]}], "noise": 0.1},
        time={"start": "2024-01-01T00:00Z"},
    )
    assert Problem.from_text(problem.to_toml()) == problem
    setup = problem.build()
    unknown = setup.space.pde.conditions["inlet"].value
    assert (unknown.mean, unknown.std, unknown.length) == (20.0, 3.0, 0.5)
    assert unknown.process == rk.OrnsteinUhlenbeck(3.0, 2.0)
    assert setup.space.pde.conditions["x+"] == rk.Robin(0.2, 8.0)


@pytest.mark.parametrize(
    "process", [rk.Fixed(), rk.RandomWalk(0.7), rk.OrnsteinUhlenbeck(1.0, 3.0), rk.IntegratedRandomWalk(0.2, 0.5)]
)
def test_processes_come_back_as_they_were(process):
    """Through the words of the file: change, per, memory, trend. One square root and back: a few roundings."""
    problem = Problem(
        domain=rk.Interval(0.0, 1.0),
        physics={"diffusion": 0.1, "boundary": {"x-": rk.Unknown(1.0, process), "x+": rk.Neumann()}},
        prior={"std": 1.0},
        sensors={"table": [{"id": "A", "at": 0.3}], "noise": 0.1},
        input={"time_unit": "h"},
    )
    back = problem.build().space.pde.conditions["x-"].value.process
    assert type(back) is type(process)
    for name in type(process).__dataclass_fields__:
        assert getattr(back, name) == pytest.approx(getattr(process, name), rel=1e-14)


def test_what_a_file_cannot_say_is_refused():
    mesh = rk.Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]])
    common = {
        "physics": {"diffusion": 1.0},
        "prior": {"std": 1.0},
        "sensors": {"table": [{"id": "A", "at": [0.1, 0.1]}], "noise": 0.1},
    }
    with pytest.raises(ProblemError, match="save the mesh"):
        Problem(domain=mesh, **common)
    with pytest.raises(ProblemError, match="table in time"):
        held = {"boundary": {"*": rk.Dirichlet(lambda x, t: x[:, 0])}}
        Problem(domain=rk.Box([0, 0], [1, 1]), **{**common, "physics": {"diffusion": 1.0, **held}})


def test_relative_paths_start_at_the_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "sensors.csv").write_text("id,depth\nA,0.1\nB,0.5\n")
    tables = changed("sensors", {"file": "sensors.csv", "noise": 0.1})
    place = tmp_path / "sub" / "soil.toml"
    place.write_text(Problem.from_dict(tables).to_toml())
    problem = Problem.from_toml(place)
    assert problem.build().sensors.ids == ("A", "B")
    assert problem.path("x.csv") == tmp_path / "sub" / "x.csv"


def test_every_key_is_on_the_page():
    """docs/problem-file.md speaks of each key of each table, as code."""
    page = PAGE.read_text(encoding="utf-8")
    code = re.findall(r"^```toml\n.*?^```|`[^`\n]+`|^## \[[a-z]+\]", page, re.M | re.S)
    assert len(code) > 100
    words = set(re.findall(r"[a-z_]+", " ".join(code)))
    tables = [Problem.schema(), *Problem.schema()["$defs"].values()]
    missing = {key for table in tables for key in table.get("properties", {})} - words
    assert not missing


# -- the published schema ---------------------------------------------------------------------------------------------


def test_the_published_schema_is_up_to_date():
    """Written by: python -c "from rfkalman.problem import Problem; print(Problem.schema_json(), end='')"."""
    assert PUBLISHED.read_text(encoding="utf-8") == Problem.schema_json()


def test_the_schema_describes_every_section_and_refuses_other_keys():
    schema = Problem.schema()
    assert set(schema["required"]) == {"version", "domain", "physics", "prior", "sensors"}
    assert not schema["additionalProperties"]
    assert all(not table["additionalProperties"] for table in schema["$defs"].values() if table["type"] == "object")
    json.dumps(schema)
