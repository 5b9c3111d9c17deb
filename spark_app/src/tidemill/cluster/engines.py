"""The places where supersteps run, by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.engine.work import AttemptRunner
from tidemill.journal.clock import Clock
from tidemill.values.errors import BadInput
from tidemill.values.extras import needing

if TYPE_CHECKING:
    from tidemill.spark.runner import SparkRunner

ENGINES = ("local", "spark")
ENGINE_VARIABLE = "TIDEMILL_ENGINE"


def engine_name(engine: str | None) -> str:
    """The engine to use: the one given, else what TIDEMILL_ENGINE says, else `local`.

    Raises:
        BadInput: there is no such engine.
    """
    chosen = engine or os.environ.get(ENGINE_VARIABLE) or "local"
    check_engine(chosen)
    return chosen


def check_engine(name: str) -> None:
    """Raises BadInput: there is no such engine."""
    if name not in ENGINES:
        raise BadInput(f"There is no engine '{name}'; use {' or '.join(ENGINES)}.")


def opening_engine(
    engine: str | None, master: str | None, clock: Clock, has_ui: bool
) -> tuple[AttemptRunner, Callable[[], None]]:
    """A runner of attempts that is there at once, and what raises if Spark does not start behind it. `has_ui` opens
    Spark's page.

    Until Spark is there small microbatches run in this process, so that a module leads, and its clients see
    results, seconds before a JVM is warm.
    """
    if engine_name(engine) == "local":
        return open_engine("local"), lambda: None
    from tidemill.spark.deferred_runner import DeferredRunner, Engine

    def open_spark() -> Engine:
        runner = _open_spark(master, has_ui)
        return Engine(runner, facts=lambda: runner.facts)

    opening = DeferredRunner(open_spark, clock)
    return opening, opening.check


def open_engine(engine: str | None) -> AttemptRunner:
    """A runner of attempts; Spark is loaded, and its JVM started, only where it is asked for."""
    if engine_name(engine) == "spark":
        return _open_spark()
    from tidemill.local.runner import LocalRunner

    return LocalRunner()


def _open_spark(master: str | None = None, has_ui: bool = False) -> SparkRunner:
    with needing("spark"):
        from tidemill.spark.given_settings import given_settings
        from tidemill.spark.runner import SparkRunner

    if not has_ui:
        return SparkRunner(master) if master else SparkRunner()
    known = given_settings()
    return SparkRunner(replace(known, master=master or known.master, has_ui=True))
