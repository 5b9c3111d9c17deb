"""`tidemill drive`: what a driver pod of the operator runs; people use `tidemill run`."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tidemill.cli.loader import BreakMirrorsOption, ClassArgument, OwnerOption, TakeOverFromOption
from tidemill.cli.logs import begin_log
from tidemill.cli.output import command
from tidemill.cli.verdict import declared, split_names
from tidemill.definition.ownership import Owner
from tidemill.journal.tracing import tracing
from tidemill.values.extras import needing

CONF_DEFAULT = "/etc/tidemill/spark.json"
TERMINATION_LOG = Path("/dev/termination-log")

Names = Annotated[str, typer.Option("--objects-to-delete", envvar="TIDEMILL_OBJECTS_TO_DELETE", help="A,B")]

Restores = Annotated[
    bool, typer.Option("--restore-retired", envvar="TIDEMILL_RESTORE_RETIRED", help="A rollback: deleted data returns.")
]


@command
def drive(
    entry: ClassArgument,
    store: Annotated[str, typer.Option("--store", envvar="TIDEMILL_STORE")],
    module_resource: Annotated[str, typer.Option("--module-resource", envvar="TIDEMILL_MODULE_RESOURCE")],
    topology_resource: Annotated[str, typer.Option("--topology-resource", envvar="TIDEMILL_TOPOLOGY_RESOURCE")],
    topology: Annotated[str, typer.Option("--topology", envvar="TIDEMILL_TOPOLOGY")],
    revision: Annotated[int, typer.Option("--revision", envvar="TIDEMILL_REVISION")],
    definition_base: Annotated[int, typer.Option("--definition-base", envvar="TIDEMILL_DEFINITION_BASE")],
    tasks: Annotated[int, typer.Option("--tasks", envvar="TIDEMILL_TASKS")] = 4,
    threads: Annotated[int, typer.Option("--threads", envvar="TIDEMILL_THREADS")] = 2,
    objects_to_delete: Names = "",
    restore_retired: Restores = False,
    owner: OwnerOption = "",
    take_over_from: TakeOverFromOption = "",
    break_mirrors: BreakMirrorsOption = False,
    engine: Annotated[str, typer.Option("--engine", envvar="TIDEMILL_ENGINE", help="spark | local.")] = "spark",
    conf: Annotated[str, typer.Option("--conf", envvar="TIDEMILL_CONF", help="spark.json")] = CONF_DEFAULT,
    port: Annotated[int, typer.Option("--port", envvar="TIDEMILL_PORT", help="Probes and metrics.")] = 8081,
) -> None:
    """Drive one topology of one revision of a Module in a pod; the operator starts it."""
    with needing("kubernetes"):
        from tidemill.kubernetes import drive as driving

    begin_log("info")
    stop = _stop_on_signals()
    try:
        plan = driving.RevisionPlan(
            declared(entry), revision, definition_base, tasks, threads, split_names(objects_to_delete), restore_retired,
            Owner.parse(owner), take_over_from, break_mirrors,
        )  # fmt: skip
        resources = driving.ResourceNames(module_resource, topology_resource, topology)
        with tracing() as told:
            if told:
                logging.getLogger("tidemill.drive").info(told)
            driving.drive(plan, resources, store, engine, Path(conf), port, stop)
    except Exception as error:
        _leave_word(error)
        raise


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    return stop


def _leave_word(error: Exception) -> None:
    """The kubelet shows it as the reason why the container ended."""
    try:
        if TERMINATION_LOG.exists() and os.access(TERMINATION_LOG, os.W_OK):
            TERMINATION_LOG.write_text(str(error)[:4000])
    except OSError as failed:
        logging.getLogger("tidemill.drive").warning("no word could be left: %s", failed)
