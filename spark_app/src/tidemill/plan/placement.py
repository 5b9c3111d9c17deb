"""On which task rows are, as far as the code shows: the value whose hash brought them there.

Values are known by how they were made (`Symbol`): two that were made alike from the same variables are equal. What a
step makes in a way that cannot be followed gets a symbol of its own, so that nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidemill.language.dataflow import Arg, Const, DepotDeclaration, Function, Var
from tidemill.language.operations import Op

Symbol = tuple[Any, ...]


@dataclass(frozen=True)
class Placement:
    """Where rows are.

    "by": on the task of the hash of the value `by`; "zero": on task 0; "anywhere": no value says where; "unknown": a
    function, or ways that come together, decide. `why` says it to a person.
    """

    kind: Literal["by", "zero", "anywhere", "unknown"]
    why: str = field(default="", compare=False)
    by: Symbol | None = None


ON_ZERO = Placement("zero", "rows are on task 0 here")
UNKNOWN = Placement("unknown")


@dataclass(frozen=True)
class Rows:
    """The rows at one place of the code: what their variables are, and where they are."""

    values: Mapping[str, Symbol]
    placement: Placement

    def binding(self, made: Mapping[str, Symbol]) -> Rows:
        """With these variables bound."""
        return replace(self, values={**self.values, **made})

    def moved(self, placement: Placement) -> Rows:
        """With the rows at another placement."""
        return replace(self, placement=placement)


def symbol(arg: Arg, values: Mapping[str, Symbol]) -> Symbol:
    """What an argument is."""
    if isinstance(arg, Var):
        return values.get(arg.name, ("unbound", arg.name))
    if isinstance(arg, Const):
        return ("constant", type(arg.value).__name__, repr(arg.value))
    return applied(arg.function, [symbol(inner, values) for inner in arg.args], arg.args)


def applied(function: Function, symbols: Sequence[Symbol], args: Sequence[Arg] = ()) -> Symbol:
    """What a function makes of its arguments."""
    call = function.call
    if not isinstance(call, Op):
        return ("call", _identity(call), *symbols)
    if call.name == "IDENTITY":
        return symbols[0]
    if call.name in ("FIRST", "LAST"):
        return item(symbols[0], 0 if call.name == "FIRST" else -1)
    if call.name in ("GET", "MUST_GET") and isinstance(args[1], Const) and type(args[1].value) in (int, str):
        return item(symbols[0], args[1].value)
    return ("tuple", *symbols) if call.name == "TUPLE" else ("call", call.name, *symbols)


def _identity(call: Any) -> Any:
    try:
        hash(call)
    except TypeError:
        return id(call)
    return call


def item(of: Symbol, key: int | str) -> Symbol:
    """An element of a record."""
    if of[0] == "tuple" and isinstance(key, int) and -len(of) < key < len(of) - 1:
        found: Symbol = of[1:][key]
        return found
    return ("item", of, key)


def expanded(rows: Rows, record: Symbol, outs: Sequence[str]) -> Rows:
    """The rows whose record is taken apart into variables: from here on its last element has a number."""
    by = rows.placement.by
    if by == ("item", record, -1):
        rows = rows.moved(replace(rows.placement, by=item(record, len(outs) - 1)))
    return rows.binding({out: item(record, number) for number, out in enumerate(outs)})


def of_depot(depot: DepotDeclaration | None, record: Symbol) -> Placement:
    """Where the records of a depot are when they are read."""
    if depot is None:
        return UNKNOWN
    if depot.is_global or depot.tick_millis is not None:
        return ON_ZERO
    if depot.partitioner in ("random", "external"):
        return Placement("anywhere", f"'{depot.name}' has its records on any task ({depot.partitioner})")
    if depot.partitioner == "disallow":
        return UNKNOWN  # a topology appends to it, from whatever task its rows are on
    fields = [item(record, name) for name in depot.fields]
    if fields:
        by = fields[0] if len(fields) == 1 else ("tuple", *fields)
        named = ", ".join(map(repr, depot.fields))
        return Placement("by", f"'{depot.name}' is partitioned by hash_by({named})", by)
    if depot.partitioner == "hash_by" and depot.function is not None and isinstance(depot.function.call, Op):
        why = f"'{depot.name}' is partitioned by hash_by(Ops.{depot.function.name})"
        return Placement("by", why, applied(depot.function, [record]))
    return UNKNOWN


def meet(ways: Sequence[Rows], place: Any) -> Rows:
    """The rows where several ways come together: a variable that differs gets a symbol of this place.

    They are placed by a variable if each way placed them by what it had under that name.
    """
    first = ways[0]
    names = set(first.values).intersection(*(way.values for way in ways[1:]))
    values = {name: _common([way.values[name] for way in ways], ("met", place, name)) for name in sorted(names)}
    placements = {way.placement for way in ways}
    if len(placements) == 1:
        return Rows(values, first.placement)
    named = next((name for name in values if all(_is_by(way, name) for way in ways)), None)
    if named is not None:
        return Rows(values, replace(first.placement, by=values[named]))
    if any(placement.kind == "anywhere" for placement in placements):
        return Rows(values, next(each for each in placements if each.kind == "anywhere"))
    return Rows(values, UNKNOWN)


def _common(symbols: Iterable[Symbol], otherwise: Symbol) -> Symbol:
    found = set(symbols)
    return found.pop() if len(found) == 1 else otherwise


def _is_by(way: Rows, name: str) -> bool:
    return way.placement.kind == "by" and way.placement.by == way.values[name]
