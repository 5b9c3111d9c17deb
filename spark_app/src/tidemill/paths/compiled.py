"""Paths compiled to closures over the nodes of one task's partition.

A path is read once: its arguments are numbered in order (`arguments`), and each call brings their values. The shapes
that row-at-a-time code runs most often have closures of their own (`paths.points`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.language.dataflow import Arg, Const, RecordedExpr, RecordedPath, Var
from tidemill.language.schema import Schema
from tidemill.paths.bindings import Binder
from tidemill.paths.budget import Budget
from tidemill.paths.control import outcome
from tidemill.paths.navigator import Builder, Hits, Mode, Step, TransformCall, check_ends, hit, unterminated
from tidemill.paths.nodes import UNCHANGED, RootValue
from tidemill.paths.points import SelectCall, fast_select, fast_transform, is_point
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


@dataclass(frozen=True)
class CompiledPath:
    """A path that can be called.

    `select(node, values)` gives the navigated values as plain copies, `transform(node, values)` changes the node;
    the one that was not compiled raises BadPath. `point_keys` are the positions of the keys if the path is nothing
    but keys down to one indexed element whose value is plain: then the value may be fetched in bulk. `leading_key`
    decides to which task a client or `path_partition` goes; None if the path does not begin with a key.
    """

    arguments: tuple[Arg, ...]
    select: SelectCall
    transform: TransformCall
    point_keys: tuple[int, ...] | None
    leading_key: Arg | None


def argument_value(argument: Any) -> Any:
    """The value of an argument outside a topology: there, what looks like a variable is the string it is written as.

    Raises:
        BadPath: it is no argument.
    """
    if isinstance(argument, Const):
        return argument.value
    if isinstance(argument, Var):
        return argument.name
    if isinstance(argument, RecordedExpr):
        return argument.function.call(*map(argument_value, argument.args))
    raise BadPath(f"{argument!r} cannot be a key.")


def compile_path(
    path: RecordedPath, schema: Schema | None, mode: Mode, *, pstate: str = "the PState", budget: Budget | None = None
) -> CompiledPath:
    """Compile a path against the schema of its PState; `pstate` names it in errors.

    With a budget it is a path for one call, whose visits, copies and results count.

    Raises:
        BadPath: a navigator is unknown or misses arguments, a select has a terminal, or a transform ends in none.
    """
    binder = Binder(pstate, budget.first if budget is not None else 0)
    bound = binder.bind(path)
    builder = Builder(mode, budget)
    if mode == "select":
        fast = fast_select(bound, schema, pstate)
        chosen = fast if fast is None or budget is None else _charged(fast, budget)
        select = chosen or _select_call(builder.chain(bound, hit), pstate, budget)
        transform: TransformCall = _refuse_transform
    else:
        check_ends(bound, pstate)
        select = _refuse_select
        step = builder.chain(bound, unterminated)
        transform = fast_transform(bound, schema, pstate) or _transform_call(step, pstate)
        transform = transform if budget is None else _spending(transform, budget)
    keys = tuple(nav.slots[0] for nav in bound) if mode == "select" and is_point(bound, schema) else None
    return CompiledPath(tuple(binder.arguments), select, transform, keys, path.leading_key)


def _charged(fast: SelectCall, budget: Budget) -> SelectCall:
    def select(node: Any, values: Sequence[Any]) -> list[Any]:
        found = fast(node, values)
        for value in found:
            budget.result(value, ())
        return found

    return select


def _select_call(step: Step, where: str, budget: Budget | None) -> SelectCall:
    def select(node: Any, values: Sequence[Any]) -> list[Any]:
        value = node.get_value() if isinstance(node, RootValue) else node
        hits = step(value, values, ())
        return [outcome(found, collected, where) for found, collected in (hits if budget is None else counted(hits))]

    def counted(hits: Hits) -> Hits:
        for found, collected in hits:
            if budget is not None:
                budget.result(found, collected)
            yield found, collected

    return select


def _spending(change: TransformCall, budget: Budget) -> TransformCall:
    def transform(node: Any, values: Sequence[Any]) -> None:
        budget.spend()
        change(node, values)

    return transform


def _transform_call(step: Step, where: str) -> TransformCall:
    def transform(node: Any, values: Sequence[Any]) -> None:
        is_root = isinstance(node, RootValue)
        new = step(node.get_value() if is_root else node, values, ())
        if new is UNCHANGED:
            return
        if new is ABSENT:
            raise BadPath(f"{where}: term_void has nothing to remove the whole PState from; clear it instead")
        if is_root:
            node.put_value(new)
        else:
            node.replace(new, where)

    return transform


def _refuse_select(node: Any, values: Sequence[Any]) -> list[Any]:
    raise BadPath("this path was compiled as a transform")


def _refuse_transform(node: Any, values: Sequence[Any]) -> None:
    raise BadPath("this path was compiled as a select")
