"""Appends what a graph made to depots, exactly once.

A channel's batches wait in the state of the run until a checkpoint holds them; then they are appended, numbered from
the first that the channel ever made. Whoever resumes the graph from that checkpoint appends the same rows under the
same numbers, which the depot knows already (`depot.append_identity`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import polars as pl

from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.depot.appender import chunks
from tidemill.graphs.inputs.depot_input import VALUE
from tidemill.graphs.nodes import DepotSink
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import SequenceUnknown


class DepotOutput:
    """The depots that one graph appends to."""

    def __init__(self, store: ObjectStore, graph: str) -> None:
        self._store = store
        self._graph = graph
        self._modules: dict[str, ModuleClient] = {}

    def append_all(
        self, sink: DepotSink, node: int, channel: int, sequence: int, frames: Iterable[pl.DataFrame]
    ) -> int:
        """Append all that waits of a channel, batches of the same columns together: rows as dicts, or the values of the
        one column VALUE. The number after the last that was used.

        Of what the depot got before, retention may have deleted all but the last append. Then the others were there
        too, since these are in the order of their numbers; the depot compares the last one with its digest.

        Raises:
            UnknownName: there is no such module or depot. RecordRefused: a row does not fit the depot's schema.
            KeyReused, SequenceUnknown: another run of this ID appended to the depot.
            StoreUnavailable, OutcomeUnknown: resume the graph.
        """
        forgotten: list[SequenceUnknown] = []
        for _, alike in groupby(frames, key=lambda frame: frame.schema):
            sequence = self._append(sink, node, channel, sequence, pl.concat(alike), forgotten)
        if forgotten and sequence <= forgotten[0].context["last"]:
            raise forgotten[0]
        return sequence

    def _append(
        self,
        sink: DepotSink,
        node: int,
        channel: int,
        sequence: int,
        frame: pl.DataFrame,
        forgotten: list[SequenceUnknown],
    ) -> int:
        module = self._modules.setdefault(sink.module, ModuleClient(self._store, sink.module))
        handle = DepotHandle(module, sink.depot)
        producer = f"{self._graph}/{node}/{channel}"
        records = frame[VALUE].to_list() if frame.columns == [VALUE] else _zoned(frame)
        for column in chunks(records):
            try:
                handle.append_column_async(column, producer=producer, sequence=sequence).result()
            except SequenceUnknown as error:
                forgotten.append(error)
            sequence += 1
        return sequence

    def close(self) -> None:
        """Let go of the clients; what was appended is durable."""
        for module in self._modules.values():
            module.close()


def _zoned(frame: pl.DataFrame) -> pl.DataFrame:
    """Times without a zone are taken as UTC, which is what records hold."""
    naive = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime) and not kind.time_zone]
    return frame.with_columns(pl.col(naive).dt.replace_time_zone("UTC"))
