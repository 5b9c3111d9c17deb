"""Checks paths against the schema of their PState, as far as it is known what they meet; each navigator has a rule of
its own (`paths.schema_fit`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemill.language.dataflow import Const, Location, Nav, PStateDeclaration, RecordedPath
from tidemill.language.schema import ListSchema, MapSchema, Schema, SetSchema, has_indexed, to_text
from tidemill.paths.arguments import PATHS
from tidemill.paths.compiled import compile_path
from tidemill.paths.navigator import Mode
from tidemill.paths.navigators import NAVIGATORS
from tidemill.paths.schema_fit import SchemaFaults, fits
from tidemill.plan.check.context import Context
from tidemill.values.errors import BadPath

Inside = Callable[[RecordedPath, "Schema | None"], "Schema | None"]
"""Checks a path that the path around it goes on with, and gives the schema at its end."""


def check_select(context: Context, pstate: PStateDeclaration, path: RecordedPath, at: Location) -> None:
    """A select has no terminal, its navigators fit the schema, and what it takes is no indexed structure."""
    known = len(context.faults)
    end = _PathCheck(schema_faults(context, pstate, at)).select(path, pstate.schema)
    if end is not None and has_indexed(end) and len(context.faults) == known:
        text = f"This select takes {to_text(end)} of '{pstate.name}' whole, whose elements are stored one by one."
        context.fault(at, text, "Go on to what is in it (key, all, map_vals, a sorted range), or take view(Ops.SIZE).")
    _check_compiles(context, known, pstate, path, "select", at)


def check_transform(context: Context, pstate: PStateDeclaration, path: RecordedPath, at: Location) -> None:
    """A transform ends in a terminal everywhere, and what it writes fits the schema."""
    known = len(context.faults)
    _PathCheck(schema_faults(context, pstate, at)).transform(path, pstate.schema)
    moving = [nav for nav in path.navs if not NAVIGATORS[nav.name].is_staying]
    if len(moving) == 1 and NAVIGATORS[moving[0].name].terminal == "void":
        text = f"{moving[0].name} at the top of '{pstate.name}' has nothing to remove the value from."
        context.fault(at, text, "Use local_clear, or navigate to an element first.")
    _check_compiles(context, known, pstate, path, "transform", at)


def _check_compiles(
    context: Context, known: int, pstate: PStateDeclaration, path: RecordedPath, mode: Mode, at: Location
) -> None:
    """Where no fault was found since `known`: a path that no attempt could compile is one, and not an attempt's."""
    if len(context.faults) == known:
        try:
            compile_path(path, pstate.schema, mode, pstate=f"'{pstate.name}'")
        except BadPath as error:
            if "navigator" in error.context:  # what is wrong with a function was found where it was recorded
                context.fault(at, f"{error}.", "Write the path without it.")


def schema_faults(context: Context, pstate: PStateDeclaration, at: Location) -> SchemaFaults:
    """Reports where something does not fit the schema of a PState as a mistake at this line."""
    return SchemaFaults(pstate.name, pstate.schema, partial(context.fault, at))


class _PathCheck:
    """Follows one path through the schema of one PState."""

    def __init__(self, faults: SchemaFaults) -> None:
        self.faults = faults

    def select(self, path: RecordedPath, schema: Schema | None) -> Schema | None:
        for nav in path.navs:
            if NAVIGATORS[nav.name].terminal:
                self.faults.fault(f"{nav.name} changes a value, so it cannot be in a select.", "Use local_transform.")
            schema = self._step(nav, schema, self.select)
        return schema

    def transform(self, path: RecordedPath, schema: Schema | None) -> None:
        last = path.navs[-1] if path.navs else None
        if last is None or _is_open(last):
            text = f"The path of a transform of '{self.faults.pstate}' does not end in a terminal."
            self.faults.fault(text, "End it with term(…), term_val(…) or term_void().")
        around = schema
        for nav in path.navs[:-1]:
            if NAVIGATORS[nav.name].terminal:
                self.faults.fault(f"{nav.name} stands in the middle of a path.", "End the path with it.")
            around, schema = schema, self._step(nav, schema, self.select)
        if last is not None:
            self._end(last, schema)
        is_at_key = len(path.navs) > 1 and NAVIGATORS[path.navs[-2].name].is_at_key
        if is_at_key and isinstance(around, (MapSchema, SetSchema)):
            self._check_new_key(path.navs[-1], around)

    def _check_new_key(self, terminal: Nav, around: MapSchema | SetSchema) -> None:
        """The terminal writes a key of the structure around it, not a value, which might be None."""
        key = terminal.args[0] if NAVIGATORS[terminal.name].terminal == "value" else None
        if isinstance(key, Const) and key.value is None:
            self.faults.check_key(key, around)

    def _end(self, nav: Nav, schema: Schema | None) -> None:
        navigator = NAVIGATORS[nav.name]
        value = nav.args[0] if navigator.terminal == "value" else None
        if schema is not None and isinstance(value, Const) and not fits(value.value, schema):
            text = f"'{self.faults.pstate}' holds {to_text(schema)} here; {value.value!r} does not fit."
            self.faults.fault(text, "Write a value of that type, or change the schema.")
        self._step(nav, schema, self.transform if navigator.arguments.has_branches else self.select)

    def _step(self, nav: Nav, schema: Schema | None, inside: Inside) -> Schema | None:
        """The schema after a navigator."""
        navigator = NAVIGATORS[nav.name]
        checks: dict[str | None, Inside] = {"branch": inside, "change": self.transform, "condition": self.select}
        ends = [schema] if navigator.is_open else []
        for position, arg in enumerate(nav.args):
            kind = navigator.arguments.kind(position)
            if kind in PATHS and isinstance(arg, RecordedPath):
                end = checks[kind](arg, _element(schema) if navigator.is_about_elements else schema)
                ends += [end] if kind == "branch" and not _is_nowhere(arg) else []
        after = None if schema is None else navigator.after(self.faults, nav, schema)
        return after if not navigator.arguments.has_branches else ends[0] if len(set(ends)) == 1 else None


def _element(schema: Schema | None) -> Schema | None:
    """What a path about the elements of a list meets."""
    return schema.element if isinstance(schema, ListSchema) else None


def _is_nowhere(path: RecordedPath) -> bool:
    """Whether nothing goes on from the end of a path."""
    return any(NAVIGATORS[nav.name].is_nowhere for nav in path.navs)


def _is_open(last: Nav) -> bool:
    """Whether a transform that ends so writes nothing."""
    navigator = NAVIGATORS[last.name]
    return navigator.is_open or not (navigator.terminal or navigator.arguments.has_branches or navigator.is_nowhere)
