"""What goes of itself, once somebody runs `tidemill datasets collect`: Datasets of an age, and what crashed runs left.

A run that ended without its last entry leaves its program, checkpoints and the objects of Datasets that nobody sees.
Before they are deleted an entry says that the run is abandoned: a process that is still at it, however slow, meets it
at its own next entry and stops. What is deleted was listed before, so that nothing of a later run is among it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tidemill.graphs.dataset import FOLDER as DATASETS
from tidemill.graphs.dataset import RECORD, RECORDS, DatasetRecord, list_datasets, publish
from tidemill.graphs.dataset_readers import delete_dataset, delete_waiting, is_to_be_deleted
from tidemill.graphs.run_log import RunEntry, RunLog, graph_folder, list_graphs
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import Fenced, UnknownName
from tidemill.values.ids import nonce


@dataclass(frozen=True)
class CollectedDatasets:
    """What a collection deleted: Datasets, those that wait for graphs that read them, and runs with their objects."""

    datasets: list[str]
    waiting: list[str]
    runs: list[str]
    objects: int


def collect_datasets(
    store: ObjectStore, now_ms: int, older_than_ms: int | None = None, unfinished_ms: int | None = None
) -> CollectedDatasets:
    """Delete the Datasets whose time is over, or that are older than `older_than_ms`, and those that waited for their
    readers; and the halves of runs that wrote nothing for `unfinished_ms` (None: none), but for runs that somebody
    stopped and those without end: they go on one day, and begun anew would give their rows again. May be repeated at
    any time.

    Raises:
        StoreUnavailable, OutcomeUnknown: repeat it.
    """
    runs, objects = [], 0
    if unfinished_ms is not None:
        for name, newest in list_graphs(store):
            is_half = now_ms - newest.time_ms >= unfinished_ms and not _goes_on(newest)
            if is_half or newest.kind == "abandon":
                count = _collect_run(store, name, newest, now_ms)
                runs += [name] if count else []
                objects += count
    gone = delete_waiting(store, now_ms)
    due = [each for each in list_datasets(store) if _is_due(each, now_ms, older_than_ms)]
    for record in due:
        with suppress(UnknownName):  # somebody else deleted it
            objects += delete_dataset(store, record.id, now_ms)
    waiting = [record.id for record in due if is_to_be_deleted(store, record.id)]
    return CollectedDatasets([*gone, *(each.id for each in due if each.id not in waiting)], waiting, runs, objects)


def _goes_on(newest: RunEntry) -> bool:
    if newest.kind in ("finish", "abandon"):
        return False
    return newest.kind == "stop" or any(node.is_endless for node in newest.nodes)


def _is_due(record: DatasetRecord, now_ms: int, older_than_ms: int | None) -> bool:
    is_over = bool(record.expires_ms) and record.expires_ms <= now_ms
    return is_over or (older_than_ms is not None and now_ms - record.created_ms >= older_than_ms)


def _collect_run(store: ObjectStore, graph: str, newest: RunEntry, now_ms: int) -> int:
    """How many objects of a run were deleted."""
    if newest.kind == "finish":
        if not store.exists(f"{graph_folder(graph)}/program"):
            return 0
        for record in newest.datasets:  # it was killed when all was done: what it made is to be seen
            publish(store, record)
    log = RunLog(store, graph)
    found = log.newest()
    if found is None or found.nonce != newest.nonce:
        return 0
    left = _left_by(store, graph, newest)
    if not left:
        return 0
    if newest.kind != "finish":
        try:
            log.append(replace(newest, kind="abandon", nonce=nonce(), time_ms=now_ms, checkpoint=""))
        except Fenced:
            return 0  # somebody went on with it
    for key in left:
        store.delete(key)
    return len(left)


def _left_by(store: ObjectStore, graph: str, newest: RunEntry) -> list[str]:
    """What a run left and nothing needs: the program is last, so that it is not forgotten that there is something."""
    folder = graph_folder(graph)
    program = f"{folder}/program"
    own = [key for key in store.list(folder) if key != program and not key.startswith(f"{folder}/log/")]
    halves = [key for key in store.list(DATASETS) if _is_of(graph, key)]
    records = [RECORDS.decode(store.get(key), key) for key in halves if key.endswith(RECORD)]
    named = {each.key for record in (*records, *newest.datasets) for each in record.objects}
    left = [*(key for key in halves if key not in named and not key.endswith(RECORD)), *own]
    return left + ([program] if store.exists(program) else [])


def _is_of(graph: str, key: str) -> bool:
    """Whether an object is of a Dataset of this graph: their names end with the number of a node."""
    name = key.removeprefix(f"{DATASETS}/").partition("/")[0]
    return name.rpartition("-")[0] == graph and name.rpartition("-")[2].isdecimal()
