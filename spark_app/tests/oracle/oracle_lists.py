"""The oracle's navigators of lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from oracle_structures import UNCHANGED, VOID, OracleError, is_true

from tidemill.language.dataflow import Function, Nav

Places = tuple[list[Any], Callable[[list[Any]], Any]]


def list_of(value: Any) -> list[Any]:
    """The elements of a list, or of nothing."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise OracleError(f"{value!r} is no list")
    return list(value)


def if_changed(news: list[Any], made: Callable[[], Any]) -> Any:
    """The whole with new values, if there is any."""
    return UNCHANGED if all(new is UNCHANGED for new in news) else made()


def _index(index: Any, size: int) -> int:
    if type(index) is not int or not 0 <= index < size:
        raise OracleError(f"a list of {size} has no place {index!r}")
    return index


def _one(items: list[Any], index: int | None) -> Places:
    if index is None:
        return [], lambda news: UNCHANGED
    place = index

    def rebuilt(new: Any) -> Any:
        return [*items[:place], *([] if new is VOID else [new]), *items[place + 1 :]]

    return [items[place]], lambda news: if_changed(news, lambda: rebuilt(news[0]))


def _nth(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _one(items, _index(walk.evaluate(nav.args[0]), len(items)))


def _first(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _one(items, 0 if items else None)


def _last(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _one(items, len(items) - 1 if items else None)


def _moved(items: list[Any], old: int, new: Any) -> list[Any]:
    rest = [*items[:old], *items[old + 1 :]]
    return rest if new is VOID else [*rest[: _index(new, len(items))], items[old], *rest[new:]]


def _at_index(walk: Any, nav: Nav, value: Any) -> Places:
    items, index = list_of(value), walk.evaluate(nav.args[0])
    if type(index) is not int or not 0 <= index < len(items):
        return [], lambda news: UNCHANGED
    return [index], lambda news: if_changed(news, lambda: _moved(items, index, news[0]))


def _pair(new: Any) -> Any:
    if new is VOID or (isinstance(new, (list, tuple)) and len(new) < 2):
        return VOID
    if not isinstance(new, (list, tuple)) or len(new) != 2:
        raise OracleError(f"[index, element] becomes {new!r}")
    return new


def indexed(items: list[Any], change: Callable[[Any], Any]) -> Any:
    """What a transform of `indexed_vals` makes: each element where it stands after what moved before it."""
    held = [[item] for item in items]  # boxes: an element is found by its box
    gone: list[Any] = []
    news = []
    for box in list(held):
        new = change([next(i for i, other in enumerate(held) if other is box), box[0]])
        news.append(new)
        if new is UNCHANGED:
            continue
        pair = _pair(new)
        if pair is VOID:
            gone.append(box)
            continue
        box[0] = pair[1]
        _index(pair[0], len(held))
        held = [other for other in held if other is not box]
        held.insert(pair[0], box)
    return if_changed(news, lambda: [box[0] for box in held if not any(box is other for other in gone)])


# --- parts -----------------------------------------------------------------------------------------------------------


def _part(new: Any) -> Sequence[Any]:
    part = [] if new is VOID or new is None else new
    if not isinstance(part, (list, tuple)):
        raise OracleError(f"a part of a list becomes {part!r}")
    return part


def _spliced(items: list[Any], start: Any, end: Any) -> Places:
    if type(start) is not int or type(end) is not int or start < 0 or end < 0:
        raise OracleError(f"no places {start!r} to {end!r}")
    start = min(start, len(items))
    end = max(start, min(end, len(items)))
    return [items[start:end]], lambda news: if_changed(news, lambda: [*items[:start], *_part(news[0]), *items[end:]])


def _sublist(walk: Any, nav: Nav, value: Any) -> Places:
    start, end = (walk.evaluate(arg) for arg in nav.args)
    return _spliced(list_of(value), start, end)


def _sublist_dynamic(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    start = nav.args[0].call(list(items))
    return _spliced(items, start, nav.args[1].call(list(items), start))


def _sublist_to_end(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _spliced(items, len(items) - min(max(walk.evaluate(nav.args[0]), 0), len(items)), len(items))


def _beginning(walk: Any, nav: Nav, value: Any) -> Places:
    return _spliced(list_of(value), 0, 0)


def _end(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _spliced(items, len(items), len(items))


def _filtered(walk: Any, nav: Nav, value: Any) -> Places:
    """New elements take the places of those that were found; where there are fewer, places are removed."""
    items = list_of(value)
    chosen = [walk.finds(nav.args[0], item) for item in items]

    def rebuilt(new: Any) -> Any:
        source = iter(_part(new))
        kept = [next(source, VOID) if is_chosen else item for item, is_chosen in zip(items, chosen, strict=True)]
        return [item for item in kept if item is not VOID]

    found = [item for item, is_chosen in zip(items, chosen, strict=True) if is_chosen]
    return [found], lambda news: if_changed(news, lambda: rebuilt(news[0]))


def _runs(walk: Any, nav: Nav, value: Any) -> Places:
    function = nav.args[0]
    assert isinstance(function, Function)
    runs = [(is_in, list(run)) for is_in, run in groupby(list_of(value), lambda item: is_true(function.call(item)))]

    def rebuilt(news: list[Any]) -> Any:
        source = iter(news)
        made: list[Any] = []
        for is_in, run in runs:
            new = next(source) if is_in else UNCHANGED
            made.extend(run if new is UNCHANGED else _part(new))
        return made

    return [run for is_in, run in runs if is_in], lambda news: if_changed(news, lambda: rebuilt(news))


# --- new elements ----------------------------------------------------------------------------------------------------


def _inserted(items: list[Any], place: int) -> Places:
    """For transforms; nothing can be selected there."""
    return [
        None
    ], lambda news: UNCHANGED if news[0] is UNCHANGED or news[0] is VOID else [*items[:place], news[0], *items[place:]]


def _before(walk: Any, nav: Nav, value: Any) -> Places:
    return _inserted(list_of(value), 0)


def _after(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _inserted(items, len(items))


def _before_index(walk: Any, nav: Nav, value: Any) -> Places:
    items = list_of(value)
    return _inserted(items, _index(walk.evaluate(nav.args[0]), len(items) + 1))


WRITE_ONLY = ("void_set_elem", "before_elem", "after_elem", "before_index")
NAVIGATORS: dict[str, Callable[[Any, Nav, Any], Places]] = {
    "first": _first, "last": _last, "nth": _nth, "index": _at_index, "sublist": _sublist,
    "sublist_to_end": _sublist_to_end,
    "sublist_dynamic": _sublist_dynamic, "beginning": _beginning, "end": _end, "filtered_list": _filtered,
    "continuous_subseqs": _runs, "before_elem": _before, "after_elem": _after, "before_index": _before_index,
}  # fmt: skip
