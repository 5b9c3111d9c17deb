"""Navigators that users write themselves, as objects with `select(value, next)` and `transform(value, next)`.

They meet plain values, as copies. Both call `next` with each value that they navigate to. In a select, `next` gives
the first value that the path behind it finds there, or VOID, and what `select` returns is not looked at. In a transform
it gives what shall stand in place of the value, or VOID where that is to go, and `transform` returns the changed
structure, or VOID where the structure is to go.
"""

from __future__ import annotations

from typing import Any, Final

from tidemill.paths.arguments import CALL, FUNCTION
from tidemill.paths.navigator import (
    BoundNav,
    Builder,
    Collected,
    Hits,
    Navigator,
    Step,
    Steps,
    Values,
    callable_of,
    private,
)
from tidemill.paths.nodes import UNCHANGED
from tidemill.paths.schema_fit import taken_whole
from tidemill.values.absent import VOID
from tidemill.values.errors import BadPath


class CustomNav(Steps):
    """`custom_nav(navigator)`, `custom_nav_builder(fn, args…)`: where the navigator of the user leads, or the one that
    `fn(args…)` gives.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.make = callable_of(nav.functions[0], self.where)

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: list[tuple[Any, Collected]] = []

        def following(item: Any) -> Any:
            found = list(self.following(item, values, collected))
            hits.extend(found)
            return found[0][0] if found else VOID

        self._navigator(values).select(private(value, self.where), following)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        def following(item: Any) -> Any:
            new = self.following(item, values, collected)
            return item if new is UNCHANGED else new

        return self._navigator(values).transform(private(value, self.where), following)

    def _navigator(self, values: Values) -> Any:
        made = self.make(*(values[slot] for slot in self.slots))
        if callable(getattr(made, "select", None)) and callable(getattr(made, "transform", None)):
            return made
        text = (
            f"{self.nav.functions[0].name} gave {made!r}, which has no select(value, next) and transform(value, next)"
        )
        raise BadPath(f"{self.where}: {text}", navigator=self.name)


NAVIGATORS: Final = (
    Navigator("custom_nav", CustomNav, FUNCTION, taken_whole, copies=True, is_code=True),
    Navigator("custom_nav_builder", CustomNav, CALL, taken_whole, copies=True, is_code=True),
)
