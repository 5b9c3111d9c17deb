"""The objects of batches that a Spark job appends to a depot (`spark.depot_batches`), and whether they are whole.

<depot>/staged/<producer>/rows/[<batch>-]<nonce>.<checksum>.arrow   rows of a task
<depot>/staged/<producer>/<batch>.json                             the names of the rows that the batch is
<depot>/staged/<producer>/<batch>.done                             it is appended
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.snapshot import checksum_of
from tidemill.leader.check import Finding
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import CorruptState
from tidemill.values.ids import nonce

STAGED: Final = "staged"
LIST, DONE = ".json", ".done"
_ROWS: Final = ".arrow"
_DIGITS: Final = 20
"""Of the number of a batch in the name of an object."""


def batch_key(folder: str, batch: int, end: str) -> str:
    """The key of a batch's list or mark."""
    return f"{folder}/{batch:0{_DIGITS}d}{end}"


def rows_key(folder: str, batch: int | None, content: bytes) -> str:
    """A new key for rows of a batch; where its number is None, of one that nobody runs again."""
    number = "" if batch is None else f"{batch:0{_DIGITS}d}-"
    return f"{folder}/rows/{number}{nonce()}.{checksum_of(content)}{_ROWS}"


def batch_of(key: str) -> int:
    """The batch whose list, mark or rows an object is; 0 where its name does not say it."""
    name = key.rpartition("/")[2]
    number, end = name[:_DIGITS], name[_DIGITS : _DIGITS + 1]
    return int(number) if number.isdecimal() and end in ("-", ".") else 0


def read_list(store: ObjectStore, folder: str, batch: int) -> list[str]:
    """The names of the rows that a batch is. Raises NotFound, CorruptState: it cannot be read."""
    key = batch_key(folder, batch, LIST)
    try:
        found: list[str] = json.loads(store.get(key))
        return [f"{name}" for name in found]
    except (ValueError, TypeError) as error:
        raise CorruptState(f"{key}: this list of a batch of Spark cannot be read: {error}", key=key) from error


def read_rows(store: ObjectStore, key: str) -> pa.Table:
    """Rows that a task wrote. Raises NotFound, CorruptState: they are not what was written."""
    content = store.get(key)
    written = key.removesuffix(_ROWS).rpartition("/")[2].partition(".")[2]
    if written and checksum_of(content) != written:  # objects of older versions have no checksum in their names
        raise CorruptState(f"{key} is not what was written there: run `tidemill check`.", key=key)
    try:
        with pa.ipc.open_stream(content) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise CorruptState(f"{key}: these rows of a batch of Spark cannot be read: {error}", key=key) from error


# --- checking --------------------------------------------------------------------------------------------------------


def check_staged(store: ObjectStore, module: str) -> list[Finding]:
    """What is wrong with the batches that are decided and not appended to the depots of a module yet."""
    try:
        definition = DefinitionLog(store, module).newest()
    except CorruptState:
        return []  # who checks the module says so
    if definition is None or definition.is_destroyed:
        return []
    return [finding for name, depot in definition.depots.items() if depot.has_log
            for finding in _of_depot(store, definition, name)]  # fmt: skip


def _of_depot(store: ObjectStore, definition: StoredDefinition, depot: str) -> Iterator[Finding]:
    keys = list(store.list(f"{definition.depot_prefix(depot)}/{STAGED}"))
    done = {key.removesuffix(DONE) for key in keys if key.endswith(DONE)}
    for key in keys:
        if key.endswith(LIST) and key.removesuffix(LIST) not in done:
            for text in _batch_faults(store, key):
                yield Finding("S6", f"{depot} batch {batch_of(key)} of Spark", text)


def _batch_faults(store: ObjectStore, key: str) -> list[str]:
    """Of a batch that is appended meanwhile, whose rows go then, there is nothing to say."""
    folder, texts = key.rpartition("/")[0], list[str]()
    try:
        names = read_list(store, folder, batch_of(key))
    except NotFound:
        return []
    except CorruptState as error:
        names, texts = [], [str(error)]
    for name in names:
        try:
            read_rows(store, f"{folder}/{name}")
        except NotFound:
            texts.append(f"needs {folder}/{name}, which does not exist")
        except CorruptState as error:
            texts.append(str(error))
    is_open = texts and not store.exists(f"{key.removesuffix(LIST)}{DONE}") and store.exists(key)
    return texts if is_open else []
