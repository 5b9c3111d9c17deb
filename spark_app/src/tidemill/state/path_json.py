"""Paths as JSON, for the command line and the gateway: `["a", ["must", "b"], ["sortedMapRange", 1, 9, {"inclusive-
end?": true}]]`.

A path is a list of navigators. A bare string, number or boolean is a key; a list is a navigator by its name in
camel or snake case and its arguments. `"#__fOps.IS_EVEN"` is a built-in function, `"#__L123"` the integer 123 (JSON
readers may round large numbers), `"#__Stext"` the string "text", whatever that begins with. The first navigator may
be `["pkey", k]`, the key that decides which task is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.model.dataflow import Const, Function, Nav, Path
from tidemill.model.errors import BadInput, BadPath
from tidemill.model.operations import op_named
from tidemill.state.nodes import ABSENT
from tidemill.state.paths import NAVIGATORS, REFUSED

_PATH_ARGUMENTS: Mapping[str, int] = {
    "filter_selected": 0, "filter_not_selected": 0, "transformed": 0, "if_path": 0, "multi_path": 0, "subselect": 0,
    "with_page_size": 1, "collect": 0, "collect_one": 0,
}  # fmt: skip
"""Navigators whose arguments are paths, and how many plain arguments come before them."""

_FUNCTION_FIRST = frozenset({"filter_pred", "view", "term", "is_collected"})
_OPTIONS: Mapping[str, str] = {
    "inclusive_start": "include_start", "inclusive_end": "include_end", "include_start": "include_start",
    "include_end": "include_end", "exclude_start": "exclude_start", "exclude_end": "exclude_end", "max_amt": "max_amt",
}  # fmt: skip


@dataclass(frozen=True)
class JsonPath:
    """A path as it was read; `pkey` is ABSENT where the path does not name one."""

    path: Path
    pkey: Any = ABSENT


def path_from_json(data: Any) -> JsonPath:
    """Read the JSON form of a path, already parsed.

    Raises:
        BadPath: names the place in the JSON, for the caller to correct.
    """
    if not isinstance(data, list):
        raise BadPath(f'a path is a list of navigators such as ["a", ["all"]], not {data!r}')
    pkey: Any = ABSENT
    if data and isinstance(data[0], list) and data[0][:1] == ["pkey"]:
        if len(data[0]) != 2:
            raise BadPath('at path[0]: write ["pkey", key] with one key')
        pkey, data = _value(data[0][1], "path[0]"), [None, *data[1:]]
        return JsonPath(Path(tuple(_nav(item, f"path[{at}]") for at, item in enumerate(data) if at)), pkey)
    return JsonPath(_path(data, "path"))


def _path(data: Any, at: str) -> Path:
    if not isinstance(data, list):
        raise BadPath(f"at {at}: a path is a list of navigators, not {data!r}", at=at)
    return Path(tuple(_nav(item, f"{at}[{index}]") for index, item in enumerate(data)))


def _nav(item: Any, at: str) -> Nav:
    if isinstance(item, (str, int, float)):
        return Nav("key", (Const(_value(item, at)),))
    if not (isinstance(item, list) and item and isinstance(item[0], str)):
        raise BadPath(f'at {at}: {item!r} is no navigator; write a key, or a list such as ["must", "a"]', at=at)
    name = _snake(item[0])
    if name == "pkey":
        raise BadPath(f'at {at}: ["pkey", key] can only be the first navigator', at=at)
    if name not in NAVIGATORS:
        reason = "is not in this version" if name in REFUSED else "does not exist"
        raise BadPath(f"at {at}: the navigator {item[0]!r} {reason}", at=at, navigator=name)
    return _with_arguments(name, item[1:], at)


def _with_arguments(name: str, given: Sequence[Any], at: str) -> Nav:
    options: tuple[tuple[str, Any], ...] = ()
    if given and isinstance(given[-1], dict) and "_range" in name:
        options, given = _options(given[-1], at), given[:-1]
    first_path = _PATH_ARGUMENTS.get(name)
    args: list[Any] = []
    for index, item in enumerate(given):
        place = f"{at}[{index + 1}]"
        if first_path is not None and index >= first_path:
            args.append(_path(item, place))
        elif index == 0 and name in _FUNCTION_FIRST:
            args.append(_function(item, place))
        else:
            args.append(Const(_value(item, place)))
    return Nav(name, tuple(args), options)


def _options(given: Mapping[str, Any], at: str) -> tuple[tuple[str, Any], ...]:
    found = []
    for key, value in given.items():
        name = _OPTIONS.get(_snake(key).rstrip("?").replace("-", "_"))
        if name is None:
            raise BadPath(f"at {at}: there is no option {key!r}; there are {', '.join(sorted(_OPTIONS))}", at=at)
        found.append((name, _value(value, at)))
    return tuple(sorted(found))


def _function(item: Any, at: str) -> Function:
    if not (isinstance(item, str) and item.startswith("#__f")):
        raise BadPath(f'at {at}: {item!r} is no function; write one such as "#__fOps.IS_EVEN"', at=at)
    name = item.removeprefix("#__f").removeprefix("Ops.")
    try:
        op = op_named(name)
    except BadInput:
        raise BadPath(f"at {at}: there is no built-in function {name!r}", at=at) from None
    if op.needs_context or op.emits != "one":
        raise BadPath(f"at {at}: {name} cannot be called in a path", at=at)
    return Function(name, "builtin", op)


def _value(item: Any, at: str) -> Any:
    if isinstance(item, list):
        return [_value(part, at) for part in item]
    if isinstance(item, dict):
        return {_value(key, at): _value(part, at) for key, part in item.items()}
    if not (isinstance(item, str) and item.startswith("#__")):
        return item
    if item.startswith("#__S"):
        return item.removeprefix("#__S")
    number = re.fullmatch(r"#__L(-?\d+)", item)
    if number is None:
        raise BadPath(
            f'at {at}: {item!r} is no value; write "#__L123" for a long integer, "#__Stext" for a string', at=at
        )
    return int(number[1])


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
