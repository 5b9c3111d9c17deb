"""The `tidemill` command: arguments in, sentences, tables or JSON out. What a command does is in the packages below.

`cli.commands` lists the commands; each is loaded when it is called.
"""

from __future__ import annotations

import sys


def start() -> None:
    """Run the command of this process. Ctrl-C while it is still being loaded ends it without a stack trace."""
    try:
        from tidemill.cli.main import app
    except KeyboardInterrupt:
        sys.exit(130)
    app()
