"""Builds the graph of operators of one topology from its recorded blocks.

Ids rise along every edge but the way back of a loop, because an operator is added after those that it follows:
everything later relies on that order. The body of a loop has variables of its own, so a name that is bound in it
means something else outside; names inside get the suffix `'<loop>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.language import dataflow as df
from tidemill.language.operations import Op, Ops
from tidemill.language.value_select import SelectFrom
from tidemill.paths.of_values import SelectOfValues
from tidemill.plan import program as pg
from tidemill.plan.branches import ROOT
from tidemill.plan.captures import captures_of
from tidemill.plan.compile.liveness import variables_in
from tidemill.plan.compile.mirrors import chosen_partition
from tidemill.plan.compile.schedule import predecessors_of
from tidemill.plan.compile.ways import OfWay, Way, shared_ways, staying
from tidemill.plan.nodes import binds_of
from tidemill.plan.phases import phases
from tidemill.plan.temporaries import declared_by, own_of
from tidemill.values.errors import DefinitionError, Fault


@dataclass
class Attachment:
    """Where the next operator is attached, and what the names mean there.

    `by` is the variable whose hash has brought the rows to their tasks, None if nothing says where they are.
    `mirrored` is the other module of which a partition was chosen, and the variable with its number.
    """

    operator: int
    names: dict[str, str]
    by: str | None = None
    mirrored: tuple[str, str] | None = None

    def copy(self) -> Attachment:
        """A copy whose names can change on their own."""
        return Attachment(self.operator, dict(self.names), self.by, self.mirrored)


@dataclass
class LoopFrame:
    """The loop around the nodes that are being added."""

    id: int
    head: int
    outs: tuple[str, ...]
    vars: tuple[str, ...]
    emits: list[int] = field(default_factory=list)


class GraphBuilder:
    """Adds nodes at `place`; `operators`, `next`, `regions` and the temporary PStates `temps` are the result."""

    def __init__(
        self, global_objects: frozenset[str], schemas: Mapping[str, Any], mirrors: Mapping[str, df.MirroredObject]
    ) -> None:
        self.global_objects = global_objects
        self._mirrors = mirrors
        self.operators: list[pg.Operator] = []
        self.next: list[list[int]] = []
        self.regions: list[pg.Region] = []
        self.temps: dict[str, df.PStateDeclaration] = {}
        self._place = Attachment(-1, {})
        self._region = 0
        self._source: df.SourceDeclaration | None = None
        self._anchors: dict[str, Attachment] = {}
        self._loops: list[LoopFrame] = []
        self._is_post = False
        self._is_beside = False
        self._temporaries = 0
        self._following: list[Sequence[df.Node]] = []
        self._bodies: list[Sequence[df.Node]] = []
        self._schemas = schemas

    # --- operators and edges -----------------------------------------------------------------------------------------

    def add(self, make: Callable[..., pg.Operator], at: df.Location, *, linked: bool = True, **fields: Any) -> int:
        """A new operator behind the place, which moves on to it."""
        number = len(self.operators)
        self.operators.append(make(id=number, region=self._region, at=at, **fields))
        self.next.append([])
        if linked:
            self.next[self._place.operator].append(number)
        self._place.operator = number
        return number

    def source(self, source: df.SourceDeclaration) -> None:
        """Adds the chain of one source as a region of its own."""
        self._region = len(self.regions)
        self._source, self._anchors = source, {}
        self._place = Attachment(-1, {})
        start = self.add(pg.Start, source.at, linked=False)
        self.regions.append(pg.Region(self._region, "source", start, source_id=source.source_id))
        self.block(source.body)

    def query(self, query: df.QueryDeclaration, block: df.BatchBlock) -> None:
        """Adds a query: a region that begins with its inputs, and in it its batch block with explicit branches."""
        self._place = Attachment(-1, {name: name for name in query.inputs})
        start = self.add(pg.Start, query.at, linked=False)
        self.regions.append(pg.Region(0, "source", start))
        own = own_of(query)
        self.temps[own.name] = own
        self._add_batch(block)

    def block(self, nodes: Sequence[df.Node]) -> None:
        """Adds the nodes one after the other. Raises DefinitionError where one may not stand."""
        self._following.append(())
        for number, node in enumerate(nodes, 1):
            self._following[-1] = nodes[number:]
            getattr(self, "_add_" + _HANDLERS[type(node)])(node)
        self._following.pop()

    # --- names and arguments -----------------------------------------------------------------------------------------

    def _bind(self, name: str) -> str:
        bound = f"{name}'{self._loops[-1].id}" if self._loops else name
        if self._place.by == bound:
            self._place.by = None  # rows are where its old value sent them
        self._place.names[name] = bound
        return bound

    def _bind_all(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._bind(name) for name in names)

    def _new_variable(self) -> str:
        """A variable that nobody wrote."""
        self._temporaries += 1
        return f"{df.HIDDEN}{self._temporaries}"

    def flat(self, arg: df.Arg, at: df.Location) -> df.Arg:
        """The argument as a variable or a constant; nested expressions become operators in front."""
        if isinstance(arg, df.Var):
            return df.Var(self._place.names.get(arg.name, arg.name))
        if not isinstance(arg, df.RecordedExpr):
            return arg
        args = tuple(self.flat(inner, at) for inner in arg.args)
        out = self._new_variable()
        self.add(pg.Apply, at, function=arg.function, args=args, outs=(out,))
        return df.Var(out)

    def _flat_all(self, args: Sequence[df.Arg], at: df.Location) -> tuple[df.Arg, ...]:
        return tuple(self.flat(arg, at) for arg in args)

    def _flat_path(self, path: df.RecordedPath, at: df.Location) -> df.RecordedPath:
        return df.RecordedPath(tuple(self._flat_nav(nav, at) for nav in path.navs))

    def _flat_nav(self, nav: df.Nav, at: df.Location) -> df.Nav:
        options = tuple((name, self._flat_part(value, at)) for name, value in nav.options)
        return df.Nav(nav.name, tuple(self._flat_part(arg, at) for arg in nav.args), options)

    def _flat_part(self, part: Any, at: df.Location) -> Any:
        if isinstance(part, df.RecordedPath):
            return self._flat_path(part, at)
        return self.flat(part, at) if isinstance(part, (df.Var, df.RecordedExpr)) else part

    def _flat_tree(self, tree: df.AggTree, at: df.Location) -> df.AggTree:
        if isinstance(tree, df.AggMap):
            return df.AggMap(tuple((self.flat(key, at), self._flat_tree(inner, at)) for key, inner in tree.entries))
        if isinstance(tree, df.AggList):
            return df.AggList(tuple(self._flat_tree(inner, at) for inner in tree.items))
        return replace(tree, args=self._flat_all(tree.args, at))

    # --- plain nodes -------------------------------------------------------------------------------------------------

    def _add_each(self, node: df.Each) -> None:
        if node.function.kind == "async" and not self._is_beside and not self._is_at_beginning():
            self._gather(node.at)
        args, function = self._flat_all(node.args, node.at), node.function
        if isinstance(function.call, SelectFrom):
            function = replace(function, call=SelectOfValues(function.call.path))
        self.add(pg.Apply, node.at, function=function, args=args, outs=self._bind_all(node.outs))

    def _is_at_beginning(self) -> bool:
        """Whether rows reach this place by columns in any case: nothing but calls and filters since they arrived.

        What follows the aggregators of a batch block counts as such: rows cannot be sent from there.
        """
        if self._is_post:
            return True
        before, number = predecessors_of(self.next), self._place.operator
        while isinstance(self.operators[number], (pg.Apply, pg.Keep, pg.Join)):
            if len(before[number]) != 1:
                return not before[number]
            number = before[number][0]
        return isinstance(self.operators[number], (pg.Start, pg.Move, pg.Explode))

    def _gather(self, at: df.Location) -> None:
        """Rows that come one after the other meet here, each on its own task, to wait together."""
        by, mirrored = self._place.by, self._place.mirrored
        self._add_partition(staying(at))
        self._place.by, self._place.mirrored = by, mirrored

    def _add_keep(self, node: df.KeepTrue) -> None:
        self.add(pg.Keep, node.at, condition=self.flat(node.condition, node.at))

    def _add_explode(self, node: df.ExplodeMicrobatch) -> None:
        source = self._source
        if source is None or node.microbatch != source.microbatch:
            text = f"{node.microbatch} is no microbatch of this source."
            raise DefinitionError([Fault(str(node.at), text, "Explode the variable that source(…).out(…) binds.")])
        self._moved()
        outs = () if node.out is None else (self._bind(node.out),)
        self.add(pg.Explode, node.at, source_id=source.source_id, outs=outs)

    def _moved(self) -> None:
        """Rows are elsewhere now: nothing says where, nor which partition of another module goes with their task."""
        self._place.by, self._place.mirrored = None, None

    def _add_explode_materialized(self, node: df.ExplodeMaterialized) -> None:
        self._moved()
        self.add(pg.Explode, node.at, source_id="", outs=self._bind_all(node.outs), temp=node.temp)

    def _add_materialize(self, node: df.Materialize) -> None:
        args = self._flat_all(node.args, node.at)
        self.add(pg.Retain, node.at, temp=node.temp, args=args)

    def _add_partition(self, node: df.Partition) -> None:
        mirrored = self._mirrors.get(node.target or "")
        if mirrored is not None:
            self._add_mirror_partition(node, mirrored)
            return
        self._moved()
        fields = self._move_of(node)
        self.add(pg.Move, node.at, **fields)
        by = fields["args"][0] if node.kind == "hash" and not fields["is_single"] else None
        self._place.by = by.name if isinstance(by, df.Var) else None

    def _add_mirror_partition(self, node: df.Partition, mirrored: df.MirroredObject) -> None:
        """The number of the partition becomes a variable, and rows go to the task that reads that partition."""
        number = self._new_variable()
        args = self._flat_all(node.args, node.at)
        function = chosen_partition(node, mirrored)
        self.add(pg.Apply, node.at, function=function, args=args, outs=(number,))
        self.add(pg.Move, node.at, kind="mirror", args=(df.Var(number),))
        self._place.by, self._place.mirrored = None, (mirrored.owner, number)

    def _mirror_partition(self, name: str, what: str, at: df.Location) -> df.Arg | None:
        """The partition of another module's object that a step reads or appends to; None for this module's own."""
        mirrored = self._mirrors.get(name)
        if mirrored is None:
            return None
        if mirrored.tasks == 1:
            return df.Const(0)
        if self._place.mirrored is None or self._place.mirrored[0] != mirrored.owner:
            text = f"{what} of '{name}', which belongs to another module, but no partition of it is chosen here."
            advice = f'Write a partitioner of it before, such as .hash_partition("{name}", "*key").'
            raise DefinitionError([Fault(str(at), text, advice)])
        return df.Var(self._place.mirrored[1])

    def _move_of(self, node: df.Partition) -> dict[str, Any]:
        """The fields of the operator that a partitioner becomes."""
        return {
            "kind": node.kind,
            "args": self._flat_all(node.args, node.at),
            "target": node.target,
            "function": node.function,
            "is_single": node.kind in ("global", "origin") or node.target in self.global_objects,
        }

    def _add_select(self, node: df.LocalSelect) -> None:
        path = self._flat_path(node.path, node.at)
        partition = self._mirror_partition(node.pstate, "This reads", node.at)
        outs = self._bind_all(node.outs)
        self.add(pg.Select, node.at, pstate=node.pstate, path=path, outs=outs, partition=partition)

    def _add_transform(self, node: df.LocalTransform) -> None:
        path = self._flat_path(node.path, node.at)
        self.add(pg.Transform, node.at, pstate=node.pstate, path=path)

    def _add_clear(self, node: df.LocalClear) -> None:
        self.add(pg.Clear, node.at, pstate=node.pstate)

    def _add_depot_append(self, node: df.DepotAppend) -> None:
        value = self.flat(node.value, node.at)
        partition = self._mirror_partition(node.depot, "This appends to a partition", node.at)
        self.add(pg.Append, node.at, value=value, depot=node.depot, partition=partition)

    def _add_aggregate(self, node: df.Aggregate) -> None:
        if node.pstate is None:
            text = "An aggregation into variables works in a batch block only."
            raise DefinitionError([Fault(str(node.at), text, "Aggregate into a PState, or use batch_block.")])
        self.add(pg.Fold, node.at, pstate=node.pstate, tree=self._flat_tree(node.tree, node.at))

    def _add_invoke(self, node: df.InvokeQuery) -> None:
        args = self._flat_all(node.args, node.at)
        self.add(pg.Invoke, node.at, query=node.query, args=args, outs=self._bind_all(node.outs))

    def _add_answer(self, node: df.QueryAnswer) -> None:
        self.add(pg.Answer, node.at, value=self.flat(node.value, node.at))

    def _add_misplaced(self, node: df.GroupBy | df.Limit | df.FreshBatchSource) -> None:
        raise DefinitionError([Fault(str(node.at), f"{type(node).__name__} stands where it cannot be compiled.")])

    # --- conditions and branches -------------------------------------------------------------------------------------

    def _add_cond(self, node: df.Cond) -> None:
        """Case by case, so that a condition is evaluated only where those before it were false."""
        following = [each for nodes in (*self._following, *self._bodies) for each in nodes]
        meets = not (self._is_post or self._is_beside or self._place.mirrored)
        shared = shared_ways(node, following, self._schemas, meets)
        ways = {number: way for number, way in shared.items() if way.partition.target not in self._mirrors}
        meeting: dict[int, Attachment] = {}
        ends: list[Attachment] = []
        first: int | None = None
        for number, (condition, body) in enumerate(node.cases):
            is_last = isinstance(condition, df.Const) and condition.value not in (None, False)
            if not is_last:
                split = self.add(pg.Split, node.at, condition=self.flat(condition, node.at))
                first = split if first is None else first
                otherwise = self._place.copy()
                self.add(pg.Join, node.at)
            self.block(ways[number].before if number in ways else body)
            if number in ways:
                meeting[number] = self._place
            else:
                ends.append(self._place)
            if is_last:
                break
            self._place = otherwise
            self.add(pg.Join, node.at)
        if meeting:
            ends.append(self._share_partitioner({number: ways[number] for number in meeting}, meeting, first, node.at))
        self._meet(ends, first, node.at)

    def _share_partitioner(
        self, ways: Mapping[int, Way], places: Mapping[int, Attachment], split: int | None, at: df.Location
    ) -> Attachment:
        """Lets these cases meet, pass one partitioner that knows the way of each row, and part again behind it."""
        which = self._new_variable()
        moves, needed = [], []
        awaited: dict[int, tuple[df.Arg, ...]] = {}
        for index, (number, way) in enumerate(ways.items()):
            self._place = places[number]
            moves.append(self._move_of(way.partition))
            self._keep_value(which, df.Const(index), way.partition.at)
            if way.awaited is not None:
                awaited[index] = self._flat_all(way.awaited.args, way.awaited.at)
            args = (moves[-1]["args"], awaited.get(index, ()))
            needed.append({which, *self._place.names.values(), *variables_in(args)})
        for number, own in zip(ways, needed, strict=True):
            self._place = places[number]
            for name in sorted(set().union(*needed) - own):
                self._keep_value(name, df.Const(None), at)
        self._meet([places[number] for number in ways], split, at)
        self._place.names = {name: bound for place in places.values() for name, bound in place.names.items()}
        self._add_shared_move(which, moves, next(iter(ways.values())).partition.at)
        cases = []
        for index, way in enumerate(ways.values()):
            results = () if way.awaited is None else self._add_awaited(way.awaited, which, index, awaited[index])
            is_way = df.RecordedExpr(_EQUAL, (df.Var(which), df.Const(index)))
            cases.append((is_way, (*results, *way.behind)))
        self._add_cond(df.Cond((*cases[:-1], (df.Const(True), cases[-1][1])), at))
        return self._place

    def _add_awaited(self, node: df.Each, which: str, index: int, args: tuple[df.Arg, ...]) -> tuple[df.Node, ...]:
        """Calls a function for the rows of one way, all of which are here; the nodes that bind what it gave."""
        call = node.function.call
        assert isinstance(call, df.AsyncCall)
        function = replace(node.function, call=replace(call, call=OfWay(call.call, index, len(node.outs))))
        results = tuple(self._new_variable() for _ in node.outs)
        self.add(pg.Apply, node.at, function=function, args=(df.Var(which), *args), outs=results)
        return tuple(
            df.Each(_IDENTITY, (df.Var(result),), (out,), node.at)
            for result, out in zip(results, node.outs, strict=True)
        )

    def _keep_value(self, name: str, value: df.Const, at: df.Location) -> None:
        self.add(pg.Apply, at, function=_IDENTITY, args=(value,), outs=(name,))

    def _add_shared_move(self, which: str, moves: Sequence[Mapping[str, Any]], at: df.Location) -> None:
        number = len(self.operators)
        ways = tuple(pg.Move(number, self._region, at, **fields) for fields in moves)
        args = (df.Var(which), *(arg for way in ways for arg in way.args))
        is_single = all(way.is_single for way in ways)
        self.add(pg.Move, at, kind=ways[0].kind, args=args, is_single=is_single, ways=ways)
        self._moved()

    def _meet(self, ends: Sequence[Attachment], split: int | None, at: df.Location) -> None:
        """Lets several places go on as one, with the names that mean the same in all of them."""
        if not ends:
            return
        names = dict(ends[0].names)
        for end in ends[1:]:
            names = {name: bound for name, bound in names.items() if end.names.get(name) == bound}
        by = ends[0].by if all(end.by == ends[0].by for end in ends) else None
        mirrored = ends[0].mirrored if all(end.mirrored == ends[0].mirrored for end in ends) else None
        self._place = Attachment(ends[0].operator, names, by, mirrored)
        join = self.add(pg.Join, at, linked=False, split=split)
        for end in ends:
            if join not in self.next[end.operator]:
                self.next[end.operator].append(join)

    def _add_anchor(self, node: df.Anchor) -> None:
        self.add(pg.Join, node.at)
        self._anchors[node.name] = self._place.copy()

    def _anchor(self, name: str, at: df.Location) -> Attachment:
        if name not in self._anchors:
            raise DefinitionError([Fault(str(at), f"There is no anchor {name!r} here.")])
        return self._anchors[name].copy()

    def _add_hook(self, node: df.Hook) -> None:
        self._place = self._anchor(node.name, node.at)

    def _add_branch(self, node: df.Branch) -> None:
        here = self._place.copy()
        if node.anchor is not None:
            self._place = self._anchor(node.anchor, node.at)
        outer, self._is_beside = self._is_beside, self._is_beside or node.anchor is None
        self.block(node.body)
        self._place, self._is_beside = here, outer

    def _add_unify(self, node: df.Unify) -> None:
        self._meet([self._anchor(name, node.at) for name in node.anchors], None, node.at)

    # --- loops -------------------------------------------------------------------------------------------------------

    def _add_loop(self, node: df.Loop) -> None:
        args = tuple(self.flat(arg, node.at) for _, arg in node.vars)
        outside = dict(self._place.names)
        number = len(self.operators)
        frame = LoopFrame(number, number + 1, node.outs, tuple(name for name, _ in node.vars))
        self._loops.append(frame)
        self._place.mirrored = None  # a later round may come from anywhere
        inner = self._bind_all(frame.vars)
        self.add(pg.Assign, node.at, outs=inner, args=args, purpose="enter", loop=number)
        self._add_head(node, outside, frame)
        self._bodies.append(node.body)  # the next round follows this one
        self.block(node.body)
        self._bodies.pop()
        self._loops.pop()
        self._leave(node, outside, frame)

    def _add_head(self, node: df.Loop, outside: dict[str, str], frame: LoopFrame) -> None:
        """Each round begins with the outer values of the names that the body binds anew."""
        again = sorted(_bound_names(node.body) & outside.keys() - set(frame.vars))
        sources = tuple(df.Var(outside[name]) for name in again)
        outs = self._bind_all(again)
        self.add(pg.Assign, node.at, outs=outs, args=sources, purpose="head", loop=frame.id)

    def _leave(self, node: df.Loop, outside: dict[str, str], frame: LoopFrame) -> None:
        self._place = Attachment(-1, outside)
        outs = self._bind_all(node.outs)
        leave = self.add(pg.Join, node.at, linked=False, split=frame.id)
        for number in frame.emits:
            emit = self.operators[number]
            assert isinstance(emit, pg.Assign)
            self.operators[number] = replace(emit, outs=outs)
            self.next[number].append(leave)

    def _frame(self, at: df.Location) -> LoopFrame:
        if not self._loops:
            raise DefinitionError([Fault(str(at), "continue_loop and emit_loop work inside a loop only.")])
        return self._loops[-1]

    def _add_continue(self, node: df.ContinueLoop) -> None:
        frame = self._frame(node.at)
        args = self._flat_all(node.args, node.at)
        here = self._place.copy()
        outs = tuple(f"{name}'{frame.id}" for name in frame.vars)
        number = self.add(pg.Assign, node.at, outs=outs, args=args, purpose="again", loop=frame.id)
        self.next[number].append(frame.head)
        self._place = here

    def _add_emit(self, node: df.EmitLoop) -> None:
        frame = self._frame(node.at)
        args = self._flat_all(node.args, node.at)
        here = self._place.copy()
        frame.emits.append(self.add(pg.Assign, node.at, outs=(), args=args, purpose="emit", loop=frame.id))
        self._place = here

    # --- batch blocks ------------------------------------------------------------------------------------------------

    def _add_batch(self, node: df.BatchBlock) -> None:
        number = len(self.regions)
        outer = (self._region, self._anchors)
        enter = self.add(pg.Enter, node.at, block=number)
        outside = dict(self._place.names)
        self._region, self._anchors = number, {}
        start = self.add(pg.Start, node.at)
        self.regions.append(pg.Region(number, "block", start, enter=enter))
        self._add_phases(number, *phases(node.body))
        self._region, self._anchors = outer
        self._place = Attachment(enter, outside)
        after = self.add(pg.Join, node.at, linked=False)
        self.regions[number] = replace(self.regions[number], after=after)

    def _add_phases(
        self, number: int, pre: Sequence[df.Node], aggregates: Sequence[df.Node], post: Sequence[df.Node]
    ) -> None:
        if not aggregates:
            self.block(pre)
            return
        keys, items, limit = _aggregation(aggregates)
        self.temps.update((made.name, made) for made in (declared_by(item) for item in items if item.is_temporary))
        self._following.append(aggregates)
        final = pre[-1] if pre and isinstance(pre[-1], df.Partition) and keys is None else None
        self.block(pre[:-1] if final else pre)
        self._following.pop()
        trees = self._trees_before(items) if final is not None or keys is not None else None
        if final is not None:
            self._add_partition(final)
        elif keys is not None:
            names = tuple(df.Var(self._place.names.get(key, key)) for key in keys)
            self.add(pg.Move, aggregates[0].at, kind="hash", args=names)
        last = self._place.operator
        move = self.operators[last]
        if trees is None:
            trees = [self._flat_tree(item.tree, item.at) for item in items]
        bound = None if keys is None else tuple(self._place.names.get(key, key) for key in keys)
        before = self._place.names
        collect = self.add(pg.Collect, aggregates[0].at)
        captured = [name for item in items for found in captures_of(item.tree) for name in variables_in(found.keys)]
        kept = (*(keys or ()), *captured, *(() if limit is None else limit.vars))
        by = bound[0] if bound is not None and len(bound) == 1 else None
        self._place = Attachment(collect, {name: before.get(name, name) for name in kept}, by)
        cut = None if limit is None else self._cut(limit, before)
        outputs = tuple(
            pg.Output(tree, item.pstate, self._bind(item.outs[0]) if item.outs else None, item.at)
            for tree, item in zip(trees, items, strict=True)
        )
        self._is_post = True
        is_single = isinstance(move, pg.Move) and move.is_single
        begin = self.add(pg.Join, aggregates[0].at, linked=False)
        by_row = self._add_captures(outputs)
        self.block(post)
        self._is_post = False
        self.regions[number] = replace(
            self.regions[number], collect=collect, outputs=outputs, keys=bound, captured=by_row, cut=cut,
            is_single=is_single, final=last if isinstance(move, pg.Move) else None, post=begin,
        )  # fmt: skip

    def _cut(self, limit: df.Limit, before: dict[str, str]) -> pg.Cut:
        kept, sort = (tuple(before.get(name, name) for name in names) for names in (limit.vars, limit.sort))
        index = None if limit.index is None else self._bind(limit.index)
        return pg.Cut(limit.amount, kept, sort, limit.is_reverse, index)

    def _add_captures(self, outputs: Sequence[pg.Output]) -> tuple[str, ...] | None:
        """Reads the new values in post-agg; the variables of the keys of all of them, None where there is none."""
        keys: list[str] = []
        found = [(output, capture) for output in outputs for capture in captures_of(output.tree)]
        for output, capture in found:
            keys += variables_in(capture.keys)
            outs = (self._bind(capture.out),)
            self.add(pg.Select, output.at, pstate=output.pstate, path=capture.path, outs=outs, is_capture=True)
        return tuple(dict.fromkeys(keys)) if found else None

    # --- sub-batches and joins ---------------------------------------------------------------------------------------

    def _add_sub_batch(self, node: df.SubBatchRows) -> None:
        """A sub-batch that aggregates is a region of its own; its rows go on into the block around it."""
        outer = (self._region, self._anchors)
        outside, self._anchors = dict(self._place.names), {}
        pre, aggregates, post = phases(node.body)
        if aggregates:
            self._region = len(self.regions)
            start = self.add(pg.Start, node.at)
            self.regions.append(pg.Region(self._region, "sub", start, parent=outer[0]))
        self._add_phases(self._region, pre, aggregates, post)
        inside, (self._region, self._anchors) = self._place, outer
        given = tuple(inside.names.get(name, name) for name in node.vars)
        self._place = Attachment(inside.operator, {} if aggregates else outside)
        outs = self._bind_all(node.outs)
        self.add(pg.Assign, node.at, outs=outs, args=tuple(map(df.Var, given)), purpose="bind", loop=-1)
        self._place.by = dict(zip(given, outs, strict=True)).get(inside.by or "")

    def _add_join(self, node: df.JoinBranches) -> None:
        """Both sides are brought to the tasks of what they agree in, and wait there for the other one."""
        number, outer = len(self.regions), self._region
        left, right = self._anchor(node.left, node.at), self._anchor(node.right, node.at)
        names = right.names | left.names
        outside = self._anchors[ROOT].names if node.keeps_right and ROOT in self._anchors else {}
        for name in outside.keys() - (left.names.keys() & right.names.keys()):
            names.pop(name, None)  # rows of the other side alone would not have it
        on = tuple(names[name] for name in node.on)
        by = tuple(name for name in (left.by, right.by) if name in on)[:1] or on
        self.regions.append(pg.Region(number, "join", left.operator, parent=outer))
        sides = []
        for side, keeps in ((left, node.keeps_left), (right, node.keeps_right)):
            self._place = side
            if by != (side.by,):
                self.add(pg.Move, node.at, kind="hash", args=tuple(map(df.Var, by)))
            takes = tuple(sorted(set(side.names.values())))
            self._region = number
            keys = tuple(map(df.Var, on))
            sides.append(self.add(pg.Gather, node.at, on=keys, takes=takes, keeps=keeps))
            self._region = outer
        self._place = Attachment(-1, names, by[0] if len(by) == 1 else None)
        post = self.add(pg.Join, node.at, linked=False)
        self.regions[number] = replace(self.regions[number], start=sides[0], sides=tuple(sides), post=post)

    def _trees_before(self, items: Sequence[df.Aggregate]) -> list[df.AggTree] | None:
        """Arguments are computed in front of the final partitioner, where rows can be combined, if no task shows in
        them.
        """
        if any(_needs_context(item.tree) for item in items):
            return None
        return [self._flat_tree(item.tree, item.at) for item in items]


_IDENTITY = df.Function("IDENTITY", "builtin", Ops.IDENTITY)
_EQUAL = df.Function("EQUAL", "builtin", Ops.EQUAL)
_HANDLERS: dict[type, str] = {
    df.Each: "each", df.ExplodeMicrobatch: "explode", df.ExplodeMaterialized: "explode_materialized",
    df.Materialize: "materialize", df.KeepTrue: "keep", df.Cond: "cond", df.Loop: "loop",
    df.ContinueLoop: "continue", df.EmitLoop: "emit", df.Partition: "partition", df.LocalSelect: "select",
    df.LocalTransform: "transform", df.LocalClear: "clear", df.DepotAppend: "depot_append", df.Aggregate: "aggregate",
    df.BatchBlock: "batch", df.GroupBy: "misplaced", df.Limit: "misplaced", df.Anchor: "anchor",
    df.QueryAnswer: "answer", df.Hook: "hook", df.Branch: "branch", df.InvokeQuery: "invoke", df.Unify: "unify",
    df.FreshBatchSource: "misplaced", df.SubBatchRows: "sub_batch", df.JoinBranches: "join",
}  # fmt: skip


def _aggregation(nodes: Sequence[df.Node]) -> tuple[tuple[str, ...] | None, list[df.Aggregate], df.Limit | None]:
    """The keys of group_by, the aggregators, and the limit."""
    group = nodes[0]
    keys, found = (group.keys, group.body) if isinstance(group, df.GroupBy) else (None, nodes)
    limit = next((node for node in found if isinstance(node, df.Limit)), None)
    return keys, [node for node in found if isinstance(node, df.Aggregate)], limit


def _needs_context(part: Any) -> bool:
    if isinstance(part, df.RecordedExpr):
        call = part.function.call
        return (isinstance(call, Op) and call.needs_context) or any(map(_needs_context, part.args))
    if isinstance(part, df.AggMap):
        return any(_needs_context(key) or _needs_context(tree) for key, tree in part.entries)
    if isinstance(part, df.AggList):
        return any(map(_needs_context, part.items))
    return isinstance(part, df.Aggregator) and any(map(_needs_context, part.args))


def _bound_names(nodes: Iterable[df.Node]) -> set[str]:
    """The variables that these nodes bind for those that follow them, in inner blocks too."""
    names: set[str] = set()
    for node in nodes:
        names.update(binds_of(node))
        if isinstance(node, df.Cond):
            names.update(*(_bound_names(body) for _, body in node.cases))
        elif isinstance(node, df.Branch):
            names.update(_bound_names(node.body))
    return names
