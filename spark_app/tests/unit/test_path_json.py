"""The JSON form of paths reads as the same path that Python builds; what is wrong is found with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill.api.path import Path
from tidemill.language.operations import Ops
from tidemill.paths.compiled import compile_path
from tidemill.paths.json import path_from_json
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath

FORMS: list[tuple[str, Path]] = [
    ("[]", Path()),
    ('["a", "b"]', Path.key("a").key("b")),
    ('[["key", "a", 1]]', Path.key("a", 1)),
    ("[5, true]", Path.key(5).key(True)),
    ('[["must", "a"], ["mapVals"]]', Path.must("a").map_vals()),
    ('[["sub_map", "a", "b"]]', Path.sub_map("a", "b")),
    ('[["sublist", 1, 3], ["sublistToEnd", 2]]', Path.sublist(1, 3).sublist_to_end(2)),
    (
        '[["condPath", [["must", "a"]], ["a"], [], ["b"]]]',
        Path.cond_path(Path.must("a"), Path.key("a"), Path(), Path.key("b")),
    ),
    ('[["continueThenStay", ["a"]]]', Path.continue_then_stay(Path.key("a"))),
    ('[["withFreshCollected", [["putCollected", 1]]]]', Path.with_fresh_collected(Path.put_collected(1))),
    ('[["index", 1]]', Path.index(1)),
    ('[["indexedVals"], ["nth", 1]]', Path.indexed_vals().nth(1)),
    ('[["beforeElem"], ["afterElem"], ["beforeIndex", 1]]', Path.before_elem().after_elem().before_index(1)),
    ('[["beginning"], ["end"]]', Path.beginning().end()),
    ('[["sublistDynamic", "#__fOps.FIRST", "#__fOps.GET"]]', Path.sublist_dynamic(Ops.FIRST, Ops.GET)),
    ('[["filteredList", [["must", "a"]]]]', Path.filtered_list(Path.must("a"))),
    ('[["continuousSubseqs", "#__fOps.IS_EVEN"]]', Path.continuous_subseqs(Ops.IS_EVEN)),
    ('[["filterPred", "#__fOps.IS_EVEN"]]', Path.filter_pred(Ops.IS_EVEN)),
    ('[["view", "#__fPLUS", 3]]', Path.view(Ops.PLUS, 3)),
    ('["#__L9007199254740993"]', Path.key(9007199254740993)),
    ('[["key", ["#__L1", {"#__L2": "x"}]]]', Path.key([1, {2: "x"}])),
    ('[["multiPath", ["a"], [["all"], 1]]]', Path.multi_path(Path.key("a"), Path.all().key(1))),
    ('[["withPageSize", 10, [["all"]]]]', Path.with_page_size(10, Path.all())),
    ('[["ifPath", [["must", "a"]], ["b"], ["c"]]]', Path.if_path(Path.must("a"), Path.key("b"), Path.key("c"))),
]
FAULTS: list[tuple[Any, str]] = [
    ("a", "a path is a list"),
    ([["nope"]], r"path\[0\]: the navigator 'nope' does not exist"),
    (["a", ["customNav", 1]], r"path\[1\]: the navigator 'customNav' takes code of yours, which has no JSON form"),
    ([["custom_nav_builder", "#__fOps.TUPLE"]], "takes code of yours"),
    ([["filterPred", "IS_EVEN"]], r"path\[0\]\[1\]: 'IS_EVEN' is no function"),
    ([["filterPred", "#__fOps.NOPE"]], "no built-in function 'NOPE'"),
    ([["sublistDynamic", "#__fOps.SIZE", "#__fOps.SIZE"]], r"path\[0\]\[2\]: SIZE takes 1 values.* not 2"),
    ([["sublistDynamic", "#__fOps.GET", "#__fOps.GET"]], r"path\[0\]\[1\]: GET takes 2 to 3 values.* not 1"),
    ([["view", "#__fOps.EXPLODE"]], "EXPLODE cannot be called in a path"),
    ([["view", "#__fOps.CURRENT_TASK_ID"]], "cannot be called in a path"),
    (["#__X1"], r"path\[0\]: '#__X1' is no value"),
    ([["sortedMapRange", 1, 2, {"nope": 1}]], "no option 'nope'"),
    ([["sortedMapRangeFrom", 1, {"include_end": True}]], "sorted_map_range_from has no option 'include_end'"),
    ([["sortedSetRangeToEnd", 1, {"max_amt": 2}]], "it has none"),
    (["a", ["mapVals", 1]], r"at path\[1\]: map_vals takes 0 arguments, not 1"),
    ([["filterSelected", ["a"], [["term", "x"]]]], r"at path\[0\]: filter_selected takes 1 argument, not 2"),
    ([["filterPred", "#__fOps.IS_EVEN", 1]], "filter_pred takes 1 argument, not 2"),
    ([["ifPath", [], [], [], []]], "if_path takes 3 arguments, not 4"),
    ([["sortedMapRange", 1, 2, {"inclusive-end?": "no"}]], "'inclusive-end\\?' is true or false, not 'no'"),
    ([["sortedMapRange", 1, 2, {"include_end": True, "inclusive-end?": False}]], "says again what another one said"),
    ([["sortedMapRange", 1, 2, {"include_end": True, "excludeEnd": True}]], "says again what another one said"),
    ([["multiPath", ["a"], "b"]], r"path\[0\]\[2\]: a path is a list"),
    ([["collect", ["a"], {}]], r"path\[0\]\[2\]: {} is one too many; collect has no options"),
    ([["subselect", ["a"], {}]], r"path\[0\]\[2\]"),
    ([["transformed", [["termVal", 1]], {}]], r"path\[0\]\[2\]"),
    (["a", ["all", {}]], r"path\[1\]\[1\]"),
    (["a", ["pkey", 1]], "can only be the first"),
    ([["pkey"]], "with one key"),
    ([[]], "is no navigator"),
    ([None], "is no navigator"),
    ([{"a": 1}], "is no navigator"),
]


@pytest.mark.parametrize(("text", "path"), FORMS)
def test_same_path_when_read_from_json(text: str, path: Path) -> None:
    assert path_from_json(json.loads(text)).path == path.path


def test_range_has_its_options_when_read_from_json() -> None:
    data = [["sortedMapRange", 1, 9, {"inclusive-end?": True, "inclusive-start?": False}]]
    compiled = compile_path(path_from_json(data).path, None, "select")
    assert compiled.select({1: "a", 5: "b", 9: "c"}, [1, 9]) == [{5: "b", 9: "c"}]
    limited = compile_path(path_from_json([["sortedMapRangeTo", 9, {"max-amt": 1}]]).path, None, "select")
    assert limited.select({1: "a", 5: "b", 9: "c"}, [9]) == [{5: "b"}]


def test_ends_are_excluded_when_an_option_says_so() -> None:
    read = path_from_json([["sortedMapRange", 1, 9, {"excludeStart": True, "exclude_end": False}]])
    assert read.path == Path.sorted_map_range(1, 9, include_start=False, include_end=True).path


def test_partition_key_when_it_comes_first() -> None:
    read = path_from_json([["pkey", "#__L7"], "a"])
    assert (read.pkey, read.path) == (7, Path.key("a").path)
    assert path_from_json([["pkey", None]]).pkey is None
    assert path_from_json(["a"]).pkey is ABSENT


@pytest.mark.parametrize(("data", "text"), FAULTS)
def test_place_is_named_when_json_is_wrong(data: Any, text: str) -> None:
    with pytest.raises(BadPath, match=text):
        path_from_json(data)
