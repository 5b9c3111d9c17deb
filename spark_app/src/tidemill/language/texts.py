"""Recorded arguments, paths and aggregators as a person writes them, about: what builders show of themselves."""

from __future__ import annotations

import reprlib
from typing import Any

from tidemill.language.dataflow import AggMap, Aggregator, AggTree, Const, Function, RecordedExpr, RecordedPath, Var

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def arg_text(arg: Any) -> str:
    """An argument of a step, of a navigator or of an aggregator."""
    if isinstance(arg, Var):
        return repr(arg.name)
    if isinstance(arg, Const):
        return _SHORT.repr(arg.value)
    if isinstance(arg, RecordedExpr):
        return f"Expr({', '.join([arg.function.name, *map(arg_text, arg.args)])})"
    if isinstance(arg, RecordedPath):
        return path_text(arg)
    return arg.name if isinstance(arg, Function) else _SHORT.repr(arg)


def path_text(path: RecordedPath) -> str:
    """A path, navigator by navigator."""
    return "Path" + "".join(
        f".{nav.name}({', '.join([*map(arg_text, nav.args), *(f'{name}={value!r}' for name, value in nav.options)])})"
        for nav in path.navs
    )


def aggregator_text(tree: AggTree) -> str:
    """An aggregator, or several at the places of a structure."""
    if isinstance(tree, Aggregator):
        return f"Agg.{tree.name}({', '.join(map(arg_text, tree.args))})"
    if isinstance(tree, AggMap):
        pairs = (f"{arg_text(key)}, {aggregator_text(value)}" for key, value in tree.entries)
        return f"CompoundAgg.map({', '.join(pairs)})"
    return f"CompoundAgg.list({', '.join(map(aggregator_text, tree.items))})"
