"""`LimitAgg`: which rows of a batch block `limit_agg` keeps, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemill.api.arguments import to_var, to_vars
from tidemill.api.locations import caller_location
from tidemill.api.starters import starter
from tidemill.language import dataflow
from tidemill.values.errors import Fault


class LimitAgg:
    """Some rows: `LimitAgg.create(3, "*word", "*count").sort("*count").reverse().index_var("*rank")`."""

    def __init__(self, recorded: dataflow.Limit, faults: Sequence[Fault] = ()) -> None:
        self.recorded = recorded
        self.faults = tuple(faults)

    def __repr__(self) -> str:
        kept = self.recorded
        sort = f".sort({', '.join(map(repr, kept.sort))})" if kept.sort else ""
        index = f".index_var({kept.index!r})" if kept.index else ""
        reverse = ".reverse()" if kept.is_reverse else ""
        return f"LimitAgg.create({', '.join(map(repr, (kept.amount, *kept.vars)))}){sort}{reverse}{index}"

    @staticmethod
    def create(amount: int, *variables: str) -> LimitAgg:
        """At most so many rows of each task (of each key in `group_by`); post-agg gets these variables of them.

        Without `sort` it is not said which rows they are.
        """
        found: list[Fault] = []
        at = caller_location()
        if type(amount) is not int or amount < 1:
            text = f"LimitAgg.create begins with the number of rows to keep, not with {amount!r}."
            found.append(Fault(str(at), text, 'Write LimitAgg.create(3, "*v") with a whole number above 0.'))
        names = to_vars(variables, at, found)
        if not names:
            found.append(
                Fault(str(at), "LimitAgg.create names no variable to keep.", 'Write LimitAgg.create(3, "*v").')
            )
        return LimitAgg(dataflow.Limit(amount, names, (), at), found)

    @starter
    def sort(self, *variables: str) -> LimitAgg:
        """Keep the rows whose values come first, in this order; the variables need not be kept."""
        found: list[Fault] = []
        at = caller_location()
        names = to_vars(variables, at, found)
        if not names or self.recorded.sort:
            text = "LimitAgg.sort names all variables to sort by, and stands once."
            found.append(Fault(str(at), text, 'Write sort("*a", "*b") to sort by *a, and by *b where it is equal.'))
        return LimitAgg(replace(self.recorded, sort=names), (*self.faults, *found))

    @starter
    def reverse(self) -> LimitAgg:
        """Keep the rows whose values come last, the last one first."""
        return LimitAgg(replace(self.recorded, is_reverse=True), self.faults)

    @starter
    def index_var(self, name: str) -> LimitAgg:
        """The variable that gets 0 for the first row, 1 for the second, and so on."""
        found: list[Fault] = []
        index = to_var(name, caller_location(), found)
        return LimitAgg(replace(self.recorded, index=index), (*self.faults, *found))
