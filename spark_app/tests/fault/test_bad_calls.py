"""What callers pass that does not fit: records, names, numbers, paths, options, definitions."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest
from poison import NAME, Tally, append, counts, eventually, launch, wait

from tidemill import (
    BadInput,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
    UnknownName,
    UpdateOptions,
)
from tidemill.journal.clock import ManualClock, SystemClock
from tidemill.journal.options_log import OptionsLog
from tidemill.values.errors import (
    BadPath,
    ModuleExists,
    NotOneValue,
    NotSelectable,
    OptionError,
    RecordRefused,
    SnapshotExpired,
    TidemillError,
    UserCodeError,
)

DEEP: list[Any] = []
DEEP.append(DEEP)
NAIVE = datetime.datetime(2024, 1, 1)


@pytest.fixture(scope="module")
def cluster() -> Any:
    with InProcessCluster.create() as cluster:
        launch(cluster)
        yield cluster


# --- records ---------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Any, str]] = [
    (print, "is code"),
    (lambda x: x, "is code"),
    (Tally, "is code"),
    (object(), "object"),
    (2**63, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    ({"a": [1, {"b": 2**64}]}, r"\['a'\]\[1\]\['b'\]"),
    ([{frozenset({1, 2})}, {2**70}], "64 bits"),
    (1 + 2j, "complex"),
    (range(3), "range"),
    (datetime.date(2024, 1, 1), "isoformat"),
    (NAIVE, "time zone"),
    ("\ud800", "surrogate"),
    (DEEP, "deeper than 100"),
    ("x" * (17 << 20), "17,825,797 bytes"),
]


@pytest.mark.parametrize(("record", "text"), REFUSED)
def test_record_is_refused_with_its_place_and_nothing_is_appended_when_it_is_no_data(
    cluster: InProcessCluster, record: Any, text: str
) -> None:
    words = cluster.cluster_depot(NAME, "*words")
    before = [words.get_partition_info(p) for p in range(2)]
    with pytest.raises(RecordRefused, match=text):
        words.append(record)
    with pytest.raises(RecordRefused, match=text) as refused:
        words.append_many(["fine", "fine", record, "fine"])
    assert "Record 2" in str(refused.value)
    assert refused.value.context["index"] == 2
    assert [words.get_partition_info(p) for p in range(2)] == before


def test_chunks_before_are_counted_when_a_later_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.depot.appender._VALUES_CHUNK_RECORDS", 2)
    with InProcessCluster.create() as cluster:
        launch(cluster)
        with pytest.raises(RecordRefused, match="Record 5: ") as refused:
            append(cluster, "a", "b", "c", "d", "e", print)
        assert refused.value.context["appended"] == 4
        wait(cluster, 4)
        assert counts(cluster, "a", "d", "e") == [1, 1, None]


def test_record_is_refused_when_a_builtin_partitioner_cannot_take_it(cluster: InProcessCluster) -> None:
    pairs = cluster.cluster_depot(NAME, "*pairs")
    with pytest.raises(RecordRefused, match=r"FIRST of \*pairs raised TypeError on '5'"):
        pairs.append(5)
    with pytest.raises(RecordRefused, match="FIRST") as refused:
        pairs.append_many([["a", 1], 5])
    assert refused.value.context["index"] == 1


class Routed(Module):
    """Partitioned by code of its own."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*raises", Depot.hash_by(lambda record: record["k"]))
        setup.declare_depot("*outside", lambda record, partitions: 99)


def test_users_own_error_is_shown_when_a_partitioner_raises_or_leaves_the_range() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Routed(), LaunchConfig(2, 1))
        with pytest.raises(UserCodeError, match="KeyError") as raised:
            cluster.cluster_depot("Routed", "*raises").append_many([{"k": 1}, {}])
        assert "lambda record" in raised.value.trace
        assert raised.value.context["index"] == 1
        with pytest.raises(RecordRefused, match="gave 99 .* not a partition from 0 to 1"):
            cluster.cluster_depot("Routed", "*outside").append(1)


# --- calls -----------------------------------------------------------------------------------------------------------

CALLS: dict[str, tuple[Callable[[InProcessCluster], Any], type[TidemillError], str]] = {
    "depot": (lambda c: c.cluster_depot(NAME, "*wrods"), UnknownName, r"no depot \*wrods; it has .*\*words"),
    "pstate": (lambda c: c.cluster_pstate(NAME, "$$count"), UnknownName, r"no PState .*\$\$counts"),
    "module": (lambda c: c.cluster_depot("Tully", "*words"), UnknownName, "no module 'Tully' .*there is Tally"),
    "topology": (lambda c: c.pause_microbatch_topology(NAME, "tolly"), UnknownName, "no topology tolly; it has tally"),
    "destroy": (lambda c: c.destroy_module("Tully"), UnknownName, "Tally"),
    "state of": (lambda c: c.microbatch_state("Tully", "tally"), UnknownName, "Tally"),
    "disallowed": (lambda c: c.cluster_depot(NAME, "*closed").append(1), RecordRefused, "Depot.disallow"),
    "tick": (lambda c: c.cluster_depot(NAME, "*tick").append(1), RecordRefused, "tick depot"),
    "one text": (lambda c: c.cluster_depot(NAME, "*words").append_many("abc"), RecordRefused, "use append"),
    "one number": (lambda c: c.cluster_depot(NAME, "*words").append_many(5), RecordRefused, "use append"),
    "ack": (lambda c: c.cluster_depot(NAME, "*words").append(1, "ack"), BadInput, "AckLevel"),
    "producer": (lambda c: c.cluster_depot(NAME, "*words").append(1, producer="p"), BadInput, "sequence="),
    "sequence": (lambda c: c.cluster_depot(NAME, "*words").append(1, producer="p", sequence="a"), BadInput, "'a'"),
    "long sequence": (lambda c: c.cluster_depot(NAME, "*words").append(1, producer="p", sequence=2**63), BadInput, "6"),
    "producer name": (lambda c: c.cluster_depot(NAME, "*words").append(1, producer=5, sequence=1), BadInput, "name"),
    "partition": (lambda c: c.cluster_depot(NAME, "*words").read(7, 0, 1), BadInput, "partitions 0 to 1, not 7"),
    "offset": (lambda c: c.cluster_depot(NAME, "*words").read(0, 0, 10**9), BadInput, "there is no range"),
    "offset type": (lambda c: c.cluster_depot(NAME, "*words").read(0, "0", 1), BadInput, "whole number"),
    "tasks": (lambda c: LaunchConfig(3, 1), BadInput, "power of two"),
    "no tasks": (lambda c: LaunchConfig(0, 1), BadInput, "from 1 on"),
    "threads": (lambda c: LaunchConfig(4, 8), BadInput, "at least as many tasks"),
    "engine": (lambda c: InProcessCluster.create(engine="flink"), BadInput, "local or spark"),  # type: ignore[arg-type]
    "no module": (lambda c: c.launch_module(5, LaunchConfig(1, 1)), DefinitionError, "tidemill.Module"),
    "delete": (lambda c: UpdateOptions.objects_to_delete(5), BadInput, r"\$\$old"),  # type: ignore[arg-type]
    "second": (lambda c: launch(c), ModuleExists, "use update_module"),
    "count": (lambda c: c.wait_for_microbatch_processed_count(NAME, "tally", "x"), BadInput, "whole number"),
    "private": (lambda c: c.cluster_pstate(NAME, "$$hidden"), NotSelectable, "private"),
    "no key": (lambda c: c.cluster_pstate(NAME, "$$counts").select(Path.all()), BadPath, "begin the path with a key"),
    "no path": (lambda c: c.cluster_pstate(NAME, "$$counts").select("a"), BadPath, "Path.key"),
    "whole": (lambda c: c.cluster_pstate(NAME, "$$nested").select(Path.key("a")), NotSelectable, "sorted range"),
    "term": (lambda c: c.cluster_pstate(NAME, "$$counts").select(Path.key("a").term_val(1)), BadPath, "changes state"),
    "a number": (lambda c: c.cluster_pstate(NAME, "$$counts").select(Path.key("kept").map_vals()), BadPath, "map_vals"),
    "none": (lambda c: c.cluster_pstate(NAME, "$$nested").select_one(Path.key("a").all()), NotOneValue, "no value"),
    "entry": (lambda c: c.cluster_pstate(NAME, "$$counts").at(999).select(Path.key("a")), SnapshotExpired, "999"),
    "entry type": (lambda c: c.cluster_pstate(NAME, "$$counts").at("x"), BadInput, "whole number"),
    "query": (lambda c: c.cluster_query(NAME, "q"), UnknownName, "has no query q"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_error_says_what_and_what_to_do_when_a_call_does_not_fit(cluster: InProcessCluster, call: str) -> None:
    if call == "a number" and counts(cluster, "kept") == [None]:
        append(cluster, "kept")
        wait(cluster, 1)
    act, kind, text = CALLS[call]
    with pytest.raises(kind, match=text):
        act(cluster)


def test_handles_refuse_when_their_cluster_is_closed(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=str(tmp_path)) as cluster:
        launch(cluster)
        words, handle = cluster.cluster_depot(NAME, "*words"), cluster.cluster_pstate(NAME, "$$counts")
    for act in (lambda: words.append("a"), lambda: handle.select_one(Path.key("a")), lambda: launch(cluster)):
        with pytest.raises(BadInput, match="closed"):
            act()


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("depot.max.fetsh", 1, "Did you mean depot.max.fetch"),
        ("depot.max.fetch", 0, "must be in 1.."),
        ("depot.max.fetch", "ten", "whole number"),
        ("depot.max.fetch", True, "whole number"),
        ("topology.microbatch.phase.timeout.seconds", float("nan"), "number"),
        ("topology.microbatch.phase.timeout.seconds", -1, "must be in"),
        ("topology.microbatch.placement", "here", r"auto \| spread"),
        ("topology.on.record.error", "skip", r"retry \| quarantine"),
    ],
)
def test_option_is_refused_in_code_and_on_a_running_module_when_it_is_unknown_or_out_of_range(
    cluster: InProcessCluster, name: str, value: Any, text: str
) -> None:
    options = OptionsLog(cluster.store, NAME)
    before = options.read()
    with pytest.raises(OptionError, match=text):
        options.set("module", "", name, value)
    assert OptionsLog(cluster.store, NAME).read() == before
    with InProcessCluster.create() as other, pytest.raises(DefinitionError, match=text) as refused:
        launch(other, Tally(options={name: value}))
    assert "poison.py" in refused.value.faults[0].location


# --- definitions -----------------------------------------------------------------------------------------------------


class Other(Module):
    """The same name, another shape."""

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("tally")
        mb.pstate("$$counts", PState.map_schema(int, str))
        mb.pstate("$$new", int).global_()
        mb.source("*words").out("*m").explode_microbatch("*m").out("*w").each(Ops.IDENTITY, "*w").out("*x")


def test_all_reasons_are_given_at_once_and_the_module_runs_on_when_an_update_is_refused() -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster)
        with pytest.raises(DefinitionError) as refused:
            cluster.update_module(Other(), UpdateOptions.objects_to_delete("$$nested", "$$nowhere", "$$new"))
        text = str(refused.value)
        for name in ("*pairs", "*closed", "*tick", "$$hidden", "$$counts", "$$nowhere", "$$new"):
            assert name in text
        assert "$$nested" not in text
        append(cluster, "a")
        wait(cluster, 1)
        assert counts(cluster, "a") == [1]


def test_module_runs_on_when_the_code_of_an_update_cannot_be_compiled() -> None:
    lock = threading.Lock()
    with InProcessCluster.create() as cluster:
        launch(cluster)
        with pytest.raises(DefinitionError, match="cannot be sent to workers"):
            cluster.update_module(Tally(lambda word: lock and word))
        append(cluster, "a")
        wait(cluster, 1)
        assert counts(cluster, "a") == [1]


def test_second_module_of_a_name_is_refused_when_it_differs(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=str(tmp_path)) as first:
        launch(first)
        with InProcessCluster.create(store=str(tmp_path)) as second:
            with pytest.raises(ModuleExists, match=r"running elsewhere with another definition: .*\$\$hidden"):
                launch(second, Other())
            launch(second)  # an equal one stands by
        append(first, "a")
        wait(first, 1)
    with InProcessCluster.create(store=str(tmp_path)) as third, pytest.raises(DefinitionError, match="update_module"):
        launch(third, Other())


class Raises(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        raise RuntimeError("define went wrong")


def test_definition_error_shows_the_line_when_define_raises() -> None:
    with InProcessCluster.create() as cluster, pytest.raises(DefinitionError, match="define went wrong") as refused:
        cluster.launch_module(Raises(), LaunchConfig(1, 1))
    assert "test_bad_calls.py" in str(refused.value)


# --- clocks ----------------------------------------------------------------------------------------------------------


class Ticking(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        setup.declare_tick_depot("*tick", 1_000)
        mb = topologies.microbatch("count")
        mb.pstate("$$ticks", int).global_().initial_value(0)
        mb.pstate("$$words", int).global_().initial_value(0)
        for depot, pstate in (("*tick", "$$ticks"), ("*words", "$$words")):
            mb.source(depot).out("*m").explode_microbatch("*m").out("*r").local_transform(
                pstate, Path.term(lambda value: value + 1)
            )


class Jumping(ManualClock):
    """The wall clock of a test; durations and waits are real."""

    def __init__(self) -> None:
        super().__init__()
        self._real = SystemClock()

    def monotonic_ms(self) -> float:
        return self._real.monotonic_ms()

    def wait(self, event: Any, timeout_ms: float) -> bool:
        return self._real.wait(event, timeout_ms)


@pytest.mark.parametrize("jump", [-86_400_000 * 365, -1_500, 1_500, 86_400_000 * 365])
def test_records_count_once_and_ticks_go_on_when_the_clock_jumps(tmp_path: Folder, jump: int) -> None:
    clock = Jumping()
    with InProcessCluster.create(store=str(tmp_path)) as cluster:
        cluster._clock = clock
        cluster.launch_module(Ticking(), LaunchConfig(1, 1))
        words, ticks = (cluster.cluster_pstate("Ticking", name) for name in ("$$words", "$$ticks"))
        cluster.cluster_depot("Ticking", "*words").append("a")
        cluster.wait_for_microbatch_processed_count("Ticking", "count", 1)
        before = ticks.select_one()
        clock.jump(jump)
        cluster.cluster_depot("Ticking", "*words").append("b")
        cluster.wait_for_microbatch_processed_count("Ticking", "count", 2)
        assert words.select_one() == 2
        eventually(lambda: ticks.select_one() == before + 1)
        clock.jump(1_000)
        cluster.cluster_depot("Ticking", "*words").append("c")
        eventually(lambda: ticks.select_one() == before + 2 and words.select_one() == 3)
