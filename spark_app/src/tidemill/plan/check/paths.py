"""Checks paths against the schema of their PState, as far as it is known what they meet.

`None` stands for a schema that is not known: the inside of a plain value, or what a function of the user returns.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from tidemill.language.dataflow import Const, Location, Nav, PStateDeclaration, RecordedPath
from tidemill.language.schema import (
    FixedKeysSchema,
    Leaf,
    ListSchema,
    MapSchema,
    Schema,
    SetSchema,
    key_text,
    to_text,
)
from tidemill.plan.check.context import Context

LATER_NAVIGATORS = frozenset(
    ("index", "indexed_vals", "before_elem", "after_elem", "before_index", "beginning", "end", "sublist",
     "sublist_dynamic", "filtered_list", "custom_nav", "custom_nav_builder")
)  # fmt: skip
"""Navigators that a later version brings; `paths.compiled.REFUSED` is the same list for clients."""

TERMINALS = frozenset(("term", "term_val", "term_void"))
_STAYS = frozenset(
    ("stay", "filter_pred", "filter_equal", "filter_not_equal", "filter_less_than", "filter_less_than_or_equal",
     "filter_greater_than", "filter_greater_than_or_equal", "filter_selected", "filter_not_selected", "collect",
     "collect_one", "put_collected", "is_collected", "dispense_collected", "null_to_val", "null_to_list",
     "null_to_set")
)  # fmt: skip
_MAPS = frozenset(("must", "map_vals", "map_keys", "map_key", "sub_map"))
_AT_KEYS = frozenset(("map_key", "map_keys", "set_elem", "void_set_elem"))
_ENDS_INSIDE = frozenset(("if_path", "multi_path", "with_page_size"))
_CONTAINERS = {"map": ("dict",), "set": ("set",), "list": ("list",)}


def check_select(context: Context, pstate: PStateDeclaration, path: RecordedPath, at: Location) -> None:
    """A select has no terminal, and its navigators fit the schema."""
    _Walk(context, pstate, at).select(path, pstate.schema)


def check_transform(context: Context, pstate: PStateDeclaration, path: RecordedPath, at: Location) -> None:
    """A transform ends in a terminal everywhere, and what it writes fits the schema."""
    _Walk(context, pstate, at).transform(path, pstate.schema)
    names = [nav.name for nav in path.navs if nav.name not in _STAYS]
    if names == ["term_void"]:
        text = f"term_void at the top of '{pstate.name}' has nothing to remove the value from."
        context.fault(at, text, "Use local_clear, or navigate to an element first.")


def fits(value: Any, schema: Schema | None) -> bool:
    """Whether a constant may stand where this schema is; None fits everywhere."""
    if value is None or schema is None:
        return True
    if isinstance(schema, Leaf):
        return _fits_leaf(value, schema.type)
    if isinstance(schema, (MapSchema, FixedKeysSchema)):
        return isinstance(value, dict)
    return isinstance(value, (set, frozenset) if isinstance(schema, SetSchema) else (list, tuple))


def check_key(
    context: Context, pstate: PStateDeclaration, key: Any, schema: MapSchema | SetSchema, at: Location
) -> None:
    """A constant that stands for a key of a map, or for an element of a set, can be one."""
    what, kind = ("keys", schema.key) if isinstance(schema, MapSchema) else ("elements", schema.element)
    if not isinstance(key, Const) or (schema.nullable if key.value is None else fits(key.value, Leaf(kind))):
        return
    text = f"The {what} of '{pstate.name}' are {key_text(schema)} here; {key.value!r} is none."
    advice = f"Name one, or declare their type as PState.nullable({kind})."
    context.fault(at, text, advice if key.value is None else "Use a constant of that type.")


def _fits_leaf(value: Any, kind: str) -> bool:
    if kind == "object":
        return True
    if kind == "datetime":
        return isinstance(value, datetime.datetime) and value.utcoffset() is not None
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "bytes": (bytes, bytearray),
        "list": (list, tuple), "dict": (dict,), "set": (set, frozenset),
    }  # fmt: skip
    return isinstance(value, kinds[kind]) and (kind == "bool" or not isinstance(value, bool))


def kind_of(schema: Schema) -> str:
    """`a map`, `an int`: what a schema is, for a sentence."""
    if isinstance(schema, Leaf):
        return f"{'an' if schema.type[0] in 'aeiou' else 'a'} {schema.type}"
    names = {MapSchema: "a map", SetSchema: "a set", ListSchema: "a list", FixedKeysSchema: "a fixed-keys record"}
    return names[type(schema)]


class _Walk:
    """Follows one path through the schema of one PState."""

    def __init__(self, context: Context, pstate: PStateDeclaration, at: Location) -> None:
        self.context = context
        self.pstate = pstate
        self.at = at

    def select(self, path: RecordedPath, schema: Schema | None) -> None:
        for nav in path.navs:
            if nav.name in TERMINALS:
                self._fault(f"{nav.name} changes a value, so it cannot be in a select.", "Use local_transform.")
            schema = self._step(nav, schema, self.select)

    def transform(self, path: RecordedPath, schema: Schema | None) -> None:
        last = path.navs[-1] if path.navs else None
        is_open = last is None or (last.name not in TERMINALS and last.name not in _ENDS_INSIDE and last.name != "stop")
        if is_open:
            text = f"The path of a transform of '{self.pstate.name}' does not end in a terminal."
            self._fault(text, "End it with term(…), term_val(…) or term_void().")
        around = schema
        for nav in path.navs[:-1]:
            if nav.name in TERMINALS:
                self._fault(f"{nav.name} stands in the middle of a path.", "End the path with it.")
            around, schema = schema, self._step(nav, schema, self.select)
        if last is not None:
            self._end(last, schema)
        if len(path.navs) > 1 and path.navs[-2].name in _AT_KEYS and isinstance(around, (MapSchema, SetSchema)):
            self._check_new_key(path.navs[-1], around)

    def _check_new_key(self, terminal: Nav, around: MapSchema | SetSchema) -> None:
        """The terminal writes a key of the structure around it, not a value, which might be None."""
        key = terminal.args[0] if terminal.name == "term_val" else None
        if isinstance(key, Const) and key.value is None:
            check_key(self.context, self.pstate, key, around, self.at)

    def _end(self, nav: Nav, schema: Schema | None) -> None:
        if nav.name == "term_val" and isinstance(nav.args[0], Const) and not fits(nav.args[0].value, schema):
            assert schema is not None
            text = f"'{self.pstate.name}' holds {to_text(schema)} here; {nav.args[0].value!r} does not fit."
            self._fault(text, "Write a value of that type, or change the schema.")
        self._step(nav, schema, self.transform if nav.name in _ENDS_INSIDE else self.select)

    def _step(
        self, nav: Nav, schema: Schema | None, inside: Callable[[RecordedPath, Schema | None], None]
    ) -> Schema | None:
        """The schema after a navigator; `inside` checks the paths that a control navigator goes on with."""
        if nav.name in LATER_NAVIGATORS:
            self._fault(f"Path.{nav.name}: not supported by this version of Tidemill.", "Remove it for now.")
            return None
        self._inner_paths(nav, schema, inside)
        if nav.name in _STAYS:
            return schema
        if schema is None or nav.name in TERMINALS:
            return None
        return self._navigate(nav, schema)

    def _inner_paths(
        self, nav: Nav, schema: Schema | None, inside: Callable[[RecordedPath, Schema | None], None]
    ) -> None:
        for position, arg in enumerate(nav.args):
            if not isinstance(arg, RecordedPath):
                continue
            if nav.name == "transformed":
                self.transform(arg, schema)
            elif nav.name in _ENDS_INSIDE and not (nav.name == "if_path" and position == 0):
                inside(arg, schema)
            else:
                self.select(arg, schema)

    def _navigate(self, nav: Nav, schema: Schema) -> Schema | None:
        if nav.name in ("key", "must"):
            found: Schema | None = schema
            for key in nav.args:
                found = self._key(nav, key, found)
            return found
        if nav.name in _MAPS or nav.name.startswith("sorted_map_"):
            return self._of_map(nav, schema)
        if nav.name in ("set_elem", "void_set_elem", "subset") or nav.name.startswith("sorted_set_"):
            self._expect(nav, schema, "set", (SetSchema,))
            is_element = nav.name in ("set_elem", "void_set_elem")
            if isinstance(schema, SetSchema):
                for element in nav.args if is_element or nav.name == "subset" else ():
                    check_key(self.context, self.pstate, element, schema, self.at)
                return Leaf(schema.element) if is_element else schema
            return None
        if nav.name in ("nth", "first", "last"):
            self._expect(nav, schema, "list", (ListSchema,))
            return schema.element if isinstance(schema, ListSchema) and len(nav.args) < 2 else None
        if nav.name == "all":
            return self._all(nav, schema)
        return None

    def _key(self, nav: Nav, key: Any, schema: Schema | None) -> Schema | None:
        if schema is None or isinstance(schema, ListSchema):
            return schema.element if isinstance(schema, ListSchema) else None
        if isinstance(schema, FixedKeysSchema):
            return self._field(key, schema)
        self._expect(nav, schema, "map", (MapSchema,), also=("list",))
        if not isinstance(schema, MapSchema):
            return None
        check_key(self.context, self.pstate, key, schema, self.at)
        return schema.value

    def _field(self, key: Any, schema: FixedKeysSchema) -> Schema | None:
        if not isinstance(key, Const):
            return None
        found = schema.field(key.value)
        if found is None:
            names = ", ".join(repr(name) for name, _ in schema.fields)
            self._fault(f"'{self.pstate.name}' has no key {key.value!r} here.", f"It has {names}.")
        return found

    def _of_map(self, nav: Nav, schema: Schema) -> Schema | None:
        self._expect(nav, schema, "map", (MapSchema, FixedKeysSchema))
        if not isinstance(schema, MapSchema):
            return None
        for key in nav.args if nav.name in ("sub_map", "map_key") else ():
            check_key(self.context, self.pstate, key, schema, self.at)
        if nav.name == "map_vals":
            return schema.value
        return Leaf(schema.key) if nav.name in ("map_keys", "map_key") else schema

    def _all(self, nav: Nav, schema: Schema) -> Schema | None:
        if isinstance(schema, Leaf) and schema.type not in ("list", "dict", "set", "object"):
            self._fault(f"{nav.name} meets {kind_of(schema)} in '{self.pstate.name}'.", "It needs a map, set or list.")
        if isinstance(schema, SetSchema):
            return Leaf(schema.element)
        return schema.element if isinstance(schema, ListSchema) else None

    def _expect(
        self, nav: Nav, schema: Schema, wanted: str, kinds: tuple[type, ...], also: tuple[str, ...] = ()
    ) -> None:
        """The navigator needs a structure of one of `kinds`, or a plain value that may hold one."""
        leaves = ("object", *_CONTAINERS[wanted], *also)
        if isinstance(schema, kinds) or (isinstance(schema, Leaf) and schema.type in leaves):
            return
        text = f"{nav.name} meets {kind_of(schema)} in '{self.pstate.name}', but needs a {wanted}."
        self._fault(text, f"The schema is {to_text(self.pstate.schema)}.")

    def _fault(self, text: str, advice: str) -> None:
        self.context.fault(self.at, text, advice)
