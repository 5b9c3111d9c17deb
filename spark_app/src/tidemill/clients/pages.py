"""Reading page by page: all partitions, each in the order of its keys, as of one committed entry or between two."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidemill.api.arguments import Constant
from tidemill.api.path import Path
from tidemill.language import dataflow
from tidemill.language.schema import MapSchema, Schema, has_indexed
from tidemill.values.errors import BadInput, BadPath
from tidemill.values.message_pack import pack, unpack

PAGE_KEYS: Final = 1_000
PAGE_KEYS_MAX: Final = 10_000
CURSOR_CHARS_MAX: Final = 1_000_000
"""Of the cursor of a page: it holds a key, which has at most about 700,000 bytes then."""

Select = Callable[[int, dataflow.RecordedPath], list[Any]]
"""What a path navigates to on one task."""


class Page(NamedTuple):
    """`items` are `[key, value]` pairs; `after` goes on behind the last of them, None at the end; all as of `entry`."""

    items: list[list[Any]]
    after: str | None
    entry: int


class KeyChange(NamedTuple):
    """One key whose value changed: what the path found below it before and after; [] where it was not there.

    Of a PState that is no map, `key` is the number of the partition.
    """

    key: Any
    before: list[Any]
    after: list[Any]


class ChangesPage(NamedTuple):
    """Some changes; `after` goes on behind the last of them, None at the end."""

    items: list[KeyChange]
    after: str | None


_Item = TypeVar("_Item", covariant=True)


class PageOf(Protocol[_Item]):
    """A part of a walk, and the cursor of the next part."""

    @property
    def items(self) -> Sequence[_Item]:
        """What this part holds."""

    @property
    def after(self) -> str | None:
        """The cursor that goes on behind it, None at the end."""


def pages(page: Callable[[str | None], PageOf[_Item]]) -> Iterator[_Item]:
    """The items of all pages of a walk; `page` gives the one behind a cursor."""
    after = None
    while True:
        found = page(after)
        yield from found.items
        after = found.after
        if after is None:
            return


class PagedReads:
    """Reads of a whole PState, for handles that give it page by page."""

    def page(
        self, limit: int = PAGE_KEYS, *, path: Path | dataflow.RecordedPath | None = None, after: str | None = None
    ) -> Page:
        """The first `limit` keys with their values, or those behind a cursor."""
        raise NotImplementedError

    def diff_page(
        self,
        before: int,
        after: int,
        limit: int = PAGE_KEYS,
        *,
        path: Path | dataflow.RecordedPath | None = None,
        cursor: str | None = None,
    ) -> ChangesPage:
        """The first `limit` changes between two microbatches, or those behind a cursor."""
        raise NotImplementedError

    def scan(
        self, path: Path | dataflow.RecordedPath | None = None, *, page_size: int = PAGE_KEYS
    ) -> Iterator[list[Any]]:
        """Every `[key, value]` of all partitions, as of one entry, read page by page. Raises: as `page`."""
        return pages(lambda after: self.page(page_size, path=path, after=after))

    def diff(
        self, before: int, after: int, path: Path | dataflow.RecordedPath | None = None, *, page_size: int = PAGE_KEYS
    ) -> Iterator[KeyChange]:
        """What changed from one microbatch to another one: each key whose value is not the same, read page by page.

        `diff(41, 42)` tells what microbatch 42 did. With `path`, which begins below a key, only what it finds is
        compared. The work is in proportion to what changed, and to what was compacted in between.

        Raises:
            BadInput: a microbatch is not committed yet.
            BadPath: values are subindexed and no path is given.
            SnapshotExpired: one of them is kept no more.
        """
        return pages(lambda at: self.diff_page(before, after, page_size, path=path, cursor=at))


@dataclass(frozen=True)
class Cursor:
    """Where the next page begins: behind a key of a task (or at the first key: no key), as of an entry.

    `since` is the entry before, of pages that tell what changed from then on.
    """

    entry: int
    task: int
    keys: tuple[Any, ...] = ()
    since: int = 0

    def text(self) -> str:
        """The cursor as clients carry it: Base64 for URLs; `of` is the inverse."""
        return base64.urlsafe_b64encode(pack([self.entry, self.task, list(self.keys), self.since])).decode()

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Raises BadInput: it is none that a page gave."""
        try:
            if not isinstance(text, str) or len(text) > CURSOR_CHARS_MAX:
                raise ValueError("no cursor")
            entry, task, keys, since = unpack(base64.urlsafe_b64decode(text.encode()))
            if all(type(number) is int and number >= 0 for number in (entry, task, since)) and len(keys) <= 1:
                return cls(entry, task, tuple(keys), since)
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput("after= is the cursor of an earlier page, as it was given.") from error
        raise BadInput("after= is the cursor of an earlier page, as it was given.")


def checked_limit(limit: int) -> int:
    """Raises BadInput: a page has 1 to 10,000 keys."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_KEYS_MAX:
        raise BadInput(f"A page has 1 to {PAGE_KEYS_MAX:,} keys, not {limit!r}.")
    return limit


def check_pin(entry: int | None, microbatch: int | None) -> None:
    """Raises BadInput: it is not one of both, a whole number from 0 on."""
    given = [number for number in (entry, microbatch) if number is not None]
    if len(given) != 1 or isinstance(given[0], bool) or not isinstance(given[0], int) or given[0] < 0:
        text = "A state is that of an entry of the commit log, as current_entry() gives it, or of a microbatch"
        raise BadInput(f"{text}: one whole number, not {given[0] if len(given) == 1 else given!r}.")


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
