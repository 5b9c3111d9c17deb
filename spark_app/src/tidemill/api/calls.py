"""Calls of functions beside plain `each`: results that are awaited, fields of records, and several streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeGuard, TypeVar

from tidemill.api.arguments import name_of, to_args, to_async_function, to_function, to_vars
from tidemill.api.hidden import built_in, hidden_var
from tidemill.api.locations import caller_location, raised_location
from tidemill.api.starters import starter
from tidemill.language import dataflow
from tidemill.language.dataflow import Const, Location, Node, Var
from tidemill.language.emits import Streamed, values_of
from tidemill.language.operations import Ops
from tidemill.language.value_select import SelectFrom
from tidemill.values.errors import Fault, message_of
from tidemill.values.suggestions import SuggestingInstances

ASYNC_CONCURRENCY = 64
"""How many calls of `each_async` run at once in a thread, unless it says otherwise."""

ASYNC_CONCURRENCY_MAX = 10_000


B = TypeVar("B")


class Calls(SuggestingInstances, Generic[B]):
    """The methods of a `Block` that call functions in other ways than `each`."""

    nodes: tuple[Node, ...] = ()
    faults: tuple[Fault, ...] = ()

    def _with(self, nodes: tuple[Node, ...], faults: tuple[Fault, ...]) -> B:
        """The chain of these nodes."""
        raise NotImplementedError

    @starter
    def each_async(
        self,
        function: Callable[..., Any],
        *args: Any,
        concurrency: int = ASYNC_CONCURRENCY,
        timeout_seconds: float | None = None,
    ) -> B:
        """Call an `async def`, or a function that returns a future, with each row's values, and wait for its result.

        At most `concurrency` calls of a thread run at once. Rows go on in the order in which they came. A call that
        takes longer than `timeout_seconds` (by default, and at most, the time of a phase) fails the microbatch. What
        is tried again calls again.
        """
        found: list[Fault] = []
        at = caller_location()
        recorded = to_async_function(function, len(args), at, found)
        found.extend(_async_faults(concurrency, timeout_seconds, at))
        call = dataflow.AsyncCall(recorded.call, concurrency, timeout_seconds)
        node = dataflow.Each(replace(recorded, call=call), to_args(args, at, found), (), at)
        return self._with((*self.nodes, node), (*self.faults, *found))

    @starter
    def fields(self, record: Any, *names: str) -> B:
        """Bind fields of a dict to variables of their names: `fields("*visit", "user", "page")` binds `*user`, `*page`.

        A record that lacks one of them fails, as with `Ops.MUST_GET`; `.each(Ops.GET, "*visit", "user")` gives None.
        """
        found: list[Fault] = []
        at = caller_location()
        wrong = [name for name in names if not isinstance(name, str) or not name or name.startswith(("*", "$$"))]
        if wrong or not names:
            text = f"fields takes names of fields, not {wrong[0]!r}." if wrong else "fields names no field."
            found.append(Fault(str(at), text, 'Write .fields("*visit", "user", "page"), which binds *user and *page.'))
            return self._with(self.nodes, (*self.faults, *found))
        get = to_function(Ops.MUST_GET, at, found)
        nodes = [
            dataflow.Each(get, to_args((record, name), at, found), to_vars((f"*{name}",), at, found), at)
            for name in names
        ]
        return self._with((*self.nodes, *nodes), (*self.faults, *found))

    @starter
    def out_stream(self, stream: str, anchor: str, *names: str) -> B:
        """Bind what the `@operation` before emits to a named stream (`yield emit_stream("odd", 3)`) to variables.

        Those rows go on from the anchor: `hook(anchor)`, `unify(anchor, …)`. `.out(…)` binds the default stream, from
        which the chain itself goes on. What is emitted to a stream that nothing binds is dropped.
        """
        at = caller_location()
        found: list[Fault] = []
        streamed = _streamed(self.nodes)
        if streamed is None:
            advice = 'Write it after each(operation, …), as .out_stream("odd", "oddAnchor", "*v").out("*w").'
            fault = Fault(str(at), "out_stream has no each(…) of an @operation before it.", advice)
            return self._with(self.nodes, (*self.faults, fault))
        for text, what in ((stream, "stream"), (anchor, "anchor")):
            if not isinstance(text, str) or not text:
                found.append(Fault(str(at), f"The {what} of out_stream is a text, not {text!r}.", "Name it."))
        name, values = map(Var, streamed.emits.outs)
        body = (
            dataflow.KeepTrue(built_in(Ops.EQUAL, name, Const(str(stream))), at),
            replace(streamed.default, args=(values,), outs=to_vars(names, at, found), at=at),
            dataflow.Anchor(str(anchor), at),
        )
        is_default = dataflow.KeepTrue(built_in(Ops.IS_NULL, name), streamed.default.at)
        nodes = (*streamed.before, dataflow.Branch(None, body, at), is_default, streamed.default)
        return self._with(nodes, (*self.faults, *found))


def made(macro: Callable[..., Any], args: tuple[Any, ...], at: Location, faults: list[Fault]) -> Any:
    """The block that a function makes of an empty one, `args[0]`; one that raises is a fault at its own line."""
    try:
        return macro(*args)
    except Exception as error:  # noqa: BLE001 - whatever the user's function raises is a fault of the definition
        own = raised_location(error.__traceback__)
        text = f"The macro '{name_of(macro)}' raised {type(error).__name__}: {message_of(error)}".rstrip(".")
        faults.append(Fault(str(at if own == Location() else own), f"{text}.", "Correct it."))
        return args[0]


@dataclass(frozen=True)
class _Streamed:
    """A chain up to an operation: `emits` calls it for emits of all streams, `default` binds those of the default one.

    `before` ends with `emits`, or with the streams that are bound already.
    """

    before: tuple[Node, ...]
    emits: dataflow.Each
    default: dataflow.Each


def _streamed(nodes: tuple[Node, ...]) -> _Streamed | None:
    """The operation at the end of a chain; None where something else is."""
    last = nodes[-1] if nodes else None
    if not isinstance(last, dataflow.Each) or last.function.kind != "operation":
        return None
    if isinstance(last.function.call, SelectFrom):  # a select of a value, which emits to no stream
        return None
    if last.function.call is values_of:  # it has streams already
        emits = next(filter(_is_streamed, reversed(nodes)))
        return _Streamed(nodes[:-2], emits, last)
    streamed = replace(last.function, call=Streamed(last.function.call))
    emits = replace(last, function=streamed, outs=(hidden_var("stream"), hidden_var("values")))
    default = replace(last, function=replace(last.function, call=values_of), args=(Var(emits.outs[1]),))
    return _Streamed((*nodes[:-1], emits), emits, default)


def _is_streamed(node: Node) -> TypeGuard[dataflow.Each]:
    return isinstance(node, dataflow.Each) and isinstance(node.function.call, Streamed)


def _async_faults(concurrency: Any, timeout_seconds: Any, at: Location) -> list[Fault]:
    found = []
    is_count = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not is_count or not 1 <= concurrency <= ASYNC_CONCURRENCY_MAX:
        text = f"The concurrency of each_async is a number from 1 to {ASYNC_CONCURRENCY_MAX:,}, not {concurrency!r}."
        found.append(Fault(str(at), text, "Say how many calls of a thread may run at once."))
    is_number = isinstance(timeout_seconds, (int, float)) and not isinstance(timeout_seconds, bool)
    if timeout_seconds is not None and not (is_number and timeout_seconds > 0):
        text = f"The timeout_seconds of each_async is a number above 0, not {timeout_seconds!r}."
        found.append(Fault(str(at), text, "Leave it out for the time of a phase."))
    return found
