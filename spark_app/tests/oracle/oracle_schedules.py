"""The orders in which the oracle lets things happen.

What the language promises: messages from one task to another keep their order, also where they came through different
cases of one condition, and a row goes on to its end, to the next partitioner or to a batch block before the next one
starts. Nothing else is ordered: messages of different tasks, sources, branches, conditions inside different cases,
rounds of a loop, the keys of `group_by` and of plain dicts, the tasks that a shuffle deals.
Where rows wait for calls they may meet first; those of the other cases then meet with them.

`Rounds` does what an engine in supersteps does. `Chance` takes any order that is promised; programs whose results
differ between several of those have no one right result (`oracle_comparison` says what becomes of them).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle_graph import Step

from tidemill.language.dataflow import BatchBlock


@dataclass
class Message:
    """A row on its way to a step on another task; `region` is the batch block or source that waits for it.

    `rows` are the materialized rows that it explodes there.
    """

    sender: int
    task: int
    step: Step
    row: Any
    region: int
    number: int = 0
    rows: tuple[Sequence[Any], ...] = ()


@dataclass
class Rounds:
    """All messages that are under way arrive together, task by task, and what they send arrives in the next round."""

    waiting: list[Message] = field(default_factory=list)
    entering: list[Message] = field(default_factory=list)
    arriving: list[Message] = field(default_factory=list)
    finishing: list[int] = field(default_factory=list)
    sent: int = 0
    last: tuple[int, int] | None = None
    loops_in_rounds: bool = True

    def send(self, message: Message) -> None:
        self.sent += 1
        message.number = self.sent
        (self.entering if isinstance(message.step.node, BatchBlock) else self.waiting).append(message)

    def next(self, finishable: Sequence[int]) -> Message | int | None:
        """A message that arrives, or a batch block that is finished; None at the end. A block begins when all messages
        to one place have come.
        """
        if self.entering and (not self.arriving or self.arriving[0].step.place != self.last):
            return self.entering.pop(0)
        if not self.arriving and not self.finishing:
            self.arriving = sorted(self.waiting, key=lambda m: (m.step.place, m.task, m.sender, m.number))
            self.waiting, self.finishing = [], list(finishable)
        if self.arriving:
            self.last = self.arriving[0].step.place
            return self.arriving.pop(0)
        return self.finishing.pop(0) if self.finishing else None

    def shuffled(self, items: list[Any]) -> list[Any]:
        return items

    def dealt(self, tasks: int) -> int:
        return 0

    def meets(self, place: tuple[int, int]) -> bool:
        """Whether rows meet at a place where they may."""
        return False

    def another(self) -> Rounds:
        """A schedule for a query that is called."""
        return Rounds()


class Chance:
    """Any promised order; `strict` keeps the order of messages between two tasks also where they go to different
    places of the program.
    """

    def __init__(self, seed: int, strict: bool = False) -> None:
        self.random = random.Random(seed)
        self.strict = strict
        self.channels: dict[Any, list[Message]] = {}
        self.loops_in_rounds = seed % 2 == 0
        self.favours_new = seed % 3 == 1
        self.favours_old = seed % 3 == 2
        self.meetings = self.random.choice(("all", "all", "none", "some"))
        self.met: dict[tuple[int, int], bool] = {}

    def send(self, message: Message) -> None:
        place = None if self.strict else message.step.place
        self.channels.setdefault((message.sender, message.task, place), []).append(message)

    def next(self, finishable: Sequence[int]) -> Message | int | None:
        choices: list[Any] = [channel for channel, held in self.channels.items() if held] + list(finishable)
        if not choices:
            return None
        if self.random.random() < 0.7 and (self.favours_new or self.favours_old):
            chosen = choices[-1 if self.favours_new else 0]
        else:
            chosen = self.random.choice(choices)
        return chosen if isinstance(chosen, int) else self.channels[chosen].pop(0)

    def shuffled(self, items: list[Any]) -> list[Any]:
        return self.random.sample(items, len(items))

    def dealt(self, tasks: int) -> int:
        return self.random.randrange(tasks)

    def meets(self, place: tuple[int, int]) -> bool:
        if self.meetings != "some":
            return self.meetings == "all"
        return self.met.setdefault(place, self.random.random() < 0.5)

    def another(self) -> Chance:
        return Chance(self.random.randrange(10**6), self.strict)


Schedule = Rounds | Chance
