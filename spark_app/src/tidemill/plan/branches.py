"""Makes the branches of batch blocks explicit: to which branch a step belongs, and which branches are joined for it.

In a batch block the steps before the aggregators say which variables they need, not which rows: a step belongs to the
last branch if that has its variables, else to what joins of branches give. What comes out here says it with anchors,
hooks and `JoinBranches`, so that `check`, `follow` and `compile` read nodes one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, takewhile
from typing import Any

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Location, Node
from tidemill.plan.nodes import binds_of, every_node
from tidemill.plan.phases import phases
from tidemill.values.errors import Fault

ROOT = "\0root"
"""The anchor at the beginning of a batch block; no anchor of a user begins so."""

SEARCHED_MAX = 12
"""Of so many open branches every choice is tried; of more, only all of them together."""

_SOURCES = (df.ExplodeMicrobatch, df.ExplodeMaterialized, df.SubBatchRows)
_PLACES = (*_SOURCES, df.Anchor, df.Branch, df.FreshBatchSource, df.Hook, df.Unify)
"""Nodes that are no step of the branch before them."""

_TRIED_SHOWN = 4


def explicit_source(source: df.SourceDeclaration) -> tuple[df.SourceDeclaration, list[Fault]]:
    """The source with the branches of its batch blocks made explicit, and what is wrong with them."""
    faults: list[Fault] = []
    return replace(source, body=_plain(source.body, faults)), faults


def explicit_block(block: df.BatchBlock) -> tuple[df.BatchBlock, list[Fault]]:
    """The same for a batch block alone, such as that of a query."""
    faults: list[Fault] = []
    return replace(block, body=_block(block.body, None, block.at, faults)), faults


def _plain(nodes: Sequence[Node], faults: list[Fault]) -> tuple[Node, ...]:
    """Nodes outside the rows of a batch block, whose blocks are made explicit."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, (df.FreshBatchSource, df.SubBatchRows)):
            faults.append(_misplaced(node))
        found.append(_inside(node, faults))
    return tuple(found)


def _inside(node: Node, faults: list[Fault]) -> Node:
    if isinstance(node, df.BatchBlock):
        return replace(node, body=_block(node.body, None, node.at, faults))
    if isinstance(node, df.Cond):
        return replace(node, cases=tuple((condition, _plain(body, faults)) for condition, body in node.cases))
    body: Sequence[Node] | None = getattr(node, "body", None)
    if body is None or isinstance(node, (df.GroupBy, df.SubBatchRows)):
        return node
    changed: Any = node
    made: Node = replace(changed, body=_plain(body, faults))
    return made


def _misplaced(node: Node) -> Fault:
    method = "sub_batch" if isinstance(node, df.SubBatchRows) else "fresh_batch_source"
    text = f"{method} stands where no source of a batch block can be."
    return Fault(str(node.at), text, "Put it before the aggregators of a batch block, not inside another step.")


def _block(body: Sequence[Node], wanted: Sequence[str] | None, at: Location, faults: list[Fault]) -> tuple[Node, ...]:
    """The body of a batch block, or of a sub-batch that gives the variables `wanted`."""
    pre, aggregators, post = phases(body)
    rows = _Branches(faults)
    final = _final(pre, bool(aggregators))
    for number, node in enumerate(pre[:final], 1):
        rows.add(node, _needs_behind(node, pre[number:final]))
    last = [*pre[final:], *aggregators]
    if last:
        rows.unite(_needs_of_all(last), last[0].at)
    elif wanted is not None:
        rows.unite(set(wanted), at)
    else:
        rows.expect_single()
    for node in pre[final:]:
        rows.add(node)
    return (*rows.nodes(), *aggregators, *_plain(post, faults))


def _final(pre: Sequence[Node], is_aggregated: bool) -> int:
    """Where the final partitioner stands, behind which no branches meet; the end of these nodes if there is none."""
    if is_aggregated:
        return len(pre) - bool(pre and isinstance(pre[-1], df.Partition))
    origins = [i for i, node in enumerate(pre) if isinstance(node, df.Partition) and node.kind == "origin"]
    return origins[-1] if origins else len(pre)


# --- what a node needs and binds -------------------------------------------------------------------------------------


def _needs(node: Node) -> set[str]:
    """The variables that must be bound where a node stands."""
    if isinstance(node, df.Cond):
        return {name for condition, body in node.cases for name in (*_variables(condition), *_needs_of_all(body))}
    if isinstance(node, df.Loop):
        inner = _needs_of_all(node.body) - {name for name, _ in node.vars}
        return inner.union(*(_variables(arg) for _, arg in node.vars))
    if isinstance(node, df.GroupBy):
        return {*node.keys, *_needs_of_all(node.body)}
    if isinstance(node, df.Limit):
        return {*node.vars, *node.sort}
    if isinstance(node, (df.BatchBlock, df.SubBatchRows, df.Branch)):
        return set()
    return set(_variables(tuple(vars(node).values())))


def _needs_of_all(nodes: Iterable[Node]) -> set[str]:
    needed: set[str] = set()
    bound: set[str] = set()
    for node in nodes:
        needed |= _needs(node) - bound
        bound |= _binds(node)
    return needed


def _needs_behind(node: Node, following: Sequence[Node]) -> set[str]:
    """The variables that a node needs for steps behind it: a partitioner for all up to the one that reads or writes on
    the task to which it brings rows; who binds a hidden variable, for the one that reads it.
    """
    behind = list(takewhile(lambda other: not isinstance(other, (*_PLACES, df.Partition)), following))
    if any(map(_is_hidden, binds_of(node))):
        return _needs_of_all(behind[:1])
    placed = [number for number, other in enumerate(behind, 1) if any(map(_is_placed, every_node([other])))]
    return _needs_of_all(behind[: placed[0]]) if isinstance(node, df.Partition) and placed else set()


def _is_placed(node: Node) -> bool:
    """Whether what a node does depends on its task."""
    return bool(getattr(node, "pstate", None) or getattr(node, "depot", None))


def _binds(node: Node) -> set[str]:
    """The variables that a node binds for those that follow it."""
    if isinstance(node, df.Cond):
        ways = [set[str]().union(*map(_binds, body)) for _, body in node.cases]
        return set.intersection(*ways) if ways else set()
    return {name for name in binds_of(node) if name.startswith("*") and not _is_hidden(name)}


def _is_hidden(name: str) -> bool:
    """Whether only recorded nodes know a variable: those that read it follow the one that binds it."""
    return name.startswith(df.HIDDEN)


def _variables(part: Any) -> Iterator[str]:
    if isinstance(part, df.Var):
        yield from () if _is_hidden(part.name) else (part.name,)
    elif isinstance(part, (df.RecordedExpr, df.RecordedPath, df.Nav, df.Aggregator, df.AggMap, df.AggList)):
        yield from _variables(tuple(vars(part).values()))
    elif isinstance(part, tuple):
        for inner in part:
            yield from _variables(inner)


# --- branches --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Branch:
    """The end of a chain of steps that nothing has taken up yet.

    `mark` is the anchor at its end, None until there is one. `length` counts its steps. `is_aside`: it ends in a
    `branch(…)`, and nothing went on with it: it need not come together with the others. `unground` are the variables
    that are None in rows without a partner.
    """

    at: Location
    names: frozenset[str]
    mark: str | None = None
    is_aside: bool = False
    has_source: bool = False
    length: int = 0
    unground: frozenset[str] = frozenset()

    @property
    def ground(self) -> frozenset[str]:
        return self.names - self.unground

    def __str__(self) -> str:
        named = ", ".join(f"'{name}'" for name in sorted(self.names)) or "no variable"
        return f"the branch from {self.at} with {named}"


@dataclass(frozen=True)
class _AnchorPlace:
    """An anchor: at which step of which branch it stands, and what is bound there."""

    branch: _Branch
    length: int
    names: frozenset[str]


@dataclass(frozen=True)
class _Join:
    """One join: the result of those before it (or the first branch) with another branch."""

    other: _Branch
    on: tuple[str, ...]
    keeps_left: bool = False
    keeps_right: bool = False


@dataclass(frozen=True)
class _Joins:
    """Joins of `first` with others, one after the other."""

    first: _Branch
    others: tuple[_Join, ...] = ()


@dataclass
class _Tried:
    """Why choices of branches cannot be joined."""

    reasons: list[str] = field(default_factory=list)

    def shown(self) -> str:
        few = list(dict.fromkeys(self.reasons))[:_TRIED_SHOWN]
        return "".join(f" Tried: {reason}." for reason in few)


class _Branches:
    """The rows of one batch block: takes its nodes in order, gives them with joins between.

    Of the branches in a `branch(…)` only those that end with an anchor can be taken up by what follows.
    """

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._found: list[Node] = []
        self._open: list[_Branch] = []
        self._current: _Branch | None = None
        self._places: dict[str, _AnchorPlace] = {}
        self._marks = 0
        self._has_root = False
        self._is_aside = False

    def nodes(self) -> tuple[Node, ...]:
        """All nodes that were added, explicitly."""
        if not self._has_root:
            return tuple(self._found)
        return (df.Anchor(ROOT, self._found[0].at), *self._found)

    def add(self, node: Node, needs_behind: Iterable[str] = ()) -> None:
        """Adds a node where it belongs; it needs the variables `needs_behind`, too."""
        if isinstance(node, (df.FreshBatchSource, *_SOURCES)) and not self._is_aside:
            self._source(node)
        elif isinstance(node, df.FreshBatchSource) or (isinstance(node, df.SubBatchRows) and self._is_aside):
            self._faults.append(_misplaced(node))
            self.attach(node)
        elif isinstance(node, df.Anchor):
            self.attach(node)
            branch = self._branch(node.at)
            self._places.setdefault(node.name, _AnchorPlace(branch, branch.length, branch.names))
        elif isinstance(node, df.Hook):
            self._hook(node)
        elif isinstance(node, df.Unify):
            self._unify(node)
        elif isinstance(node, df.Branch):
            self._branch_aside(node)
        else:
            self._step(node, needs_behind)

    def attach(self, node: Node) -> None:
        """Adds a node to the branch that is the current one."""
        branch, bound = self._branch(node.at), _binds(node)
        branch.names |= bound
        unground = {name for name in bound if name.startswith("**")}
        if unground or branch.unground:
            branch.unground |= unground | {name for name in branch.names if name.startswith("*___")}
        branch.length += 1
        branch.mark = node.name if isinstance(node, df.Anchor) else None
        self._found.append(node)

    def _branch(self, at: Location) -> _Branch:
        """The current branch; before the first step it begins here."""
        if self._current is None:
            self._current = self._opened(_Branch(at, frozenset(), ROOT))
        return self._current

    def _opened(self, branch: _Branch) -> _Branch:
        if not self._is_aside:
            self._open.append(branch)
        return branch

    # --- sources, anchors and hooks ---

    def _source(self, node: Node) -> None:
        """A source begins a branch; one that nothing was bound in yet takes it up."""
        current = self._branch(node.at)
        if isinstance(node, df.FreshBatchSource):
            if current.mark == ROOT:
                current.at = node.at
            else:
                self._begin(ROOT, node.at, frozenset())
            return
        if current.has_source or current.names:
            current = self._begin(ROOT, node.at, frozenset())
        current.has_source = True
        if isinstance(node, df.SubBatchRows):
            node = replace(node, body=_block(node.body, node.vars, node.at, self._faults))
        self.attach(node)

    def _begin(self, anchor: str, at: Location, names: frozenset[str]) -> _Branch:
        """Goes on from an anchor with a branch of its own."""
        self._mark_end()
        self._has_root = self._has_root or anchor == ROOT
        self._found.append(df.Hook(anchor, at))
        self._current = self._opened(_Branch(at, names, anchor))
        return self._current

    def _mark_end(self) -> None:
        """Names the end of the current branch, before another one becomes current."""
        branch = self._current
        if branch is not None and branch.mark is None:
            branch.mark = self._new_mark()
            self._found.append(df.Anchor(branch.mark, branch.at))

    def _new_mark(self) -> str:
        self._marks += 1
        return f"\0{self._marks}"

    def _hook(self, node: df.Hook) -> None:
        place = self._places.get(node.name)
        if place is None:  # the check says that there is no such anchor
            self.attach(node)
        elif place.length == place.branch.length and place.branch in self._open and not self._is_aside:
            self._mark_end()
            self._found.append(node)
            self._current = place.branch
            self._current.is_aside = False
        else:
            self._begin(node.name, node.at, place.names)

    def _unify(self, node: df.Unify) -> None:
        """The branches that end at these anchors go on as one."""
        places = [self._places[name] for name in node.anchors if name in self._places]
        ended = [place.branch for place in places if place.length == place.branch.length]
        if self._current not in ended:
            self._mark_end()
        for branch in ended:
            if branch.unground:
                self._faults.append(_behind_unground(node.at, branch))
        self._open = [branch for branch in self._open if branch not in ended or self._is_aside]
        names = frozenset.intersection(*(place.names for place in places)) if places else frozenset[str]()
        self._current = self._opened(_Branch(node.at, names, None, has_source=True))
        self._found.append(node)

    def _branch_aside(self, node: df.Branch) -> None:
        """A block beside what follows: its end need not come together with the rest."""
        place = None if node.anchor is None else self._places.get(node.anchor)
        origin = self._branch(node.at) if place is None else place.branch
        if origin.unground:
            self._faults.append(_behind_unground(node.at, origin))
        names = origin.names if place is None else place.names
        outer = self._found, self._current, self._is_aside
        self._found, self._is_aside = [], True
        self._current = _Branch(node.at, names, has_source=True)
        for inner in node.body:
            self.add(inner)
        if node.body and isinstance(node.body[-1], df.Anchor):
            self._current.is_aside = True
            self._open.append(self._current)
        self._mark_end()
        body = tuple(self._found)
        self._found, self._current, self._is_aside = outer
        self._found.append(replace(node, body=body))

    # --- steps and joins ---

    def _step(self, node: Node, needs_behind: Iterable[str]) -> None:
        """A step belongs to the current branch if that has what it needs, else to what joins give."""
        node = _inside(node, self._faults)
        current = self._branch(node.at)
        must = [current] if current.unground else []
        own = self._known(_needs(node))
        needed = own | self._known(needs_behind)
        if isinstance(node, df.Partition) and self._search(needed, must, _Tried()) is None:
            needed = own
        if not self._is_aside and (current.unground or not needed <= current.names):
            self._choose(needed, must, node.at)
        self.attach(node)

    def _known(self, names: Iterable[str]) -> set[str]:
        """Of these variables those that a branch binds; others come from outside, or are unknown, as the check says."""
        return set(names).intersection(frozenset[str]().union(*(branch.names for branch in self._open)))

    def unite(self, needed: set[str], at: Location) -> None:
        """Brings all branches together, so that one of them goes on with the variables that are needed."""
        branches = [branch for branch in self._open if not branch.is_aside]
        if len(branches) == 1 and not branches[0].unground and self._known(needed) <= branches[0].names:
            self._become(_Joins(branches[0]), at)
        elif branches:
            self._choose(self._known(needed), branches, at)

    def expect_single(self) -> None:
        """Notes a fault if the rows end in several branches, or in one that waits for a join."""
        branches = [branch for branch in self._open if not branch.is_aside]
        if len(branches) > 1:
            self._faults.append(_several_tails(branches, _Tried()))
        elif branches and branches[0].unground:
            self._faults.append(_behind_unground(branches[0].at, branches[0]))

    def _choose(self, needed: set[str], must: Sequence[_Branch], at: Location) -> None:
        """Goes on with the fewest branches that have what is needed, the latest ones first; notes a fault if no
        joins of branches give it.
        """
        tried = _Tried()
        joins = self._search(needed, must, tried)
        if joins is not None:
            self._become(joins, at)
            return
        if len(must) > 1:
            self._faults.append(_several_tails(must, tried))
        elif must and needed <= must[0].names:
            self._faults.append(_behind_unground(at, must[0]))
        else:
            self._faults.append(_no_configuration(at, needed, self._open, tried))
        first, *others = self._open  # so that the steps behind are checked with all variables
        first.unground = frozenset()
        self._become(_Joins(first, tuple(_Join(other, ()) for other in others)), at)

    def _search(self, needed: set[str], must: Sequence[_Branch], tried: _Tried) -> _Joins | None:
        """The joins that give what is needed; those of branches beside the rows only if no others do."""
        rows = [branch for branch in self._open[::-1] if not branch.is_aside]
        joins = self._search_in(rows, needed, must, tried)
        if joins is None and len(rows) < len(self._open):
            joins = self._search_in(self._open[::-1], needed, must, tried)
        return joins

    def _search_in(
        self, latest: Sequence[_Branch], needed: set[str], must: Sequence[_Branch], tried: _Tried
    ) -> _Joins | None:
        sizes = range(1, len(latest) + 1) if len(latest) <= SEARCHED_MAX else [len(latest)]
        for size in sizes:
            for chosen in combinations(latest, size):
                is_enough = needed <= frozenset[str]().union(*(branch.names for branch in chosen))
                if is_enough and all(branch in chosen for branch in must):
                    joins = _joined([branch for branch in self._open if branch in chosen], tried)
                    if joins is not None:
                        return joins
        return None

    def _become(self, joins: _Joins, at: Location) -> None:
        """The result of these joins is the current branch."""
        if joins.first is self._current and not joins.others:
            return
        self._mark_end()
        result = joins.first
        for join in joins.others:
            left, right = _marked(result), _marked(join.other)
            self._found.append(df.JoinBranches(left, right, join.on, join.keeps_left, join.keeps_right, at))
            self._has_root = self._has_root or ROOT in (left, right)
            self._open = [branch for branch in self._open if branch not in (result, join.other)]
            result = _Branch(result.at, result.names | join.other.names, has_source=True)
            self._open.append(result)
            self._current = result
            if join is not joins.others[-1]:
                self._mark_end()
        if not joins.others:
            self._found.append(df.Hook(_marked(result), at))
            self._current = result
            result.is_aside = False


def _marked(branch: _Branch) -> str:
    assert branch.mark is not None, "a branch that is not the current one has an anchor at its end"
    return branch.mark


def _joined(branches: Sequence[_Branch], tried: _Tried) -> _Joins | None:
    """These branches joined, each with what came before it; None if they cannot be."""
    ground = [branch for branch in branches if not branch.unground]
    outer = [branch for branch in branches if branch.unground]
    if not ground:
        return _joined_fully(outer, tried)
    first, *rest = ground
    names, others = first.names, list[_Join]()
    while rest:
        other = next((branch for branch in rest if branch.names & names), None)
        if other is None:
            tried.reasons.append(f"{first} has no variable in common with {rest[0]}")
            return None
        rest.remove(other)
        others.append(_Join(other, tuple(sorted(names & other.names))))
        names |= other.names
    while outer:
        found = next((branch for branch in outer if branch.ground and branch.ground == names & branch.names), None)
        if found is None:
            tried.reasons.append(_unmatched(outer[0], first, names))
            return None
        outer.remove(found)
        others.append(_Join(found, tuple(sorted(found.ground)), keeps_left=True))
        names |= found.names
    return _Joins(first, tuple(others))


def _unmatched(outer: _Branch, first: _Branch, names: frozenset[str]) -> str:
    lacking = outer.ground - names
    if not lacking:
        return f"{outer} is outer, and {first} binds a '**' variable of it, too"
    return f"{outer} is outer, and {first} lacks {_listed(lacking)} (if only the outer branch needs it, write '*___')"


def _joined_fully(branches: Sequence[_Branch], tried: _Tried) -> _Joins | None:
    """Outer branches alone: rows of each are kept."""
    first, *rest = branches
    names, others = first.names, list[_Join]()
    for other in rest:
        if not other.ground or other.ground != first.ground or names & other.unground:
            tried.reasons.append(f"{other} and {first} are both outer, but not on the same variables without '**'")
            return None
        others.append(_Join(other, tuple(sorted(other.ground)), keeps_left=True, keeps_right=True))
        names |= other.names
    if not others:
        tried.reasons.append(f"{first} is outer, and alone")
        return None
    return _Joins(first, tuple(others))


# --- faults ----------------------------------------------------------------------------------------------------------


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"'{name}'" for name in sorted(names))


def _behind_unground(at: Location, branch: _Branch) -> Fault:
    names = _listed(name for name in branch.unground if name.startswith("**"))
    text = f"Only a join can follow the unground variable {names}."
    return Fault(str(at), text, f"Join {branch} with another branch on its variables without '**'.")


def _no_configuration(at: Location, needed: set[str], branches: Sequence[_Branch], tried: _Tried) -> Fault:
    text = (
        f"Could not produce valid preagg configuration: this step needs {_listed(needed)}, "
        "and no join of branches gives that."
    )
    shown = "; ".join(map(str, branches))
    return Fault(str(at), text, f"There is {shown}.{tried.shown()} Branches join on all variables that they share.")


def _several_tails(branches: Sequence[_Branch], tried: _Tried) -> Fault:
    text = (
        f"Expected single tail, found multiple - missing join fields? {len(branches)} branches of this batch block are "
        "never brought together."
    )
    shown = "; ".join(map(str, branches))
    advice = 'Bind a variable of one name in both and use them in one step, or merge them with unify("…", "…").'
    return Fault(str(branches[-1].at), text, f"There is {shown}.{tried.shown()} {advice}")
