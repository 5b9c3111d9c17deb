"""How a topology stands: the one record that every reader of it gets, and its JSON.

`clients.status_reader` reads it from the store alone; a runner in this process (`leader.report`) knows more of it: its
phase, its failures in a row. Nothing is stored for people only: durations ride in the entries of commits, and a failure
rides in the entry that begins the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.entries import Committed, Entry, Failure, SourceProgress
from tidemill.journal.step_metrics import placement_of, told
from tidemill.tables.migration_progress import MigrationStatus, progress_of
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.numbers import Epoch, MicrobatchId, Version

State = Literal["stopped", "stopped, paused", "starting", "pausing", "paused", "failing", "running"]
Role = Literal["standby", "claiming", "leader", "stopped", "fenced", "superseded", "failed"]
Phase = Literal["idle", "prime", "process", "commit", "back-off", "paused"]


@dataclass(frozen=True, kw_only=True)
class TopologyStatus(ShownInNotebooks):
    """How a topology stands. `entry` is the number of the newest entry of its commit log, 0 before its first claim;
    what follows it is said by that entry.

    `lag` counts by source the records that are appended and not processed; None is not known, and a source that the
    topology has not met yet is left out. `lag_by_partition` has the same of each partition, without sources outside the
    store, and `start_from` where the topology began when it met each source. `quarantined` counts the records that ever
    went to the quarantine, `in_quarantine` those that wait there for a decision; None is not known. `unpublished`
    counts appends of committed microbatches that are not in their depots, or not noted as in their sinks, yet.
    `migrations` are those that the code declares, and how many rows wait for them. `under_way` and `microbatch_id` with
    `version` name an attempt: ID, version.

    `engine`, `spark_ui` and `standbys` are what the leader says in its lease: where its attempts run, the address of
    Spark's page, the processes that wait to lead. `lost` is a leader that went without a word; nobody leads since.
    `placement` is where the newest committed microbatch ran on Spark.

    `role`, `phase`, `failures_in_row` and `commits_since_claim` are None where the store alone tells; `trouble` is why
    a runner in this process gets no further, or what is wrong with a depot of another module, `background_trouble` why
    its compaction or collection failed last, which holds up nothing else.
    """

    module: str
    topology: str
    tasks: int = 0
    state: State = "stopped"
    is_running: bool = False
    leader: str | None = None
    lost: str = ""
    standbys: tuple[str, ...] = ()
    engine: str = ""
    spark_ui: str = ""
    is_paused: bool = False
    is_pause_seen: bool = False
    lag: dict[str, int] | None = None
    lag_by_partition: dict[str, tuple[int, ...]] | None = None
    clock_ahead_seconds: int = 0

    entry: int = 0
    kind: str = ""
    epoch: Epoch = Epoch(0)
    definition: int = 0
    microbatch_id: MicrobatchId = MicrobatchId(0)
    version: Version = Version(0)
    under_way: tuple[int, int] | None = None
    processed: int = 0
    skipped: int = 0
    quarantined: int = 0
    in_quarantine: int | None = 0
    unpublished: int = 0
    rows_per_second: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    placement: str = ""
    failure: Failure | None = None
    progress: dict[str, tuple[int, ...]] = field(default_factory=dict)
    start_from: dict[str, tuple[int, ...]] = field(default_factory=dict)
    levels: int = 0
    state_bytes: int = 0
    state_rows: int = 0
    migrations: tuple[MigrationStatus, ...] = ()
    paused_seen: int = 0
    written_ms: int = 0
    owner: str = ""

    role: Role | None = None
    phase: Phase | None = None
    failures_in_row: int | None = None
    commits_since_claim: int | None = None
    trouble: str = ""
    background_trouble: str = ""

    @property
    def waiting(self) -> int:
        """Records that wait, in all sources."""
        return sum((self.lag or {}).values())

    @property
    def microbatch(self) -> str:
        """The newest committed microbatch, for people: ID/version."""
        return f"{self.microbatch_id}/{self.version}"

    @property
    def rests_paused(self) -> bool:
        """Whether nothing is begun because of a pause; one that only begins to hold is none yet."""
        return self.is_paused if self.phase is None else self.phase == "paused"

    @property
    def is_idle(self) -> bool:
        """Whether nothing will happen without new records, or before somebody ends a pause."""
        is_done = self.waiting == 0 and self.unpublished == 0
        is_at_rest = is_done and self.under_way is None and self.phase in (None, "idle")
        return self.entry > 0 and not self.trouble and (self.rests_paused or is_at_rest)

    def _facts(self) -> dict[str, Any]:
        failure = None if self.failure is None else f"{self.failure.code}: {self.failure.message}"
        return {
            "module": self.module, "topology": self.topology, "state": self.state, "microbatch": self.microbatch,
            "processed": self.processed, "waiting": "unknown" if self.lag is None else self.waiting,
            **({"failed": failure} if failure else {}), **({"trouble": self.trouble} if self.trouble else {}),
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """All fields by their names, and `waiting`."""
        return {**msgspec.to_builtins(self), "waiting": self.waiting}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TopologyStatus:
        """The inverse of `to_json`; fields that a newer gateway adds are passed over."""
        return msgspec.convert(data, cls)


def entry_status(
    definition: StoredDefinition,
    topology: str,
    head: tuple[int, Entry] | None,
    *,
    is_running: bool = False,
    pause: int | None = None,
) -> TopologyStatus:
    """What the newest entry of a topology's log says (None: it is empty). `pause` is the entry of the options that
    pauses the topology, None where none does. Which of its appends are published the entry does not say: all count.

    Raises:
        UnknownName: the module has no such topology.
    """
    empty = TopologyStatus(
        module=definition.module,
        topology=topology,
        tasks=definition.tasks,
        state=_state(head[1] if head else None, is_running, pause),
        is_running=is_running,
        is_paused=pause is not None,
    )
    if head is None:
        return empty
    number, entry = head
    parts = list(entry.snapshot.parts())
    newest = entry.committed[0] if entry.committed else None
    met = met_sources(definition, topology, entry)
    return replace(
        empty,
        is_pause_seen=_is_seen(entry, pause),
        entry=number,
        kind=entry.kind,
        epoch=entry.epoch,
        definition=entry.definition,
        microbatch_id=entry.last_id,
        version=entry.last_version,
        under_way=(entry.attempt.microbatch_id, entry.attempt.version) if entry.attempt else None,
        processed=entry.processed,
        skipped=entry.skipped,
        quarantined=entry.quarantined,
        in_quarantine=None if entry.quarantined else 0,
        unpublished=len(entry.appends),
        rows_per_second=rows_per_second(newest) if newest else 0.0,
        metrics=told(newest.metrics)[0] if newest else {},
        placement=placement_of(newest.metrics) if newest else "",
        failure=entry.failure,
        progress={source: one.offsets for source, one in met.items()},
        start_from={source: one.start_from for source, one in met.items()},
        levels=len(entry.snapshot.levels),
        state_bytes=sum(part.bytes for part in parts),
        state_rows=sum(sum(part.rows.values()) for part in parts),
        migrations=progress_of(definition.topology(topology).pstates.values(), entry),
        paused_seen=entry.paused_seen,
        written_ms=entry.written_ms,
        owner=entry.owner,
    )


def _state(entry: Entry | None, is_running: bool, pause: int | None) -> State:
    if not is_running:
        return "stopped" if pause is None else "stopped, paused"
    if entry is None:
        return "starting"
    if pause is not None:
        return "paused" if _is_seen(entry, pause) else "pausing"
    return "failing" if entry.failure is not None else "running"


def _is_seen(entry: Entry, pause: int | None) -> bool:
    return pause is not None and entry.paused_seen >= pause


def rows_per_second(committed: Committed) -> float:
    """Records a second from the begin of a microbatch to its commit, as far as its phases are known."""
    milliseconds = sum(committed.metrics.get(name, 0.0) for name in ("prime_ms", "process_ms", "commit_ms"))
    return round(1000 * committed.records / milliseconds, 1) if milliseconds else 0.0


def met_sources(definition: StoredDefinition, topology: str, entry: Entry | None) -> dict[str, SourceProgress]:
    """Source ID -> progress, of the sources that the topology has met.

    Until a leader with the newest definition claims, the entry may tell of a source of the same ID that went before
    this one came, or that reads another depot. Raises UnknownName.
    """
    if entry is None:
        return {}
    return {
        source.source_id: entry.progress[source.source_id]
        for source in definition.topology(topology).sources
        if source.source_id in entry.progress
        and source.since <= entry.definition
        and entry.progress[source.source_id].depot == definition.depot_identity(source.depot)
    }
