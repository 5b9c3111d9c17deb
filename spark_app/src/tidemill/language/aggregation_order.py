"""Where the order of rows shows in what an aggregation writes: one answer for the planner and for the writers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tidemill.language.combiners import accumulator_of, combiner_of
from tidemill.language.dataflow import AggList, AggMap, Aggregator, AggTree, Arg, Const
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema
from tidemill.values.keys import same_key


@dataclass(frozen=True)
class LeafPlace:
    """An aggregator of a tree, the keys above it, and the schema of its place (None where that is not known)."""

    leaf: Aggregator
    keys: tuple[Arg, ...]
    schema: Schema | None

    @property
    def depends(self) -> bool:
        """Whether swapping two rows may change what it aggregates; sums of floats round, so they depend on it."""
        if self.leaf.kind == "void":
            return False
        if self.leaf.kind == "accumulator":
            return accumulator_of(self.leaf).is_order_dependent
        combiner = combiner_of(self.leaf)
        is_float = isinstance(self.schema, Leaf) and self.schema.type != "int"
        return combiner.is_order_dependent or (combiner.rounds and is_float)

    def may_meet(self, other: LeafPlace) -> bool:
        """Whether some rows make both write to one place, or one of them to a part of what the other writes."""
        return all(_may_be_equal(a, b) for a, b in zip(self.keys, other.keys, strict=False))

    def commutes_with(self, other: LeafPlace) -> bool:
        """Whether one row of each gives the same in both orders."""
        if self.depends or other.depends or len(self.keys) != len(other.keys):
            return False
        if self.leaf.kind != "combiner" or other.leaf.kind != "combiner":
            return self.leaf.kind == other.leaf.kind
        return combiner_of(self.leaf).commutes_with(combiner_of(other.leaf))


def _may_be_equal(a: Arg, b: Arg) -> bool:
    """Keys that only rows know may be equal to any other."""
    return not isinstance(a, Const) or not isinstance(b, Const) or same_key(a.value, b.value)


def leaf_places(tree: AggTree, schema: Schema | None = None, keys: tuple[Arg, ...] = ()) -> Iterator[LeafPlace]:
    """The aggregators of a tree, from left to right."""
    if isinstance(tree, AggMap):
        for key, inner in tree.entries:
            yield from leaf_places(inner, _below(schema, key), (*keys, key))
    elif isinstance(tree, AggList):
        element = schema.element if isinstance(schema, ListSchema) else None
        for index, inner in enumerate(tree.items):
            yield from leaf_places(inner, element, (*keys, Const(index)))
    else:
        yield LeafPlace(tree, keys, schema)


def _below(schema: Schema | None, key: Arg) -> Schema | None:
    if isinstance(schema, MapSchema):
        return schema.value
    return schema.field(key.value) if isinstance(schema, FixedKeysSchema) and isinstance(key, Const) else None


def has_order_between_leaves(tree: AggTree, schema: Schema | None = None) -> bool:
    """Whether two leaves may meet in one place in an order that shows: then each row writes all leaves before the next
    row writes any.
    """
    return has_order_between(list(leaf_places(tree, schema)))


def has_order_between(places: Sequence[LeafPlace]) -> bool:
    """Whether two aggregators of one structure may meet in one place in an order that shows."""
    return any(not a.commutes_with(b) and a.may_meet(b) for a, b in combinations(places, 2))


def shows_order(trees: Sequence[AggTree], schema: Schema | None = None) -> bool:
    """Whether swapping two rows may change what these aggregations of one structure come to."""
    places = [place for tree in trees for place in leaf_places(tree, schema)]
    return any(place.depends for place in places) or has_order_between(places)


def depends_on_order(tree: AggTree, schema: Schema | None = None) -> bool:
    """Whether swapping two rows may change what the tree aggregates."""
    return shows_order([tree], schema)
