"""`tidemill describe | status | log | pause | resume`: what a module is, and how its topologies stand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tidemill.cli.loading import (
    STORE_DEFAULT,
    ClassArgument,
    JsonOption,
    ModuleArgument,
    OwnerOption,
    StoreOption,
    TakeOverFromOption,
    TopologyArgument,
    existing_store,
    load_module,
    stored_definition,
)
from tidemill.cli.output import (
    EXIT_REFUSED,
    command,
    console,
    say,
    show_json,
    show_table,
    time_text,
    wants_json,
)
from tidemill.cli.verdict import Candidate, partitioner_text, split_names, start_text
from tidemill.model import schema as schemas
from tidemill.model.dataflow import ModuleDeclaration
from tidemill.model.definition import StoredDefinition
from tidemill.model.entries import Failure
from tidemill.runtime.clock import SystemClock
from tidemill.runtime.commit_log import CommitLog
from tidemill.runtime.definition_log import DefinitionLog, modules_of
from tidemill.runtime.leading import LeaderWatch
from tidemill.runtime.options_log import OptionsLog
from tidemill.runtime.overview import topology_overview
from tidemill.runtime.status import topology_history
from tidemill.store.objects import ObjectStore

_LOOK_MILLIS = 50.0

# --- describe --------------------------------------------------------------------------------------------------------


@command
def describe(
    name: ClassArgument,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show which segments run by columns or by rows, and why.")
    ] = False,
    json_: JsonOption = False,
    against: Annotated[
        str, typer.Option("--against", help="A store: say whether the module may follow what it holds.")
    ] = "",
    tasks: Annotated[int, typer.Option("--tasks", help="With --against: the number of tasks.")] = 4,
    threads: Annotated[int, typer.Option("--threads", help="With --against: the number of threads.")] = 2,
    objects_to_delete: Annotated[
        str, typer.Option("--objects-to-delete", help="With --against: depots and PStates that go, A,B.")
    ] = "",
    conf: Annotated[str, typer.Option("--conf", help="With --against: a spark.json to check.")] = "",
    restore_retired: Annotated[
        bool, typer.Option("--restore-retired", envvar="TIDEMILL_RESTORE_RETIRED", help="With --against: a rollback.")
    ] = False,
    owner: OwnerOption = "",
    take_over_from: TakeOverFromOption = "",
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="With --against: exit code 0 for a refusal too; the verdict tells.")
    ] = False,
) -> None:
    """Check a module and show what it declares; nothing is run, and no store is needed without --against."""
    from tidemill.api.recording import record_module
    from tidemill.plan.check import checked
    from tidemill.plan.warn import warnings_of

    wants_json(json_)
    if against:
        names = split_names(objects_to_delete)
        candidate = Candidate(name, against, tasks, threads, names, conf, restore_retired, owner, take_over_from)
        if not candidate.show(json_) and not exit_zero:
            raise typer.Exit(EXIT_REFUSED)
        return
    declaration = checked(record_module(load_module(name)))
    plans = list(_segments(declaration)) if plan else None
    found = warnings_of(declaration)
    if json_:
        told = {"warnings": [dict(vars(warning)) for warning in found]}
        show_json(_described(declaration) | told | ({} if plans is None else {"plan": plans}))
        return
    console().print(f"Module {declaration.name}", style="bold")
    show_table("Depots", ("depot", "partitioner", "global", "tick ms", "schema"), (
        (d.name, partitioner_text(d), d.is_global, d.tick_millis, schemas.to_text(d.schema) if d.schema else None)
        for d in declaration.depots
    ))  # fmt: skip
    show_table("Sources", ("topology", "source", "depot", "start from"), (
        (t.name, s.source_id, s.depot, start_text(s.start_from)) for t in declaration.topologies for s in t.sources
    ))  # fmt: skip
    show_table("PStates", ("topology", "PState", "schema", "global", "private"), (
        (t.name, p.name, schemas.to_text(p.schema), p.is_global, p.is_private)
        for t in declaration.topologies for p in t.pstates
    ))  # fmt: skip
    for warning in found:
        console().print(f"Warning: {warning}", style="yellow", markup=False)
    if plans is not None:
        columns = ("topology", "from", "mode", "operators", "reason")
        show_table("Segments", columns, ([row[column] for column in columns] for row in plans))


def _described(declaration: ModuleDeclaration) -> dict[str, Any]:
    return {
        "module": declaration.name,
        "depots": [
            {
                "name": d.name,
                "partitioner": partitioner_text(d),
                "global": d.is_global,
                "tick_millis": d.tick_millis,
                "schema": None if d.schema is None else schemas.to_json(d.schema),
            }
            for d in declaration.depots
        ],
        "topologies": [
            {
                "name": t.name,
                "sources": [
                    {"source_id": s.source_id, "depot": s.depot, "start_from": start_text(s.start_from)}
                    for s in t.sources
                ],
                "pstates": [
                    {
                        "name": p.name,
                        "schema": schemas.to_json(p.schema),
                        "global": p.is_global,
                        "private": p.is_private,
                    }
                    for p in t.pstates
                ],
            }
            for t in declaration.topologies
        ],
    }


def _segments(declaration: ModuleDeclaration) -> Iterator[dict[str, Any]]:
    from tidemill.plan.compile import compile_topology

    for topology in declaration.topologies:
        program = compile_topology(declaration, topology.name)
        for segment in program.segments.values():
            start = program.operators[segment.start]
            names = [type(program.operators[operator]).__name__.lower() for operator in segment.operators]
            yield {
                "topology": topology.name,
                "from": str(start.at).rpartition("/")[2],
                "mode": segment.mode,
                "operators": " ".join(names),
                "reason": segment.reason,
            }


# --- status ----------------------------------------------------------------------------------------------------------


@command
def status(
    module: Annotated[str, typer.Argument(metavar="[MODULE]", help="All modules if left out.")] = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Show how the topologies of a store stand; works on running and on stopped modules."""
    wants_json(json_)
    opened = existing_store(store)
    names = [module] if module else modules_of(opened)
    found = [stored_definition(opened, name) for name in names if module or _is_there(opened, name)]
    rows = [
        topology_overview(opened, definition, topology) for definition in found for topology in definition.topologies
    ]
    if json_:
        show_json(rows)
        return
    columns = ("module", "topology", "state", "microbatch", "under way", "processed", "waiting", "rows/s")
    show_table("", columns, ([row[column] for column in columns] for row in rows), ("processed", "waiting", "rows/s"))
    for row in rows:
        if row["failure"] is not None:
            show_failure(f"{row['module']} {row['topology']}", Failure(**row["failure"]))
        if row["clock_ahead_seconds"]:
            text = (
                f"{row['module']} {row['topology']}: the newest entry is dated {row['clock_ahead_seconds']:,} s ahead"
            )
            text += " of this machine's clock: one of the two clocks is wrong"
            console().print(text, style="bold red", markup=False)
        if row["skipped"]:
            text = (
                f"{row['module']} {row['topology']}: retention deleted {row['skipped']:,} records before they were read"
            )
            console().print(text, style="bold red", markup=False)


def _is_there(store: ObjectStore, name: str) -> bool:
    found = DefinitionLog(store, name).newest()
    return found is not None and not found.is_destroyed


def show_failure(title: str, failure: Failure) -> None:
    """A failed attempt with the traceback of the user's function and a sample of the record."""
    out = console()
    step = f" in {failure.step}" if failure.step else ""
    attempt = f"microbatch {failure.microbatch_id} version {failure.version}"
    out.print(f"{title}: {attempt} failed{step} at {time_text(failure.at_ms)}", style="bold red", markup=False)
    out.print(f"{failure.code}: {failure.message}", markup=False)
    if failure.sample:
        out.print(f"record: {failure.sample}", markup=False)
    if failure.trace:
        out.print(failure.trace.rstrip(), markup=False)


# --- log -------------------------------------------------------------------------------------------------------------


@command
def log(
    module: ModuleArgument,
    topology: TopologyArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many entries, newest last.")] = 20,
) -> None:
    """Show the newest entries of a topology's commit log: claims, attempts, phases, failures."""
    wants_json(json_)
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    definition.topology(topology)
    lines = topology_history(opened, definition, topology, limit)
    if json_:
        show_json(lines)
        return
    columns = ("entry", "time", "kind", "microbatch", "records", "rows/s", "begun", "milliseconds")
    show_table("", columns, map(_log_row, lines), ("entry", "records", "rows/s"))
    failed = [line["failure"] for line in lines if line["failure"]]
    if failed:
        show_failure(f"{module} {topology}", Failure(**failed[-1]))


def _log_row(line: dict[str, Any]) -> tuple[Any, ...]:
    done = f"{line['microbatch_id']}/{line['version']}" if "microbatch_id" in line else None
    begun = line.get("begun")
    begin = f"{begun['microbatch_id']}/{begun['version']} ({begun['records']:,} records)" if begun else None
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
    number = OptionsLog(opened, module).pause(topology)
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
    OptionsLog(opened, module).resume(topology)
    _told(json_, module, topology, "resumed")


def _told(is_json: bool, module: str, topology: str, done: str) -> None:
    if is_json:
        show_json({"module": module, "topology": topology, "state": done})
    else:
        say(f"{topology} of {module} is {done}.")
