"""`Block`: a chain of dataflow nodes, started on the class (`Block.each(…)`) and extended on an instance.

Blocks are immutable; the chains of a source (`topology.SourceChain`) and of a query (`query.QueryChain`) have
the same methods and record into their topology.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, TypeVar

from tidemill.api.aggregators import Agg, CompoundAgg, recorded_tree
from tidemill.api.arguments import (
    Condition,
    Constant,
    Expr,
    arity_faults,
    to_arg,
    to_args,
    to_call_args,
    to_chooser,
    to_condition,
    to_function,
    to_name,
    to_var,
    to_vars,
)
from tidemill.api.attachment import Attachable, is_watched
from tidemill.api.calls import Calls, made
from tidemill.api.cases import dispatch_faults, to_taker
from tidemill.api.hidden import built_in, hidden_var, renewed
from tidemill.api.launch import AckLevel
from tidemill.api.limits import LimitAgg
from tidemill.api.locations import caller_location
from tidemill.api.path import Path, recorded_path
from tidemill.api.selects import SelectOptions, is_value, option_faults, select_from
from tidemill.api.starters import starter
from tidemill.api.sub_batch import SubBatch
from tidemill.language import dataflow
from tidemill.language.dataflow import Arg, Const, Location, Node, PartitionKind, Var
from tidemill.language.dispatch import EVERY, Dispatch, Taker
from tidemill.language.operations import Ops
from tidemill.language.texts import arg_text
from tidemill.values.errors import BadInput, Fault

B = TypeVar("B", bound="Block")
_ALWAYS: Arg = Const(True)


class Block(Calls["Block"], Attachable):
    """A chain of nodes. Every method adds one and returns the longer chain."""

    _synonyms: ClassVar[Mapping[str, str]] = {
        "filter": "keep_true", "where": "keep_true", "map": "each", "apply": "each", "flat_map": "each",
        "aggregate": "agg", "if_": "if_true", "explode": "explode_microbatch", "partition_by": "hash_partition",
        "repartition": "hash_partition", "shuffle": "shuffle_partition", "groupby": "group_by",
    }  # fmt: skip
    _unlisted: ClassVar[frozenset[str]] = frozenset({"ack_return", "yield_if_overtime"})

    def __init__(self, nodes: Sequence[Node] = (), faults: Sequence[Fault] = ()) -> None:
        self.nodes = tuple(nodes)
        self.faults = tuple(faults)

    def __repr__(self) -> str:
        steps = ", ".join(type(node).__name__ for node in self.nodes)
        return f"<{type(self).__name__}: {steps or 'no step'}>"

    @staticmethod
    def create() -> Block:
        """A block with nothing in it, to begin one that grows in a Python loop."""
        return Block()

    def execute(
        self, tasks: int = 1, pstates: Mapping[str, Any] | None = None, objects: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Run this block here and now, without a module: to learn, and to try a block in a test.

        One row without variables begins on task 0 of `tasks` tasks; on one task, batch blocks may aggregate without a
        partitioner. The result has a dict of variables for each row
        that reaches the end (that of the batch block, if the chain ends with one), without those of `Helpers.gen_var`.
        `pstates` declares empty PStates by name, with their schemas: `{"$$counts": PState.map_schema(str, int)}`; a
        `TestPState` in place of a schema lends what it holds, on one task, and holds afterwards what the block wrote.
        `objects` declares objects by name, as `setup.declare_object` does; they are closed at the end.
        Nothing is stored.

        Raises:
            DefinitionError: lists all mistakes in the block.
            UserCodeError: a function raised.
            BadInput: it is called in `Module.define`, which runs nothing.
        """
        if is_watched():
            raise BadInput("execute() runs a block at once, but define only records what is to run: remove it.")
        # A name, not an import: what is recorded knows nothing of what runs it, until somebody runs it.
        execution = importlib.import_module("tidemill.local.execution")
        rows: list[dict[str, Any]] = execution.execute(self, tasks, pstates or {}, objects or {})
        return rows

    def _with(self, nodes: tuple[Node, ...], faults: tuple[Fault, ...]) -> Block:
        """A chain of these nodes; what a subclass overrides."""
        return self._noted(Block(nodes, faults))

    def _noted(self, longer: B) -> B:
        """A longer chain, which holds what this one holds."""
        self._attach()
        longer._note()
        return longer

    def _add(self, node: Node, faults: Iterable[Fault] = ()) -> Block:
        return self._with((*self.nodes, node), (*self.faults, *faults))

    def _fault(self, at: Location, text: str, advice: str) -> Block:
        return self._with(self.nodes, (*self.faults, Fault(str(at), text, advice)))

    def out(self, *names: str) -> Block:
        """Bind what the node before emits to variables."""
        at = caller_location()
        if not self.nodes:
            return self._fault(at, ".out(…) has nothing before it.", "Write it after each(…), agg(…), …")
        found: list[Fault] = []
        *rest, node = self.nodes
        if isinstance(node, dataflow.Materialize):
            changed = _with_temp(node, names, at, found)
        elif isinstance(node, dataflow.Aggregate) and any(str(name).startswith("$$") for name in names):
            changed = _making_temp(node, names, at, found)
        else:
            changed = _with_outs(node, to_vars(names, at, found), at, found)
        return self._with((*rest, changed), (*self.faults, *found))

    # --- rows ---

    @starter
    def each(self, function: Callable[..., Any], *args: Any) -> Block:
        """Call a function with each row's values; `.out(…)` binds what it emits."""
        found: list[Fault] = []
        at = caller_location()
        recorded = to_function(function, at, found)
        found.extend(arity_faults(recorded, len(args), at))
        return self._add(dataflow.Each(recorded, to_call_args(recorded, args, at, found), (), at), found)

    @starter
    def explode_microbatch(self, microbatch: str) -> Block:
        """Every record of this microbatch, on the task of its partition."""
        found: list[Fault] = []
        at = caller_location()
        name = to_var(microbatch, at, found, "The microbatch of explode_microbatch")
        return self._add(dataflow.ExplodeMicrobatch(name, None, at), found)

    @starter
    def materialize(self, *args: Any) -> Block:
        """Keep these values of each row in a temporary PState, which `.out("$$rows")` names; only in batch blocks.

        A later batch block of the same chain gets the rows back with `explode_materialized("$$rows")`. They stay on
        their task, and are gone when the microbatch is done.
        """
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.Materialize(to_args(args, at, found), "", at), found)

    @starter
    def explode_materialized(self, pstate: str) -> Block:
        """Every row that `materialize` kept, on the task that has it; `.out(…)` binds its values."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.ExplodeMaterialized(to_name(pstate, "$$", "PState", at, found), (), at), found)

    @starter
    def keep_true(self, condition: Condition) -> Block:
        """Go on only with rows for which this is true (neither None nor False)."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.KeepTrue(to_condition(condition, at, found), at), found)

    @starter
    def sample(self, fraction: float) -> Block:
        """Go on with each row by chance: about this fraction of them (above 0, at most 1), each one by itself.

        The chance is drawn from the attempt, task and step: of a microbatch that is tried again exactly one choice is
        committed.
        """
        found: list[Fault] = []
        at = caller_location()
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
            text = f"sample takes a fraction above 0 and up to 1, not {fraction!r}."
            found.append(Fault(str(at), text, "Write sample(0.1) to keep about one row in ten."))
        chance = Expr(_is_drawn, Expr(Ops.CURRENT_RANDOM_SOURCE), Constant(fraction))
        return self._add(dataflow.KeepTrue(to_condition(chance, at, found), at), found)

    @starter
    def macro(self, block: Block | Callable[..., Block], *args: Any) -> Block:
        """Insert the nodes of a block here, or of the block that a function makes: `function(Block.create(), *args)`.

        Variables that are used inside only should be named by `Helpers.gen_var`, so that two uses do not clash.
        """
        found: list[Fault] = []
        at = caller_location()
        if callable(block):
            block = made(block, (Block(), *args), at, found)
        elif args:
            found.append(Fault(str(at), "A block takes no arguments.", "Pass a function that makes it."))
        nodes = _nodes(block, at, found)
        return self._with((*self.nodes, *nodes), (*self.faults, *found))

    @starter
    def yield_if_overtime(self) -> Block:
        """Nothing waits for a step here, so this changes nothing."""
        return self._with(self.nodes, self.faults)

    @starter
    def ack_return(self, value: Any) -> Block:
        """Only in stream topologies, which Tidemill has none of."""
        text = "ack_return belongs to stream topologies, which are not here: nobody waits for what becomes of a record."
        return self._fault(caller_location(), text, "Write the value into a PState, where the client reads it.")

    # --- conditions and loops ---

    @starter
    def if_true(self, condition: Condition, then: Block, else_: Block | None = None) -> Block:
        """Run `then` where the condition is true, else `else_`; what follows sees the variables that both bind."""
        found: list[Fault] = []
        at = caller_location()
        first = (to_condition(condition, at, found), _nodes(then, at, found))
        other = () if else_ is None else _nodes(else_, at, found)
        return self._add(dataflow.Cond((first, (Const(True), other)), at), found)

    @starter
    def cond(self, *cases: Block) -> Block:
        """Run the first case whose condition is true; a row that no case takes passes through."""
        found: list[Fault] = []
        at = caller_location()
        recorded = [_case(case, at, found) for case in cases]
        everywhere = [case.condition == _ALWAYS for case in cases if isinstance(case, Case)]
        if any(everywhere[:-1]) or everywhere == [True]:
            text = "A case of cond has the condition True, so that no case after it can run."
            found.append(
                Fault(str(at), text, "Only the last of several cases may have it, as the case for all others.")
            )
        if not cases:
            found.append(Fault(str(at), "cond(…) has no case.", "Add Case.create(condition).each(…)."))
        if not recorded or recorded[-1][0] != Const(True):
            recorded.append((Const(True), ()))
        return self._add(dataflow.Cond(tuple(recorded), at), found)

    @starter
    def sub_source(self, value: Any, *cases: Block) -> Block:
        """Run the first case that takes the value: by its class, by a constant, or by a function of it.

        `sub_source("*v", SubSource.create(int).each(…), SubSource.create(str).each(…))`. What all cases bind goes on.
        A value that no case takes fails the microbatch; `SubSource.create(object)`, as the last, takes all others.
        """
        found: list[Fault] = []
        at = caller_location()
        subject = to_arg(value, at, found)
        if isinstance(subject, Const) and not found:
            text = f"sub_source is given the constant {value!r}, which is the same for every row."
            found.append(Fault(str(at), text, "Give it a variable or an Expr, and then its cases."))
        given = [case for case in cases if isinstance(case, SubSource)]
        for case in cases:
            if not isinstance(case, SubSource):
                text = f"sub_source takes cases, not {case!r}."
                found.append(Fault(str(at), text, "Build one with SubSource.create(int).each(…)."))
        if not cases:
            found.append(Fault(str(at), "sub_source(…) has no case.", "Add SubSource.create(int).each(…)."))
        found.extend(dispatch_faults([case.taker for case in given], at))
        number = hidden_var("case")
        dispatch = dataflow.Function("sub_source", "function", Dispatch([case.taker for case in given]))
        pick = dataflow.Each(dispatch, (subject,), (number,), at)
        conditions: list[Arg] = [built_in(Ops.EQUAL, Var(number), Const(index)) for index in range(len(given))]
        conditions[-1:] = [_ALWAYS] * bool(given)
        bodies = [_nodes(case, at, found) for case in given]
        node = dataflow.Cond(tuple(zip(conditions, bodies, strict=True)), at)
        return self._with((*self.nodes, pick, node), (*self.faults, *found))

    @starter
    def atomic_block(self, block: Block) -> Block:
        """Run a block, and go on exactly once after all that it does on this task, however many rows it emits.

        Its rows end with it, and so do its variables. What it sends to other tasks goes on there by itself.
        """
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.Branch(None, _nodes(block, at, found), at), found)

    @starter
    def loop(self, block: Block) -> Block:
        """Run the block; `continue_loop()` runs it again, `emit_loop(…)` leaves it."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.Loop((), _nodes(block, at, found), (), at), found)

    @starter
    def loop_with_vars(self, variables: LoopVars, block: Block) -> Block:
        """Run the block with loop variables; `continue_loop(values…)` runs it again with others."""
        found: list[Fault] = []
        at = caller_location()
        recorded: tuple[tuple[str, Arg], ...] = ()
        if isinstance(variables, LoopVars):
            found.extend(variables.faults)
            recorded = variables.recorded
        else:
            text = f"loop_with_vars begins with its variables, not with {variables!r}."
            found.append(Fault(str(at), text, 'Write LoopVars.var("*i", 0).'))
        return self._add(dataflow.Loop(recorded, _nodes(block, at, found), (), at), found)

    @starter
    def continue_loop(self, *values: Any) -> Block:
        """Run the loop's block again, with these values of the loop variables."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.ContinueLoop(to_args(values, at, found), at), found)

    @starter
    def emit_loop(self, *values: Any) -> Block:
        """Leave the loop with these values of its out variables."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.EmitLoop(to_args(values, at, found), at), found)

    # --- partitioners ---

    @starter
    def hash_partition(self, *args: Any) -> Block:
        """To the task of a value's hash; `hash_partition("$$p", value)` goes among the partitions of an object."""
        return self._partition("hash", args, 1)

    @starter
    def global_partition(self, *args: str) -> Block:
        """To task 0."""
        return self._partition("global", args, 0)

    @starter
    def all_partition(self, *args: str) -> Block:
        """To every task."""
        return self._partition("all", args, 0)

    @starter
    def shuffle_partition(self, *args: str) -> Block:
        """To any task, in even shares."""
        return self._partition("shuffle", args, 0)

    @starter
    def direct_partition(self, *args: Any) -> Block:
        """To the task of this number."""
        return self._partition("direct", args, 1)

    @starter
    def path_partition(self, pstate: str, path: Path) -> Block:
        """To the task that holds the path's leading key in this PState."""
        at = caller_location()
        found: list[Fault] = []
        return self._add(_path_partition(pstate, recorded_path(path, at, found), at, found), found)

    @starter
    def custom_partition(self, *args: Any) -> Block:
        """To the task that `function(number of partitions, *args)` returns."""
        at = caller_location()
        found: list[Fault] = []
        target, rest = _target(args)
        if not rest:
            return self._fault(at, "custom_partition needs a function.", "Call it as custom_partition(function, …).")
        function = to_chooser(rest[0], len(rest), at, found)
        node = dataflow.Partition("custom", to_args(rest[1:], at, found), target, at, function)
        return self._add(node, found)

    @starter
    def origin_partition(self) -> Block:
        """Back to where the query began: what a query ends its rows with, before it aggregates; only in queries."""
        return self._partition("origin", (), 0)

    def _partition(self, kind: PartitionKind, args: tuple[Any, ...], count: int) -> Block:
        at = caller_location()
        found: list[Fault] = []
        target, rest = _target(args) if len(args) > count else (None, args)
        if len(rest) != count:
            wanted = "no argument" if count == 0 else f"{count} argument"
            text = f"{kind}_partition takes {wanted} (and a PState or depot before it), not {len(args)}."
            found.append(Fault(str(at), text))
        return self._add(dataflow.Partition(kind, to_args(rest[:count], at, found), target, at), found)

    # --- queries ---

    @starter
    def invoke_query(self, name: str, *args: Any) -> Block:
        """Call a query of this module, or a mirror of one, with these values; `.out("*result")` binds what it answers.

        It reads what is committed: one state of each topology for a whole attempt, or for the whole query it is
        called from.
        """
        found: list[Fault] = []
        at = caller_location()
        if not isinstance(name, str) or name.startswith("$$"):
            text = f"invoke_query begins with the name of a query, not with {name!r}."
            found.append(Fault(str(at), text, 'Write invoke_query("name", "*argument").out("*result").'))
        return self._add(dataflow.InvokeQuery(str(name), to_args(args, at, found), (), at), found)

    # --- PStates ---

    @starter
    def local_select(self, pstate: Any, path: Path | None = None, options: SelectOptions | None = None) -> Block:
        """What a path selects from this task's partition, or from a value (`"*map"`): one row for each result."""
        at = caller_location()
        found = option_faults(options, at)
        if is_value(pstate):
            return self._add(select_from(pstate, path, at, found), found)
        name = to_name(pstate, "$$", "PState", at, found)
        return self._add(dataflow.LocalSelect(name, recorded_path(path, at, found), (), at), found)

    @starter
    def select(self, pstate: Any, path: Path | None = None, options: SelectOptions | None = None) -> Block:
        """`path_partition`, then `local_select`; from a value, `local_select` alone."""
        at = caller_location()
        found = option_faults(options, at)
        if is_value(pstate):
            return self._add(select_from(pstate, path, at, found), found)
        recorded = recorded_path(path, at, found)
        moved = self._add(_path_partition(pstate, recorded, at, found), found)
        return moved._add(dataflow.LocalSelect(str(pstate), recorded, (), at))

    @starter
    def local_transform(self, pstate: str, path: Path) -> Block:
        """Change this task's partition; the path ends with `term`, `term_val` or `term_void`."""
        found: list[Fault] = []
        at = caller_location()
        name = to_name(pstate, "$$", "PState", at, found)
        return self._add(dataflow.LocalTransform(name, recorded_path(path, at, found), at), found)

    @starter
    def local_clear(self, pstate: str) -> Block:
        """Reset this task's partition to its initial value."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.LocalClear(to_name(pstate, "$$", "PState", at, found), at), found)

    # --- depots ---

    @starter
    def depot_partition_append(self, depot: str, value: Any, ack: AckLevel | None = None) -> Block:
        """Append a record to a depot, in the partition of this task, exactly once: readers see it after the commit of
        the microbatch, and never without one. Also to depots that take no appends of clients (`Depot.disallow()`).

        `ack` changes nothing: no step waits for its append, and none is lost.
        """
        found: list[Fault] = []
        at = caller_location()
        if ack is not None and not isinstance(ack, AckLevel):
            text = f"The third argument of depot_partition_append is an AckLevel, not {ack!r}."
            found.append(Fault(str(at), text, "Leave it out: each append is done exactly once, with the commit."))
        name = to_name(depot, "*", "depot", at, found)
        return self._add(dataflow.DepotAppend(name, to_arg(value, at, found), at), found)

    # --- aggregation and batch blocks ---

    @starter
    def agg(self, *args: str | Agg | CompoundAgg) -> Block:
        """Aggregate into a PState (`agg("$$p", Agg.sum("*v"))`), or in a batch block into variables.

        There `agg(…).out("$$t")` makes a temporary PState, on the tasks where it aggregates. It can be read behind the
        aggregators, and is gone when the microbatch is done.
        """
        return self._aggregate("agg", args)

    @starter
    def compound_agg(self, *args: str | Agg | CompoundAgg) -> Block:
        """Aggregate at the places of a nested structure: `compound_agg("$$p", CompoundAgg.map("*k", Agg.count()))`.

        In a batch block `compound_agg(…).out("*m")` gives the structure as one plain value, and `.out("$$t")` makes a
        temporary PState, as with `agg`.
        """
        return self._aggregate("compound_agg", args)

    def _aggregate(self, method: str, args: tuple[Any, ...]) -> Block:
        found: list[Fault] = []
        at = caller_location()
        if len(args) not in (1, 2):
            text = f"{method} takes an aggregator, and before it perhaps a PState; {len(args)} arguments are given."
            return self._fault(at, text, f'Call it as {method}("$$p", Agg.count()).')
        pstate = to_name(args[0], "$$", "PState", at, found) if len(args) == 2 else None
        return self._add(dataflow.Aggregate(recorded_tree(args[-1], at, found), pstate, (), at), found)

    @starter
    def batch_block(self, block: Block) -> Block:
        """Run a block as a batch that is finished on all tasks before what follows runs, once, on task 0."""
        found: list[Fault] = []
        at = caller_location()
        return self._add(dataflow.BatchBlock(_nodes(block, at, found), at), found)

    @starter
    def fresh_batch_source(self) -> Block:
        """Begin another branch of a batch block; branches that share a variable are joined where a step needs both."""
        return self._add(dataflow.FreshBatchSource(caller_location()))

    @starter
    def sub_batch(self, batch: SubBatch) -> Block:
        """The rows of another batch block as a source: `sub_batch(SubBatch(block, "*k", "*n")).out("*k", "*n")`."""
        found: list[Fault] = []
        at = caller_location()
        if not isinstance(batch, SubBatch):
            text = f"sub_batch takes a SubBatch, not {batch!r}."
            return self._fault(at, text, 'Write sub_batch(SubBatch(block, "*out")).out("*name").')
        found.extend(batch.faults)
        return self._add(dataflow.SubBatchRows(_nodes(batch.block, batch.at, found), batch.vars, (), at), found)

    @starter
    def group_by(self, *args: str | Block) -> Block:
        """`group_by("*k", Block.agg(…).out("*v"))`: one row for each key."""
        found: list[Fault] = []
        at = caller_location()
        keys = tuple(to_var(key, at, found, "A key of group_by") for key in args[:-1])
        if not keys:
            found.append(Fault(str(at), "group_by takes one or more keys and a block.", "Add the key variables."))
        body = _nodes(args[-1] if args else None, at, found)
        return self._add(dataflow.GroupBy(keys, body, at), found)

    @starter
    def limit_agg(self, limit: LimitAgg) -> Block:
        """In a batch block: go on with some rows only, which a `LimitAgg` describes."""
        at = caller_location()
        if not isinstance(limit, LimitAgg):
            text = f"limit_agg takes a LimitAgg, not {limit!r}."
            return self._fault(at, text, 'Write limit_agg(LimitAgg.create(3, "*v").sort("*v")).')
        return self._add(replace(limit.recorded, at=at), limit.faults)

    # --- graph ---

    @starter
    def anchor(self, name: str) -> Block:
        """Name this place."""
        return self._add(dataflow.Anchor(str(name), caller_location()))

    @starter
    def hook(self, name: str) -> Block:
        """Go on from a named place."""
        return self._add(dataflow.Hook(str(name), caller_location()))

    @starter
    def branch(self, *args: str | Block) -> Block:
        """`branch("place", block)`: run a block from a named place (or from here), beside what follows."""
        found: list[Fault] = []
        at = caller_location()
        anchor = str(args[0]) if len(args) == 2 else None
        return self._add(dataflow.Branch(anchor, _nodes(args[-1] if args else None, at, found), at), found)

    @starter
    def unify(self, *anchors: str) -> Block:
        """Go on with the rows of several named places."""
        return self._add(dataflow.Unify(tuple(str(anchor) for anchor in anchors), caller_location()))


class Case(Block):
    """One case of `cond`: `Case.create(condition).each(…)…`."""

    def __init__(self, nodes: Sequence[Node] = (), faults: Sequence[Fault] = (), condition: Arg = _ALWAYS) -> None:
        super().__init__(nodes, faults)
        self.condition = condition

    def _with(self, nodes: tuple[Node, ...], faults: tuple[Fault, ...]) -> Case:
        return self._noted(Case(nodes, faults, self.condition))

    @staticmethod
    def create(condition: Condition | bool) -> Case:  # type: ignore[override]  # a case is created with its condition
        """A case that runs where the condition is true and no case before it was; `True` is for the last case."""
        found: list[Fault] = []
        at = caller_location()
        recorded = Const(True) if condition is True else to_condition(condition, at, found)
        return Case((), found, recorded)


class SubSource(Block):
    """One case of `sub_source`: `SubSource.create(int).each(…)…`."""

    def __init__(self, nodes: Sequence[Node] = (), faults: Sequence[Fault] = (), taker: Taker = EVERY) -> None:
        super().__init__(nodes, faults)
        self.taker = taker

    def _with(self, nodes: tuple[Node, ...], faults: tuple[Fault, ...]) -> SubSource:
        return self._noted(SubSource(nodes, faults, self.taker))

    @staticmethod
    def create(wanted: Any) -> SubSource:  # type: ignore[override]  # a case is created with what it takes
        """A case for values of exactly this class (`int`, `str`, `dict`, `None`, …; `object` for all), for values
        equal to this constant, or for those for which this function is true.
        """
        found: list[Fault] = []
        return SubSource((), found, to_taker(wanted, caller_location(), found))


class LoopVars:
    """The variables of a loop and what they begin with: `LoopVars.var("*i", 0).var("*sum", 0)`."""

    def __init__(self, recorded: Sequence[tuple[str, Arg]] = (), faults: Sequence[Fault] = ()) -> None:
        self.recorded = tuple(recorded)
        self.faults = tuple(faults)

    def __repr__(self) -> str:
        return "LoopVars" + ("".join(f".var({name!r}, {arg_text(value)})" for name, value in self.recorded) or "()")

    @starter
    def var(self, name: str, value: Any) -> LoopVars:
        """One more variable."""
        found: list[Fault] = []
        at = caller_location()
        pair = (to_var(name, at, found), to_arg(value, at, found))
        return LoopVars((*self.recorded, pair), (*self.faults, *found))


def _nodes(block: Any, at: Location, faults: list[Fault]) -> tuple[Node, ...]:
    """The nodes of a nested block; its mistakes are added to `faults`."""
    if isinstance(block, Block):
        block._attach()
        faults.extend(block.faults)
        return renewed(block.nodes)
    faults.append(
        Fault(str(at), f"A block is expected here, not {block!r}.", "Build one with Block.each(…) and so on.")
    )
    return ()


def _case(case: Any, at: Location, faults: list[Fault]) -> tuple[Arg, tuple[Node, ...]]:
    if isinstance(case, Case):
        return case.condition, _nodes(case, at, faults)
    faults.append(Fault(str(at), f"cond takes cases, not {case!r}.", "Build one with Case.create(condition).each(…)."))
    return Const(True), ()


def _target(args: tuple[Any, ...]) -> tuple[str | None, tuple[Any, ...]]:
    """The PState or depot that comes before a partitioner's arguments, if one does."""
    if args and isinstance(args[0], str) and args[0].startswith(("$$", "*")) and not callable(args[0]):
        return args[0], args[1:]
    return None, args


def _is_drawn(source: Random, fraction: float) -> bool:
    return source.random() < fraction


def _path_partition(pstate: Any, path: dataflow.RecordedPath, at: Location, faults: list[Fault]) -> dataflow.Partition:
    """Its argument is the path's leading key; no argument if the path begins with something else."""
    name = to_name(pstate, "$$", "PState", at, faults)
    args = () if path.leading_key is None else (path.leading_key,)
    return dataflow.Partition("path", args, name, at)


def _with_temp(node: dataflow.Materialize, names: Sequence[Any], at: Location, faults: list[Fault]) -> Node:
    if node.temp or len(names) != 1:
        faults.append(Fault(str(at), "materialize names one temporary PState.", 'Write .out("$$rows") once.'))
        return node
    return replace(node, temp=to_name(names[0], "$$", "temporary PState", at, faults))


def _making_temp(node: dataflow.Aggregate, names: Sequence[Any], at: Location, faults: list[Fault]) -> Node:
    """The aggregation into a temporary PState."""
    if node.pstate is not None or node.outs:
        text = f"This aggregates into '{node.pstate or node.outs[0]}' already, so it cannot go into '{names[0]}' too."
        faults.append(Fault(str(at), text, "Write one agg for each."))
        return node
    if len(names) != 1:
        text = f"An aggregation makes one temporary PState, not {len(names)} of {', '.join(map(repr, names))}."
        faults.append(Fault(str(at), text, "Write one agg for each."))
    pstate = to_name(names[0], "$$", "temporary PState", at, faults)
    return replace(node, pstate=pstate, is_temporary=True)


def _with_outs(node: Node, outs: tuple[str, ...], at: Location, faults: list[Fault]) -> Node:
    if isinstance(node, dataflow.ExplodeMicrobatch):
        if node.out is not None or len(outs) != 1:
            faults.append(Fault(str(at), "explode_microbatch binds one variable.", 'Write .out("*record") once.'))
        return replace(node, out=outs[0] if outs else None)
    if hasattr(node, "outs"):
        if node.outs:
            faults.append(Fault(str(at), ".out(…) stands twice after one node.", "Name all variables in one .out(…)."))
        if len(set(outs)) < len(outs):
            faults.append(Fault(str(at), ".out(…) names a variable twice.", "Give each value a name of its own."))
        with_outs: Any = node
        bound: Node = replace(with_outs, outs=outs)
        return bound
    kind = type(node).__name__
    faults.append(
        Fault(str(at), f"{_method(node)} emits no values, so .out(…) cannot follow it ({kind}).", "Remove it.")
    )
    return node


def _method(node: Node) -> str:
    names = {
        "KeepTrue": "keep_true", "Cond": "if_true/cond", "Partition": "A partitioner", "GroupBy": "group_by",
        "DepotAppend": "depot_partition_append", "Limit": "limit_agg",
    }  # fmt: skip
    kind = type(node).__name__
    return names.get(kind, "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind).lstrip("_"))
