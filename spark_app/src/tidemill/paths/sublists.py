"""Navigators to parts of a list, as lists of their own; a transform puts another list in place of the part."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from tidemill.language.operations import is_true
from tidemill.paths.arguments import CONDITION, FUNCTION, VALUE, ArgumentKinds
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
    private,
    selects_any,
)
from tidemill.paths.nodes import UNCHANGED, ListNode
from tidemill.paths.ranges import count_of_elements
from tidemill.paths.schema_fit import part_of_list
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


class PartOfList(Steps):
    """A navigator to the list of some neighbours; a transform replaces them by a list, which may be longer or shorter.

    `part` gives their indexes.
    """

    def part(self, items: ListNode, values: Values) -> range:
        """The indexes of the part.

        Raises:
            BadPath: an argument is no index or no count.
        """
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.following(self._found(list_of(value, self.name, self.where), values)[1], values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        start, found = self._found(items, values)
        new = elements_made(self.following(found, values, collected), self)
        if new is not None:
            items.splice(start, found, new)
        return items.result()

    def _found(self, items: ListNode, values: Values) -> tuple[int, list[Any]]:
        part = self.part(items, values)
        return part.start, list(self.metered(items.part(part.start, part.stop)))


def elements_made(new: Any, steps: Steps) -> list[Any] | None:
    """The elements that a transform puts in place of a part of a list; None: it is left as it was.

    Raises:
        BadPath: it is no list.
    """
    if new is UNCHANGED:
        return None
    among = [] if new is ABSENT or new is None else new
    if not isinstance(among, (list, tuple)):
        raise BadPath(f"{steps.where}: {steps.name} can become a list or None, not {among!r}", navigator=steps.name)
    return list(steps.metered(among))


class Sublist(PartOfList):
    """`sublist(a, b)`: the elements at the indexes [a, b), as far as the list goes."""

    def part(self, items: ListNode, values: Values) -> range:
        start, end = (values[slot] for slot in self.slots)
        return self.between(items.size(), start, end)

    def between(self, size: int, start: Any, end: Any) -> range:
        """The indexes from `start` on and before `end`. Raises BadPath: one of them is no index."""
        for index in (start, end):
            if type(index) is not int or index < 0:
                text = f"{self.where}: a list has no place {index!r}; places count from 0"
                raise BadPath(text, navigator=self.name)
        return range(min(start, size), max(min(start, size), min(end, size)))


class SublistDynamic(Sublist):
    """`sublist_dynamic(f, g)`: as `sublist`, from `f(list)` to `g(list, start)`."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.start, self.end = self.functions()

    def part(self, items: ListNode, values: Values) -> range:
        held = list(self.metered(items.elements()))
        start = self.start(private(held, self.where))
        return self.between(len(held), start, self.end(private(held, self.where), start))


class SublistToEnd(PartOfList):
    """`sublist_to_end(n)`: the last n elements, or all if there are fewer."""

    def part(self, items: ListNode, values: Values) -> range:
        size = items.size()
        return range(size - min(count_of_elements(values[self.slots[0]]), size), size)


class Beginning(PartOfList):
    """`beginning()`: the empty list before the first element."""

    def part(self, items: ListNode, values: Values) -> range:
        return range(0)


class End(PartOfList):
    """`end()`: the empty list after the last element."""

    def part(self, items: ListNode, values: Values) -> range:
        size = items.size()
        return range(size, size)


class FilteredList(Steps):
    """`filtered_list(path)`: the list of the elements from which the path selects something; a transform writes a new
    list back to the same places, and removes those for which it is too short.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.condition = builder.condition(nav.paths[0])

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        items = list_of(value, self.name, self.where).elements()
        wanted = (item for item in items if selects_any(self.condition, item, values, collected))
        hits: Hits = self.following(list(self.metered(wanted)), values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        old = list(items.elements())
        wanted = [index for index, item in enumerate(old) if selects_any(self.condition, item, values, collected)]
        made = elements_made(self.following([old[index] for index in wanted], values, collected), self)
        if made is not None:
            left: list[Any] = list(old)
            for position, index in enumerate(wanted):
                left[index] = made[position] if position < len(made) else ABSENT
            items.splice(0, old, [item for item in left if item is not ABSENT])
        return items.result()


class ContinuousSubseqs(Steps):
    """`continuous_subseqs(fn)`: each list of neighbours of which `fn` is true, as long as can be; a transform replaces
    each by a list.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.call = self.function()

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        items = self.metered(list_of(value, self.name, self.where).elements())
        for is_wanted, run in groupby(items, self._is_wanted):
            if is_wanted:
                yield from self.following(list(run), values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        items = list_of(value, self.name, self.where)
        old = list(items.elements())
        new: list[Any] = []
        for is_wanted, run in groupby(old, self._is_wanted):
            part = list(run)
            made = elements_made(self.following(part, values, collected), self) if is_wanted else None
            new += part if made is None else made
        if len(new) != len(old) or any(item is not before for item, before in zip(new, old, strict=True)):
            items.splice(0, old, new)
        return items.result()

    def _is_wanted(self, item: Any) -> bool:
        return is_true(self.call(private(item, self.where)))


NAVIGATORS: Final = (
    Navigator("beginning", Beginning, after=part_of_list),
    Navigator("end", End, after=part_of_list),
    Navigator("sublist", Sublist, ArgumentKinds(("value", "value")), part_of_list, looks_through=True),
    Navigator("sublist_to_end", SublistToEnd, VALUE, part_of_list, looks_through=True),
    Navigator(
        "sublist_dynamic", SublistDynamic, ArgumentKinds(("function", "function")), part_of_list,
        looks_through=True, copies=True,
    ),
    Navigator("filtered_list", FilteredList, CONDITION, part_of_list, is_about_elements=True, looks_through=True),
    Navigator("continuous_subseqs", ContinuousSubseqs, FUNCTION, part_of_list, looks_through=True),
)  # fmt: skip
