"""Paths as JSON, for the command line and the gateway: `["a", ["must", "b"], ["sortedMapRange", 1, 9, {"inclusive-
end?": true}]]`.

A path is a list of navigators. A bare string, number or boolean is a key; a list is a navigator by its name in
camel or snake case and its arguments. `"#__fOps.IS_EVEN"` is a built-in function, `"#__L123"` the integer 123 (JSON
readers may round large numbers), `"#__Stext"` the string "text", whatever that begins with. The first navigator may
be `["pkey", k]`, the key that decides which task is asked.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.language.dataflow import Const, Function, Nav, RecordedPath
from tidemill.language.operations import op_named
from tidemill.paths.arguments import PATHS
from tidemill.paths.navigator import Navigator
from tidemill.paths.navigators import NAVIGATORS
from tidemill.values.absent import ABSENT
from tidemill.values.data import INT_MAX, INT_MIN
from tidemill.values.errors import BadInput, BadPath

_EFFECTS = frozenset({"PRINTLN"})
"""Functions that do something where they are called."""

_OPTIONS: Mapping[str, tuple[str, bool]] = {
    "inclusive_start": ("include_start", True), "include_start": ("include_start", True),
    "exclude_start": ("include_start", False), "inclusive_end": ("include_end", True),
    "include_end": ("include_end", True), "exclude_end": ("include_end", False), "max_amt": ("max_amt", True),
}  # fmt: skip
"""The options of ranges by their names in JSON, and whether true means it, or the opposite."""

NAVIGATORS_MAX = 100
"""Navigators of one path with all paths in it; each key of `["key", a, b]` is one."""

PATHS_DEPTH_MAX = 16
"""Paths in paths."""

ARGUMENTS_MAX = 10_000
VALUES_DEPTH_MAX = 100
"""The same bound as of all data (`values.data`)."""

_TEXT_CHARS_MAX = 100
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _TEXT_CHARS_MAX


@dataclass(frozen=True)
class JsonPath:
    """A path as it was read; `pkey` is ABSENT where the path does not name one, `first` the number of its first
    navigator in what was read.
    """

    path: RecordedPath
    pkey: Any = ABSENT
    first: int = 0


def path_from_json(data: Any) -> JsonPath:
    """Read the JSON form of a path, already parsed.

    Raises:
        BadPath: names the place in the JSON, for the caller to correct.
    """
    if not isinstance(data, list):
        raise BadPath(f'a path is a list of navigators such as ["a", ["all"]], not {_shown(data)}', at="path")
    reader = _Reader()
    if data and isinstance(data[0], list) and data[0][:1] == ["pkey"]:
        if len(data[0]) != 2:
            raise BadPath('at path[0]: write ["pkey", key] with one key', at="path[0]")
        pkey = value_from_json(data[0][1], "path[0]")
        return JsonPath(reader.path(data[1:], "path", first=1), pkey, 1)
    return JsonPath(reader.path(data, "path"))


def keys_like_navigators(data: Sequence[Any]) -> list[str]:
    """Texts of a path, already parsed, that are keys and have the names of navigators: maybe a list was meant."""
    return [item for item in data if isinstance(item, str) and _snake(item) in NAVIGATORS]


class _Reader:
    """Reads one path, and counts what it has."""

    def __init__(self) -> None:
        self._navigators = 0
        self._arguments = 0
        self._depth = 0

    def path(self, data: Any, at: str, first: int = 0) -> RecordedPath:
        if not isinstance(data, list):
            raise BadPath(f"at {at}: a path is a list of navigators, not {_shown(data)}", at=at)
        if self._depth > PATHS_DEPTH_MAX:
            raise BadPath(f"at {at}: paths in paths are at most {PATHS_DEPTH_MAX} deep", at=at)
        self._depth += 1
        navs = tuple(self._nav(item, f"{at}[{index}]") for index, item in enumerate(data, first))
        self._depth -= 1
        return RecordedPath(navs)

    def _nav(self, item: Any, at: str) -> Nav:
        self._count(1, 0, at)
        if isinstance(item, (str, int, float)):
            return Nav("key", (Const(value_from_json(item, at)),))
        if not (isinstance(item, list) and item and isinstance(item[0], str)):
            text = f'at {at}: {_shown(item)} is no navigator; write a key, or a list such as ["must", "a"]'
            raise BadPath(text, at=at)
        name = _snake(item[0][:_TEXT_CHARS_MAX])
        if name == "pkey":
            raise BadPath(f'at {at}: ["pkey", key] can only be the first navigator', at=at)
        navigator = NAVIGATORS.get(name)
        if navigator is None or navigator.is_code:
            reason = "does not exist" if navigator is None else "takes code of yours, which has no JSON form"
            raise BadPath(f"at {at}: the navigator {_shown(item[0])} {reason}", at=at, navigator=name)
        many = len(item) - 1
        self._count(max(0, many - 1) if navigator.is_repeated else 0, many, at)
        return self._with_arguments(navigator, item[1:], at)

    def _with_arguments(self, navigator: Navigator, given: Sequence[Any], at: str) -> Nav:
        options: tuple[tuple[str, Any], ...] = ()
        if _ends_with_options(navigator, given):
            place = at if given[-1] else f"{at}[{len(given)}]"
            options, given = _options(navigator, given[-1], place), given[:-1]
        if navigator.arguments.are_fewer_than(len(given)):
            wrong = navigator.arguments.miscount(len(given))
            raise BadPath(f"at {at}: {navigator.name} {wrong}", at=at, navigator=navigator.name)
        args: list[Any] = []
        for index, item in enumerate(given):
            place = f"{at}[{index + 1}]"
            kind = navigator.arguments.kind(index)
            if kind in PATHS:
                args.append(self.path(item, place))
            elif kind == "function":
                # Called with the value that the navigator meets, with what the functions before it gave, and with
                # the arguments after the functions.
                count = 1 + index + max(0, len(given) - len(navigator.arguments.kinds))
                args.append(_function(item, place, count, has_more=navigator.takes_collected))
            else:
                args.append(Const(value_from_json(item, place)))
        return Nav(navigator.name, tuple(args), options)

    def _count(self, navigators: int, arguments: int, at: str) -> None:
        self._navigators += navigators
        self._arguments += arguments
        if self._navigators > NAVIGATORS_MAX or self._arguments > ARGUMENTS_MAX:
            text = (
                f"a path has at most {NAVIGATORS_MAX} navigators and {ARGUMENTS_MAX:,} arguments, with all paths in it"
            )
            raise BadPath(f"at {at}: {text}", at=at)


def _ends_with_options(navigator: Navigator, given: Sequence[Any]) -> bool:
    """Whether the last that is given is no argument but options: where there are some, or no place for an argument."""
    if not (given and isinstance(given[-1], dict)):
        return False
    return bool(navigator.options) or navigator.arguments.are_fewer_than(len(given))


def _options(navigator: Navigator, given: Mapping[str, Any], at: str) -> tuple[tuple[str, Any], ...]:
    allowed = navigator.options
    if not (given or allowed):
        raise BadPath(
            f"at {at}: {{}} is one too many; {navigator.name} has no options", at=at, navigator=navigator.name
        )
    found: dict[str, Any] = {}
    for key, value in given.items():
        name, is_as_said = _OPTIONS.get(_snake(str(key)[:_TEXT_CHARS_MAX]).rstrip("?").replace("-", "_"), ("", True))
        if name not in allowed:
            there = ", ".join(sorted(option for option, (meant, _) in _OPTIONS.items() if meant in allowed))
            text = f"at {at}: {navigator.name} has no option {_shown(key)}; it has {there or 'none'}"
            raise BadPath(text, at=at, navigator=navigator.name)
        if name in found:
            raise BadPath(f"at {at}: the option {_shown(key)} says again what another one said", at=at)
        found[name] = value_from_json(value, at)
        if name != "max_amt":
            found[name] = _truth(key, found[name], at) == is_as_said
    return tuple(sorted(found.items()))


def _truth(option: Any, value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise BadPath(f"at {at}: the option {_shown(option)} is true or false, not {_shown(value)}", at=at)
    return value


def _function(item: Any, at: str, values: int, *, has_more: bool) -> Function:
    """The function of a name, which is called with so many values, or with more."""
    if not (isinstance(item, str) and item.startswith("#__f")):
        raise BadPath(f'at {at}: {_shown(item)} is no function; write one such as "#__fOps.IS_EVEN"', at=at)
    name = item.removeprefix("#__f").removeprefix("Ops.")[:_TEXT_CHARS_MAX]
    try:
        op = op_named(name)
    except BadInput:
        raise BadPath(f"at {at}: there is no built-in function {name!r}", at=at) from None
    if op.needs_context or op.emits != "one" or name in _EFFECTS:
        raise BadPath(f"at {at}: {name} cannot be called in a path", at=at)
    if (op.args_max is not None and values > op.args_max) or (values < op.args_min and not has_more):
        wanted = f"{op.args_min} to {op.args_max}" if op.args_max != op.args_min else f"{op.args_min}"
        raise BadPath(f"at {at}: {name} takes {wanted} values, the one that is met among them, not {values}", at=at)
    return Function(name, "builtin", op)


def value_from_json(item: Any, at: str, depth: int = 0) -> Any:
    """Read a value as it stands in a path at a place.

    Raises:
        BadPath: it is none, or no data.
    """
    if depth > VALUES_DEPTH_MAX:
        raise BadPath(f"at {at}: a value is nested deeper than {VALUES_DEPTH_MAX} levels", at=at)
    if isinstance(item, list):
        return [value_from_json(part, at, depth + 1) for part in item]
    if isinstance(item, dict):
        return {_key(key, at, depth + 1): value_from_json(part, at, depth + 1) for key, part in item.items()}
    if isinstance(item, int):
        return _in_64_bits(item, at)
    if not (isinstance(item, str) and item.startswith("#__")):
        return item
    if item.startswith("#__S"):
        return item.removeprefix("#__S")
    number = re.fullmatch(r"#__L(-?[0-9]{1,20})", item)
    if number is None:
        text = f'{_shown(item)} is no value; write "#__L123" for a long integer of 64 bits, "#__Stext" for a string'
        raise BadPath(f"at {at}: {text}", at=at)
    return _in_64_bits(int(number[1]), at)


def _key(item: Any, at: str, depth: int) -> Any:
    """A key of a dict; what is no text came from MessagePack, and stands as it is."""
    return value_from_json(item, at, depth) if isinstance(item, str) else item


def _in_64_bits(number: int, at: str) -> int:
    if not INT_MIN <= number <= INT_MAX:
        raise BadPath(f"at {at}: an integer needs more than 64 bits", at=at)
    return number


def _shown(item: Any) -> str:
    """The beginning of what a client wrote, for an error."""
    return _REPR.repr(item)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
