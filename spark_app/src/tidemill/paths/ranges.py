"""The sorted ranges, of maps and of sets alike: their arguments, their options, and the bounds that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeVar

from tidemill.language.dataflow import Const, Nav
from tidemill.language.schema import MapSchema, Schema, SetSchema
from tidemill.paths.arguments import VALUE, ArgumentKinds
from tidemill.paths.navigator import BoundNav, Builder, Navigator, Slot, Step, Steps, Values
from tidemill.paths.nodes import KeyRange
from tidemill.paths.schema_fit import SchemaFaults
from tidemill.values.errors import BadPath

S = TypeVar("S", bound="MapSchema | SetSchema | None")


@dataclass(frozen=True)
class SortedRange:
    """What the arguments say, in order; an amount after something else may be left out. With `is_reverse` the amount
    counts from the high end.
    """

    says: tuple[Literal["start", "end", "amount"], ...]
    options: frozenset[str] = frozenset()
    is_reverse: bool = False

    @property
    def arguments(self) -> ArgumentKinds:
        """One value for each thing that it says; the amount may be left out unless it stands alone."""
        return ArgumentKinds(VALUE.kinds * len(self.says), optional=int("amount" in self.says[1:]))

    def rule(self, around: Callable[[SchemaFaults, Nav, Schema], S]) -> Callable[[SchemaFaults, Nav, Schema], S]:
        """The rule `around`, of the structure that it is a range of, and of its arguments."""

        def checked(faults: SchemaFaults, nav: Nav, schema: Schema) -> S:
            found = around(faults, nav, schema)
            self._check(faults, nav, found)
            return found

        return checked

    def _check(self, faults: SchemaFaults, nav: Nav, schema: MapSchema | SetSchema | None) -> None:
        """Report constants that can be no end of a range of such keys, or no number of elements; None sets no bound."""
        given = [*zip(self.says, nav.args, strict=False), *(("amount", value) for _, value in nav.options)]
        for what, value in given:
            if not isinstance(value, Const) or value.value is None:
                continue
            if what == "amount":
                faults.check_count(nav, value)
            elif schema is not None:
                faults.check_key(value, schema)


_RANGES: Final = {
    "": SortedRange(("start", "end"), frozenset({"include_start", "include_end", "max_amt"})),
    "_from": SortedRange(("start", "amount"), frozenset({"include_start", "max_amt"})),
    "_from_start": SortedRange(("amount",)),
    "_to": SortedRange(("end", "amount"), frozenset({"include_end", "max_amt"}), is_reverse=True),
    "_to_end": SortedRange(("amount",), is_reverse=True),
}
"""By what their names end with."""


def range_navigators(
    name: str,
    steps: Callable[[SortedRange, BoundNav, Step, Builder], Steps],
    around: Callable[[SchemaFaults, Nav, Schema], MapSchema | SetSchema | None],
) -> tuple[Navigator, ...]:
    """The navigators to all sorted ranges of one structure, whose names begin with `name`; `around` as in `rule`."""
    return tuple(
        Navigator(name + end, partial(steps, kind), kind.arguments, kind.rule(around), kind.options, looks_through=True)
        for end, kind in _RANGES.items()
    )


class BoundsOfCalls:
    """The bounds of one range in one path, made anew from the values of each call."""

    def __init__(self, kind: SortedRange, nav: BoundNav) -> None:
        slots: dict[str, int] = dict(zip(kind.says, nav.slots, strict=False))
        self._start = slots.get("start")
        self._end = slots.get("end")
        self._amount = slots.get("amount")
        self._must_count = kind.says == ("amount",)
        self._is_reverse = kind.is_reverse
        self._includes_start = bool(nav.option("include_start", default=True))
        self._includes_end = bool(nav.option("include_end", default=False))
        self._limit = nav.option("max_amt")

    def of(self, values: Values) -> KeyRange:
        """Raises BadPath: the greatest number of elements is no count."""
        return KeyRange(
            None if self._start is None else values[self._start],
            None if self._end is None else values[self._end],
            self._includes_start,
            self._includes_end,
            self._limit_of(values),
            self._is_reverse,
        )

    def _limit_of(self, values: Values) -> int | None:
        limit = self._limit.of(values) if isinstance(self._limit, Slot) else self._limit
        if limit is None and self._amount is not None:
            limit = values[self._amount]
        return None if limit is None and not self._must_count else count_of_elements(limit)


def count_of_elements(limit: Any) -> int:
    """Raises BadPath: it is no count."""
    if type(limit) is not int or limit < 0:
        raise BadPath(f"the greatest number of elements of a range is {limit!r}, which is no count", limit=limit)
    return limit
