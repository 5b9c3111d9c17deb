"""`QueryChain`: what follows `topologies.query(…)`."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.api.arguments import to_var
from tidemill.api.block import Block
from tidemill.api.locations import caller_location
from tidemill.language import dataflow
from tidemill.language.dataflow import Location, Node
from tidemill.values.errors import Fault


class QueryChain(Block):
    """The chain of a query topology; unlike a `Block` it records into its module as it grows."""

    _shown = "Block"

    def __init__(self, name: str, inputs: Sequence[str], at: Location, faults: Sequence[Fault]) -> None:
        super().__init__((), faults)
        self._name, self._inputs, self._at = name, tuple(inputs), at
        self._result: str | None = None

    def _with(self, nodes: tuple[Node, ...], faults: tuple[Fault, ...]) -> QueryChain:
        self.nodes, self.faults = nodes, faults
        return self

    def out(self, *names: str) -> Block:
        """Directly after `query`: name the variable that is its result. Later in the chain: bind what the node before
        emits.
        """
        if self.nodes:
            return super().out(*names)
        at = caller_location()
        found: list[Fault] = []
        if self._result is not None or len(names) != 1:
            found.append(Fault(str(at), "A query has one result.", 'Write .out("*result") once.'))
        self._result = to_var(names[0], at, found) if names else None
        return self._with(self.nodes, (*self.faults, *found))

    def declaration(self) -> tuple[dataflow.QueryDeclaration, list[Fault]]:
        """What was recorded so far, and what is wrong with it. Without a result of its own it is what the last node
        binds.
        """
        result = self._result
        faults = list(self.faults)
        if result is None:
            outs: tuple[str, ...] = getattr(self.nodes[-1], "outs", ()) if self.nodes else ()
            if len(outs) != 1:
                what = f"{len(outs)} results" if outs else "no result"
                text = f"The query '{self._name}' names {what}."
                advice = 'Write .out("*result") directly after query(…), and bind that variable.'
                faults.append(Fault(str(self._at), text, advice))
            result = outs[0] if len(outs) == 1 else ""
        return dataflow.QueryDeclaration(self._name, self._inputs, result, self.nodes, self._at), faults
