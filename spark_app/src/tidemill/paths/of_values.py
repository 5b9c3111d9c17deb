"""Paths that rows follow in values that they hold: plain values, without a schema and a PState."""

from __future__ import annotations

from typing import Any, cast

from tidemill.language.dataflow import Const, RecordedPath, Var
from tidemill.language.schema import Leaf, Schema
from tidemill.paths.compiled import CompiledPath, compile_path
from tidemill.paths.nodes import RootValue
from tidemill.values.errors import BadPath

ANY: Schema = Leaf("object")


class _Held(RootValue):
    """A value that is read only."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def get_value(self) -> Any:
        return self._value

    def put_value(self, value: Any) -> None:
        raise BadPath("a select changes nothing")


class SelectOfValues:
    """An operation: `call(value, *brought)` emits what the path navigates to in the value.

    The path has the numbered arguments of `language.value_select.SelectFrom`. It is compiled where it is called.
    """

    def __init__(self, path: RecordedPath) -> None:
        self.path = path
        self._compiled: CompiledPath | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_compiled": None}

    def __call__(self, value: Any, *brought: Any) -> list[tuple[Any]]:
        if self._compiled is None:
            self._compiled = compile_path(self.path, ANY, "select", pstate="the value")
        # Expressions were brought as values: `SelectFrom` leaves constants and numbered variables.
        values = [
            argument.value if isinstance(argument, Const) else brought[int(cast(Var, argument).name[1:])]
            for argument in self._compiled.arguments
        ]
        return [(found,) for found in self._compiled.select(_Held(value), values)]
