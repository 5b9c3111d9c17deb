"""What goes of itself, once somebody runs `tidemill datasets collect`: Datasets of an age, and what crashed runs left.

A run that ended without its last entry leaves its program, checkpoints and the objects of Datasets that nobody sees.
Before they are deleted an entry says that the run is abandoned: a process that is still at it, however slow, meets it
at its own next entry and stops. What is deleted was listed before, so that nothing of a later run is among it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tidemill.graphs.dataset import FOLDER as DATASETS
from tidemill.graphs.dataset import RECORD, RECORDS, DatasetRecord, is_to_be_deleted, list_datasets
from tidemill.graphs.dataset_readers import delete_dataset, delete_waiting, publish
from tidemill.graphs.nodes import OUTPUT_DEPOT
from tidemill.graphs.run_log import RunEntry, RunLog, forget_run, graph_folder, graph_names, list_graphs, log_prefix
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import Deleted, Fenced, UnknownName
from tidemill.values.ids import nonce


@dataclass(frozen=True)
class CollectedDatasets:
    """What a collection deleted: Datasets, those that wait for graphs that read them, unfinished runs with their
    objects, and the records of runs that had ended.
    """

    datasets: list[str]
    waiting: list[str]
    runs: list[str]
    objects: int
    records: list[str]


def collect_datasets(
    store: ObjectStore,
    now_ms: int,
    older_than_ms: int | None = None,
    unfinished_ms: int | None = None,
    records_ms: int | None = None,
) -> CollectedDatasets:
    """Delete the Datasets whose time is over, or that are older than `older_than_ms`, and those that waited for their
    readers; and the halves of runs that wrote nothing for `unfinished_ms` (None: none), but for runs that somebody
    stopped and those without end: they go on one day, and begun anew would give their rows again; and
    the records of runs that ended `records_ms` ago and of which no Dataset is left, but for those that appended to
    depots: these know them by their IDs. May be repeated at any time.

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
    records = [] if records_ms is None else _collect_records(store, now_ms - records_ms)
    return CollectedDatasets(
        [*gone, *(each.id for each in due if each.id not in waiting)], waiting, runs, objects, records
    )


def _collect_records(store: ObjectStore, last_ms: int) -> list[str]:
    """The runs that ended at this time or before and whose records were deleted."""
    used = {_graph_of(key) for key in store.list(DATASETS)}
    names = [name for name in graph_names(store) if name not in used and _is_old_record(store, name, last_ms)]
    return [name for name in names if forget_run(store, name)]


def _is_old_record(store: ObjectStore, graph: str, last_ms: int) -> bool:
    try:
        newest = RunLog(store, graph).newest()
    except Deleted:  # who did it was killed
        return True
    if newest is None or not newest.has_ended or newest.time_ms > last_ms:
        return False
    return not any(node.call == OUTPUT_DEPOT for node in newest.nodes) and not _own(store, graph)


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
        if not newest.program or not store.exists(newest.program):
            return 0
        for record in newest.datasets:  # it was killed when all was done: what it made is to be seen
            publish(store, record.id, [record], now_ms)
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
    own = [key for key in _own(store, graph) if key != newest.program]
    halves = [key for key in store.list(DATASETS) if _graph_of(key) == graph]
    records = [RECORDS.decode(store.get(key), key) for key in halves if key.endswith(RECORD)]
    named = {each.key for record in (*records, *newest.datasets) for each in record.objects}
    left = [*(key for key in halves if key not in named and not key.endswith(RECORD)), *own]
    return left + ([newest.program] if newest.program and store.exists(newest.program) else [])


def _own(store: ObjectStore, graph: str) -> list[str]:
    """What there is of a run beside its log and Datasets."""
    log = f"{log_prefix(graph)}/"
    return [key for key in store.list(graph_folder(graph)) if not key.startswith(log)]


def _graph_of(key: str) -> str:
    """The graph of whose Dataset an object is: names of Datasets end with the number of a node."""
    graph, _, node = key.removeprefix(f"{DATASETS}/").partition("/")[0].rpartition("-")
    return graph if node.isdecimal() else ""
