"""What a navigator is: one step of a path that knows the step after it.

A step is called with (value, argument values, collected values). In a select it gives the hits below, pairs of (value,
collected values), lazily where there may be many. In a transform it gives what shall stand in place of the value:
a new value, ABSENT to remove it, or UNCHANGED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tidemill.paths.binding import BoundNav, callable_of
from tidemill.paths.budget import Budget
from tidemill.paths.containers import SCALARS, UNCHANGED, node_kind, plain, replace_node
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath

Step = Callable[[Any, Sequence[Any], tuple[Any, ...]], Any]
T = TypeVar("T")
Mode = Literal["select", "transform"]
Hits = Iterable[tuple[Any, tuple[Any, ...]]]

TERMINALS = frozenset({"term", "term_val", "term_void"})
BRANCHING: Mapping[str, int] = {"multi_path": 0, "if_path": 1, "with_page_size": 0}
"""Navigators whose paths continue the path, and how many of their first paths do not."""


class Navigator:
    """One navigator of one path; `following` is the step after it."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        self.nav = nav
        self.name = nav.name
        self.where = nav.where
        self.slots = nav.slots
        self.following = following
        self.budget = builder.budget

    def select(self, value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Hits:
        raise NotImplementedError

    def transform(self, value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def function(self, index: int = 0) -> Callable[..., Any]:
        """The row form of a function argument; containers are copied before the user's code sees them."""
        if len(self.nav.functions) <= index:
            raise BadPath(f"{self.where}: {self.name} needs a function", navigator=self.name)
        function = self.nav.functions[index]
        call = callable_of(function, self.where)
        return call if self.budget is None else self.budget.calling(function.name, call, self.nav.at)

    def metered(self, items: Iterable[T]) -> Iterable[T]:
        """Items that are taken whole before the path goes on."""
        return items if self.budget is None else self.budget.metered(items)

    def slot(self, index: int = 0) -> int:
        if len(self.slots) <= index:
            raise BadPath(f"{self.where}: {self.name} needs {index + 1} arguments", navigator=self.name)
        return self.slots[index]

    def path(self, index: int = 0) -> tuple[BoundNav, ...]:
        if len(self.nav.paths) <= index:
            raise BadPath(f"{self.where}: {self.name} needs {index + 1} paths", navigator=self.name)
        return self.nav.paths[index]


@dataclass(frozen=True)
class Builder:
    """Turns bound paths into steps, last navigator first; each visit counts where there is a budget."""

    mode: Mode
    navigators: Mapping[str, type[Navigator]]
    budget: Budget | None = None

    def chain(self, path: Sequence[BoundNav], last: Step) -> Step:
        step = last
        for nav in reversed(path):
            kind = self.navigators.get(nav.name)
            if kind is None:
                raise BadPath(f"{nav.where}: this version has no navigator {nav.name}", navigator=nav.name)
            if nav.name in TERMINALS and self.mode == "select":
                raise BadPath(f"{nav.where}: {nav.name} changes state, it cannot be in a select", navigator=nav.name)
            navigator = self._made(kind, nav, step)
            step = navigator.select if self.mode == "select" else navigator.transform
            if self.budget is not None:
                step = self.budget.stepping(nav.name, nav.at, step)
        return step

    def _made(self, kind: type[Navigator], nav: BoundNav, step: Step) -> Navigator:
        try:
            return kind(nav, step, self)
        except BadPath as error:
            error.context.setdefault("at", nav.at)
            raise

    def condition(self, path: Sequence[BoundNav], *, is_copied: bool = False) -> Step:
        """The path as a select of its own, whatever the path around it does; whether all its hits will be copied."""
        last = hit if self.budget is None or not is_copied else self._charged_hit
        return Builder("select", self.navigators, self.budget).chain(path, last)

    def _charged_hit(self, value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Hits:
        if self.budget is not None:
            self.budget.result(value, collected)
        return hit(value, values, collected)

    def replacement(self, path: Sequence[BoundNav]) -> Step:
        """The path as a transform of its own; it ends in a terminal."""
        check_ends(path)
        return Builder("transform", self.navigators, self.budget).chain(path, unterminated)


def hit(value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Hits:
    """The step after the last navigator of a select."""
    return ((value, collected),)


def unterminated(value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Any:
    """The step after a terminal, never taken: `check_ends` refuses other paths before they run."""
    raise BadPath("a transform needs a terminal at its end: term, term_val or term_void")


def check_ends(path: Sequence[BoundNav], where: str = "") -> None:
    """Refuse a transform that does not end in a terminal, in every branch, or goes on after one.

    Raises:
        BadPath: whoever wrote the path adds or moves the terminal.
    """
    for nav in path[:-1]:
        if nav.name in TERMINALS:
            raise BadPath(f"{nav.where}: {nav.name} must be the last navigator of its path", navigator=nav.name)
    if not (path and _ends(path[-1])):
        where = path[-1].where if path else where
        raise BadPath(f"{where}: a transform needs a terminal at its end: term, term_val or term_void", pstate=where)


def _ends(nav: BoundNav) -> bool:
    if nav.name in TERMINALS or nav.name == "stop":
        return True
    first = BRANCHING.get(nav.name)
    if first is None or len(nav.paths) <= first:
        return False
    return all(path and _ends(path[-1]) for path in nav.paths[first:])


def selects_any(step: Step, value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> bool:
    """Whether a select step has at least one hit; looks no further than the first."""
    return any(True for _ in step(value, values, collected))


def settle(container: Any, key: Any, old: Any, new: Any, where: str) -> None:
    """Bring what a transform made of the value at a key back into its container."""
    if new is UNCHANGED:
        return
    if new is ABSENT:
        container.delete(key)
    elif node_kind(old):
        replace_node(old, new, where)
    else:
        container.put(key, new)


def private(value: Any, where: str) -> Any:
    """What the user's functions get: a plain value that they may even change without harm."""
    return value if type(value) in SCALARS else plain(value, where)
