"""Paths with their arguments numbered: `Var`, `Const` and `RecordedExpr` become positions in the values of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.language.dataflow import Arg, Const, Function, Nav, RecordedExpr, RecordedPath, Var
from tidemill.values.errors import BadPath


@dataclass(frozen=True)
class BoundNav:
    """One navigator: `slots` are the positions of its plain arguments, `functions` and `paths` its other arguments.

    Options hold values as they are, or a `Slot` where the option's value is known only at the call. `at` is the place
    in the path as its writer wrote it, such as `path[2][1]`.
    """

    name: str
    slots: tuple[int, ...] = ()
    functions: tuple[Function, ...] = ()
    paths: tuple[tuple[BoundNav, ...], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    where: str = ""
    at: str = ""

    def option(self, *names: str, default: Any = None) -> Any:
        return next((value for key, value in self.options if key in names), default)


@dataclass(frozen=True)
class Slot:
    """The position of a value among the arguments of a call."""

    index: int

    def of(self, values: Any) -> Any:
        return values[self.index]


@dataclass
class Binder:
    """Numbers the arguments of a path from left to right, nested paths included; navigators from `first` on."""

    where: str
    first: int = 0
    arguments: list[Arg] = field(default_factory=list)

    def bind(self, path: RecordedPath) -> tuple[BoundNav, ...]:
        return self._bind_path(path, "path", self.first)

    def _bind_path(self, path: RecordedPath, at: str, first: int = 0) -> tuple[BoundNav, ...]:
        places = enumerate(path.navs, first)
        return tuple(bound for index, nav in places for bound in self._bind_nav(nav, f"{at}[{index}]"))

    def _bind_nav(self, nav: Nav, at: str) -> Iterator[BoundNav]:
        slots, functions, paths = [], [], []
        for index, arg in enumerate(nav.args, 1):
            if isinstance(arg, (Var, Const, RecordedExpr)):
                slots.append(self._slot(arg))
            elif isinstance(arg, Function):
                functions.append(arg)
            elif isinstance(arg, RecordedPath):
                paths.append(self._bind_path(arg, f"{at}[{index}]"))
            else:
                raise BadPath(
                    f"{self.where}: {nav.name} got {arg!r}, which is no argument of a path", navigator=nav.name
                )
        if nav.name in ("key", "must", "nth"):
            yield from (BoundNav(nav.name, (slot,), where=self.where, at=at) for slot in slots)
            return
        options = tuple((name, self._option(value)) for name, value in nav.options)
        yield BoundNav(nav.name, tuple(slots), tuple(functions), tuple(paths), options, self.where, at)

    def _option(self, value: Any) -> Any:
        return Slot(self._slot(value)) if isinstance(value, (Var, Const, RecordedExpr)) else value

    def _slot(self, arg: Arg) -> int:
        self.arguments.append(arg)
        return len(self.arguments) - 1


def callable_of(function: Function, where: str) -> Callable[..., Any]:
    """The row form of a function in a path: one result for each call.

    Raises:
        BadPath: it emits any number of rows, or works on columns.
    """
    if function.kind == "operation":
        raise BadPath(
            f"{where}: {function.name} is an operation; paths call functions of one result", name=function.name
        )
    if function.kind == "vectorized":
        raise BadPath(f"{where}: {function.name} works on columns; paths call functions of values", name=function.name)
    return function.call
