"""Navigators of lists; most of those that change a list's length wait for a later version."""

from __future__ import annotations

from typing import Any, Final

from tidemill.language.dataflow import Nav
from tidemill.language.schema import ListSchema, Schema
from tidemill.paths.arguments import VALUES
from tidemill.paths.containers import PlainList, list_of
from tidemill.paths.fitting import SchemaFaults
from tidemill.paths.navigator import Collected, Hits, Navigator, Steps, Values
from tidemill.paths.nodes import UNCHANGED, ListNode
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


class OneElement(Steps):
    """A navigator to one element of a list; `place` gives its index, or None to navigate nowhere."""

    def place(self, size: int, values: Values) -> int | None:
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
        kept = items[:index] + ([] if new is ABSENT else [new]) + items[index + 1 :]
        if isinstance(value, ListNode):
            value.replace(kept, self.where)
            return UNCHANGED
        return kept


class First(OneElement):
    def place(self, size: int, values: Values) -> int | None:
        return 0 if size else None


class Last(OneElement):
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


def _element(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    faults.expect(nav, schema, "list")
    return schema.element if isinstance(schema, ListSchema) and len(nav.args) < 2 else None


# --- records ---------------------------------------------------------------------------------------------------------

NAVIGATORS: Final = (
    Navigator("first", First, after=_element, looks_through=True),
    Navigator("last", Last, after=_element, looks_through=True),
    Navigator("nth", Nth, VALUES, _element, is_repeated=True, looks_through=True),
    *map(
        Navigator,
        ("index", "indexed_vals", "before_elem", "after_elem", "before_index", "beginning", "end", "sublist",
         "sublist_dynamic", "filtered_list"),
    ),
)  # fmt: skip
