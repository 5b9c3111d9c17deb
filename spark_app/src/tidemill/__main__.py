"""`python -m tidemill` is the `tidemill` command, also where that is not on the PATH."""

from __future__ import annotations

from tidemill.cli import start

if __name__ == "__main__":
    start()
