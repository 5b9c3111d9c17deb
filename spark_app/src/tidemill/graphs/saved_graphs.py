"""What task graphs keep in a store, for those who copy or check a whole store: Datasets, logs of runs, checkpoints."""

from __future__ import annotations

import io
from collections.abc import Iterator

import polars as pl

from tidemill.graphs.checkpoints import FRAME
from tidemill.graphs.dataset import FOLDER as DATASETS
from tidemill.graphs.dataset import (
    RECORDS,
    DatasetObject,
    DatasetRecord,
    dataset_names,
    is_to_be_deleted,
    list_datasets,
    record_key,
)
from tidemill.graphs.named_objects import Named, named_objects
from tidemill.graphs.run_log import RunEntry, RunLog, graph_folder, graph_names, log_prefix
from tidemill.graphs.sealed import not_written, unsealed
from tidemill.journal.snapshot import checksum_of
from tidemill.leader.backup import SavedPart
from tidemill.leader.check import Finding
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import CorruptState, Deleted


def saved_parts(store: ObjectStore) -> Iterator[SavedPart]:
    """What a backup needs, in the order in which it is to be looked at.

    Datasets are found before the logs of runs are read: one that is seen has an entry that says so. Modules come after:
    a depot then holds all that a checkpoint says was appended to it. Windows are looked for once more behind the logs,
    up to what a saved checkpoint knows: the run makes all others again.

    Raises:
        NotFound: something was deleted meanwhile; look again.
    """
    seen = {record.id: record for record in list_datasets(store)}
    waves: dict[str, int] = {}
    for name in graph_names(store):
        head = _head(store, name)
        if head is None:
            continue
        number, newest = head
        waves[name] = _checkpoint_wave(newest)
        needed = _needed(store, newest)
        if not needed and not newest.has_ended and newest.program and _head(store, name) != head:
            raise NotFound(f"{newest.program} is gone: the graph {name} went on meanwhile.")
        keys = {key: _checksum(named) for key, named in needed.items()}
        yield SavedPart(keys, log_prefix(name), number)
        if not RunLog(store, name).has(number, newest):
            raise NotFound(f"The run {name} was forgotten while it was saved, and its ID given again.")
        for record in newest.datasets:
            if store.exists(record_key(record.id)):
                seen[record.id] = record
            elif keys:  # it has ended, and its Datasets are to be seen when somebody resumes it
                yield SavedPart({each.key: each.checksum for each in record.objects})
    windows = [record for record in list_datasets(store) if "/" in record.id]
    seen |= {record.id: record for record in windows if record.wave <= waves.get(record.graph, -1)}
    for record in seen.values():
        keys = {each.key: each.checksum for each in record.objects}
        yield SavedPart(keys | {record_key(record.id): ""})
        if _is_another(store, record):
            raise NotFound(f"The Dataset {record.id} was deleted while it was saved, and its ID given again.")


def _is_another(store: ObjectStore, record: DatasetRecord) -> bool:
    """Whether another Dataset has the ID by now; one that was deleted only has none."""
    key = record_key(record.id)
    try:
        return RECORDS.decode(store.get(key), key) != record
    except NotFound:
        return False


def _head(store: ObjectStore, graph: str) -> tuple[int, RunEntry] | None:
    """The last entry of a run and its number; None where it never began, or its record is being deleted."""
    try:
        return RunLog(store, graph).head()
    except Deleted:
        return None


def _needed(store: ObjectStore, newest: RunEntry) -> dict[str, list[Named]]:
    """The program of a run that can be resumed, and of what its checkpoint consists, with what that says of each."""
    if not newest.program or not store.exists(newest.program):
        return {}
    if not newest.checkpoint or newest.kind == "finish":
        return {newest.program: []}
    named = named_objects(unsealed(newest.checkpoint, store.get(newest.checkpoint)))
    gone = {_folder(name) for name in named if _is_of_window(name) and not store.exists(name)}
    kept = {name: each for name, each in named.items() if _folder(name) not in gone}
    return {newest.program: [], newest.checkpoint: []} | kept


def _checksum(named: list[Named]) -> str:
    """That of a whole object, "" where it is not known."""
    return next((each.checksum for each in named if isinstance(each, DatasetObject)), "")


def _checkpoint_wave(newest: RunEntry) -> int:
    """Where a run stood with the checkpoint that an entry names; -1 where it names none."""
    name = newest.checkpoint.rpartition("/")[2]
    return int(name.partition("-")[0]) if name else -1


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _is_of_window(key: str) -> bool:
    """Whether an object is of a window: it may be published and deleted while the newest checkpoint names it still."""
    return key.startswith(f"{DATASETS}/") and key.removeprefix(DATASETS).count("/") > 2


def graph_logs(store: ObjectStore) -> list[str]:
    """The prefixes of the logs of all runs."""
    return [log_prefix(name) for name in graph_names(store)]


# --- checking --------------------------------------------------------------------------------------------------------


def check_graphs(store: ObjectStore) -> tuple[int, list[tuple[str, Finding]]]:
    """How many Datasets there are, and what is wrong with them and with the checkpoints of runs, each with its name."""
    found: list[tuple[str, Finding]] = []
    datasets = dataset_names(store)
    for name in datasets:
        found += [(name, Finding("S3", "dataset", text)) for text in _dataset_faults(store, name)]
    for name in graph_names(store):
        found += [(name, Finding("S3", "graph", text)) for text in _run_faults(store, name)]
    return len(datasets), found


def _dataset_faults(store: ObjectStore, name: str) -> list[str]:
    """Of a Dataset that is deleted meanwhile there is nothing to say."""
    key = record_key(name)
    try:
        record = RECORDS.decode(store.get(key), key)
        texts = [text for each in record.objects for text in _object_faults(store, name, each)]
    except NotFound:
        return []
    except CorruptState as error:
        return [str(error)]
    if record.id != name:
        texts.append(f"its record names {record.id}")
    is_gone = is_to_be_deleted(store, name) or not store.exists(key)
    return [] if is_gone else texts


def _object_faults(store: ObjectStore, name: str, each: DatasetObject) -> Iterator[str]:
    if not each.key.startswith(f"{DATASETS}/{name.partition('/')[0]}/"):
        yield f"names {each.key}, which is not below its own folder"
    try:
        content = store.get(each.key)
    except NotFound:
        yield f"names {each.key}, which does not exist"
        return
    yield from _content_faults(content, each)


def _content_faults(content: bytes, each: DatasetObject) -> Iterator[str]:
    if (len(content), checksum_of(content)) != (each.bytes, each.checksum):
        yield f"names {each.key}, which is not what was written"
        return
    rows = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
    if rows != each.rows:
        yield f"names {each.key} with {each.rows} rows, and it has {rows}"


def _run_faults(store: ObjectStore, name: str) -> list[str]:
    """What a run needs to be resumed is there; a run that goes on meanwhile needs other things."""
    log = RunLog(store, name)
    checkpoint = next(iter(store.list(f"{graph_folder(name)}/checkpoints")), None)
    try:
        newest = log.newest()
        if newest is None:
            is_lost = checkpoint is not None and store.exists(checkpoint)
            return [f"has {checkpoint}, but no log: it was lost"] if is_lost else []
        texts = [*_entry_faults(log), *_needs_faults(store, newest), *_results_faults(store, newest)]
        # With eyes that saw nothing yet: a run whose record was deleted meanwhile has no entry, or others.
        return texts if texts and RunLog(store, name).newest() == newest else []
    except CorruptState as error:
        return [str(error)]
    except Deleted:
        return []


def _entry_faults(log: RunLog) -> list[str]:
    """All entries that are kept can be read."""
    try:
        log.all()
    except CorruptState as error:
        return [str(error)]
    return []


def _needs_faults(store: ObjectStore, newest: RunEntry) -> list[str]:
    """What is wrong with the program of a run that goes on, and with its checkpoint."""
    if newest.program and not newest.has_ended and not store.exists(newest.program):
        return [f"needs {newest.program}, which does not exist"]
    try:
        needed = _needed(store, newest)
        texts = [text for key, named in needed.items() for text in _needed_faults(store, newest, key, named)]
    except NotFound as error:
        texts = [f"needs its checkpoint: {error}"]
    except CorruptState as error:
        texts = [str(error)]
    is_done = newest.has_ended and not store.exists(newest.program)  # by now: it goes last, behind the last entry
    return [] if is_done else texts


def _needed_faults(store: ObjectStore, newest: RunEntry, key: str, named: list[Named]) -> Iterator[str]:
    try:
        content = store.get(key)
        if key in (newest.program, newest.checkpoint) or key.endswith(FRAME):
            unsealed(key, content)
        for each in named:
            if isinstance(each, DatasetObject):
                yield from _content_faults(content, each)
            elif checksum_of(content[each.start : each.start + each.length]) != each.checksum:
                raise not_written(key)
    except NotFound:
        yield f"needs {key}, which does not exist"
    except CorruptState as error:
        yield str(error)


def _results_faults(store: ObjectStore, newest: RunEntry) -> Iterator[str]:
    """The Datasets of a run that has ended are seen or deleted; or they wait to be published, whole."""
    if newest.kind != "finish":
        return
    waits = bool(newest.program) and store.exists(newest.program)
    for record in newest.datasets:
        if store.exists(record_key(record.id)):
            continue  # who checks Datasets looks into it
        if waits:
            yield from _waiting_faults(store, record)
        # A deletion ends when all objects are gone, so where its mark is not there this one is gone, too.
        elif not is_to_be_deleted(store, record.id) and any(store.exists(each.key) for each in record.objects):
            yield f"made the Dataset {record.id}, whose record does not exist, though objects of it do"


def _waiting_faults(store: ObjectStore, record: DatasetRecord) -> list[str]:
    """What is wrong with a Dataset that is to be published when somebody resumes its run."""
    if is_to_be_deleted(store, record.id) or not any(store.exists(each.key) for each in record.objects):
        return []  # it was seen and deleted before its run was killed
    texts = [text for each in record.objects for text in _object_faults(store, record.id, each)]
    is_seen = store.exists(record_key(record.id)) or is_to_be_deleted(store, record.id)
    return texts if not is_seen and any(store.exists(each.key) for each in record.objects) else []
