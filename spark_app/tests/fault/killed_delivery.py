"""Runs the module `Selling` in a process that kills itself at one step of a delivery: STORE CONNINFO STEP DONE."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sink_modules import selling

from tidemill import InProcessCluster, LaunchConfig

STEPS = ("moved", "committed")
"""Before the commit of its transaction, and after it."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """From now on this process ends at this step."""
    transaction = psycopg.Connection.transaction

    @contextmanager
    def ending(connection: Any) -> Iterator[Any]:
        with transaction(connection) as made:
            yield made
            if step == "moved":
                _kill()
        if step == "committed":
            _kill()

    psycopg.Connection.transaction = ending  # type: ignore[assignment, method-assign] # what it is for


def main(store: str, conninfo: str, step: str, done: int) -> None:
    """Process what there is, then a few records more."""
    with InProcessCluster.create("local", store=Path(store)) as cluster:
        cluster.launch_module(selling(conninfo), LaunchConfig(4, 2))
        cluster.wait_for_microbatch_processed_count("Selling", "mb", done, 120_000)
        arm(step)
        cluster.cluster_depot("Selling", "*in").append_many([[f"u{n % 7}", n] for n in range(done, done + 20)])
        cluster.wait_for_microbatch_processed_count("Selling", "mb", done + 20, 120_000)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
