"""Checks the chains of one topology node by node: scopes, arities, places where a node may not stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Location, Node, PStateDeclaration
from tidemill.language.operations import Op
from tidemill.language.schema import Leaf, has_indexed
from tidemill.language.value_select import SelectFrom
from tidemill.paths.of_values import ANY
from tidemill.plan.branches import ROOT
from tidemill.plan.captures import captures_of, schema_at
from tidemill.plan.check.aggregation import check_into_pstate, check_into_variables
from tidemill.plan.check.batch import Phase, check_batch_block
from tidemill.plan.check.context import Context, advice_for, count_of
from tidemill.plan.check.paths import check_select, check_transform
from tidemill.plan.check.scope import LoopCheck, Scope, meet, use, use_all
from tidemill.plan.check.temps import TempCheck
from tidemill.plan.phases import phases


class ChainCheck:
    """Follows one chain (a source's, or the inside of a batch block); `phase` says where in a batch block it is.

    `depot` is that of the source; a query has none. `block_end` is what is bound at the end of the last batch block of
    the chain itself.
    """

    def __init__(self, context: Context, temps: TempCheck, depot: str | None, phase: Phase = "plain") -> None:
        self.context = context
        self.topology = temps.topology
        self.temps = temps
        self.depot = depot
        self.is_query = depot is None
        self.phase = phase
        self.anchors: dict[str, Scope] = {}
        self.loops: list[LoopCheck] = []
        self.block_end = Scope()

    def inside(self, phase: Phase) -> ChainCheck:
        """A check of one phase of a batch block in this chain; anchors and loops of the chain do not reach into it."""
        return ChainCheck(self.context, self.temps, self.depot, phase)

    def run(self, nodes: Sequence[Node], scope: Scope) -> Scope:
        """The scope after these nodes."""
        for node in nodes:
            handler: Callable[[Any, Scope], Scope] = getattr(self, _HANDLERS[type(node)])
            scope = handler(node, scope)
        return scope

    def fault(self, at: Any, text: str, advice: str = "") -> None:
        self.context.fault(at, text, advice)

    def bind(self, names: Iterable[str], scope: Scope, at: Location) -> Scope:
        """The scope with more variables; before an aggregation a name keeps its meaning."""
        names = tuple(names)
        for name in names:
            if name in self.context.objects:
                text = f"'{name}' is an object of the module, and cannot be bound."
                self.fault(at, text, "Choose another name for the variable.")
            elif name in scope.microbatches:
                self.fault(at, f"'{name}' is the microbatch and cannot be bound again.", "Choose another name.")
            elif self.phase != "pre" and name.startswith("**"):
                text = f"The unground variable '{name}' stands where nothing is joined."
                self.fault(at, text, "Bind it before the aggregators of a batch block, or write it with one '*'.")
            elif self.phase == "pre" and name in scope.names:
                text = f"The variable '{name}' is bound already; a batch block cannot bind it again."
                self.fault(at, text, "Choose another name.")
        return scope.binding(names)

    # --- rows ---

    def each(self, node: df.Each, scope: Scope) -> Scope:
        """Its arguments are bound, and it binds as many variables as its function emits."""
        use_all(self.context, scope, node.args, node.at)
        if isinstance(node.function.call, SelectFrom):
            value = df.PStateDeclaration("the value", ANY, node.at)
            check_select(self.context, value, node.function.call.path, node.at)
            self._one_out(node)
        self._count_outs(node)
        return self.bind(node.outs, scope, node.at)

    def _count_outs(self, node: df.Each) -> None:
        given = len(node.outs)
        name = node.function.name
        call = node.function.call
        if isinstance(call, Op) and call.emits == "expand":
            if not given:
                self.fault(node.at, f"'{name}' binds one variable for each element.", 'Write .out("*a", "*b").')
        elif isinstance(call, Op) or node.function.kind in ("function", "async"):
            emitted = call.out_count if isinstance(call, Op) else 1
            if given not in (0, emitted):
                wanted, bound = count_of(emitted, "value"), count_of(given, "variable")
                text = f"'{name}' emits {wanted}, which cannot be bound to {bound}."
                advice = "A generator marked @operation emits several; Ops.EXPAND takes a list apart."
                self.fault(node.at, text, advice if emitted == 1 else "Bind as many.")

    def explode(self, node: df.ExplodeMicrobatch, scope: Scope) -> Scope:
        """What is bound behind `explode_microbatch`; it must take a variable that holds a microbatch."""
        if self.is_query:
            text = "A query has no microbatch to explode."
            self.fault(node.at, text, "Read PStates with local_select or select.")
            return self.bind(() if node.out is None else (node.out,), scope, node.at)
        self._source(node.at, "explode_microbatch")
        if node.microbatch not in scope.microbatches:
            advice = advice_for(node.microbatch, scope.microbatches, "Explode what source(…).out(…) binds.")
            self.fault(node.at, f"'{node.microbatch}' is no microbatch here.", advice)
        is_on_zero = self.depot is not None and self.context.is_global(self.depot)
        return self.bind(() if node.out is None else (node.out,), scope, node.at).moved(is_on_zero)

    def invoke(self, node: df.InvokeQuery, scope: Scope) -> Scope:
        """Its query is one of the module, with as many inputs, and it binds one variable at most."""
        use_all(self.context, scope, node.args, node.at)
        found = self.context.queries.get(node.query)
        mirror = self.context.mirrors.get(node.query)
        is_mirror = mirror is not None and mirror.kind == "query"
        if node.query.startswith("*") and not is_mirror:
            text = f"invoke_query begins with the name of a query, not with '{node.query}'."
            self.fault(node.at, text, f'Or declare it: setup.cluster_query("{node.query}", OtherModule, "query").')
        elif found is None and not is_mirror:
            advice = advice_for(node.query, self.context.queries, "Declare it with topologies.query(…).")
            self.fault(node.at, f"There is no query '{node.query}'.", advice)
        elif found is not None and len(found.inputs) != len(node.args):
            wanted, given = count_of(len(found.inputs), "argument"), len(node.args)
            inputs = f" ({', '.join(found.inputs)})" if found.inputs else ""
            self.fault(node.at, f"The query '{node.query}' takes {wanted}{inputs}, not {given}.", "Give as many.")
        if len(node.outs) > 1:
            text = f"A query has one result, which cannot be bound to {len(node.outs)} variables."
            self.fault(node.at, text, "Take lists apart with Ops.EXPAND.")
        return self.bind(node.outs, scope, node.at)

    def answer(self, node: df.QueryAnswer, scope: Scope) -> Scope:
        """The result of a query is bound at its end."""
        use(self.context, scope, node.value, node.at)
        return scope

    def _source(self, at: Location, what: str) -> None:
        if self.phase == "post":
            self._not_in_post(at, what)

    def explode_materialized(self, node: df.ExplodeMaterialized, scope: Scope) -> Scope:
        """What is bound behind `explode_materialized`."""
        self._source(node.at, "explode_materialized")
        self.temps.explode(node, scope)
        return self.bind(node.outs, scope, node.at).moved(False)

    def materialize(self, node: df.Materialize, scope: Scope) -> Scope:
        """Its variables are bound; what it keeps can be read behind its batch block."""
        use_all(self.context, scope, node.args, node.at)
        if self.is_query:
            text = "A query is one batch block, and materialize keeps rows for later ones."
            self.fault(node.at, text, "Go on with the rows themselves.")
            return scope
        self.temps.materialize(node, self.phase != "plain")
        return scope

    def keep_true(self, node: df.KeepTrue, scope: Scope) -> Scope:
        """Its condition's variables are bound."""
        use(self.context, scope, node.condition, node.at)
        return scope

    # --- conditions and loops ---

    def cond(self, node: df.Cond, scope: Scope) -> Scope:
        """Each case is followed on its own; after it, only what every case binds is bound."""
        ends = []
        for condition, body in node.cases:
            use(self.context, scope, condition, node.at)
            ends.append(self.run(body, scope))
        return meet(ends) if ends else scope

    def loop(self, node: df.Loop, scope: Scope) -> Scope:
        """Rows may come back to its head from other tasks: then its body is checked again with that in mind."""
        use_all(self.context, scope, (arg for _, arg in node.vars), node.at)
        inner = self.bind((name for name, _ in node.vars), scope, node.at)
        before = len(self.context.faults)
        frame = self._loop_body(node, inner)
        if inner.is_on_zero and any(not again.is_on_zero for again in frame.continues):
            del self.context.faults[before:]
            frame = self._loop_body(node, inner.moved(False))
        if node.outs and not frame.emits:
            self.fault(node.at, "This loop has out variables, but emits nothing.", "Add emit_loop(…) to its block.")
        is_on_zero = all(emit.is_on_zero for emit in frame.emits)
        made = scope.making(name for emit in frame.emits for name in emit.temps)
        return self.bind(node.outs, made, node.at).moved(is_on_zero)

    def _loop_body(self, node: df.Loop, scope: Scope) -> LoopCheck:
        """Anchors outside do not reach into the body of a loop, nor those inside out of it."""
        frame = LoopCheck(len(node.vars), len(node.outs))
        outside, self.anchors = self.anchors, {}
        self.loops.append(frame)
        self.run(node.body, scope)
        self.loops.pop()
        self.anchors = outside
        return frame

    def continue_loop(self, node: df.ContinueLoop, scope: Scope) -> Scope:
        """It stands in a loop and gives one value for each of the loop's variables."""
        use_all(self.context, scope, node.args, node.at)
        frame = self._frame("continue_loop", node.at)
        if frame is not None:
            frame.continues.append(scope)
            if len(node.args) != frame.variables:
                given = count_of(len(node.args), "value")
                text = f"continue_loop has {given}, but the loop has {count_of(frame.variables, 'variable')}."
                self.fault(node.at, text, "Give one value for each LoopVars.var(…).")
        return scope

    def emit_loop(self, node: df.EmitLoop, scope: Scope) -> Scope:
        """It stands in a loop and gives one value for each variable of the loop's `out`."""
        use_all(self.context, scope, node.args, node.at)
        frame = self._frame("emit_loop", node.at)
        if frame is not None:
            frame.emits.append(scope)
            if len(node.args) != frame.outs:
                given = count_of(len(node.args), "value")
                text = f"emit_loop has {given}, but the loop's .out(…) names {count_of(frame.outs, 'variable')}."
                self.fault(node.at, text, "Make them equal.")
        return scope

    def _frame(self, method: str, at: Location) -> LoopCheck | None:
        if not self.loops:
            self.fault(at, f"{method} stands outside a loop.", "Use it in the block of loop_with_vars(…).")
            return None
        return self.loops[-1]

    # --- partitioners ---

    def partition(self, node: df.Partition, scope: Scope) -> Scope:
        """Its target exists and has partitions, and it does not stand after an aggregation."""
        use_all(self.context, scope, node.args, node.at)
        if node.kind == "origin" and not self.is_query:
            text = "origin_partition exists only in query topologies."
            self.fault(node.at, text, "Use another partitioner here.")
        if self.phase == "post":
            self._not_in_post(node.at, f"{node.kind}_partition")
        if node.target is not None and node.kind == "path":
            self._path_target(node, node.target, scope)
        elif node.target is not None:
            self._target(node, node.target, scope)
        return scope.moved(self.context.goes_to_zero(node))

    def _path_target(self, node: df.Partition, target: str, scope: Scope) -> None:
        found = self.temps.read(target, scope, node.at)
        if found is not None and not node.args and not found.is_global:
            text = f"The path into '{target}' does not begin with a key, so it belongs to no one task."
            self.fault(node.at, text, "Begin it with Path.key(…), or use local_select after a partitioner.")

    def _target(self, node: df.Partition, target: str, scope: Scope) -> None:
        if target.startswith("$$"):
            self.temps.read(target, scope, node.at)
        elif target not in self.context.depots:
            text = f"There is no depot '{target}'."
            advice = advice_for(target, self.context.depots, f"{node.kind}_partition takes a PState or depot first.")
            if target in scope.names:
                advice = f'It takes one value: for several write {node.kind}_partition(Expr(Ops.TUPLE, "{target}", …)).'
            self.fault(node.at, text, advice)
        elif not self.context.depots[target].has_log:
            depot = self.context.depots[target]
            kind = depot.partitioner if depot.tick_millis is None else "tick"
            text = f"The {kind} depot '{target}' has no partitions to go to."
            self.fault(node.at, text, "Name a depot of the store or a PState, or use global_partition().")

    def _not_in_post(self, at: Location, what: str) -> None:
        text = f"{what} stands after an aggregation: partitioning is not allowed in post-agg."
        self.fault(at, text, "Move it behind the batch block, or before the aggregators.")

    # --- PStates ---

    def select(self, node: df.LocalSelect, scope: Scope) -> Scope:
        """Its path fits the schema of its PState, and it binds one variable at most."""
        use(self.context, scope, node.path, node.at)
        found = self.temps.read(node.pstate, scope, node.at)
        if found is not None:
            check_select(self.context, found, node.path, node.at)
        self._one_out(node)
        return self.bind(node.outs, scope, node.at)

    def _one_out(self, node: df.LocalSelect | df.Each) -> None:
        if len(node.outs) > 1:
            text = f"A select emits one value a row, which cannot be bound to {len(node.outs)} variables."
            self.fault(node.at, text, "Take lists apart with Ops.EXPAND.")

    def transform(self, node: df.LocalTransform, scope: Scope) -> Scope:
        """Its path fits the schema of its PState, which this topology owns."""
        use(self.context, scope, node.path, node.at)
        found = self._written(node.pstate, scope, node.at)
        if found is not None:
            check_transform(self.context, found, node.path, node.at)
        return scope

    def clear(self, node: df.LocalClear, scope: Scope) -> Scope:
        """Its PState is one that this topology owns."""
        self._written(node.pstate, scope, node.at)
        return scope

    def depot_append(self, node: df.DepotAppend, scope: Scope) -> Scope:
        """Its depot is one of the module's, and takes records."""
        use(self.context, scope, node.value, node.at)
        if self.is_query:
            text = f"The query '{self.topology}' cannot append to '{node.depot}': a query only reads."
            self.fault(node.at, text, "Append in a topology.")
            return scope
        depot = self.context.depots.get(node.depot)
        if depot is None:
            advice = "Name a depot of this module: it cannot be given by a variable."
            advice = advice if node.depot in scope.names else 'Declare it with setup.declare_depot("*name", …).'
            if node.depot in self.context.objects:
                advice = "An object takes appends if it is an ExternalSink, declared as it is, not made by a function."
            self.fault(
                node.at, f"There is no depot '{node.depot}'.", advice_for(node.depot, self.context.depots, advice)
            )
        elif not depot.takes_appends:
            kind = "an external" if depot.tick_millis is None else "a tick"
            text = f"'{node.depot}' is {kind} depot: nothing can be appended to it."
            self.fault(node.at, text, "Append to a depot that is declared with declare_depot.")
        return scope

    def _written(self, name: str, scope: Scope, at: Location) -> PStateDeclaration | None:
        """The PState that a node writes; only the topology that declared it may."""
        found = self.temps.read(name, scope, at)
        owner, _ = self.context.pstates.get(name, (self.topology, None))
        if name in self.context.mirrors:
            mirror = self.context.mirrors[name]
            text = (
                f"'{name}' is a mirror of '{mirror.object}' of module '{mirror.module}', so nothing here can write it."
            )
            self.fault(at, text, "Write a PState of this module; that one is written by its own module.")
        elif self.is_query and name in self.context.pstates:
            text = f"The query '{self.topology}' cannot write '{name}': a query only reads."
            self.fault(at, text, "Write it in the topology that declares it.")
        elif owner != self.topology:
            text = f"'{name}' belongs to topology '{owner}', so '{self.topology}' cannot write it."
            self.fault(at, text, "A PState is written by exactly one topology; declare another one here.")
        return found

    def aggregate(self, node: df.Aggregate, scope: Scope) -> Scope:
        """An aggregation in plain code; those of a batch block are checked by `check_batch_block`."""
        if self.phase == "pre":
            text = "An aggregator stands inside another node before the aggregation of a batch block."
            self.fault(node.at, text, "Filter with keep_true, and aggregate in the batch block itself.")
        elif node.pstate is None or node.is_temporary:
            where = "after the aggregation of a batch block" if self.phase == "post" else "outside a batch block"
            what = f"the temporary PState '{node.pstate}'" if node.is_temporary else "variables"
            text = f"An aggregation into {what} stands {where}."
            self.fault(node.at, text, "Put all aggregators together in a batch block, or name a PState.")
            return self.bind(node.outs, scope, node.at)
        elif any(captures_of(node.tree)):
            text = "capture_new_val_into stands outside the aggregation of a batch block."
            self.fault(node.at, text, "Aggregate in a batch_block(…), or read the value with local_select.")
        self.aggregation(node, scope)
        return scope

    def aggregation(self, node: df.Aggregate, scope: Scope) -> None:
        """What holds for an aggregator wherever it stands."""
        use_all(self.context, scope, tree_args(node.tree), node.at)
        if node.pstate is None:
            check_into_variables(self.context, node)
            return
        found = self.temps.aggregate(node) if node.is_temporary else self._written(node.pstate, scope, node.at)
        if found is not None:
            check_into_pstate(self.context, found, node.tree, node.at)
            self._captures(found, node)
        if node.outs:
            text = f"An aggregation into '{node.pstate}' emits nothing, so .out(…) cannot follow it."
            self.fault(node.at, text, "Remove .out(…), or leave the PState out.")

    def _captures(self, pstate: PStateDeclaration, node: df.Aggregate) -> None:
        """What is captured can be read: a structure whose elements are stored one by one cannot be had whole."""
        for capture in captures_of(node.tree):
            place = schema_at(pstate.schema, capture.path)
            if place is not None and (has_indexed(place) or not (capture.path.navs or isinstance(place, Leaf))):
                text = f"'{capture.out}' captures a structure of '{pstate.name}' whose elements are stored one by one."
                self.fault(node.at, text, "Read what you need of it in post-agg with local_select.")

    def misplaced_aggregator(self, node: df.GroupBy | df.Limit, scope: Scope) -> Scope:
        """Always a fault here: those of a batch block are taken by `check_batch_block`."""
        what = "group_by" if isinstance(node, df.GroupBy) else "limit_agg"
        where = {"pre": "inside another node of", "post": "after the aggregation of"}.get(self.phase, "outside")
        self.fault(node.at, f"{what} stands {where} a batch block.", "Put it into the batch block itself, once.")
        return scope

    def batch_block(self, node: df.BatchBlock, scope: Scope) -> Scope:
        """It stands in plain code where rows are on task 0; its phases are checked on their own."""
        if self.is_query:
            self.fault(node.at, "A batch block stands inside a query, which is one itself.", "Write its steps alone.")
            return scope
        if self.phase != "plain":
            self.fault(node.at, "A batch block stands inside another one.", "Put it before or after the other one.")
            return scope
        if not scope.is_on_zero:
            text = "A batch block begins on task 0, but rows may be on other tasks here."
            self.fault(node.at, text, "Start it after source(…).out(…), another batch block, or global_partition().")
        self.block_end = check_batch_block(self, node, scope)
        return self.temps.end_block(scope).moved(True)

    def sub_batch(self, node: df.SubBatchRows, scope: Scope) -> Scope:
        """Its phases are checked on their own; the variables that it gives are bound at its end."""
        after = check_batch_block(self, node, scope)
        use_all(self.context, after, map(df.Var, node.vars), node.at)
        if len(node.vars) != len(node.outs):
            given, bound = count_of(len(node.vars), "variable"), count_of(len(node.outs), "variable")
            text = f"The SubBatch gives {given}, which cannot be bound to {bound}."
            self.fault(node.at, text, "Name as many in .out(…) as in SubBatch(block, …).")
        outside = self.bind(node.outs, scope, node.at).moved(False)
        if not phases(node.body)[1]:
            return outside
        return replace(outside, names=frozenset(node.outs), microbatches=frozenset(), hidden=scope.names)

    def misplaced(self, node: df.FreshBatchSource, scope: Scope) -> Scope:
        """Nothing to check: `plan.branches` took it away where it may stand, and noted a fault elsewhere."""
        return scope

    # --- graph ---

    def anchor(self, node: df.Anchor, scope: Scope) -> Scope:
        """Its name is new in this chain."""
        if node.name in self.anchors:
            self.fault(node.at, f"The anchor '{node.name}' stands twice.", "Give one of them another name.")
        self.anchors[node.name] = scope
        return scope

    def hook(self, node: df.Hook, scope: Scope) -> Scope:
        """Its anchor exists; the scope is the one at that anchor."""
        return self._anchored(node.name, node.at, scope)

    def branch(self, node: df.Branch, scope: Scope) -> Scope:
        """Its anchor exists, if it names one; what follows it keeps the scope from before."""
        self.run(node.body, scope if node.anchor is None else self._anchored(node.anchor, node.at, scope))
        return scope

    def unify(self, node: df.Unify, scope: Scope) -> Scope:
        """All its anchors exist; the scope is what all of them know."""
        if not node.anchors:
            self.fault(node.at, "unify names no anchor.", 'Write unify("a", "b") with the names of anchors.')
            return scope
        return meet([self._anchored(name, node.at, scope) for name in node.anchors])

    def join(self, node: df.JoinBranches, scope: Scope) -> Scope:
        """What either of its sides binds is bound; rows are on the tasks of what they agree in."""
        left, right = self.anchors[node.left], self.anchors[node.right]
        outside = self.anchors[ROOT].names if node.keeps_right and ROOT in self.anchors else frozenset[str]()
        names = (left.names | right.names) - (outside - (left.names & right.names))
        microbatches = (left.microbatches | right.microbatches) & names
        return replace(meet([left, right]), names=names, microbatches=microbatches, is_on_zero=False)

    def _anchored(self, name: str, at: Location, otherwise: Scope) -> Scope:
        if name not in self.anchors:
            advice = advice_for(name, self.anchors, f'Write anchor("{name}") before it, in the same chain.')
            self.fault(at, f"There is no anchor '{name}' here.", advice)
        return self.anchors.get(name, otherwise)


_HANDLERS: dict[type, str] = {
    df.Each: "each", df.ExplodeMicrobatch: "explode", df.ExplodeMaterialized: "explode_materialized",
    df.Materialize: "materialize", df.KeepTrue: "keep_true", df.Cond: "cond", df.Loop: "loop",
    df.ContinueLoop: "continue_loop", df.EmitLoop: "emit_loop", df.Partition: "partition", df.LocalSelect: "select",
    df.LocalTransform: "transform", df.LocalClear: "clear", df.DepotAppend: "depot_append", df.Aggregate: "aggregate",
    df.BatchBlock: "batch_block", df.GroupBy: "misplaced_aggregator", df.Limit: "misplaced_aggregator",
    df.Anchor: "anchor", df.QueryAnswer: "answer", df.Hook: "hook", df.Branch: "branch", df.InvokeQuery: "invoke",
    df.Unify: "unify", df.FreshBatchSource: "misplaced", df.SubBatchRows: "sub_batch", df.JoinBranches: "join",
}  # fmt: skip


def tree_args(tree: df.AggTree) -> list[df.Arg]:
    """The arguments of all aggregators of a tree, and its keys."""
    if isinstance(tree, df.AggMap):
        return [arg for key, inner in tree.entries for arg in (key, *tree_args(inner))]
    if isinstance(tree, df.AggList):
        return [arg for inner in tree.items for arg in tree_args(inner)]
    return list(tree.args)
