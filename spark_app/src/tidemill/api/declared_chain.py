"""`DeclaredChain`: the chain behind a source or a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tidemill.api.arguments import to_var
from tidemill.api.block import Block
from tidemill.api.locations import caller_location
from tidemill.language.dataflow import Location, Node
from tidemill.values.errors import Fault


class DeclaredChain(Block):
    """The chain behind a declaration; unlike a `Block` it records into its module as it grows."""

    _shown = "Block"
    _names_one: ClassVar[tuple[str, str]]
    """What is wrong with another number of names, and what to write."""

    def __init__(self, at: Location, faults: Sequence[Fault]) -> None:
        super().__init__((), faults)
        self._at = at
        self._named: str | None = None

    def _with(self, nodes: tuple[Node, ...], faults: tuple[Fault, ...]) -> DeclaredChain:
        self.nodes, self.faults = nodes, faults
        return self

    def out(self, *names: str) -> Block:
        """Directly after the declaration: its one name. Later in the chain: bind what the node before emits."""
        if self.nodes:
            return super().out(*names)
        at = caller_location()
        found: list[Fault] = []
        if self._named is not None or len(names) != 1:
            found.append(Fault(str(at), *self._names_one))
        self._named = to_var(names[0], at, found) if names else None
        return self._with(self.nodes, (*self.faults, *found))
