"""Navigators of maps, and `all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidemill.language.dataflow import Nav
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema
from tidemill.paths.arguments import VALUE, VALUES
from tidemill.paths.containers import PlainMap, PlainSet, list_of, map_of, set_of
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
from tidemill.paths.nodes import UNCHANGED, MapNode, Node, SetNode, assign, is_empty_node
from tidemill.paths.ranges import BoundsOfCalls, SortedRange, range_navigators
from tidemill.paths.schema_fit import SchemaFaults, a_list, kind_of, plain_part
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath
from tidemill.values.keys import key_token, plain_map, same_key


class AtKey(Steps):
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
        change_entry(container, key, old, new, self.where)
        return container.result()


class AtPresentKey(Steps):
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
        change_entry(container, key, old, self.following(old, values, collected), self.where)
        return container.result()


class MapVals(Steps):
    """`map_vals()`: each value of a map; a transform replaces or removes it at its key."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        entries = map_of(value, self.name, self.where).items()
        for _, item in entries:
            yield from self.following(item, values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        container = map_of(value, self.name, self.where)
        for key, item in list(container.items()):
            change_entry(container, key, item, self.following(item, values, collected), self.where)
        return container.result()


class MapKeys(Steps):
    """`map_keys()`: every key; a transform renames it, so all changed keys leave before any new one comes in."""

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


class MapKey(Steps):
    """`map_key(k)`: the key itself where it is present."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        key = values[self.slots[0]]
        found = map_of(value, self.name, self.where).get(key)
        if found is ABSENT or is_empty_node(found):
            return ()
        hits: Hits = self.following(key, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        key = values[self.slots[0]]
        container = map_of(value, self.name, self.where)
        item = container.get(key)
        if item is ABSENT or is_empty_node(item):
            return UNCHANGED
        new = self.following(key, values, collected)
        if new is not UNCHANGED and not same_key(new, key):
            rename(container, [(key, new, item)], self)
        return container.result()


def rename(container: Any, renamed: Sequence[tuple[Any, Any, Any]], steps: Steps) -> None:
    """Move (old key, new key, value); a new key of ABSENT removes the entry."""
    for _, new, item in renamed:
        if new is not ABSENT and isinstance(item, Node):
            text = f"{steps.where}: {steps.name} cannot rename a key that holds an indexed structure"
            raise BadPath(text, navigator=steps.name)
    for key, _, _ in renamed:
        container.delete(key)
    for _, new, item in renamed:
        if new is not ABSENT:
            container.put(new, item)


class SubMap(Steps):
    """`sub_map(k…)`: the part of a map with these keys; a transform replaces that part."""

    def entries(self, container: Any, values: Values) -> Iterable[tuple[Any, Any]]:
        """(key, element) of the part's entries."""
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
        before, after = ({key_token(key): key for key in held} for held in (part, kept))
        for token, key in before.items():
            if token not in after:
                container.delete(key)
        for token, key in after.items():
            item = kept[key]
            if token not in before or part[before[token]] is not item:
                assign(container, key, item, self.where)
        return container.result()


class SortedMapRange(SubMap):
    """All `sorted_map_range…` navigators: they differ in their bounds."""

    def __init__(self, kind: SortedRange, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.bounds = BoundsOfCalls(kind, nav)

    def entries(self, container: Any, values: Values) -> Iterable[tuple[Any, Any]]:
        found: Iterable[tuple[Any, Any]] = container.items(self.bounds.of(values))
        return found


class All(Steps):
    """`all()`: every element: `[key, value]` of a map, elements of a list or a set."""

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        for item in elements_of(value, self):
            yield from self.following(item, values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        if isinstance(value, (dict, MapNode)):
            return self._transform_map(value, values, collected)
        if isinstance(value, (set, frozenset, SetNode)):
            return transform_elements(set_of(value, self.name, self.where), self, values, collected)
        return self._transform_list(value, values, collected)

    def _transform_map(self, value: Any, values: Values, collected: Collected) -> Any:
        container = map_of(value, self.name, self.where)
        renamed = []
        for key, item in list(container.items()):
            new = self.following([key, item], values, collected)
            if new is UNCHANGED:
                continue
            pair = pair_of(new, self, "an entry of a map can become [key, value]")
            if pair is None:
                container.delete(key)
                continue
            new_key, new_item = pair
            if same_key(new_key, key):
                change_entry(container, key, item, UNCHANGED if new_item is item else new_item, self.where)
            else:
                renamed.append((key, new_key, new_item))
        rename(container, renamed, self)
        return container.result()

    def _transform_list(self, value: Any, values: Values, collected: Collected) -> Any:
        container = list_of(value, self.name, self.where)
        items = list(container.elements())
        changed = [self.following(item, values, collected) for item in items]
        if any(new is not UNCHANGED for new in changed):
            kept = [item if new is UNCHANGED else new for item, new in zip(items, changed, strict=True)]
            container.splice(0, items, [item for item in kept if item is not ABSENT])
        return container.result()


def elements_of(value: Any, steps: Steps) -> Iterable[Any]:
    """What `all` navigates to, in the order of the container."""
    if isinstance(value, Node):
        return value.elements()
    if isinstance(value, dict):
        return PlainMap(value).elements()
    if isinstance(value, (set, frozenset)):
        return PlainSet(value).elements()
    return list_of(value, steps.name, steps.where).elements()


def transform_elements(container: Any, steps: Steps, values: Values, collected: Collected) -> Any:
    """Replace elements of a set one by one: all that change leave before any new one comes in."""
    changed = []
    for element in list(container.elements()):
        new = steps.following(element, values, collected)
        if new is not UNCHANGED and not same_key(new, element):
            changed.append((element, new))
    for element, _ in changed:
        container.discard(element)
    for _, new in changed:
        if new is not ABSENT:
            container.add(new)
    return container.result()


# --- schemas ---------------------------------------------------------------------------------------------------------


def _below_keys(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    """Each key leads on from where the one before it led."""
    found: Schema | None = schema
    for key in nav.args:
        found = None if found is None else _below(faults, nav, key, found)
    return found


def _below(faults: SchemaFaults, nav: Nav, key: Any, schema: Schema) -> Schema | None:
    if isinstance(schema, ListSchema):
        return schema.element
    if isinstance(schema, FixedKeysSchema):
        return faults.field(key, schema)
    faults.expect(nav, schema, "map", also=("list",))
    if not isinstance(schema, MapSchema):
        return None
    faults.check_key(key, schema)
    return schema.value


def _map(faults: SchemaFaults, nav: Nav, schema: Schema) -> MapSchema | None:
    """A part of the map that it meets."""
    faults.expect(nav, schema, "map")
    return plain_part(schema) if isinstance(schema, MapSchema) else None


def _part(faults: SchemaFaults, nav: Nav, schema: Schema) -> MapSchema | None:
    found = _map(faults, nav, schema)
    if found is not None:
        for key in nav.args:
            faults.check_key(key, found)
    return found


def _values(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    found = _map(faults, nav, schema)
    return found.value if found is not None else None


def _keys(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    found = _part(faults, nav, schema)
    return Leaf(found.key) if found is not None else None


def _elements(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    if isinstance(schema, Leaf) and schema.type not in ("list", "dict", "set", "object"):
        text = f"{nav.name} meets {kind_of(schema)} in '{faults.pstate}'."
        faults.fault(text, "It needs a map, set or list.")
    if isinstance(schema, SetSchema):
        return Leaf(schema.element)
    if isinstance(schema, (MapSchema, FixedKeysSchema)):
        return a_list(faults, nav, schema)
    return schema.element if isinstance(schema, ListSchema) else None


NAVIGATORS: Final = (
    Navigator("key", AtKey, VALUES, _below_keys, is_repeated=True, is_point_key=True),
    Navigator("must", AtPresentKey, VALUES, _below_keys, is_repeated=True),
    Navigator("map_vals", MapVals, after=_values, looks_through=True),
    Navigator("map_keys", MapKeys, after=_keys, is_at_key=True, looks_through=True),
    Navigator("map_key", MapKey, VALUE, _keys, is_at_key=True),
    Navigator("all", All, after=_elements, looks_through=True),
    Navigator("sub_map", SubMap, VALUES, _part, looks_through=True),
    *range_navigators("sorted_map_range", SortedMapRange, _map),
)
