"""The `tidemill` command: wiring only; each command is in a module of its own."""

from __future__ import annotations

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
    serving,
    showing,
)

app = typer.Typer(
    name="tidemill",
    help="Exactly-once stream processing and its serving database as one Python class.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(running.run)
app.command("describe")(showing.describe)
app.command("append")(appending.append)
app.command("select")(reading.select)
app.command("status")(showing.status)
app.command("pause")(showing.pause)
app.command("resume")(showing.resume)
app.command("log")(showing.log)
app.command("export")(exporting.export)
app.command("gateway")(serving.gateway)
app.command("check")(checking.check)
app.command("destroy")(destroying.destroy)
app.command("drive")(driving.drive)
app.add_typer(options.app, name="options")
