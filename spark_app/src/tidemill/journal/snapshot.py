"""What a commit entry says about stored state: levels of sorted rows, oldest first, as names of immutable objects.

A *level* is what one microbatch changed (a delta), or what a compaction made of adjacent levels (a run); newer levels
win. A level is packed into *parts*, one a thread that wrote it; each covers the tasks `t` with `t % modulus ==
remainder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import xxhash

from tidemill.values.errors import CorruptState, invariant
from tidemill.values.stored import Stored


@dataclass(frozen=True)
class TaskSet:
    """The tasks `t` with `t % modulus == remainder`; (1, 0) is all tasks."""

    modulus: int
    remainder: int

    def __contains__(self, task: object) -> bool:
        return isinstance(task, int) and task % self.modulus == self.remainder

    def overlaps(self, other: TaskSet) -> bool:
        """Both moduli are powers of two, so the smaller one decides."""
        small = min(self.modulus, other.modulus)
        return self.remainder % small == other.remainder % small

    def members(self, tasks: int) -> range:
        """Those of the tasks 0 to `tasks` - 1 that are in the set, ascending."""
        return range(self.remainder, tasks, self.modulus)


@dataclass(frozen=True)
class Part(Stored):
    """One stored object: a ZIP of sorted tables (`tables.container`).

    `name` is the object's key below the topology's prefix; a part in a log entry is `<entry's key>#<member>`.
    `rows` counts rows per table id, `bytes` is the ZIP's size and `checksum` that of its bytes, by which an object
    that stands in the place of another one is noticed. `bounds` is the largest absolute integer of each table,
    `generations` how many migrations its values went through, of tables with any.
    """

    name: str
    tasks: TaskSet
    rows: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    bounds: Mapping[str, int] = field(default_factory=dict)
    checksum: str = ""
    generations: Mapping[str, int] = field(default_factory=dict)

    def generation(self, table: str) -> int:
        """How many migrations the values of a table went through."""
        return self.generations.get(table, 0)

    def behind(self, generations: Mapping[str, int]) -> dict[str, int]:
        """By table the rows that wait for a migration; `generations` are those that tables have now."""
        return {
            table: self.rows[table]
            for table, generation in generations.items()
            if self.rows.get(table) and self.generation(table) < generation
        }

    def sealed(self, content: Any) -> Part:
        """This part with the size and the checksum of its bytes."""
        return replace(self, bytes=len(content), checksum=checksum_of(content))

    def check_size(self, content: Any) -> None:
        """Raises CorruptState: the object has not the size that was committed."""
        if len(content) != self.bytes:
            text = f"holds {len(content)} bytes, {self.bytes} were committed: it is cut, or another object's"
            raise CorruptState(text, bytes=len(content))

    def check(self, content: Any) -> None:
        """Raises CorruptState: these bytes are not what was committed under this name."""
        self.check_size(content)
        if checksum_of(content) != self.checksum:
            raise CorruptState("has another checksum than was committed: its bytes changed, or are another object's")


def checksum_of(content: Any) -> str:
    """Of bytes, or anything with the buffer protocol."""
    return xxhash.xxh3_64_hexdigest(content)


@dataclass(frozen=True)
class Level(Stored):
    """The changes of microbatches `first`..`last`. A run down to the oldest level is a base: no tombstones."""

    kind: Literal["delta", "run"]
    first: int
    last: int
    parts: tuple[Part, ...]
    is_base: bool = False


@dataclass(frozen=True)
class Snapshot(Stored):
    """All PStates of one topology at one commit; `levels` oldest first."""

    levels: tuple[Level, ...] = ()

    def parts(self) -> Iterator[Part]:
        """The parts of all levels, oldest level first."""
        for level in self.levels:
            yield from level.parts

    def migrated_from(self, generations: Mapping[str, int]) -> int:
        """The first level from which on no row waits for a migration; they are brought along from the oldest one."""
        waiting = (i for i, level in enumerate(self.levels, 1) if any(part.behind(generations) for part in level.parts))
        return max(waiting, default=0)

    def with_run(self, run: Level) -> Snapshot:
        """The same state, in which `run` stands for the adjacent levels of its microbatches that were merged.

        Levels that were committed while the merge ran stay above it. Where nothing was left, no level remains.
        """
        inside = [i for i, level in enumerate(self.levels) if run.first <= level.first and level.last <= run.last]
        invariant(bool(inside) and inside == list(range(inside[0], inside[-1] + 1)), "compacted levels are adjacent")
        invariant(not run.is_base or inside[0] == 0, "a base is the oldest level")
        middle = (run,) if run.parts else ()
        return Snapshot((*self.levels[: inside[0]], *middle, *self.levels[inside[-1] + 1 :]))
