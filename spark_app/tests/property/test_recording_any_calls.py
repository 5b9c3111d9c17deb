"""Whatever a user calls with whatever arguments: recording and checking report faults, they do not break."""

from __future__ import annotations

import inspect
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill import (
    Agg,
    Block,
    Case,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    SubSource,
    emit_stream,
    operation,
)
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import check


async def awaited(value: Any) -> Any:
    return value


@operation
def emits(value: Any) -> Any:
    yield emit_stream("s", value)


BLOCK = Block.each(Ops.INC, "*v").out("*w")
POOL: list[Any] = [
    None, 0, -1, 2.5, "", "x", "*", "*v", "*mb", "*nope", "**u", "*d", "*t", "$$", "$$m", "$$g", "$$nope", [], {"a":
    1}, len, Ops.INC, Ops.EXPLODE, Ops.EXPAND, Constant("*"), Expr(Ops.INC, "*v"), Expr(Ops.INC, "*nope"),
    Path.stay(), Path.key("*v"), Path.key("a").term_val(1), Path.all().term_void(), Path.index(1), Agg.count(),
    Agg.sum("*v"), Agg.avg(1), CompoundAgg.map("*v", Agg.count()), CompoundAgg.list(), BLOCK,
    BLOCK.agg(Agg.count()).out("*n"), Block.emit_loop("*v"), Block.explode_microbatch("*mb").out("*r"),
    Block.global_partition(), Case.create("*v").keep_true(1), LoopVars.var("*i", 0), int, str,
    PState.map_schema(str, int), PState.list_schema(int), Depot.random(),
    SubSource.create(int).each(Ops.INC, "*v"), SubSource.create("x"), awaited, emits,
]  # fmt: skip
METHODS = sorted(name for name in dir(Block) if not name.startswith("_") and callable(getattr(Block, name)))
CALLS = st.lists(
    st.tuples(st.sampled_from(METHODS), st.lists(st.sampled_from(POOL), max_size=3)), min_size=1, max_size=5
)


def _faults(calls: list[tuple[str, list[Any]]], is_batch: bool) -> list[str]:
    class Called(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            setup.declare_tick_depot("*t", 5)
            mb = topologies.microbatch("mb")
            mb.pstate("$$m", PState.map_schema(str, int))
            mb.pstate("$$g", int).global_()
            source = mb.source("*d").out("*mb")
            chain = (
                Block.explode_microbatch("*mb").out("*v") if is_batch else source.explode_microbatch("*mb").out("*v")
            )
            for name, args in calls:
                if _accepts(getattr(chain, name), args):
                    chain = getattr(chain, name)(*args)
            if is_batch:
                source.batch_block(chain)

    return [str(fault) for fault in check(record_module(Called()))]


def _accepts(method: Any, args: list[Any]) -> bool:
    """Whether Python itself lets these arguments through; a missing argument is its TypeError, not ours."""
    try:
        inspect.signature(method).bind(*args)
    except TypeError:
        return False
    return True


@given(CALLS, st.booleans())
def test_faults_are_found_and_nothing_breaks_when_anything_is_called(
    calls: list[tuple[str, list[Any]]], is_batch: bool
) -> None:
    faults = _faults(calls, is_batch)

    assert [fault for fault in faults if "define raised" in fault] == []
    assert all(__file__ in fault for fault in faults)


SCHEMA_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["map_schema", "set_schema", "list_schema", "fixed_keys_schema"]),
        st.lists(st.sampled_from(POOL), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=3,
)


@given(SCHEMA_CALLS)
def test_schemas_report_faults_and_nothing_breaks_when_anything_is_given(calls: list[tuple[str, list[Any]]]) -> None:
    class Called(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            for number, (name, args) in enumerate(calls):
                if _accepts(getattr(PState, name), args):
                    topologies.microbatch(f"t{number}").pstate(f"$$p{number}", getattr(PState, name)(*args))

    faults = [str(fault) for fault in check(record_module(Called()))]

    assert [fault for fault in faults if "define raised" in fault] == []


PATHS = st.lists(
    st.tuples(
        st.sampled_from(sorted(name for name in vars(Path) if not name.startswith("_"))),
        st.lists(st.sampled_from(POOL), max_size=3),
    ),
    min_size=1,
    max_size=4,
)
SCHEMAS = st.sampled_from(
    [
        PState.map_schema(str, int),
        PState.map_schema(int, PState.set_schema(str).subindexed()),
        PState.fixed_keys_schema("a", PState.list_schema(int), "x", PState.map_schema(str, dict)),
        int,
        dict,
        object,
    ]
)


@given(PATHS, SCHEMAS, st.booleans())
def test_paths_report_faults_and_nothing_breaks_when_anything_is_called(
    calls: list[tuple[str, list[Any]]], schema: Any, is_transform: bool
) -> None:
    class Called(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", schema)
            path = Path()
            for name, args in calls:
                if _accepts(getattr(path, name), args):
                    path = getattr(path, name)(*args)
            chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*v")
            if is_transform:
                chain.local_transform("$$p", path)
            else:
                chain.select("$$p", path).out("*w")

    faults = [str(fault) for fault in check(record_module(Called()))]

    assert [fault for fault in faults if "define raised" in fault] == []
