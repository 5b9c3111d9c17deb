"""`MicrobatchTopology`: its PStates and its sources with the chains that follow them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tidemill.api.arguments import to_chooser, to_name
from tidemill.api.block import Block
from tidemill.api.declared_chain import DeclaredChain
from tidemill.api.locations import caller_location
from tidemill.api.schemas import Schema, to_pstate_schema
from tidemill.api.starters import starter
from tidemill.language import dataflow
from tidemill.language.dataflow import Location, StartFrom
from tidemill.language.schema import to_text
from tidemill.values.errors import Fault
from tidemill.values.suggestions import SuggestingInstances


class OffsetAgo(enum.Enum):
    """Units of `start_from_offset_ago`; the value is their length in milliseconds (RECORDS has none)."""

    RECORDS = 0
    SECONDS = 1_000
    MINUTES = 60_000
    HOURS = 3_600_000
    DAYS = 86_400_000


class MicrobatchSourceOptions:
    """Where a source begins when its topology first meets the depot (the end, unless given), and its identity."""

    def __init__(
        self, start: StartFrom | None = None, source_id: str | None = None, faults: Sequence[Fault] = ()
    ) -> None:
        self.start = start
        self.given_id = source_id
        self.faults = tuple(faults)

    def __repr__(self) -> str:
        return f"MicrobatchSourceOptions(start={self.start}, source_id={self.given_id!r})"

    def _from(self, start: StartFrom) -> MicrobatchSourceOptions:
        at = str(caller_location())
        found = list(self.faults)
        if self.start is not None:
            found.append(Fault(at, "A source begins at one place, but two are given.", "Keep one start_from option."))
        if isinstance(start.amount, bool) or not isinstance(start.amount, int) or start.amount < 0:
            text = f"A start_from option takes a whole number of 0 or more, not {start.amount!r}."
            found.append(Fault(at, text, "Correct the number."))
            start = StartFrom(start.kind)
        return MicrobatchSourceOptions(start, self.given_id, found)

    @staticmethod
    def create() -> MicrobatchSourceOptions:
        """No option yet: the end of the depot."""
        return MicrobatchSourceOptions()

    @starter
    def start_from_beginning(self) -> MicrobatchSourceOptions:
        """The first record that the depot still has."""
        return self._from(StartFrom("beginning"))

    @starter
    def start_from_offset_after_timestamp(self, millis: int) -> MicrobatchSourceOptions:
        """The first record that was appended after this time (milliseconds since 1970)."""
        return self._from(StartFrom("after_timestamp", millis))

    @starter
    def start_from_offset_ago(self, amount: int, unit: OffsetAgo) -> MicrobatchSourceOptions:
        """So many records before the end of each partition, or the first record that was appended since then."""
        if unit is OffsetAgo.RECORDS:
            return self._from(StartFrom("ago_records", amount))
        if isinstance(unit, OffsetAgo):
            return self._from(StartFrom("ago_millis", amount * unit.value if isinstance(amount, int) else amount))
        fault = Fault(str(caller_location()), f"{unit!r} is no unit.", "Use OffsetAgo.RECORDS, SECONDS, MINUTES, …")
        return MicrobatchSourceOptions(StartFrom(), self.given_id, (*self.faults, fault))

    @starter
    def source_id(self, name: str) -> MicrobatchSourceOptions:
        """What progress is kept under; needed where a topology has two sources of one depot."""
        return MicrobatchSourceOptions(self.start, name, self.faults)


class SourceChain(DeclaredChain):
    """The chain after `topology.source(…)`; `.out` directly after it names the microbatch."""

    _names_one = ("A source binds one variable, its microbatch.", 'Write .out("*microbatch").')

    def __init__(self, depot: str, options: MicrobatchSourceOptions, at: Location, faults: Sequence[Fault]) -> None:
        super().__init__(at, faults)
        self._depot = depot
        self._options = options

    def declaration(self) -> dataflow.SourceDeclaration:
        """What was recorded so far."""
        source_id = self._options.given_id or self._depot
        start = self._options.start or StartFrom()
        return dataflow.SourceDeclaration(self._depot, source_id, self._named, start, self.nodes, self._at)


class PStateBuilder:
    """What follows `topology.pstate(…)`: options of the PState just declared."""

    def __init__(self, declaration: dataflow.PStateDeclaration, faults: list[Fault]) -> None:
        self.declaration = declaration
        self._faults = faults

    def __repr__(self) -> str:
        return f"<PState {self.declaration.name}: {to_text(self.declaration.schema)}>"

    def global_(self) -> PStateBuilder:
        """One partition, on task 0."""
        return self._set(is_global=True)

    def initial_value(self, value: Any) -> PStateBuilder:
        """What every partition holds before it is first written; only for a schema that is a plain type."""
        return self._set(initial_value=value)

    def make_private(self) -> PStateBuilder:
        """Clients cannot read it."""
        return self._set(is_private=True)

    def key_partitioner(self, function: Callable[[int, Any], int]) -> PStateBuilder:
        """`function(number of partitions, key)` chooses the partition of a key for clients, `select` and
        `path_partition`.
        """
        at = caller_location()
        return self._set(key_partitioner=to_chooser(function, 2, at, self._faults))

    def _set(self, **changes: Any) -> PStateBuilder:
        self.declaration = replace(self.declaration, **changes)
        return self


class MicrobatchTopology(SuggestingInstances):
    """A topology that takes all that has gathered in its depots through one exactly-once computation."""

    def __init__(self, name: str, at: Location) -> None:
        self.name = name
        self.faults: list[Fault] = []
        self._at = at
        self._pstates: list[PStateBuilder] = []
        self._sources: list[SourceChain] = []

    def __repr__(self) -> str:
        return f"<MicrobatchTopology {self.name!r}>"

    def pstate(self, name: str, schema: type[Any] | Schema) -> PStateBuilder:
        """A PState that only this topology writes; its name begins with `$$`, its schema comes from `PState`."""
        at = caller_location()
        recorded_name = to_name(name, "$$", "PState", at, self.faults)
        stored, migrations = to_pstate_schema(schema, at, self.faults)
        recorded = dataflow.PStateDeclaration(recorded_name, stored, at, migrations=migrations)
        builder = PStateBuilder(recorded, self.faults)
        self._pstates.append(builder)
        return builder

    def source(self, depot: str, options: MicrobatchSourceOptions | None = None) -> Block:
        """Begin a chain, on task 0, that runs once in each microbatch; `.out(…)` names the microbatch of the depot."""
        at = caller_location()
        found: list[Fault] = []
        chosen = options or MicrobatchSourceOptions()
        if not isinstance(chosen, MicrobatchSourceOptions):
            text = f"{chosen!r} are no options of a source."
            found.append(Fault(str(at), text, "Use MicrobatchSourceOptions.start_from_beginning() and so on."))
            chosen = MicrobatchSourceOptions()
        found.extend(chosen.faults)
        chain = SourceChain(to_name(depot, "*", "depot", at, found), chosen, at, found)
        self._sources.append(chain)
        return chain

    def declaration(self) -> tuple[dataflow.TopologyDeclaration, list[Fault]]:
        """What was recorded, and what was wrong with it."""
        pstates = tuple(builder.declaration for builder in self._pstates)
        sources = tuple(chain.declaration() for chain in self._sources)
        faults = [*self.faults, *(fault for chain in self._sources for fault in chain.faults)]
        return dataflow.TopologyDeclaration(self.name, pstates, sources, self._at), faults
