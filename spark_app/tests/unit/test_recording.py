"""What builders record: nodes with their place in the user's code, from chains that may be used twice."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

import tidemill
from tidemill import (
    AckLevel,
    Agg,
    BadInput,
    Block,
    Case,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    Helpers,
    LaunchConfig,
    LoopVars,
    MicrobatchSourceOptions,
    Module,
    OffsetAgo,
    Ops,
    Path,
    PState,
    SortedRangeFromOptions,
    SortedRangeOptions,
    SortedRangeToOptions,
    SubindexOptions,
    UpdateOptions,
    operation,
    vectorized,
)
from tidemill.api.declaration import record_module
from tidemill.language import dataflow as df
from tidemill.language import schema as schemas
from tidemill.language.dataflow import Const, Nav, StartFrom, Var


@operation
def letters(text: str) -> Iterator[str]:
    yield from text


@vectorized
def doubled(values: pl.Series) -> pl.Series:
    return values * 2


class Choose:
    def choose_partition_index(self, record: Any, partitions: int) -> int:
        return len(record) % partitions


class Everything(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*hashed", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*one", Depot.disallow()).global_()
        setup.declare_depot("*chosen", Choose)
        setup.declare_tick_depot("*tick", 500)
        setup.set_launch_module_dynamic_option("topology.combiner.limit", 5)
        setup.set_launch_depot_dynamic_option("*hashed", "depot.max.fetch", 7)
        mb = topologies.microbatch("mb")
        mb.pstate("$$m", PState.map_schema(str, int)).make_private().key_partitioner(lambda partitions, key: 0)
        mb.pstate("$$v", int).global_().initial_value(3)
        mb.source("*hashed", MicrobatchSourceOptions.start_from_offset_ago(2, OffsetAgo.HOURS).source_id("x")).out(
            "*mb"
        )
        mb.source("*tick")


def test_declarations_hold_what_was_said() -> None:
    declared = record_module(Everything)

    assert declared.name == "Everything"
    depots = [(d.name, d.partitioner, d.is_global, d.tick_millis) for d in declared.depots]
    assert depots == [
        ("*hashed", "hash_by", False, None),
        ("*one", "disallow", True, None),
        ("*chosen", "custom", False, None),
        ("*tick", "disallow", True, 500),
    ]
    assert declared.depots[0].function == df.Function("FIRST", "builtin", Ops.FIRST)
    assert declared.depots[2].function is not None and declared.depots[2].function.call("abc", 2) == 1
    assert declared.options == (
        ("module", "", "topology.combiner.limit", 5),
        ("depot", "*hashed", "depot.max.fetch", 7),
    )
    (topology,) = declared.topologies
    first, second = topology.pstates
    assert (first.is_private, first.key_partitioner is not None, first.is_global) == (True, True, False)
    assert (second.is_global, second.initial_value, second.schema) == (True, 3, schemas.Leaf("int"))
    sources = [(s.depot, s.source_id, s.microbatch, s.start_from) for s in topology.sources]
    assert sources == [
        ("*hashed", "x", "*mb", StartFrom("ago_millis", 7_200_000)),
        ("*tick", "*tick", None, StartFrom()),
    ]


@pytest.mark.parametrize(
    ("options", "start"),
    [
        (MicrobatchSourceOptions.start_from_beginning(), StartFrom("beginning")),
        (MicrobatchSourceOptions.start_from_offset_after_timestamp(9), StartFrom("after_timestamp", 9)),
        (MicrobatchSourceOptions.start_from_offset_ago(9, OffsetAgo.RECORDS), StartFrom("ago_records", 9)),
        (MicrobatchSourceOptions.start_from_offset_ago(2, OffsetAgo.SECONDS), StartFrom("ago_millis", 2_000)),
        (MicrobatchSourceOptions.start_from_offset_ago(2, OffsetAgo.MINUTES), StartFrom("ago_millis", 120_000)),
        (MicrobatchSourceOptions.start_from_offset_ago(2, OffsetAgo.DAYS), StartFrom("ago_millis", 172_800_000)),
    ],
)
def test_source_options_record_a_start(options: MicrobatchSourceOptions, start: StartFrom) -> None:
    assert (options.start, options.faults) == (start, ())


def test_module_name_is_what_the_module_says() -> None:
    class Named(Everything):
        def module_name(self) -> str:
            return "com.example.Named"

    assert record_module(Named()).name == "com.example.Named"


def test_schemas_are_recorded_as_data() -> None:
    schema = PState.map_schema(
        str,
        PState.fixed_keys_schema(
            "tags", PState.set_schema(str).subindexed(SubindexOptions.without_size_tracking()),
            "log", PState.list_schema(PState.map_schema(int, float)).subindexed(),
            "raw", dict,
        ),
    )  # fmt: skip

    text = (
        "map(str, fixed_keys(tags: set(str).subindexed(without size tracking), "
        "log: list(map(int, float)).subindexed(), raw: dict))"
    )
    assert repr(schema) == text
    inner = schema.schema.value  # type: ignore[union-attr]
    assert isinstance(inner, schemas.FixedKeysSchema)
    assert inner.field("tags") == schemas.SetSchema("str", True, tracks_size=False)


def test_each_node_knows_its_own_line_in_a_chain() -> None:
    start = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    block = (
        Block.each(Ops.INC, 1).out("*a")
        .each(Ops.INC, "*a").out("*b")

        .keep_true("*b")
    )  # fmt: skip

    assert [node.at.line - start for node in block.nodes] == [2, 3, 5]
    assert {node.at.file for node in block.nodes} == {__file__}


def test_blocks_and_paths_do_not_change_when_they_are_extended() -> None:
    block, path = Block.each(Ops.INC, 1).out("*a"), Path.key("a")
    nodes, navs = block.nodes, path.path

    block.keep_true("*a")
    block.out("*b")
    path.all()

    assert (block.nodes, path.path) == (nodes, navs)


def test_functions_are_told_apart() -> None:
    kinds = [
        node.function.kind
        for node in Block.each(Ops.INC, 1).each(len, "a").each(letters, "a").each(doubled, "*v").nodes
        if isinstance(node, df.Each)
    ]

    assert kinds == ["builtin", "function", "operation", "vectorized"]
    assert list(letters("ab")) == ["a", "b"]


def test_arguments_are_names_constants_or_expressions() -> None:
    (node,) = Block.each(Ops.TUPLE, "*v", "v", Constant("*v"), Constant("$$p"), Expr(Ops.INC, "*v"), None).nodes

    assert isinstance(node, df.Each)
    expr = df.RecordedExpr(df.Function("INC", "builtin", Ops.INC), (Var("*v"),))
    assert node.args == (Var("*v"), Const("v"), Const("*v"), Const("$$p"), expr, Const(None))


def test_if_true_without_else_passes_rows_through() -> None:
    (node,) = Block.if_true("*c", Block.keep_true("*d")).nodes

    assert isinstance(node, df.Cond)
    assert [condition for condition, _ in node.cases] == [Var("*c"), Const(True)]
    assert node.cases[1][1] == ()


def test_cond_passes_rows_through_only_when_no_case_takes_all() -> None:
    (open_end,) = Block.cond(Case.create("*c").keep_true(1)).nodes
    (closed,) = Block.cond(Case.create("*c").keep_true(1), Case.create(True).keep_true(2)).nodes

    assert isinstance(open_end, df.Cond) and isinstance(closed, df.Cond)
    assert [len(open_end.cases), len(closed.cases)] == [2, 2]


def test_loop_records_variables_body_and_outs() -> None:
    body = Block.emit_loop("*i").continue_loop(Expr(Ops.INC, "*i"))
    (node,) = Block.loop_with_vars(LoopVars.var("*i", 0).var("*s", "*v"), body).out("*o").nodes

    assert isinstance(node, df.Loop)
    assert (node.vars, node.outs) == ((("*i", Const(0)), ("*s", Var("*v"))), ("*o",))
    assert [type(inner) for inner in node.body] == [df.EmitLoop, df.ContinueLoop]


def test_partitioners_record_kind_arguments_and_target() -> None:
    block = (
        Block.hash_partition("*k").hash_partition("$$p", "*k").global_partition().global_partition("$$p")
        .all_partition().shuffle_partition().direct_partition(3).direct_partition("*d", "*t")
        .path_partition("$$p", Path.key("*k", "*l").all()).custom_partition(max, "*k").custom_partition("$$p", max, 1)
    )  # fmt: skip

    assert block.faults == ()
    recorded = [(n.kind, n.args, n.target) for n in block.nodes if isinstance(n, df.Partition)]
    assert recorded == [
        ("hash", (Var("*k"),), None), ("hash", (Var("*k"),), "$$p"), ("global", (), None), ("global", (), "$$p"),
        ("all", (), None), ("shuffle", (), None), ("direct", (Const(3),), None), ("direct", (Var("*t"),), "*d"),
        ("path", (Var("*k"),), "$$p"), ("custom", (Var("*k"),), None), ("custom", (Const(1),), "$$p"),
    ]  # fmt: skip


def test_select_moves_to_the_key_and_selects_there() -> None:
    move, select = Block.select("$$p", Path.key("*k")).out("*v").nodes

    assert isinstance(move, df.Partition) and (move.kind, move.args, move.target) == ("path", (Var("*k"),), "$$p")
    assert isinstance(select, df.LocalSelect) and select.outs == ("*v",)


def test_macro_inserts_the_nodes_of_a_block() -> None:
    inner = Block.each(Ops.INC, 1).out("*a").keep_true("*a")

    assert Block.macro(inner).macro(inner).nodes == inner.nodes * 2


def test_generated_variables_are_all_different() -> None:
    names = {Helpers.gen_var("x") for _ in range(100)}

    assert len(names) == 100 and all(name.startswith("*x") for name in names)


def test_aggregators_are_recorded_with_arguments_and_options() -> None:
    by_methods = Agg.top_monotonic(3, "*v").id_function(Ops.FIRST).sort_val_function(Ops.LAST).ascending()
    by_keywords = Agg.top_monotonic(3, "*v", id_function=Ops.FIRST, sort_val_function=Ops.LAST, ascending=True)
    tree = CompoundAgg.map("*k", CompoundAgg.list(Agg.count(), Agg.and_("*v")), "x", Agg.voided())

    assert by_methods.tree == by_keywords.tree
    assert isinstance(tree.tree, df.AggMap)
    (_, inner), (key, voided) = tree.tree.entries
    assert inner == df.AggList((df.Aggregator("count", "combiner"), df.Aggregator("and", "combiner", (Var("*v"),))))
    assert (key, voided) == (Const("x"), df.Aggregator("voided", "void"))


def test_methods_of_top_monotonic_are_found_at_fault_when_a_function_does_not_fit() -> None:
    wrong = Agg.top_monotonic(3, "*v").id_function(5).capture_new_val_into("*new").sort_val_function(lambda a, b: a)

    assert len(wrong.faults) == 2
    assert wrong.tree.capture == "*new"


class Everywhere:
    def select(self, value: Any, next_: Any) -> Any:
        return next_(value)

    def transform(self, value: Any, next_: Any) -> Any:
        return next_(value)


@pytest.mark.parametrize("name", sorted(name for name in vars(Path) if not name.startswith("_")))
def test_navigator_is_recorded_under_its_name_when_started_or_chained(name: str) -> None:
    arguments = {
        "sub_map": ("a",), "subset": ("a",), "key": ("a",), "must": ("a",), "nth": (0,),
        "custom_nav": (Everywhere(),), "multi_path": (Path.stay(),),
        "cond_path": (Path.stay(), Path.stop()), "with_page_size": (5, Path.stay()),
    }  # fmt: skip
    function = vars(Path)[name].function
    parameters = list(inspect.signature(function).parameters.values())[1:]
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    guess = tuple(
        Path.stay() if p.annotation in ("Path", Path) else Ops.TUPLE if "function" in p.name else 1 for p in needed
    )
    args = arguments.get(name, guess)

    started = getattr(Path, name)(*args)
    chained = getattr(Path.stay(), name)(*args)

    assert (started.faults, started.path.navs[0].name) == ((), name)
    assert chained.path.navs == (Nav("stay"), *started.path.navs)


def test_ranges_record_all_options_that_they_have() -> None:
    defaults = (("include_end", False), ("include_start", True))
    flipped = (("include_end", True), ("include_start", False))
    of_objects = SortedRangeOptions.exclude_start().include_end()
    last_three = (("include_end", True), ("max_amt", Const(3)))
    after = (("include_start", False), ("max_amt", Var("*n")))
    recorded = {
        Path.sorted_map_range(1, 2): defaults,
        Path.sorted_set_range(1, 2, include_start=False, include_end=True): flipped,
        Path.sorted_map_range(1, 2, of_objects): flipped,
        Path.sorted_map_range_to(9, SortedRangeToOptions.max_amt(3).include_end()): last_three,
        Path.sorted_set_range_from(1, SortedRangeFromOptions.exclude_start().max_amt("*n")): after,
        Path.sorted_map_range_from(1, "*n", include_start=False): after,
    }

    assert [path.path.navs[0].options for path in recorded] == list(recorded.values())


@pytest.mark.parametrize(("tasks", "threads"), [(3, 1), (2, 4), (0, 1), (4, 0), (True, 1), ("4", 1)])
def test_launch_config_is_refused_when_numbers_do_not_fit(tasks: Any, threads: Any) -> None:
    with pytest.raises(BadInput, match="LaunchConfig"):
        LaunchConfig(tasks, threads)


def test_launch_settings_hold_what_was_given() -> None:
    config = LaunchConfig(8, 3).num_workers(2)

    assert (config.tasks, config.threads, config.workers) == (8, 3, 2)
    assert UpdateOptions.objects_to_delete("$$a", "*b").deleted == ("$$a", "*b")
    assert [level.name for level in AckLevel] == ["NONE", "APPEND_ACK", "ACK"]


# Everything public but errors; a name that is added or removed must be added or removed here on purpose.
PUBLIC = [
    "AccumulatorAgg",
    "AckLevel",
    "Agg",
    "AggExecutor",
    "AppendDiff",
    "AsOfJoinExecutor",
    "Block",
    "CapturedEmit",
    "Case",
    "CombinerAgg",
    "CompoundAgg",
    "Constant",
    "CountExecutor",
    "Dataset",
    "Delivery",
    "Depot",
    "DepotHandle",
    "DepotProducer",
    "DestroyedDiff",
    "Diff",
    "DistinctExecutor",
    "Executor",
    "Expr",
    "ExternalDepot",
    "ExternalSink",
    "FilterExecutor",
    "GraphFrame",
    "Helpers",
    "HoppingWindowExecutor",
    "IcebergSink",
    "InProcessCluster",
    "JoinExecutor",
    "KVDataset",
    "KafkaDepot",
    "KafkaSink",
    "KeyDiff",
    "KeyRemoveDiff",
    "KeysDiff",
    "LaunchConfig",
    "LimitAgg",
    "LimitExecutor",
    "LoopVars",
    "MergedStorageExecutor",
    "MicrobatchSourceOptions",
    "MicrobatchTopology",
    "MockOutputCollector",
    "Module",
    "MultiDiff",
    "NewValueDiff",
    "OOCJoinExecutor",
    "OffsetAgo",
    "Ops",
    "OutputCSVExecutor",
    "OutputParquetExecutor",
    "PState",
    "PStateBuilder",
    "PStateHandle",
    "Partitioning",
    "Path",
    "PostgresPublishExecutor",
    "PostgresSink",
    "ProjectExecutor",
    "ProxyState",
    "ProxyStatus",
    "PublishExecutor",
    "Quarantine",
    "QueryHandle",
    "RangeDataset",
    "RangePartition",
    "ResyncDiff",
    "Schema",
    "SelectOptions",
    "SequenceIndexChangesDiff",
    "SequenceIndexRemoveDiff",
    "SequenceInsertDiff",
    "SessionWindowExecutor",
    "SetAddDiff",
    "SetRemoveDiff",
    "Setup",
    "SortExecutor",
    "SortedRangeFromOptions",
    "SortedRangeOptions",
    "SortedRangeToOptions",
    "SpMVExecutor",
    "SplitPartition",
    "StatelessExecutor",
    "StorageExecutor",
    "SubBatch",
    "SubSource",
    "SubindexOptions",
    "TaskGlobalContext",
    "TaskGlobalObject",
    "TaskGraph",
    "TestPState",
    "TopKExecutor",
    "TopMonotonicAgg",
    "Topologies",
    "TumblingWindowExecutor",
    "UngracefulTerminationDiff",
    "UnionExecutor",
    "UpdateOptions",
    "VOID",
    "WindowedDataset",
    "emit_stream",
    "operation",
    "scan",
    "scan_arrow",
    "scan_depot",
    "to_kafka",
    "to_text",
    "vectorized",
]


def test_all_names_the_public_api_and_every_error() -> None:
    from tidemill.values import errors

    raised = {name for name, value in vars(errors).items() if isinstance(value, type)} - {"Any", "Sequence"}

    assert set(tidemill.__all__) == set(PUBLIC) | {
        name for name in raised if vars(errors)[name].__module__ == errors.__name__
    }
    assert tidemill.__all__ == sorted(tidemill.__all__)


@pytest.mark.parametrize("name", tidemill.__all__)
def test_public_name_can_be_imported(name: str) -> None:
    assert getattr(tidemill, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Modul'"):
        _ = tidemill.Modul  # type: ignore[attr-defined]


def test_import_stays_light_until_something_runs() -> None:
    code = "import sys, tidemill; print([m for m in ('polars', 'pyarrow', 'pyspark', 'numpy') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"
