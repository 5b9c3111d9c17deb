"""Navigators of sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidemill.language.dataflow import Nav
from tidemill.language.schema import Leaf, Schema, SetSchema
from tidemill.paths.arguments import VALUE, VALUES
from tidemill.paths.containers import set_of
from tidemill.paths.navigator import BoundNav, Builder, Collected, Hits, Navigator, Step, Steps, Values
from tidemill.paths.nodes import UNCHANGED
from tidemill.paths.points import add_element, discard_element
from tidemill.paths.ranges import BoundsOfCalls, SortedRange, range_navigators
from tidemill.paths.schema_fit import SchemaFaults, plain_part
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath
from tidemill.values.keys import key_token, plain_set, same_key


class SetElem(Steps):
    """`set_elem(e)`: the element where it is in the set; a transform replaces it."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        element = values[self.slots[0]]
        if not set_of(value, self.name, self.where).contains(element):
            return ()
        hits: Hits = self.following(element, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        element = values[self.slots[0]]
        container = set_of(value, self.name, self.where)
        if not container.contains(element):
            return UNCHANGED
        new = self.following(element, values, collected)
        if new is not UNCHANGED and not same_key(new, element):
            container.discard(element)
            if new is not ABSENT:
                container.add(new)
        return container.result()


class VoidSetElem(Steps):
    """`void_set_elem()`: the place where a transform adds an element; nothing can be selected there."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        return ()

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        new = self.following(None, values, collected)
        container = set_of(value, self.name, self.where)
        if new is not UNCHANGED and new is not ABSENT:
            container.add(new)
        return container.result()


class Subset(Steps):
    """`subset(e…)`: the part of a set among these elements; a transform replaces that part."""

    def elements(self, container: Any, values: Values) -> Iterable[Any]:
        """The part's elements."""
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
        before, after = ({key_token(element): element for element in held} for held in (part, kept))
        for token in before.keys() - after.keys():
            container.discard(before[token])
        for token in after.keys() - before.keys():
            container.add(after[token])
        return container.result()


class SortedSetRange(Subset):
    """All `sorted_set_range…` navigators: they differ in their bounds."""

    def __init__(self, kind: SortedRange, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.bounds = BoundsOfCalls(kind, nav)

    def elements(self, container: Any, values: Values) -> Iterable[Any]:
        found: Iterable[Any] = container.elements(self.bounds.of(values))
        return found


# --- schemas ---------------------------------------------------------------------------------------------------------


def _set(faults: SchemaFaults, nav: Nav, schema: Schema) -> SetSchema | None:
    """A part of the set that it meets."""
    faults.expect(nav, schema, "set")
    return plain_part(schema) if isinstance(schema, SetSchema) else None


def _part(faults: SchemaFaults, nav: Nav, schema: Schema) -> SetSchema | None:
    found = _set(faults, nav, schema)
    if found is not None:
        for element in nav.args:
            faults.check_key(element, found)
    return found


def _element(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    found = _part(faults, nav, schema)
    return Leaf(found.element) if found is not None else None


NAVIGATORS: Final = (
    Navigator("set_elem", SetElem, VALUE, _element, is_at_key=True, point=discard_element),
    Navigator("void_set_elem", VoidSetElem, after=_element, is_at_key=True, point=add_element),
    Navigator("subset", Subset, VALUES, _part, looks_through=True),
    *range_navigators("sorted_set_range", SortedSetRange, _set),
)
