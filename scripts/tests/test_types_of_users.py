"""What type checkers say of a user's code: nothing where it is right, and a line for each mistake that types show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RIGHT = '''
"""Most words of a user's code, with types as a careful user writes them."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, TypedDict

import polars as pl

from tidemill import (
    AckLevel, Agg, Block, Case, CompoundAgg, Constant, Depot, DepotHandle, Expr, InProcessCluster, LaunchConfig,
    LimitAgg, LoopVars, MicrobatchSourceOptions, Module, Ops, Path, PState, PStateHandle, Setup, SubBatch, SubSource,
    Topologies, UpdateOptions, operation, vectorized,
)
from tidemill.client import Client


class Purchase(TypedDict):
    user: str
    cents: int


@operation
def halves(cents: int) -> Iterator[tuple[int, int]]:
    yield cents // 2, cents - cents // 2


def upper(name: str) -> str:
    return name.upper()


@vectorized
def doubled(cents: pl.Series) -> pl.Series:
    return cents * 2


def fields(block: Block, record: str, *names: str) -> Block:
    for name in names:
        block = block.each(Ops.MUST_GET, record, name).out(f"*{name}")
    return block


class Shop(Module):
    def define(self, setup: Setup, topologies: Topologies) -> None:
        record = PState.fixed_keys_schema("user", str, "cents", int)
        setup.declare_depot("*purchases", Depot.hash_by("user")).schema(record)
        setup.declare_depot("*spread", Depot.random()).global_()
        setup.declare_tick_depot("*tick", 1_000)
        setup.declare_object("*rate", lambda: 1.25)
        shop = topologies.microbatch("shop")
        shop.pstate("$$cents", PState.map_schema(str, int))
        shop.pstate("$$by_size", PState.map_schema(str, PState.map_schema(int, object).subindexed()))
        shop.pstate("$$total", int).global_().initial_value(0)
        shop.pstate("$$names", PState.map_schema(PState.nullable(str), PState.list_schema(PState.set_schema(str))))
        begin = MicrobatchSourceOptions.start_from_beginning()
        (
            shop.source("*purchases", begin).out("*microbatch")
            .explode_microbatch("*microbatch").out("*purchase")
            .macro(fields, "*purchase", "user", "cents")
            .each(halves, "*cents").out("*low", "*high")
            .each(doubled, "*high").out("*twice")
            .each(upper, "*user").out("*upper")
            .each_async(fetched, "*user", concurrency=4).out("*found")
            .keep_true(Expr(Ops.GREATER_THAN, "*low", 0))
            .if_true("*found", Block.each(Ops.IDENTITY, 1).out("*n"), Block.each(Ops.IDENTITY, 2).out("*n"))
            .cond(Case.create(Expr(Ops.EQUAL, "*n", 1)).each(Ops.INC, "*n").out("*m"),
                  Case.create(True).each(Ops.IDENTITY, Constant("*")).out("*m"))
            .sub_source("*n", SubSource.create(int).each(Ops.INC, "*n").out("*o"))
            .loop_with_vars(LoopVars.var("*i", 0), Block.if_true(
                Expr(Ops.LESS_THAN, "*i", 3), Block.continue_loop(Expr(Ops.INC, "*i")), Block.emit_loop("*i")))
            .out("*end")
            .hash_partition("*user")
            .local_select("$$cents", Path.key("*user")).out("*before")
            .local_transform("$$cents", Path.key("*user").null_to_val(0).term(Ops.PLUS, "*cents"))
            .compound_agg("$$by_size", CompoundAgg.map("*user", CompoundAgg.map("*cents", Agg.count())))
        )
        spread = Block.explode_microbatch("*microbatch").out("*v")
        (
            shop.source("*spread").out("*microbatch")
            .batch_block(
                Block.sub_batch(SubBatch(spread.group_by("*v", Block.agg(Agg.count()).out("*c")), "*v", "*c"))
                .out("*v", "*c").limit_agg(LimitAgg.create(3, "*v").sort("*v"))
                .global_partition().agg("$$total", Agg.sum("*v")))
        )
        (
            topologies.query("spent", "*user").out("*cents")
            .hash_partition("*user").local_select("$$cents", Path.key("*user")).out("*cents").origin_partition()
        )


async def fetched(user: str) -> bool:
    return bool(user)


def used(cluster: InProcessCluster) -> int:
    cluster.launch_module(Shop(), LaunchConfig(4, 2))
    cluster.update_module(Shop, UpdateOptions.objects_to_delete("$$names"))
    depot: DepotHandle = cluster.cluster_depot("Shop", "*purchases")
    bought: Purchase = {"user": "ann", "cents": 300}
    acks: dict[str, Any] = depot.append(bought, AckLevel.APPEND_ACK)
    later: Future[dict[str, Any]] = depot.append_async(bought, producer="till", sequence=1)
    depot.append_many([bought])
    depot.append_many(pl.DataFrame([bought]))
    cluster.wait_until_processed("Shop")
    cents: PStateHandle = cluster.cluster_pstate("Shop", "$$cents")
    found: list[Any] = cents.select(Path.key("ann"), pkey="ann", max_staleness_ms=10)
    one: int = cents.at(microbatch=1).select_one(Path.key("ann"))
    names: list[str] = [key for key, _ in cents.scan()]
    changes = [change.after for change in cents.diff(0, 1)]
    with cents.proxy(Path.key("ann"), lambda new, diff, old: print(new)) as proxy:
        proxy.get()
    print(acks, later.result(), found, names, changes)
    return one + int(cluster.cluster_query("Shop", "spent").invoke("ann"))


def remote() -> None:
    with Client("http://127.0.0.1:8080") as client:
        client.depot("Shop", "*purchases").append({"user": "ann", "cents": 1})
        client.set_option("Shop", "depot.microbatch.max.records", 100, depot="*purchases")
        lag: dict[str, int] | None = client.status("Shop", "shop").lag
        print(client.pstate("Shop", "$$cents").at(7).select_one(Path.key("ann")), lag)
'''

WRONG = """
from tidemill import (
    Agg, Block, CompoundAgg, Depot, DepotHandle, Expr, InProcessCluster, LaunchConfig, Ops, Path, PState, PStateHandle,
    Setup, Topologies, operation, vectorized,
)


def declared(setup: Setup, topologies: Topologies) -> None:
    mb = topologies.microbatch(5)
    setup.declare_depot("*d", Depot.hash_by(7))
    setup.declare_depot("*d", Depot.random()).schema(5)
    mb.pstate("$$p", PState.map_schema("str", int))
    mb.pstate("$$p", PState.map_schema(str, 5))
    mb.pstate("$$p", PState.list_schema([int]))
    mb.pstate("$$p", PState.map_schema(str, int).subindxed())


def chained(block: Block) -> None:
    block.eech(Ops.INC, "*v")
    block.each("*v")
    block.each(Ops.INCC, "*v")
    block.keep_true("*v" == 3)
    block.keep_true(lambda v: v > 3)
    block.if_true("*v", "*w")
    block.batch_block(lambda: block)
    block.agg("$$p", 5)
    block.compound_agg("$$p", {"*k": Agg.count()})
    block.limit_agg(3)
    block.local_select("$$p", "*k")
    block.each(Ops.INC, "*v").out(5)
    block.each_async(lambda v: v, "*v").ouut("*w")
    Expr("*v", Ops.INC)
    Path.keyy("a")
    CompoundAgg.mapp("*k", Agg.count())


@operation
def one(value: int) -> int:
    return value


@vectorized
def listed(values: list[int]) -> list[int]:
    return values


def used(cluster: InProcessCluster, depot: DepotHandle, pstate: PStateHandle) -> None:
    cluster.launch_module(5, LaunchConfig(4, 2))
    LaunchConfig("4", 2)
    depot.append(1, producer="till")
    depot.append_async(1).get()
    depot.append_many(5)
    pstate.at()
    pstate.at(3, microbatch=4)
    pstate.select_one("ann")
"""

pytestmark = pytest.mark.timeout(600)


Told = dict[str, list[int]]
"""File -> the lines at which a checker finds an error."""


def told_by_mypy(folder: Path) -> Told:
    files = ("right.py", "wrong.py")
    command = (sys.executable, "-m", "mypy", "--python-executable", sys.executable, "--no-error-summary", *files)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\w+\.py):(\d+): error", done.stdout, re.MULTILINE)
    return {file: sorted({int(line) for name, line in found if name == file}) for file in files}


def told_by_pyright(folder: Path) -> Told:
    files = ("right.py", "wrong.py")
    command = (Path(sys.executable).with_name("basedpyright"), "--outputjson", "--pythonpath", sys.executable, *files)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    return {file: sorted({line for name, line in found if name == file}) for file in files}


@pytest.mark.parametrize("told_by", [told_by_mypy, told_by_pyright])
def test_mistakes_are_told_and_nothing_else_when_a_users_code_is_checked(
    tmp_path: Path, told_by: Callable[[Path], Told]
) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    strict = '[tool.pyright]\ntypeCheckingMode = "strict"\n[tool.mypy]\nstrict = true\n'
    (tmp_path / "pyproject.toml").write_text(strict)
    # The lines of the wrong code that call, or define, something in a wrong way.
    lines = enumerate(WRONG.splitlines(), 1)
    mistakes = [number for number, line in lines if re.match(r"    (?!Agg|Setup)\S.*\)$|@", line)]

    assert len(mistakes) == 33
    assert told_by(tmp_path) == {"right.py": [], "wrong.py": mistakes}
