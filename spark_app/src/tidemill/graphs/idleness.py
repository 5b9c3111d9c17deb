"""Since when inputs have found nothing new, and which node is to be told so.

A node is told when all inputs that feed it were empty for as long as its executor's `idle_after` says, and nothing is
on its way. One node at a time, from the inputs on, so that what it gives then has arrived before the next is told.
No checkpoint holds this: nobody looked while a graph stood still, so a graph that goes on waits anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from tidemill.graphs.messages import ChannelId, StepResult
from tidemill.graphs.nodes import GraphDefinition, InputNode, TaskNode
from tidemill.graphs.waves import Waves


class Idleness:
    """What each look of an input found. `clock` gives seconds that never go back."""

    def __init__(self, graph: GraphDefinition, clock: Callable[[], float] = time.monotonic) -> None:
        self._graph = graph
        self._clock = clock
        self._feeding = graph.feeding()
        self._looks: dict[ChannelId, tuple[float, float]] = {}
        self._watched = {
            (node.id, number): node.idle_after.total_seconds()
            for node in graph.tasks
            for number in range(node.channels)
            if node.idle_after is not None and node.keeps_windows and node.channels > 1
        }
        self._arrived: dict[ChannelId, dict[int, float]] = {}
        self._now = 0.0

    def look(self, results: Iterable[StepResult]) -> None:
        """Take over what the inputs of a wave found: of empty looks the first and the last count."""
        self._now = self._clock()
        for node, number in self._watched:
            self._arrived.setdefault((node, number), dict.fromkeys(self._streams(node), self._now))
        for result in results:
            for message in result.messages:
                if message.target in self._watched:
                    self._arrived[message.target][message.stream] = self._now
            if not isinstance(self._graph.nodes[result.channel[0]], InputNode):
                continue
            if result.rows_in:
                self._looks.pop(result.channel, None)
            else:
                first, _ = self._looks.get(result.channel, (self._now, self._now))
                self._looks[result.channel] = (first, self._now)

    def _streams(self, node: int) -> Mapping[int, int]:
        found = self._graph.nodes[node]
        return found.sources if isinstance(found, TaskNode) else {}

    def quiet(self, waves: Waves) -> dict[ChannelId, bool]:
        """The channels of nodes that keep windows that got no rows of a stream for as long as `idle_after` says, and
        whether they got none at all. Streams that have ended hold nothing back, so they do not count.
        """
        ages = {channel: self._ages(channel, waves) for channel in self._watched}
        return {
            channel: min(ages[channel]) >= after
            for channel, after in self._watched.items()
            if max(ages[channel], default=0.0) >= after
        }

    def _ages(self, channel: ChannelId, waves: Waves) -> list[float]:
        """How long ago rows of each open stream came to a channel."""
        sources = self._streams(channel[0])
        arrived = self._arrived.get(channel, {}).items()
        return [self._now - at for stream, at in arrived if not waves.has_ended(sources[stream])]

    def due(self, waves: Waves) -> int | None:
        """The first node that is to be told now."""
        return next((node.id for node in self._graph.tasks if self._is_due(waves, node)), None)

    def _is_due(self, waves: Waves, node: TaskNode) -> bool:
        after = node.idle_after
        if after is None or node.id not in waves.untold or waves.has_ended(node.id):
            return False
        feeding = self._feeding[node.id]
        on_the_way = any(waves.node_backlog(task.id) for task in self._graph.tasks if self._feeding[task.id] & feeding)
        return not on_the_way and all(self._is_idle(waves, each, after) for each in feeding)

    def _is_idle(self, waves: Waves, node: int, after: timedelta) -> bool:
        open_ones = [
            (node, number)
            for number in range(self._graph.nodes[node].channels)
            if not waves.channels[node, number].has_ended
        ]
        looks = [self._looks.get(channel) for channel in open_ones]
        return all(look is not None and look[1] - look[0] >= after.total_seconds() for look in looks)
