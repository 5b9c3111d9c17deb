"""Checks aggregators: against the schema that they aggregate into, and where they may stand."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterator
from typing import Any

from tidemill.language.combiners import ACCUMULATORS, COMBINERS, RESULTS
from tidemill.language.dataflow import (
    AggList,
    AggMap,
    Aggregate,
    Aggregator,
    AggTree,
    Const,
    Location,
    PStateDeclaration,
)
from tidemill.language.schema import (
    FixedKeysSchema,
    Leaf,
    ListSchema,
    MapSchema,
    Schema,
    SetSchema,
    has_indexed,
    to_text,
)
from tidemill.plan.check.context import Context
from tidemill.plan.check.paths import schema_faults

_NUMBERS = ("int", "float", "object")
_STRUCTURES: dict[type, str] = {SetSchema: "set", ListSchema: "list", MapSchema: "map", FixedKeysSchema: "record"}


def check_into_pstate(context: Context, pstate: PStateDeclaration, tree: AggTree, at: Location) -> None:
    """Every aggregator fits the place of the schema that it aggregates into."""
    _into(context, pstate, tree, pstate.schema, at)
    if isinstance(tree, Aggregator) and tree.kind == "void":
        text = f"Agg.voided() at the top of '{pstate.name}' has nothing to remove the value from."
        context.fault(at, text, "Use it inside CompoundAgg.map, or local_clear.")


def check_into_variables(context: Context, node: Aggregate) -> None:
    """An aggregation into variables gives one value, which one variable takes."""
    for leaf in _leaves(node.tree):
        _check_own(context, leaf, node.at)
        only = ACCUMULATORS.get(leaf.name)
        if leaf is not node.tree and only is not None and only.only_result:
            text = f"Agg.{only.name} cannot stand in CompoundAgg: {only.only_result} is not enough to go on from."
            context.fault(node.at, text, f"{only.instead}, or use group_by.")
    if isinstance(node.tree, Aggregator) and node.tree.kind == "void":
        context.fault(node.at, "Agg.voided() removes an element of a PState.", "Name the PState.")
    elif len(node.outs) != 1:
        what = f"Agg.{_public(node.tree)}" if isinstance(node.tree, Aggregator) else "compound_agg"
        text = f"{what} gives one value, which is bound to one variable, not to {len(node.outs)}."
        context.fault(node.at, text, 'Write .out("*name"), or name the PState to aggregate into.')


def _leaves(tree: AggTree) -> Iterator[Aggregator]:
    if isinstance(tree, Aggregator):
        yield tree
        return
    for inner in tree.items if isinstance(tree, AggList) else [value for _, value in tree.entries]:
        yield from _leaves(inner)


def _into(context: Context, pstate: PStateDeclaration, tree: AggTree, schema: Schema | None, at: Location) -> None:
    if isinstance(tree, AggMap):
        _into_map(context, pstate, tree, schema, at)
    elif isinstance(tree, AggList):
        _into_list(context, pstate, tree, schema, at)
    else:
        _check_own(context, tree, at)
        _into_place(context, pstate, tree, schema, at)


def _into_map(context: Context, pstate: PStateDeclaration, tree: AggMap, schema: Schema | None, at: Location) -> None:
    is_plain = schema is None or (isinstance(schema, Leaf) and schema.type in ("dict", "object"))
    if not is_plain and not isinstance(schema, (MapSchema, FixedKeysSchema)):
        _misfit(context, pstate, "CompoundAgg.map", schema, at)
        return
    faults = schema_faults(context, pstate, at)
    for key, inner in tree.entries:
        value: Schema | None = None
        if isinstance(schema, MapSchema):
            value = schema.value
            faults.check_key(key, schema)
        elif isinstance(schema, FixedKeysSchema) and not isinstance(key, Const):
            text = f"The keys of a fixed-keys schema are constants; '{pstate.name}' has one here."
            context.fault(at, text, "Name the key, choose it with if_true, or use a map_schema.")
        elif isinstance(schema, FixedKeysSchema):
            value = faults.field(key, schema)
        _into(context, pstate, inner, value, at)


def _into_list(context: Context, pstate: PStateDeclaration, tree: AggList, schema: Schema | None, at: Location) -> None:
    is_plain = schema is None or (isinstance(schema, Leaf) and schema.type in ("list", "object"))
    if not is_plain and not isinstance(schema, ListSchema):
        _misfit(context, pstate, "CompoundAgg.list", schema, at)
        return
    element = schema.element if isinstance(schema, ListSchema) else None
    for inner in tree.items:
        is_void = isinstance(inner, Aggregator) and inner.kind == "void"
        if is_void and isinstance(schema, ListSchema) and schema.subindexed:
            text = f"Agg.voided() would leave a gap in the subindexed list of '{pstate.name}'."
            context.fault(at, text, "Use a map with whole numbers as keys, or a list that is not subindexed.")
        _into(context, pstate, inner, element, at)


def _into_place(
    context: Context, pstate: PStateDeclaration, tree: Aggregator, schema: Schema | None, at: Location
) -> None:
    combiner = COMBINERS.get(tree.name)
    only = ACCUMULATORS.get(tree.name)
    if only is not None and only.only_result:
        text = f"Agg.{only.name} cannot aggregate into '{pstate.name}': {only.only_result} is not enough to go on from."
        context.fault(at, text, f"{only.instead}, or use it in a batch block with .out(…).")
    elif not _fits_place(tree, schema):
        _misfit(context, pstate, f"Agg.{_public(tree)}", schema, at)
    elif schema is not None and _is_indexed(schema, pstate) and tree.kind != "void":
        _into_indexed(context, pstate, tree, schema, at)
    if combiner is not None and combiner.is_keyed and isinstance(schema, (MapSchema, SetSchema)):
        schema_faults(context, pstate, at).check_key(tree.args[0], schema)


def _is_indexed(schema: Schema, pstate: PStateDeclaration) -> bool:
    """Whether each element at this place is stored by itself, so that no aggregator can have the structure whole."""
    is_top = schema is pstate.schema and isinstance(schema, (MapSchema, FixedKeysSchema))
    return is_top or has_indexed(schema)


def _into_indexed(context: Context, pstate: PStateDeclaration, tree: Aggregator, schema: Schema, at: Location) -> None:
    """Of what fits by its result, only aggregators that write single elements can write an indexed structure."""
    structure = _STRUCTURES[type(schema)]
    fitting = [name for name, combiner in COMBINERS.items() if structure in combiner.elements]
    if tree.implementation is None and tree.name in fitting:
        return
    text = f"Agg.{_public(tree)} takes a structure whole, but elements of '{pstate.name}' are stored one by one here."
    instead = ", ".join(f"Agg.{name}" for name in fitting)
    context.fault(at, text, f"Use {instead}, aggregate into its elements, or store it without subindexed().")


def _fits_place(tree: Aggregator, schema: Schema | None) -> bool:
    """Whether an aggregator's result can be of the schema; custom ones and those that keep a value always can."""
    if schema is None or tree.implementation is not None or schema == Leaf("object"):
        return True
    leaf = schema.type if isinstance(schema, Leaf) else ""
    result = RESULTS.get(tree.name, "any")
    is_map = leaf == "dict" or isinstance(schema, (MapSchema, FixedKeysSchema))
    if result == "counts" and leaf != "dict":
        return isinstance(schema, MapSchema) and schema.value in (Leaf("int"), Leaf("float"), Leaf("object"))
    fits = {
        "any": True,
        "number": leaf in _NUMBERS,
        "list": leaf == "list" or isinstance(schema, ListSchema),
        "set": leaf == "set" or isinstance(schema, SetSchema),
        "map": is_map,
        "counts": is_map,
    }
    return fits[result]


def _check_own(context: Context, tree: Aggregator, at: Location) -> None:
    """A custom aggregator takes the arguments that it is given."""
    if tree.implementation is None:
        return
    method, given, takes = "accumulate", len(tree.args) + 1, "the current value and then one for each argument"
    if tree.kind == "combiner":
        if len(tree.args) != 1:
            context.fault(at, f"A combiner takes one value, not {len(tree.args)}.", "Pass one argument.")
        method, given, takes = "combine", 2, "two values, and gives both in one"
    own = tree.implementation
    function = getattr(own, method, None)
    if function is not None and not isinstance(own, type) and not _takes(function, given):
        context.fault(at, f"{type(own).__name__}.{method} does not take {given} arguments.", f"It takes {takes}.")


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*([None] * count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _misfit(context: Context, pstate: PStateDeclaration, what: str, schema: Schema | None, at: Location) -> None:
    shown = "" if schema is None else to_text(schema)
    text = f"{what} does not fit '{pstate.name}', which holds {shown} at this place."
    context.fault(at, text, f"The schema is {to_text(pstate.schema)}.")


def _public(tree: Aggregator) -> str:
    return f"{tree.name}_" if keyword.iskeyword(tree.name) else tree.name
