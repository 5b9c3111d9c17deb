"""Which channels step in a wave, and with what. Pure: work out, results in.

In a wave each channel takes what the wave before sent to it, and inputs read a stride, so that nodes overlap. A wave is
taken as a whole or not at all, so no message can come twice, and those of one sender come in its order. Inputs read
only while less than `memory_bytes` wait in inboxes: what is under way stays bounded, and is always taken on, so that no
shape of a graph can stop it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.graphs.dataset import DatasetObject
from tidemill.graphs.explanation import key_text, node_text, title
from tidemill.graphs.messages import ChannelId, Payload, SentBatch, StepResult, StepWork
from tidemill.graphs.nodes import Cursor, GraphDefinition, InputNode, TaskNode

MEMORY_BYTES = 512 * 1024 * 1024


@dataclass
class ChannelProgress:
    """How far a channel is. `steps` is the number of its state, which only rises.

    `windows` are those that it has ended and that are not published yet, `newest_window` is the last it ever ended.
    `reached` is the time before which rows are late in it; windows up to `followed` it ended since others had.
    `heard` are the streams of which it knows that they ended.
    """

    cursor: Cursor = None
    inbox: dict[int, deque[SentBatch]] = field(default_factory=dict)
    steps: int = 0
    has_ended: bool = False
    objects: list[DatasetObject] = field(default_factory=list)
    staged: list[Payload] = field(default_factory=list)
    staged_rows: int = 0
    published: int = 0
    windows: list[tuple[Any, DatasetObject]] = field(default_factory=list)
    newest_window: Any = None
    reached: int | None = None
    followed: Any = None
    heard: tuple[int, ...] = ()
    behind: int = 0
    dropped_rows: int = 0
    state: Any = None

    @property
    def waiting_bytes(self) -> int:
        """The bytes in its inbox."""
        return sum(message.bytes for queue in self.inbox.values() for message in queue)


@dataclass(frozen=True)
class StreamRecord:
    """A stream that a node takes: the node that sends it, and how its rows are dealt, for people."""

    source: int
    dealt: str


@dataclass
class NodeRecord:
    """What a node is, for people, and what it has done so far; `seconds` are those of all its channels together.

    `ended` counts the channels that are done, `waiting_bytes` is what was sent to it and not taken yet.
    `lag`: the records that an input of a depot has still to read, as of its last look. `dropped_rows`: those that its
    executor left out, as late ones. `repeats`: the steps that were
    done again, since a worker was lost in them; `repeated_seconds` are a part of `seconds`. `is_endless`: an input that
    ends only when nobody takes its rows any more.
    """

    node: int
    call: str
    channels: int
    rows_in: int = 0
    rows_out: int = 0
    bytes_read: int = 0
    steps: int = 0
    seconds: float = 0.0
    lag: int = 0
    dropped_rows: int = 0
    repeats: int = 0
    repeated_seconds: float = 0.0
    title: str = ""
    text: str = ""
    streams: list[StreamRecord] = field(default_factory=list)
    ended: int = 0
    waiting_bytes: int = 0
    is_endless: bool = False


def node_records(graph: GraphDefinition) -> list[NodeRecord]:
    """The nodes of a graph before it has done anything."""
    return [_record(node) for node in graph.nodes]


def _record(node: InputNode | TaskNode) -> NodeRecord:
    streams = []
    if isinstance(node, TaskNode):
        streams = [StreamRecord(of, key_text(node.partitions.get(name))) for name, of in sorted(node.sources.items())]
    return NodeRecord(
        node.id, node.call, node.channels, title=title(node), text=node_text(node), streams=streams,
        is_endless=isinstance(node, InputNode) and node.is_endless,
    )  # fmt: skip


class Waves:
    """The state of a run between two waves: all that a checkpoint holds beside the channels' own states."""

    def __init__(self, graph: GraphDefinition, cursors: dict[int, list[Cursor]], memory_bytes: int = MEMORY_BYTES):
        """`cursors`: where the channels of each input begin."""
        self.untold: set[int] = set()
        """Nodes that got rows since they were told that their inputs are idle."""
        self._closed: dict[int, Any] = {}
        self.go_on(graph)
        self.memory_bytes = memory_bytes
        self.wave = 0
        self.is_idle = False
        self.channels: dict[ChannelId, ChannelProgress] = {}
        self._counts = node_records(graph)
        self._next_input = 0
        self._stride_bytes = {node.id: node.reader.batch_bytes for node in graph.inputs}
        for node in graph.nodes:
            for number in range(node.channels):
                progress = self.channels[node.id, number] = ChannelProgress()
                if isinstance(node, InputNode):
                    progress.cursor = cursors[node.id][number]
                    progress.has_ended = progress.cursor is None

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("_graph", "_takers", "_feeding", "_tellable", "_following")
        }

    def go_on(self, graph: GraphDefinition) -> None:
        """Take what the graph says, which is no part of a checkpoint."""
        self._graph = graph
        self._takers = [tuple({edge.target for edge in graph.edges(node.id)}) for node in graph.nodes]
        self._feeding = graph.feeding()
        self._tellable = {node.id for node in graph.tasks if node.idle_after is not None}
        self._following: dict[ChannelId, tuple[int, Any]] = {}
        vars(self).setdefault("untold", set())  # checkpoints of older versions have neither
        vars(self).setdefault("_closed", {})

    # --- asking ------------------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        return all(progress.has_ended for progress in self.channels.values())

    @property
    def backlog(self) -> int:
        """The bytes that wait in inboxes."""
        return sum(progress.waiting_bytes for progress in self.channels.values())

    @property
    def staged_rows(self) -> int:
        """The rows that wait to be appended to depots."""
        return sum(progress.staged_rows for progress in self.channels.values())

    def takes(self, node: int) -> bool:
        """Whether a node takes batches of others."""
        return isinstance(self._graph.nodes[node], TaskNode)

    def node_records(self) -> list[NodeRecord]:
        """What each node has done so far."""
        return [
            replace(
                each,
                ended=sum(self.channels[each.node, number].has_ended for number in range(each.channels)),
                waiting_bytes=self.node_backlog(each.node),
                lag=sum(self.channels[each.node, number].behind for number in range(each.channels)),
                dropped_rows=sum(self.channels[each.node, number].dropped_rows for number in range(each.channels)),
            )
            for each in self._counts
        ]

    def node_backlog(self, node: int) -> int:
        """The bytes that wait for one node."""
        return sum(self.channels[node, number].waiting_bytes for number in range(self._graph.nodes[node].channels))

    def has_ended(self, node: int) -> bool:
        """Whether all channels of a node have."""
        return all(self.channels[node, number].has_ended for number in range(self._graph.nodes[node].channels))

    # --- a wave ------------------------------------------------------------------------------------------------------

    def plan(self, told: int | None = None, quiet: Mapping[ChannelId, bool] | None = None) -> list[StepWork]:
        """The work of the next wave; empty where nothing is left to do. `told`: a node to be told that inputs idle.
        `quiet`: channels that got no rows of a stream for long, and whether they got none at all: they follow others.
        """
        self._stop_unread()
        self._following = dict(self._follow(quiet or {}))
        works = [work for node in self._graph.tasks for work in self._taking(node, node.id == told)]
        # What is taken now makes room, unless it becomes as much again.
        works += self._reading(self.memory_bytes - self.backlog)
        for work in works:
            self.channels[work.channel].inbox, self.channels[work.channel].heard = {}, work.ended
        return works

    def _follow(self, quiet: Mapping[ChannelId, bool]) -> Iterator[tuple[ChannelId, tuple[int, Any]]]:
        """Quiet channels that hold windows back, and what others of their node reached: a time and a window.

        What waits for them was sent after what these others reached that by, so it is taken before that time counts.
        """
        for node, number in quiet:
            own = self.channels[node, number]
            open_ones = [(node, each) for each in range(self._graph.nodes[node].channels) if each != number]
            open_ones = [each for each in open_ones if not self.channels[each].has_ended]
            named = [each for each in open_ones if each not in quiet]
            if quiet[node, number] and not named:  # a stream that is quiet everywhere is the same for all
                named = [each for each in open_ones if not quiet[each]]
            others = [self.channels[each] for each in named]
            times = [each.reached for each in others if each.reached is not None]
            windows = [each.newest_window for each in others if each.newest_window is not None]
            if own.has_ended or not others or not len(times) == len(windows) == len(others):
                continue
            if _later(self._ended(node, own), min(windows)) != self._ended(node, own):
                yield (node, number), (min(times), min(windows))

    def _ended(self, node: int, channel: ChannelProgress) -> Any:
        """The last window of which a channel of a node gives no rows any more."""
        return _later(channel.newest_window, self._closed_in(node, channel))

    def _closed_in(self, node: int, channel: ChannelProgress) -> Any:
        return _later(self._closed.get(node), channel.followed)

    def _stop_unread(self) -> None:
        """Channels end whose takers all have; from the last node to the first, so that it goes on to inputs."""
        for node in reversed(self._graph.nodes):
            takers = self._takers[node.id]
            if takers and all(self.has_ended(taker) for taker in takers):
                for number in range(node.channels):
                    progress = self.channels[node.id, number]
                    progress.has_ended, progress.cursor, progress.inbox, progress.behind = True, None, {}, 0

    def _taking(self, node: TaskNode, is_idle: bool) -> list[StepWork]:
        ended = tuple(stream for stream, source in sorted(node.sources.items()) if self.has_ended(source))
        is_last = len(ended) == len(node.sources)
        works = []
        for number in range(node.channels):
            progress = self.channels[node.id, number]
            follow = self._following.get((node.id, number), (None, None))[0]
            is_news = node.hears_ends and ended != progress.heard
            if progress.has_ended or not (progress.inbox or is_last or is_idle or is_news or follow is not None):
                continue
            # Streams in the order of their names, and in each the channels that send in theirs.
            inbox = tuple((stream, _in_order(progress.inbox[stream])) for stream in sorted(progress.inbox))
            closed, state = self._closed_in(node.id, progress), progress.state
            works.append(StepWork((node.id, number), None, inbox, ended, is_last, state, is_idle, closed, follow))
        return works

    def _reading(self, room: int) -> list[StepWork]:
        """Inputs read in turn while there is room; one reads in any case when nothing is under way."""
        ready = [
            (node.id, number)
            for node in self._graph.inputs
            if self._may_begin(node)
            for number in range(node.channels)
            if not self.channels[node.id, number].has_ended
        ]
        if not ready:
            return []
        first = self._next_input % len(ready)
        works: list[StepWork] = []
        for channel in ready[first:] + ready[:first]:
            needed = self._stride_bytes[channel[0]]
            if room < needed and (works or room < self.memory_bytes):
                break
            room -= needed
            works.append(StepWork(channel, self.channels[channel].cursor))
        self._next_input = first + len(works)
        return works

    def _may_begin(self, node: InputNode) -> bool:
        """Whether all that the inputs it depends on sent has arrived where their rows alone go."""
        if not node.dependents:
            return True
        if not all(self.has_ended(other) for other in node.dependents):
            return False
        ended = frozenset(each.id for each in self._graph.inputs if self.has_ended(each.id))
        for task in self._graph.tasks:
            feeding = self._feeding[task.id]
            if feeding.isdisjoint(node.dependents):
                continue
            if feeding <= ended and not self.has_ended(task.id):
                return False
            if any(self._waits_from(task, source, ended) for source in task.sources.values()):
                return False
        return True

    def _waits_from(self, task: TaskNode, source: int, ended: frozenset[int]) -> bool:
        """Whether batches from a source that is fed by ended inputs alone still wait in a task's inboxes."""
        if not self._feeding[source] <= ended:
            return False
        streams = [stream for stream, each in task.sources.items() if each == source]
        return any(
            self.channels[task.id, number].inbox.get(stream) for number in range(task.channels) for stream in streams
        )

    def accept(self, results: Sequence[StepResult]) -> None:
        """Take over what the channels of a wave did; all of them, in the order of their work.

        Where inputs looked for more and found nothing the graph is idle, and as it was: that counts as no wave.
        """
        for result in results:
            self.channels[result.channel].behind = result.behind
            self.channels[result.channel].dropped_rows = result.dropped_rows
        self.is_idle = all(self._found_nothing(result) for result in results)
        if self.is_idle:
            return
        self.wave += 1
        for result in results:
            progress = self.channels[result.channel]
            progress.cursor, progress.has_ended, progress.state = result.cursor, result.has_ended, result.state
            progress.steps += 1
            progress.reached = result.reached
            progress.objects += result.objects
            progress.windows += result.windows
            if result.windows:
                progress.newest_window = result.windows[-1][0]
            progress.staged += result.staged
            progress.staged_rows += result.rows_out if result.staged else 0
            self._count(result)
        for channel, (_, window) in self._following.items():
            self.channels[channel].followed = window
        self._note_told({result.channel[0] for result in results if result.was_told})
        for result in results:
            for message in result.messages:
                if not self.channels[message.target].has_ended:
                    if message.target[0] in self._tellable:
                        self.untold.add(message.target[0])
                    self.channels[message.target].inbox.setdefault(message.stream, deque()).append(message)

    def _note_told(self, nodes: Collection[int]) -> None:
        """All channels of these nodes ended all windows that they had: of those up to the newest one none is open."""
        self.untold.difference_update(nodes)
        for node in nodes:
            channels = [self.channels[node, number] for number in range(self._graph.nodes[node].channels)]
            newest = [each.newest_window for each in channels if each.newest_window is not None]
            if newest:
                self._closed[node] = max(newest)

    def _found_nothing(self, result: StepResult) -> bool:
        is_input = not self.takes(result.channel[0])
        return is_input and not result.rows_in and result.cursor == self.channels[result.channel].cursor

    # --- windows -----------------------------------------------------------------------------------------------------

    def ended_windows(self, node: int) -> dict[Any, list[DatasetObject]]:
        """The windows that no channel of a node adds to any more, in rising order, and their rows: each channel has
        ended this one or a later one, or follows those that have, or all were told that inputs are idle.
        """
        channels = [self.channels[node, number] for number in range(self._graph.nodes[node].channels)]
        reached = [self._ended(node, progress) for progress in channels if not progress.has_ended]
        if None in reached:
            return {}
        found: dict[Any, list[DatasetObject]] = {}
        for value, each in (window for progress in channels for window in progress.windows):
            if not reached or value <= min(reached):
                found.setdefault(value, []).append(each)
        return dict(sorted(found.items()))

    def forget_windows(self, node: int, published: Collection[Any]) -> int:
        """Drop what was published; how many windows of the node wait still."""
        waiting: set[Any] = set()
        for number in range(self._graph.nodes[node].channels):
            progress = self.channels[node, number]
            progress.windows = [window for window in progress.windows if window[0] not in published]
            waiting.update(value for value, _ in progress.windows)
        return len(waiting)

    def _count(self, result: StepResult) -> None:
        node = result.channel[0]
        counts = self._counts[node]
        counts.rows_in += result.rows_in
        counts.rows_out += result.rows_out
        counts.bytes_read += result.bytes_read
        counts.steps += 1
        counts.seconds += result.seconds
        if result.is_repeated:
            counts.repeats += 1
            counts.repeated_seconds += result.seconds
        if isinstance(self._graph.nodes[node], InputNode):
            sent = sum(message.bytes for message in result.messages)
            self._stride_bytes[node] = max(sent, self._stride_bytes[node] // 2)


def _later(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else max(one, other)


def _in_order(messages: Sequence[SentBatch]) -> tuple[Payload, ...]:
    return tuple(message.payload for message in sorted(messages, key=lambda message: message.source_channel))
