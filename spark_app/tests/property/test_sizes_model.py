"""Sizes of structures of structures, as attempts and clients see them, against plain dicts that are counted."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_pstate_model import Store, change, compare

from tidemill import Block, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.language.schema import FixedKeysSchema, Leaf, MapSchema, Schema, SetSchema
from tidemill.leader.check import check_module

TASKS = range(8)
keys = st.sampled_from(["bool", "int", "str", "float", "object", "datetime"])
tracked = st.sampled_from([True, True, True, False])
flat = st.one_of(
    st.builds(SetSchema, st.just("bool"), st.just(True), tracked, st.booleans()),
    st.builds(MapSchema, keys, st.just(Leaf("int")), st.just(True), tracked, st.booleans()),
)


def records(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Of a structure and a value, or of two structures."""
    fields = st.one_of(st.tuples(inner, st.just(Leaf("int"))), st.tuples(inner, inner))
    return fields.map(lambda pair: FixedKeysSchema(tuple(zip("xy", pair, strict=True))))


deep = st.recursive(
    flat, lambda inner: st.one_of(st.builds(MapSchema, keys, inner, st.booleans()), records(inner)), max_leaves=4
)
schemas = st.builds(MapSchema, st.just("bool"), st.builds(MapSchema, keys, deep, st.just(True), tracked))


@settings(max_examples=60, deadline=None)
@given(schemas, st.data())
def test_sizes_are_those_of_dicts_when_structures_hold_structures(schema: MapSchema, data: Any) -> None:
    store, models = Store(schema), {task: dict[Any, Any]() for task in TASKS}
    for _ in range(data.draw(st.integers(1, 4))):
        store.begin(data.draw(st.sampled_from([1, 2])))
        for _ in range(data.draw(st.integers(0, 15))):
            task = data.draw(st.sampled_from([0, 3]))
            change(data.draw, schema, store.root(task), models[task])
            event = data.draw(st.integers(0, 7))
            if event == 0:
                store.travel(task % store.threads)
            elif event == 1:
                store.states[task % store.threads].maybe_spill()
            elif event <= 3:
                compare(schema, store.root, models)
        compare(schema, store.root, models)
        store.commit()
        compare(schema, store.committed_root, models)
        if data.draw(st.booleans()):
            first = data.draw(st.integers(0, len(store.snapshot.levels) - 1))
            store.compact(first, len(store.snapshot.levels), store.threads, data.draw(st.sampled_from([1, 5, 1_000])))
            compare(schema, store.committed_root, models)


class Topics(Module):
    """What users read by topic, and how many topics each of them had after their newest record."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*read", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        topics = PState.map_schema(int, PState.set_schema(int).subindexed()).subindexed()
        mb.pstate("$$topics", PState.map_schema(str, topics))
        mb.pstate("$$seen", PState.map_schema(str, int))
        item = Path.key("*user", "*topic")
        (
            mb.source("*read").out("*mb").explode_microbatch("*mb").out("*r")
            .each(Ops.EXPAND, "*r").out("*user", "*topic", "*item", "*is_new")
            .if_true(
                "*is_new",
                Block.local_transform("$$topics", item.void_set_elem().term_val("*item")),
                Block.local_transform("$$topics", item.set_elem("*item").term_void()),
            )
            .local_select("$$topics", Path.key("*user").view(Ops.SIZE)).out("*n")
            .local_transform("$$seen", Path.key("*user").term_val("*n"))
        )  # fmt: skip


def test_size_of_a_map_of_sets_is_that_of_dicts_when_a_topology_writes_and_asks(engine: Any) -> None:
    chance, users = random.Random(7), ["ann", "bob", "cy"]
    topics: dict[str, dict[int, set[int]]] = {user: {} for user in users}
    with InProcessCluster.create(engine=engine) as cluster:
        cluster.launch_module(Topics(), LaunchConfig(4, 2))
        depot, total = cluster.cluster_depot("Topics", "*read"), 0
        held, seen = (cluster.cluster_pstate("Topics", name) for name in ("$$topics", "$$seen"))
        for count in (60, 1, 40):
            records = [
                [chance.choice(users), chance.randrange(6), chance.randrange(2), chance.random() < 0.5]
                for _ in range(count)
            ]
            for user, topic, item, is_new in records:
                items = topics[user].setdefault(topic, set())
                (items.add if is_new else items.discard)(item)
            depot.append_many(records)
            total += count
            cluster.wait_for_microbatch_processed_count("Topics", "mb", total, 120_000)
            sizes = {user: sum(1 for items in topics[user].values() if items) for user in users}
            assert {user: held.select_one(Path.key(user).view(Ops.SIZE)) for user in users} == sizes
            assert {user: seen.select_one(Path.key(user)) for user in users} == sizes
        assert check_module(cluster.store, "Topics") == []
