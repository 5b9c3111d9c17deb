"""What `select` and `local_select` read beside PStates, and their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.api.arguments import to_arg
from tidemill.api.path import recorded_path
from tidemill.api.starters import starter
from tidemill.language.dataflow import Arg, Each, Function, Location, RecordedExpr, Var
from tidemill.language.recorded_parts import rewritten
from tidemill.language.value_select import SelectFrom
from tidemill.values.errors import Fault


@dataclass(frozen=True)
class SelectOptions:
    """Options of `select` and `local_select`; they never change the result."""

    allows_yield: bool = False

    @starter
    def allow_yield(self) -> SelectOptions:
        """Reads never block others here, so this changes nothing."""
        return SelectOptions(allows_yield=True)


def option_faults(options: Any, at: Location) -> list[Fault]:
    """The fault of what stands where options of a select should."""
    if options is None or isinstance(options, SelectOptions):
        return []
    text = f"The third argument of a select is its options, not {options!r}."
    return [Fault(str(at), text, "Leave it out, or write SelectOptions.allow_yield().")]


def is_value(source: Any) -> bool:
    """Whether a select is from a value, that of a variable too, and not from a PState."""
    return not isinstance(source, str) or source.startswith("*")


def select_from(value: Any, path: Any, at: Location, faults: list[Fault]) -> Each:
    """The recorded select from a value, which goes on on the task where the row is."""
    brought: list[Arg] = []

    def numbered(part: Any) -> Any:
        if not isinstance(part, (Var, RecordedExpr)):
            return part
        brought.append(part)
        return Var(f"*{len(brought) - 1}")

    call = SelectFrom(rewritten(recorded_path(path, at, faults), numbered))
    return Each(Function("select", "operation", call), (to_arg(value, at, faults), *brought), (), at)
