"""What a node of a task graph does with its batches: the classes that users derive from.

Each channel has an executor of its own, a copy of the one that the node was made with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    import polars as pl

Output: TypeAlias = "pl.DataFrame | Iterable[pl.DataFrame] | None"
"""What `execute` and `done` give: nothing, a frame, or several (a list or a generator), each sent as a batch."""

_ENDED = "_has_ended_early"
_PLAIN = (int, str, bytes)


class Executor:
    """An operator with state. Derive from it, and keep the state of a channel in attributes.

    Results must not depend on how rows are cut into batches, nor on how batches of several streams interleave; rows of
    one stream come in the order in which each of its channels sent them. Frames are never changed in place: several
    channels may hold one frame, and a checkpoint writes a frame that it knows already no second time.
    """

    HAS_EFFECTS: ClassVar[bool] = False
    """Whether it does something outside the graph, so that nobody may run it on samples beside the graph."""

    NEEDS_ONE_CHANNEL: ClassVar[bool] = False
    """Whether it is right only where one channel gets all rows."""

    NEEDS_WHOLE_KEYS: ClassVar[bool] = False
    """Whether its results are right only if all rows of a key come to one channel: no `SplitPartition` goes with it."""

    idle_after: timedelta | None = None
    """After how long without new rows in the inputs that feed it `idle` is called, and, where windows are kept, without
    rows of a stream in one of several channels `follow`; None is never.
    """

    dropped_rows: int = 0
    """Rows that this channel left out so far, as late ones: metrics, `tidemill graphs` and the page show how many."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def initialize(self, datasets: Sequence[Any], channel: int) -> None:
        """Called once in each channel before the first batch; `datasets` are those of the node, complete."""

    def execute(self, batches: Any, stream_id: int, channel: int) -> Output:
        """Take batches of one stream, named as in the node's `sources`; what to send on.

        `batches` is a list of frames, one or more, each with rows.
        """
        raise NotImplementedError

    def ended(self, stream_id: int, channel: int) -> Output:
        """Called in each channel when all channels of a stream have ended, before `done`; what to send on."""
        return None

    def idle(self, channel: int) -> Output:
        """Called in each channel when the inputs found nothing new for `idle_after`, once until rows come again; what
        to send on. Where it is kept as a WindowedDataset: all windows that are open; of older ones none is taken later.
        """
        return None

    def time_reached(self) -> int | None:
        """The time before which rows are late in this channel, in nanoseconds or whole numbers; None where none is."""
        return None

    def follow(self, time: int, channel: int) -> Output:
        """Called in a channel that got no rows of a stream for `idle_after` while the others of the node reached this
        time: rows before it are late from now on, as in these; what to send on.
        """
        return None

    def skip_windows(self, column: str, last: Any, channel: int) -> None:
        """Called before the rows of a step where windows are kept, and other channels ended those up to `last`, a value
        of the `column` that tells them apart, by `idle` or so that this one follows: rows for these are late. What is
        given for them is left out, and counted in `dropped_rows`.
        """

    def done(self, channel: int) -> Output:
        """Called once in each channel, after all sources ended or after `early_termination`; what to send at last."""
        return None

    def comparable(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What `run(check_confluence=True)` compares of all that a channel gave: all rows, if not overridden.

        For executors that may give any of several results, as a limit.
        """
        return rows

    def early_termination(self) -> None:
        """Call it in `execute` when no more batches are needed: `done` comes next, and the sources may stop."""
        vars(self)[_ENDED] = True

    def serialize(self) -> Any:
        """The state for a checkpoint: anything that pickles, frames anywhere in it; if not overridden all attributes.

        A frame that is part of the state again at the next checkpoint is not written again. Functions that `__init__`
        set are code: of all attributes they alone are not saved.
        """
        return dict(vars(self))

    def deserialize(self, state: Any) -> None:
        """Go on from what `serialize` gave, in a new copy of the node's executor on which `initialize` was called."""
        vars(self).update(state)


class StatelessExecutor(Executor):
    """An operator without state: `execute` gets one batch at a time. Setting an attribute in `execute` is refused."""

    def execute(self, batch: Any, stream_id: int, channel: int) -> Output:
        """Take one batch of one stream; what to send on. (The document of the interface has it so.)"""
        raise NotImplementedError

    def serialize(self) -> Any:
        """Nothing."""
        return None

    def deserialize(self, state: Any) -> None:
        """Nothing."""


class Relay(StatelessExecutor):
    """Sends on what it gets."""

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return batch


def has_ended_early(executor: Any) -> bool:
    """Whether this executor called its `early_termination`."""
    return vars(executor).get(_ENDED) is True


def attributes_of(executor: Any) -> dict[str, Any]:
    """The attributes of an executor without the mark that it ended early."""
    return {name: value for name, value in vars(executor).items() if name != _ENDED}


def marks_of(executor: Any) -> dict[str, Any]:
    """What tells, before and after a call, that an attribute was set, or a list, dict or set in one grew or shrank."""
    # The values are held, so that no other object gets their identity meanwhile.
    return {name: (id(value), _size(value), value) for name, value in attributes_of(executor).items()}


def class_marks_of(executor: Any) -> dict[str, Any]:
    """The same of what users keep on the executor's class, which all channels share.

    Each copy of an executor may set what its class had at first anew, so equal values are the same here.
    """
    classes = [kind for kind in type(executor).__mro__ if not kind.__module__.startswith(("tidemill.", "builtins"))]
    kept = [(f"{kind.__name__}.{name}", value) for kind in classes for name, value in list(vars(kind).items())]
    return {name: value if isinstance(value, _PLAIN) else _size(value) for name, value in kept}


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names whose marks differ."""
    return sorted(name for name, mark in after.items() if name not in before or before[name] != mark)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (list, dict, set, bytearray)) else 0
