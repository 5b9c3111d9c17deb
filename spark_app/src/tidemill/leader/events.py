"""What the runner machine hears and what it asks for: events and instructions, plain data both.

At most one instruction of an answer is a question to the store (`Question`): the machine does nothing else until its
answer has come. Attempts, compactions and collections run beside it and report whenever they are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Union

from tidemill.depot.mark import SegmentMark
from tidemill.engine.work import AttemptOutcome
from tidemill.journal.entries import AppendIdentity, Attempt, Entry, Poison, StagedAppend
from tidemill.journal.snapshot import Level, Part, TaskSet
from tidemill.language.options import ModuleOptions
from tidemill.values.numbers import MicrobatchId


@dataclass(frozen=True)
class DepotEnds:
    """Of each partition the first offset there is and the next one to be written; and the newest segment, of a depot in
    the store that has any.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    newest: SegmentMark | None = None


@dataclass(frozen=True)
class SourceSpec:
    """A source as the machine sees it; `depot` is the depot's plain name with its id.

    Progress that an entry of a definition before `since` holds is that of another source of this name. `is_external`:
    its depot is outside the store, and may get more partitions.
    """

    source_id: str
    depot: str
    depot_name: str
    partitions: int
    tick_millis: int | None = None
    since: int = 0
    is_external: bool = False


@dataclass(frozen=True)
class TopologySpec:
    """A topology as the machine sees it; `reads` are the other topologies whose PStates it reads.

    `retired` are sources that it does not read any more, and whose progress a rollback will want. `depots` are the
    module's depots by name, each as its name with its id; `sinks` those of them that are in other systems,
    `retired_depots` those that a rollback may bring back.
    `generations` says how many migrations the values of a table are to go through, of tables with any. It has `tasks`,
    which run on `threads`.
    """

    name: str
    definition: int
    sources: tuple[SourceSpec, ...]
    reads: tuple[str, ...] = ()
    retired: frozenset[str] = frozenset()
    depots: Mapping[str, str] = field(default_factory=dict)
    retired_depots: frozenset[str] = frozenset()
    sinks: frozenset[str] = frozenset()
    generations: Mapping[str, int] = field(default_factory=dict)
    tasks: int = 1
    threads: int = 1


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeaseAnswered:
    """Whether the lease is this process's now."""

    is_mine: bool


@dataclass(frozen=True)
class HeadRead:
    """The newest entry of the commit log (None: the log is empty) and the newest definition's number."""

    number: int
    entry: Entry | None
    definition: int


@dataclass(frozen=True)
class StartsResolved:
    """Where each new source begins, partition by partition."""

    offsets: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SourcesProbed:
    """What is there now: depots by source, options, the newest definition, the newest entry of each topology read.

    `settled` is how far the quarantine was settled without a gap.
    """

    ends: Mapping[str, DepotEnds]
    options: ModuleOptions
    definition: int
    reads: Mapping[str, int] = field(default_factory=dict)
    settled: int = 0


@dataclass(frozen=True)
class EntryWritten:
    """The entry of this number is in the log, as it was asked for."""

    number: int


@dataclass(frozen=True)
class EntryLost:
    """The slot holds another writer's entry, or this writer slept through a trim."""

    number: int


@dataclass(frozen=True)
class StoreFailed:
    """The question had no answer; it is asked again after a while."""

    text: str


@dataclass(frozen=True)
class AttemptDone:
    """The attempt of this token came to its end; nothing of `outcome` counts before a commit names it."""

    token: int
    outcome: AttemptOutcome


@dataclass(frozen=True)
class FoundPoison:
    """A record without which the next version runs; `content` are the bytes of its part if they are few."""

    poison: Poison
    content: bytes | None


@dataclass(frozen=True)
class AttemptFailed:
    """The attempt of this token failed; `code` is that of the error.

    `step`, `trace` and `sample` say where in the module's code it came up, and for which rows. `found` is the record
    to blame, where one was looked for, `not_found` why it was not found.
    """

    token: int
    code: str
    message: str
    step: str = ""
    trace: str = ""
    sample: str = ""
    found: FoundPoison | None = None
    not_found: str = ""


@dataclass(frozen=True)
class ProbeStarted:
    """To find the record that the attempt of this token fails at, a part of its records is tried."""

    token: int


@dataclass(frozen=True)
class CompactionDone:
    """`parts` are the objects of the new run; an entry of the log has to name them."""

    token: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class CompactionFailed:
    """`code` is that of the error, which decides what comes next; `text` is for people."""

    token: int
    code: str
    text: str


@dataclass(frozen=True)
class CollectionDone:
    """A collection ended; `text` says why it failed, and is empty if it did not."""

    text: str = ""


@dataclass(frozen=True)
class AppendsPublished:
    """A publication ended: `delivered` are the appends that are in their depots now, or whose depots are gone.

    `text` says why others are not, and is empty if all are.
    """

    token: int
    delivered: frozenset[AppendIdentity]
    text: str = ""


@dataclass(frozen=True)
class TimePassed:
    """Time went on, or somebody says that there may be news."""

    has_news: bool = False


@dataclass(frozen=True)
class LeaseLost:
    """Another process holds the lease now."""


@dataclass(frozen=True)
class StopRequested:
    """Stop; `is_gentle` lets the attempt under way end and commits it, but begins no other."""

    is_gentle: bool = False


Event = Union[
    LeaseAnswered, HeadRead, StartsResolved, SourcesProbed, EntryWritten, EntryLost, StoreFailed, AttemptDone,
    AttemptFailed, ProbeStarted, CompactionDone, CompactionFailed, CollectionDone, AppendsPublished, TimePassed,
    LeaseLost, StopRequested,
]  # fmt: skip

# --- instructions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskLease:
    """Try to get the lease."""


@dataclass(frozen=True)
class ReadHead:
    """Read the end of the commit log and the newest definition's number."""


@dataclass(frozen=True)
class ResolveStarts:
    """Find where sources begin that the topology meets for the first time."""

    source_ids: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """Probe the depots, the options and the definition, and the quarantine if there is something in it.

    `reached` are segments that sources came to, which their depots must still hold: named by a leader's first look.
    """

    has_quarantine: bool = False
    reached: Mapping[str, SegmentMark] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteEntry:
    """Append an entry with its inline parts; said again, word for word, until the slot holds something."""

    number: int
    entry: Entry
    parts: Mapping[str, bytes] = field(default_factory=dict)


Question = Union[AskLease, ReadHead, ResolveStarts, Look, WriteEntry]


@dataclass(frozen=True)
class StartAttempt:
    """`is_traced`: the attempt before failed in the module's code; this one keeps the records of its rows.

    `is_diagnosed`: if the module's code raises, the record is looked for at which it does.
    """

    token: int
    attempt: Attempt
    entry: Entry
    options: ModuleOptions
    is_traced: bool = False
    is_diagnosed: bool = False


@dataclass(frozen=True)
class CancelAttempt:
    """Ask the attempt of this token to end early; it reports as any other does."""

    token: int


@dataclass(frozen=True)
class StartCompaction:
    """Merge these levels, which are neighbours, into a run; with `is_base` nothing older stands below them. `pieces`
    are the sets of tasks that are merged now, each into a part; without any all are.
    """

    token: int
    microbatch_id: MicrobatchId
    levels: tuple[Level, ...]
    is_base: bool
    pieces: tuple[TaskSet, ...] = ()


@dataclass(frozen=True)
class CollectGarbage:
    """Delete what nothing reaches; snapshots of the last `retention_ms` milliseconds stay readable."""

    retention_ms: int


@dataclass(frozen=True)
class PublishAppends:
    """Append these to their depots, each once; they are committed, oldest first."""

    token: int
    appends: tuple[StagedAppend, ...]


@dataclass(frozen=True)
class Wait:
    """Nothing to do until this monotonic time, or until something happens; `for_news` also watches the depots."""

    until_ms: float
    for_news: bool = False


StopReason = Literal["stopped", "fenced", "superseded", "lease lost"]


@dataclass(frozen=True)
class Stop:
    """End the runner for this reason; `text` says more, for people."""

    reason: StopReason
    text: str = ""


Instruction = Union[
    AskLease, ReadHead, ResolveStarts, Look, WriteEntry, StartAttempt, CancelAttempt, StartCompaction, CollectGarbage,
    PublishAppends, Wait, Stop,
]  # fmt: skip
