"""The oracle's paths: each navigator is the values that it leads to, and what becomes of the whole when they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import oracle_lists as lists
from oracle_lists import Places, list_of
from oracle_lists import if_changed as _if_changed
from oracle_structures import (
    INDEXED,
    UNCHANGED,
    VOID,
    IndexedList,
    IndexedMap,
    IndexedSet,
    OracleError,
    add,
    delete,
    discard,
    elements,
    entries,
    get,
    has,
    is_empty,
    is_there,
    is_true,
    put,
)

import tidemill
from tidemill.language.dataflow import Function, Nav, RecordedPath
from tidemill.values.data import sort_key
from tidemill.values.keys import key_token

_CUSTOM = ("custom_nav", "custom_nav_builder")
Hit = tuple[Any, tuple[Any, ...]]
Evaluate = Callable[[Any], Any]
"""The value of a recorded argument."""


class Walk:
    """Follows the paths of one row; `evaluate` gives the values of arguments, `shuffled` an order where none is
    promised.
    """

    def __init__(self, evaluate: Evaluate, shuffled: Callable[[list[Any]], list[Any]] = lambda items: items) -> None:
        self.evaluate = evaluate
        self.shuffled = shuffled

    def selected(self, path: RecordedPath, value: Any) -> list[Any]:
        """The results of a path, with what it collected."""
        return [
            [*map(whole, collected), whole(found)] if collected else whole(found)
            for found, collected in self.select(path.navs, value, ())
        ]

    def select(self, navs: Sequence[Nav], value: Any, collected: tuple[Any, ...]) -> Iterator[Hit]:
        if not navs:
            yield value, collected
            return
        nav, rest = navs[0], navs[1:]
        if nav.name in ("key", "must", "nth") and len(nav.args) > 1:
            apart = [Nav(nav.name, (arg,)) for arg in nav.args]
            yield from self.select((*apart, *rest), value, collected)
        elif nav.name in ("if_path", "cond_path"):
            yield from self.select((*self._branch(nav, value, collected), *rest), value, collected)
        elif nav.name in ("multi_path", "continue_then_stay"):
            for path in _ways(nav):
                yield from self.select((*path, *rest), value, collected)
        elif nav.name in _THROUGH:
            yield from self.select((*_through(nav, collected), *rest), value, _start(nav, collected))
        elif nav.name in _COLLECTING:
            yield from self.select(rest, value, self._collected(nav, value, collected))
        elif nav.name == "is_collected":
            if is_true(self._call(nav, list(collected))):
                yield from self.select(rest, value, collected)
        elif nav.name == "indexed_vals":
            for pair in map(list, enumerate(list_of(value))):
                yield from self.select(rest, pair, collected)
        elif nav.name in _CUSTOM:
            yield from self._led_by(nav, rest, value, collected)
        elif nav.name not in lists.WRITE_ONLY:
            for found in self.places(nav, value)[0]:
                yield from self.select(rest, found, collected)

    def transform(self, navs: Sequence[Nav], value: Any, collected: tuple[Any, ...] = ()) -> Any:
        """What stands in place of the value."""
        if not navs:
            return UNCHANGED
        nav, rest = navs[0], navs[1:]
        if nav.name == "term_val":
            return self.evaluate(nav.args[0])
        if nav.name == "term_void":
            return VOID
        if nav.name == "term":
            return self._call(nav, *map(whole, collected), whole(value))
        if nav.name in ("key", "must", "nth") and len(nav.args) > 1:
            return self.transform((*(Nav(nav.name, (arg,)) for arg in nav.args), *rest), value, collected)
        if nav.name in ("if_path", "cond_path"):
            return self.transform((*self._branch(nav, value, collected), *rest), value, collected)
        if nav.name in ("multi_path", "continue_then_stay"):
            return self._one_after_the_other([(*path, *rest) for path in _ways(nav)], value, collected)
        if nav.name in _THROUGH:
            return self.transform((*_through(nav, collected), *rest), value, _start(nav, collected))
        if nav.name in _COLLECTING:
            return self.transform(rest, value, self._collected(nav, value, collected))
        if nav.name == "is_collected":
            return self.transform(rest, value, collected) if is_true(self._call(nav, list(collected))) else UNCHANGED
        if nav.name == "indexed_vals":
            return lists.indexed(list_of(value), lambda pair: self.transform(rest, pair, collected))
        if nav.name in _CUSTOM:
            return self._changed_by(nav, rest, value, collected)
        found, rebuilt = self.places(nav, value)
        return rebuilt([self.transform(rest, each, collected) for each in found])

    def _custom(self, nav: Nav) -> Any:
        maker, *args = nav.args
        return maker.call(*map(self.evaluate, args))

    def _led_by(self, nav: Nav, rest: Sequence[Nav], value: Any, collected: tuple[Any, ...]) -> list[Hit]:
        """The hits behind a navigator of the user's, in the order in which it goes on."""
        hits: list[Hit] = []

        def following(item: Any) -> Any:
            found = list(self.select(rest, item, collected))
            hits.extend(found)
            return found[0][0] if found else tidemill.VOID

        self._custom(nav).select(whole(value), following)
        return hits

    def _changed_by(self, nav: Nav, rest: Sequence[Nav], value: Any, collected: tuple[Any, ...]) -> Any:
        def following(item: Any) -> Any:
            new = self.transform(rest, item, collected)
            return item if new is UNCHANGED else tidemill.VOID if new is VOID else new

        new = self._custom(nav).transform(whole(value), following)
        return VOID if new is tidemill.VOID else new

    def _one_after_the_other(self, paths: Sequence[Sequence[Nav]], value: Any, collected: tuple[Any, ...]) -> Any:
        result = UNCHANGED
        for navs in paths:
            new = self.transform(navs, value, collected)
            if new is not UNCHANGED:
                result, value = new, None if new is VOID else new
        return result

    def _branch(self, nav: Nav, value: Any, collected: tuple[Any, ...]) -> Sequence[Nav]:
        if nav.name == "cond_path":
            pairs = zip(nav.args[::2], nav.args[1::2], strict=True)
            found = (
                path.navs
                for condition, path in pairs
                if any(True for _ in self.select(condition.navs, value, collected))
            )
            return next(found, (Nav("stop"),))
        condition, then, *otherwise = nav.args
        if any(True for _ in self.select(condition.navs, value, collected)):
            return then.navs
        return otherwise[0].navs if otherwise else (Nav("stop"),)

    def _collected(self, nav: Nav, value: Any, collected: tuple[Any, ...]) -> tuple[Any, ...]:
        if nav.name == "dispense_collected":
            return ()
        if nav.name == "put_collected":
            return (*collected, self.evaluate(nav.args[0]))
        found = self.selected(nav.args[0], value)
        if nav.name == "collect":
            return (*collected, found)
        if len(found) != 1:
            raise OracleError(f"collect_one found {found!r}")
        return (*collected, found[0])

    def _call(self, nav: Nav, *values: Any) -> Any:
        function = nav.args[0]
        assert isinstance(function, Function)
        return function.call(*values, *(self.evaluate(arg) for arg in nav.args[1:]))

    def places(self, nav: Nav, value: Any) -> Places:
        """Where a navigator leads."""
        return _NAVIGATORS[nav.name](self, nav, value)

    def finds(self, path: RecordedPath, value: Any) -> bool:
        return any(True for _ in self.select(path.navs, value, ()))


_THROUGH = ("with_page_size", "with_fresh_collected", "_again")


def _through(nav: Nav, collected: tuple[Any, ...]) -> Sequence[Nav]:
    """The path inside a navigator; with fresh collected values, those from before it come back behind it."""
    if nav.name == "with_page_size":
        return cast("Sequence[Nav]", nav.args[1].navs)
    return () if nav.name == "_again" else (*nav.args[0].navs, Nav("_again", collected))


def _start(nav: Nav, collected: tuple[Any, ...]) -> tuple[Any, ...]:
    if nav.name == "with_page_size":
        return collected
    return nav.args if nav.name == "_again" else ()


def _ways(nav: Nav) -> list[Sequence[Nav]]:
    """The paths that are followed one after the other."""
    paths = [path.navs for path in nav.args]
    return paths if nav.name == "multi_path" else [*paths, ()]


_COLLECTING = ("collect", "collect_one", "put_collected", "dispense_collected")


def whole(value: Any) -> Any:
    """A value that leaves the state. An indexed structure cannot, as it may be larger than memory."""
    if isinstance(value, (IndexedMap, IndexedSet, IndexedList)):
        raise OracleError("an indexed structure cannot be taken whole")
    if isinstance(value, (list, tuple)):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return set(value) if isinstance(value, frozenset) else value


def _stay(value: Any) -> Places:
    return [value], lambda news: news[0]


def _nowhere() -> Places:
    return [], lambda news: UNCHANGED


def _seen(value: Any) -> Places:
    """A value that stands in place of the old one also if nothing else changes."""
    return [value], lambda news: value if news[0] is UNCHANGED else news[0]


# --- maps ------------------------------------------------------------------------------------------------------------


def _with_entry(value: Any, key: Any, new: Any) -> Any:
    if new is UNCHANGED or (new is VOID and not isinstance(value, IndexedMap) and not is_there(value, key)):
        return UNCHANGED
    return delete(value, key) if new is VOID else put(value, key, new)


def _key(walk: Walk, nav: Nav, value: Any) -> Places:
    key = walk.evaluate(nav.args[0])
    return [get(value, key)], lambda news: _with_entry(value, key, news[0])


def _must(walk: Walk, nav: Nav, value: Any) -> Places:
    key = walk.evaluate(nav.args[0])
    return _key(walk, nav, value) if is_there(value, key) and not is_empty(get(value, key)) else _nowhere()


def _map_vals(walk: Walk, nav: Nav, value: Any) -> Places:
    found = entries(value, walk.shuffled)

    def rebuilt(news: list[Any]) -> Any:
        whole_map = value
        for (key, _), new in zip(found, news, strict=True):
            changed = _with_entry(whole_map, key, new)
            whole_map = whole_map if changed is UNCHANGED else changed
        return whole_map

    return [item for _, item in found], lambda news: _if_changed(news, lambda: rebuilt(news))


def _renamed(value: Any, found: list[tuple[Any, Any]], news: list[Any]) -> Any:
    """All keys that change leave before any new one comes in."""
    changed = [
        (key, new, item)
        for (key, item), new in zip(found, news, strict=True)
        if new is not UNCHANGED and (new is VOID or key_token(new) != key_token(key))
    ]
    if any(new is not VOID and isinstance(item, INDEXED) for _, new, item in changed):
        raise OracleError("a key of an indexed structure is renamed")
    for key, _, _ in changed:
        value = delete(value, key)
    for _, new, item in changed:
        value = value if new is VOID else put(value, new, item)
    return value


def _map_keys(walk: Walk, nav: Nav, value: Any) -> Places:
    found = entries(value, walk.shuffled)
    return [key for key, _ in found], lambda news: _if_changed(news, lambda: _renamed(value, found, news))


def _map_key(walk: Walk, nav: Nav, value: Any) -> Places:
    key = walk.evaluate(nav.args[0])
    if not is_there(value, key) or is_empty(get(value, key)):
        return _nowhere()
    found = [(key, get(value, key))]
    return [key], lambda news: _if_changed(news, lambda: _renamed(value, found, news))


def _part_of_map(value: Any, part: list[tuple[Any, Any]]) -> Places:
    made: Any = {}
    for key, item in part:
        made = put(made, key, item)

    def rebuilt(new: Any) -> Any:
        kept = {} if new is VOID or new is None else new
        if not isinstance(kept, dict):
            raise OracleError(f"a part of a map becomes {kept!r}")
        result = value
        for key, _ in part:
            result = delete(result, key)
        for key, item in kept.items():
            result = put(result, key, item)
        return UNCHANGED if result is value else result

    return [made], lambda news: _if_changed(news, lambda: rebuilt(news[0]))


def _sub_map(walk: Walk, nav: Nav, value: Any) -> Places:
    keys = [walk.evaluate(arg) for arg in nav.args]
    present = [(key, get(value, key)) for key in keys if is_there(value, key) and not is_empty(get(value, key))]
    return _part_of_map(value, present)


def _sorted_map(walk: Walk, nav: Nav, value: Any) -> Places:
    ordered = sorted(entries(value), key=lambda entry: sort_key(entry[0]))
    return _part_of_map(value, _in_range(walk, nav, ordered, lambda entry: entry[0]))


def _in_range(walk: Walk, nav: Nav, ordered: list[Any], key_of: Callable[[Any], Any]) -> list[Any]:
    """The elements of a sorted range."""
    kind = nav.name.removeprefix("sorted_map_range").removeprefix("sorted_set_range")
    options = dict(nav.options)
    args = [walk.evaluate(arg) for arg in nav.args]
    limit = walk.evaluate(options["max_amt"]) if options.get("max_amt") is not None else None
    if kind == "_from_start":
        return ordered[: max(args[0], 0)]
    if kind == "_to_end":
        return ordered[len(ordered) - min(max(args[0], 0), len(ordered)) :]
    start = args[0] if kind in ("", "_from") else None
    end = args[-1] if kind in ("", "_to") else None
    found = [
        each
        for each in ordered
        if (start is None or _is_after(key_of(each), start, options.get("include_start", True)))
        and (end is None or _is_after(end, key_of(each), options.get("include_end", False)))
    ]
    if limit is None:
        return found
    limit = max(limit, 0)
    return found[len(found) - min(limit, len(found)) :] if kind == "_to" else found[:limit]


def _is_after(key: Any, bound: Any, is_included: bool | None) -> bool:
    return sort_key(key) > sort_key(bound) or (bool(is_included) and sort_key(key) == sort_key(bound))


def _all(walk: Walk, nav: Nav, value: Any) -> Places:
    if isinstance(value, (dict, IndexedMap)):
        return _all_of_map(entries(value, walk.shuffled), value)
    if isinstance(value, (set, frozenset, IndexedSet)):
        found = elements(value)
        return found, lambda news: _if_changed(news, lambda: _replaced(value, found, news))
    items = list_of(value)
    return items, lambda news: _if_changed(
        news, lambda: [o if n is UNCHANGED else n for o, n in zip(items, news, strict=True) if n is not VOID]
    )


def _all_of_map(found: list[tuple[Any, Any]], value: Any) -> Places:
    def rebuilt(news: list[Any]) -> Any:
        result, renamed = value, []
        for (key, item), new in zip(found, news, strict=True):
            if new is UNCHANGED:
                continue
            if new is VOID or (isinstance(new, (list, tuple)) and len(new) < 2):
                result = delete(result, key)
            elif not isinstance(new, (list, tuple)) or len(new) != 2:
                raise OracleError(f"an entry becomes {new!r}")
            elif key_token(new[0]) == key_token(key):
                result = result if new[1] is item else put(result, key, new[1])
            else:
                renamed.append((key, new[0], new[1]))
        return _renamed_pairs(result, renamed)

    return [[key, item] for key, item in found], lambda news: _if_changed(news, lambda: rebuilt(news))


def _renamed_pairs(value: Any, renamed: list[tuple[Any, Any, Any]]) -> Any:
    for key, _, _ in renamed:
        value = delete(value, key)
    for _, new, item in renamed:
        value = put(value, new, item)
    return value


# --- sets ------------------------------------------------------------------------------------------------------------


def _replaced(value: Any, found: list[Any], news: list[Any]) -> Any:
    changed = [
        (old, new)
        for old, new in zip(found, news, strict=True)
        if new is not UNCHANGED and (new is VOID or key_token(new) != key_token(old))
    ]
    for old, _ in changed:
        value = discard(value, old)
    for _, new in changed:
        value = value if new is VOID else add(value, new)
    return value


def _set_elem(walk: Walk, nav: Nav, value: Any) -> Places:
    element = walk.evaluate(nav.args[0])
    if not has(value, element):
        return _nowhere()
    return [element], lambda news: _if_changed(news, lambda: _replaced(value, [element], news))


def _void_set_elem(walk: Walk, nav: Nav, value: Any) -> Places:
    """The place of a new element, for transforms."""
    return [None], lambda news: UNCHANGED if news[0] is UNCHANGED or news[0] is VOID else add(value, news[0])


def _part_of_set(value: Any, part: list[Any]) -> Places:
    made: Any = set()
    for element in part:
        made = add(made, element)

    def rebuilt(new: Any) -> Any:
        kept = set() if new is VOID or new is None else new
        result = value
        for element in part:
            result = discard(result, element)
        for element in kept:
            result = add(result, element)
        return UNCHANGED if result is value else result

    return [made], lambda news: _if_changed(news, lambda: rebuilt(news[0]))


def _subset(walk: Walk, nav: Nav, value: Any) -> Places:
    chosen = [walk.evaluate(arg) for arg in nav.args]
    return _part_of_set(value, [element for element in chosen if has(value, element)])


def _sorted_set(walk: Walk, nav: Nav, value: Any) -> Places:
    return _part_of_set(value, _in_range(walk, nav, elements(value), lambda element: element))


# --- filters and views -----------------------------------------------------------------------------------------------


def _filter(holds: Callable[[Walk, Nav, Any], bool]) -> Callable[[Walk, Nav, Any], Places]:
    return lambda walk, nav, value: _stay(value) if holds(walk, nav, value) else _nowhere()


def _compare(holds: Callable[[Any, Any], bool]) -> Callable[[Walk, Nav, Any], Places]:
    return _filter(lambda walk, nav, value: holds(value, walk.evaluate(nav.args[0])))


def _null_to(value: Any, other: Any) -> Places:
    return _seen(other) if value is None else _stay(value)


def _viewed(nav: Nav, value: Any) -> Any:
    """What a function sees; only the size of an indexed structure, and whether an element is in it, can be asked."""
    return value if nav.args[0].name in ("SIZE", "CONTAINS") and isinstance(value, INDEXED) else whole(value)


def _transformed(walk: Walk, nav: Nav, value: Any) -> Places:
    new = walk.transform(nav.args[0].navs, value)
    return _seen(value if new is UNCHANGED else None if new is VOID else new)


def _subselect(walk: Walk, nav: Nav, value: Any) -> Places:
    path = nav.args[0]
    found = [whole(item) for item, _ in walk.select(path.navs, value, ())]

    def rebuilt(new: Any) -> Any:
        source = iter([] if new is VOID else list_of(new))
        return walk.transform(
            (*path.navs, Nav("term", (Function("", "function", lambda _: next(source, VOID)),))), value
        )

    return [found], lambda news: _if_changed(news, lambda: rebuilt(news[0]))


_RANGES = ("", "_from", "_from_start", "_to", "_to_end")
_NAVIGATORS: dict[str, Callable[[Walk, Nav, Any], Places]] = {
    "key": _key, "must": _must, "map_vals": _map_vals, "map_keys": _map_keys, "map_key": _map_key,
    "sub_map": _sub_map, "all": _all, "set_elem": _set_elem, "void_set_elem": _void_set_elem, "subset": _subset,
    **{f"sorted_map_range{kind}": _sorted_map for kind in _RANGES},
    **{f"sorted_set_range{kind}": _sorted_set for kind in _RANGES},
    **lists.NAVIGATORS,
    "stay": lambda walk, nav, value: _stay(value),
    "stop": lambda walk, nav, value: _nowhere(),
    "filter_pred": _filter(lambda walk, nav, value: is_true(walk._call(nav, whole(value)))),
    "filter_equal": _compare(lambda value, other: bool(value == other)),
    "filter_not_equal": _compare(lambda value, other: bool(value != other)),
    "filter_less_than": _compare(lambda value, other: bool(value < other)),
    "filter_less_than_or_equal": _compare(lambda value, other: bool(value <= other)),
    "filter_greater_than": _compare(lambda value, other: bool(value > other)),
    "filter_greater_than_or_equal": _compare(lambda value, other: bool(value >= other)),
    "filter_selected": _filter(lambda walk, nav, value: walk.finds(nav.args[0], value)),
    "filter_not_selected": _filter(lambda walk, nav, value: not walk.finds(nav.args[0], value)),
    "null_to_val": lambda walk, nav, value: _null_to(value, walk.evaluate(nav.args[0])),
    "null_to_list": lambda walk, nav, value: _null_to(value, []),
    "null_to_set": lambda walk, nav, value: _null_to(value, set()),
    "view": lambda walk, nav, value: _seen(walk._call(nav, _viewed(nav, value))),
    "transformed": _transformed,
    "subselect": _subselect,
}  # fmt: skip
