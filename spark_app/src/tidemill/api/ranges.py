"""Options of sorted ranges: which ends they include, and how many elements they have at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from tidemill.api.starters import starter
from tidemill.language.dataflow import Location
from tidemill.values.errors import Fault

Options = dict[str, Any]
_Self = TypeVar("_Self", bound="RangeOptions")


class RangeOptions:
    """Which ends a sorted range includes, and how many elements it has at most."""

    def __init__(self, given: Options | None = None) -> None:
        self.given: Options = dict(given or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"

    def _with(self: _Self, name: str, value: Any) -> _Self:
        return type(self)({**self.given, name: value})


class SortedRangeOptions(RangeOptions):
    """Options of `sorted_map_range` and `sorted_set_range`."""

    @starter
    def exclude_start(self) -> SortedRangeOptions:
        """Without the start itself; by default it is included."""
        return self._with("include_start", False)

    @starter
    def include_end(self) -> SortedRangeOptions:
        """With the end itself; by default it is not included."""
        return self._with("include_end", True)


class SortedRangeFromOptions(RangeOptions):
    """Options of `sorted_map_range_from` and `sorted_set_range_from`."""

    @starter
    def exclude_start(self) -> SortedRangeFromOptions:
        """Without the start itself; by default it is included."""
        return self._with("include_start", False)

    @starter
    def max_amt(self, count: Any) -> SortedRangeFromOptions:
        """At most `count` elements, those closest to the start; by default all."""
        return self._with("max_amt", count)


class SortedRangeToOptions(RangeOptions):
    """Options of `sorted_map_range_to` and `sorted_set_range_to`."""

    @starter
    def include_end(self) -> SortedRangeToOptions:
        """With the end itself; by default it is not included."""
        return self._with("include_end", True)

    @starter
    def max_amt(self, count: Any) -> SortedRangeToOptions:
        """At most `count` elements, those closest to the end; by default all."""
        return self._with("max_amt", count)


_DEFAULTS: Options = {"include_start": True, "include_end": False, "max_amt": None}


def range_options(options: Any, given: Options) -> Options:
    """All options of a range, which are the names in `given`: the defaults, what an options object says, and what
    keywords say (None is not given). Where there may be a greatest number of elements, `options` may be that number.
    """
    chosen = _without_none(given)
    if isinstance(options, RangeOptions):
        chosen = {**options.given, **chosen}
    elif options is not None and "max_amt" in given:
        chosen = {"max_amt": options, **chosen}
    return {**{name: _DEFAULTS[name] for name in given}, **chosen}


def range_faults(name: str, options: Any, given: Options, at: Location) -> Iterator[Fault]:
    """What would be left out of the range, or taken for something else, without a word."""
    is_number = options is not None and not isinstance(options, RangeOptions)
    if is_number and "max_amt" not in given:
        text = f"{name} takes options behind its ends, not {options!r}."
        yield Fault(str(at), text, "Write include_end=True, or SortedRangeOptions.include_end().")
    elif is_number and given["max_amt"] is not None:
        text = f"{name} is told twice how many elements it has at most: {options!r} and {given['max_amt']!r}."
        yield Fault(str(at), text, "Remove one of them.")
    for option, value in range_options(options, given).items():
        if option not in given and option != "max_amt":
            yield Fault(str(at), f"{name} has no option {option}.", f"It has {', '.join(given)}.")
        elif option != "max_amt" and not isinstance(value, bool):
            text = f"The option {option} of {name} is True or False, not {value!r}."
            yield Fault(str(at), text, "No variable can give it: choose between two ranges by if_true(…).")


def _without_none(given: Options) -> Options:
    return {name: value for name, value in given.items() if value is not None}
