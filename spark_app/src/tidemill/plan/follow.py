"""Follows the rows of a source from task to task; warns where they reach a PState on another task than their key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Arg, Const, Location, Node, QueryDeclaration, SourceDeclaration, Var
from tidemill.language.operations import Op
from tidemill.language.schema import FixedKeysSchema, MapSchema
from tidemill.plan.branches import explicit_block, explicit_source
from tidemill.plan.captures import captures_of
from tidemill.plan.check.context import Context
from tidemill.plan.phases import phases
from tidemill.plan.placement import ON_ZERO, UNKNOWN, Placement, Rows, Symbol, applied, expanded, meet, of_depot, symbol
from tidemill.values.errors import Fault

_PASSES_MAX = 4
"""How often the body of a loop is followed until nothing new is learned; each pass knows less."""


@dataclass
class _LoopRows:
    """A loop around the nodes being followed: its names, what is bound outside, and how rows leave its body."""

    vars: tuple[str, ...]
    outs: tuple[str, ...]
    outside: Mapping[str, Symbol]
    emits: list[Rows] = field(default_factory=list)
    again: list[Rows] = field(default_factory=list)


class SourceFollower:
    """Follows one source; `follow` gives its warnings."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._depot: str = ""
        self._anchors: dict[str, Rows] = {}
        self._loops: list[_LoopRows] = []
        self._found: list[Fault] = []

    def follow(self, source: SourceDeclaration) -> Iterator[Fault]:
        """The warnings about the chain of this source, each with its place in the code."""
        self._depot = source.depot
        self._run(explicit_source(source)[0].body, Rows({}, ON_ZERO))
        yield from self._found

    def follow_query(self, query: QueryDeclaration) -> Iterator[Fault]:
        """The warnings about a query, each with its place in the code."""
        self._batch(explicit_block(query.block)[0], Rows({name: ("input", name) for name in query.inputs}, ON_ZERO))
        yield from self._found

    def _run(self, nodes: Sequence[Node], rows: Rows) -> Rows:
        for node in nodes:
            step: Callable[[Any, Rows], Rows] = getattr(self, _STEPS[type(node)])
            rows = step(node, rows)
        return rows

    def _same(self, node: Node, rows: Rows) -> Rows:
        return rows

    # --- variables ---

    def _each(self, node: df.Each, rows: Rows) -> Rows:
        symbols = [symbol(arg, rows.values) for arg in node.args]
        self._field(node, symbols)
        call = node.function.call
        if isinstance(call, Op) and call.emits == "expand":
            return expanded(rows, symbols[0], node.outs)
        if isinstance(call, Op):
            is_followed = call.emits == "one" and not call.needs_context
        else:
            is_followed = node.function.kind not in ("operation", "async")
        if is_followed and len(node.outs) == 1:
            return rows.binding({node.outs[0]: applied(node.function, symbols, node.args)})
        return self._made(node, node.outs, rows)

    def _field(self, node: df.Each, symbols: Sequence[Symbol]) -> None:
        """A field that the schema of the depot lacks is in no record: `Ops.GET` finds None, `MUST_GET` fails."""
        if not isinstance(node.function.call, Op) or node.function.name not in ("GET", "MUST_GET"):
            return
        depot, name = self._context.depots.get(self._depot), node.args[1]
        schema = None if depot is None else depot.schema
        if symbols[0][0] != "record" or not isinstance(schema, FixedKeysSchema) or not isinstance(name, Const):
            return
        if schema.field(name.value) is None:
            known = ", ".join(repr(key) for key, _ in schema.fields)
            text = f"No record has the field {name.value!r}: the schema of '{self._depot}' lacks it."
            advice = f"It has {known}: take one of them, or add the field to the schema."
            self._found.append(Fault(str(node.at), text, advice))

    def _made(self, node: Node, outs: Sequence[str], rows: Rows) -> Rows:
        """Variables of which nothing is known but that this node made them."""
        return rows.binding({out: ("made", id(node), out) for out in outs})

    def _explode(self, node: df.ExplodeMicrobatch, rows: Rows) -> Rows:
        record: Symbol = ("record", id(node))
        rows = rows if node.out is None else rows.binding({node.out: record})
        if self._depot in self._context.mirrors and not self._context.is_global(self._depot):
            why = f"'{self._depot}' has the partitions of another module"
            return rows.moved(Placement("anywhere", why))
        return rows.moved(of_depot(self._context.depots.get(self._depot), record))

    def _explode_materialized(self, node: df.ExplodeMaterialized, rows: Rows) -> Rows:
        """Rows are where they were materialized, which is not followed."""
        return self._made(node, node.outs, rows).moved(UNKNOWN)

    # --- ways ---

    def _cond(self, node: df.Cond, rows: Rows) -> Rows:
        ends = [self._run(body, rows) for _, body in node.cases]
        return meet(ends, id(node)) if ends else rows

    def _loop(self, node: df.Loop, rows: Rows) -> Rows:
        begin = rows.binding({name: symbol(arg, rows.values) for name, arg in node.vars})
        before = len(self._found)
        for left in range(_PASSES_MAX, 0, -1):
            del self._found[before:]
            begin = begin if left > 1 else begin.moved(UNKNOWN)
            loop = self._loop_body(node, begin, rows.values)
            met = meet([begin, *loop.again], id(node))
            if met == begin:
                break
            begin = met
        return meet(loop.emits, ("emit", id(node))) if loop.emits else rows.moved(UNKNOWN)

    def _loop_body(self, node: df.Loop, begin: Rows, outside: Mapping[str, Symbol]) -> _LoopRows:
        loop = _LoopRows(tuple(name for name, _ in node.vars), node.outs, outside)
        anchors, self._anchors = self._anchors, {}
        self._loops.append(loop)
        self._run(node.body, begin)
        self._loops.pop()
        self._anchors = anchors
        return loop

    def _continue(self, node: df.ContinueLoop, rows: Rows) -> Rows:
        loop = self._loops[-1]
        loop.again.append(_leaving(loop, loop.vars, node.args, rows))
        return rows

    def _emit(self, node: df.EmitLoop, rows: Rows) -> Rows:
        loop = self._loops[-1]
        loop.emits.append(_leaving(loop, loop.outs, node.args, rows))
        return rows

    def _anchor(self, node: df.Anchor, rows: Rows) -> Rows:
        self._anchors[node.name] = rows
        return rows

    def _hook(self, node: df.Hook, rows: Rows) -> Rows:
        return self._anchors.get(node.name, rows)

    def _branch(self, node: df.Branch, rows: Rows) -> Rows:
        self._run(node.body, rows if node.anchor is None else self._anchors.get(node.anchor, rows))
        return rows

    def _unify(self, node: df.Unify, rows: Rows) -> Rows:
        ways = [self._anchors[name] for name in node.anchors if name in self._anchors]
        return meet(ways, id(node)) if ways else rows

    # --- from task to task ---

    def _partition(self, node: df.Partition, rows: Rows) -> Rows:
        if self._context.goes_to_zero(node):
            return rows.moved(ON_ZERO)
        if node.target in self._context.mirrors:
            why = f"{node.kind}_partition at {node.at} sends rows to a partition of another module"
            return rows.moved(Placement("anywhere", why))
        if node.kind == "shuffle":
            return rows.moved(Placement("anywhere", f"shuffle_partition at {node.at} sends rows to any task"))
        if node.kind not in ("hash", "path") or not node.args:
            return rows.moved(UNKNOWN)
        if node.kind == "path" and self._has_partitioner(node.target):
            return rows.moved(UNKNOWN)
        why = f"{node.kind}_partition({shown(node.args[0])}) at {node.at} sent rows to the task of that value"
        return rows.moved(Placement("by", why, symbol(node.args[0], rows.values)))

    def _has_partitioner(self, pstate: str | None) -> bool:
        found = self._context.pstates.get(pstate or "")
        return found is not None and found[1].key_partitioner is not None

    def _batch(self, node: df.BatchBlock, rows: Rows) -> Rows:
        self._phases(node.body, rows)
        return rows.moved(ON_ZERO)

    def _phases(self, body: Sequence[Node], rows: Rows) -> Rows:
        """The rows at the end of a batch block that begins with these."""
        pre, aggregators, post = phases(body)
        outer, self._anchors = self._anchors, {}
        inside = self._run(pre, rows)
        if aggregators:
            inside = self._run(post, self._aggregated(aggregators, inside))
        self._anchors = outer
        return inside

    def _sub_batch(self, node: df.SubBatchRows, rows: Rows) -> Rows:
        inside = self._phases(node.body, rows)
        given = {out: symbol(Var(name), inside.values) for name, out in zip(node.vars, node.outs, strict=False)}
        return rows.binding(given).moved(inside.placement)

    def _join(self, node: df.JoinBranches, rows: Rows) -> Rows:
        """Joined on one variable, rows are on the task of its value."""
        left, right = self._anchors[node.left], self._anchors[node.right]
        made = {name: ("made", id(node), name) for name in (*right.values, *left.values)}
        if len(node.on) != 1:
            return Rows(made, UNKNOWN)
        why = f"the join on '{node.on[0]}' at {node.at} sent rows to the task of that value"
        return Rows(made, Placement("by", why, made[node.on[0]]))

    def _aggregated(self, aggregators: Sequence[df.Aggregate | df.GroupBy | df.Limit], rows: Rows) -> Rows:
        """The rows behind the aggregators of a batch block: their outputs, and the keys of group_by."""
        after = Rows({}, rows.placement if rows.placement.kind == "zero" else UNKNOWN)
        for node in aggregators:
            if isinstance(node, df.GroupBy):
                keys = {key: symbol(Var(key), rows.values) for key in node.keys}
                by = next(iter(keys.values())) if len(keys) == 1 else ("group", *keys.values())
                why = f"group_by({', '.join(node.keys)}) at {node.at} sent rows to the task of its keys"
                outs = [out for each in node.body if isinstance(each, df.Aggregate) for out in each.outs]
                after = self._made(node, outs, after.binding(keys).moved(Placement("by", why, by)))
                for limit in node.body:
                    after = self._limited(limit, rows, after) if isinstance(limit, df.Limit) else after
            elif isinstance(node, df.Limit):
                after = self._limited(node, rows, after)
            else:
                self._aggregate(node, rows)
                captures = list(captures_of(node.tree))
                keys = {key.name: symbol(key, rows.values) for c in captures for key in c.keys if isinstance(key, Var)}
                after = self._made(node, (*node.outs, *(c.out for c in captures)), after.binding(keys))
        return after

    def _limited(self, node: df.Limit, rows: Rows, after: Rows) -> Rows:
        after = after.binding({name: symbol(Var(name), rows.values) for name in node.vars})
        return after if node.index is None else self._made(node, (node.index,), after)

    # --- PStates ---

    def _select(self, node: df.LocalSelect, rows: Rows) -> Rows:
        for key in _leading_keys(node.path):
            self._reached(node.pstate, key, rows, node.at, "reads")
        return self._made(node, node.outs, rows)

    def _transform(self, node: df.LocalTransform, rows: Rows) -> Rows:
        for key in _leading_keys(node.path):
            self._reached(node.pstate, key, rows, node.at, "writes")
        return rows

    def _depot_append(self, node: df.DepotAppend, rows: Rows) -> Rows:
        if node.depot in self._context.mirrors:
            return rows
        if self._context.is_global(node.depot) and rows.placement.kind in ("by", "anywhere"):
            text = f"This appends to the global depot '{node.depot}', which is on task 0, but {rows.placement.why}."
            self._found.append(Fault(str(node.at), text, "Write .global_partition() before it."))
        return rows

    def _aggregate(self, node: df.Aggregate, rows: Rows) -> Rows:
        if node.pstate is not None and isinstance(node.tree, df.AggMap):
            for key, _ in node.tree.entries:
                self._reached(node.pstate, key, rows, node.at, "writes")
        return self._made(node, node.outs, rows)

    def _invoke(self, node: df.InvokeQuery, rows: Rows) -> Rows:
        return self._made(node, node.outs, rows)

    def _reached(self, name: str, key: Arg, rows: Rows, at: Location, what: str) -> None:
        """A step reaches a key of a PState: is it on the key's task?"""
        found = self._context.pstates.get(name)
        if name in self._context.mirrors:
            return  # only a partition that a partitioner chose can be read
        if found is None or found[1].key_partitioner is not None or not isinstance(found[1].schema, MapSchema):
            return
        placement = rows.placement
        if found[1].is_global:
            if placement.kind in ("by", "anywhere"):
                text = f"This {what} the global PState '{name}', which is on task 0, but {placement.why}."
                self._found.append(Fault(str(at), text, "Write .global_partition() before it."))
            return
        is_there = placement.kind == "by" and placement.by == symbol(key, rows.values)
        if is_there or placement.kind == "unknown" or _is_forgotten(key, rows):
            return
        text = f"This {what} '{name}' under the key {shown(key)}, perhaps not on the key's task: {placement.why}."
        advice = f"Write .hash_partition({shown(key)}) before it; clients look for a key on its own task."
        self._found.append(Fault(str(at), text, advice))


def _is_forgotten(key: Arg, rows: Rows) -> bool:
    """Whether the asterisk of a variable is missing: to send rows to the task of that text would be wrong advice."""
    return isinstance(key, Const) and f"*{key.value}" in rows.values


def shown(arg: Arg) -> str:
    """An argument as it was written, about."""
    if isinstance(arg, Var):
        return f'"{arg.name}"'
    return repr(arg.value) if isinstance(arg, Const) else f"Expr({arg.function.name}, …)"


def _leaving(loop: _LoopRows, names: Sequence[str], args: Sequence[Arg], rows: Rows) -> Rows:
    """Rows that leave the body of a loop: with the variables from outside, and those that they are given."""
    given = {name: symbol(arg, rows.values) for name, arg in zip(names, args, strict=False)}
    return Rows({**loop.outside, **given}, rows.placement)


def _leading_keys(path: df.RecordedPath) -> tuple[Arg, ...]:
    """The key that a path begins with, if it begins with one."""
    return () if path.leading_key is None else (path.leading_key,)


_STEPS: dict[type, str] = {
    df.Each: "_each", df.ExplodeMicrobatch: "_explode", df.ExplodeMaterialized: "_explode_materialized",
    df.Materialize: "_same", df.KeepTrue: "_same", df.Cond: "_cond", df.Loop: "_loop",
    df.ContinueLoop: "_continue", df.EmitLoop: "_emit", df.Partition: "_partition", df.LocalSelect: "_select",
    df.LocalTransform: "_transform", df.LocalClear: "_same", df.DepotAppend: "_depot_append",
    df.Aggregate: "_aggregate", df.BatchBlock: "_batch", df.GroupBy: "_same", df.Limit: "_same", df.Anchor: "_anchor",
    df.QueryAnswer: "_same", df.Hook: "_hook", df.Branch: "_branch", df.InvokeQuery: "_invoke", df.Unify: "_unify",
    df.FreshBatchSource: "_same", df.SubBatchRows: "_sub_batch", df.JoinBranches: "_join",
}  # fmt: skip
