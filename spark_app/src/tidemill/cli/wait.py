"""`tidemill wait`: until a module is there and has processed all that was appended so far."""

from __future__ import annotations

import threading
import time
from typing import Annotated

import typer

from tidemill.cli import completion
from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    StoreOption,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, say, show_json, wants_json
from tidemill.clients.barrier import ProcessedWatch
from tidemill.journal.clock import Clock, SystemClock
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import UnknownName

_LOOK_MILLIS = 100.0


@command
def wait(
    module: ModuleArgument,
    topology: Annotated[
        str | None,
        typer.Argument(metavar="[TOPOLOGY]", help="All of them if left out.", autocompletion=completion.topologies),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait at most.")] = 60.0,
) -> None:
    """Wait until a module is there and has processed all records that were appended before this command.

    A select after it sees them. Exit code 3: not in time. 1: the module's code fails on each attempt.
    """
    wants_json(json_)
    clock, began = SystemClock(), time.monotonic()
    opened = _module_store(store, module, timeout, clock)
    watch = ProcessedWatch.of_all(opened, stored_definition(opened, module), topology)
    watch.wait(max(0.0, timeout - (time.monotonic() - began)), clock)
    seconds = round(time.monotonic() - began, 3)
    if json_:
        show_json({"module": module, "topology": topology, "processed": True, "seconds": seconds})
    else:
        say(f"{topology or module} has processed all that was appended.")


def _module_store(url: str, module: str, seconds: float, clock: Clock) -> ObjectStore:
    """The store, as soon as the module is in it. Raises UnknownName when it is not in time."""
    deadline, never = clock.monotonic_ms() + 1000 * seconds, threading.Event()
    while True:
        try:
            store = existing_store(url)
            stored_definition(store, module)
            return store
        except UnknownName:
            if clock.monotonic_ms() >= deadline:
                raise
            clock.wait(never, _LOOK_MILLIS)
