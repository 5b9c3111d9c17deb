"""Queries as a user calls them: over all tasks, from other queries, from topologies, and past each of their bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tidemill
from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
    operation,
)
from tidemill.engine.query_budget import DEPTH_MAX
from tidemill.journal.options_log import OptionsLog
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.queries import handle as handles
from tidemill.store.objects import NotFound
from tidemill.values.errors import (
    BadInput,
    BudgetExceeded,
    Busy,
    NotOneValue,
    SnapshotExpired,
    UnknownName,
    UserCodeError,
)

LINES: list[int] = []


@operation
def lines_of(count: int) -> Iterator[str]:
    """So many texts of 10 KB, no two the same object."""
    for number in range(count):
        LINES.append(number)
        yield f"{number:10}" * 1000


NAME, TASKS, WORDS = "Words", 4, [f"w{number}" for number in range(20)]


class Words(Module):
    """Counts of words, and queries of every kind about them."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        setup.declare_depot("*asked", Depot.random())
        start = MicrobatchSourceOptions.start_from_beginning()
        counts = topologies.microbatch("counts")
        counts.pstate("$$counts", PState.map_schema(str, int))
        counts.pstate("$$all", int).global_().initial_value(0)
        rows = counts.source("*words", start).out("*mb").explode_microbatch("*mb").out("*word")
        rows = rows.compound_agg("$$counts", CompoundAgg.map("*word", Agg.count()))
        rows.global_partition().agg("$$all", Agg.count())
        answers = topologies.microbatch("answers")
        answers.pstate("$$answers", PState.map_schema(str, PState.map_schema(str, object)))
        asked = answers.source("*asked", start).out("*mb").explode_microbatch("*mb").out("*word")
        asked = asked.invoke_query("count", "*word").out("*count").invoke_query("total").out("*total")
        asked.each(Ops.CURRENT_TASK_ID).out("*here").hash_partition("*word").local_transform(
            "$$answers", Path.key("*word", "found").term_val(1)
        ).compound_agg("$$answers", CompoundAgg.map("*word", CompoundAgg.map(
            "count", Agg.last("*count"), "total", Agg.last("*total"), "task", Agg.last("*here")
        )))  # fmt: skip
        self.queries(topologies)

    def queries(self, topologies: Any) -> None:
        """The queries, which an update may change freely."""
        count = topologies.query("count", "*word").out("*count").hash_partition("*word")
        count.local_select("$$counts", Path.key("*word")).out("*count").origin_partition()
        total = topologies.query("total").out("*sum").all_partition()
        total = total.local_select("$$counts", Path.map_vals()).out("*n").origin_partition()
        total.agg(Agg.sum("*n")).out("*sum")
        several = topologies.query("several", "*words").out("*found").each(Ops.EXPLODE, "*words").out("*word")
        several = several.select("$$counts", Path.key("*word")).out("*n").origin_partition()
        several.agg(Agg.map("*word", "*n")).out("*found")
        pair = topologies.query("pair", "*word").out("*pair").invoke_query("count", "*word").out("*n")
        pair.invoke_query("total").out("*all").each(Ops.TUPLE, "*n", "*all").out("*pair").origin_partition()
        both = topologies.query("both").out("*both").local_select("$$all", Path.stay()).out("*all")
        both.invoke_query("total").out("*sum").each(Ops.TUPLE, "*all", "*sum").out("*both").origin_partition()
        smaller = Block.invoke_query("factorial", Expr(Ops.DEC, "*n")).out("*f").each(Ops.TIMES, "*n", "*f").out("*r")
        factorial = topologies.query("factorial", "*n").out("*r").if_true(
            Expr(Ops.LESS_THAN, "*n", 2), Block.each(Ops.IDENTITY, 1).out("*r"), smaller
        )  # fmt: skip
        factorial.origin_partition()
        each = topologies.query("each_word", "*words").out("*word").each(Ops.EXPLODE, "*words").out("*word")
        each.hash_partition("*word").origin_partition()
        numbers = topologies.query("numbers", "*n").out("*sum").each(Ops.RANGE, 0, "*n").out("*i")
        numbers.origin_partition().agg(Agg.sum("*i")).out("*sum")
        spread = topologies.query("spread", "*n").out("*sum").each(Ops.RANGE, 0, "*n").out("*i").all_partition()
        spread.origin_partition().agg(Agg.count()).out("*sum")
        pairs = topologies.query("pairs", "*n").out("*sum").each(Ops.RANGE, 0, "*n").out("*i").each(Ops.IDENTITY, 1)
        pairs = pairs.out("*one").fresh_batch_source().each(Ops.RANGE, 0, 10).out("*j").each(Ops.IDENTITY, 1)
        pairs.out("*one").origin_partition().agg(Agg.count()).out("*sum")
        text = topologies.query("text", "*n").out("*size").each(Ops.TIMES, "x", "*n").out("*text")
        text.each(Ops.SIZE, "*text").out("*size").origin_partition()
        lines = topologies.query("lines", "*n").out("*size").each(lines_of, "*n").out("*line")
        lines.origin_partition().agg(Agg.count()).out("*size")
        again = Block.if_true(
            Expr(Ops.LESS_THAN, "*i", 0),
            Block.emit_loop("*i"),
            Block.hash_partition("*i").continue_loop(Expr(Ops.INC, "*i")),
        )
        endless = topologies.query("endless").out("*end").loop_with_vars(LoopVars.var("*i", 0), again).out("*end")
        endless.origin_partition()
        topologies.query("failing", "*n").out("*r").each(Ops.DIV, 1, "*n").out("*r").origin_partition()
        topologies.query("kind").out("*r").each(Ops.CURRENT_TOPOLOGY_TYPE).out("*r").origin_partition()
        topologies.query("microbatch").out("*r").each(Ops.CURRENT_MICROBATCH_ID).out("*r").origin_partition()
        topologies.query("waiting", "*event").out("*r").each(_wait_for, "*event").out("*r").origin_partition()


EVENTS: dict[str, tuple[threading.Event, threading.Event]] = {}


def _wait_for(name: str) -> str:
    began, ends = EVENTS[name]
    began.set()
    ends.wait(30)
    return name


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local") as found:
        found.launch_module(Words(), LaunchConfig(TASKS, 2))
        words = found.cluster_depot(NAME, "*words")
        words.append_many([word for number, word in enumerate(WORDS) for _ in range(number + 1)])
        found.wait_until_processed(NAME)
        yield found


def ask(cluster: InProcessCluster, query: str, *args: Any) -> Any:
    return cluster.cluster_query(NAME, query).invoke(*args)


# --- answers ---------------------------------------------------------------------------------------------------------


def test_one_task_answers_when_a_query_goes_to_a_key(cluster: InProcessCluster) -> None:
    assert [ask(cluster, "count", word) for word in ("w0", "w19", "other")] == [1, 20, None]


def test_all_tasks_answer_when_a_query_asks_all(cluster: InProcessCluster) -> None:
    assert ask(cluster, "total") == 210


def test_each_key_is_found_when_keys_are_many(cluster: InProcessCluster) -> None:
    assert ask(cluster, "several", ["w1", "w7", "w19"]) == {"w1": 2, "w7": 8, "w19": 20}
    many = [f"none{number}" for number in range(200)] + ["w3"]
    assert ask(cluster, "several", many) == dict.fromkeys(many, None) | {"w3": 4}
    assert ask(cluster, "several", []) is None


def test_a_query_answers_when_another_one_calls_it(cluster: InProcessCluster) -> None:
    assert ask(cluster, "pair", "w4") == [5, 210]


def test_a_query_answers_when_it_calls_itself(cluster: InProcessCluster) -> None:
    assert ask(cluster, "factorial", 20) == 2432902008176640000


def test_a_future_gives_the_answer_when_it_is_asked_for_without_waiting(cluster: InProcessCluster) -> None:
    assert cluster.cluster_query(NAME, "total").invoke_async().result(30) == 210


def test_a_step_knows_that_it_is_in_a_query(cluster: InProcessCluster) -> None:
    assert ask(cluster, "kind") == "query"
    with pytest.raises(UserCodeError, match="no microbatch"):
        ask(cluster, "microbatch")


def test_info_names_module_and_query_when_it_is_asked_for(cluster: InProcessCluster) -> None:
    assert tuple(cluster.cluster_query(NAME, "total").get_object_info()) == (NAME, "total", TASKS)
    assert isinstance(cluster.cluster_query(NAME, "total"), tidemill.QueryHandle)


def test_a_topology_goes_on_with_the_answer_when_it_calls_a_query(cluster: InProcessCluster) -> None:
    cluster.cluster_depot(NAME, "*asked").append_many(["w2", "w5", "none"])
    cluster.wait_until_processed(NAME, "answers")

    answers = cluster.cluster_pstate(NAME, "$$answers")
    found = {word: answers.select_one(Path.key(word)) for word in ("w2", "w5", "none")}
    assert {word: (each["count"], each["total"]) for word, each in found.items()} == {
        "w2": (3, 210), "w5": (6, 210), "none": (None, 210),
    }  # fmt: skip
    assert all(0 <= each["task"] < TASKS for each in found.values())


def test_one_commit_is_read_from_first_to_last_step_when_another_comes_in_between() -> None:
    class Slow(Words):
        def module_name(self) -> str:
            return "Slow"

        def queries(self, topologies: Any) -> None:
            super().queries(topologies)
            slow = topologies.query("slow", "*event").out("*r").local_select("$$all", Path.stay()).out("*all")
            slow = slow.each(_wait_for, "*event").out("*done").invoke_query("total").out("*sum")
            slow.each(Ops.TUPLE, "*all", "*sum").out("*r").origin_partition()

    EVENTS["slow"] = (threading.Event(), threading.Event())
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Slow(), LaunchConfig(TASKS, 2))
        words = cluster.cluster_depot("Slow", "*words")
        words.append_many(["a", "b", "c"])
        cluster.wait_until_processed("Slow", "counts")
        slow = cluster.cluster_query("Slow", "slow")
        pending = slow.invoke_async("slow")
        assert EVENTS["slow"][0].wait(30)
        words.append_many(["a", "d"])
        cluster.wait_until_processed("Slow", "counts")
        EVENTS["slow"][1].set()

        assert pending.result(30) == [3, 3]
        assert slow.invoke("slow") == [5, 5]


def test_a_query_begins_anew_when_what_it_reads_is_collected(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, gone = SnapshotReader.root, [NotFound("collected", name="part")] * 3

    def root(reader: SnapshotReader, pstate: str, task: int) -> Any:
        if gone:
            raise gone.pop()
        return opened(reader, pstate, task)

    monkeypatch.setattr(SnapshotReader, "root", root)
    assert ask(cluster, "total") == 210

    gone.extend([NotFound("collected", name="part")] * 4)
    with pytest.raises(SnapshotExpired, match="'total' took longer than what it reads is kept"):
        ask(cluster, "total")


def test_each_thread_has_its_own_bounds_when_several_ask_one_handle(cluster: InProcessCluster) -> None:
    numbers = cluster.cluster_query(NAME, "numbers")

    def call(number: int) -> int:
        if number % 2:
            return int(numbers.invoke(number))
        with pytest.raises(BudgetExceeded):
            numbers.invoke(10**9)
        return -1

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(call, range(16)))

    assert found == [sum(range(number)) if number % 2 else -1 for number in range(16)]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_query_is_refused_when_it_gives_no_result_or_several(cluster: InProcessCluster) -> None:
    with pytest.raises(NotOneValue, match="'each_word' gave no result"):
        ask(cluster, "each_word", [])
    with pytest.raises(NotOneValue, match="'each_word' gave 2 results"):
        ask(cluster, "each_word", ["a", "b"])


def test_a_call_is_refused_when_its_arguments_or_name_do_not_fit(cluster: InProcessCluster) -> None:
    with pytest.raises(BadInput, match=r"takes 1 argument \(\*word\), not 2"):
        ask(cluster, "count", "a", "b")
    with pytest.raises(UnknownName, match="no query nothing; it has both, count"):
        ask(cluster, "nothing")


def test_the_step_is_named_when_a_function_of_a_query_raises(cluster: InProcessCluster) -> None:
    with pytest.raises(UserCodeError, match=r"each\(DIV\) at .*test_stories_queries.py:\d+ raised ZeroDivisionError"):
        ask(cluster, "failing", 0)


LONG_MILLIS = 200_000
"""For queries that another bound than that of time is to end, also on a machine that is busy."""


@pytest.fixture
def bounded(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, int], None]]:
    """Sets an option of a query, for one test."""
    monkeypatch.setattr(handles, "OPTIONS_MILLIS", 0)
    log, done = OptionsLog(cluster.store, NAME), []

    def bound(query: str, option: str, value: int) -> None:
        log.set("topology", query, option, value)
        done.append((query, option))

    yield bound
    for query, option in done:
        log.unset("topology", query, option)


def test_a_query_ends_when_its_time_is_over(cluster: InProcessCluster, bounded: Callable[..., None]) -> None:
    bounded("endless", "topology.query.timeout.millis", 50)

    with pytest.raises(BudgetExceeded, match=r"'endless' takes longer than 50 ms.*topology.query.timeout.millis"):
        ask(cluster, "endless")


@pytest.mark.parametrize(
    ("query", "passes", "fails"), [("numbers", 1_000, 1_001), ("spread", 200, 201), ("pairs", 90, 91)]
)
def test_a_query_ends_when_it_makes_too_many_rows(
    cluster: InProcessCluster, bounded: Callable[..., None], query: str, passes: int, fails: int
) -> None:
    bounded(query, "topology.query.max.rows", 1_000)

    ask(cluster, query, passes)
    with pytest.raises(BudgetExceeded, match=rf"'{query}' makes more than 1,000 rows.*topology.query.max.rows"):
        ask(cluster, query, fails)


def test_rows_end_a_query_before_they_are_made_when_their_number_is_absurd(
    cluster: InProcessCluster, bounded: Callable[..., None]
) -> None:
    bounded("numbers", "topology.query.timeout.millis", LONG_MILLIS)
    with pytest.raises(BudgetExceeded, match="'numbers' makes more than 1,000,000 rows"):
        ask(cluster, "numbers", 10**15)


def test_a_query_ends_when_it_reads_too_many_rows(cluster: InProcessCluster, bounded: Callable[..., None]) -> None:
    bounded("total", "topology.query.max.rows", 10)

    with pytest.raises(BudgetExceeded, match="'total' makes more than 10 rows"):
        ask(cluster, "total")


def test_a_query_ends_when_it_makes_too_many_bytes(cluster: InProcessCluster, bounded: Callable[..., None]) -> None:
    bounded("text", "topology.query.max.mb", 1)

    assert ask(cluster, "text", 500_000) == 500_000
    with pytest.raises(BudgetExceeded, match=r"'text' makes more than 1 MB.*topology.query.max.mb"):
        ask(cluster, "text", 1_100_000)


def test_a_query_ends_before_it_holds_what_one_call_of_an_operation_would_emit(
    cluster: InProcessCluster, bounded: Callable[..., None]
) -> None:
    bounded("lines", "topology.query.max.mb", 1)

    assert ask(cluster, "lines", 90) == 90
    LINES.clear()
    with pytest.raises(BudgetExceeded, match=r"'lines' makes more than 1 MB.*topology.query.max.mb"):
        ask(cluster, "lines", 10**12)
    assert len(LINES) < 110


def test_a_query_ends_before_one_call_makes_a_text_beyond_all_memory(cluster: InProcessCluster) -> None:
    with pytest.raises(BudgetExceeded, match=r"'text' makes more than 128 MB"):
        ask(cluster, "text", 10**15)


def test_a_query_ends_when_it_calls_itself_too_deep(cluster: InProcessCluster) -> None:
    assert ask(cluster, "factorial", DEPTH_MAX + 1) > 0
    with pytest.raises(BudgetExceeded, match=f"'factorial' calls queries inside queries .*more than {DEPTH_MAX}"):
        ask(cluster, "factorial", DEPTH_MAX + 2)


def test_a_query_is_refused_when_as_many_run_as_may(
    cluster: InProcessCluster, bounded: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "_places", threading.BoundedSemaphore(1))
    bounded("total", "topology.query.timeout.millis", 20)
    EVENTS["busy"] = began, ends = threading.Event(), threading.Event()
    pending = cluster.cluster_query(NAME, "waiting").invoke_async("busy")
    assert began.wait(30)
    try:
        with pytest.raises(Busy, match="none ended in time for 'total'"):
            ask(cluster, "total")
    finally:
        ends.set()
    assert pending.result(30) == "busy"


def test_an_attempt_fails_with_the_step_when_a_query_that_it_calls_exceeds_its_bounds() -> None:
    class Greedy(Words):
        def module_name(self) -> str:
            return "Greedy"

        def queries(self, topologies: Any) -> None:
            total = topologies.query("total").out("*sum").each(Ops.RANGE, 0, 10**12).out("*i").origin_partition()
            total.agg(Agg.sum("*i")).out("*sum")
            count = topologies.query("count", "*word").out("*word").origin_partition()
            count.each(Ops.IDENTITY, "*word").out("*unused")

    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Greedy(), LaunchConfig(TASKS, 2))
        OptionsLog(cluster.store, "Greedy").set("topology", "answers", "topology.query.max.rows", 10_000)
        cluster.cluster_depot("Greedy", "*asked").append("a")
        with pytest.raises(UserCodeError, match=r"invoke_query\(total\) at .* makes more than 10,000 rows"):
            cluster.wait_for_microbatch_processed_count("Greedy", "answers", 1, LONG_MILLIS)


# --- updates ---------------------------------------------------------------------------------------------------------


def test_queries_come_change_and_go_when_the_module_is_updated() -> None:
    class Later(Words):
        def module_name(self) -> str:
            return NAME

        def queries(self, topologies: Any) -> None:
            count = topologies.query("count", "*word").out("*r").select("$$counts", Path.key("*word")).out("*n")
            count.each(Ops.TIMES, "*n", 10).out("*r").origin_partition()
            total = topologies.query("total").out("*r").each(Ops.IDENTITY, 7).out("*r").origin_partition()
            total.each(Ops.IDENTITY, "*r").out("*same")
            topologies.query("fresh", "*a", "*b").out("*r").each(Ops.PLUS, "*a", "*b").out("*r").origin_partition()

    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Words(), LaunchConfig(TASKS, 2))
        cluster.cluster_depot(NAME, "*words").append_many(["a", "a"])
        cluster.wait_until_processed(NAME)
        count, pair = cluster.cluster_query(NAME, "count"), cluster.cluster_query(NAME, "pair")
        assert (count.invoke("a"), pair.invoke("a")) == (2, [2, 2])

        cluster.update_module(Later())

        assert (count.invoke("a"), ask(cluster, "total"), ask(cluster, "fresh", 2, 3)) == (20, 7, 5)
        with pytest.raises(UnknownName, match="no query pair; it has count, fresh, total"):
            pair.invoke("a")
