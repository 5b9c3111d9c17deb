"""Parts of the dataflow language that a later version has: recorded here, and refused by name when a module is
checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.api.starters import starter
from tidemill.values.suggestions import SuggestingInstances


class LaterNodes(SuggestingInstances):
    """The methods of a `Block` that record a feature of a later version."""

    def _later(self, feature: str, blocks: Sequence[Any]) -> Any:
        """Record the feature, with the mistakes inside the blocks that it was given."""
        raise NotImplementedError

    @starter
    def sub_batch(self, batch: Any) -> Any:
        """Later: the rows of another batch block as a source of this one."""
        return self._later("sub_batch", ())

    @starter
    def fresh_batch_source(self) -> Any:
        """Later: begin another branch of a batch block, to join with."""
        return self._later("fresh_batch_source (joins)", ())


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
