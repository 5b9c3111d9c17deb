"""Navigators that stay or stop, and views: navigators to a value made from the value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidemill.language.operations import equal, is_true
from tidemill.paths.arguments import CALL, CONDITION, FUNCTION, VALUE, ArgumentKinds
from tidemill.paths.containers import map_of, plain
from tidemill.paths.navigator import (
    BoundNav,
    Builder,
    Collected,
    Hits,
    Navigator,
    Step,
    Steps,
    Values,
    private,
    selects_any,
)
from tidemill.paths.nodes import UNCHANGED, ListNode, Node, SetNode
from tidemill.paths.points import update_or_begin
from tidemill.paths.schema_fit import stays
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


class Filter(Steps):
    """A navigator that passes the value on, or navigates nowhere."""

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        """Whether the path goes on from this value."""
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        if not self.passes(value, values, collected):
            return ()
        hits: Hits = self.following(value, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return self.following(value, values, collected) if self.passes(value, values, collected) else UNCHANGED


class Stay(Filter):
    """`stay()`: pass every value on."""

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return True


class Nowhere(Filter):
    """`stop()`: pass nothing on, so that a select has no hits and a transform changes nothing."""

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return False


class FilterPred(Filter):
    """`filter_pred(fn)`: stay where `fn(value)` is true; it is called with a copy."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.call = self.function()

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return is_true(self.call(private(value, self.where)))


class IsCollected(FilterPred):
    """`is_collected(fn)`: stay where `fn(collected values)` is true."""

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return is_true(self.call([private(item, self.where) for item in collected]))


class Comparison(Filter):
    """`filter_equal(v)` and its kind: stay where the value compares so with `v`."""

    def __init__(self, compare: Callable[[Any, Any], Any], nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.compare = compare

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        limit = values[self.slots[0]]
        if isinstance(value, Node):
            plain(value, self.where)
        try:
            return bool(self.compare(value, limit))
        except TypeError:
            kinds = (type(value).__name__, type(limit).__name__)
            text = f"{self.where}: {self.name} cannot compare {kinds[0]} with {kinds[1]}"
            raise BadPath(text, navigator=self.name) from None


def _differs(value: Any, limit: Any) -> bool:
    return not equal(value, limit)


class FilterSelected(Filter):
    """`filter_selected(path)`: stay where the path selects at least one value; or, where it selects none."""

    def __init__(self, is_wanted: bool, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.condition = builder.condition(nav.paths[0])
        self.is_wanted = is_wanted

    def passes(self, value: Any, values: Values, collected: Collected) -> bool:
        return selects_any(self.condition, value, values, collected) is self.is_wanted


class View(Steps):
    """A navigator to a value made from the value; in a transform it replaces the value, and then the path goes on."""

    def seen(self, value: Any, values: Values) -> Any:
        """The value that the path goes on with."""
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.following(self.seen(value, values), values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        seen = self.seen(value, values)
        new = self.following(seen, values, collected)
        return new if new is not UNCHANGED else UNCHANGED if seen is value else seen


class NullToValue(View):
    """`null_to_val(v)`: `v` in place of None."""

    def seen(self, value: Any, values: Values) -> Any:
        return values[self.slots[0]] if value is None else value


class NullToEmpty(View):
    """`null_to_list()`, `null_to_set()`: an empty list or set in place of None."""

    def __init__(self, kind: type, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.kind = kind

    def seen(self, value: Any, values: Values) -> Any:
        return self.kind() if value is None else value


class Viewed(View):
    """`view(fn, args…)`: `fn(value, args…)`; size and membership of an indexed structure need no reading of it."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.call = self.function()
        is_built_in = nav.functions[0].kind == "builtin"
        self.on_node = _ON_NODES.get(nav.functions[0].name) if is_built_in else None

    def seen(self, value: Any, values: Values) -> Any:
        args = [values[slot] for slot in self.slots]
        if self.on_node is not None and isinstance(value, Node):
            return self.on_node(self, value, *args)
        return self.call(private(value, self.where), *args)


def _size(_: Viewed, node: Node) -> int:
    return node.size()


def _contains(view: Viewed, node: Node, element: Any) -> bool:
    if isinstance(node, SetNode):
        return node.contains(element)
    if isinstance(node, ListNode):  # element by element, as the operation itself compares them
        return any(view.call([private(held, view.where)], element) for held in node.elements())
    return map_of(node, "view", view.where).get(element) is not ABSENT


_ON_NODES: dict[str, Callable[..., Any]] = {"SIZE": _size, "CONTAINS": _contains}


class Transformed(View):
    """`transformed(path)`: the value after a transform path was applied to a copy of it."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.replacement = builder.replacement(nav.paths[0])

    def seen(self, value: Any, values: Values) -> Any:
        plain(value, self.where)
        new = self.replacement(value, values, ())
        return value if new is UNCHANGED else None if new is ABSENT else new


def _comparison(name: str, compare: Callable[[Any, Any], Any]) -> Navigator:
    return Navigator(name, partial(Comparison, compare), VALUE, stays)


NAVIGATORS: Final = (
    Navigator("stay", Stay, after=stays, is_identity=True),
    Navigator("stop", Nowhere, is_nowhere=True),
    Navigator("filter_pred", FilterPred, FUNCTION, stays, copies=True),
    Navigator("is_collected", IsCollected, FUNCTION, stays, copies=True, uses_collected=True),
    _comparison("filter_equal", equal),
    _comparison("filter_not_equal", _differs),
    _comparison("filter_less_than", operator.lt),
    _comparison("filter_less_than_or_equal", operator.le),
    _comparison("filter_greater_than", operator.gt),
    _comparison("filter_greater_than_or_equal", operator.ge),
    Navigator("filter_selected", partial(FilterSelected, True), CONDITION, stays),
    Navigator("filter_not_selected", partial(FilterSelected, False), CONDITION, stays),
    Navigator("null_to_val", NullToValue, VALUE, stays, point=update_or_begin),
    Navigator("null_to_list", partial(NullToEmpty, list), after=stays),
    Navigator("null_to_set", partial(NullToEmpty, set), after=stays),
    Navigator("view", Viewed, CALL, copies=True),
    Navigator("transformed", Transformed, ArgumentKinds(("change",)), copies=True),
)
