"""Navigators of lists; those that change a list's length wait for a later version (`paths.REFUSED`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.paths.containers import UNCHANGED, list_of, node_kind, refill_list
from tidemill.paths.navigator import Hits, Navigator
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath

Values = Sequence[Any]
Collected = tuple[Any, ...]


class ListPlace(Navigator):
    """A navigator to one element of a list; `place` gives its index, or None to navigate nowhere."""

    def place(self, size: int, values: Values) -> int | None:
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        is_node = node_kind(value) == "list"
        items: Sequence[Any] = () if is_node else list_of(value, self.name, self.where)
        index = self.place(value.size() if is_node else len(items), values)
        if index is None:
            return ()
        hits: Hits = self.following(value.get_at(index) if is_node else items[index], values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        index = self.place(len(items), values)
        new = UNCHANGED if index is None else self.following(items[index], values, collected)
        if index is None or new is UNCHANGED:
            return UNCHANGED
        kept = items[:index] + ([] if new is ABSENT else [new]) + items[index + 1 :]
        if node_kind(value) == "list":
            refill_list(value, kept)
            return UNCHANGED
        return kept


class First(ListPlace):
    def place(self, size: int, values: Values) -> int | None:
        return 0 if size else None


class Last(ListPlace):
    def place(self, size: int, values: Values) -> int | None:
        return size - 1 if size else None


class Nth(ListPlace):
    """`nth(i)`: element i; a place outside the list is an error of the caller."""

    def place(self, size: int, values: Values) -> int | None:
        index = values[self.slots[0]]
        if type(index) is not int or not 0 <= index < size:
            raise BadPath(f"{self.where}: a list of {size} elements has no place {index!r}", navigator=self.name)
        return index
