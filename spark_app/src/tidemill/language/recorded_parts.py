"""Walks over recorded parts of a dataflow: nodes, arguments and paths, and tuples of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tidemill.language.dataflow import Const, Function, Location, Var


def rewritten(part: Any, change: Callable[[Any], Any]) -> Any:
    """The part with what `change` gives in the place of whatever it does not give back as it is; the part itself where
    nothing changes.
    """
    changed = change(part)
    if changed is not part:
        return changed
    if isinstance(part, tuple):
        inner = tuple(rewritten(each, change) for each in part)
        return inner if any(new is not old for new, old in zip(inner, part, strict=True)) else part
    if not _is_recorded(part):
        return part
    found = {
        each.name: new
        for each in fields(part)
        if (new := rewritten(old := getattr(part, each.name), change)) is not old
    }
    return replace(part, **found) if found else part


def inner_parts(part: Any) -> Iterator[Any]:
    """What stands directly in a recorded part."""
    if isinstance(part, tuple):
        yield from part
    elif _is_recorded(part):
        yield from (getattr(part, each.name) for each in fields(part))


def _is_recorded(part: Any) -> bool:
    """Whether this is a record of the dataflow that may hold arguments; values of users are left alone."""
    return (
        is_dataclass(part)
        and type(part).__module__ == Var.__module__
        and not isinstance(part, (Const, Function, Location))
    )
