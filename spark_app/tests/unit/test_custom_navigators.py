"""Navigators of users: what they are called with, what they give back, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
from faulty import faults_of
from stories import Story

from tidemill import VOID, Depot, Expr, InProcessCluster, Ops, Path, PState, TestPState
from tidemill.client.paths import path_to_json
from tidemill.paths.budget import Budget
from tidemill.paths.compiled import compile_path
from tidemill.values.errors import BadPath, NotSelectable

Next = Callable[[Any], Any]


class Each:
    """Every element of a list, from `step` to `step`."""

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def select(self, value: list[Any] | None, next_: Next) -> Any:
        found = [next_(item) for item in (value or [])[:: self.step]]
        return found[0] if found else VOID

    def transform(self, value: list[Any] | None, next_: Next) -> Any:
        made = [next_(item) if index % self.step == 0 else item for index, item in enumerate(value or [])]
        return [item for item in made if item is not VOID] or VOID


class Changing:
    """Changes what it was given, which nobody else may see, and keeps what `next` gave."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def select(self, value: Any, next_: Next) -> Any:
        value.append(0)
        self.given = [next_(item) for item in value]
        return VOID

    def transform(self, value: Any, next_: Next) -> Any:
        value.append(0)
        self.given = [next_(item) for item in value]
        return value


def every(step: int) -> Each:
    return Each(step)


def is_big(value: Any) -> bool:
    return bool(value > 1)


def held(value: Any) -> TestPState:
    return TestPState.create(list, value)


def after(path: Path, value: Any) -> Any:
    pstate = TestPState.create(PState.map_schema(str, list))
    pstate.transform(Path.key("k").term_val(value))
    pstate.transform(Path((*Path.key("k").path.navs, *path.path.navs), path.faults))
    return pstate.select_one(Path.subselect(Path.must("k")))


def test_a_select_goes_on_with_each_value_that_next_is_called_with() -> None:
    assert held([1, 2, 3]).select(Path.custom_nav(Each())) == [1, 2, 3]
    assert held([1, 2, 3]).select(Path.custom_nav(Each(2)).view(Ops.INC)) == [2, 4]
    assert held([[1, 2], [3]]).select(Path.custom_nav(Each()).custom_nav(Each())) == [1, 2, 3]
    assert held([1, 2]).select(Path.put_collected("c").custom_nav(Each())) == [["c", 1], ["c", 2]]
    assert held(None).select(Path.custom_nav(Each())) == []


def test_a_select_is_built_from_arguments_when_it_has_a_builder() -> None:
    assert held([1, 2, 3]).select(Path.custom_nav_builder(every, 2)) == [1, 3]
    assert held([1, 2, 3]).select(Path.custom_nav_builder(Each)) == [1, 2, 3]


def test_a_transform_writes_what_the_navigator_makes() -> None:
    assert after(Path.custom_nav(Each()).term(Ops.INC), [1, 2]) == [[2, 3]]
    assert after(Path.custom_nav_builder(every, 2).term_val(0), [1, 2, 3]) == [[0, 2, 0]]
    assert after(Path.custom_nav(Each()).filter_pred(is_big).term(Ops.INC), [1, 2]) == [[1, 3]]


def test_void_removes_when_next_or_the_navigator_gives_it() -> None:
    assert after(Path.custom_nav(Each()).filter_pred(is_big).term_void(), [1, 2, 3]) == [[1]]
    assert after(Path.custom_nav(Each()).term_void(), [1, 2]) == []


def test_next_gives_the_first_value_or_void() -> None:
    changing = Changing()
    held([1, 2]).select(Path.custom_nav(changing).filter_pred(is_big).multi_path(Path.view(Ops.INC), Path.stay()))
    assert changing.given == [VOID, 3, VOID]


def test_what_a_navigator_changes_is_a_copy() -> None:
    pstate, changing = held([1, [2]]), Changing()
    assert pstate.select(Path.custom_nav(changing)) == [1, [2], 0]
    assert pstate.select_one() == [1, [2]]
    pstate.transform(Path.custom_nav(changing).stop())
    assert (pstate.select_one(), changing.given) == ([1, [2], 0], [1, [2], 0])


def test_a_navigator_is_a_condition_as_other_paths_are() -> None:
    assert held([1, 2]).select(Path.filter_selected(Path.custom_nav(Each()).filter_equal(2)).first()) == [1]
    assert held([1, 2]).select(Path.if_path(Path.custom_nav(Each(5)).filter_equal(2), Path.first(), Path.last())) == [2]
    path = Path.subselect(Path.custom_nav(Each())).term(lambda found: found[::-1])
    assert after(path, [1, 2, 3]) == [[3, 2, 1]]


def test_refused_when_a_navigator_meets_an_indexed_structure() -> None:
    pstate = TestPState.create(PState.map_schema(str, PState.list_schema(int).subindexed()))
    pstate.transform(Path.key("a").term_val([1, 2]))
    assert pstate.select(Path.key("a").sublist(0, 2).custom_nav(Each())) == [1, 2]
    pstate.transform(Path.key("a").sublist(0, 2).custom_nav(Each(2)).term_void())
    assert pstate.select(Path.key("a").all()) == [2]
    for path in (Path.key("a").custom_nav(Each()), Path.key("a").custom_nav(Each()).term_void()):
        with pytest.raises(NotSelectable, match="an indexed list cannot be taken whole"):
            (pstate.select if path.path.navs[-1].name == "custom_nav" else pstate.transform)(path)


def test_refused_at_its_line_when_a_navigator_surely_meets_an_indexed_structure() -> None:
    """What is taken out of one, a part or an element, is plain."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, PState.list_schema(int).subindexed()))
        mb.pstate("$$q", PState.map_schema(str, list))
        mb.pstate("$$r", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*k").hash_partition("*k")
        chain.local_select("$$p", Path.key("*k").sublist(0, 2).custom_nav(Each())).out("*a").local_select(
            "$$q", Path.key("*k").custom_nav(Each())
        ).out("*b").local_select("$$r", Path.key("*k").sorted_map_range_from("a", max_amt=2).custom_nav(Each())).out(
            "*c"
        ).local_select("$$q", Path.sorted_map_range_from("a", max_amt=2).custom_nav(Each())).out("*d")
        chain.local_select("$$p", Path.key("*k").custom_nav(Each())).out("*e")
        chain.local_transform("$$r", Path.key("*k").custom_nav_builder(every, 2).term(Ops.INC))
        chain.local_select("$$q", Path.custom_nav(Each())).out("*f")

    faults = faults_of(define)
    assert [fault.text for fault in faults] == [
        "custom_nav takes a structure whole, but elements of '$$p' are stored one by one here.",
        "custom_nav_builder takes a structure whole, but elements of '$$r' are stored one by one here.",
        "custom_nav takes a structure whole, but elements of '$$q' are stored one by one here.",
    ]


def test_refused_when_a_builder_gives_no_navigator() -> None:
    with pytest.raises(BadPath, match=r"list gave \[\], which has no select\(value, next\)"):
        held([1]).select(Path.custom_nav_builder(list))


def test_refused_when_an_object_or_a_class_is_no_navigator() -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, list))
        chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*k")
        chain = chain.local_select("$$p", Path.key("*k").custom_nav(3)).out("*a")
        chain = chain.local_select("$$p", Path.key("*k").custom_nav(Each)).out("*b")
        chain.local_transform("$$p", Path.key("*k").custom_nav(Each()))

    number, class_, open_ = faults_of(define)
    assert "3 is no navigator." in number.text and "select(value, next)" in str(number)
    assert "is no navigator" in class_.text and "such as Each()" in str(class_)
    assert "does not end in a terminal" in open_.text


def test_a_path_with_a_navigator_does_not_travel_as_json() -> None:
    with pytest.raises(BadPath, match="Each does not travel to the gateway"):
        path_to_json(Path.custom_nav(Each()))


def test_a_path_with_a_navigator_travels_to_workers() -> None:
    path = cloudpickle.loads(cloudpickle.dumps(Path.custom_nav(Each(2)).path))
    assert compile_path(path, None, "select").select([1, 2, 3], []) == [1, 3]
    assert cloudpickle.loads(cloudpickle.dumps(VOID)) is VOID


def test_visits_behind_a_navigator_count_when_there_is_a_budget() -> None:
    budget = Budget()
    compile_path(Path.custom_nav(Each()).stay().path, None, "select", budget=budget).select([1] * 100, [])
    assert Budget().steps - budget.steps >= 100


def test_navigators_work_in_topologies_and_for_clients() -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, list))
        mb.pstate("$$seen", PState.map_schema(int, int))
        chain = mb.source("*in").out("*m").explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
        chain = chain.hash_partition("*k").local_transform("$$p", Path.key("*k").end().term_val("*v"))
        chain = chain.each(Ops.SIZE, "*v").out("*n")
        chain = chain.local_transform("$$p", Path.key("*k").custom_nav_builder(every, "*n").term(Ops.TIMES, 10))
        chain = chain.local_select("$$p", Path.key("*k").custom_nav(Each())).out("*e").hash_partition("*e")
        chain.local_transform("$$seen", Path.key(Expr(Ops.IDENTITY, "*e")).null_to_val(0).term(Ops.INC))

    with InProcessCluster.create() as cluster:
        story = Story(cluster, "Custom", define, 2, 1)
        story.batch(**{"in": [["a", [1, 2, 3]], ["b", [4]]]})
        assert story.pstate("$$p").select(Path.key("a").custom_nav(Each())) == [10, 2, 3]
        story.batch(**{"in": [["a", [5, 6]]]})
        assert story.pstate("$$p").select_one(Path.key("a")) == [100, 2, 30, 5, 60]
        assert story.pstate("$$seen").select_one(Path.key(2)) == 2
