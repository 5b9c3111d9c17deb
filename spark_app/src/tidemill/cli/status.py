"""`tidemill status | log | pause | resume`: how the topologies of a store stand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli import completion
from tidemill.cli.caller import caller
from tidemill.cli.controls import without_controls
from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    OptionalModule,
    StoreOption,
    TopologyArgument,
    existing_store,
    stored_definition,
)
from tidemill.cli.module_log import show_module_log
from tidemill.cli.output import (
    cell_text,
    command,
    console,
    counted,
    say,
    show_json,
    show_line,
    show_table,
    table_of,
    time_text,
    to_json,
    wants_json,
)
from tidemill.clients.history import topology_history
from tidemill.clients.status import TopologyStatus
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Failure
from tidemill.journal.leadership import LeaderWatch
from tidemill.journal.options_log import OptionsLog
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

_LOOK_MILLIS = 50.0

# --- status ----------------------------------------------------------------------------------------------------------


@command
def status(
    module: OptionalModule = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Until Ctrl-C: in place on a terminal, else a line for each change."),
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.2, max=3600, help="With --watch: seconds from look to look.")
    ] = 1.0,
) -> None:
    """Show how the topologies of a store stand; works on running and on stopped modules."""
    from tidemill.cli.repeated_looks import StoreLook, looks  # looks at depots: loads PyArrow

    wants_json(json_)
    clock = SystemClock()
    look = StoreLook(existing_store(store), module, clock)
    if watch:
        _watch(looks(look, interval, clock), json_, interval)
        return
    rows = look()
    if json_:
        show_json([row.to_json() for row in rows])
        return
    if not rows:
        say(f"There is no module in {store} yet; start one with `tidemill run MODULE:CLASS --store {store}`.")
        return
    console().print(_status_table(rows))
    _print(text for row in rows for text in _troubles(row))


def _watch(found: Iterator[list[TopologyStatus]], is_json: bool, interval: float) -> None:
    """Show each look that found something new, for ever."""
    if is_json or not sys.stdout.isatty():
        shown: list[str] = []
        for rows in found:
            lines = [to_json([row.to_json() for row in rows])] if is_json else list(map(_status_line, rows))
            for line in lines:
                if line not in shown:
                    show_line(line)
            sys.stdout.flush()
            shown = lines
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(), auto_refresh=False) as live:
        for rows in found:
            foot = f"{time_text(SystemClock().now_ms())}, again after {interval:g} s; Ctrl-C ends this"
            notes = [*(text for row in rows for text in _troubles(row)), (foot, "dim")]
            live.update(
                Group(_status_table(rows), *(Text(without_controls(text), style) for text, style in notes)),
                refresh=True,
            )


def _status_line(row: TopologyStatus) -> str:
    waiting = "unknown" if row.lag is None else f"{row.waiting:,}"
    done = f"microbatch {row.microbatch}, {row.processed:,} processed, {waiting} waiting"
    failure = "" if row.failure is None else f"; failed: {row.failure.code}: {row.failure.message.splitlines()[0]}"
    return f"{time_text(row.written_ms)} {row.module} {row.topology}: {row.state}, {done}{failure}"


def _status_table(rows: Sequence[TopologyStatus]) -> Table:
    columns = ("module", "topology", "state", "microbatch", "under way", "processed", "waiting", "rows/s")
    return table_of("", columns, map(_status_row, rows), ("processed", "waiting", "rows/s"))


def _status_row(row: TopologyStatus) -> tuple[Any, ...]:
    under_way = "{}/{}".format(*row.under_way) if row.under_way else None
    where = (row.module, row.topology, row.state, row.microbatch, under_way)
    waiting = None if row.lag is None else row.waiting
    is_busy = row.is_running and bool(row.waiting or row.under_way)  # else it is the speed of a microbatch long ago
    return (*where, row.processed, waiting, row.rows_per_second if is_busy else None)


Styled = tuple[str, str]
"""A text for people, and its style."""


def _troubles(row: TopologyStatus) -> Iterator[Styled]:
    title = f"{row.module} {row.topology}"
    if row.trouble:
        yield f"{title}: {row.trouble}", "bold red"
    if row.failure is not None:
        yield from _failure(title, row.failure)
    if row.lost:
        text = f"{title}: {row.lost} led it and went without a word: it was killed, or its machine stopped"
        yield f"{text}; `tidemill run` goes on from the last commit", "bold red"
    if row.clock_ahead_seconds:
        text = f"{title}: the newest entry is dated {row.clock_ahead_seconds:,} s ahead of this machine's clock"
        yield f"{text}: one of the two clocks is wrong", "bold red"
    for migration in row.migrations:
        what = f"{title}: migration '{migration.id}' of {migration.pstate} {migration.location}"
        done = f"{migration.waiting:,} of {migration.rows:,} rows wait" if migration.waiting else "done"
        yield f"{what}: {done}", "yellow" if migration.waiting else "green"
    if row.unpublished:
        yield f"{title}: {row.unpublished:,} of its appends are not in their depots and sinks yet", "yellow"
    if row.in_quarantine:
        text = f"{title}: {counted(row.in_quarantine, 'record')} in quarantine: tidemill quarantine list"
        yield f"{text} {row.module} {row.topology}", "yellow"
    if row.skipped:
        yield f"{title}: retention deleted {row.skipped:,} records before they were read", "bold red"


def _failure(title: str, failure: Failure) -> Iterator[Styled]:
    """A failed attempt with the traceback of the user's function and a sample of the record."""
    step = f" in {failure.step}" if failure.step else ""
    attempt = f"microbatch {failure.microbatch_id} version {failure.version}"
    yield f"{title}: {attempt} failed{step} at {time_text(failure.at_ms)}", "bold red"
    yield f"{failure.code}: {failure.message}", ""
    if failure.sample:
        yield f"record: {failure.sample}", ""
    if failure.trace:
        yield failure.trace.rstrip(), ""


def _print(texts: Iterable[Styled]) -> None:
    out = console()
    for text, style in texts:
        out.print(text, style=style or None, markup=False)


# --- log -------------------------------------------------------------------------------------------------------------


@command
def log(
    module: ModuleArgument,
    topology: Annotated[
        str,
        typer.Argument(
            metavar="[TOPOLOGY]", help="The module's log if left out.", autocompletion=completion.topologies
        ),
    ] = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many entries, newest last.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each new entry, until Ctrl-C.")] = False,
) -> None:
    """Show the newest entries of a topology's commit log, or what was done to a module, and by whom.

    Of a topology these are claims, attempts, phases and failures; without a TOPOLOGY those of all, with launches,
    updates, the destruction and changes of options, and who did them.
    """
    wants_json(json_)
    opened = existing_store(store)
    if not topology:
        if follow:
            raise BadInput("Only the log of a topology can be followed: name one.")
        show_module_log(opened, module, limit, json_)
        return
    definition = stored_definition(opened, module)
    definition.topology(topology)
    if follow:
        _follow(opened, module, topology, limit, json_)
        return
    lines = topology_history(opened, definition, topology, limit)
    if json_:
        show_json(lines)
        return
    columns = ("entry", "time", "kind", "microbatch", "records", "rows/s", "begun", "milliseconds")
    show_table("", columns, map(_log_row, lines), ("entry", "records", "rows/s"))
    failed = [line["failure"] for line in lines if line["failure"]]
    if failed:
        _print(_failure(f"{module} {topology}", Failure(**failed[-1])))


def _follow(store: ObjectStore, module: str, topology: str, limit: int, is_json: bool) -> None:
    """Each entry once and in order, a line each, for ever."""
    from tidemill.cli.repeated_looks import FOLLOW_SECONDS, LogLook, looks

    for lines in looks(LogLook(store, module, topology, limit), FOLLOW_SECONDS, SystemClock()):
        for line in lines:
            if is_json:
                show_json(line)
                continue
            names = ("", "", "", "", "records", "rows/s", "begun", "")
            cells = zip(names, map(cell_text, _log_row(line)), strict=True)
            show_line("  ".join(f"{text} {name}".rstrip() for name, text in cells if text != "-"))
            if line["failure"]:
                _print(_failure(f"{module} {topology}", Failure(**line["failure"])))
        sys.stdout.flush()


def _log_row(line: dict[str, Any]) -> tuple[Any, ...]:
    done = f"{line['microbatch_id']}/{line['version']}" if "microbatch_id" in line else None
    begun = line.get("begun")
    begin = f"{begun['microbatch_id']}/{begun['version']} ({counted(begun['records'], 'record')})" if begun else None
    phases = [
        f"{name.removesuffix('_ms')} {ms:.0f}" for name, ms in line.get("metrics", {}).items() if name.endswith("_ms")
    ]
    return (
        line["entry"],
        time_text(line["written_ms"]),
        line["kind"] + (" after a failure" if line["failure"] else ""),
        done,
        line.get("records"),
        line.get("rows_per_second"),
        begin,
        ", ".join(phases) or None,
    )


# --- pause and resume ------------------------------------------------------------------------------------------------


@command
def pause(
    module: ModuleArgument,
    topology: TopologyArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the running microbatch.")] = 60.0,
) -> None:
    """Pause a topology; returns when the microbatch under way is done. The pause survives restarts."""
    wants_json(json_)
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    definition.topology(topology)
    number = OptionsLog(opened, module, by=caller()).pause(topology)
    wait_for_pause(opened, definition, topology, number, timeout)
    _told(json_, module, topology, "paused")


def wait_for_pause(
    store: ObjectStore, definition: StoredDefinition, topology: str, number: int, seconds: float
) -> None:
    """Wait until the leader has seen the pause of this number; without a leader nothing runs, which is as good.

    Raises:
        TimeoutError: the running microbatch did not end in time.
    """
    clock, never = SystemClock(), threading.Event()
    log = CommitLog(store, definition.topology_prefix(topology))
    watch = LeaderWatch(store, definition, topology, clock)
    deadline = clock.monotonic_ms() + 1000 * seconds
    while True:
        head = log.head()
        if (head is not None and head[1].paused_seen >= number) or not watch.leader():
            return
        if clock.monotonic_ms() >= deadline:
            text = f"The microbatch under way did not end within {seconds:g} s"
            raise TimeoutError(f"{text}; the pause of {topology} holds from its end.")
        clock.wait(never, _LOOK_MILLIS)


@command
def resume(
    module: ModuleArgument, topology: TopologyArgument, store: StoreOption = STORE_DEFAULT, json_: JsonOption = False
) -> None:
    """Let a paused topology go on."""
    wants_json(json_)
    opened = existing_store(store)
    stored_definition(opened, module).topology(topology)
    OptionsLog(opened, module, by=caller()).resume(topology)
    _told(json_, module, topology, "resumed")


def _told(is_json: bool, module: str, topology: str, done: str) -> None:
    if is_json:
        show_json({"module": module, "topology": topology, "state": done})
    else:
        say(f"{topology} of {module} is {done}.")
