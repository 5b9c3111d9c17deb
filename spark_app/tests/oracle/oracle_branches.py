"""The branches of a batch block: to which of them a step belongs, and where they are joined.

Written from the rule alone: a step belongs to the last branch if that has its variables, else to the fewest branches,
the latest ones first, whose join has them. Branches join on all variables that they share. A partitioner needs what
the steps behind it need up to the first that is about its task, if a join has all that; a step that binds a variable
that nobody wrote is one with the step that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import combinations, takewhile
from typing import Any

from oracle_graph import Builder, Step
from oracle_structures import OracleError

from tidemill.language import dataflow as df

SOURCES = (df.ExplodeMicrobatch, df.ExplodeMaterialized, df.SubBatchRows)


@dataclass(frozen=True)
class Join:
    """Rows of two sides that agree in `on`; a side that is kept keeps rows without a partner."""

    on: tuple[str, ...]
    names: tuple[frozenset[str], frozenset[str]]
    keeps: tuple[bool, bool]


@dataclass(frozen=True)
class Gather:
    """The end of one side of a join."""

    join: Step
    side: int


@dataclass(eq=False)
class Branch:
    """A chain of steps that nothing has taken up yet, with what it binds; `unground` may be None without a partner.

    `is_aside`: it ends with an anchor beside the rows, and nothing must take it up.
    """

    ends: list[Step]
    names: frozenset[str] = frozenset()
    unground: frozenset[str] = frozenset()
    has_source: bool = False
    is_new: bool = True
    is_aside: bool = False

    @property
    def ground(self) -> frozenset[str]:
        return self.names - self.unground


@dataclass
class Branches:
    """Takes the steps before the aggregators of a batch block in their order."""

    root: Step
    joins: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.builder = Builder()
        self.current = Branch([self.root])
        self.open = [self.current]
        self.places: dict[str, tuple[Branch, frozenset[str]]] = {}

    def add(self, node: Any, following: Sequence[Any] = ()) -> None:
        if isinstance(node, df.FreshBatchSource):
            if not self.current.is_new:
                self._begin([self.root], frozenset())
        elif isinstance(node, SOURCES):
            if self.current.has_source or self.current.names:
                self._begin([self.root], frozenset())
            self.current.has_source = True
            self._attach(node)
        elif isinstance(node, df.Hook):
            self._hook(node)
        elif isinstance(node, df.Unify):
            self._unify(node)
        elif isinstance(node, df.Branch):
            self._beside(node)
        else:
            self._step(node, needed_behind(node, following))
        if isinstance(node, df.Anchor):
            self.places[node.name] = self.current, self.current.names

    def _beside(self, node: df.Branch) -> None:
        """Rows beside the others; who goes on with them needs the anchor at their end."""
        self.builder.chain([node], self.current.ends)
        names = self.current.names if node.anchor is None else self.places[node.anchor][1]
        for inner in node.body:
            names |= bound_by(inner)
            if isinstance(inner, df.Anchor):
                ends = [self.builder.anchors[inner.name]]
                aside = Branch(ends, names, has_source=True, is_new=False, is_aside=True)
                self.places[inner.name] = aside, names
                if inner is node.body[-1]:
                    self.open.append(aside)

    def _rows(self) -> list[Branch]:
        return [branch for branch in self.open if not branch.is_aside]

    def unite(self, needed: set[str]) -> list[Step]:
        """All branches as one; the ends of its rows."""
        if len(self._rows()) > 1 or self.current.unground or not self._known(needed) <= self.current.names:
            self._choose(self._known(needed), self._rows())
        return self.current.ends

    def _begin(self, ends: list[Step], names: frozenset[str], **more: Any) -> None:
        self.current = Branch(ends, names, **more)
        self.open.append(self.current)

    def _attach(self, node: Any) -> None:
        branch = self.current
        branch.ends = self.builder.chain([node], branch.ends)
        branch.is_new = False
        bound = bound_by(node)
        branch.names |= bound
        unground = {name for name in bound if name.startswith("**")}
        if unground or branch.unground:
            branch.unground |= unground | {name for name in branch.names if name.startswith("*___")}

    def _hook(self, node: df.Hook) -> None:
        anchor = self.builder.anchors[node.name]
        branch, names = self.places[node.name]
        if branch in self.open and branch.ends == [anchor]:
            self.current = branch
            branch.is_aside = False
        else:
            self._begin([anchor], names, is_new=False)

    def _unify(self, node: df.Unify) -> None:
        anchors = [self.builder.anchors[name] for name in node.anchors]
        self.open = [branch for branch in self.open if branch.ends not in [[anchor] for anchor in anchors]]
        names = frozenset.intersection(*(self.places[name][1] for name in node.anchors))
        self._begin(self.builder.chain([node], []), names, has_source=True, is_new=False)

    def _known(self, names: set[str]) -> set[str]:
        return names & frozenset[str]().union(*(branch.names for branch in self.open))

    def _step(self, node: Any, behind: set[str]) -> None:
        must = [self.current] if self.current.unground else []
        for needed in (self._known(needed_by(node) | behind), self._known(needed_by(node))):
            if not must and needed <= self.current.names:
                break
            if self._chosen(needed, must):
                break
        else:
            raise OracleError("no joins of branches give what a step needs")
        self._attach(node)

    def _choose(self, needed: set[str], must: Sequence[Branch]) -> None:
        if not self._chosen(needed, must):
            raise OracleError("no joins of branches give what a step needs")

    def _chosen(self, needed: set[str], must: Sequence[Branch]) -> bool:
        return self._chosen_of(self._rows(), needed, must) or self._chosen_of(self.open, needed, must)

    def _chosen_of(self, branches: Sequence[Branch], needed: set[str], must: Sequence[Branch]) -> bool:
        for size in range(1, len(branches) + 1):
            for chosen in combinations(branches[::-1], size):
                is_enough = needed <= frozenset[str]().union(*(branch.names for branch in chosen))
                if is_enough and all(branch in chosen for branch in must):
                    joined = self._joined([branch for branch in self.open if branch in chosen])
                    if joined is not None:
                        self.open = [branch for branch in self.open if branch not in chosen]
                        self.open.append(joined)
                        self.current = joined
                        joined.is_aside = False
                        return True
        return False

    def _joined(self, branches: list[Branch]) -> Branch | None:
        ground = [branch for branch in branches if not branch.unground]
        outer = [branch for branch in branches if branch.unground]
        plan: list[tuple[Branch, frozenset[str], tuple[bool, bool]]] = []
        first = ground.pop(0) if ground else outer.pop(0)
        names, is_full = first.names, bool(first.unground)
        while ground:
            other = next((branch for branch in ground if branch.names & names), None)
            if other is None:
                return None
            ground.remove(other)
            plan.append((other, names & other.names, (False, False)))
            names |= other.names
        for other in outer:
            on = other.ground
            if not on or on != (first.ground if is_full else names & other.names):
                return None
            plan.append((other, on, (True, is_full)))
            names |= other.names
        if is_full and not plan:
            return None
        for other, on, keeps in plan:
            first = self._join(first, other, on, keeps)
        return first

    def _join(self, left: Branch, right: Branch, on: frozenset[str], keeps: tuple[bool, bool]) -> Branch:
        step = Step(Join(tuple(sorted(on)), (left.names, right.names), keeps))
        for side, branch in enumerate((left, right)):
            gather = Step(Gather(step, side))
            for end in branch.ends:
                end.nexts.append(gather)
        self.joins.append(step)
        return Branch([step], left.names | right.names, has_source=True, is_new=False)


# --- what a node needs and binds -------------------------------------------------------------------------------------


def _variables(part: Any) -> Iterator[str]:
    if isinstance(part, df.Var):
        yield part.name
    elif isinstance(part, tuple):
        for inner in part:
            yield from _variables(inner)
    elif is_dataclass(part) and not isinstance(part, (df.Location, df.Function)):
        for each in fields(part):
            yield from _variables(getattr(part, each.name))


def needed_by(node: Any) -> set[str]:
    """The variables that must be bound where a node stands."""
    if isinstance(node, df.Cond):
        found = set(_variables(tuple(condition for condition, _ in node.cases)))
        return found.union(*(needed_by_all(body) for _, body in node.cases))
    if isinstance(node, df.Loop):
        return set(_variables(node.vars)) | (needed_by_all(node.body) - {name for name, _ in node.vars})
    if isinstance(node, df.GroupBy):
        return {*node.keys, *needed_by_all(node.body)}
    if isinstance(node, df.Limit):
        return {*node.vars, *node.sort}
    return set() if isinstance(node, (df.BatchBlock, df.SubBatchRows, df.Branch)) else set(_variables(node))


def needed_by_all(nodes: Sequence[Any]) -> set[str]:
    """The variables that must be bound before these nodes."""
    needed: set[str] = set()
    bound: set[str] = set()
    for node in nodes:
        needed |= needed_by(node) - bound
        bound |= bound_by(node)
    return needed


def needed_behind(node: Any, following: Sequence[Any]) -> set[str]:
    """What a node needs for the steps behind it that it is there for."""
    ends = (*SOURCES, df.Anchor, df.Branch, df.FreshBatchSource, df.Hook, df.Unify, df.Partition)
    steps = list(takewhile(lambda each: not isinstance(each, ends), following))
    if any(name.startswith(df.HIDDEN) for name in bound_by(node)):
        return needed_by_all(steps[:1])
    if isinstance(node, df.Partition):
        for number, step in enumerate(steps, 1):
            if _is_about_a_task(step):
                return needed_by_all(steps[:number])
    return set()


def _is_about_a_task(part: Any) -> bool:
    if isinstance(part, tuple):
        return any(map(_is_about_a_task, part))
    if getattr(part, "pstate", None) or getattr(part, "depot", None):
        return True
    return _is_about_a_task((*getattr(part, "body", ()), *(body for _, body in getattr(part, "cases", ()))))


def bound_by(node: Any) -> frozenset[str]:
    """The variables that a node binds for what follows."""
    if isinstance(node, df.Cond):
        ways = [frozenset[str]().union(*map(bound_by, body)) for _, body in node.cases]
        return frozenset.intersection(*ways)
    names = (getattr(node, "out", None), *(getattr(node, "outs", None) or ()))
    return frozenset(name for name in names if isinstance(name, str))
