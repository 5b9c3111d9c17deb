"""Navigators that branch, collect values, or end a transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidemill.paths.arguments import CALL, CONDITION, VALUE, ArgumentKinds
from tidemill.paths.containers import list_of, plain
from tidemill.paths.navigator import (
    BoundNav,
    Builder,
    Collected,
    Hits,
    Navigator,
    Step,
    Steps,
    Values,
    private,
    selects_any,
)
from tidemill.paths.nodes import UNCHANGED
from tidemill.paths.points import delete, put_value, update
from tidemill.paths.schema_fit import a_list, stays
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath, NotOneValue


class IfPath(Steps):
    """`if_path(condition, then, else)`, `cond_path(condition, path, …)`: the rest of the path follows the branch of the
    first condition that selects anything, else the path without a condition.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        pairs = zip(nav.paths[::2], nav.paths[1::2], strict=False)
        self.cases = [(builder.condition(path), builder.chain(branch, following)) for path, branch in pairs]
        self.otherwise = builder.chain(nav.paths[-1], following) if len(nav.paths) % 2 else None

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        branch = self._branch(value, values, collected)
        hits: Hits = () if branch is None else branch(value, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        branch = self._branch(value, values, collected)
        return UNCHANGED if branch is None else branch(value, values, collected)

    def _branch(self, value: Any, values: Values, collected: Collected) -> Step | None:
        for condition, branch in self.cases:
            if selects_any(condition, value, values, collected):
                return branch
        return self.otherwise


class MultiPath(Steps):
    """`multi_path(p…)`: each path in turn; in a transform each one sees what the ones before it made.

    `continue_then_stay(p)`: the path, and then the value itself.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.branches = [builder.chain(path, following) for path in nav.paths]
        if nav.navigator.is_open:
            self.branches.append(following)

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        for branch in self.branches:
            yield from branch(value, values, collected)

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        result: Any = UNCHANGED
        for branch in self.branches:
            new = branch(value, values, collected)
            if new is not UNCHANGED:
                result = new
                value = None if new is ABSENT else new
        return result


class WithPageSize(Steps):
    """`with_page_size(n, path)`: `path`; how much is read at a time is no part of a result."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.inner = builder.chain(nav.paths[0], following)

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.inner(value, values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return self.inner(value, values, collected)


class Subselect(Steps):
    """`subselect(path)`: the list of all that the path selects; a transform writes a new list back to the same places.

    Places for which the new list is too short are voided.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        _refuse_collection(nav.paths[0], self)
        self.inner = builder.condition(nav.paths[0])
        self.write_back = builder.chain(nav.paths[0], _take) if builder.mode == "transform" else None

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.following(self._found(value, values), values, collected)
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        found = self._found(value, values)
        new = self.following(found, values, collected)
        if new is UNCHANGED or self.write_back is None:
            return UNCHANGED
        kept = list_of(None if new is ABSENT else new, self.name, self.where).elements()
        # The new values ride where collected values would: inside a subselect there are none.
        return self.write_back(value, values, (kept,))

    def _found(self, value: Any, values: Values) -> list[Any]:
        return [item for item, _ in self.inner(value, values, ())]


def _take(value: Any, values: Values, carried: Collected) -> Any:
    source: Iterator[Any] = carried[0]
    return next(source, ABSENT)


def _refuse_collection(path: Sequence[BoundNav], steps: Steps) -> None:
    for nav in path:
        if nav.navigator.uses_collected:
            raise BadPath(f"{steps.where}: {nav.name} cannot be inside a {steps.name}", navigator=nav.name)
        for inner in nav.paths:
            _refuse_collection(inner, steps)


# --- value collection ------------------------------------------------------------------------------------------------


class Collecting(Steps):
    """A navigator that stays where it is and changes the collected values."""

    def gathered(self, value: Any, values: Values, collected: Collected) -> Collected:
        """The collected values from here on, made of those so far and of the value."""
        raise NotImplementedError

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.following(value, values, self.gathered(value, values, collected))
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return self.following(value, values, self.gathered(value, values, collected))


class CollectAll(Collecting):
    """`collect(path)`: add the list of all that the path selects."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.inner = builder.condition(nav.paths[0], is_copied=True)

    def gathered(self, value: Any, values: Values, collected: Collected) -> Collected:
        return (*collected, self._found(value, values))

    def _found(self, value: Any, values: Values) -> list[Any]:
        return [outcome(item, own, self.where) for item, own in self.inner(value, values, ())]


class CollectOne(CollectAll):
    """`collect_one(path)`: add the one value that the path selects."""

    def gathered(self, value: Any, values: Values, collected: Collected) -> Collected:
        found = self._found(value, values)
        if len(found) != 1:
            raise NotOneValue(f"{self.where}: {self.name} needs one value, its path selected {len(found)}")
        return (*collected, found[0])


class PutCollected(Collecting):
    """`put_collected(v)`: add `v`."""

    def gathered(self, value: Any, values: Values, collected: Collected) -> Collected:
        return (*collected, values[self.slots[0]])


class DispenseCollected(Collecting):
    """`dispense_collected()`: forget all that was collected."""

    def gathered(self, value: Any, values: Values, collected: Collected) -> Collected:
        return ()


class WithFreshCollected(Steps):
    """`with_fresh_collected(path)`: the path, which begins without collected values; behind it, there are those of
    before again. Meanwhile they stand behind the values of the arguments.
    """

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.inner = builder.chain(nav.paths[0], self._leave)

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        hits: Hits = self.inner(value, (*values, collected), ())
        return hits

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return self.inner(value, (*values, collected), ())

    def _leave(self, value: Any, values: Values, collected: Collected) -> Any:
        return self.following(value, values[:-1], values[-1])


def outcome(value: Any, collected: Collected, where: str) -> Any:
    """What a caller gets for a hit: the value, or [collected…, value], as plain copies."""
    found = plain(value, where)
    return [*(plain(item, where) for item in collected), found] if collected else found


# --- terminals -------------------------------------------------------------------------------------------------------


class Term(Steps):
    """`term(fn, args…)`: replace the value by `fn(collected…, value, args…)`."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        super().__init__(nav, following, builder)
        self.call = self.function()

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        args = [values[slot] for slot in self.slots]
        gathered = [private(item, self.where) for item in collected]
        return self.call(*gathered, private(value, self.where), *args)


class TermVal(Steps):
    """`term_val(v)`: replace the value by `v`."""

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return values[self.slots[0]]


class TermVoid(Steps):
    """`term_void()`: remove the value from what holds it."""

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        return ABSENT


NAVIGATORS: Final = (
    Navigator("if_path", IfPath, ArgumentKinds(("condition", "branch", "branch"), optional=1)),
    Navigator("cond_path", IfPath, ArgumentKinds(more=("condition", "branch"))),
    Navigator("multi_path", MultiPath, ArgumentKinds(more=("branch",))),
    Navigator("continue_then_stay", MultiPath, ArgumentKinds(("branch",)), is_open=True),
    Navigator("subselect", Subselect, CONDITION, a_list),
    Navigator("with_page_size", WithPageSize, ArgumentKinds(("value", "branch"))),
    Navigator("collect", CollectAll, CONDITION, stays, uses_collected=True),
    Navigator("collect_one", CollectOne, CONDITION, stays, uses_collected=True),
    Navigator("put_collected", PutCollected, VALUE, stays, uses_collected=True),
    Navigator("dispense_collected", DispenseCollected, after=stays, uses_collected=True),
    Navigator("with_fresh_collected", WithFreshCollected, ArgumentKinds(("branch",))),
    Navigator("term", Term, CALL, terminal="function", takes_collected=True, copies=True, point=update),
    Navigator("term_val", TermVal, VALUE, terminal="value", point=put_value),
    Navigator("term_void", TermVoid, terminal="void", point=delete),
)
