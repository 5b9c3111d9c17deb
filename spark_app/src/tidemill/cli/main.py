"""The `tidemill` command; `cli.commands` says where each command is."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli.commands import Commands


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        typer.echo(f"tidemill {metadata.version('tidemill')}")
        raise typer.Exit


app = typer.Typer(
    name="tidemill",
    cls=Commands,
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
