"""The `tidemill` command; `cli.commands` says where each command is."""

from __future__ import annotations

import atexit
import gc
from typing import Annotated, Any

import typer

from tidemill.cli.commands import Commands


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        typer.echo(f"tidemill {metadata.version('tidemill')}")
        raise typer.Exit


class Application(typer.Typer):
    """The command as a process of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command that the arguments name, and end the process."""
        atexit.register(gc.freeze)  # the system takes all memory back: no looking for garbage in what was loaded
        return super().__call__(*args, **kwargs)


app = Application(
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
