"""`QueryChain`: what follows `topologies.query(…)`."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.api.declared_chain import DeclaredChain
from tidemill.language import dataflow
from tidemill.language.dataflow import Location
from tidemill.values.errors import Fault


class QueryChain(DeclaredChain):
    """The chain of a query topology; `.out("*result")` directly after `query` names the variable that is its result."""

    _names_one = ("A query has one result.", 'Write .out("*result") once.')

    def __init__(
        self, name: str, inputs: Sequence[str], engine: dataflow.QueryEngine, at: Location, faults: Sequence[Fault]
    ) -> None:
        super().__init__(at, faults)
        self._name, self._inputs, self._engine = name, tuple(inputs), engine

    def declaration(self) -> tuple[dataflow.QueryDeclaration, list[Fault]]:
        """What was recorded so far, and what is wrong with it. Without a result of its own it is what the last node
        binds.
        """
        result = self._named
        faults = list(self.faults)
        if result is None:
            outs: tuple[str, ...] = getattr(self.nodes[-1], "outs", ()) if self.nodes else ()
            if len(outs) != 1:
                what = f"{len(outs)} results" if outs else "no result"
                text = f"The query '{self._name}' names {what}."
                advice = 'Write .out("*result") directly after query(…), and bind that variable.'
                faults.append(Fault(str(self._at), text, advice))
            result = outs[0] if len(outs) == 1 else ""
        return dataflow.QueryDeclaration(self._name, self._inputs, result, self.nodes, self._at, self._engine), faults
