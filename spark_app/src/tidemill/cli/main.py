"""The `tidemill` command; `cli.commands` says where each command is."""

from __future__ import annotations

import atexit
import gc
import sys
import traceback
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
        try:
            return super().__call__(*args, **kwargs)
        except Exception:  # noqa: BLE001 - what no command turned into a sentence is a bug, and has a code of its own
            from tidemill.cli.output import EXIT_BUG  # an import that `--help` does without

            traceback.print_exc()
            sys.exit(EXIT_BUG)


app = Application(
    name="tidemill",
    cls=Commands,
    help="Exactly-once stream processing and its serving database as one Python class.",
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
