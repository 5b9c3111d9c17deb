"""Which navigators may follow a path in a select, by the schema where it leads: offered to whoever writes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidemill.language.dataflow import Const, Nav, RecordedPath
from tidemill.language.schema import (
    FixedKeysSchema,
    Leaf,
    MapSchema,
    Schema,
    SetSchema,
)
from tidemill.paths.navigator import Navigator
from tidemill.paths.navigators import NAVIGATORS
from tidemill.paths.schema_fit import SchemaFaults, stays
from tidemill.values.errors import BadPath

AMOUNT: Final = 10
"""Entries of a range in an example."""

_SAMPLES: Final[Mapping[str, Any]] = {"str": "", "int": 0, "float": 0.0, "bool": True, "object": ""}
"""Keys and elements that JSON has, by their type."""

_PLACES: Final = frozenset({"before_elem", "after_elem", "before_index", "void_set_elem"})
"""Where a transform adds something; a select finds nothing there."""

_SIZED: Final = ("list", "dict", "set")


@dataclass(frozen=True)
class Offer:
    """A navigator that fits: its name in Python, and an example of it in the JSON form of paths."""

    name: str
    example: Any


@dataclass(frozen=True)
class Following:
    """What may follow a path. `schema` is where it leads, None where no schema tells."""

    schema: Schema | None
    offers: tuple[Offer, ...]


def following(pstate: str, schema: Schema, path: RecordedPath, *, needs_key: bool = False) -> Following:
    """What may follow a path below the root of a PState; `needs_key`: its paths begin with a key, which says the task.

    Raises:
        BadPath: the path itself does not fit the schema.
    """
    found: Schema | None = schema
    for nav in path.navs:
        found = None if found is None else NAVIGATORS[nav.name].after(_refusing(pstate, schema), nav, found)
    is_root = found is schema and not path.navs
    return Following(found, tuple(_offers(pstate, found, needs_key=needs_key and is_root)))


def _refusing(pstate: str, schema: Schema) -> SchemaFaults:
    def refuse(text: str, advice: str) -> None:
        raise BadPath(f"{text} {advice}", pstate=pstate)

    return SchemaFaults(pstate, schema, refuse)


def _offers(pstate: str, schema: Schema | None, *, needs_key: bool) -> Iterator[Offer]:
    if schema is None or schema == Leaf("object"):
        return  # what is there is known of each value only
    if isinstance(schema, FixedKeysSchema):
        yield from (Offer("key", name) for name, _ in schema.fields if isinstance(name, str))
    for navigator in NAVIGATORS.values():
        if needs_key and navigator.name not in ("key", "must"):
            continue
        if navigator.name == "key" and isinstance(schema, FixedKeysSchema):
            continue
        args = _arguments(navigator, schema)
        if args is not None and _is_offered(navigator, schema) and _fits(pstate, navigator, schema, args):
            yield Offer(navigator.name, _example(navigator, args))


def _is_offered(navigator: Navigator, schema: Schema) -> bool:
    is_apart = navigator.is_code or navigator.is_nowhere or navigator.is_identity or navigator.uses_collected
    if is_apart or navigator.terminal or navigator.name in _PLACES:
        return False
    if navigator.name == "view":
        return not isinstance(schema, Leaf) or schema.type in _SIZED
    # What stays compares a value with a constant: a structure is compared with none.
    return navigator.after is not stays or (isinstance(schema, Leaf) and schema.type not in _SIZED)


def _arguments(navigator: Navigator, schema: Schema) -> list[Any] | None:
    """Arguments for an example; None: it takes paths or functions that only its writer knows."""
    name = navigator.name
    if name == "view":
        return ["#__fOps.SIZE"]
    kinds = navigator.arguments.kinds[: len(navigator.arguments.kinds) - navigator.arguments.optional]
    kinds = kinds or navigator.arguments.more[:1]
    if any(kind != "value" for kind in kinds):
        return None
    sample = AMOUNT if name.endswith(("_from_start", "_to_end")) and "sorted" in name else _sample(schema)
    if sample is None and kinds:
        return None
    return [sample for _ in kinds]


def _sample(schema: Schema) -> Any:
    """What may stand for a key, an index, an element or a value where this schema is; None: JSON has none."""
    if isinstance(schema, MapSchema):
        return _SAMPLES.get(schema.key)
    if isinstance(schema, SetSchema):
        return _SAMPLES.get(schema.element)
    if isinstance(schema, FixedKeysSchema):
        return next((name for name, _ in schema.fields if isinstance(name, str)), None)
    if isinstance(schema, Leaf) and schema.type not in _SIZED:
        return _SAMPLES.get(schema.type)
    return 0  # an index


def _fits(pstate: str, navigator: Navigator, schema: Schema, args: list[Any]) -> bool:
    if navigator.name == "view":
        return True
    faults: list[str] = []
    nav = Nav(navigator.name, tuple(Const(arg) for arg in args))
    navigator.after(SchemaFaults(pstate, schema, lambda text, advice: faults.append(text)), nav, schema)
    return not faults


def _example(navigator: Navigator, args: list[Any]) -> Any:
    if navigator.name == "key":
        return args[0]
    first, *words = navigator.name.split("_")
    options = [{"max-amt": AMOUNT}] if "max_amt" in navigator.options else []
    return [first + "".join(word.capitalize() for word in words), *args, *options]
