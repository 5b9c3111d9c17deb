"""Reading what changed in a PState between two microbatches, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from tidemill.api.arguments import Constant
from tidemill.api.path import Path
from tidemill.clients.pages import ChangesPage, Cursor, KeyChange
from tidemill.language import dataflow
from tidemill.language.schema import MapSchema, Schema, has_indexed
from tidemill.pstate.changes import ChangedKeys
from tidemill.values.absent import ABSENT
from tidemill.values.data import encode_canonical
from tidemill.values.errors import BadPath

COMPARED_MAX: Final = 20_000
"""Keys that one page compares: where fewer changed than it may hold, it is shorter, and its cursor goes on."""

Select = Callable[[int, dataflow.RecordedPath], tuple[list[Any], list[Any]]]
"""What a path navigates to on one task, before and after."""


def changes_of(
    name: str,
    schema: Schema,
    tasks: int,
    path: dataflow.RecordedPath | None,
    limit: int,
    cursor: Cursor,
    changed: ChangedKeys,
    select: Select,
) -> ChangesPage:
    """The next changes from `cursor` on.

    Raises:
        BadPath: the values of the PState can only be read through a path.
    """
    is_map = isinstance(schema, MapSchema)
    if path is None and has_indexed(schema.value if isinstance(schema, MapSchema) else schema):
        text = f"Something in {name} is subindexed, which cannot be taken whole: give a path, such as Path.key(…)."
        raise BadPath(text, pstate=name)
    navs = () if path is None else path.navs
    items: list[KeyChange] = []
    places = _places(is_map, tasks, cursor, changed)
    for place in islice(places, COMPARED_MAX):
        task, key = place
        below = (*Path.must(Constant(key)).path.navs, *navs) if is_map else navs
        before, after = select(task, dataflow.RecordedPath(below))
        cursor = Cursor(cursor.entry, task, (key,), cursor.since)
        if encode_canonical(before) != encode_canonical(after):
            items.append(KeyChange(key, before, after))
        if len(items) == limit:
            break
    is_over = next(places, None) is None
    return ChangesPage(items, None if is_over else cursor.text())


def _places(is_map: bool, tasks: int, cursor: Cursor, changed: ChangedKeys) -> Iterator[tuple[int, Any]]:
    """(task, key) of all that may differ, behind the cursor."""
    for task in range(cursor.task, tasks):
        is_begun = task == cursor.task and bool(cursor.keys)
        if is_map:
            keys = changed.keys(task, cursor.keys[0] if is_begun else ABSENT)
            yield from ((task, key) for key in keys)
        elif not is_begun and changed.is_touched(task):
            yield task, task
