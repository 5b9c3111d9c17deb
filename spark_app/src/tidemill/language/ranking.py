"""The ranking behind `top_monotonic`: the best N values, one an id, in a list that grows to 2N before it is cut."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from tidemill.language.dataflow import Aggregator, Const, Function
from tidemill.language.operations import op_named
from tidemill.values.data import sort_key
from tidemill.values.errors import BadInput, DefinitionError
from tidemill.values.keys import key_token

_IDENTITY = re.compile(r"top_monotonic\((\d+),(asc|desc),id=(\w*),sort=(\w*)\)")


ONE_FORM = frozenset({int, str, bool, bytes, datetime.datetime})
"""Types whose equal values cannot be told apart."""


def is_nan(value: Any) -> bool:
    """Whether the value is a float that is not a number; False for values of other types."""
    return isinstance(value, float) and value != value


NESTED = frozenset({list, tuple, set, frozenset})
"""Types whose values hold others, among them perhaps NaN."""


def rank_of(value: Any) -> Any:
    """What orders a value among others that compare with it: NaN is greater than every number, in lists too; sets are
    compared by their elements in the order of `sort_key`, for Python says only which of them holds the other.
    """
    if isinstance(value, (list, tuple)):
        return False, tuple(map(rank_of, value))
    if isinstance(value, (set, frozenset)):
        return False, sort_key(value)
    return (True, 0) if is_nan(value) else (False, value)


def ranked(values: Sequence[Any], is_ascending: bool) -> list[Any]:
    """The values sorted so that they come out alike in whatever order they went in.

    NaN is greater than every number, and equal values that differ (1 and 1.0) stand in the order of their texts.
    """
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= ONE_FORM:
        return sorted(values, reverse=not is_ascending)
    if kinds & NESTED:
        pairs = sorted(((rank_of(value), value) for value in values), key=_rank_in_pair, reverse=not is_ascending)
        return [value for _, same in groupby(pairs, _rank_in_pair) for value in sorted((v for _, v in same), key=repr)]
    nans = list(filter(is_nan, values)) if float in kinds else []
    numbers = [value for value in values if not is_nan(value)] if nans else values
    ordered = sorted(numbers, reverse=not is_ascending)
    if any(map(operator.eq, ordered, islice(ordered, 1, None))):
        ordered = [value for _, equal in groupby(ordered) for value in sorted(equal, key=repr)]
    return ordered + nans if is_ascending else nans + ordered


def _rank_in_pair(pair: tuple[Any, Any]) -> Any:
    return pair[0]


@dataclass(frozen=True)
class Ranking:
    """The best `amount` values by `sort_value_of`, at most one for each `id_of`.

    Of several values of one id the best counts. Equal values that differ (1 and 1.0) always rank alike, and NaN is
    greater than every number, so the order of rows does not matter. With `sort_value_of`, whose NaN is the greatest
    too, the earliest of equally good values counts, and the order of rows matters.
    """

    amount: int
    is_ascending: bool
    id_of: Callable[[Any], Any] | None
    sort_value_of: Callable[[Any], Any] | None
    stored_name: str | None

    @property
    def is_order_dependent(self) -> bool:
        """Whether values can be equally good and yet differ."""
        return self.sort_value_of is not None

    def lift(self, *args: Any) -> list[Any]:
        """One value as a list; the last argument is the value, an amount before it is already known."""
        return [args[-1]]

    def combine(self, a: Any, b: Any) -> list[Any]:
        """Both lists in one (None is empty); cut to `amount` values only where it has twice as many or more."""
        both: list[Any] = (a or []) + (b or [])
        return self.cut(both) if len(both) >= 2 * self.amount else both

    def cut(self, values: Any) -> list[Any]:
        """The best `amount` values, best first, at most one for each identity. None is an empty list."""
        if self.sort_value_of is None:
            ordered = ranked(values or (), self.is_ascending)
        else:
            by = self.sort_value_of
            ordered = sorted(values or (), key=lambda value: rank_of(by(value)), reverse=not self.is_ascending)
        distinct: list[Any] = []
        for value in self._without_repeated_ids(ordered):
            if len(distinct) == self.amount:
                break
            distinct.append(value)
        return distinct

    def _without_repeated_ids(self, ordered: list[Any]) -> Iterator[Any]:
        seen = set()
        for value in ordered:
            key = key_token(value if self.id_of is None else self.id_of(value))
            if key not in seen:
                seen.add(key)
                yield value


def top_monotonic_of(aggregator: Aggregator) -> Ranking:
    """The ranking that a recorded `top_monotonic(N, v, …)` means.

    Raises:
        DefinitionError: the amount is no positive constant.
    """
    options = dict(aggregator.options)
    amount = options.get("amount", aggregator.args[0] if len(aggregator.args) > 1 else None)
    amount = amount.value if isinstance(amount, Const) else amount
    if type(amount) is not int or amount < 1:
        raise DefinitionError(f"top_monotonic takes a positive constant as its amount, not {amount!r}")
    id_function, sort_function = options.get("id_function"), options.get("sort_val_function")
    is_ascending = bool(options.get("ascending", False))
    stored_name = _stored_name(amount, is_ascending, id_function, sort_function)
    return Ranking(amount, is_ascending, _call(id_function), _call(sort_function), stored_name)


def top_monotonic_named(text: str) -> Ranking:
    """The ranking that a container names.

    Raises:
        BadInput: the text does not parse, or names a function that this version does not have.
    """
    match = _IDENTITY.fullmatch(text)
    if match is None:
        raise BadInput(f"not a ranking: {text!r}", combiner=text)
    amount, direction, id_name, sort_name = match.groups()
    return Ranking(int(amount), direction == "asc", _named(id_name), _named(sort_name), text)


def _stored_name(amount: int, is_ascending: bool, id_function: Any, sort_function: Any) -> str | None:
    names = []
    for function in (id_function, sort_function):
        if function is not None and not (isinstance(function, Function) and function.kind == "builtin"):
            return None
        names.append("" if function is None else function.name)
    return f"top_monotonic({amount},{'asc' if is_ascending else 'desc'},id={names[0]},sort={names[1]})"


def _call(function: Any) -> Callable[[Any], Any] | None:
    if function is None:
        return None
    call: Callable[[Any], Any] = function.call if isinstance(function, Function) else function
    return call


def _named(name: str) -> Callable[[Any], Any] | None:
    return op_named(name) if name else None
