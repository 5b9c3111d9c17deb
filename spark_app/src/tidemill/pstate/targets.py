"""Where a compound aggregator writes: its tree laid over a schema's places, as a flat list of targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.language.combiners import combiner_of
from tidemill.language.dataflow import AggList, AggMap, Aggregator, AggTree, Arg, Const
from tidemill.tables.tables import Layout, ListPlace, MapPlace, Place, RecordPlace, SetPlace, Table, ValuePlace
from tidemill.values.errors import DefinitionError

How = Literal["fold", "put", "delete", "clear", "append", "entries"]


@dataclass(frozen=True)
class Target:
    """One leaf of the tree. `keys` are the argument positions of the key columns above it.

    fold: combine `tree` into the row's value, or into its field `field`. put, delete: a row whose last key is the
    argument (sets), or, for `map`, whose last key and value are the arguments. entries: each entry of a map replaces
    what is at its key. append: to a list. clear: remove what is at `place`.
    """

    how: How
    place: Place
    table: Table | None
    keys: tuple[int, ...]
    tree: AggTree
    args: tuple[int, ...] = ()
    field: str | None = None


def targets_of(tree: AggTree, layout: Layout, arg_index: Callable[[Arg], int]) -> list[Target]:
    """The targets of a tree, in the order in which they are written for each row.

    Raises:
        DefinitionError: the tree does not fit the schema.
    """
    return list(_walk(tree, layout.root, (), arg_index))


def _walk(tree: AggTree, place: Place, keys: tuple[int, ...], arg_index: Callable[[Arg], int]) -> Iterator[Target]:
    if isinstance(tree, Aggregator):
        yield _leaf(tree, place, keys, tuple(map(arg_index, tree.args)))
    elif isinstance(tree, AggMap) and isinstance(place, MapPlace):
        for key, inner in tree.entries:
            yield from _walk(inner, place.element, (*keys, arg_index(key)), arg_index)
    elif isinstance(tree, AggMap) and isinstance(place, RecordPlace):
        for key, inner in tree.entries:
            yield from _walk_field(_name(key), inner, place, keys, arg_index)
    elif isinstance(place, ValuePlace):
        yield from _walk_value(tree, place, keys, arg_index)
    elif isinstance(tree, AggList) and isinstance(place, ListPlace):
        for index, inner in enumerate(tree.items):  # every row writes all of them, so that no index is left out
            yield from _walk(inner, place.element, (*keys, arg_index(Const(index))), arg_index)
    else:
        raise DefinitionError(f"{_kind(tree)} does not fit {_kind(place)}")


def _walk_value(
    tree: AggTree, place: ValuePlace, keys: tuple[int, ...], arg_index: Callable[[Arg], int]
) -> Iterator[Target]:
    """Inside one row's value: fields of a record stand side by side, all else is folded as a whole."""
    if isinstance(tree, AggMap) and place.table.fields is not None:
        for key, inner in tree.entries:
            name = _name(key)
            _check_field(name, [field for field, _ in place.table.fields])
            args = tuple(map(arg_index, inner.args)) if isinstance(inner, Aggregator) else ()
            if isinstance(inner, Aggregator) and inner.kind == "void":
                yield Target("clear", place, place.table, keys, inner, (), name)
            else:
                yield Target("fold", place, place.table, keys, inner, args, name)
    else:
        yield Target("fold", place, place.table, keys, tree)


def _walk_field(
    name: str, inner: AggTree, place: RecordPlace, keys: tuple[int, ...], arg_index: Callable[[Arg], int]
) -> Iterator[Target]:
    nested = place.field(name)
    if nested is not None:
        yield from _walk(inner, nested, keys, arg_index)
        return
    own = place.own
    if own is None:
        raise DefinitionError(f"the record has no plain field {name!r}")
    yield from _walk_value(AggMap(((Const(name), inner),)), ValuePlace(own), keys, arg_index)


def _check_field(name: str, fields: list[str]) -> None:
    if name not in fields:
        raise DefinitionError(f"the record has no field {name!r}; it has {', '.join(fields)}")


def _name(key: Arg) -> str:
    if isinstance(key, Const) and isinstance(key.value, str):
        return key.value
    raise DefinitionError("the keys of CompoundAgg.map into a fixed-keys record must be constant strings")


def _leaf(tree: Aggregator, place: Place, keys: tuple[int, ...], args: tuple[int, ...]) -> Target:
    table = place.table if isinstance(place, (ValuePlace, SetPlace)) else None
    if tree.kind == "void":
        return Target("clear", place, table, keys, tree)
    if isinstance(place, ValuePlace):
        return Target("fold", place, table, keys, tree, args)
    how = combiner_of(tree).elements.get(_STRUCTURES[type(place)]) if tree.kind == "combiner" else None
    element = place.element if isinstance(place, MapPlace) else None
    if how == "add_one":
        if isinstance(element, ValuePlace):
            return Target("fold", element, element.table, (*keys, *args), Aggregator("count", "combiner"))
    elif how == "put" and element is not None:
        if isinstance(element, ValuePlace):
            return Target("put", place, element.table, keys, tree, args)
        return Target("entries", place, None, keys, tree, args)
    elif how is not None:
        return Target(how, place, table, keys, tree, args)
    raise DefinitionError(f"the aggregator {tree.name} does not fit {_kind(place)}")


_STRUCTURES: dict[type[Any], str] = {MapPlace: "map", SetPlace: "set", ListPlace: "list", RecordPlace: "record"}
_NAMES: dict[type[Any], str] = {
    AggMap: "CompoundAgg.map",
    AggList: "CompoundAgg.list",
    MapPlace: "a map of indexed elements",
    SetPlace: "an indexed set",
    ListPlace: "an indexed list",
    RecordPlace: "a record of indexed fields",
}


def _kind(thing: AggTree | Place) -> str:
    return _NAMES.get(type(thing), "a value")
