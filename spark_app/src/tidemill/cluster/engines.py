"""The places where supersteps run, by name."""

from __future__ import annotations

import os
from collections.abc import Callable

from tidemill.engine.work import AttemptRunner
from tidemill.journal.clock import Clock
from tidemill.values.errors import BadInput
from tidemill.values.extras import needing

ENGINES = ("local", "spark")
ENGINE_VARIABLE = "TIDEMILL_ENGINE"


def engine_name(engine: str | None) -> str:
    """The engine to use: the one given, else what TIDEMILL_ENGINE says, else `local`.

    Raises:
        BadInput: there is no such engine.
    """
    chosen = engine or os.environ.get(ENGINE_VARIABLE) or "local"
    if chosen not in ENGINES:
        raise BadInput(f"There is no engine '{chosen}'; use {' or '.join(ENGINES)}.")
    return chosen


def opening_engine(engine: str | None, master: str | None, clock: Clock) -> tuple[AttemptRunner, Callable[[], None]]:
    """A runner of attempts that is there at once, and what raises if Spark does not start behind it.

    Until Spark is there small microbatches run in this process, so that a module leads, and its clients see
    results, seconds before a JVM is warm.
    """
    if engine_name(engine) == "local":
        return open_engine("local"), lambda: None
    from tidemill.spark.deferred_runner import DeferredRunner, Engine

    opening = DeferredRunner(lambda: Engine(open_engine("spark", master)), clock)
    return opening, opening.check


def open_engine(engine: str | None, master: str | None = None) -> AttemptRunner:
    """A runner of attempts; Spark is loaded, and its JVM started, only where it is asked for."""
    if engine_name(engine) == "spark":
        with needing("spark"):
            from tidemill.spark.runner import SparkRunner

        return SparkRunner(master) if master else SparkRunner()
    from tidemill.local.runner import LocalRunner

    return LocalRunner()
