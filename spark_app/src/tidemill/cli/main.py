"""The `tidemill` command: wiring only; each command is in a module of its own."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from tidemill.cli import (
    appending,
    checking,
    destroying,
    driving,
    exporting,
    options,
    reading,
    running,
    saving,
    serving,
    showing,
    updating,
    waiting,
)


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tidemill {metadata.version('tidemill')}")
        raise typer.Exit


app = typer.Typer(
    name="tidemill",
    help="Exactly-once stream processing and its serving database as one Python class.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Exactly-once stream processing and its serving database as one Python class."""


app.command("run")(running.run)
app.command("describe")(showing.describe)
app.command("update")(updating.update)
app.command("append")(appending.append)
app.command("select")(reading.select)
app.command("scan")(reading.scan)
app.command("wait")(waiting.wait)
app.command("status")(showing.status)
app.command("pause")(showing.pause)
app.command("resume")(showing.resume)
app.command("log")(showing.log)
app.command("export")(exporting.export)
app.command("gateway")(serving.gateway)
app.command("backup")(saving.backup)
app.command("restore")(saving.restore)
app.command("check")(checking.check)
app.command("destroy")(destroying.destroy)
app.command("drive")(driving.drive)
app.add_typer(options.app, name="options")
