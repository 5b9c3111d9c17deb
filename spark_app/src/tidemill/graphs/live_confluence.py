"""The confluence check beside a run: each node's executor, on samples of the batches that its channels get.

A sample has few rows of one channel, those with the lowest hashes of their partition key, so that keys of several
streams meet. Samples are looked at after 8, 16, 32, … waves and at the end, so the number of checks grows with the
logarithm of the run. One that did not change since then makes room for another one, with other hashes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import cloudpickle
import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidemill.graphs.confluence import NotConfluent, check_confluence
from tidemill.graphs.messages import Payload
from tidemill.graphs.nodes import GraphDefinition, TaskNode
from tidemill.graphs.partitions import PartitionKey, hash_channels, key_columns
from tidemill.graphs.waves import Waves

SAMPLE_ROWS = 200
"""Rows of a stream in a sample at most."""
TRIALS = 20
"""Random runs of a check."""
FIRST_WAVES = 8
ROWS_OF_KEY = 8
"""Rows of one key that a sample prefers to those of others."""
_HASHES = 1 << 30
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class _Sample:
    """Rows of one channel of a node by stream; `is_new` where they changed since they were looked at. `salt` tells
    the hashes by which they are chosen from those of other samples.
    """

    channel: int
    salt: int
    rows: dict[int, pl.DataFrame] = field(default_factory=dict)
    is_new: bool = False

    def is_full(self, stream: int, key: PartitionKey) -> bool:
        """Whether no row that comes belongs there, whatever it is."""
        return not key_columns(key) and stream in self.rows and self.rows[stream].height >= SAMPLE_ROWS

    def take(self, stream: int, batch: pl.DataFrame, key: PartitionKey) -> None:
        """Let rows in that belong there."""
        before = self.rows.get(stream, batch.clear())
        rows = pl.concat([before, batch], how="diagonal_relaxed")
        chosen = _chosen(rows, key_columns(key), self.salt)
        if (chosen >= before.height).any():
            self.rows[stream], self.is_new = rows[chosen], True


class LiveConfluence:
    """Looks at what waits after each wave; `frame` gives the rows of a batch on its way."""

    def __init__(self, graph: GraphDefinition, frame: Callable[[Payload], pl.DataFrame]) -> None:
        self._graph = graph
        self._frame = frame
        self._nodes = [node for node in graph.tasks if not node.executor.HAS_EFFECTS]
        self._samples: dict[int, _Sample] = {}
        self._next = FIRST_WAVES

    def __call__(self, waves: Waves) -> None:
        """Take samples; check them where it is time.

        Raises:
            NotConfluent: an executor gives different results for the same rows.
        """
        for node in self._nodes:
            self._take(waves, node)
        if waves.is_finished or waves.wave >= self._next:
            self._next = 2 * waves.wave
            for node in self._nodes:
                self._check(node)

    def _take(self, waves: Waves, node: TaskNode) -> None:
        if node.id not in self._samples:
            filled = [number for number in range(node.channels) if waves.channels[node.id, number].inbox]
            if not filled:
                return
            self._samples[node.id] = _Sample(filled[0], waves.wave)
        sample = self._samples[node.id]
        for stream, messages in waves.channels[node.id, sample.channel].inbox.items():
            key = node.partitions.get(stream)
            for message in messages:
                if not sample.is_full(stream, key):
                    sample.take(stream, self._frame(message.payload), key)

    def _check(self, node: TaskNode) -> None:
        sample = self._samples.get(node.id)
        if sample is None or not sample.is_new:
            self._samples.pop(node.id, None)
            return
        sample.is_new = False
        pickled = cloudpickle.dumps(node.executor)
        try:
            check_confluence(
                lambda: cloudpickle.loads(pickled), sample.rows, dependents=self._dependents(node),
                datasets=node.datasets, view=node.executor.comparable, trials=TRIALS,
            )  # fmt: skip
        except NotConfluent as error:
            raise NotConfluent(f"{node.name}: {error}", error.reason) from None

    def _dependents(self, node: TaskNode) -> dict[int, list[int]]:
        """For each stream those that end before its first row comes."""
        feeding = self._graph.feeding()
        before = {each.id: frozenset(each.dependents) for each in self._graph.inputs}
        for each in self._graph.inputs:  # dependents stand before the inputs that wait for them
            before[each.id] = before[each.id].union(*(before[other] for other in each.dependents))
        return {
            stream: [
                other
                for other, first in node.sources.items()
                if all(feeding[first] <= before[number] for number in feeding[source])
            ]
            for stream, source in node.sources.items()
        }


def _chosen(rows: pl.DataFrame, columns: tuple[str, ...], salt: int) -> NDArray[np.int64]:
    """The places of SAMPLE_ROWS rows, in their order: the first ROWS_OF_KEY of the keys with the lowest hashes, then
    more of them; without keys the first rows.
    """
    if rows.height <= SAMPLE_ROWS or not columns:
        return np.arange(min(rows.height, SAMPLE_ROWS))
    keys = hash_channels([rows[column] for column in columns], _HASHES).astype(np.uint64) + np.uint64(salt)
    hashes = (keys * _MIX) >> np.uint64(32)
    nth = pl.DataFrame({"hash": hashes}).select(pl.int_range(pl.len()).over("hash")).to_series().to_numpy()
    return np.sort(np.lexsort((hashes, nth >= ROWS_OF_KEY))[:SAMPLE_ROWS])
