"""Paths of strangers: what they may ask for is bounded, and what is wrong in them is theirs, with its place."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.api.path import Path
from tidemill.api.schemas import PState
from tidemill.gateway.formats import ANSWERS, encoded
from tidemill.language.operations import ALL_OPS
from tidemill.paths.budget import BYTES_MAX, RESULTS_MAX, STEPS_MAX, Budget
from tidemill.paths.compiled import argument_value, compile_path
from tidemill.paths.json import ARGUMENTS_MAX, NAVIGATORS_MAX, PATHS_DEPTH_MAX, VALUES_DEPTH_MAX, path_from_json
from tidemill.paths.navigators import NAVIGATORS
from tidemill.pstate.test_pstate import TestPState
from tidemill.values.errors import BadInput, BadPath, BudgetExceeded

SECONDS_MAX = 60.0
"""Far more than a budget lasts, far less than what these paths ask for."""

VALUE = {"a": 1, "t": "text", "l": [3, 1, 2], "m": {"x": {"y": None}, "z": 1.5}, "s": {1, 2}, "%": "%999999999d"}


def held() -> Any:
    """A partition: `plain` holds a value of every kind, `indexed` a subindexed map, `set` and `list` the same."""
    schema = PState.fixed_keys_schema(
        "plain", object, "indexed", PState.map_schema(str, int).subindexed(), "set",
        PState.set_schema(int).subindexed(), "list", PState.list_schema(int).subindexed(),
    )  # fmt: skip
    pstate = TestPState.create(PState.map_schema(str, schema))
    pstate.transform(Path.key("k").key("plain").term_val(VALUE))
    for number in range(10):
        pstate.transform(Path.key("k").key("indexed").key(f"i{number}").term_val(number))
        pstate.transform(Path.key("k").key("set").void_set_elem().term_val(number))
        pstate.transform(Path.key("k").key("list").after_elem().term_val(number))
    return pstate


ROOT = held()


def selected(data: Any, budget: Budget | None = None) -> list[Any]:
    """What a path from outside navigates to, as the gateway asks."""
    budget = budget or Budget()
    read = path_from_json(data)
    with budget.placed():
        compiled = compile_path(read.path, ROOT._schema, "select", budget=budget)
        return compiled.select(ROOT._root, [argument_value(argument) for argument in compiled.arguments])


def doubled(levels: int, inner: Any = ()) -> list[Any]:
    """A path that goes two ways, so many times."""
    return [["multiPath", list(inner), list(inner)] for _ in range(levels)]


TEXT = ["k", "plain", "t"]
WIDE = [["subselect", doubled(1)] for _ in range(40)]
TIMES, TUPLE, TO_STRING = "#__fOps.TIMES", "#__fOps.TUPLE", "#__fOps.TO_STRING"
UNBOUNDED: dict[str, list[Any]] = {
    "2^40 results": [*TEXT, *doubled(40)],
    "2^40 places without a result": [*doubled(40), ["stop"]],
    "2^40 hits of a condition": [["filterSelected", [*doubled(40), ["stop"]]]],
    "2^40 collected": ["k", ["collect", [*doubled(40), "plain"]]],
    "a list of lists 2^40 large": [*TEXT, *WIDE],
    "the same, seen by a function": [*TEXT, *WIDE, ["view", "#__fOps.SIZE"]],
    "the same, collected": [*TEXT, *WIDE, ["collect", []], ["isCollected", "#__fOps.SIZE"]],
    "a text times a billion": [*TEXT, ["view", TIMES, 10**9]],
    "a text times many small numbers": [*TEXT, *[["view", TIMES, 10]] * 20],
    "a list times a billion": ["k", "plain", "l", ["view", TIMES, 10**9]],
    "escapes of escapes": ["k", "plain", "a", ["view", TO_STRING, "\\"], *[["view", TUPLE], ["view", TO_STRING]] * 45],
    "a text that a transform makes": [*TEXT, ["transformed", [["term", TIMES, 10**9]]]],
    "a list that grows by lists": [
        "k", "plain", "l", ["transformed", [*doubled(20), ["end"], ["termVal", [0] * 9_000]]],
    ],
    "a list that moves in itself": [
        "k", "plain", "l", ["transformed", [*doubled(20), ["indexedVals"], ["first"], ["termVal", 0]]],
    ],
    "2^40 values that stay": [*TEXT, *[["continueThenStay", []]] * 40],
    "2^40 ways behind conditions": [
        *TEXT, *[["condPath", [["stop"]], [], [], [["multiPath", [], []]]]] * 12, ["withFreshCollected", doubled(28)],
    ],
    "runs of runs": ["k", "plain", "l", *[["continuousSubseqs", "#__fOps.IS_NOT_NULL"]] * 40, *doubled(40)],
    "a map in which all keys hold it": ["k", "plain", ["subMap", *["m"] * 9_000], *doubled(22)],
}  # fmt: skip


@pytest.mark.parametrize("path", UNBOUNDED.values(), ids=UNBOUNDED)
def test_the_work_ends_when_a_path_asks_for_more_than_any_machine_has(path: list[Any]) -> None:
    began = time.thread_time()

    with pytest.raises(BudgetExceeded) as refused:
        selected(path)
    assert time.thread_time() - began < SECONDS_MAX
    assert refused.value.context["at"].startswith("path")


def test_a_format_is_refused_when_its_text_could_be_of_any_length() -> None:
    with pytest.raises(BadPath, match="MOD is of numbers, not of a str"):
        selected(["k", "plain", "%", ["view", "#__fOps.MOD", 5]])


def test_a_select_ends_when_its_time_is_over() -> None:
    with pytest.raises(BudgetExceeded, match="longer than a request"):
        selected(doubled(12), Budget(lambda: True))


@pytest.mark.parametrize(
    ("path", "budget", "text"),
    [
        ([*TEXT, *doubled(5)], Budget(steps=20), f"{STEPS_MAX:,} places"),
        ([*TEXT, *doubled(5)], Budget(results=31), f"{RESULTS_MAX:,} values"),
        (["k", "plain", ["subselect", doubled(5)]], Budget(bytes=10_000), f"{BYTES_MAX // 2**20} MB"),
        (["k", "indexed", ["sortedMapRangeFrom", "i0"]], Budget(steps=8), "places"),
        (["k", "indexed", ["sortedMapRangeFrom", "i0"]], Budget(bytes=300), "MB"),
        (["k", "set", ["sortedSetRangeFrom", 0]], Budget(steps=8), "places"),
        (["k", "indexed", ["mapVals"]], Budget(results=9), "values"),
        *(
            (["k", "list", navigator], budget, text)
            for navigator in (
                ["sublist", 0, 10],
                ["filteredList", []],
                ["sublistDynamic", "#__fOps.FIRST", "#__fOps.SUM"],
                ["continuousSubseqs", "#__fOps.IS_NOT_NULL"],
                ["continuousSubseqs", "#__fOps.IS_NULL"],
                ["indexedVals"],
            )
            for budget, text in ((Budget(steps=8), "places"), (Budget(bytes=200), "MB"))
        ),
    ],
)
def test_a_select_is_refused_when_one_part_of_its_budget_is_spent(path: Any, budget: Budget, text: str) -> None:
    with pytest.raises(BudgetExceeded, match=text):
        selected(path, budget)


def test_answers_are_the_same_when_there_is_a_budget() -> None:
    for path in (
        ["k", "plain"],
        ["k", "indexed", ["all"]],
        ["k", "set", ["subset", 3, 4, 50]],
        [*TEXT, ["view", "#__fOps.SIZE"]],
    ):
        compiled = compile_path(path_from_json(path).path, ROOT._schema, "select")
        assert selected(path) == compiled.select(ROOT._root, [argument_value(a) for a in compiled.arguments])


WRONG: list[tuple[list[Any], str]] = [
    ([*TEXT, ["view", "#__fOps.CLASS_OF"]], "path[3]"),
    ([*TEXT, ["view", "#__fOps.SUM"]], "path[3]"),
    ([*TEXT, ["filterPred", "#__fOps.IS_INSTANCE_OF"]], "path[3][1]"),
    ([*TEXT, ["view", "#__fOps.PRINTLN"]], "path[3][1]"),
    ([*TEXT, ["term", "#__fOps.PRINTLN"]], "path[3][1]"),
    ([*TEXT, ["view", "#__fOps.INC"]], "path[3]"),
    ([*TEXT, ["view", "#__fOps.DIV", 0]], "path[3]"),
    (["k", "plain", "a", ["view", "#__fOps.DIV", 0]], "path[3]"),
    (["k", "plain", "a", ["filterPred", "#__fOps.SIZE"]], "path[3]"),
    (["k", "plain", "a", ["mapVals"]], "path[3]"),
    (["k", "plain", ["multiPath", [], ["a", ["all"]]]], "path[2][2][1]"),
    (["k", "plain", ["transformed", [["termVal"]]]], "path[2][1][0]"),
    (["k", "plain", ["nullToVal"], ["filterEqual"]], "path[3]"),
    (["k", "plain", ["condPath", [], [], []]], "path[2]"),
    (["k", "plain", ["condPath", [], ["a", ["all"]]]], "path[2][2][1]"),
    (["k", "plain", ["continueThenStay", ["a", ["all"]]]], "path[2][1][1]"),
    (["k", "plain", ["withFreshCollected", [["mapVals"], ["nth", 3]]]], "path[2][1][1]"),
    (["k", "indexed"], "path"),
    (["#__L" + "9" * 5_000], "path[0]"),
    ([2**63], "path[0]"),
    (["k"] * (NAVIGATORS_MAX + 1), f"path[{NAVIGATORS_MAX}]"),
    ([["key", *["k"] * (NAVIGATORS_MAX + 1)]], "path[0]"),
    ([["subMap", *["k"] * (ARGUMENTS_MAX + 1)]], "path[0]"),
]


@pytest.mark.parametrize(("path", "place"), WRONG, ids=str)
def test_the_place_is_named_when_a_path_is_wrong(path: list[Any], place: str) -> None:
    with pytest.raises(BadInput) as refused:
        selected(path)
    assert refused.value.context["at"].startswith(place)
    assert len(str(refused.value)) < 1_000


def test_a_place_counts_as_its_writer_counts_when_the_path_names_its_partition() -> None:
    read = path_from_json([["pkey", "k"], *TEXT, ["view", "#__fOps.SUM"]])
    budget = Budget(first=read.first)

    compiled = compile_path(read.path, ROOT._schema, "select", budget=budget)
    with pytest.raises(BadPath) as refused:
        compiled.select(ROOT._root, [argument_value(a) for a in compiled.arguments])
    assert refused.value.context["at"] == "path[4]"


@pytest.mark.parametrize("levels", [PATHS_DEPTH_MAX + 1, 400, 100_000])
def test_paths_in_paths_are_refused_when_they_are_too_deep(levels: int) -> None:
    path: list[Any] = []
    for _ in range(levels):
        path = [["multiPath", path]]

    with pytest.raises(BadPath, match="deep"):
        path_from_json(path)


@pytest.mark.parametrize("levels", [VALUES_DEPTH_MAX + 1, 100_000])
def test_values_in_a_path_are_refused_when_they_are_too_deep(levels: int) -> None:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]

    with pytest.raises(BadPath, match="deeper"):
        path_from_json([["key", value]])


@pytest.mark.parametrize("count", [[], "2", 1.0, True, -1, None])
@pytest.mark.parametrize("navigator", [name for name in NAVIGATORS if name.endswith(("from_start", "to_end"))])
def test_path_is_refused_when_a_number_of_elements_is_none(navigator: str, count: Any) -> None:
    places = {"set": ["k", "set"], "list": ["k", "plain", "l"]}
    place = next((place for kind, place in places.items() if kind in navigator), ["k", "plain"])
    with pytest.raises(BadPath, match="no count"):
        selected([*place, [navigator, count]])


# --- any path --------------------------------------------------------------------------------------------------------

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.binary(max_size=3),
    st.sampled_from(["k", "plain", "indexed", "set", "t", "l", "m", "s", "%", "#__L5", "#__Sx", "#__x", ""]),
)  # fmt: skip
_ARGUMENTS = st.recursive(
    st.one_of(_SCALARS, st.sampled_from([f"#__fOps.{name}" for name in ALL_OPS])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["max_amt", "inclusive-end?", "x"]), inner, max_size=2),
    ),
    max_leaves=5,
)
_NAMES = st.sampled_from([*NAVIGATORS, "pkey", "nope"])
_NAVS = st.recursive(
    st.one_of(_SCALARS, st.builds(lambda name, args: [name, *args], _NAMES, st.lists(_ARGUMENTS, max_size=3))),
    lambda inner: st.builds(
        lambda name, function, paths: [name, *function, *paths],
        st.sampled_from(["multiPath", "ifPath", "subselect", "collect", "collectOne", "transformed", "filterSelected"]),
        st.just([]),
        st.lists(st.lists(inner, max_size=3), min_size=1, max_size=3),
    ),
    max_leaves=8,
)
_BEGINNINGS = st.sampled_from(
    [[], ["k"], ["k", "plain"], ["k", "plain", "l"], ["k", "indexed"], ["k", "set"], ["k", "list"], TEXT]
)


@settings(deadline=None)
@given(_BEGINNINGS, st.lists(_NAVS, max_size=5))
def test_any_path_gives_values_or_a_refusal_of_the_client_when_asked(beginning: list[Any], rest: list[Any]) -> None:
    try:
        found = selected([*beginning, *rest])
    except BadInput as error:
        assert len(str(error)) < 2_000
    else:
        assert all(encoded(found, kind) for kind in ANSWERS)
