"""Navigators of lists; most of those that change a list's length wait for a later version."""

from __future__ import annotations

from typing import Any, Final

from tidemill.language.dataflow import Nav
from tidemill.language.schema import ListSchema, Schema
from tidemill.paths.arguments import VALUE, VALUES, ArgumentKinds
from tidemill.paths.containers import PlainList, list_of
from tidemill.paths.fitting import SchemaFaults
from tidemill.paths.navigator import Collected, Hits, Navigator, Steps, Values
from tidemill.paths.nodes import UNCHANGED, ListNode
from tidemill.paths.ranges import count_of_elements
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


class OneElement(Steps):
    """A navigator to one element of a list; `place` gives its index, or None to navigate nowhere."""

    def place(self, size: int, values: Values) -> int | None:
        """The index in a list of `size` elements.

        Raises:
            BadPath: the argument is none that this list has.
        """
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        items = value if isinstance(value, ListNode) else PlainList(list_of(value, self.name, self.where))
        index = self.place(items.size(), values)
        if index is None:
            return ()
        hits: Hits = self.following(items.get(index), values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        index = self.place(len(items), values)
        new = UNCHANGED if index is None else self.following(items[index], values, collected)
        if index is None or new is UNCHANGED:
            return UNCHANGED
        return changed_list(value, items[:index] + ([] if new is ABSENT else [new]) + items[index + 1 :], self.where)


class PartOfList(Steps):
    """A navigator to the list of some neighbours; a transform replaces them by a list, which may be longer or shorter.

    `part` gives their indexes.
    """

    def part(self, size: int, values: Values) -> range:
        """The indexes in a list of `size` elements.

        Raises:
            BadPath: an argument is no index or no count.
        """
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        items = value if isinstance(value, ListNode) else PlainList(list_of(value, self.name, self.where))
        found = list(self.metered(items.get(index) for index in self.part(items.size(), values)))
        hits: Hits = self.following(found, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        part = self.part(len(items), values)
        new = self.following(items[part.start : part.stop], values, collected)
        if new is UNCHANGED:
            return UNCHANGED
        among = [] if new is ABSENT or new is None else new
        if not isinstance(among, (list, tuple)):
            raise BadPath(f"{self.where}: {self.name} can become a list or None, not {among!r}", navigator=self.name)
        return changed_list(value, [*items[: part.start], *among, *items[part.stop :]], self.where)


class Sublist(PartOfList):
    """`sublist(a, b)`: the elements at the indexes [a, b), as far as the list goes."""

    def part(self, size: int, values: Values) -> range:
        start, end = (self._index(values[slot]) for slot in self.slots)
        return range(min(start, size), max(min(start, size), min(end, size)))

    def _index(self, index: Any) -> int:
        if type(index) is not int or index < 0:
            raise BadPath(f"{self.where}: a list has no place {index!r}; places count from 0", navigator=self.name)
        return index


class SublistToEnd(PartOfList):
    """`sublist_to_end(n)`: the last n elements, or all if there are fewer."""

    def part(self, size: int, values: Values) -> range:
        return range(size - min(count_of_elements(values[self.slots[0]]), size), size)


def changed_list(value: Any, kept: list[Any], where: str) -> Any:
    """What a transform of a list gives that shall hold the elements of `kept`."""
    if isinstance(value, ListNode):
        value.replace(kept, where)
        return UNCHANGED
    return kept


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
        if type(index) is not int or not 0 <= index < size:
            raise BadPath(f"{self.where}: a list of {size} elements has no place {index!r}", navigator=self.name)
        return index


# --- schemas ---------------------------------------------------------------------------------------------------------


def _part(faults: SchemaFaults, nav: Nav, schema: Schema) -> ListSchema | None:
    faults.expect(nav, schema, "list")
    return schema if isinstance(schema, ListSchema) else None


def _element(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    found = _part(faults, nav, schema)
    return found.element if found is not None and len(nav.args) < 2 else None


NAVIGATORS: Final = (
    Navigator("first", First, after=_element, looks_through=True),
    Navigator("last", Last, after=_element, looks_through=True),
    Navigator("nth", Nth, VALUES, _element, is_repeated=True, looks_through=True),
    Navigator("sublist", Sublist, ArgumentKinds(("value", "value")), _part, looks_through=True),
    Navigator("sublist_to_end", SublistToEnd, VALUE, _part, looks_through=True),
    *map(
        Navigator,
        ("index", "indexed_vals", "before_elem", "after_elem", "before_index", "beginning", "end",
         "sublist_dynamic", "filtered_list"),
    ),
)  # fmt: skip
