"""The commands by name: what the list of them says of each, and where it is; a command is loaded when it is called."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class CommandSource(NamedTuple):
    """`module` is below `tidemill.cli`; `function` is a command of it, or a Typer application with several."""

    module: str
    function: str
    help: str
    is_hidden: bool = False

    def load(self) -> Any:
        """The function, or the Typer application."""
        with _no_garbage():
            return getattr(importlib.import_module(f"tidemill.cli.{self.module}"), self.function)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing that is loaded is garbage, so nobody looks for it meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


COMMANDS = {
    "init": CommandSource(
        "init",
        "init",
        "Write a new project into the folder NAME: a module, tests, an image, manifests, and a file for CI.",
    ),
    "run": CommandSource(
        "run",
        "run",
        "Run a module on a store until it is stopped; on a restart it continues from the last commit.",
    ),
    "describe": CommandSource(
        "describe",
        "describe",
        "Check a module and show what it declares; nothing is run, and no store is needed without --against.",
    ),
    "update": CommandSource(
        "update",
        "update",
        "Store a module's new code as its next revision; the runner of the old one ends, `tidemill run` "
        "starts the new.",
    ),
    "append": CommandSource(
        "append",
        "append",
        "Append records; when this returns they are durable. Rows of CSV and Parquet files become dicts.",
    ),
    "records": CommandSource(
        "records", "records", "Show records of a depot: partition, offset and record, one a line."
    ),
    "select": CommandSource(
        "select", "select", "Read a PState; --json prints one list of all values (with --one the value)."
    ),
    "scan": CommandSource(
        "select",
        "scan",
        "Read all keys of a map, of all its partitions, a list of key and value a line, as of one entry of the log.",
    ),
    "diff": CommandSource(
        "select",
        "diff",
        "Show what changed in a PState between two microbatches: a key a line, its value before and after.",
    ),
    "query": CommandSource("query", "query", "Call a query topology; its steps run in this process, or on Spark."),
    "wait": CommandSource(
        "wait",
        "wait",
        "Wait until a module is there and has processed all records that were appended before this command.",
    ),
    "status": CommandSource(
        "status",
        "status",
        "Show how the topologies of a store stand; works on running and on stopped modules.",
    ),
    "pause": CommandSource(
        "status",
        "pause",
        "Pause a topology; returns when the microbatch under way is done. The pause survives restarts.",
    ),
    "resume": CommandSource("status", "resume", "Let a paused topology go on."),
    "log": CommandSource(
        "status",
        "log",
        "Show the newest entries of a topology's commit log, or what was done to a module, and by whom.",
    ),
    "export": CommandSource(
        "export",
        "export",
        "Write one Parquet file a table of the PState: keys k0, k1, …, and the value's columns.",
    ),
    "sql": CommandSource(
        "sql",
        "sql",
        "Answer a SELECT over PStates and depots, with DuckDB; --json prints a list of objects.",
    ),
    "graphs": CommandSource(
        "graphs",
        "graphs",
        "List the task graphs of a store: when each began, how it stands, and what its nodes did.",
    ),
    "datasets": CommandSource("graphs", "datasets", "Datasets: what task graphs left in a store."),
    "gateway": CommandSource(
        "gateway",
        "gateway",
        "Serve appends, selects, status and options over HTTP; any number of replicas may serve one store.",
    ),
    "ui": CommandSource("gateway", "ui", "Show a store's modules on a page in the browser of this machine."),
    "backup": CommandSource(
        "backup",
        "backup",
        "Save a store, which may be in use. What an earlier backup in TARGET saved is not copied again.",
    ),
    "restore": CommandSource(
        "backup",
        "restore",
        "Bring a store back. Stop everything that uses the store first; whatever still has it open ends with an error.",
    ),
    "check": CommandSource(
        "check",
        "check",
        "Read everything that a store's logs name and verify it; exit code 4 if something is wrong.",
    ),
    "destroy": CommandSource(
        "destroy",
        "destroy",
        "Delete a module's depots, PStates and progress from a store. Stop everything that runs it first.",
    ),
    "drive": CommandSource(
        "drive",
        "drive",
        "Drive one topology of one revision of a Module in a pod; the operator starts it.",
        is_hidden=True,
    ),
    "options": CommandSource("options", "app", "Dynamic options: change how a module runs while it runs."),
    "quarantine": CommandSource("quarantine", "app", "Records in quarantine: look at them, retry them, drop them."),
}


class Commands(TyperGroup):
    """A group that knows its commands by name and help, and loads only the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=entry.help, hidden=entry.is_hidden) for name, entry in COMMANDS.items()
        }

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; who asks for JSON gets what is wrong with the line as JSON, too."""
        if "--json" not in (sys.argv[1:] if args is None else args) or not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            told = error.format_message() if hasattr(error, "format_message") else str(error)
            typer.echo(json.dumps({"error": {"code": "BadCommand", "message": told}}, ensure_ascii=False), err=True)
            sys.exit(getattr(error, "exit_code", 2))
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--store` and `--json` before the command as well: they go to the command."""
        place, moved = 0, list[str]()
        while place < len(args) and (args[place] in ("--json", "--store") or args[place].startswith("--store=")):
            end = place + (2 if args[place] == "--store" else 1)
            moved, place = moved + args[place:end], end
        rest = args[place:]
        behind = rest.index("--") if "--" in rest else len(rest)
        if not rest:  # a shell that completes the line asks before the command stands in it
            return super().parse_args(ctx, [] if ctx.resilient_parsing else ["--help"])
        return super().parse_args(ctx, [*rest[:behind], *moved, *rest[behind:]])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the loaded command, and the arguments that are left for it."""
        name, known, rest = super().resolve_command(ctx, args)
        return name, known if name is None else loaded(name), rest


def loaded(name: str) -> Any:
    """A command with its parameters, ready to be called."""
    found = COMMANDS[name].load()
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)
