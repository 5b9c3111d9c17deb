"""Appends what a graph made to depots, exactly once.

A channel's batches wait in the state of the run until a checkpoint holds them; then they are appended, numbered from
the first that the channel ever made. Whoever resumes the graph from that checkpoint appends the same rows under the
same numbers, which the depot knows already (`depot.append_identity`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import groupby

import polars as pl

from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.depot.appender import chunks
from tidemill.graphs.inputs.depot_input import VALUE
from tidemill.graphs.nodes import DepotSink
from tidemill.store.objects import ObjectStore
from tidemill.values.columns import Column
from tidemill.values.errors import SequenceUnknown, UserCodeError


class DepotOutput:
    """The depots that one graph appends to."""

    def __init__(self, store: ObjectStore, graph: str) -> None:
        self._store = store
        self._graph = graph
        self._modules: dict[str, ModuleClient] = {}

    def columns(self, sink: DepotSink, frames: Iterable[pl.DataFrame]) -> list[Column]:
        """What waits of a channel as it is appended, batches of the same columns together: rows as dicts, or the values
        of the one column VALUE. Nothing is appended.

        Raises:
            UnknownName: there is no such module or depot. RecordRefused: the depot does not take a row.
            UserCodeError: the depot's partitioner raised.
        """
        handle, found = self.handle(sink), list[Column]()
        for _, alike in groupby(frames, key=lambda frame: frame.schema):
            frame = pl.concat(alike)
            found += chunks(frame[VALUE].to_list() if frame.columns == [VALUE] else _zoned(frame))
        for column in found:
            handle.check(column)
        return found

    def append_all(self, sink: DepotSink, node: int, channel: int, sequence: int, waiting: Iterable[Column]) -> int:
        """Append all that waits of a channel. The number after the last that was used.

        Of what the depot got before, retention may have deleted all but the last append. Then the others were there
        too, since these are in the order of their numbers; the depot compares the last one with its digest.

        Raises:
            UnknownName, RecordRefused, UserCodeError: as `columns`, where the module was updated meanwhile.
            KeyReused, SequenceUnknown: another run of this ID appended to the depot.
            StoreUnavailable, OutcomeUnknown: resume the graph.
        """
        handle, producer = self.handle(sink), f"{self._graph}/{node}/{channel}"
        forgotten: list[SequenceUnknown] = []
        for column in waiting:
            sequence = self._append(handle, column, producer, sequence, forgotten)
        if forgotten and sequence <= forgotten[0].context["last"]:
            raise forgotten[0]
        return sequence

    @staticmethod
    def _append(
        handle: DepotHandle, column: Column, producer: str, sequence: int, forgotten: list[SequenceUnknown]
    ) -> int:
        try:
            handle.append_column_async(column, producer=producer, sequence=sequence).result()
        except SequenceUnknown as error:
            forgotten.append(error)
        return sequence + 1

    def handle(self, sink: DepotSink) -> DepotHandle:
        """The client of a depot. Raises UnknownName."""
        module = self._modules.setdefault(sink.module, ModuleClient(self._store, sink.module))
        return DepotHandle(module, sink.depot)

    def close(self) -> None:
        """Let go of the clients; what was appended is durable."""
        for module in self._modules.values():
            module.close()


def check_takes_rows(store: ObjectStore, sink: DepotSink) -> None:
    """Look before anything runs whether a depot takes rows at all.

    Raises:
        UnknownName: there is no such module or depot. RecordRefused: it takes no appends of clients, or only of those
            that have its module's code.
    """
    with closing(DepotOutput(store, "")) as output, suppress(UserCodeError):  # a partitioner that wants records
        output.handle(sink).check([])


def _zoned(frame: pl.DataFrame) -> pl.DataFrame:
    """Times without a zone are taken as UTC, which is what records hold."""
    naive = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime) and not kind.time_zone]
    return frame.with_columns(pl.col(naive).dt.replace_time_zone("UTC"))
