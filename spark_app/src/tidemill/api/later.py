"""Parts of the dataflow language that a later version has: recorded here, and refused by name when a module is
checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.api.starters import starter
from tidemill.values.errors import BadInput
from tidemill.values.suggestions import SuggestingInstances


class LaterNodes(SuggestingInstances):
    """The methods of a `Block` that record a feature of a later version."""

    def _later(self, feature: str, blocks: Sequence[Any]) -> Any:
        """Record the feature, with the mistakes inside the blocks that it was given."""
        raise NotImplementedError

    def execute(self) -> Any:
        """Run a block without a module.

        Raises:
            BadInput: always; a later version has it.
        """
        raise BadInput("Block.execute() is not available in this version; run it in a module on InProcessCluster.")

    @starter
    def atomic_block(self, block: Any) -> Any:
        """Later: run a block to its end before anything else on its task."""
        return self._later("atomic_block", (block,))

    @starter
    def yield_if_overtime(self) -> Any:
        """Later: let other work run where this event has taken long."""
        return self._later("yield_if_overtime", ())

    @starter
    def sub_batch(self, batch: Any) -> Any:
        """Later: the rows of another batch block as a source of this one."""
        return self._later("sub_batch", ())

    @starter
    def fresh_batch_source(self) -> Any:
        """Later: begin another branch of a batch block, to join with."""
        return self._later("fresh_batch_source (joins)", ())

    @starter
    def sub_source(self, *args: Any) -> Any:
        """Later: send rows different ways by the class of a value."""
        return self._later("sub_source", args)

    @starter
    def each_async(self, *args: Any) -> Any:
        """Later: call a function that returns a future."""
        return self._later("each_async", ())

    @starter
    def out_stream(self, *args: Any) -> Any:
        """Later: bind what an operation emits to a stream of another name."""
        return self._later("out_stream (named output streams)", ())

    @starter
    def ack_return(self, *args: Any) -> Any:
        """Later: return a value to whoever appended the record."""
        return self._later("ack_return (stream topologies)", ())


class _Described:
    """A description that a later version understands; it takes any calls, so that the rest of the module is checked."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self

    @classmethod
    def create(cls, *args: Any) -> Any:
        """A description made of any arguments; the check of the module refuses what it is given to."""
        return cls(*args)


class SubBatch(_Described):
    """A batch block as a source of rows; a later version has it."""


class SubSource(_Described):
    """A case of `sub_source`; a later version has it."""
