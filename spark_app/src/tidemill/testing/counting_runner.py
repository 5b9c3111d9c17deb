"""The simplest attempts there are: count each record; state is JSON objects of counts, merged by adding."""

from __future__ import annotations

import io
import json
import random
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from tidemill.depot.log import DepotLog
from tidemill.engine.resources import read_records
from tidemill.engine.work import AttemptOutcome, AttemptWork, CompactionWork, DeltaPart
from tidemill.journal.entries import member
from tidemill.journal.snapshot import Part, Snapshot, TaskSet
from tidemill.store.objects import ObjectStore
from tidemill.tables.container import meta_json
from tidemill.tables.stored_parts import read_part
from tidemill.values.columns import to_values
from tidemill.values.errors import UserCodeError
from tidemill.values.ids import Ids

ALL_TASKS = TaskSet(1, 0)
MEMBER = "counts.json"


class CountingRunner:
    """An `AttemptRunner` whose deltas are at times inline and at times objects; `fails` decides whether an attempt
    does.
    """

    def __init__(self, store: ObjectStore, chance: random.Random, ids: Ids, fails: Callable[[], bool]) -> None:
        self._store = store
        self._random = chance
        self._ids = ids
        self._fails = fails

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Count the records of the attempt's ranges.

        Raises:
            UserCodeError: the module's function is said to have raised.
        """
        if cancel.is_set() or self._fails():
            raise UserCodeError("the record is not liked", step="each", trace="Traceback", sample="17")
        counts: Counter[int] = Counter()
        for source in work.sources.values():
            if source.records:
                depot = DepotLog(self._store, source.depot_prefix, len(source.ranges), patience=())
                rows, _ = read_records(depot, source)
                counts.update(to_values(rows))
        exploded = frozenset(work.sources)
        return AttemptOutcome((self._delta(work, counts),) if counts else (), exploded)

    def _delta(self, work: AttemptWork, counts: Counter[int]) -> DeltaPart:
        content = encode(counts)
        part = Part("", ALL_TASKS).sealed(content)
        if self._random.randrange(2):
            return DeltaPart(part, content)
        name = f"deltas/{work.microbatch_id}-{work.version}-0-{self._ids.nonce()}.zip"
        self._store.create(f"{work.prefix}/{name}", content)
        return DeltaPart(replace(part, name=name), None)

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        """Add the counts of adjacent levels."""
        counts = read_counts(self._store, work.prefix, Snapshot(work.levels).parts())
        content = encode(counts)
        name = f"runs/{work.microbatch_id}-1-0-{self._ids.nonce()}.zip"
        self._store.create(f"{work.prefix}/{name}", content)
        return (Part(name, ALL_TASKS).sealed(content),)

    def close(self) -> None:
        """Nothing is held."""


def encode(counts: Counter[int]) -> bytes:
    """The counts as a container, which `tidemill check` can verify like any other."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("meta.json"), meta_json({}, {}))
        archive.writestr(zipfile.ZipInfo(MEMBER), json.dumps(sorted(counts.items())))
    return buffer.getvalue()


def read_counts(store: ObjectStore, prefix: str, parts: Iterable[Part]) -> Counter[int]:
    """How often each record is counted in these parts. Raises NotFound."""
    counts: Counter[int] = Counter()
    for part in parts:
        content = read_part(store, prefix, part.name)
        part.check(content)
        counts.update(dict(json.loads(member(content, MEMBER))))
    return counts
