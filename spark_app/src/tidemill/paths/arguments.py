"""Which arguments a navigator takes, in the order of its public signature and of its JSON form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final, Literal

Kind = Literal["value", "function", "condition", "branch", "change"]
"""A plain value; a function; a path that is a select of its own; one that the path goes on with; one that is a
transform of its own.
"""

PATHS: Final[tuple[Kind, ...]] = ("condition", "branch", "change")


@dataclass(frozen=True)
class ArgumentKinds:
    """The kinds of the arguments; the last `optional` of them may be left out, `more` may follow in any number."""

    kinds: tuple[Kind, ...] = ()
    optional: int = 0
    more: Kind | None = None

    def kind(self, index: int) -> Kind | None:
        """Of the argument at an index; None: there is none."""
        return self.kinds[index] if index < len(self.kinds) else self.more

    def are_fewer_than(self, count: int) -> bool:
        """Whether so many arguments are too many."""
        return self.more is None and count > len(self.kinds)

    @cached_property
    def values(self) -> tuple[int, float]:
        """How many plain values there are at least, and at most."""
        return self._count("value")

    @cached_property
    def functions(self) -> tuple[int, float]:
        """As `values`."""
        return self._count("function")

    @cached_property
    def paths(self) -> tuple[int, float]:
        """As `values`."""
        return self._count(*PATHS)

    def _count(self, *kinds: Kind) -> tuple[int, float]:
        least = sum(kind in kinds for kind in self.kinds[: len(self.kinds) - self.optional])
        return least, inf if self.more in kinds else sum(kind in kinds for kind in self.kinds)

    def path_kinds(self, count: int) -> Sequence[Kind | None]:
        """The kinds of `count` paths, as they stand among the arguments."""
        named: list[Kind | None] = [kind for kind in self.kinds if kind in PATHS]
        return (named + [self.more] * count)[:count]

    @property
    def has_branches(self) -> bool:
        """Whether the path goes on with paths among them."""
        return "branch" in (*self.kinds, self.more)


NOTHING: Final = ArgumentKinds()
VALUE: Final = ArgumentKinds(("value",))
VALUES: Final = ArgumentKinds(more="value")
FUNCTION: Final = ArgumentKinds(("function",))
CONDITION: Final = ArgumentKinds(("condition",))
