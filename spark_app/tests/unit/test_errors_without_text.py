"""Exceptions of the module's code that cannot say what they are: they are told of as any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mirrored import BEGINNING, launch
from stories import module_of

from tidemill import Depot, ExternalDepot, InProcessCluster, LaunchConfig, Ops, Path, PState, TaskGlobalObject
from tidemill.cluster.launch import RunningModule
from tidemill.spark.wire import pack_failure, raise_failure
from tidemill.values.errors import DefinitionError, UserCodeError


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def mute(*_: Any) -> Any:
    raise Mute


class MuteObject(TaskGlobalObject):
    def prepare_for_task(self, context: Any) -> None:
        raise Mute


class MuteDepot(ExternalDepot):
    def get_num_partitions(self) -> int:
        return 1

    def start_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        raise Mute

    def fetch_from(self, partition: int, start: int, end: int) -> Iterator[Any]:
        return iter(())

    def offset_after_timestamp_millis(self, partition: int, millis: int) -> int:
        return 0


class Unsendable(MuteObject):
    def __reduce__(self) -> Any:
        raise Mute


def reading(prepare: Callable[[Any], Any], then: Callable[[Any], Any]) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        depot = prepare(setup)
        mb = topologies.microbatch("mb")
        then(mb.source(depot, BEGINNING).out("*b").explode_microbatch("*b").out("*r"))

    return define


def depot(setup: Any) -> str:
    setup.declare_depot("*d", Depot.random())
    return "*d"


def migrated(setup: Any) -> str:
    setup.declare_depot("*d", Depot.random()).migration("m", mute)
    return "*d"


def with_object(setup: Any) -> str:
    setup.declare_object("*o", MuteObject())
    return depot(setup)


@pytest.mark.parametrize(
    "define",
    [
        reading(depot, lambda rows: rows.each(mute, "*r").out("*x")),
        reading(migrated, lambda rows: rows.each(Ops.IDENTITY, "*r").out("*x")),
        reading(with_object, lambda rows: rows.each(lambda o, r: r, "*o", "*r").out("*x")),
    ],
)
def test_failure_is_the_modules_when_its_exception_has_no_text(define: Any) -> None:
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "M", define)
        cluster.cluster_depot("M", "*d").append(1)
        runner = cluster._running["M"].topologies["mb"]
        failure = runner.wait_for(lambda now: now.report.failure is not None, 20).report.failure
        assert failure is not None and failure.code == UserCodeError.code
        assert "Mute: <RuntimeError in str>" in failure.message


def test_runner_tells_what_keeps_it_waiting_when_the_exception_has_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunningModule.start, "__defaults__", (0.3,))

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_object("*e", MuteDepot())
        topologies.microbatch("mb").source("*e").out("*b").explode_microbatch("*b").out("*r")

    with InProcessCluster.create("local") as cluster, pytest.raises(TimeoutError, match="Mute: <RuntimeError in str>"):
        cluster.launch_module(module_of("M", define), LaunchConfig(1, 1))
        cluster.wait_for_microbatch_processed_count("M", "mb", 1, 500)


def test_depot_that_migrates_tells_its_reader_when_the_exception_has_no_text() -> None:
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "M", reading(migrated, lambda rows: rows.each(Ops.IDENTITY, "*r").out("*x")), tasks=1)
        cluster.cluster_depot("M", "*d").append(1)
        with pytest.raises(UserCodeError, match="raised Mute: <RuntimeError in str>"):
            cluster.cluster_depot("M", "*d").read(0, 0, 1)


def test_migration_of_a_pstate_tells_its_reader_when_the_exception_has_no_text() -> None:
    def define(schema: Any) -> Any:
        def defined(setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.hash_by(Ops.IDENTITY))
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(int, schema))
            rows = mb.source("*d", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
            rows.local_transform("$$p", Path.key("*r").term_val(1))

        return defined

    with InProcessCluster.create("local") as cluster:
        launch(cluster, "M", define(int))
        cluster.cluster_depot("M", "*d").append(1)
        cluster.wait_for_microbatch_processed_count("M", "mb", 1)
        cluster.update_module(module_of("M", define(PState.migrated(int, "m", mute))))
        with pytest.raises(UserCodeError, match="raised Mute: <RuntimeError in str>"):
            cluster.cluster_pstate("M", "$$p").select_one(Path.key(1))


def test_append_tells_when_the_partitioners_exception_has_no_text() -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(mute))

    with InProcessCluster.create("local") as cluster:
        launch(cluster, "M", define)
        with pytest.raises(UserCodeError, match="raised Mute on '1': <RuntimeError in str>"):
            cluster.cluster_depot("M", "*d").append(1)


def test_module_tells_its_faults_when_their_exceptions_have_no_text() -> None:
    def unsendable(setup: Any, topologies: Any) -> None:
        setup.declare_object("*o", Unsendable())

    for define in (unsendable, mute):
        with InProcessCluster.create("local") as cluster, pytest.raises(DefinitionError, match="<RuntimeError in str>"):
            launch(cluster, "M", define)


def test_worker_failure_keeps_what_it_says_of_the_record_when_it_cannot_be_sent() -> None:
    error = UserCodeError("too slow", is_general=True)
    error.row = {"*r": Unsendable()}
    with pytest.raises(UserCodeError, match="too slow") as raised:
        raise_failure(pack_failure(error))
    assert raised.value.context == {"is_general": True}
