"""`Path`: navigators, one after the other, from a PState's partition to zero or more values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.api.arguments import arity_faults, takes_more, to_arg, to_args, to_navigator, to_plain_function
from tidemill.api.locations import caller_location
from tidemill.api.ranges import Options, range_faults, range_options
from tidemill.api.starters import starter
from tidemill.language import dataflow
from tidemill.language.dataflow import Location, Nav
from tidemill.language.texts import path_text
from tidemill.values.errors import BadPath, Fault
from tidemill.values.suggestions import SuggestingInstances


@dataclass(frozen=True)
class _UnlessCollected(Fault):
    """The fault of a function with more parameters than it gets, if the path around it collects no values."""


class Path(SuggestingInstances):
    """A path; every navigator exists on the class (it starts a path) and on a path (it extends it). Paths are
    immutable.
    """

    def __init__(self, navs: tuple[Nav, ...] = (), faults: tuple[Fault, ...] = ()) -> None:
        self.path = dataflow.RecordedPath(navs)
        self.faults = faults

    def __repr__(self) -> str:
        return path_text(self.path)

    def _then(self, name: str, *args: Any) -> Path:
        """Add a navigator whose arguments are values, variables or expressions."""
        found: list[Fault] = []
        return self._add(Nav(name, to_args(args, caller_location(), found)), found)

    def _with_function(self, name: str, function: Any, args: tuple[Any, ...], leading: int) -> Path:
        """Add a navigator that calls `function` with `leading` values of its own and then `args`."""
        found: list[Fault] = []
        at = caller_location()
        recorded = to_plain_function(function, leading + len(args), at, found)
        return self._add(Nav(name, (recorded, *to_args(args, at, found))), found)

    def _with_terminal(self, name: str, function: Any, args: tuple[Any, ...]) -> Path:
        """As `_with_function`, of a function that is called with the collected values first, if there are some."""
        path = self._with_function(name, function, args, 1)
        recorded, given, at = path.path.navs[-1].args[0], 1 + len(args), caller_location()
        wrong = arity_faults(recorded, given, at)
        if not wrong or not takes_more(recorded, given, at):
            return path
        faults = (_UnlessCollected(f.location, f.text, f.advice) if f in wrong else f for f in path.faults)
        return Path(path.path.navs, tuple(faults))

    def _with_paths(self, name: str, *paths: Any) -> Path:
        found: list[Fault] = []
        at = caller_location()
        return self._add(Nav(name, tuple(_to_path(path, at, found) for path in paths)), found)

    def _range(self, name: str, args: tuple[Any, ...], chosen: Any, given: Options) -> Path:
        """Add a sorted range; `max_amt` is recorded as an argument, so that a variable may give it."""
        at = caller_location()
        found = list(range_faults(name, chosen, given, at))
        options = range_options(chosen, given)
        if options.get("max_amt") is not None:
            options = {**options, "max_amt": to_arg(options["max_amt"], at, found)}
        return self._add(Nav(name, to_args(args, at, found), tuple(sorted(options.items()))), found)

    def _add(self, nav: Nav, faults: list[Fault]) -> Path:
        return Path((*self.path.navs, nav), (*self.faults, *faults))

    # --- maps ---

    @starter
    def key(self, *keys: Any) -> Path:
        """The value at a key of a map, or at an index of a list, None if there is none; several keys lead into nested
        maps. A transform writes or removes it there.
        """
        return self._then("key", *keys)

    @starter
    def must(self, *keys: Any) -> Path:
        """Like `key`, but where nothing is at the key, a select finds nothing and a transform changes nothing."""
        return self._then("must", *keys)

    @starter
    def map_vals(self) -> Path:
        """Every value of a map; a transform replaces or removes it at its key."""
        return self._then("map_vals")

    @starter
    def map_keys(self) -> Path:
        """Every key of a map; a transform renames it, or removes its entry."""
        return self._then("map_keys")

    @starter
    def map_key(self, key: Any) -> Path:
        """The key itself, if it is present; a transform renames it, or removes its entry."""
        return self._then("map_key", key)

    @starter
    def all(self) -> Path:
        """Every element: `[key, value]` of a map, elements of a list or set; a transform replaces or removes each of
        them.
        """
        return self._then("all")

    @starter
    def sub_map(self, *keys: Any) -> Path:
        """The part of a map that has these keys, as a map; a transform replaces that part by another map."""
        return self._then("sub_map", *keys)

    @starter
    def sorted_map_range(
        self,
        start: Any,
        end: Any,
        options: Any = None,
        *,
        include_start: bool | None = None,
        include_end: bool | None = None,
    ) -> Path:
        """The part of a map with keys in [start, end), as a map; `include_start=False` leaves `start` out,
        `include_end=True` takes `end` in. A transform replaces that part by another map.
        """
        given = {"include_start": include_start, "include_end": include_end}
        return self._range("sorted_map_range", (start, end), options, given)

    @starter
    def sorted_map_range_from(
        self, start: Any, options: Any = None, *, max_amt: Any = None, include_start: bool | None = None
    ) -> Path:
        """The part of a map with keys from `start` on, of which `max_amt` (or a plain number) limits the entries.
        Transforms as `sorted_map_range`.
        """
        given = {"max_amt": max_amt, "include_start": include_start}
        return self._range("sorted_map_range_from", (start,), options, given)

    @starter
    def sorted_map_range_from_start(self, max_amt: Any) -> Path:
        """The first `max_amt` entries of a map, by key. Transforms as `sorted_map_range`."""
        return self._then("sorted_map_range_from_start", max_amt)

    @starter
    def sorted_map_range_to(
        self, end: Any, options: Any = None, *, max_amt: Any = None, include_end: bool | None = None
    ) -> Path:
        """The part of a map with keys before `end`; with `max_amt` (or a plain number) the entries closest to it.
        Transforms as `sorted_map_range`.
        """
        given = {"max_amt": max_amt, "include_end": include_end}
        return self._range("sorted_map_range_to", (end,), options, given)

    @starter
    def sorted_map_range_to_end(self, max_amt: Any) -> Path:
        """The last `max_amt` entries of a map, by key. Transforms as `sorted_map_range`."""
        return self._then("sorted_map_range_to_end", max_amt)

    # --- sets ---

    @starter
    def set_elem(self, element: Any) -> Path:
        """The element, if it is in the set; a transform replaces or removes it."""
        return self._then("set_elem", element)

    @starter
    def void_set_elem(self) -> Path:
        """The place of a new element: a select finds nothing there, a transform adds what it makes of None."""
        return self._then("void_set_elem")

    @starter
    def subset(self, *elements: Any) -> Path:
        """The part of a set that is among these elements, as a set; a transform replaces that part by another set."""
        return self._then("subset", *elements)

    @starter
    def sorted_set_range(
        self,
        start: Any,
        end: Any,
        options: Any = None,
        *,
        include_start: bool | None = None,
        include_end: bool | None = None,
    ) -> Path:
        """The part of a set in [start, end), as a set; the options are those of `sorted_map_range`. A transform
        replaces that part by another set.
        """
        given = {"include_start": include_start, "include_end": include_end}
        return self._range("sorted_set_range", (start, end), options, given)

    @starter
    def sorted_set_range_from(
        self, start: Any, options: Any = None, *, max_amt: Any = None, include_start: bool | None = None
    ) -> Path:
        """The part of a set from `start` on, of which `max_amt` (or a plain number) limits the elements. Transforms as
        `sorted_set_range`.
        """
        given = {"max_amt": max_amt, "include_start": include_start}
        return self._range("sorted_set_range_from", (start,), options, given)

    @starter
    def sorted_set_range_from_start(self, max_amt: Any) -> Path:
        """The first `max_amt` elements of a set, as a set. Transforms as `sorted_set_range`."""
        return self._then("sorted_set_range_from_start", max_amt)

    @starter
    def sorted_set_range_to(
        self, end: Any, options: Any = None, *, max_amt: Any = None, include_end: bool | None = None
    ) -> Path:
        """The part of a set before `end`; with `max_amt` (or a plain number) the elements closest to it. Transforms as
        `sorted_set_range`.
        """
        given = {"max_amt": max_amt, "include_end": include_end}
        return self._range("sorted_set_range_to", (end,), options, given)

    @starter
    def sorted_set_range_to_end(self, max_amt: Any) -> Path:
        """The last `max_amt` elements of a set, as a set. Transforms as `sorted_set_range`."""
        return self._then("sorted_set_range_to_end", max_amt)

    # --- lists ---

    @starter
    def nth(self, *indexes: Any) -> Path:
        """The element at an index of a list, which must be there; several indexes lead into nested lists. A transform
        replaces or removes it.
        """
        return self._then("nth", *indexes)

    @starter
    def first(self) -> Path:
        """The first element of a list, if there is one; a transform replaces or removes it."""
        return self._then("first")

    @starter
    def last(self) -> Path:
        """The last element of a list, if there is one; a transform replaces or removes it."""
        return self._then("last")

    @starter
    def index(self, index: Any) -> Path:
        """The index itself, if the list has it; a transform moves the element to another index, or removes it."""
        return self._then("index", index)

    @starter
    def indexed_vals(self) -> Path:
        """`[index, element]` of each element of a list; a transform replaces elements, moves those whose index it
        changes, and removes those of which it leaves no pair.
        """
        return self._then("indexed_vals")

    @starter
    def before_elem(self) -> Path:
        """The place before the first element of a list: a select finds nothing there, a transform puts there what it
        makes of None.
        """
        return self._then("before_elem")

    @starter
    def after_elem(self) -> Path:
        """The place after the last element of a list; otherwise as `before_elem`."""
        return self._then("after_elem")

    @starter
    def before_index(self, index: Any) -> Path:
        """The place before an index of a list, which may be the one after the last; otherwise as `before_elem`."""
        return self._then("before_index", index)

    @starter
    def beginning(self) -> Path:
        """The empty list before the first element; a transform puts the elements of another list there."""
        return self._then("beginning")

    @starter
    def end(self) -> Path:
        """The empty list after the last element; a transform puts the elements of another list there."""
        return self._then("end")

    @starter
    def sublist(self, start: Any, end: Any) -> Path:
        """The list of the elements at the indexes [start, end), as far as the list goes; a transform replaces them by a
        list of any length.
        """
        return self._then("sublist", start, end)

    @starter
    def sublist_to_end(self, max_amt: Any) -> Path:
        """The list of the last `max_amt` elements; a transform replaces them by a list of any length."""
        return self._then("sublist_to_end", max_amt)

    @starter
    def sublist_dynamic(self, start_function: Any, end_function: Any) -> Path:
        """As `sublist`, at the indexes from `start_function(list)` on and before `end_function(list, start)`."""
        found: list[Fault] = []
        at = caller_location()
        functions = (to_plain_function(start_function, 1, at, found), to_plain_function(end_function, 2, at, found))
        return self._add(Nav("sublist_dynamic", functions), found)

    @starter
    def filtered_list(self, path: Path) -> Path:
        """The list of the elements from which `path` selects something; a transform makes a new list of it, whose
        elements replace them, one by one. Those for which it is too short are removed.
        """
        return self._with_paths("filtered_list", path)

    @starter
    def continuous_subseqs(self, function: Any) -> Path:
        """Each list of neighbours of which `function(element)` is true, as long as can be; a transform replaces each by
        a list of any length.
        """
        return self._with_function("continuous_subseqs", function, (), 1)

    # --- filters ---

    @starter
    def filter_pred(self, function: Any) -> Path:
        """Stay where `function(value)` is true."""
        return self._with_function("filter_pred", function, (), 1)

    @starter
    def filter_equal(self, value: Any) -> Path:
        """Stay where the value equals `value`."""
        return self._then("filter_equal", value)

    @starter
    def filter_not_equal(self, value: Any) -> Path:
        """Stay where the value does not equal `value`."""
        return self._then("filter_not_equal", value)

    @starter
    def filter_less_than(self, value: Any) -> Path:
        """Stay where the value is less than `value`."""
        return self._then("filter_less_than", value)

    @starter
    def filter_less_than_or_equal(self, value: Any) -> Path:
        """Stay where the value is `value` or less."""
        return self._then("filter_less_than_or_equal", value)

    @starter
    def filter_greater_than(self, value: Any) -> Path:
        """Stay where the value is greater than `value`."""
        return self._then("filter_greater_than", value)

    @starter
    def filter_greater_than_or_equal(self, value: Any) -> Path:
        """Stay where the value is `value` or greater."""
        return self._then("filter_greater_than_or_equal", value)

    @starter
    def filter_selected(self, path: Path) -> Path:
        """Stay where `path` selects at least one value."""
        return self._with_paths("filter_selected", path)

    @starter
    def filter_not_selected(self, path: Path) -> Path:
        """Stay where `path` selects nothing."""
        return self._with_paths("filter_not_selected", path)

    # --- views ---

    @starter
    def null_to_val(self, value: Any) -> Path:
        """`value` where there is None, else the value itself; a transform writes it, also if nothing else changes."""
        return self._then("null_to_val", value)

    @starter
    def null_to_list(self) -> Path:
        """An empty list where there is None, else the value itself. Transforms as `null_to_val`."""
        return self._then("null_to_list")

    @starter
    def null_to_set(self) -> Path:
        """An empty set where there is None, else the value itself. Transforms as `null_to_val`."""
        return self._then("null_to_set")

    @starter
    def view(self, function: Any, *args: Any) -> Path:
        """`function(value, *args)`; a transform writes it in place of the value, also if nothing else changes."""
        return self._with_function("view", function, args, 1)

    @starter
    def transformed(self, path: Path) -> Path:
        """The value as the transform path `path` would leave it. Transforms as `view`."""
        return self._with_paths("transformed", path)

    # --- control ---

    @starter
    def stay(self) -> Path:
        """The value itself, in a select and in a transform."""
        return self._then("stay")

    @starter
    def stop(self) -> Path:
        """Nothing: a select finds nothing, a transform changes nothing."""
        return self._then("stop")

    @starter
    def if_path(self, condition: Path, then: Path, else_: Path | None = None) -> Path:
        """`then` where `condition` selects anything, else `else_` (nothing if it is left out); the rest of the path
        goes on from there, in a select and in a transform.
        """
        return self._with_paths("if_path", condition, then, Path().stop() if else_ is None else else_)

    @starter
    def cond_path(self, *paths: Path) -> Path:
        """`cond_path(condition, path, condition, path, …)`: the path behind the first condition that selects anything,
        else nothing; otherwise as `if_path`.
        """
        if len(paths) % 2:
            text = f"cond_path takes pairs of a condition and a path, not {len(paths)} paths."
            fault = Fault(str(caller_location()), text, "Add what is missing; Path.stay() is true wherever it stands.")
            return Path(self.path.navs, (*self.faults, fault))
        return self._with_paths("cond_path", *paths)

    @starter
    def multi_path(self, *paths: Path) -> Path:
        """Where each of the paths leads, one after the other; in a transform each meets what those before it left."""
        return self._with_paths("multi_path", *paths)

    @starter
    def continue_then_stay(self, path: Path) -> Path:
        """Where `path` leads, and then the value itself; in a transform the value comes last, as the path left it."""
        return self._with_paths("continue_then_stay", path)

    @starter
    def subselect(self, path: Path) -> Path:
        """The list of everything that `path` selects; a transform makes a new list of it, whose elements replace what
        was selected, one by one. Those for which it is too short are removed.
        """
        return self._with_paths("subselect", path)

    @starter
    def with_page_size(self, size: Any, path: Path) -> Path:
        """`path`; how many elements are read at a time does not change the result."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(Nav("with_page_size", (to_arg(size, at, found), _to_path(path, at, found))), found)

    @starter
    def custom_nav(self, navigator: Any) -> Path:
        """Where a navigator of yours leads: an object with `select(value, next)` and `transform(value, next)`, which
        call `next` with each value that they navigate to. `next` gives what a transform makes of it, or `VOID` where it
        goes; `transform` returns the changed value, or `VOID`. It meets plain values only.
        """
        found: list[Fault] = []
        return self._add(Nav("custom_nav", (to_navigator(navigator, caller_location(), found),)), found)

    @starter
    def custom_nav_builder(self, function: Any, *args: Any) -> Path:
        """As `custom_nav`, of the navigator that `function(*args)` returns."""
        return self._with_function("custom_nav_builder", function, args, 0)

    # --- value collection ---

    @starter
    def collect(self, path: Path) -> Path:
        """Add the list of what `path` selects to the collected values, and stay. A result is then `[collected…,
        value]`, and `term` passes the collected values first.
        """
        return self._with_paths("collect", path)

    @starter
    def collect_one(self, path: Path) -> Path:
        """Add the one value that `path` selects to the collected values, and stay; otherwise as `collect`."""
        return self._with_paths("collect_one", path)

    @starter
    def put_collected(self, value: Any) -> Path:
        """Add a value to the collected values, and stay; otherwise as `collect`."""
        return self._then("put_collected", value)

    @starter
    def is_collected(self, function: Any) -> Path:
        """Stay where `function(collected values)` is true."""
        return self._with_function("is_collected", function, (), 1)

    @starter
    def dispense_collected(self) -> Path:
        """Forget the collected values, and stay."""
        return self._then("dispense_collected")

    @starter
    def with_fresh_collected(self, path: Path) -> Path:
        """`path`, which begins without collected values; what follows has those from before it again."""
        return self._with_paths("with_fresh_collected", path)

    # --- terminals ---

    @starter
    def term_val(self, value: Any) -> Path:
        """The end of a transform: `value` stands in place of what the path led to."""
        return self._then("term_val", value)

    @starter
    def term(self, function: Any, *args: Any) -> Path:
        """The end of a transform: `function(collected…, value, *args)` stands in place of the value."""
        return self._with_terminal("term", function, args)

    @starter
    def term_void(self) -> Path:
        """The end of a transform: the value is removed from the map, set, list or record that holds it."""
        return self._then("term_void")


def path_of(path: Path | None) -> dataflow.RecordedPath:
    """A client's path as data; None is the whole value.

    Raises:
        BadPath: it is no `Path`, or something in it is wrong; the caller fixes it.
    """
    if path is None:
        return dataflow.RecordedPath()
    if not isinstance(path, Path):
        raise BadPath(f"A path is built with Path.key(…) and so on; {path!r} is none.")
    faults = _faults_of_whole(path)
    if faults:
        raise BadPath("\n".join(str(fault) for fault in faults))
    return path.path


def recorded_path(path: Any, at: Location, faults: list[Fault]) -> dataflow.RecordedPath:
    """The path of a dataflow node; what is wrong with it is added to `faults`."""
    if isinstance(path, Path):
        faults.extend(_faults_of_whole(path))
        return path.path
    return dataflow.RecordedPath() if path is None else _to_path(path, at, faults)


def _faults_of_whole(path: Path) -> list[Fault]:
    """The faults of a path that is whole, so that it is known whether it collects."""
    return [fault for fault in path.faults if not (isinstance(fault, _UnlessCollected) and path.path.collects)]


def _to_path(path: Any, at: Location, faults: list[Fault]) -> dataflow.RecordedPath:
    if isinstance(path, Path):
        faults.extend(path.faults)
        return path.path
    faults.append(Fault(str(at), f"{path!r} is not a path.", "Build one with Path.key(…), Path.stay(), …"))
    return dataflow.RecordedPath()
