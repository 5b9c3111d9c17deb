"""Navigators to one element of a list, to its index, and to the places where new elements go."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tidemill.language.dataflow import Nav
from tidemill.language.schema import Leaf, Schema
from tidemill.paths.arguments import VALUE, VALUES
from tidemill.paths.containers import list_of
from tidemill.paths.navigator import (
    BoundNav,
    Builder,
    Collected,
    Hits,
    Navigator,
    Step,
    Steps,
    Values,
    change_entry,
    pair_of,
)
from tidemill.paths.nodes import UNCHANGED
from tidemill.paths.schema_fit import SchemaFaults, a_list, part_of_list
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


def no_place(steps: Steps, size: int, index: Any) -> BadPath:
    """The error of an index that a list does not have."""
    return BadPath(f"{steps.where}: a list of {size} elements has no place {index!r}", navigator=steps.name)


def is_index(index: Any, size: int) -> bool:
    """Whether a list of `size` elements has one there; True and 1.0 are no indexes."""
    return type(index) is int and 0 <= index < size


class OneElement(Steps):
    """A navigator to one element of a list; `place` gives its index, or None to navigate nowhere."""

    def place(self, size: int, values: Values) -> int | None:
        """The index in a list of `size` elements.

        Raises:
            BadPath: the argument is none that this list has.
        """
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        items = list_of(value, self.name, self.where)
        index = self.place(items.size(), values)
        if index is None:
            return ()
        hits: Hits = self.following(items.get(index), values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        index = self.place(items.size(), values)
        if index is None:
            return UNCHANGED
        old = items.get(index)
        change_entry(items, index, old, self.following(old, values, collected), self.where)
        return items.result()


class First(OneElement):
    """`first()`: the first element; an empty list leads nowhere."""

    def place(self, size: int, values: Values) -> int | None:
        return 0 if size else None


class Last(OneElement):
    """`last()`: the last element; an empty list leads nowhere."""

    def place(self, size: int, values: Values) -> int | None:
        return size - 1 if size else None


class Nth(OneElement):
    """`nth(i)`: element i; a place outside the list is an error of the caller."""

    def place(self, size: int, values: Values) -> int | None:
        index = values[self.slots[0]]
        if not is_index(index, size):
            raise no_place(self, size, index)
        return int(index)


class AtIndex(Steps):
    """`index(i)`: the index itself where the list has it; a transform moves the element to another index."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        index = values[self.slots[0]]
        if not is_index(index, list_of(value, self.name, self.where).size()):
            return ()
        hits: Hits = self.following(index, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        index = values[self.slots[0]]
        items = list_of(value, self.name, self.where)
        size = items.size()
        if not is_index(index, size):
            return UNCHANGED
        new: Any = self.following(index, values, collected)
        if new is ABSENT:
            items.delete(index)
        elif new is not UNCHANGED:
            if not is_index(new, size):
                raise no_place(self, size, new)
            items.move(index, new)
        return items.result()


class IndexedVals(Steps):
    """`indexed_vals()`: `[index, element]` of each; a transform replaces elements, and moves those whose index it
    changes. The indexes that it meets take into account what moved before.
    """

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        for index, item in enumerate(list_of(value, self.name, self.where).elements()):
            yield from self.following([index, item], values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        container = list_of(value, self.name, self.where)
        old = list(container.elements())
        new: list[Any] = list(old)
        order, has_moved = list(range(len(old))), False  # which element, by its first index, stands where
        for first, item in enumerate(old):
            index = order.index(first) if has_moved else first
            pair = self.following([index, item], values, collected)
            if pair is UNCHANGED:
                continue
            place, new[first] = pair_of(pair, self, "an element can become [index, value]") or (index, ABSENT)
            if not is_index(place, len(old)):
                raise no_place(self, len(old), place)
            if place != index:
                order.insert(place, order.pop(index))
                has_moved = True
        if has_moved or any(item is not before for item, before in zip(new, old, strict=True)):
            container.splice(0, old, [new[first] for first in order if new[first] is not ABSENT])
        return container.result()


class Insertion(Steps):
    """`before_elem()`, `after_elem()`, `before_index(i)`: the place where a transform puts one new element; nothing can
    be selected there.
    """

    def __init__(self, is_at_end: bool, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.is_at_end = is_at_end

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        return ()

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        place = self._place(items.size(), values)
        new = self.following(None, values, collected)
        if new is not UNCHANGED and new is not ABSENT:
            items.splice(place, [], [new])
        return items.result()

    def _place(self, size: int, values: Values) -> int:
        if not self.slots:
            return size if self.is_at_end else 0
        index = values[self.slots[0]]
        if not is_index(index, size + 1):
            raise no_place(self, size, index)
        return int(index)


# --- schemas ---------------------------------------------------------------------------------------------------------


def _element(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    found = part_of_list(faults, nav, schema)
    return found.element if found is not None and len(nav.args) < 2 else None


def _index(faults: SchemaFaults, nav: Nav, schema: Schema) -> Leaf | None:
    return Leaf("int") if part_of_list(faults, nav, schema) is not None else None


def _indexed(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    return a_list(faults, nav, schema) if part_of_list(faults, nav, schema) is not None else None


NAVIGATORS: Final = (
    Navigator("first", First, after=_element),
    Navigator("last", Last, after=_element),
    Navigator("nth", Nth, VALUES, _element, is_repeated=True),
    Navigator("index", AtIndex, VALUE, _index),
    Navigator("indexed_vals", IndexedVals, after=_indexed, looks_through=True),
    Navigator("before_elem", partial(Insertion, False), after=_element),
    Navigator("after_elem", partial(Insertion, True), after=_element),
    Navigator("before_index", partial(Insertion, False), VALUE, _element),
)
