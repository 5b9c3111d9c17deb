"""What the runner asks of the place where supersteps run, and what it gets back: the seam between `leader` and
`local` | `spark`.

All of it is plain data (picklable): the runner fixes everything before an attempt starts, so the same work done
twice reads the same records and starts from the same state (invariant S2).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.options import resolve
from tidemill.tables.tables import Layout
from tidemill.values.numbers import MicrobatchId, Version
from tidemill.values.offsets import OffsetRanges

if TYPE_CHECKING:
    from tidemill.plan.program import Program


@dataclass(frozen=True)
class SourceWork:
    """The records of one source in this microbatch: one range of each partition.

    `segments` is the range [first, last) of segment numbers that hold them, so that a worker need not search.
    `is_due` says whether a tick depot ticks in this microbatch; `ranges` is empty for those. `depot` is its name, for
    people, `fetch` its option `depot.max.fetch`. `is_external`: the records are outside the store, and the program's
    object of the depot's name reads them. `store_url` is empty where the depot is in the topology's own store.
    `left_out` are (partition, offset) of records that are not read: those in quarantine.
    """

    source_id: str
    depot_prefix: str
    ranges: OffsetRanges = OffsetRanges()
    segments: tuple[int, int] = (0, 0)
    is_due: bool = False
    depot: str = ""
    fetch: int = resolve("depot.max.fetch", {})
    is_external: bool = False
    store_url: str = ""
    left_out: frozenset[tuple[int, int]] = frozenset()

    @property
    def records(self) -> int:
        """How many records the ranges hold, with those that are left out."""
        return self.ranges.records


@dataclass(frozen=True)
class Pinned:
    """A snapshot of another topology, below `prefix` in a store; `store_url` is empty for the reader's own."""

    prefix: str
    snapshot: Snapshot
    store_url: str = ""


@dataclass(frozen=True)
class AttemptWork:
    """One attempt (microbatch ID, version) of a topology.

    `prefix` is where the topology's objects live (`<module>/topologies/<topology>-<id>`). `reads` pins the
    snapshots of the other topologies whose PStates this one reads, by the name of the topology, or by the place of one
    of another module (`StoredMirror.place`). `options` are the dynamic options that hold now.
    `is_probe`: it is run to find a record to blame, and never committed. `arguments` are those of a query, which is
    run as an attempt whose outcome holds answers only.
    """

    store_url: str
    module: str
    prefix: str
    program: Program
    tasks: int
    threads: int
    microbatch_id: MicrobatchId
    version: Version
    snapshot: Snapshot
    sources: Mapping[str, SourceWork]
    reads: Mapping[str, Pinned] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    now_millis: int = 0
    is_probe: bool = False
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class DeltaPart:
    """What one thread changed. `content` holds the container's bytes if it is small; else the object `part.name` holds
    them already.
    """

    part: Part
    content: bytes | None


@dataclass(frozen=True)
class ThreadChanges:
    """What one thread did to the state (None: nothing), what it appends to depots, and what it answers."""

    delta: DeltaPart | None
    appends: tuple[DeltaPart, ...] = ()
    answers: tuple[Any, ...] = ()


@dataclass(frozen=True)
class EngineFacts:
    """Where attempts run, for people; `spark_ui` is the address of Spark's page, "" where there is none."""

    name: str = ""
    spark_ui: str = ""


@dataclass(frozen=True)
class AttemptOutcome:
    """A finished attempt. Nothing of it counts until the runner commits it.

    `exploded` names the sources whose records were read; only those advance. `metrics` are milliseconds and counts
    for people. `appends` are the records that it appends to depots: of each part `rows` says which depot it is for.
    `answers` are the results of a query. `engine` is where it ran.
    """

    deltas: tuple[DeltaPart, ...]
    exploded: frozenset[str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    appends: tuple[DeltaPart, ...] = ()
    answers: tuple[Any, ...] = ()
    engine: EngineFacts = EngineFacts()


@dataclass(frozen=True)
class CompactionWork:
    """Merge `levels` (adjacent, oldest first) into one run. `is_base` if the first of them is the oldest level of the
    snapshot.

    `retired` are PStates that the program does not have any more, id -> layout: their rows stay, for a rollback.
    `pieces` are the sets of tasks to merge, each into a part of its own; without any it is all tasks.
    """

    store_url: str
    module: str
    prefix: str
    program: Program
    tasks: int
    threads: int
    microbatch_id: MicrobatchId
    levels: tuple[Level, ...]
    is_base: bool
    retired: Mapping[str, Layout] = field(default_factory=dict)
    pieces: tuple[TaskSet, ...] = ()


@dataclass(frozen=True)
class CurrentStep:
    """Where an attempt is: its step with file and line, or its superstep; `trace` is the stack of the module's code."""

    step: str = ""
    trace: str = ""


class Cancel(threading.Event):
    """Set to end an attempt; the runner of a topology gives one to `AttemptRunner.run`.

    Whoever runs the attempt puts a function into `find` that says where it is; any thread may call it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.find: Callable[[], CurrentStep] = lambda: CurrentStep("opening the state and the depots")


class AttemptRunner(Protocol):
    """Runs attempts and compactions; `local.runner.LocalRunner`, `spark.runner.SparkRunner`.

    Raises:
        UserCodeError: a function of the module raised.
        AttemptTimeout: `cancel` was set before the attempt was done (the runner sets it at the phase timeout).
        AttemptLost: workers are gone.
    """

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Run one attempt to its end; large delta parts are in the store then, but no commit names them yet."""

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        """Merge the levels; the parts of the new run, which are in the store then."""

    def close(self) -> None:
        """Free workers and sessions; the runner cannot be used after it."""
