"""Records of a depot as they are read while it has a migration: its log stays as it was appended."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tidemill.language.dataflow import TOMBSTONE, DepotMigration
from tidemill.tables.record_schema import DepotSchema, check_record
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.data import check_data
from tidemill.values.errors import NeedsCode, RecordRefused, UserCodeError, message_of
from tidemill.values.message_pack import pack, unpack
from tidemill.values.texts import shortened

_GONE: Final = object()
_HELD: Final = (list, tuple, dict, set, frozenset)


def migrated_records(
    depot: DepotSchema,
    migration: DepotMigration,
    records: Column,
    partitions: NDArray[np.int32],
    starts: Sequence[int] | Mapping[int, int],
) -> tuple[Column, NDArray[np.int64]]:
    """The records after the migration without those that it takes away, and the rows where they stood before it.

    `partitions` says of which each is; those of one follow each other from its offset in `starts` on.

    Raises:
        NeedsCode: the function is not in this process.
        UserCodeError: it raises, or returns no record of this depot; says of which record.
    """
    made = []
    for row, record in enumerate(columns.to_values(records)):
        try:
            made.append(_migrated(depot, migration, record))
        except UserCodeError as error:
            partition = int(partitions[row])
            offset = starts[partition] + int(np.count_nonzero(partitions[:row] == partition))
            where = f"The record is at offset {offset} of partition {partition} of {depot.name}."
            raise UserCodeError(f"{error} {where}", step=error.step, trace=error.trace, sample=error.sample) from error
    kept = [row for row, record in enumerate(made) if record is not _GONE]
    return columns.from_values([made[row] for row in kept]), np.array(kept, dtype=np.int64)


def _migrated(depot: DepotSchema, migration: DepotMigration, record: Any) -> Any:
    what = f"The migration '{migration.id}' of {depot.name}"
    if migration.function is None:
        text = f"{what} is a function of the module's code, which is not here: read with that code"
        raise NeedsCode(f"{text} (command line: --module MODULE:CLASS; gateway: --entry MODULE:CLASS).")
    try:
        made = migration.function.call(record)
    except Exception as error:
        text = f"{what} at {migration.at} raised {type(error).__name__}: {message_of(error)}."
        raise _failure(migration, text, record) from error
    if isinstance(made, str) and made == TOMBSTONE:
        return _GONE
    try:
        check_data(made)
        check_record(depot, made)
    except RecordRefused as error:
        raise _failure(migration, f"{what} at {migration.at} returned no record: {error}", record) from error
    # As if it had been stored: tuples are lists, and nobody who kept it changes it later.
    return unpack(pack(made)) if isinstance(made, _HELD) else made


def _failure(migration: DepotMigration, text: str, record: Any) -> UserCodeError:
    step, sample = f"migration at {migration.at}", shortened(repr(record))
    return UserCodeError(text, step=step, trace=traceback.format_exc(), sample=sample)
