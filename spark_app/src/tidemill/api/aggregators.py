"""Aggregators (`Agg.count()`, …), their composition (`CompoundAgg`) and the bases of custom ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from tidemill.api.arguments import to_arg, to_args, to_object, to_plain_function, to_var
from tidemill.api.locations import caller_location
from tidemill.language import dataflow
from tidemill.language.dataflow import Aggregator, AggTree, Location
from tidemill.language.texts import aggregator_text
from tidemill.values.errors import Fault
from tidemill.values.suggestions import Suggesting

_Faults = tuple[Fault, ...]


class CombinerAgg:
    """Base of a custom combiner: `combine` is associative and commutative, and `zero_val` changes nothing."""

    def combine(self, current: Any, value: Any) -> Any:
        """Both values in one. Either may be `zero_val()`, a row's value or the result of an earlier call."""
        raise NotImplementedError(f"{type(self).__name__} has no combine().")

    def zero_val(self) -> Any:
        """The value before any other; combined with x it gives x."""
        return None

    def is_flush_required(self) -> bool:
        """Whether what it holds grows without bound, so that partial results are sent now and then."""
        return False


class AccumulatorAgg:
    """Base of a custom accumulator: values are taken one after the other, where they arrive."""

    def accumulate(self, current: Any, *args: Any) -> Any:
        """The new value from `current`, which is `init_val()` before the first row, and one row's arguments."""
        raise NotImplementedError(f"{type(self).__name__} has no accumulate().")

    def init_val(self) -> Any:
        """The value before the first row."""
        return None


class Agg(metaclass=Suggesting):
    """One aggregator."""

    _synonyms: ClassVar[Mapping[str, str]] = {"average": "avg", "mean": "avg", "total": "sum", "top_n": "top_monotonic"}

    def __init__(self, tree: Aggregator, faults: Sequence[Fault] = (), at: Location | None = None) -> None:
        self.tree: AggTree = tree
        self.faults: _Faults = tuple(faults)
        self.at = at or Location()

    def __repr__(self) -> str:
        return aggregator_text(self.tree)

    def capture_new_val_into(self, name: str) -> Self:
        """In a batch block: post-agg gets a row for each key that was aggregated into, with the new value in `name`.

        The variables of the keys above are bound again. Several captures must be on one way from the top.
        """
        at = caller_location()
        found: list_of_faults = []
        assert isinstance(self.tree, Aggregator)
        if self.tree.capture is not None:
            text = f"The new value is captured twice, into '{self.tree.capture}' and '{name}'."
            found.append(Fault(str(at), text, "Remove one capture_new_val_into."))
        return type(self)(replace(self.tree, capture=to_var(name, at, found)), (*self.faults, *found), at)

    @staticmethod
    def count() -> Agg:
        """How many rows."""
        return _combiner("count")

    @staticmethod
    def sum(value: Any) -> Agg:
        """The sum of the values."""
        return _combiner("sum", value)

    @staticmethod
    def min(value: Any) -> Agg:
        """The least value, None without any."""
        return _combiner("min", value)

    @staticmethod
    def max(value: Any) -> Agg:
        """The greatest value, None without any."""
        return _combiner("max", value)

    @staticmethod
    def and_(value: Any) -> Agg:
        """The last value if all are true, else the first that is not, where None becomes False; True of no rows."""
        return _combiner("and", value)

    @staticmethod
    def or_(value: Any) -> Agg:
        """The first true value, else the last one, None or False; False of no rows."""
        return _combiner("or", value)

    @staticmethod
    def first(value: Any) -> Agg:
        """The first value that arrived and is not None; None of none."""
        return _combiner("first", value)

    @staticmethod
    def last(value: Any) -> Agg:
        """The last value that arrived and is not None; None of none."""
        return _combiner("last", value)

    @staticmethod
    def list(value: Any) -> Agg:
        """All values, in a list."""
        return _combiner("list", value)

    @staticmethod
    def set(value: Any) -> Agg:
        """All values, in a set."""
        return _combiner("set", value)

    @staticmethod
    def set_remove(value: Any) -> Agg:
        """Remove the values from a set."""
        return _combiner("set_remove", value)

    @staticmethod
    def multi_set(value: Any) -> Agg:
        """How often each value occurs, as a map from value to count."""
        return _combiner("multi_set", value)

    @staticmethod
    def map(key: Any, value: Any) -> Agg:
        """A map from each key to its last value."""
        return _combiner("map", key, value)

    @staticmethod
    def merge(value: Any) -> Agg:
        """Maps merged into one; later keys win."""
        return _combiner("merge", value)

    @staticmethod
    def avg(value: Any) -> Agg:
        """The mean of the values; only for the variables of a batch block."""
        return _recorded("avg", "accumulator", (value,))

    @staticmethod
    def median(value: Any) -> Agg:
        """The exact median of numbers; only for the variables of a batch block.

        Of an even number of values it is the mean of the two in the middle. The values of a group are all held in
        memory until the block is done, on the one task that has the group: about 100 bytes each.
        """
        return _recorded("median", "accumulator", (value,))

    @staticmethod
    def top_monotonic(
        amount: Any,
        value: Any,
        *,
        id_function: Any = None,
        sort_val_function: Any = None,
        ascending: bool = False,
    ) -> TopMonotonicAgg:
        """The `amount` greatest values, where the rank of an identity only ever rises (or falls, if ascending).

        `id_function` and its kind may be written as methods behind it too: `.id_function(Ops.FIRST)`.
        With `sort_val_function`, the earliest of equally good values counts. Then the order of rows matters, and a
        batch block sends all rows instead of partial results.
        """
        at = caller_location()
        found: list_of_faults = []
        args = to_args((amount, value), at, found)
        if not isinstance(args[0], dataflow.Const) or type(args[0].value) is not int or args[0].value < 1:
            text = f"top_monotonic begins with how many values it keeps, not with {amount!r}."
            found.append(Fault(str(at), text, 'Write Agg.top_monotonic(3, "*v") with a whole number above 0.'))
            args = (dataflow.Const(1), *args[1:])
        options = (("ascending", ascending), ("id_function", None), ("sort_val_function", None))
        top = TopMonotonicAgg(Aggregator("top_monotonic", "combiner", args, None, options), found, at)
        if id_function is not None:
            top = top.id_function(id_function)
        return top if sort_val_function is None else top.sort_val_function(sort_val_function)

    @staticmethod
    def voided() -> Agg:
        """Remove the element at this position."""
        return _recorded("voided", "void", ())

    @staticmethod
    def combiner(implementation: Any, *args: Any) -> Agg:
        """A custom combiner: an object (or class) with `combine(a, b)` and `zero_val()`."""
        return _recorded("combiner", "combiner", args, implementation, ("combine", "zero_val"))

    @staticmethod
    def accumulator(implementation: Any, *args: Any) -> Agg:
        """A custom accumulator: an object (or class) with `accumulate(current, *args)` and `init_val()`."""
        return _recorded("accumulator", "accumulator", args, implementation, ("accumulate", "init_val"))


class TopMonotonicAgg(Agg):
    """What `Agg.top_monotonic` returns: its methods say what identifies a value, and what it is ranked by."""

    def id_function(self, function: Any) -> TopMonotonicAgg:
        """`function(value)` identifies a value: at most one value of each identity is kept. Default: the value."""
        return self._with_function("id_function", function)

    def sort_val_function(self, function: Any) -> TopMonotonicAgg:
        """`function(value)` is what values are ranked by. Default: the value itself."""
        return self._with_function("sort_val_function", function)

    def ascending(self) -> TopMonotonicAgg:
        """Keep the least values in place of the greatest."""
        return self._with("ascending", True, ())

    def _with_function(self, name: str, function: Any) -> TopMonotonicAgg:
        found: list_of_faults = []
        return self._with(name, to_plain_function(function, 1, caller_location(), found), found)

    def _with(self, name: str, value: Any, found: Sequence[Fault]) -> TopMonotonicAgg:
        assert isinstance(self.tree, Aggregator)
        options = tuple((each, value if each == name else kept) for each, kept in self.tree.options)
        return TopMonotonicAgg(replace(self.tree, options=options), (*self.faults, *found), self.at)


list_of_faults = list[Fault]


def _combiner(name: str, *args: Any) -> Agg:
    return _recorded(name, "combiner", args)


def _recorded(
    name: str, kind: Any, args: Sequence[Any], implementation: Any = None, methods: Sequence[str] = ()
) -> Agg:
    at = caller_location()
    found: list_of_faults = []
    if isinstance(implementation, type):
        implementation = to_object(implementation, at, found)
    lacking = [method for method in methods if not callable(getattr(implementation, method, None))]
    if lacking:
        text = f"{implementation!r} is no {name}: it has no {' and no '.join(f'{method}()' for method in lacking)}."
        found.append(Fault(str(at), text, f"Derive it from {name.capitalize()}Agg."))
    return Agg(Aggregator(name, kind, to_args(args, at, found), implementation), found, at)


class CompoundAgg:
    """Aggregators at the places of a nested structure."""

    def __init__(self, tree: AggTree, faults: Sequence[Fault] = ()) -> None:
        self.tree = tree
        self.faults: _Faults = tuple(faults)

    def __repr__(self) -> str:
        return aggregator_text(self.tree)

    @staticmethod
    def map(*entries: Any) -> CompoundAgg:
        """`map(key, X, key2, Y, …)`: aggregate with X into the value at `key`, and so on."""
        at = caller_location()
        found: list_of_faults = []
        if len(entries) % 2 or not entries:
            found.append(
                Fault(str(at), "CompoundAgg.map takes pairs of a key and an aggregator.", "Add what is missing.")
            )
        pairs = zip(entries[::2], entries[1::2], strict=False)
        recorded = tuple((to_arg(key, at, found), recorded_tree(value, at, found)) for key, value in pairs)
        return CompoundAgg(dataflow.AggMap(recorded), found)

    @staticmethod
    def list(*items: Any) -> CompoundAgg:
        """`list(X, Y, …)`: aggregate with X into element 0, with Y into element 1, and so on."""
        at = caller_location()
        found: list_of_faults = []
        return CompoundAgg(dataflow.AggList(tuple(recorded_tree(item, at, found) for item in items)), found)


def recorded_tree(value: Any, at: Location, faults: list_of_faults) -> AggTree:
    """The recorded form of an `Agg` or `CompoundAgg`; what is wrong with it is added to `faults`."""
    if isinstance(value, (Agg, CompoundAgg)):
        faults.extend(value.faults)
        return value.tree
    faults.append(
        Fault(str(at), f"{value!r} is not an aggregator.", "Use Agg.count(), Agg.sum(…), CompoundAgg.map(…), …")
    )
    return Aggregator("last", "combiner", (dataflow.Const(None),))
