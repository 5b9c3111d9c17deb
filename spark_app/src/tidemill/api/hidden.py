"""Variables that a recorded form uses inside: nobody writes them, and no message shows them."""

from __future__ import annotations

from typing import Any, TypeVar

from tidemill.api.arguments import Helpers
from tidemill.language.dataflow import HIDDEN, Arg, Function, RecordedExpr
from tidemill.language.operations import Op
from tidemill.language.recorded_parts import rewritten

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

    def new_name(inner: Any) -> Any:
        if not isinstance(inner, str) or not inner.startswith(HIDDEN):
            return inner
        return names.setdefault(inner, hidden_var("again"))

    result: N = rewritten(part, new_name)
    return result
