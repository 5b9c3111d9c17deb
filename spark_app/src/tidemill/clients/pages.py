"""Reading a whole PState page by page: all partitions, each in the order of its keys, as of one committed entry."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidemill.api.arguments import Constant
from tidemill.api.path import Path
from tidemill.language import dataflow
from tidemill.language.schema import MapSchema, Schema, has_indexed
from tidemill.values.errors import BadInput, BadPath
from tidemill.values.packing import pack, unpack

PAGE_KEYS: Final = 1_000
PAGE_KEYS_MAX: Final = 10_000
_CURSOR_CHARS_MAX: Final = 100_000

Select = Callable[[int, dataflow.RecordedPath], list[Any]]
"""What a path navigates to on one task."""


class Page(NamedTuple):
    """`items` are `[key, value]` pairs; `after` goes on behind the last of them, None at the end; all as of `entry`."""

    items: list[list[Any]]
    after: str | None
    entry: int


def pages(page: Callable[[str | None], Page]) -> Iterator[list[Any]]:
    """The items of all pages of a walk; `page` gives the one behind a cursor."""
    after = None
    while True:
        found = page(after)
        yield from found.items
        after = found.after
        if after is None:
            return


@dataclass(frozen=True)
class Cursor:
    """Where the next page begins: behind a key of a task (or at the first key: no key), as of an entry."""

    entry: int
    task: int
    keys: tuple[Any, ...] = ()

    def text(self) -> str:
        """The cursor as clients carry it: Base64 for URLs; `of` is the inverse."""
        return base64.urlsafe_b64encode(pack([self.entry, self.task, list(self.keys)])).decode()

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Raises BadInput: it is none that a page gave."""
        try:
            if len(text) > _CURSOR_CHARS_MAX:
                raise ValueError(text[:20])
            entry, task, keys = unpack(base64.urlsafe_b64decode(text.encode()))
            if type(entry) is int and type(task) is int and entry >= 0 and task >= 0 and len(keys) <= 1:
                return cls(entry, task, tuple(keys))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput("after= is the cursor of an earlier page, as it was given.") from error
        raise BadInput("after= is the cursor of an earlier page, as it was given.")


def checked_limit(limit: int) -> int:
    """Raises BadInput: a page has 1 to 10,000 keys."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_KEYS_MAX:
        raise BadInput(f"A page has 1 to {PAGE_KEYS_MAX:,} keys, not {limit!r}.")
    return limit


def page_of(
    name: str,
    schema: Schema,
    tasks: int,
    path: dataflow.RecordedPath | None,
    limit: int,
    cursor: Cursor,
    select: Select,
) -> Page:
    """The next keys of a map from `cursor` on with their values, or with a list of all that `path` finds below each.

    Raises:
        BadPath: the PState is no map, or its values can only be read through a path.
    """
    if not isinstance(schema, MapSchema):
        raise BadPath(f"{name} is no map, so it has no pages; select it.", pstate=name)
    if path is None and has_indexed(schema.value):
        text = f"The values of {name} are subindexed, which cannot be taken whole"
        raise BadPath(
            f"{text}: give a path below the key, such as Path.view(Ops.SIZE) or Path.map_keys().", pstate=name
        )
    items: list[list[Any]] = []
    while cursor.task < tasks and len(items) < limit:
        wanted = limit - len(items)
        found = list(_items(cursor, path, wanted, select))
        items += found
        is_over = len(found) < wanted
        cursor = Cursor(cursor.entry, cursor.task + is_over, () if is_over else (found[-1][0],))
    return Page(items, cursor.text() if cursor.task < tasks else None, cursor.entry)


def _items(cursor: Cursor, path: dataflow.RecordedPath | None, wanted: int, select: Select) -> Iterator[list[Any]]:
    part = Path.sorted_map_range_from_start(wanted)
    if cursor.keys:
        part = Path.sorted_map_range_from(Constant(cursor.keys[0]), include_start=False, max_amt=wanted)
    if path is None:
        yield from select(cursor.task, part.all().path)
        return
    for key in select(cursor.task, part.map_keys().path):
        yield [key, select(cursor.task, dataflow.RecordedPath((*Path.key(Constant(key)).path.navs, *path.navs)))]
