"""A runner machine alone, whose questions a test answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeVar

from tidemill.engine.work import AttemptOutcome, DeltaPart
from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Part, TaskSet
from tidemill.language.options import ModuleOptions
from tidemill.leader import events
from tidemill.leader.events import DepotEnds, SourceSpec, TopologySpec
from tidemill.leader.machine import Machine
from tidemill.leader.maintenance import Maintenance
from tidemill.leader.report import Now
from tidemill.values.ids import Ids

T = TypeVar("T")
DATA = SourceSpec("*d", "d-1", "*d", 1)
TICK = SourceSpec("*t", "t-1", "*t", 0, tick_millis=1_000)
CHANGE = DeltaPart(Part("", TaskSet(1, 0)), b"x")


class Driver:
    """Answers a machine's questions from what a test put here, until it waits or an attempt is under way."""

    def __init__(
        self, *sources: SourceSpec, depots: Mapping[str, str] = MappingProxyType({}), sinks: Collection[str] = ()
    ) -> None:
        spec = TopologySpec("mb", 1, sources, depots=depots, sinks=frozenset(sinks))
        self.machine = Machine(spec, Ids(1), "me", Maintenance(lambda _, __: None))
        self.end = 0
        self.options = ModuleOptions()
        self.definition = 1
        self.at = 0.0
        self.written: list[Entry] = []
        self.seen: list[events.Instruction] = []
        self.slow = ""

    def say(self, event: events.Event) -> list[events.Instruction]:
        """One event, and the answers to all questions that follow from it; what was asked for meanwhile."""
        made = self.machine.handle(event, Now(1_000_000 + int(self.at), self.at))
        self.seen = list(made)
        while made and not isinstance(made[-1], (events.Wait, events.Stop)):
            made = self.machine.handle(self._answer(made[-1]), Now(1_000_000 + int(self.at), self.at))
            self.seen += made
        return self.seen

    def _answer(self, question: events.Instruction) -> events.Event:
        if isinstance(question, events.AskLease):
            return events.LeaseAnswered(True)
        if isinstance(question, events.ReadHead):
            number = len(self.written)
            return events.HeadRead(number, self.written[-1] if number else None, self.definition)
        if isinstance(question, events.ResolveStarts):
            return events.StartsResolved(dict.fromkeys(question.source_ids, (0,)))
        if isinstance(question, events.WriteEntry):
            self.written.append(question.entry)
            if question.entry.kind == self.slow:
                self.at, self.slow = self.at + 300_001, ""
            return events.EntryWritten(question.number)
        return events.SourcesProbed({"*d": DepotEnds((0,), (self.end,))}, self.options, self.definition)

    def one(self, kind: type[T]) -> T:
        found = [instruction for instruction in self.seen if isinstance(instruction, kind)]
        assert len(found) == 1, self.seen
        return found[0]

    def grow(self, records: int) -> None:
        self.end += records
        self.say(events.TimePassed(has_news=True))

    def done(
        self, *deltas: DeltaPart, exploded: tuple[str, ...] = ("*d",), appends: tuple[DeltaPart, ...] = ()
    ) -> None:
        start = self.machine.running
        assert start is not None
        self.say(events.AttemptDone(start.token, AttemptOutcome(deltas, frozenset(exploded), appends=appends)))


def leading(
    *sources: SourceSpec, depots: Mapping[str, str] = MappingProxyType({}), sinks: Collection[str] = ()
) -> Driver:
    driver = Driver(*(sources or (DATA,)), depots=depots, sinks=sinks)
    driver.say(events.TimePassed())
    assert [entry.kind for entry in driver.written] == ["claim"]
    return driver
