"""Updates that widen a schema: what was stored before is read and aggregated into after, here and after a restart."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import (
    Agg,
    CompoundAgg,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
)

MAP = PState.map_schema
SET = PState.set_schema
SUM = Agg.sum("*v")
LAST = Agg.last("*v")


class Keyed(Module):
    """Pairs of key and value, aggregated into one PState."""

    def __init__(self, schema: Any, tree: Any) -> None:
        self.schema, self.tree = schema, tree

    def module_name(self) -> str:
        return "Keyed"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", self.schema)
        (
            mb.source("*pairs").out("*m")
            .explode_microbatch("*m").out("*pair")
            .each(Ops.EXPAND, "*pair").out("*k", "*v")
            .compound_agg("$$p", CompoundAgg.map("*k", self.tree))
        )  # fmt: skip


class Bare(Module):
    """A PState that nothing writes to."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pairs", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", self.schema)
        mb.source("*pairs").out("*m").explode_microbatch("*m").out("*pair").each(Ops.IDENTITY, "*pair").out("*same")


def fixed(**fields: Any) -> Any:
    return PState.fixed_keys_schema(*(part for pair in fields.items() for part in pair))


def field(aggregator: Any, name: str = "a") -> Any:
    return CompoundAgg.map(name, aggregator)


def nested(inner: Any) -> Any:
    return MAP(str, inner).subindexed()


AT = Path.key("a")
BELOW = Path.key("a", "a")
CHANGES: dict[str, tuple[Any, Any, Any, Any, tuple[Any, Any, Any], tuple[Any, Any]]] = {
    "int to object, sum": (MAP(str, int), MAP(str, object), SUM, AT, (1, 2, 4), (1, 7)),
    "int to object, last": (MAP(str, int), MAP(str, object), LAST, AT, (1, 2, 4), (1, 4)),
    "str to object": (MAP(str, str), MAP(str, object), LAST, AT, ("x", "y", "z"), ("x", "z")),
    "subindexed int to object": (
        MAP(str, nested(int)), MAP(str, nested(object)), CompoundAgg.map("*k", SUM), BELOW, (1, 2, 4), (1, 7)),
    "field to object": (MAP(str, fixed(a=int)), MAP(str, fixed(a=object)), field(SUM), BELOW, (1, 2, 4), (1, 7)),
    "field added": (MAP(str, fixed(a=int)), MAP(str, fixed(b=str, a=int)), field(SUM), BELOW, (1, 2, 4), (1, 7)),
    "field added below": (
        MAP(str, nested(fixed(a=int))), MAP(str, nested(fixed(b=str, a=int))), CompoundAgg.map("*k", field(SUM)),
        Path.key("a", "a", "a"), (1, 2, 4), (1, 7)),
    "indexed field added": (
        MAP(str, fixed(a=int)), MAP(str, fixed(a=int, seen=SET(int).subindexed())), field(SUM), BELOW,
        (1, 2, 4), (1, 7)),
    "record to object": (MAP(str, fixed(a=int)), MAP(str, object), field(SUM), BELOW, (1, 2, 4), (1, 7)),
    "map to dict": (MAP(str, MAP(str, int)), MAP(str, dict), field(SUM), BELOW, (1, 2, 4), (1, 7)),
    "record to dict": (MAP(str, fixed(a=int)), MAP(str, dict), field(SUM), BELOW, (1, 2, 4), (1, 7)),
    "dict to map": (
        MAP(str, dict), MAP(str, MAP(PState.nullable(object), object)), field(SUM), BELOW, (1, 2, 4), (1, 7)),
    "map to object": (MAP(str, MAP(str, int)), MAP(str, object), field(SUM), BELOW, (1, 2, 4), (1, 7)),
}  # fmt: skip


def add(cluster: Any, value: Any, count: int) -> None:
    cluster.cluster_depot("Keyed", "*pairs").append(["a", value])
    cluster.wait_for_microbatch_processed_count("Keyed", "mb", count)


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_old_values_are_read_and_aggregated_into_when_an_update_widened_them(change: str, tmp_path: Folder) -> None:
    old, new, tree, path, (first, second, third), (before, after) = CHANGES[change]
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Keyed(old, tree), LaunchConfig(4, 2))
        handle = cluster.cluster_pstate("Keyed", "$$p")
        add(cluster, first, 1)
        cluster.update_module(Keyed(new, tree))
        assert handle.select_one(path) == before
        add(cluster, second, 2)
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Keyed(new, tree), LaunchConfig(4, 2))
        add(cluster, third, 3)
        assert cluster.cluster_pstate("Keyed", "$$p").select_one(path) == after


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        (dict, MAP(PState.nullable(object), object), "A schema may stay or widen"),
        (MAP(str, int), object, "top-level maps and records can not become object"),
        (MAP(str, fixed(a=MAP(str, int))), MAP(str, fixed(a=nested(int))), "become subindexed"),
        (MAP(str, MAP(str, int)), MAP(str, MAP(str, int).subindexed()), "migrate_to_subindexed"),
        (MAP(str, object), MAP(str, int), "can not be narrowed again"),
        (MAP(str, dict), MAP(str, MAP(object, object)), "None may be among the keys .* PState.nullable"),
        (MAP(str, fixed(a=set)), MAP(str, fixed(a=PState.set_schema(object))), "None may be among the keys"),
        (MAP(PState.nullable(str), int), MAP(str, int), "None may be among the keys"),
        (MAP(str, int), MAP(int, int), "Keys stay as they are"),
    ],
)
def test_update_is_refused_with_advice_when_old_rows_would_not_fit(old: Any, new: Any, advice: str) -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Bare(old), LaunchConfig(1, 1))
        with pytest.raises(DefinitionError, match=advice):
            cluster.update_module(Bare(new))


def test_reader_looks_up_the_definition_when_rows_are_wider_than_it_knows(tmp_path: Folder) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Keyed(MAP(str, int), LAST), LaunchConfig(1, 1))
        with InProcessCluster.create("local", store=tmp_path.as_uri()) as reader:
            handle = reader.cluster_pstate("Keyed", "$$p")
            handle._module._pace = 10**9  # it does not look by itself, as on a store far away
            add(cluster, 1, 1)
            assert handle.select_one(AT) == 1
            cluster.update_module(Keyed(MAP(str, object), LAST))
            add(cluster, "text", 2)
            assert handle.select_one(AT) == "text"
