"""Variables that a recorded form uses inside: nobody writes them, and no message shows them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from tidemill.api.arguments import Helpers
from tidemill.language.dataflow import HIDDEN, Arg, Const, Function, Location, RecordedExpr
from tidemill.language.operations import Op

N = TypeVar("N")


def hidden_var(prefix: str) -> str:
    """A new variable that nobody sees."""
    return Helpers.gen_var(f"~{prefix}")


def built_in(op: Op, *args: Arg) -> RecordedExpr:
    """A built-in operation applied to arguments."""
    return RecordedExpr(Function(op.name, "builtin", op), args)


def renewed(part: N) -> N:
    """Recorded nodes with other hidden variables, so that a block that is used twice does not meet its own."""
    names: dict[str, str] = {}
    found: Any = _renewed(part, names)
    result: N = found
    return result


def _renewed(part: Any, names: dict[str, str]) -> Any:
    """The part itself where it names no hidden variable."""
    if isinstance(part, str):
        if part.startswith(HIDDEN) and part not in names:
            names[part] = hidden_var("again")
        return names.get(part, part)
    if isinstance(part, tuple):
        inner = tuple(_renewed(each, names) for each in part)
        return inner if any(new is not old for new, old in zip(inner, part, strict=True)) else part
    if not dataclasses.is_dataclass(part) or isinstance(part, (Const, Function, Location)):
        return part
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    changed = {name: new for name, value in values.items() if (new := _renewed(value, names)) is not value}
    return dataclasses.replace(part, **changed) if changed else part  # type: ignore[type-var]  # an instance, see above
