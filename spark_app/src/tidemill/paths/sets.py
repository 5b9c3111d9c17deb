"""Navigators of sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.paths.binding import BoundNav
from tidemill.paths.containers import UNCHANGED, set_of
from tidemill.paths.maps import Bounds
from tidemill.paths.navigator import Builder, Hits, Navigator, Step
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath
from tidemill.values.keys import plain_set, same_key

Values = Sequence[Any]
Collected = tuple[Any, ...]


class SetElem(Navigator):
    """`set_elem(e)`: the element where it is in the set; a transform replaces it."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        element = values[self.slot()]
        if not set_of(value, self.name, self.where).contains(element):
            return ()
        hits: Hits = self.following(element, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        element = values[self.slot()]
        container = set_of(value, self.name, self.where)
        if not container.contains(element):
            return UNCHANGED
        new = self.following(element, values, collected)
        if new is not UNCHANGED and not same_key(new, element):
            container.discard(element)
            if new is not ABSENT:
                container.add(new)
        return container.result()


class VoidSetElem(Navigator):
    """`void_set_elem()`: the place where a transform adds an element; nothing can be selected there."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        return ()

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        new = self.following(None, values, collected)
        container = set_of(value, self.name, self.where)
        if new is not UNCHANGED and new is not ABSENT:
            container.add(new)
        return container.result()


class Subset(Navigator):
    """`subset(e…)`: the part of a set among these elements; a transform replaces that part."""

    def elements(self, container: Any, values: Values) -> Iterable[Any]:
        return (values[slot] for slot in self.slots if container.contains(values[slot]))

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        part = plain_set(self.metered(self.elements(set_of(value, self.name, self.where), values)))
        hits: Hits = self.following(part, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        container = set_of(value, self.name, self.where)
        part = plain_set(self.metered(self.elements(container, values)))
        new = self.following(part, values, collected)
        if new is UNCHANGED:
            return UNCHANGED
        kept = set() if new is ABSENT or new is None else new
        if not isinstance(kept, (set, frozenset)):
            raise BadPath(f"{self.where}: {self.name} can become a set or None, not {kept!r}", navigator=self.name)
        for element in part - kept:
            container.discard(element)
        for element in kept - part:
            container.add(element)
        return container.result()


class SortedSetRange(Subset):
    """All `sorted_set_range…` navigators."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.bounds = Bounds(nav)

    def elements(self, container: Any, values: Values) -> Iterable[Any]:
        found: Iterable[Any] = container.elements(self.bounds.of(values))
        return found
