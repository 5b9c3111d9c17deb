"""Paths with their arguments numbered: `Var`, `Const` and `RecordedExpr` become positions in the values of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.language.dataflow import Arg, Const, Function, Nav, RecordedExpr, RecordedPath, Var
from tidemill.paths.arguments import PATHS
from tidemill.paths.navigator import BoundNav, Slot
from tidemill.paths.navigators import NAVIGATORS
from tidemill.values.errors import BadPath


@dataclass
class Binder:
    """Numbers the arguments of a path from left to right, nested paths included; navigators from `first` on."""

    where: str
    first: int = 0
    arguments: list[Arg] = field(default_factory=list)

    def bind(self, path: RecordedPath) -> tuple[BoundNav, ...]:
        """Raises BadPath: a navigator is unknown, or an argument is none of a path."""
        return self._bind_path(path, "path", self.first)

    def _bind_path(self, path: RecordedPath, at: str, first: int = 0) -> tuple[BoundNav, ...]:
        places = enumerate(path.navs, first)
        return tuple(bound for index, nav in places for bound in self._bind_nav(nav, f"{at}[{index}]"))

    def _bind_nav(self, nav: Nav, at: str) -> Iterator[BoundNav]:
        navigator = NAVIGATORS.get(nav.name)
        if navigator is None:
            raise BadPath(f"{self.where}: there is no navigator {nav.name}", navigator=nav.name, at=at)
        slots, functions, paths, branches = [], [], [], []
        for index, arg in enumerate(nav.args):
            kind = navigator.arguments.kind(index)
            if isinstance(arg, (Var, Const, RecordedExpr)) and kind in ("value", None):
                slots.append(self._slot(arg))
            elif isinstance(arg, Function) and kind == "function":
                functions.append(arg)
            elif isinstance(arg, RecordedPath) and kind in PATHS:
                paths.append(self._bind_path(arg, f"{at}[{index + 1}]"))
                branches += paths[-1:] if kind == "branch" else []
            else:
                text = f"{self.where}: {nav.name} got {arg!r}, which can not be its argument {index + 1}"
                raise BadPath(text, navigator=nav.name, at=at)
        if navigator.is_repeated:
            yield from (BoundNav(navigator, (slot,), where=self.where, at=at) for slot in slots)
            return
        options = tuple((name, self._option(value)) for name, value in nav.options)
        arguments = (tuple(slots), tuple(functions), tuple(paths), tuple(branches))
        yield BoundNav(navigator, *arguments, options, self.where, at)

    def _option(self, value: Any) -> Any:
        return Slot(self._slot(value)) if isinstance(value, (Var, Const, RecordedExpr)) else value

    def _slot(self, arg: Arg) -> int:
        self.arguments.append(arg)
        return len(self.arguments) - 1
