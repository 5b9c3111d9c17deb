"""`tidemill run`: a module's runner in this process, until it is stopped, with live progress."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from tidemill.cli.caller import caller
from tidemill.cli.gateway import serving_beside
from tidemill.cli.loader import STORE_DEFAULT, ClassArgument, DeleteOption, JsonOption, StoreOption, load_module
from tidemill.cli.logs import begin_log
from tidemill.cli.output import command, log, say, wants_json
from tidemill.cli.screens import screen
from tidemill.cli.topology_watch import TopologyWatch
from tidemill.clients.status import TopologyStatus
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.tracing import tracing
from tidemill.values.errors import BadInput, Fenced, TidemillError
from tidemill.values.extras import demand

_LOOK_MILLIS = 200.0
_IDLE_LOOKS = 3
"""How often in a row nothing may wait before `--until-idle` believes it."""


class _Stopped(BaseException):
    """A signal asked to stop."""


@command
def run(
    name: ClassArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    tasks: Annotated[
        int | None,
        typer.Option("--tasks", help="Logical partitions, a power of two; fixed for ever. 4 for a new module."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Spark partitions a stage; at most as many as tasks. 2 if left out.")
    ] = None,
    master: Annotated[
        str,
        typer.Option("--master", help="Spark master, such as local[4]; all cores if left out."),
    ] = "",
    engine: Annotated[
        str, typer.Option("--engine", envvar="TIDEMILL_ENGINE", help="local (this process) | spark.")
    ] = "local",
    spark_ui: Annotated[
        bool, typer.Option("--spark-ui", envvar="TIDEMILL_SPARK_UI", help="Open Spark's page, which the page links to.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Serve HTTP there; 0 is not at all.")] = 0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when every record is processed.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Although it belongs to a Kubernetes Module, whose drivers stop.")
    ] = False,
    updates: Annotated[
        bool, typer.Option("--update", help="Where the store has another definition, this one follows it.")
    ] = False,
    delete: DeleteOption = None,
) -> None:
    """Run a module on a store until it is stopped; on a restart it continues from the last commit.

    A second runner of the same module waits as a hot standby.
    """
    wants_json(json_)
    begin_log()
    if delete and not updates:
        raise BadInput("--delete names what an update removes; add --update.")
    with _signals(), contextlib.suppress(_Stopped), tracing() as told:
        if told:
            say(told)
        _run(
            _Asked(
                name,
                store,
                tasks,
                threads,
                engine,
                master,
                spark_ui,
                port,
                until_idle,
                updates,
                tuple(delete or ()),
                take_over,
            ),
            json_,
        )


@dataclass(frozen=True)
class _Asked:
    """The options of one `tidemill run`."""

    name: str
    store: str
    tasks: int | None
    threads: int | None
    engine: str
    master: str
    spark_ui: bool
    port: int
    until_idle: bool
    updates: bool
    deleted: tuple[str, ...]
    takes_over: bool


def _make(store: str) -> None:
    if "://" not in store:
        Path(store).mkdir(parents=True, exist_ok=True)


def _run(asked: _Asked, is_json: bool) -> None:
    from tidemill.cluster.engines import engine_name, opening_engine
    from tidemill.cluster.launch import prepare

    module, clock = load_module(asked.name), SystemClock()
    # Before anything is written: a wrong word, or a part that is not installed, leaves no module behind.
    if engine_name(asked.engine) == "spark":
        demand("spark", "pyspark")
    if asked.port:
        demand("gateway", "uvicorn")
    _make(asked.store)
    # The definition is stored before an engine starts: clients can append while a JVM comes up.
    prepared = prepare(
        asked.store,
        module,
        asked.tasks,
        asked.threads,
        deleted=asked.deleted,
        updates=asked.updates,
        takes_over=asked.takes_over,
        by=caller(),
    )
    if not is_json:
        log(f"Starting {asked.name} on the engine {asked.engine}, store {asked.store}.")
    engine, check = opening_engine(asked.engine, asked.master or None, clock, asked.spark_ui)
    running = None
    try:
        running = prepared.run(engine)
        if not is_json:
            log(f"{prepared.definition.module} is ready: it takes records and answers selects.")
        with serving_beside(running, asked.port, is_json):
            _watch(running, asked.until_idle, is_json, check)
    finally:
        # Leaves what kill -9 would leave: the attempt under way is cancelled, nothing is written for it.
        if running is not None:
            running.close()
        engine.close()


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and Ctrl-C end the command; a second one meanwhile changes nothing."""
    is_asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            raise _Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(running: Any, until_idle: bool, is_json: bool, check: Callable[[], None]) -> None:
    """Show progress until the module is idle, a runner ends by itself, or `check` raises."""
    watches = {name: TopologyWatch(running.store, running.definition, name) for name in running.topologies}
    clock, pause, idle_looks = SystemClock(), threading.Event(), 0
    with screen(is_json) as shown:
        while True:
            lines = [watches[name].look(runner.state) for name, runner in running.topologies.items()]
            shown.show(lines)
            check()
            _check_alive(running)
            idle_looks = idle_looks + 1 if all(line.is_idle for line in lines) else 0
            if until_idle and _is_done(watches, lines, idle_looks):
                return
            clock.wait(pause, _LOOK_MILLIS)


def _is_done(watches: dict[str, TopologyWatch], lines: list[TopologyStatus], idle_looks: int) -> bool:
    """Whether every record is processed.

    Raises:
        MicrobatchFails: a microbatch fails in the same way each time.
        BadInput: a topology is paused, and records wait for it.
    """
    for line in lines:
        watches[line.topology].check_failing(line)
    if idle_looks < _IDLE_LOOKS:
        return False
    for line in lines:
        watches[line.topology].check_processed(line)
    return True


def _check_alive(running: Any) -> None:
    for topology, runner in running.topologies.items():
        state = runner.state
        if state.is_over:
            if isinstance(state.error, TidemillError):
                raise state.error
            reason = state.stop_text or (repr(state.error) if state.error else state.role)
            if state.role == "superseded":
                raise Fenced(_superseded_text(running, reason))
            raise Fenced(f"The runner of {topology} ended: {reason}. Another process has taken over.")


def _superseded_text(running: Any, reason: str) -> str:
    newest = DefinitionLog(running.store, running.definition.module).newest()
    if newest is None or newest.is_destroyed:
        return f"The module {running.definition.module} was destroyed: its data is deleted."
    return f"The module was updated: {reason}. Start its new code with `tidemill run`."
