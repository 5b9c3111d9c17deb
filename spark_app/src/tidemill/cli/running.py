"""`tidemill run`: a module's runner in this process, until it is stopped, with live progress."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidemill.cli.loading import STORE_DEFAULT, ClassArgument, DeleteOption, JsonOption, StoreOption, load_module
from tidemill.cli.output import command, messages, say, show_json, wants_json
from tidemill.cli.serving import serving_beside
from tidemill.model.entries import Failure
from tidemill.model.errors import BadInput, Fenced, TidemillError
from tidemill.runtime.clock import SystemClock
from tidemill.runtime.lag import LagReader
from tidemill.runtime.shell import RunnerState
from tidemill.runtime.status import rows_per_second

_LOOK_MILLIS = 200.0
_IDLE_LOOKS = 3
"""How often in a row nothing may wait before `--until-idle` believes it."""


class _Stopped(BaseException):
    """A signal asked to stop."""


@dataclass(frozen=True)
class Line:
    """What the live progress shows of one topology."""

    topology: str
    role: str
    phase: str
    records_in: int
    processed: int
    waiting: int
    microbatch_id: int
    version: int
    under_way: tuple[int, int] | None
    rows_per_second: float
    failure: Failure | None

    @property
    def is_idle(self) -> bool:
        return self.phase == "paused" or (self.waiting == 0 and self.under_way is None and self.phase == "idle")


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
    if delete and not updates:
        raise BadInput("--delete names what an update removes; add --update.")
    with _signals(), contextlib.suppress(_Stopped):
        _run(
            _Asked(
                name,
                _made(store),
                tasks,
                threads,
                engine,
                master,
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
    port: int
    until_idle: bool
    updates: bool
    deleted: tuple[str, ...]
    takes_over: bool


def _made(store: str) -> str:
    if "://" not in store:
        Path(store).mkdir(parents=True, exist_ok=True)
    return store


def _run(asked: _Asked, is_json: bool) -> None:
    from tidemill.cluster.engines import opening_engine
    from tidemill.cluster.launch import prepare

    module, clock = load_module(asked.name), SystemClock()
    # The definition is stored before an engine starts: clients can append while a JVM comes up.
    prepared = prepare(
        asked.store,
        module,
        asked.tasks,
        asked.threads,
        deleted=asked.deleted,
        updates=asked.updates,
        takes_over=asked.takes_over,
    )
    if not is_json:
        say(f"Starting {asked.name} on the engine {asked.engine}, store {asked.store}.")
    engine, check = opening_engine(asked.engine, asked.master or None, clock)
    running = None
    try:
        running = prepared.run(engine)
        if not is_json:
            say(f"{prepared.definition.module} is ready: it takes records and answers selects.")
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
    lags = {topology: LagReader(running.store, running.definition, topology) for topology in running.topologies}
    clock, pause, idle_looks = SystemClock(), threading.Event(), 0
    with _screen(is_json) as screen:
        while True:
            lines = [_line(topology, runner.state, lags[topology]) for topology, runner in running.topologies.items()]
            screen.show(lines)
            check()
            _check_alive(running)
            idle_looks = idle_looks + 1 if all(line.is_idle for line in lines) else 0
            if until_idle and idle_looks >= _IDLE_LOOKS:
                return
            clock.wait(pause, _LOOK_MILLIS)


def _check_alive(running: Any) -> None:
    for topology, runner in running.topologies.items():
        state = runner.state
        if state.is_over:
            if isinstance(state.error, TidemillError):
                raise state.error
            reason = state.stop_text or (repr(state.error) if state.error else state.role)
            if state.role == "superseded":
                raise Fenced(f"The module was updated or destroyed: {reason}. Start its new code with `tidemill run`.")
            raise Fenced(f"The runner of {topology} ended: {reason}. Another process has taken over.")


def _line(topology: str, state: RunnerState, lag: LagReader) -> Line:
    entry = state.entry
    waiting = sum(lag.read(entry).values())
    processed = entry.processed if entry is not None else 0
    committed = entry.committed[0] if entry is not None and entry.committed else None
    under_way = (entry.attempt.microbatch_id, entry.attempt.version) if entry is not None and entry.attempt else None
    return Line(
        topology=topology,
        role=state.role,
        phase=state.told.phase if state.role == "leader" else "standby",
        records_in=processed + waiting,
        processed=processed,
        waiting=waiting,
        microbatch_id=entry.last_id if entry is not None else 0,
        version=entry.last_version if entry is not None else 0,
        under_way=under_way,
        rows_per_second=rows_per_second(committed) if committed is not None else 0.0,
        failure=state.told.failure,
    )


# --- screens ---------------------------------------------------------------------------------------------------------


class _Screen:
    """Shows lines when they changed: one text line each, for pipes and log files."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] = {}
        self._failed: dict[str, Failure | None] = {}

    def show(self, lines: list[Line]) -> None:
        for line in lines:
            key = (line.role, line.microbatch_id, line.version, line.processed, line.phase == "paused")
            if self._shown.get(line.topology) != key:
                self._shown[line.topology] = key
                self.write(line)
            if line.failure is not None and self._failed.get(line.topology) != line.failure:
                self.write_failure(line.topology, line.failure)
            self._failed[line.topology] = line.failure

    def write(self, line: Line) -> None:
        done = f"microbatch {line.microbatch_id}/{line.version}, {line.processed:,} processed, {line.waiting:,} waiting"
        say(f"{line.topology}: {line.role}, {done}, {line.rows_per_second:,.0f} rows/s")

    def write_failure(self, topology: str, failure: Failure) -> None:
        attempt = f"{failure.microbatch_id}/{failure.version}"
        say(f"{topology}: attempt {attempt} failed, it will be tried again: {failure.code}: {failure.message}")
        if failure.sample:
            say(f"record: {failure.sample}")
        if failure.trace:
            say(failure.trace.rstrip())


class _JsonScreen(_Screen):
    """One JSON object a change."""

    def write(self, line: Line) -> None:
        show_json({**vars(line), "failure": vars(line.failure) if line.failure else None})
        sys.stdout.flush()

    def write_failure(self, topology: str, failure: Failure) -> None:
        show_json({"topology": topology, "failure": vars(failure)})
        sys.stdout.flush()


class _LiveScreen(_Screen):
    """A table that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    def show(self, lines: list[Line]) -> None:
        super().show(lines)
        table = Table()
        for column in ("topology", "role", "records in", "processed", "microbatch", "under way", "rows/s", "phase"):
            table.add_column(column)
        for line in lines:
            under_way = "-" if line.under_way is None else "{}/{}".format(*line.under_way)
            phase = f"{line.phase}, failing" if line.failure else line.phase
            cells = (
                line.topology, line.role, f"{line.records_in:,}", f"{line.processed:,}",
                f"{line.microbatch_id}/{line.version}", under_way, f"{line.rows_per_second:,.0f}", phase,
            )  # fmt: skip
            table.add_row(*map(Text, cells))
        self._live.update(table)

    def write(self, line: Line) -> None:
        """The table shows it."""


@contextlib.contextmanager
def _screen(is_json: bool) -> Iterator[_Screen]:
    if is_json:
        yield _JsonScreen()
    elif not sys.stderr.isatty():
        yield _Screen()
    else:
        with Live(console=messages(), refresh_per_second=5) as live:
            yield _LiveScreen(live)
