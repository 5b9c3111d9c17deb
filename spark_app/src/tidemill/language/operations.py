"""The built-in operations (`Ops.PLUS`, `Ops.EXPLODE`, …) on plain Python values: the form that all other forms must
equal.

An operation that emits "one" returns its value, "many" returns an iterator of tuples (one tuple a row, `out_count`
values each), and "expand" returns the list whose elements are bound to the out variables. Where the order of a set
or a dict shows, it is the sorted order, so that a retried attempt sees the same rows.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar, Literal

from tidemill.language.operation_texts import TEXTS
from tidemill.values.absent import ABSENT
from tidemill.values.data import in_order
from tidemill.values.errors import BadInput, RecordRefused
from tidemill.values.keys import has_key, plain_key
from tidemill.values.suggestions import Suggesting, nearest

Emits = Literal["one", "many", "expand"]
_SHOWN_CHARS = 200
_COLLECTIONS = (list, tuple, dict, set, frozenset)


def is_true(value: Any) -> bool:
    """Truth in conditions: None and False are false, everything else is true (0, "" and empty collections too)."""
    return value is not None and value is not False


@dataclass(frozen=True, repr=False)
class Op:
    """One built-in operation; callable on Python values.

    `args_max` is None where any number of arguments fits. `out_count` is the number of values a row has. Operations
    that are marked `needs_context` depend on the attempt (task, microbatch, randomness): the engine gives them
    their value, a plain call raises BadInput.
    """

    name: str
    call: Callable[..., Any] = field(compare=False, repr=False)
    emits: Emits = "one"
    args_min: int = 1
    args_max: int | None = 1
    out_count: int = 1
    needs_context: bool = False

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (op_named, (self.name,))


def op_named(name: str) -> Op:
    """The operation of this name, `PLUS` for `Ops.PLUS`.

    Raises:
        BadInput: there is none.
    """
    found = getattr(Ops, name, None)
    if not isinstance(found, Op):
        raise BadInput(f"There is no built-in operation '{name}'.")
    return found


def elements_of(value: Any) -> Sequence[Any]:
    """The elements of a collection in an order that does not depend on the process; a dict gives `[key, value]` lists,
    None nothing.
    """
    if value is None:
        return ()
    if isinstance(value, dict):
        return [[key, item] for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return _sorted(value)
    if isinstance(value, (list, tuple, str, bytes)):
        return value
    return list(value)


def _sorted(values: Iterable[Any]) -> list[Any]:
    """In the order of data; where a value is none, by types and texts."""
    try:
        return in_order(values)
    except RecordRefused:
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


_INSTEAD: dict[type, str] = {
    dict: 'Take its fields with Ops.MUST_GET(record, "field"), or its pairs with Ops.EXPLODE_MAP.',
    str: "Split it with a function of yours first.",
    bytes: "Decode it with a function of yours first.",
}


def _refuse_kinds(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    """Refuse a value whose elements nobody means: the keys of a record, the letters of a text.

    Raises:
        BadInput: it is one of these; says what to do.
    """
    if isinstance(value, kinds):
        advice = next(advice for kind, advice in _INSTEAD.items() if isinstance(value, kind))
        raise BadInput(f"Ops.{name} works on lists, not on a {type(value).__name__}. {advice}")


def expanded(value: Any) -> list[Any]:
    """The elements of a list that `Ops.EXPAND` binds.

    Raises:
        BadInput: it is no list, tuple or set.
    """
    _refuse_kinds("EXPAND", value, (dict, str, bytes))
    try:
        return list(elements_of(value)) if isinstance(value, (set, frozenset)) else list(value)
    except TypeError:
        raise BadInput(f"Ops.EXPAND works on lists, not on a {type(value).__name__}.") from None


def _explode(value: Any) -> Iterator[tuple[Any, ...]]:
    _refuse_kinds("EXPLODE", value, (str, bytes))
    return ((element,) for element in elements_of(value))


def _explode_indexed(value: Any) -> Iterator[tuple[Any, ...]]:
    _refuse_kinds("EXPLODE_INDEXED", value, (str, bytes))
    return enumerate(elements_of(value))


def _explode_map(value: Any) -> Iterator[tuple[Any, ...]]:
    return iter(()) if value is None else ((key, item) for key, item in value.items())


def _range(start: int, end: int, step: int = 1) -> Iterator[tuple[Any, ...]]:
    return ((number,) for number in range(start, end, step))


def _get(collection: Any, key: Any, default: Any = None) -> Any:
    """The element at a key or index, `default` where there is none; a negative index is none."""
    if collection is None:
        return default
    if isinstance(collection, dict):
        return default if (found := _held(collection, key)) is ABSENT else collection[found]
    if isinstance(collection, (set, frozenset)):
        return default if _held(collection, key) is ABSENT else key
    is_index = isinstance(key, int) and not isinstance(key, bool)
    return collection[key] if is_index and 0 <= key < len(collection) else default


def _must_get(collection: Any, key: Any) -> Any:
    """The element at a key or index.

    Raises:
        BadInput: there is none; says which keys there are.
    """
    if isinstance(collection, dict):
        if (found := _held(collection, key)) is not ABSENT:
            return collection[found]
        there = ", ".join(map(repr, collection))[:_SHOWN_CHARS] or "no key"
        near = nearest(key, [each for each in collection if isinstance(each, str)]) if isinstance(key, str) else None
        raise BadInput(f"there is no key {key!r}; there is {there}." + (f" Did you mean {near!r}?" if near else ""))
    is_list = isinstance(collection, (list, tuple))
    if is_list and isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(collection):
        return collection[key]
    what = f"a list of {len(collection)}" if is_list else f"a {type(collection).__name__}"
    raise BadInput(f"there is no element {key!r} in {what}.")


def _first(value: Any) -> Any:
    _refuse_kinds("FIRST", value, (dict, str, bytes))
    elements = elements_of(value)
    return elements[0] if elements else None


def _last(value: Any) -> Any:
    _refuse_kinds("LAST", value, (dict, str, bytes))
    elements = elements_of(value)
    return elements[-1] if elements else None


def _size(value: Any) -> int:
    return 0 if value is None else len(value)


def _contains(collection: Any, element: Any) -> bool:
    if isinstance(collection, (list, tuple)):
        if not is_scalar(element):
            return any(equal(held, element) for held in collection)
        return bool(element == element) and element in collection  # no NaN, whose place in a list is no key
    if isinstance(collection, (dict, set, frozenset)):
        return _held(collection, element) is not ABSENT
    return collection is not None and element in collection


def _held(held: dict[Any, Any] | set[Any] | frozenset[Any], key: Any) -> Any:
    """The key as a dict or set finds it, ABSENT where there is none; which keys are one, `values.keys` says."""
    if type(key) is str:
        return key if key in held else ABSENT
    if key != key:
        return next((other for other in held if other != other), ABSENT)
    found = plain_key(key)
    return found if has_key(held, found) else ABSENT


def _as_ints(values: Iterable[Any]) -> Iterator[int]:
    return (int(value) for value in values)


def _plus(*values: Any) -> Any:
    return reduce(operator.add, values) if values else 0


def _minus(first: Any, *others: Any) -> Any:
    return reduce(operator.sub, others, first) if others else -first


def _times(*values: Any) -> Any:
    return reduce(operator.mul, values) if values else 1


def _collection_or(values: tuple[Any, ...]) -> Sequence[Any]:
    """The elements of the only argument if it is a collection, else the arguments themselves."""
    is_collection = len(values) == 1 and isinstance(values[0], (list, tuple, set, frozenset))
    return elements_of(values[0]) if is_collection else values


def _sum(*values: Any) -> Any:
    return sum(() if values == (None,) else _collection_or(values))


def _min(*values: Any) -> Any:
    return min(_collection_or(values), default=None)


def _max(*values: Any) -> Any:
    return max(_collection_or(values), default=None)


def is_scalar(value: Any) -> bool:
    """Whether `equal` is Python's equality where one of the two is this value."""
    return not isinstance(value, _COLLECTIONS)


def equal(one: Any, other: Any) -> bool:
    """As Python says it, but the same on whatever way values came: a NaN equals nothing in a list either, though for
    Python a list of one NaN object equals itself, and as a key it is the same one; a tuple, which travels as a list,
    counts as one.
    """
    if is_scalar(one) or is_scalar(other):
        return bool(one == other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        there = [(item, _held(other, key)) for key, item in one.items()]
        return len(one) == len(other) and all(key is not ABSENT and equal(item, other[key]) for item, key in there)
    if isinstance(one, (set, frozenset)) and isinstance(other, (set, frozenset)):
        return len(one) == len(other) and all(_held(other, element) is not ABSENT for element in one)
    return bool(one == other)


def _chained(compare: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def holds_between_neighbours(*values: Any) -> bool:
        return all(bool(compare(left, right)) for left, right in pairwise(values))

    return holds_between_neighbours


_each_equal = _chained(equal)


def _equal(*values: Any) -> bool:
    return equal(*values) if len(values) == 2 else _each_equal(*values)


def _not_equal(*values: Any) -> bool:
    return not _equal(*values)


def _and(*values: Any) -> bool:
    return all(is_true(value) for value in values)


def _or(*values: Any) -> bool:
    return any(is_true(value) for value in values)


def _is_instance(kind: Any, value: Any) -> bool:
    return isinstance(value, kind)


def _to_string(*values: Any) -> str:
    return "".join(str(value) for value in values)


def _println(*values: Any) -> None:
    sys.stdout.write(" ".join(str(value) for value in values) + "\n")


def _from_context(name: str) -> Op:
    def call(*args: Any) -> Any:
        raise BadInput(f"Ops.{name} has a value only inside a topology.")

    return Op(name, call, args_min=0, args_max=0, needs_context=True)


class Ops(metaclass=Suggesting):
    """Every built-in operation, as a constant."""

    _synonyms: ClassVar[Mapping[str, str]] = {
        "add": "PLUS", "subtract": "MINUS", "multiply": "TIMES", "divide": "DIV", "modulo": "MOD", "length": "SIZE",
        "floordiv": "FLOOR_DIV", "quotient": "FLOOR_DIV",
        "len": "SIZE", "count": "SIZE", "not_equals": "NOT_EQUAL", "field": "GET", "flatten": "EXPLODE",
    }  # fmt: skip

    EXPLODE = Op("EXPLODE", _explode, "many")
    EXPLODE_INDEXED = Op("EXPLODE_INDEXED", _explode_indexed, "many", out_count=2)
    EXPLODE_MAP = Op("EXPLODE_MAP", _explode_map, "many", out_count=2)
    RANGE = Op("RANGE", _range, "many", 2, 3)
    EXPAND = Op("EXPAND", expanded, "expand")

    IDENTITY = Op("IDENTITY", lambda value: value)
    TUPLE = Op("TUPLE", lambda *values: list(values), args_min=0, args_max=None)
    PRINTLN = Op("PRINTLN", _println, args_min=0, args_max=None)
    GET = Op("GET", _get, args_min=2, args_max=3)
    MUST_GET = Op("MUST_GET", _must_get, args_min=2, args_max=2)
    FIRST = Op("FIRST", _first)
    LAST = Op("LAST", _last)
    SIZE = Op("SIZE", _size)
    CONTAINS = Op("CONTAINS", _contains, args_min=2, args_max=2)

    INC = Op("INC", lambda value: value + 1)
    DEC = Op("DEC", lambda value: value - 1)
    INC_LONG = Op("INC_LONG", lambda value: int(value) + 1)
    DEC_LONG = Op("DEC_LONG", lambda value: int(value) - 1)
    PLUS = Op("PLUS", _plus, args_min=0, args_max=None)
    PLUS_LONG = Op("PLUS_LONG", lambda *values: _plus(*_as_ints(values)), args_min=0, args_max=None)
    MINUS = Op("MINUS", _minus, args_max=None)
    MINUS_LONG = Op("MINUS_LONG", lambda *values: _minus(*_as_ints(values)), args_max=None)
    TIMES = Op("TIMES", _times, args_min=0, args_max=None)
    TIMES_LONG = Op("TIMES_LONG", lambda *values: _times(*_as_ints(values)), args_min=0, args_max=None)
    DIV = Op("DIV", operator.truediv, args_min=2, args_max=2)
    FLOOR_DIV = Op("FLOOR_DIV", operator.floordiv, args_min=2, args_max=2)
    MOD = Op("MOD", operator.mod, args_min=2, args_max=2)
    SUM = Op("SUM", _sum, args_max=None)
    MIN = Op("MIN", _min, args_max=None)
    MAX = Op("MAX", _max, args_max=None)

    EQUAL = Op("EQUAL", _equal, args_min=2, args_max=None)
    NOT_EQUAL = Op("NOT_EQUAL", _not_equal, args_min=2, args_max=None)
    LESS_THAN = Op("LESS_THAN", _chained(operator.lt), args_min=2, args_max=None)
    LESS_THAN_OR_EQUAL = Op("LESS_THAN_OR_EQUAL", _chained(operator.le), args_min=2, args_max=None)
    GREATER_THAN = Op("GREATER_THAN", _chained(operator.gt), args_min=2, args_max=None)
    GREATER_THAN_OR_EQUAL = Op("GREATER_THAN_OR_EQUAL", _chained(operator.ge), args_min=2, args_max=None)

    AND = Op("AND", _and, args_min=0, args_max=None)
    OR = Op("OR", _or, args_min=0, args_max=None)
    NOT = Op("NOT", lambda value: not is_true(value))
    IS_NULL = Op("IS_NULL", lambda value: value is None)
    IS_NOT_NULL = Op("IS_NOT_NULL", lambda value: value is not None)
    IS_EVEN = Op("IS_EVEN", lambda value: value % 2 == 0)
    IS_ODD = Op("IS_ODD", lambda value: value % 2 == 1)
    IS_INSTANCE_OF = Op("IS_INSTANCE_OF", _is_instance, args_min=2, args_max=2)
    CLASS_OF = Op("CLASS_OF", type)
    TO_STRING = Op("TO_STRING", _to_string, args_min=0, args_max=None)

    CURRENT_TASK_ID = _from_context("CURRENT_TASK_ID")
    CURRENT_MICROBATCH_ID = _from_context("CURRENT_MICROBATCH_ID")
    CURRENT_TOPOLOGY_TYPE = _from_context("CURRENT_TOPOLOGY_TYPE")
    MODULE_INSTANCE_INFO = _from_context("MODULE_INSTANCE_INFO")
    CURRENT_RANDOM_SOURCE = _from_context("CURRENT_RANDOM_SOURCE")
    RANDOM_UUID7 = _from_context("RANDOM_UUID7")


ALL_OPS: dict[str, Op] = {name: value for name, value in vars(Ops).items() if isinstance(value, Op)}
for _op in ALL_OPS.values():
    object.__setattr__(_op, "__doc__", TEXTS[_op.name].says)  # what a notebook shows for `Ops.PLUS?`
