"""Paths as JSON-like data, the inverse of `paths.json`; with MessagePack every data value travels as it is."""

from __future__ import annotations

from typing import Any

from tidemill.api.path import Path, path_of
from tidemill.language import dataflow
from tidemill.language.dataflow import Const, Function, Nav, RecordedExpr, Var
from tidemill.values.errors import BadPath

_MARK = "#__"


def path_to_json(path: Path | dataflow.RecordedPath | None) -> list[Any]:
    """A client's path for the gateway.

    Raises:
        BadPath: it calls a function of the caller's, which does not travel.
    """
    recorded = path if isinstance(path, dataflow.RecordedPath) else path_of(path)
    return [_nav(nav) for nav in recorded.navs]


def value_to_json(value: Any) -> Any:
    """A value as it stands in a path: strings that look like marks are marked as strings."""
    if isinstance(value, str):
        return f"{_MARK}S{value}" if value.startswith(_MARK) else value
    if isinstance(value, (list, tuple)):
        return [value_to_json(item) for item in value]
    if isinstance(value, dict):
        return {value_to_json(key) if isinstance(key, str) else key: value_to_json(v) for key, v in value.items()}
    return value


def _nav(nav: Nav) -> list[Any]:
    args = [_arg(nav, arg) for arg in nav.args]
    options = {name: _arg(nav, value) for name, value in nav.options if value is not None}
    return [nav.name, *args, *([options] if options else [])]


def _arg(nav: Nav, arg: Any) -> Any:
    if isinstance(arg, dataflow.RecordedPath):
        return [_nav(inner) for inner in arg.navs]
    if isinstance(arg, Function):
        if arg.kind != "builtin":
            text = f"{nav.name}: the function {arg.name} does not travel to the gateway; use one of Ops,"
            raise BadPath(f"{text} or select the values and call it on them here.", navigator=nav.name)
        return f"{_MARK}fOps.{arg.name}"
    return value_to_json(_value(nav, arg))


def _value(nav: Nav, arg: Any) -> Any:
    if isinstance(arg, Const):
        return arg.value
    if isinstance(arg, Var):
        return arg.name
    if isinstance(arg, RecordedExpr):
        return arg.function.call(*(_value(nav, inner) for inner in arg.args))
    return arg
