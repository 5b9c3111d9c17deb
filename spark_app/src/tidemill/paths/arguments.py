"""Which arguments a navigator takes, in the order of its public signature and of its JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["value", "function", "condition", "branch", "change"]
"""A plain value; a function; a path that is a select of its own; one that the path goes on with; one that is a
transform of its own.
"""

PATHS: Final[tuple[Kind, ...]] = ("condition", "branch", "change")


@dataclass(frozen=True)
class ArgumentKinds:
    """The kinds of the arguments; the last `optional` of them may be left out. Those of `more` may follow, all of them
    any number of times.
    """

    kinds: tuple[Kind, ...] = ()
    optional: int = 0
    more: tuple[Kind, ...] = ()

    def kind(self, index: int) -> Kind | None:
        """Of the argument at an index; None: there is none."""
        if index < len(self.kinds):
            return self.kinds[index]
        return self.more[(index - len(self.kinds)) % len(self.more)] if self.more else None

    def are_fewer_than(self, count: int) -> bool:
        """Whether so many arguments are too many."""
        return not self.more and count > len(self.kinds)

    def miscount(self, count: int) -> str | None:
        """What is wrong with so many arguments, as the end of a sentence about their navigator."""
        least, most = len(self.kinds) - self.optional, len(self.kinds)
        if count < least:
            return f"needs {least} argument{'s' * (least != 1)}, not {count}"
        if self.more and count > most and (count - most) % len(self.more):
            return f"takes its arguments in pairs, not {count}"
        return f"takes {most} argument{'s' * (most != 1)}, not {count}" if self.are_fewer_than(count) else None

    @property
    def has_branches(self) -> bool:
        """Whether the path goes on with paths among them."""
        return "branch" in (*self.kinds, *self.more)


NOTHING: Final = ArgumentKinds()
VALUE: Final = ArgumentKinds(("value",))
VALUES: Final = ArgumentKinds(more=("value",))
FUNCTION: Final = ArgumentKinds(("function",))
CALL: Final = ArgumentKinds(("function",), more=("value",))
CONDITION: Final = ArgumentKinds(("condition",))
