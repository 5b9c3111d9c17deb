"""Stories of the documentation's pages on aggregators and PStates, as a user retells them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from stories import Story

from tidemill import (
    AccumulatorAgg,
    Agg,
    Block,
    CombinerAgg,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    NotOneValue,
    NotSelectable,
    Ops,
    Path,
    PState,
    SubindexOptions,
)
from tidemill.values.data import route

_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"Aggregators{next(_NUMBERS)}"


class Product(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return current * value

    def zero_val(self) -> Any:
        return 1


class Joined(AccumulatorAgg):
    def accumulate(self, current: Any, *args: Any) -> Any:
        return current + "".join(str(arg) for arg in args)

    def init_val(self) -> Any:
        return ">"


KEYED: list[tuple[str, Any, Any, list[Any], Any]] = [
    ("count", Agg.count(), int, [5, 6], 2),
    ("sum", Agg.sum("*v"), int, [5, 6], 11),
    ("sum of floats", Agg.sum("*v"), float, [0.5, 0.25], 0.75),
    ("min", Agg.min("*v"), int, [6, 5, 7], 5),
    ("max", Agg.max("*v"), str, ["a", "c", "b"], "c"),
    ("and", Agg.and_("*v"), bool, [True, False, True], False),
    ("or", Agg.or_("*v"), bool, [False, True], True),
    ("first", Agg.first("*v"), int, [6, 5], 6),
    ("last", Agg.last("*v"), int, [6, 5], 5),
    ("list", Agg.list("*v"), PState.list_schema(int), [6, 5, 6], [6, 5, 6]),
    ("set", Agg.set("*v"), PState.set_schema(int), [6, 5, 6], {5, 6}),
    ("multi_set", Agg.multi_set("*v"), PState.map_schema(int, int), [6, 5, 6], {6: 2, 5: 1}),
    ("map", Agg.map("*v", Expr(Ops.INC, "*v")), PState.map_schema(int, int), [6, 5], {6: 7, 5: 6}),
    ("merge", Agg.merge("*v"), PState.map_schema(str, int), [{"a": 1, "b": 1}, {"a": 2}], {"a": 2, "b": 1}),
    ("combiner", Agg.combiner(Product(), "*v"), int, [3, 4], 12),
    ("combiner class", Agg.combiner(Product, "*v"), int, [3, 4], 12),
    ("accumulator", Agg.accumulator(Joined(), "*v", 0), str, [3, 4], ">3040"),
]


@pytest.mark.parametrize(("agg", "schema", "values", "expected"), [row[1:] for row in KEYED], ids=[r[0] for r in KEYED])
@pytest.mark.parametrize("form", ["plain", "batch", "grouped", "nested"])
def test_every_aggregator_gives_what_its_page_says(
    cluster: InProcessCluster, name: str, form: str, agg: Agg, schema: Any, values: list[Any], expected: Any
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        deep = form == "nested"
        inner = PState.map_schema(str, schema).subindexed() if deep else schema
        mb.pstate("$$p", PState.map_schema(str, inner))
        rows = Block.explode_microbatch("*microbatch").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
        tree = CompoundAgg.map("*k", CompoundAgg.map("deep", agg)) if deep else CompoundAgg.map("*k", agg)
        chain = mb.source("*in").out("*microbatch")
        if form == "batch":
            chain.batch_block(rows.hash_partition("*k").compound_agg("$$p", tree))
        elif form == "grouped":
            grouped = rows.group_by("*k", Block.agg(agg).out("*a"))
            chain.batch_block(grouped.local_transform("$$p", Path.key("*k").term_val("*a")))
        else:
            chain.macro(rows).compound_agg("$$p", tree)

    story = Story(cluster, name, define, 2, 1)
    story.batch(**{"in": [["k", value] for value in values]})
    found = story.pstate("$$p")
    assert found.select_one(Path.key("k", "deep") if form == "nested" else Path.key("k")) == expected
    assert found.select_one(Path.key("other")) is None if form != "nested" else True


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_variable_has_the_whole_structure_when_compound_agg_names_no_pstate(
    cluster: InProcessCluster, name: str, tasks: int
) -> None:
    tree = CompoundAgg.map("*k", CompoundAgg.list(Agg.count(), Agg.sum("*v"), CompoundAgg.map("*v", Agg.last("*k"))))

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$m", dict).global_()
        mb.pstate("$$of", PState.map_schema(str, dict))
        rows = Block.explode_microbatch("*microbatch").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
        whole = rows.global_partition().compound_agg(tree).out("*m").agg(Agg.avg("*v")).out("*avg")
        by_key = rows.group_by("*k", Block.compound_agg(CompoundAgg.map("*v", Agg.count())).out("*counts"))
        chain = mb.source("*in").out("*microbatch")
        chain = chain.batch_block(whole.local_transform("$$m", Path.term_val("*m")))
        chain.batch_block(by_key.local_transform("$$of", Path.key("*k").term_val("*counts")))
        query = topologies.query("lengths", "*words").out("*found")
        query = query.each(Ops.EXPLODE, "*words").out("*word").each(len, "*word").out("*length").origin_partition()
        query.compound_agg(CompoundAgg.map("*length", Agg.list("*word"))).out("*found")

    story = Story(cluster, name, define, tasks, 1)
    story.batch(**{"in": [["a", 1], ["b", 2], ["a", 1], ["a", 3]]})
    expected = {"a": [3, 5, {1: "a", 3: "a"}], "b": [1, 2, {2: "b"}]}
    assert story.pstate("$$m").select_one(Path.stay()) == expected
    assert story.pstate("$$of").select_one(Path.key("a")) == {1: 2, 3: 1}
    lengths = cluster.cluster_query(name, "lengths")
    assert lengths.invoke(["to", "be", "not"]) == {2: ["to", "be"], 3: ["not"]}
    assert lengths.invoke([]) is None


@pytest.mark.parametrize(
    ("agg", "values", "expected"),
    [(Agg.avg("*v"), [1, 2, 6], 3.0), (Agg.median("*v"), [6, 1, 2], 2), (Agg.median("*v"), [6, 1, 2, 3], 2.5)],
    ids=["avg", "median", "median of an even number"],
)
def test_every_aggregator_for_variables_gives_what_its_page_says(
    cluster: InProcessCluster, name: str, agg: Agg, values: list[Any], expected: Any
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, object))
        rows = Block.explode_microbatch("*microbatch").out("*r").each(Ops.EXPAND, "*r").out("*k", "*vs")
        rows = rows.each(Ops.EXPLODE, "*vs").out("*v")
        grouped = rows.group_by("*k", Block.agg(agg).out("*a").agg(Agg.count()).out("*n"))
        block = grouped.local_transform("$$p", Path.key("*k").term_val(Expr(Ops.TUPLE, "*a", "*n")))
        mb.source("*in").out("*microbatch").batch_block(block)

    story = Story(cluster, name, define, 2, 1)
    story.batch(**{"in": [["k", values]]})
    assert story.pstate("$$p").select_one(Path.key("k")) == [expected, len(values)]


def test_aggregators_remove_what_they_are_told_to(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*out", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$set", PState.map_schema(str, PState.set_schema(int).subindexed()))
        mb.pstate("$$map", PState.map_schema(str, PState.map_schema(int, int)))
        rows = Block.explode_microbatch("*microbatch").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
        (
            mb.source("*in").out("*microbatch").macro(rows)
            .compound_agg("$$set", CompoundAgg.map("*k", Agg.set("*v")))
            .compound_agg("$$map", CompoundAgg.map("*k", CompoundAgg.map("*v", Agg.count())))
        )  # fmt: skip
        (
            mb.source("*out").out("*microbatch").macro(rows)
            .compound_agg("$$set", CompoundAgg.map("*k", Agg.set_remove("*v")))
            .compound_agg("$$map", CompoundAgg.map("*k", CompoundAgg.map("*v", Agg.voided())))
        )  # fmt: skip

    story = Story(cluster, name, define)
    story.batch(**{"in": [["k", 1], ["k", 2], ["k", 3]]})
    story.batch(out=[["k", 2], ["k", 9], ["n", 1]])
    assert story.pstate("$$set").select(Path.key("k").all()) == [1, 3]
    assert story.pstate("$$map").select_one(Path.key("k")) == {1: 1, 3: 1}


def test_a_compound_aggregator_fills_several_places_at_once(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        record = PState.fixed_keys_schema("count", int, "sum", int, "best", PState.list_schema(int))
        mb.pstate("$$stats", PState.map_schema(str, record))
        mb.pstate("$$pairs", PState.map_schema(str, PState.list_schema(int)))
        (
            mb.source("*in")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*r")
            .each(Ops.EXPAND, "*r")
            .out("*k", "*v")
            .compound_agg(
                "$$stats",
                CompoundAgg.map(
                    "*k",
                    CompoundAgg.map(
                        "count",
                        Agg.count(),
                        "sum",
                        Agg.sum("*v"),
                        "best",
                        CompoundAgg.list(Agg.min("*v"), Agg.max("*v")),
                    ),
                ),
            )
            .compound_agg("$$pairs", CompoundAgg.map("*k", CompoundAgg.list(Agg.count(), Agg.sum("*v"))))
        )

    story = Story(cluster, name, define)
    story.batch(**{"in": [["a", 5], ["a", 2]]})
    story.batch(**{"in": [["a", 9]]})
    assert story.pstate("$$stats").select_one(Path.key("a")) == {"count": 3, "sum": 16, "best": [2, 9]}
    assert story.pstate("$$pairs").select_one(Path.key("a")) == [3, 16]


def test_top_words_are_ranked_when_their_counts_rise(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$top", list).global_()
        best = Agg.top_monotonic(3, "*tuple").id_function(Ops.FIRST).sort_val_function(Ops.LAST)
        counts = (
            Block.explode_microbatch("*microbatch")
            .out("*word")
            .hash_partition("*word")
            .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count()))
        )
        ranked = (
            Block.explode_microbatch("*microbatch")
            .out("*word")
            .hash_partition("*word")
            .local_select("$$counts", Path.key("*word"))
            .out("*count")
            .each(Ops.TUPLE, "*word", "*count")
            .out("*tuple")
            .global_partition()
            .agg("$$top", best)
        )
        mb.source("*words").out("*microbatch").batch_block(counts).batch_block(ranked)

    story = Story(cluster, name, define)
    story.batch(words=["apple", "apple", "apple", "apple", "plum", "plum", "banana", "pear"] + ["banana", "plum"])
    top = story.pstate("$$top").select_one(Path.stay())
    assert top[0] == ["apple", 4]
    assert top[1] == ["plum", 3]
    assert top[2] == ["banana", 2]
    story.batch(words=["orange"] * 6 + ["apple"])
    assert story.pstate("$$top").select_one(Path.stay()) == [["orange", 6], ["apple", 5], ["plum", 3]]


def test_a_ranking_may_ascend(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$low", object).global_()
        low = (
            Block.explode_microbatch("*microbatch")
            .out("*v")
            .global_partition()
            .agg("$$low", Agg.top_monotonic(2, "*v").ascending())
        )
        mb.source("*in").out("*microbatch").batch_block(low)

    story = Story(cluster, name, define)
    story.batch(**{"in": [5, 3, 9, 1]})
    assert story.pstate("$$low").select_one(Path.stay()) == [1, 3]


def test_an_average_is_for_batches_only(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$mean", float).global_()
        mean = (
            Block.explode_microbatch("*microbatch").out("*v").global_partition().agg(Agg.avg("*v")).out("*avg")
            .keep_true(Expr(Ops.IS_NOT_NULL, "*avg"))
            .local_transform("$$mean", Path.term_val("*avg"))
        )  # fmt: skip
        mb.source("*in").out("*microbatch").batch_block(mean)

    story = Story(cluster, name, define)
    story.batch(**{"in": [1, 2, 6]})
    assert story.pstate("$$mean").select_one(Path.stay()) == 3.0


def test_pstates_obey_their_options(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$global", int).global_().initial_value(5)
        mb.pstate("$$never", str).global_()
        mb.pstate("$$private", PState.map_schema(int, int)).make_private()
        mb.pstate("$$mod", PState.map_schema(int, int)).key_partitioner(lambda partitions, key: key % partitions)
        unsized = PState.set_schema(int).subindexed(SubindexOptions.without_size_tracking())
        mb.pstate("$$unsized", PState.map_schema(str, unsized)).global_()
        (
            mb.source("*in")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*v")
            .compound_agg("$$private", CompoundAgg.map("*v", Agg.count()))
            .path_partition("$$mod", Path.key("*v"))
            .compound_agg("$$mod", CompoundAgg.map("*v", Agg.count()))
            .global_partition()
            .agg("$$global", Agg.sum("*v"))
            .compound_agg("$$unsized", CompoundAgg.map("s", Agg.set("*v")))
        )

    story = Story(cluster, name, define)
    assert story.pstate("$$global").select_one(Path.stay()) == 5
    story.batch(**{"in": [1, 2, 3, 3]})
    assert story.pstate("$$global").select_one(Path.stay()) == 14
    assert story.pstate("$$never").select_one(Path.stay()) is None
    assert [story.pstate("$$mod").select_one(Path.key(key)) for key in (1, 2, 3, 4)] == [1, 1, 2, None]
    assert story.pstate("$$unsized").select(Path.key("s").all()) == [1, 2, 3]
    assert story.pstate("$$unsized").select_one(Path.key("s").view(Ops.SIZE)) == 3
    with pytest.raises(NotSelectable, match="private"):
        story.pstate("$$private").select(Path.key(1))
    with pytest.raises(NotSelectable):
        story.pstate("$$unsized").select_one(Path.key("s"))
    with pytest.raises(NotOneValue):
        story.pstate("$$unsized").select_one(Path.key("s").all())
    with pytest.raises(NotOneValue):
        story.pstate("$$mod").select_one(Path.must(77))


def test_a_time_series_is_read_by_sorted_ranges(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*views", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        per_hour = PState.map_schema(int, int).subindexed()
        mb.pstate("$$views", PState.map_schema(str, PState.fixed_keys_schema("h", per_hour, "d", per_hour)))
        (
            mb.source("*views")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*r")
            .each(Ops.EXPAND, "*r")
            .out("*url", "*ms")
            .each(lambda ms: ms // 3_600_000, "*ms")
            .out("*hour")
            .each(lambda hour: hour // 24, "*hour")
            .out("*day")
            .compound_agg(
                "$$views",
                CompoundAgg.map(
                    "*url",
                    CompoundAgg.map(
                        "h", CompoundAgg.map("*hour", Agg.count()), "d", CompoundAgg.map("*day", Agg.count())
                    ),
                ),
            )
        )

    story = Story(cluster, name, define)
    story.batch(views=[["u", hour * 3_600_000 + 5] for hour in (1, 1, 3, 9, 30, 100)])
    hours = Path.key("u", "h")
    views = story.pstate("$$views")
    assert views.select_one(hours.sorted_map_range(1, 30)) == {1: 2, 3: 1, 9: 1}
    assert list(views.select_one(hours.sorted_map_range_from(3, 2))) == [3, 9]
    assert views.select_one(hours.sorted_map_range_to(30, 2)) == {3: 1, 9: 1}
    assert views.select_one(hours.sorted_map_range_from_start(1)) == {1: 2}
    assert views.select_one(hours.sorted_map_range_to_end(2)) == {30: 1, 100: 1}
    assert views.select(hours.sorted_map_range(1, 30).map_vals()) == [2, 1, 1]
    assert views.select_one(Path.key("u", "h").view(Ops.SIZE)) == 5
    assert views.select(Path.key("u", "d").all()) == [[0, 4], [1, 1], [4, 1]]
    assert views.select_one(Path.key("u", "h").sorted_map_range(1, 31).subselect(Path.map_vals()).view(sum)) == 5


@pytest.mark.parametrize("records", [3, 20])
@pytest.mark.parametrize("how", ["columns", "rows", "batch"])
def test_each_aggregator_of_a_list_has_its_element_of_a_subindexed_list(
    cluster: InProcessCluster, name: str, records: int, how: str
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$pairs", PState.map_schema(str, PState.list_schema(int).subindexed()))
        mb.pstate("$$deep", PState.map_schema(str, PState.list_schema(PState.map_schema(int, int)).subindexed()))
        indexed = PState.list_schema(PState.map_schema(int, int).subindexed()).subindexed()
        mb.pstate("$$indexed", PState.map_schema(str, indexed))
        mb.pstate("$$plain", PState.map_schema(str, PState.list_schema(int)))
        rows = Block.explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v").hash_partition("*k")
        if how == "rows":
            rows = rows.local_select("$$pairs", Path.key("*k").view(Ops.SIZE)).out("*before")
        rows = rows.compound_agg("$$pairs", CompoundAgg.map("*k", CompoundAgg.list(Agg.count(), Agg.sum("*v"))))
        inner = CompoundAgg.map("*v", Agg.count()), CompoundAgg.map("*v", Agg.sum("*v"))
        rows = rows.compound_agg("$$plain", CompoundAgg.map("*k", CompoundAgg.list(Agg.max("*v"), Agg.sum(2))))
        for pstate in ("$$deep", "$$indexed"):
            rows = rows.compound_agg(pstate, CompoundAgg.map("*k", CompoundAgg.list(*inner)))
        chain = mb.source("*in").out("*m")
        chain.batch_block(rows) if how == "batch" else chain.macro(rows)

    story = Story(cluster, name, define, 2, 1)
    seen: list[int] = []
    for _ in range(3):
        values = [len(seen) + number for number in range(records)]
        seen += values
        story.batch(**{"in": [["a", value] for value in values]})
        assert story.pstate("$$pairs").select(Path.key("a").all()) == [len(seen), sum(seen)]
        assert story.pstate("$$plain").select_one(Path.key("a")) == [max(seen), 2 * len(seen)]
    assert story.pstate("$$pairs").select_one(Path.key("a").view(Ops.SIZE)) == 2
    counted = {value: seen.count(value) for value in seen}
    summed = {value: value * count for value, count in counted.items()}
    assert story.pstate("$$deep").select(Path.key("a").all()) == [counted, summed]
    for index, expected in enumerate((counted, summed)):
        found = story.pstate("$$indexed").select(Path.key("a").nth(index).all())
        assert dict(found) == expected


class ByRest:
    """As a published partitioner: a class that stands for its only object."""

    def __call__(self, partitions: int, key: int) -> int:
        return key % partitions


class Doubled:
    def __call__(self, record: int) -> int:
        return 2 * record


def test_rows_go_where_classes_say_when_their_objects_can_be_called(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Doubled))
        mb = topologies.microbatch("mb")
        mb.pstate("$$tasks", PState.map_schema(int, list)).key_partitioner(ByRest)
        rows = mb.source("*in").out("*microbatch").explode_microbatch("*microbatch").out("*v")
        rows = rows.each(Ops.CURRENT_TASK_ID).out("*first").custom_partition(ByRest, "*v")
        rows = rows.each(Ops.CURRENT_TASK_ID).out("*task").each(Ops.TUPLE, "*first", "*task").out("*both")
        rows.local_transform("$$tasks", Path.key("*v").term_val("*both"))

    story = Story(cluster, name, define)
    story.batch(**{"in": [1, 2, 7]})
    for value in (1, 2, 7):
        assert story.pstate("$$tasks").select_one(Path.key(value)) == [route(2 * value, 4), value % 4]
