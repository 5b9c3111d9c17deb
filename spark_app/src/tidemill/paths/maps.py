"""Navigators of maps, and `all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.paths.binding import BoundNav, Slot
from tidemill.paths.containers import (
    UNCHANGED,
    KeyBounds,
    assign,
    is_empty_node,
    list_of,
    map_of,
    node_kind,
    refill_list,
    set_of,
)
from tidemill.paths.navigator import Builder, Hits, Navigator, Step, settle
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath
from tidemill.values.keys import plain_map, same_key

Values = Sequence[Any]
Collected = tuple[Any, ...]


class Key(Navigator):
    """`key(k)`: the value at a key, None where it is absent."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        key = values[self.slots[0]]
        found = map_of(value, self.name, self.where, is_keyed=True).get(key)
        hits: Hits = self.following(None if found is ABSENT else found, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        key = values[self.slots[0]]
        container = map_of(value, self.name, self.where, is_keyed=True)
        old = container.get(key)
        new = self.following(None if old is ABSENT else old, values, collected)
        settle(container, key, old, new, self.where)
        return container.result()


class Must(Navigator):
    """`must(k)`: as `key`, but an absent key navigates nowhere."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        found = map_of(value, self.name, self.where, is_keyed=True).get(values[self.slots[0]])
        if found is ABSENT or is_empty_node(found):
            return ()
        hits: Hits = self.following(found, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        key = values[self.slots[0]]
        container = map_of(value, self.name, self.where, is_keyed=True)
        old = container.get(key)
        if old is ABSENT or is_empty_node(old):
            return UNCHANGED
        settle(container, key, old, self.following(old, values, collected), self.where)
        return container.result()


class MapVals(Navigator):
    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        entries = map_of(value, self.name, self.where).items()
        for _, item in entries:
            yield from self.following(item, values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        container = map_of(value, self.name, self.where)
        for key, item in list(container.items()):
            settle(container, key, item, self.following(item, values, collected), self.where)
        return container.result()


class MapKeys(Navigator):
    """Every key; a transform renames it, so all changed keys leave before any new one comes in."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        entries = map_of(value, self.name, self.where).items()
        for key, _ in entries:
            yield from self.following(key, values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        container = map_of(value, self.name, self.where)
        renamed = []
        for key, item in list(container.items()):
            new = self.following(key, values, collected)
            if new is not UNCHANGED and not same_key(new, key):
                renamed.append((key, new, item))
        rename(container, renamed, self)
        return container.result()


class MapKey(Navigator):
    """`map_key(k)`: the key itself where it is present."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        key = values[self.slot()]
        found = map_of(value, self.name, self.where).get(key)
        if found is ABSENT or is_empty_node(found):
            return ()
        hits: Hits = self.following(key, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        key = values[self.slot()]
        container = map_of(value, self.name, self.where)
        item = container.get(key)
        if item is ABSENT or is_empty_node(item):
            return UNCHANGED
        new = self.following(key, values, collected)
        if new is not UNCHANGED and not same_key(new, key):
            rename(container, [(key, new, item)], self)
        return container.result()


def rename(container: Any, renamed: Sequence[tuple[Any, Any, Any]], navigator: Navigator) -> None:
    """Move (old key, new key, value); a new key of ABSENT removes the entry."""
    for _, new, item in renamed:
        if new is not ABSENT and node_kind(item):
            text = f"{navigator.where}: {navigator.name} cannot rename a key that holds an indexed structure"
            raise BadPath(text, navigator=navigator.name)
    for key, _, _ in renamed:
        container.delete(key)
    for _, new, item in renamed:
        if new is not ABSENT:
            container.put(new, item)


class SubMap(Navigator):
    """`sub_map(k…)`: the part of a map with these keys; a transform replaces that part."""

    def entries(self, container: Any, values: Values) -> Iterable[tuple[Any, Any]]:
        for slot in self.slots:
            key = values[slot]
            item = container.get(key)
            if item is not ABSENT and not is_empty_node(item):
                yield key, item

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        part = plain_map(self.metered(self.entries(map_of(value, self.name, self.where), values)))
        hits: Hits = self.following(part, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        container = map_of(value, self.name, self.where)
        part = plain_map(self.metered(self.entries(container, values)))
        new = self.following(part, values, collected)
        if new is UNCHANGED:
            return UNCHANGED
        kept = {} if new is ABSENT or new is None else new
        if not isinstance(kept, dict):
            raise BadPath(f"{self.where}: {self.name} can become a map or None, not {kept!r}", navigator=self.name)
        for key in part:
            if key not in kept:
                container.delete(key)
        for key, item in kept.items():
            if key not in part or part[key] is not item:
                assign(container, key, item, self.where)
        return container.result()


def _count(limit: Any) -> int:
    """Raises BadPath: it is none."""
    if type(limit) is not int or limit < 0:
        raise BadPath(f"the greatest number of elements of a range is {limit!r}, which is no count", limit=limit)
    return limit


class Bounds:
    """The bounds of a sorted range navigator, made anew from the values of each call."""

    def __init__(self, nav: BoundNav) -> None:
        self._kind = nav.name.replace("_set_", "_map_")
        self._slots = nav.slots
        self._includes_start = _flag(nav, "include_start", "exclude_start", default=True)
        self._includes_end = _flag(nav, "include_end", "exclude_end", default=False)
        self._limit = nav.option("max_amt")
        wanted = 2 if self._kind == "sorted_map_range" else 1
        if not wanted <= len(nav.slots) <= 2:
            raise BadPath(f"{nav.where}: {nav.name} needs {wanted} arguments", navigator=nav.name)

    def of(self, values: Values) -> KeyBounds:
        first = values[self._slots[0]]
        start_in, end_in = self._includes_start, self._includes_end
        if self._kind == "sorted_map_range":
            return KeyBounds(first, values[self._slots[1]], start_in, end_in, self._amount(values, False))
        if self._kind == "sorted_map_range_from":
            return KeyBounds(first, None, start_in, end_in, self._amount(values, True))
        if self._kind == "sorted_map_range_to":
            return KeyBounds(None, first, start_in, end_in, self._amount(values, True), is_reverse=True)
        return KeyBounds(limit=_count(first), is_reverse=self._kind == "sorted_map_range_to_end")

    def _amount(self, values: Values, may_be_argument: bool) -> int | None:
        limit = self._limit.of(values) if isinstance(self._limit, Slot) else self._limit
        if limit is None and may_be_argument and len(self._slots) == 2:
            limit = values[self._slots[1]]
        return None if limit is None else _count(limit)


def _flag(nav: BoundNav, included: str, excluded: str, *, default: bool) -> bool:
    return bool(nav.option(included, default=not nav.option(excluded, default=not default)))


class SortedMapRange(SubMap):
    """All `sorted_map_range…` navigators: they differ in their bounds."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.bounds = Bounds(nav)

    def entries(self, container: Any, values: Values) -> Iterable[tuple[Any, Any]]:
        found: Iterable[tuple[Any, Any]] = container.items(self.bounds.of(values))
        return found


class All(Navigator):
    """Every element: `[key, value]` of a map, elements of a list or a set."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        for item in elements_of(value, self):
            yield from self.following(item, values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        kind = node_kind(value)
        if isinstance(value, dict) or kind in ("map", "record"):
            return self._transform_map(value, values, collected)
        if isinstance(value, (set, frozenset)) or kind == "set":
            return transform_elements(set_of(value, self.name, self.where), None, self, values, collected)
        return self._transform_list(value, values, collected)

    def _transform_map(self, value: Any, values: Values, collected: Collected) -> Any:
        container = map_of(value, self.name, self.where)
        renamed = []
        for key, item in list(container.items()):
            new = self.following([key, item], values, collected)
            if new is UNCHANGED:
                continue
            pair = self._pair(new)
            if pair is None:
                container.delete(key)
                continue
            new_key, new_item = pair
            if same_key(new_key, key):
                settle(container, key, item, UNCHANGED if new_item is item else new_item, self.where)
            else:
                renamed.append((key, new_key, new_item))
        rename(container, renamed, self)
        return container.result()

    def _pair(self, new: Any) -> tuple[Any, Any] | None:
        """The new key and value; None for an entry that is gone, itself or one half of it."""
        if new is ABSENT or (isinstance(new, (list, tuple)) and len(new) < 2):
            return None
        if not isinstance(new, (list, tuple)) or len(new) != 2:
            raise BadPath(f"{self.where}: an entry of a map can become [key, value], not {new!r}", navigator=self.name)
        return new[0], new[1]

    def _transform_list(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        changed = [self.following(item, values, collected) for item in items]
        if all(new is UNCHANGED for new in changed):
            return UNCHANGED
        kept = [
            item if new is UNCHANGED else new for item, new in zip(items, changed, strict=True) if new is not ABSENT
        ]
        if node_kind(value) == "list":
            refill_list(value, kept)
            return UNCHANGED
        return kept


def elements_of(value: Any, navigator: Navigator) -> Iterable[Any]:
    """What `all` navigates to, in the order of the container."""
    kind = node_kind(value)
    if isinstance(value, dict) or kind in ("map", "record"):
        return ([key, item] for key, item in map_of(value, navigator.name, navigator.where).items())
    if isinstance(value, (set, frozenset)) or kind == "set":
        elements: Iterable[Any] = set_of(value, navigator.name, navigator.where).elements()
        return elements
    if kind == "list":
        items: Iterable[Any] = value.values()
        return items
    return list_of(value, navigator.name, navigator.where)


def transform_elements(
    container: Any, bounds: KeyBounds | None, navigator: Navigator, values: Values, collected: Collected
) -> Any:
    """Replace elements of a set one by one: all that change leave before any new one comes in."""
    changed = []
    for element in list(container.elements(bounds)):
        new = navigator.following(element, values, collected)
        if new is not UNCHANGED and not same_key(new, element):
            changed.append((element, new))
    for element, _ in changed:
        container.discard(element)
    for _, new in changed:
        if new is not ABSENT:
            container.add(new)
    return container.result()
