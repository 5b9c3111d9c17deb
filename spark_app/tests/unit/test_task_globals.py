"""Objects of a module: opened once in a process, used as arguments everywhere, closed with the module."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from declared_objects import Book, Prices, dearer, notes, price_of

from tidemill import Agg, Block, Constant, DefinitionError, InProcessCluster, LaunchConfig, Path, PState, UserCodeError
from tidemill.language import objects

PRICES = {"a": 1, "b": 2}


def sums(cluster: InProcessCluster) -> dict[str, int]:
    handle = cluster.cluster_pstate("Prices", "$$sums")
    return {item: handle.select_one(Path.key(item)) for item in "abc"}


def append(cluster: InProcessCluster, items: str, count: int) -> None:
    cluster.cluster_depot("Prices", "*items").append_many(list(items))
    cluster.wait_for_microbatch_processed_count("Prices", "mb", count, 60_000)


@pytest.mark.parametrize("mode", ["columns", "rows"])
@pytest.mark.parametrize(("threads", "as_bytes"), [(1, False), (2, True)])
def test_objects_are_arguments_when_rows_go_by_columns_and_row_by_row(
    tmp_path: Folder, threads: int, as_bytes: bool, mode: Any
) -> None:
    run = Attempts(tmp_path, Prices(Book(tmp_path / "log", PRICES)), 4, threads, as_bytes=as_bytes)
    run.program = replace(run.program, key=f"{run.program.key}-{mode}", segments={
        start: replace(segment, mode=mode, is_strict=True) for start, segment in run.program.segments.items()
    })  # fmt: skip
    run.feed("*items", list("aabc"))
    run.attempt()

    assert sorted(run.everywhere("$$sums", Path.all())) == [["a", 60], ["b", 40], ["c", 20]]
    assert sorted(run.everywhere("$$names", Path.all())) == [["a", "apple"], ["b", "none"], ["c", "none"]]
    objects.close_objects(run.program.objects.values())


def test_an_object_is_opened_once_and_closed_when_the_module_is(tmp_path: Folder) -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Prices(Book(tmp_path / "log", PRICES)), LaunchConfig(4, 2))
        for count in range(1, 30):
            append(cluster, "a", count)
        assert cluster.cluster_query("Prices", "price").invoke("b") == ["b", 2]
        assert [note[1:] for note in notes(tmp_path / "log")] == [["open", "Prices", "*book"]]

    assert [note[1] for note in notes(tmp_path / "log")] == ["open", "close"]
    assert objects.open_names() == []


def test_objects_follow_when_the_module_is_updated(tmp_path: Folder) -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Prices(Book(tmp_path / "old", PRICES)), LaunchConfig(4, 2))
        append(cluster, "a", 1)
        query = cluster.cluster_query("Prices", "price")
        assert query.invoke("a") == ["a", 1]
        cluster.update_module(Prices(Book(tmp_path / "new", {"a": 7})))

        assert [note[1] for note in notes(tmp_path / "old")] == ["open", "close"]
        assert query.invoke("a") == ["a", 7]
        append(cluster, "a", 2)
        assert cluster.cluster_pstate("Prices", "$$sums").select_one(Path.key("a")) == 30 + 80
    assert [note[1] for note in notes(tmp_path / "new")] == ["open", "close"]
    assert objects.open_names() == []


def test_the_attempt_is_tried_again_when_an_object_cannot_be_opened(tmp_path: Folder) -> None:
    failures = tmp_path / "down"
    failures.touch()
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Prices(Book(tmp_path / "log", PRICES, failures)), LaunchConfig(4, 2))
        cluster.cluster_depot("Prices", "*items").append("a")
        with pytest.raises(UserCodeError, match=r"'\*book', declared at .*declared_objects.py:\d+, cannot be opened"):
            cluster.wait_for_microbatch_processed_count("Prices", "mb", 1, 60_000)
        failures.unlink()
        cluster.wait_for_microbatch_processed_count("Prices", "mb", 1, 60_000, fail_fast=False)
        assert sums(cluster)["a"] == 30

    opened = [note[1] for note in notes(tmp_path / "log")]
    assert opened.count("open") == opened.count("close") >= 4  # what failed to open is closed, too


def test_a_query_says_so_when_its_object_cannot_be_opened(tmp_path: Folder) -> None:
    failures = tmp_path / "down"
    failures.touch()
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Prices(Book(tmp_path / "log", PRICES, failures)), LaunchConfig(4, 2))
        with pytest.raises(UserCodeError, match="ConnectionError: no answer"):
            cluster.cluster_query("Prices", "price").invoke("a")


def test_the_same_instance_serves_again_when_the_module_is_launched_again(tmp_path: Folder) -> None:
    module = Prices(Book(tmp_path / "log", PRICES))
    for _ in range(2):
        with InProcessCluster.create(engine="local") as cluster:
            cluster.launch_module(module, LaunchConfig(2, 1))
            append(cluster, "a", 1)
    assert [note[1] for note in notes(tmp_path / "log")] == ["open", "close"] * 2
    assert not module.book.is_open


def test_block_execute_takes_objects_and_closes_them(tmp_path: Folder) -> None:
    block = Block.each(price_of, "*book", "b").out("*price").each(dearer, "*book", "*price").out("*dear")

    rows = block.execute(objects={"*book": Book(tmp_path / "log", PRICES)})

    assert rows == [{"*price": 2, "*dear": 4}]
    assert [note[1] for note in notes(tmp_path / "log")] == ["open", "close"]


def test_a_function_is_the_object_when_it_is_a_constant() -> None:
    assert Block.each(lambda f, v: f(v), "*f", "x").out("*v").execute(objects={"*f": Constant(str.upper)}) == [
        {"*v": "X"}
    ]


def test_objects_stand_in_paths_conditions_and_aggregators() -> None:
    block = (
        Block.local_transform("$$p", Path.key("*key").term_val("*one"))
        .local_select("$$p", Path.key("*key")).out("*v")
        .keep_true("*yes")
        .each(lambda v, one: [v] * (2 + one), "*v", "*one").out("*vs")
        .batch_block(Block.each(lambda: 5).out("*x").global_partition().agg(Agg.sum("*one")).out("*sum"))
    )  # fmt: skip
    given = {"*key": "k", "*one": 1, "*yes": lambda: True}

    assert block.execute(pstates={"$$p": PState.map_schema(str, int)}, objects=given) == [{"*sum": 1}]


def test_mistakes_in_the_objects_of_execute_are_listed() -> None:
    with pytest.raises(DefinitionError, match="The name of a declared object begins"):
        Block.each(len, "*o").out("*n").execute(objects={"o": [1]})


def test_nothing_stays_when_many_modules_came_and_went() -> None:
    for _ in range(objects.CLOSED_MAX + 50):
        Block.each(len, "*list").out("*n").execute(objects={"*list": lambda: [1]})
    gc.collect()

    assert not objects._values and not objects._opened and not objects._gates
    assert len(objects._closed) == objects.CLOSED_MAX


def test_another_version_closes_what_was_open_when_one_process_serves_many(tmp_path: Folder) -> None:
    first = objects.DeclaredObject("*b", Book(tmp_path / "1", {}), at=_AT, scope="s1")
    second = objects.DeclaredObject("*b", Book(tmp_path / "2", {}), at=_AT, scope="s2")
    for declared in (first, first, second):
        objects.keep_only("store module", [declared])
        declared()

    assert [note[1] for note in notes(tmp_path / "1")] == ["open", "close"]
    assert [note[1] for note in notes(tmp_path / "2")] == ["open"]
    objects.close_objects([second])


_AT: Any = "here.py:1"


def test_values_of_users_are_left_alone_when_objects_are_put_in() -> None:
    @dataclass
    class Ring:
        other: Any = None

    ring = Ring()
    ring.other = (ring,)

    block = Block.each(lambda ring, one: one, ring, "*one").out("*n")
    assert block.execute(objects={"*one": 1}) == [{"*n": 1}]


class Once(Book):
    is_used_once = True


def test_an_object_that_is_used_once_is_declared_itself(tmp_path: Folder) -> None:
    block = Block.each(price_of, "*book", "b").out("*price")
    with pytest.raises(UserCodeError, match="declare the Once itself: behind a function"):
        block.execute(objects={"*book": lambda: Once(tmp_path / "log", PRICES)})
