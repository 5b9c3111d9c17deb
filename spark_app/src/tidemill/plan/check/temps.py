"""Checks temporary PStates: made in one chain, by one kind of step, before anything reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Location
from tidemill.language.schema import to_text
from tidemill.plan.check.context import Context, Temp, advice_for, count_of
from tidemill.plan.check.scope import Scope
from tidemill.plan.temporaries import declared_by


@dataclass
class BlockTemps:
    """What one batch block does with temporary PStates: those that it makes, and where it explodes rows."""

    made: set[str] = field(default_factory=set)
    exploded: dict[str, Location] = field(default_factory=dict)


class TempCheck:
    """The temporary PStates of one source's chain."""

    def __init__(self, context: Context, topology: str, source: str) -> None:
        self.context, self.topology, self.source = context, topology, source
        self.block = BlockTemps()

    def found(self, name: str) -> Temp | None:
        """What this chain makes under a name, as far as it was followed."""
        temp = self.context.temps.get((self.topology, name))
        return temp if temp is not None and temp.source == self.source else None

    def make(self, name: str, temp: Temp) -> None:
        """A step of a batch block makes a temporary PState, or adds to it; it must be alike each time."""
        self.block.made.add(name)
        before = self.context.temps.setdefault((self.topology, name), temp)
        if name in self.context.pstates:
            text = f"'{name}' is a declared PState, so no temporary one can have its name."
            self.context.fault(temp.at, text, "Give the temporary PState another name.")
        elif before.source != temp.source:
            text = f"The source of '{before.source}' makes the temporary PState '{name}' too, at {before.at}."
            self.context.fault(temp.at, text, "Each belongs to one source; give this one another name.")
        elif before.shape != temp.shape:
            text = f"'{name}' {temp.shape} here, but it {before.shape} at {before.at}."
            self.context.fault(temp.at, text, "Give one of the two temporary PStates another name.")

    def materialize(self, node: df.Materialize, is_in_block: bool) -> None:
        """`materialize` stands in a batch block, and names what it makes."""
        if not is_in_block:
            text = "materialize stands outside a batch block."
            self.context.fault(node.at, text, "Put it into batch_block(…), after the rows that it keeps.")
        elif not node.temp:
            self.context.fault(node.at, "materialize names no temporary PState.", 'Write .out("$$rows") after it.')
        else:
            shape = f"holds rows of {count_of(len(node.args), 'value')}"
            self.make(node.temp, Temp(node.at, self.source, shape, width=len(node.args)))

    def explode(self, node: df.ExplodeMaterialized, scope: Scope) -> None:
        """`explode_materialized` takes rows that code before it kept, and binds all their values or none."""
        self.block.exploded.setdefault(node.temp, node.at)
        temp = self.found(node.temp)
        if node.temp in self.context.pstates or (temp is not None and temp.declaration is not None):
            text = f"'{node.temp}' holds no materialized rows."
            self.context.fault(node.at, text, "Read it with all_partition() and local_select.")
        elif node.temp not in scope.temps:
            self.missing(node.temp, node.at, "materializes")
        elif temp is not None and len(node.outs) not in (0, temp.width):
            wanted, bound = count_of(temp.width, "value"), count_of(len(node.outs), "variable")
            text = f"The rows of '{node.temp}' have {wanted}, which cannot be bound to {bound}."
            self.context.fault(node.at, text, f"Bind as many as materialize was given at {temp.at}.")

    def aggregate(self, node: df.Aggregate) -> df.PStateDeclaration:
        """The temporary PState that an aggregation of a batch block makes."""
        made = declared_by(node)
        self.make(made.name, Temp(node.at, self.source, f"holds {to_text(made.schema)}", declaration=made))
        return made

    def read(self, name: str, scope: Scope, at: Location) -> df.PStateDeclaration | None:
        """The PState of this name, declared or made before; anything else is a fault."""
        temp = self.found(name)
        if temp is None or name in self.context.pstates:
            return self.context.pstate(name, at)
        if temp.declaration is None:
            text = f"'{name}' holds materialized rows, and is no PState to navigate."
            self.context.fault(at, text, f'Get its rows with explode_materialized("{name}").')
        elif name not in scope.temps:
            self.missing(name, at, "makes")
        return temp.declaration

    def missing(self, name: str, at: Location, verb: str) -> None:
        """Notes that no code before a step makes the temporary PState that it reads."""
        if name in self.block.made:
            text = f"'{name}' is made by the batch block that reads it here, so it is not complete yet."
            self.context.fault(at, text, "Read it behind that batch block.")
            return
        known = [known for topology, known in self.context.temps if topology == self.topology and known != name]
        otherwise = f'Write {_MAKING[verb]}.out("{name}") in a batch block before this, in the same chain.'
        self.context.fault(at, f"No code before this {verb} '{name}'.", advice_for(name, known, otherwise))

    def end_block(self, scope: Scope) -> Scope:
        """The scope behind a batch block, where what it made can be read."""
        block, self.block = self.block, BlockTemps()
        for name in block.made & block.exploded.keys() & scope.temps:
            text = f"This batch block explodes '{name}', and adds rows to it."
            self.context.fault(block.exploded[name], text, "Keep the new rows under another name.")
        return scope.making(block.made)


_MAKING = {"materializes": 'materialize("*v")', "makes": "agg(…)"}
