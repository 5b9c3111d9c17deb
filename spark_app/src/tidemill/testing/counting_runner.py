"""The simplest attempts there are: count each record; state is JSON objects of counts, merged by adding."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable

from tidemill.engine.resources import read_part
from tidemill.engine.work import AttemptOutcome, DeltaPart
from tidemill.model.errors import UserCodeError
from tidemill.model.ids import Ids
from tidemill.model.snapshot import Part, Snapshot, TaskSet
from tidemill.runtime import events
from tidemill.runtime.world import World
from tidemill.store.objects import ObjectStore

ALL_TASKS = TaskSet(1, 0)


class CountingRunner:
    """Attempts and compactions of one simulated process; some deltas ride in the entry, some are objects."""

    def __init__(self, store: ObjectStore, chance: random.Random, ids: Ids, fails: Callable[[], bool]) -> None:
        self._store = store
        self._random = chance
        self._ids = ids
        self._fails = fails

    def run(self, world: World, start: events.StartAttempt) -> AttemptOutcome:
        """Count the records of the attempt's ranges."""
        work = world.attempt_work(start)
        if self._fails():
            raise UserCodeError("the record is not liked", step="each", trace="Traceback", sample="17")
        counts: Counter[int] = Counter()
        for source_id, source in work.sources.items():
            depot = world.depots[source_id]
            rows, _ = depot.read_rows(source.ranges, source.segments)
            counts.update(int(row) for row in rows)
        if not counts:
            return AttemptOutcome((), frozenset(work.sources))
        content = encode(counts)
        part = Part("", ALL_TASKS, {"0": len(counts)}, len(content))
        if self._random.randrange(2):
            return AttemptOutcome((DeltaPart(part, content),), frozenset(work.sources))
        name = f"deltas/{work.microbatch_id}-{work.version}-0-{self._ids.nonce()}.zip"
        self._store.create(f"{work.prefix}/{name}", content)
        return AttemptOutcome((DeltaPart(Part(name, ALL_TASKS, part.rows, part.bytes), None),), frozenset(work.sources))

    def compact(self, world: World, start: events.StartCompaction) -> tuple[Part, ...]:
        """Add the counts of adjacent levels."""
        counts = read_counts(self._store, world.prefix, Snapshot(start.levels).parts())
        content = encode(counts)
        name = f"runs/{start.microbatch_id}-1-0-{self._ids.nonce()}.zip"
        self._store.create(f"{world.prefix}/{name}", content)
        return (Part(name, ALL_TASKS, {"0": len(counts)}, len(content)),)


def encode(counts: Counter[int]) -> bytes:
    return json.dumps(sorted(counts.items())).encode()


def read_counts(store: ObjectStore, prefix: str, parts: Iterable[Part]) -> Counter[int]:
    """How often each record is counted in these parts. Raises NotFound."""
    counts: Counter[int] = Counter()
    for part in parts:
        counts.update(dict(json.loads(read_part(store, prefix, part.name))))
    return counts
