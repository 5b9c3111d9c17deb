"""What operations may ask about the attempt, derived so that a step done again gives the same values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import xxhash

from tidemill.engine.event_loops import Awaiting
from tidemill.engine.query_budget import RunningBudget
from tidemill.engine.work import AttemptWork
from tidemill.values.errors import BadInput


@dataclass
class StepContext:
    """One thread's superstep. `awaiting` waits for calls of `each_async`. `budget` is what a query may take, None in an
    attempt. `draws` counts how often each (task, operator) asked for randomness in this superstep.
    """

    work: AttemptWork
    superstep: int
    awaiting: Awaiting
    budget: RunningBudget | None = None
    draws: dict[tuple[int, int], int] = field(default_factory=dict)

    def seed(self, task: int, operator: int) -> int:
        """A number that depends on the attempt, superstep, task, operator and on how often it was asked for."""
        count = self.draws.get((task, operator), 0)
        self.draws[task, operator] = count + 1
        work = self.work
        text = f"{work.prefix}/{work.microbatch_id}/{work.version}/{self.superstep}/{task}/{operator}/{count}"
        return int(xxhash.xxh64_intdigest(text.encode()))

    def value(self, name: str, task: int, operator: int) -> Any:
        """The value of one of the operations that `needs_context`."""
        work = self.work
        if name == "CURRENT_TASK_ID":
            return task
        if name == "CURRENT_MICROBATCH_ID" and self.budget is not None:
            raise BadInput("a query has no microbatch, so Ops.CURRENT_MICROBATCH_ID has no value in it")
        if name == "CURRENT_MICROBATCH_ID":
            return work.microbatch_id
        if name == "CURRENT_TOPOLOGY_TYPE":
            return "microbatch" if self.budget is None else "query"
        if name == "MODULE_INSTANCE_INFO":
            instance = work.prefix.rpartition("/")[2]
            return {
                "module": work.module, "tasks": work.tasks, "threads": work.threads, "instance": instance,
                "superstep": self.superstep, "is_probe": work.is_probe,
            }  # fmt: skip
        if name == "CURRENT_RANDOM_SOURCE":
            return random.Random(self.seed(task, operator))
        return self._uuid7(task, operator)

    def _uuid7(self, task: int, operator: int) -> str:
        """A UUID of version 7 as text: milliseconds of the attempt, then derived bits."""
        bits = random.Random(self.seed(task, operator)).getrandbits(74)
        millis = self.work.now_millis & ((1 << 48) - 1)
        number = (millis << 80) | (0x7 << 76) | ((bits >> 62) << 64) | (0x2 << 62) | (bits & ((1 << 62) - 1))
        text = f"{number:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
