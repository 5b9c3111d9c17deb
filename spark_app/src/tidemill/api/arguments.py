"""Arguments and functions as the user writes them, and what they are recorded as.

A string that begins with `*` is a variable; `Constant` forces a value. Functions are told apart here: a built-in
operation, a plain callable (one result), an `@operation` (any number of tuples) or `@vectorized` (series in, series
out).
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidemill.api.locations import caller_location
from tidemill.language import dataflow
from tidemill.language.dataflow import Arg, Const, Function, FunctionKind, Location, Var
from tidemill.language.operations import Op, Ops, is_true
from tidemill.language.texts import arg_text
from tidemill.values.data import has_utf8
from tidemill.values.errors import BadInput, Fault, message_of

if TYPE_CHECKING:
    import polars as pl

Emitting = TypeVar("Emitting", bound=Callable[..., Iterable[Any]])
OfSeries = TypeVar("OfSeries", bound="Callable[..., pl.Series | tuple[pl.Series, ...]]")
_KIND = "__tidemill_kind__"
_MORE_MAX = 16


def operation(function: Emitting) -> Emitting:
    """Mark a generator: each tuple that it yields is one row for the `.out(...)` variables (a lone value needs no
    tuple).
    """
    setattr(function, _KIND, "operation")
    return function


def vectorized(function: OfSeries) -> OfSeries:
    """Mark a function of Polars series: it gets whole columns and returns one series (or a tuple of them) of equal
    length.
    """
    setattr(function, _KIND, "vectorized")
    return function


@dataclass(frozen=True)
class Constant:
    """A value that is never taken for a name, whatever it looks like: `Constant("*")`."""

    value: Any


class Expr:
    """A function applied to arguments, in argument position: `Expr(Ops.INC, "*i")`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.at = caller_location()
        found: list[Fault] = []
        recorded = to_function(function, self.at, found)
        if not returns_one_value(recorded):
            text = f"'{recorded.name}' does not return one value and cannot be used in an Expr."
            found.append(Fault(str(self.at), text, "Use each(...) with .out(...) instead."))
        found.extend(arity_faults(recorded, len(args), self.at))
        self.expr = dataflow.RecordedExpr(recorded, to_call_args(recorded, args, self.at, found))
        self.faults = tuple(found)

    def __repr__(self) -> str:
        return arg_text(self.expr)


Condition = str | Expr | Constant
"""A variable, an expression, or a constant that is meant as one."""


class Helpers:
    """Names that nobody else uses, for blocks that are inserted with `macro` in several places."""

    _numbers = itertools.count(1)

    @staticmethod
    def gen_var(prefix: str = "var") -> str:
        """A new variable name."""
        return f"*{prefix}~{next(Helpers._numbers)}"

    @staticmethod
    def gen_pstate_var(prefix: str = "pstate") -> str:
        """A new name of a temporary PState."""
        return f"$${prefix}~{next(Helpers._numbers)}"

    @staticmethod
    def is_generated_var(name: str) -> bool:
        """Whether `gen_var` or `gen_pstate_var` made this name."""
        return name.startswith(("*", "$$")) and "~" in name

    @staticmethod
    def get_generated_var_prefix(name: str) -> str:
        """What a generated name was made from: `"first"` for what `gen_var("first")` gave.

        Raises:
            BadInput: the name was not generated.
        """
        if not Helpers.is_generated_var(name):
            raise BadInput(f"{name!r} is no name that gen_var or gen_pstate_var made.")
        return name.lstrip("*$").rpartition("~")[0]


def to_arg(value: Any, at: Location, faults: list[Fault]) -> dataflow.Arg:
    """Record one argument; what is wrong with it is added to `faults`."""
    if isinstance(value, Constant):
        return Const(value.value)
    if isinstance(value, Expr):
        faults.extend(value.faults)
        return value.expr
    if isinstance(value, str) and value.startswith("*"):
        return Var(value)
    if isinstance(value, str) and value.startswith("$$"):
        text = f"The PState '{value}' cannot be an argument."
        faults.append(Fault(str(at), text, f'Read it with local_select, or write Constant("{value}") for the string.'))
    elif callable(value):
        text = f"T{_called(value)[1:]} is passed itself; nothing calls it."
        faults.append(Fault(str(at), text, f"{_call_advice(value)}, or Constant(…) to pass it as a value."))
    elif type(value).__module__.startswith("tidemill.api."):
        text = f"A {type(value).__name__} cannot be an argument."
        faults.append(Fault(str(at), text, "Pass a variable, a value or an Expr."))
    return Const(value)


def to_condition(value: Any, at: Location, faults: list[Fault]) -> dataflow.Arg:
    """Record a condition: a variable or an expression. A constant is decided before any row comes, which nobody means;
    who does says `Constant(…)`.
    """
    found: list[Fault] = []
    recorded = to_arg(value, at, found)
    if isinstance(recorded, Const) and not isinstance(value, Constant):
        found = [_constant_condition(value, at)]
    faults.extend(found)
    return recorded


def _constant_condition(value: Any, at: Location) -> Fault:
    if callable(value):
        text = f"The condition is {_called(value)} itself, which is true for every row."
        return Fault(str(at), text, f"{_call_advice(value)}.")
    outcome = "true" if is_true(value) else "false"
    text = f"The condition is the constant {value!r}, which is {outcome} for every row."
    advice = 'Python compares strings at once: write Expr(Ops.EQUAL, "*v", 3) in place of "*v" == 3.'
    return Fault(str(at), text, advice)


def _called(function: Any) -> str:
    kind = "class" if isinstance(function, type) else "function"
    return f"the {kind} '{function.name if isinstance(function, Op) else name_of(function)}'"


def _call_advice(function: Any) -> str:
    name = f"Ops.{function.name}" if isinstance(function, Op) else name_of(function).rpartition(".")[2]
    return f'Write Expr({"f" if name == "<lambda>" else name}, "*v") to call it for each row'


def to_call_args(function: Function, values: Sequence[Any], at: Location, faults: list[Fault]) -> tuple[Arg, ...]:
    """Record the arguments of a call; the first of IS_INSTANCE_OF is a class."""
    if function.call is Ops.IS_INSTANCE_OF and values and isinstance(values[0], type):
        return Const(values[0]), *to_args(values[1:], at, faults)
    return to_args(values, at, faults)


def to_args(values: Iterable[Any], at: Location, faults: list[Fault]) -> tuple[dataflow.Arg, ...]:
    """Record arguments as `to_arg` does, in order."""
    return tuple(to_arg(value, at, faults) for value in values)


def to_var(name: Any, at: Location, faults: list[Fault], what: str = "A variable") -> str:
    """Record a variable's name; a wrong one is a fault and is recorded under a legal name."""
    if isinstance(name, str) and name.startswith("$$"):
        advice = "Only materialize, and agg and compound_agg in a batch block, make temporary PStates."
        faults.append(Fault(str(at), f"{what} begins with '*', but '{name}' is the name of a PState.", advice))
        return "*" + name
    if isinstance(name, str) and name.startswith("*") and name.strip("*"):
        return name
    faults.append(Fault(str(at), f"{what} is a string that begins with '*', not {name!r}.", 'Write it like "*name".'))
    return f"*{name}"


def to_vars(names: Iterable[Any], at: Location, faults: list[Fault]) -> tuple[str, ...]:
    """Record names of out variables as `to_var` does, in order."""
    return tuple(to_var(name, at, faults, "An out variable") for name in names)


def to_name(name: Any, sigil: str, what: str, at: Location, faults: list[Fault]) -> str:
    """Record the name of a depot or PState."""
    if isinstance(name, str) and name.startswith(sigil) and len(name) > len(sigil) and not name.startswith("**"):
        return name
    text = f"The name of a {what} begins with '{sigil}'; {name!r} does not."
    faults.append(Fault(str(at), text, f'Write it like "{sigil}name".'))
    return sigil + str(name).lstrip("*$")


def to_migration_id(migration_id: Any, example: str, at: Location, faults: list[Fault]) -> str:
    """Record the ID of a migration; `example` is how a whole one is written."""
    if not isinstance(migration_id, str) or not migration_id or not has_utf8(migration_id):
        text = f"The ID of a migration is a string that is not empty, not {migration_id!r}."
        faults.append(Fault(str(at), text, f"Write it like {example}."))
    return str(migration_id)


def to_function(function: Any, at: Location, faults: list[Fault]) -> Function:
    """Record something that can be called."""
    if isinstance(function, Op):
        return Function(function.name, "builtin", function)
    if not callable(function):
        faults.append(Fault(str(at), f"{function!r} is not a function.", "Pass one of Ops, or a callable."))
        return Function(repr(function), "function", _nothing)
    kind = _kind_of(function)
    body = _body_of(function)
    if kind == "function" and inspect.isgeneratorfunction(body):
        text = f"'{name_of(function)}' is a generator."
        faults.append(Fault(str(at), text, "Mark it with @operation to emit a row for each value that it yields."))
    elif inspect.iscoroutinefunction(body):
        advice = "Call it with each_async(…), or write a plain function (def)."
        faults.append(Fault(str(at), f"'{name_of(function)}' is a coroutine.", advice))
    return Function(name_of(function), kind, function)


def to_async_function(function: Any, args: int, at: Location, faults: list[Fault]) -> Function:
    """Record a function that is called with so many values and returns an awaitable or a future."""
    if isinstance(function, Op) or not callable(function):
        recorded = to_function(function, at, faults)
        if isinstance(function, Op):
            faults.append(Fault(str(at), f"Ops.{function.name} has nothing to await.", "Call it with each."))
        return Function(recorded.name, "async", _nothing)
    body = _body_of(function)
    if _kind_of(function) != "function" or inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        text = f"'{name_of(function)}' does not return one value to await."
        faults.append(Fault(str(at), text, "Pass an async def, or a function that returns a future."))
        return Function(name_of(function), "async", _nothing)
    recorded = Function(name_of(function), "async", function)
    faults.extend(arity_faults(recorded, args, at))
    return recorded


def _body_of(function: Any) -> Any:
    """What `inspect` can ask whether it is a generator or a coroutine."""
    is_plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    return function if is_plain else function.__call__


def to_plain_function(function: Any, args: int, at: Location, faults: list[Fault]) -> Function:
    """Record a function that is called with so many values and returns one, on plain Python values."""
    recorded = to_function(function, at, faults)
    faults.extend(arity_faults(recorded, args, at))
    is_vectorized = recorded.kind == "vectorized"
    if is_vectorized or not returns_one_value(recorded):
        what = "works on columns" if is_vectorized else "does not return one value"
        faults.append(Fault(str(at), f"'{recorded.name}' {what} and cannot be used here.", "Pass a plain function."))
    return recorded


def to_chooser(function: Any, args: int, at: Location, faults: list[Fault]) -> Function:
    """As `to_plain_function`; a class may stand for an object of it that can be called, as Rama takes partitioners."""
    if isinstance(function, type) and any("__call__" in vars(each) for each in function.__mro__):
        function = to_object(function, at, faults)
    return to_plain_function(function, args, at, faults)


def to_object(kind: type[Any], at: Location, faults: list[Fault]) -> Any:
    """An object of a class of the module; the class itself where none can be made."""
    try:
        return kind()
    except Exception as error:  # noqa: BLE001 - whatever the user's class raises is a fault of the definition
        text = f"{kind.__name__}() raised {type(error).__name__}: {message_of(error)}".rstrip(".")
        faults.append(Fault(str(at), f"{text}.", "Pass an object of the class in place of the class."))
        return kind


def to_navigator(navigator: Any, at: Location, faults: list[Fault]) -> Function:
    """Record a navigator of the user, as a function that gives it."""
    has_both = all(callable(getattr(navigator, name, None)) for name in ("select", "transform"))
    if isinstance(navigator, type) or not has_both:
        advice = "Pass an object with the methods select(value, next) and transform(value, next)"
        advice += f", such as {navigator.__name__}()." if has_both else "."
        faults.append(Fault(str(at), f"{navigator!r} is no navigator.", advice))
    return Function(name_of(navigator), "function", functools.partial(_itself, navigator))


def _itself(navigator: Any) -> Any:
    return navigator


def returns_one_value(function: Function) -> bool:
    """Whether a call returns its value, in contrast to any number of rows."""
    return function.kind != "operation" and not (isinstance(function.call, Op) and function.call.emits != "one")


def _kind_of(function: Any) -> FunctionKind:
    """How a function was marked; a partial is what it is made of, an object what its `__call__` is."""
    while isinstance(function, functools.partial):
        function = function.func
    marked = getattr(function, _KIND, None)
    if marked is None and not isinstance(function, type):
        marked = getattr(function.__call__, _KIND, None)
    return cast("FunctionKind", marked or "function")


def _nothing(*args: Any) -> None:
    """Stands for what was no function; it is never called, the fault stops the definition."""


def name_of(function: Any) -> str:
    """A function's name for people."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__).replace("<locals>.", "")


def arity_faults(function: Function, given: int, at: Location) -> list[Fault]:
    """The fault of calling a function with so many arguments, if it does not take them."""
    if isinstance(function.call, Op):
        op = function.call
        fits = given >= op.args_min and (op.args_max is None or given <= op.args_max)
        wanted = _op_arity(op)
    else:
        fits, wanted = _accepts(function.call, given)
    return [] if fits else [Fault(str(at), f"'{function.name}' takes {wanted}, not {given}.")]


def takes_more(function: Function, given: int, at: Location) -> bool:
    """Whether it can be called with some more arguments than so many."""
    return any(not arity_faults(function, given + more, at) for more in range(1, _MORE_MAX + 1))


def _op_arity(op: Op) -> str:
    if op.args_max is None:
        return f"{op.args_min} or more arguments"
    if op.args_min != op.args_max:
        return f"{op.args_min} to {op.args_max} arguments"
    return "1 argument" if op.args_min == 1 else f"{op.args_min} arguments"


def _accepts(function: Any, given: int) -> tuple[bool, str]:
    if function is _nothing:
        return True, ""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True, ""
    try:
        signature.bind(*([None] * given))
    except TypeError:
        return False, f"the arguments {signature}"
    return True, ""
