"""Navigators that stay or stop, and views: navigators to a value made from the value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.language.operations import is_true
from tidemill.paths.binding import BoundNav
from tidemill.paths.containers import UNCHANGED, map_of, node_kind, plain, set_of
from tidemill.paths.navigator import Builder, Hits, Navigator, Step, private, selects_any
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath

Values = Sequence[Any]
Collected = tuple[Any, ...]


class Filter(Navigator):
    """A navigator that passes the value on, or navigates nowhere."""

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        if not self.passes(value, values, collected):
            return ()
        hits: Hits = self.following(value, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return self.following(value, values, collected) if self.passes(value, values, collected) else UNCHANGED


class Stay(Filter):
    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return True


class Stop(Filter):
    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return False


class FilterPred(Filter):
    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.call = self.function()

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return is_true(self.call(private(value, self.where)))


class IsCollected(FilterPred):
    """`is_collected(fn)`: stay where `fn(collected values)` is true."""

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return is_true(self.call([private(item, self.where) for item in collected]))


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "filter_equal": operator.eq,
    "filter_not_equal": operator.ne,
    "filter_less_than": operator.lt,
    "filter_less_than_or_equal": operator.le,
    "filter_greater_than": operator.gt,
    "filter_greater_than_or_equal": operator.ge,
}


class Comparison(Filter):
    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        limit = values[self.slot()]
        if node_kind(value):
            plain(value, self.where)
        try:
            return bool(_COMPARISONS[self.name](value, limit))
        except TypeError:
            kinds = (type(value).__name__, type(limit).__name__)
            text = f"{self.where}: {self.name} cannot compare {kinds[0]} with {kinds[1]}"
            raise BadPath(text, navigator=self.name) from None


class FilterSelected(Filter):
    """`filter_selected(path)`: stay where the path selects at least one value."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.condition = builder.condition(self.path())
        self.is_wanted = nav.name == "filter_selected"

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return selects_any(self.condition, value, values, collected) is self.is_wanted


class View(Navigator):
    """A navigator to a value made from the value; in a transform it replaces the value, and then the path goes on."""

    def seen(self, value: Any, values: Values) -> Any:
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.following(self.seen(value, values), values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        seen = self.seen(value, values)
        new = self.following(seen, values, collected)
        return new if new is not UNCHANGED else UNCHANGED if seen is value else seen


class Default(View):
    """`null_to_val(v)`, `null_to_list()`, `null_to_set()`."""

    def seen(self, value: Any, values: Values) -> Any:
        if value is not None:
            return value
        if self.name == "null_to_list":
            return []
        return set() if self.name == "null_to_set" else values[self.slot()]


class Viewed(View):
    """`view(fn, args…)`: `fn(value, args…)`; size and membership of an indexed structure need no reading of it."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.call = self.function()
        is_built_in = nav.functions[0].kind == "builtin"
        self.on_node = _ON_NODES.get(nav.functions[0].name) if is_built_in else None

    def seen(self, value: Any, values: Values) -> Any:
        args = [values[slot] for slot in self.slots]
        if self.on_node is not None and node_kind(value):
            return self.on_node(value, *args)
        return self.call(private(value, self.where), *args)


def _node_size(node: Any) -> int:
    if node_kind(node) == "record":
        return sum(1 for _ in node.fields())
    size: int = node.size()
    return size


def _node_contains(node: Any, element: Any) -> bool:
    if node_kind(node) == "set":
        return bool(set_of(node, "view", "").contains(element))
    return map_of(node, "view", "", is_keyed=True).get(element) is not ABSENT


_ON_NODES: dict[str, Callable[..., Any]] = {"SIZE": _node_size, "CONTAINS": _node_contains}


class Transformed(View):
    """`transformed(path)`: the value after a transform path was applied to a copy of it."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.replacement = builder.replacement(self.path())

    def seen(self, value: Any, values: Values) -> Any:
        plain(value, self.where)
        new = self.replacement(value, values, ())
        return value if new is UNCHANGED else None if new is ABSENT else new
