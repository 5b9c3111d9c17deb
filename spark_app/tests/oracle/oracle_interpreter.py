"""A naive interpreter of the dataflow language: plain Python, one row at a time, one task after the other.

It reads the recorded nodes of a module and shares with the engine only those records, the routing hash and the identity
of keys. It is written from the semantics, so that it may contradict the engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
from oracle_aggregators import aggregated, folded
from oracle_branches import Gather, Join
from oracle_captures import captured, captures_of
from oracle_graph import BlockGraph, Builder, Step, SubRows, block_graph
from oracle_paths import Walk
from oracle_schedules import Message, Rounds, Schedule
from oracle_structures import UNCHANGED, VOID, OracleError, is_true, shaped
from oracle_temporaries import initial_of, temporaries, temporary

from tidemill.language import dataflow as df
from tidemill.language.dispatch import Dispatch, OfClass, OfValue
from tidemill.language.emits import Streamed, StreamEmit
from tidemill.language.operations import Op
from tidemill.language.schema import FixedKeysSchema, Leaf, MapSchema
from tidemill.language.value_select import SelectFrom
from tidemill.values.data import check_data, route, sort_key
from tidemill.values.keys import key_token, same_key

EVENTS_MAX = 20_000
_WIDE = 1 << 30


class TooLong(Exception):
    """A program that runs on and on."""


@dataclass(eq=False)
class LoopRun:
    """A row at work in a loop: what was bound before it, and the rows of the next rounds, if those wait."""

    env: Mapping[str, Any]
    waiting: list[Row] = field(default_factory=list)
    is_busy: bool = False


@dataclass(frozen=True)
class Row:
    """The variables of a row, its task, the source or batch block that it is of, and the loops that it is in."""

    env: Mapping[str, Any]
    task: int
    region: int
    loops: tuple[LoopRun, ...] = ()

    def binding(self, names: Sequence[str], values: Sequence[Any]) -> Row:
        return replace(self, env={**self.env, **dict(zip(names, values, strict=True))})


async def _awaited(found: Any) -> Any:
    return await (asyncio.wrap_future(found) if isinstance(found, Future) else found)


def taken(cases: Sequence[Any], value: Any) -> int:
    """The number of the case of `sub_source` that takes a value."""
    same = {tuple: list, frozenset: set, bytearray: bytes}
    for number, case in enumerate(cases):
        if isinstance(case, OfClass):
            is_taken = case.kind is object or same.get(type(value), type(value)) is case.kind
        else:
            is_taken = value == case.value if isinstance(case, OfValue) else is_true(case.function(value))
        if is_taken:
            return number
    raise OracleError(f"no case takes {value!r}")


@dataclass(frozen=True)
class Microbatch:
    """What a source binds: the records of each partition."""

    source_id: str
    records: tuple[tuple[Any, ...], ...]


@dataclass
class BlockRun:
    """A batch block at work: the row that began it, those that wait for it, and the rows that wait for its end."""

    step: Step
    graph: BlockGraph
    entered: Row | None = None
    waiting: list[Row] = field(default_factory=list)
    collected: dict[int, list[Row]] = field(default_factory=dict)
    sides: dict[int, tuple[list[Row], list[Row]]] = field(default_factory=dict)
    joined: int = 0


class Oracle:
    """A module at work: `append` to the partitions of its depots, `attempt` a topology, look at `state`."""

    def __init__(self, module: df.ModuleDeclaration, tasks: int) -> None:
        self.module = module
        self.tasks = tasks
        self.pstates = {p.name: p for t in module.topologies for p in t.pstates}
        self.depots = {depot.name: depot for depot in module.depots}
        self.state = {name: [self.initial(name)] * tasks for name in self.pstates}
        own = (df.PStateDeclaration(f"$${query.name}$$", Leaf("object"), query.at) for query in module.queries)
        self.pstates |= {made.name: made for made in own}
        self.logs: dict[str, list[list[Any]]] = {
            depot.name: [[] for _ in range(1 if depot.is_global else tasks)] for depot in module.depots
        }
        self.done: dict[tuple[str, str], list[int]] = {}
        self.microbatches: Counter[str] = Counter()
        self.appended: list[tuple[str, int, Any]] = []
        self.due: set[str] = set()

    def initial(self, pstate: str) -> Any:
        """What a partition holds before it is first written."""
        declared = self.pstates[pstate]
        if isinstance(declared.schema, (MapSchema, FixedKeysSchema)):
            return shaped({}, declared.schema, True)
        return shaped(declared.initial_value, declared.schema, True)

    def ask(self, name: str, args: Sequence[Any], state: Mapping[str, list[Any]], schedule: Schedule) -> Any:
        """What a query answers over this state."""
        query = next(found for found in self.module.queries if found.name == name)
        run = Attempt(self, df.TopologyDeclaration(name, (), (), query.at), schedule, query)
        run.theirs = dict(state)
        run.begin_query(query, args)
        run.go_on()
        if len(run.answers) != 1:
            raise OracleError(f"{len(run.answers)} answers")
        return run.answers[0]

    def append(self, depot: str, partition: int, records: Sequence[Any]) -> None:
        self.logs[depot][partition].extend(records)

    def attempt(self, topology: str, schedule: Schedule | None = None) -> None:
        """One microbatch of a topology: all records that wait. Raises what fails it; then nothing has changed."""
        declared = next(found for found in self.module.topologies if found.name == topology)
        self.microbatches[topology] += 1
        run = Attempt(self, declared, schedule or Rounds())
        run.run()
        self.state.update({name: held for name, held in run.own.items() if name in self.state})
        self.appended = run.appends
        for source in declared.sources:
            if source.source_id in run.exploded:
                self.done[topology, source.source_id] = [len(log) for log in self.logs[source.depot]]


class Attempt:
    """One run over a microbatch. `own` is the state that it writes, `theirs` what other topologies committed."""

    def __init__(self, oracle: Oracle, topology: df.TopologyDeclaration, schedule: Schedule, body: Any = None) -> None:
        self.oracle = oracle
        self.topology = topology
        self.tasks = oracle.tasks
        self.schedule = schedule
        self.own = {declared.name: list(oracle.state[declared.name]) for declared in topology.pstates}
        self.theirs = {name: list(held) for name, held in oracle.state.items()}
        self.pending: Counter[int] = Counter()
        self.blocks: dict[int, BlockRun] = {}
        self.exploded: set[str] = set()
        self.rows: dict[str, list[list[Sequence[Any]]]] = {}
        self.temps = {tree.pstate: tree.tree for tree in temporaries(body or topology)}
        self.own |= {name: [initial_of(tree)] * self.tasks for name, tree in self.temps.items()}
        self.appends: list[tuple[str, int, Any]] = []
        self.answers: list[Any] = []
        self.events = 0

    def begin_query(self, query: df.QueryDeclaration, args: Sequence[Any]) -> None:
        step = Step(query.block, block=block_graph(query.block.body))
        own = f"$${query.name}$$"
        self.own[own] = [self.oracle.initial(own)] * self.tasks
        self._begin(step, Row(dict(zip(query.inputs, args, strict=True)), 0, -1))

    def run(self) -> None:
        for source in self.schedule.shuffled(list(self.topology.sources)):
            start = Step(None)
            Builder().chain(source.body, [start])
            env = {} if source.microbatch is None else {source.microbatch: self._microbatch(source)}
            self._send(start, Row(env, 0, -start.number), 0)
        self.go_on()

    def go_on(self) -> None:
        """Until nothing is under way any more."""
        while (event := self.schedule.next(self._finishable())) is not None:
            self.events += 1
            if self.events > EVENTS_MAX:
                raise TooLong
            if isinstance(event, Message):
                self.pending[event.region] -= 1
                self._arrive(event)
            else:
                self._finish(self.blocks[event])

    def _microbatch(self, source: df.SourceDeclaration) -> Microbatch:
        logs = self.oracle.logs[source.depot]
        if source.depot in self.oracle.due:
            return Microbatch(source.source_id, ((None,),))
        starts = self.oracle.done.get((self.topology.name, source.source_id), [0] * len(logs))
        return Microbatch(source.source_id, tuple(tuple(log[i:]) for log, i in zip(logs, starts, strict=True)))

    # --- messages ---

    def _send(self, step: Step, row: Row, task: int, rows: Sequence[Sequence[Any]] = ()) -> None:
        self.pending[row.region] += 1
        self.schedule.send(Message(row.task, task, step, row, row.region, rows=tuple(rows)))

    def _arrive(self, message: Message) -> None:
        row, step = replace(message.row, task=message.task), message.step
        if isinstance(step.node, df.ExplodeMicrobatch):
            microbatch = row.env[step.node.microbatch]
            out = step.node.out
            for record in microbatch.records[row.task]:
                self._follow(step, row if out is None else row.binding([out], [record]))
        elif isinstance(step.node, df.ExplodeMaterialized):
            for values in message.rows:
                self._follow(step, row.binding(step.node.outs, values) if step.node.outs else row)
        elif isinstance(step.node, df.BatchBlock):
            self._begin(step, row)
        elif step.meets:
            self._reach(step, row)
        elif any(step is block.graph.collect for block in self.blocks.values()):
            block = next(block for block in self.blocks.values() if step is block.graph.collect)
            block.collected.setdefault(row.task, []).append(row)
        else:
            self._follow(step, row)

    def _follow(self, step: Step, row: Row) -> None:
        for after in self.schedule.shuffled(list(step.nexts)):
            self._take(after, row)

    def _take(self, step: Step, row: Row) -> None:
        """A row goes on to a step."""
        if step.meets and (step.must_meet or self.schedule.meets(step.place)):
            self._send(step, row, row.task)
        else:
            self._reach(step, row)

    def _reach(self, step: Step, row: Row) -> None:
        self.events += 1
        if self.events > EVENTS_MAX:
            raise TooLong
        block = next((found for found in self.blocks.values() if step is found.graph.collect), None)
        if block is not None:
            self._collect(block, row)
        elif step.node is None:
            self._follow(step, row)
        else:
            getattr(self, f"_{type(step.node).__name__.lower()}")(step, step.node, row)

    # --- values ---

    def _value(self, arg: Any, row: Row) -> Any:
        if isinstance(arg, df.Var):
            return row.env[arg.name]
        if isinstance(arg, df.Const):
            return arg.value
        return self._call(arg.function, [self._value(inner, row) for inner in arg.args], row)

    def _call(self, function: df.Function, args: Sequence[Any], row: Row) -> Any:
        call = function.call
        if isinstance(call, Op) and call.needs_context:
            return {"CURRENT_TASK_ID": row.task, "CURRENT_TOPOLOGY_TYPE": "microbatch"}.get(
                call.name, self.oracle.microbatches[self.topology.name]
            )
        if isinstance(call, Dispatch):
            return taken(call.cases, args[0])
        if function.kind == "vectorized":
            return call(*(pl.Series([arg]) for arg in args)).to_list()[0]
        found = call(*args)
        return asyncio.run(_awaited(found)) if function.kind == "async" else found

    def _emitted(self, node: df.Each, row: Row) -> list[Sequence[Any]]:
        """One tuple of values for each row that goes on."""
        args = [self._value(arg, row) for arg in node.args]
        call = node.function.call
        if isinstance(call, SelectFrom):
            walk = Walk(lambda arg: args[1 + int(arg.name[1:])] if isinstance(arg, df.Var) else self._value(arg, row))
            return [(found,) for found in walk.selected(call.path, args[0])]
        if isinstance(call, Streamed):
            return [
                (item.stream, list(item.values))
                if isinstance(item, StreamEmit)
                else (None, list(item) if isinstance(item, tuple) else [item])
                for item in call.operation(*args)
            ]
        found = self._call(node.function, args, row)
        if isinstance(call, Op) and call.emits == "expand":
            return [found]
        if isinstance(call, Op) and call.emits == "many":
            return list(found)
        if node.function.kind == "operation":
            bound = [emitted for emitted in found if not isinstance(emitted, StreamEmit)]
            return [emitted if isinstance(emitted, tuple) else (emitted,) for emitted in bound]
        return [(found,)]

    def _each(self, step: Step, node: df.Each, row: Row) -> None:
        for values in self._emitted(node, row):
            if node.outs and len(values) != len(node.outs):
                raise OracleError(f"{len(values)} values for {node.outs}")
            self._follow(step, row.binding(node.outs, values) if node.outs else row)

    # --- rows ---

    def _explodemicrobatch(self, step: Step, node: df.ExplodeMicrobatch, row: Row) -> None:
        microbatch = row.env[node.microbatch]
        self.exploded.add(microbatch.source_id)
        for task, records in enumerate(microbatch.records):
            if records:
                self._send(step, row, task)

    def _materialize(self, step: Step, node: df.Materialize, row: Row) -> None:
        held = self.rows.setdefault(node.temp, [[] for _ in range(self.tasks)])
        held[row.task].append([self._value(arg, row) for arg in node.args])
        self._follow(step, row)

    def _explodematerialized(self, step: Step, node: df.ExplodeMaterialized, row: Row) -> None:
        for task, held in enumerate(self.rows.get(node.temp, [])):
            if held:
                self._send(step, row, task, held)

    def _keeptrue(self, step: Step, node: df.KeepTrue, row: Row) -> None:
        if is_true(self._value(node.condition, row)):
            self._follow(step, row)

    def _cond(self, step: Step, node: df.Cond, row: Row) -> None:
        for (condition, _), entry in zip(node.cases, step.inner, strict=True):
            if is_true(self._value(condition, row)):
                self._take(entry, row)
                return

    def _loop(self, step: Step, node: df.Loop, row: Row) -> None:
        names = [name for name, _ in node.vars]
        values = [self._value(arg, row) for _, arg in node.vars]
        inner = replace(row, loops=(*row.loops, LoopRun(row.env))).binding(names, values)
        self._round(step, inner)

    def _round(self, loop: Step, row: Row) -> None:
        """One round more: at once, or when the rounds that began before are over."""
        run = row.loops[-1]
        if not self.schedule.loops_in_rounds:
            self._follow(loop.inner[0], row)
            return
        run.waiting.append(row)
        if run.is_busy:
            return
        run.is_busy = True
        while run.waiting:
            self._follow(loop.inner[0], run.waiting.pop(0))
        run.is_busy = False

    def _continueloop(self, step: Step, node: df.ContinueLoop, row: Row) -> None:
        loop = step.inner[0]
        values = [self._value(arg, row) for arg in node.args]
        again = replace(row, env=row.loops[-1].env).binding([name for name, _ in loop.node.vars], values)
        self._round(loop, again)
        self._follow(step, row)

    def _emitloop(self, step: Step, node: df.EmitLoop, row: Row) -> None:
        loop = step.inner[0]
        values = [self._value(arg, row) for arg in node.args]
        out = replace(row, env=row.loops[-1].env, loops=row.loops[:-1]).binding(loop.node.outs, values)
        self._follow(loop.inner[1], out)
        self._follow(step, row)

    def _anchor(self, step: Step, node: df.Anchor, row: Row) -> None:
        self._follow(step, row)

    _unify = _anchor

    # --- partitioners ---

    def _partition(self, step: Step, node: df.Partition, row: Row) -> None:
        for task in self._targets(node, row):
            if type(task) is not int or not 0 <= task < self.tasks:
                raise OracleError(f"there is no task {task!r}")
            self._send(step, row, task)

    def _targets(self, node: df.Partition, row: Row) -> Sequence[Any]:
        args = [self._value(arg, row) for arg in node.args]
        is_single = node.target is not None and self._is_global(node.target)
        count = 1 if is_single else self.tasks
        if node.kind == "all":
            return range(count)
        if node.kind in ("global", "origin") or (node.kind == "path" and not args):
            return [0]
        if node.kind == "shuffle":
            return [self.schedule.dealt(count)]
        if node.kind == "direct":
            return args
        if node.kind == "hash":
            return [route(args[0], count)]
        if node.kind == "custom":
            assert node.function is not None
            return [node.function.call(count, *args)]
        declared = self.oracle.pstates.get(str(node.target))
        partitioner = None if declared is None else declared.key_partitioner
        return [route(args[0], count) if partitioner is None or is_single else partitioner.call(count, args[0])]

    def _is_global(self, name: str) -> bool:
        declared: Any = self.oracle.pstates.get(name) or self.oracle.depots.get(name)
        return declared is not None and bool(declared.is_global)

    # --- state ---

    def _walk(self, row: Row) -> Walk:
        return Walk(lambda arg: self._value(arg, row), self.schedule.shuffled)

    def _held(self, pstate: str, task: int) -> Any:
        return self.own[pstate][task] if pstate in self.own else self.theirs[pstate][task]

    def _localselect(self, step: Step, node: df.LocalSelect, row: Row) -> None:
        for value in self._walk(row).selected(node.path, self._held(node.pstate, row.task)):
            self._follow(step, row.binding(node.outs, [value]) if node.outs else row)

    def _localtransform(self, step: Step, node: df.LocalTransform, row: Row) -> None:
        new = self._walk(row).transform(node.path.navs, self._held(node.pstate, row.task))
        if new is not UNCHANGED:
            self._write(node.pstate, row.task, None if new is VOID else new)
        self._follow(step, row)

    def _localclear(self, step: Step, node: df.LocalClear, row: Row) -> None:
        tree = self.temps.get(node.pstate)
        self.own[node.pstate][row.task] = self.oracle.initial(node.pstate) if tree is None else initial_of(tree)
        self._follow(step, row)

    def _write(self, pstate: str, task: int, value: Any) -> None:
        if pstate in self.temps:
            self.own[pstate][task] = temporary(value, self.temps[pstate])
            return
        declared = self.oracle.pstates[pstate]
        is_map = isinstance(declared.schema, (MapSchema, FixedKeysSchema))
        held = self.oracle.initial(pstate) if value is None and is_map else shaped(value, declared.schema, True)
        self.own[pstate][task] = held

    def _aggregate(self, step: Step, node: df.Aggregate, row: Row) -> None:
        self._into_pstate(node, row)
        self._follow(step, row)

    def _into_pstate(self, node: df.Aggregate, row: Row) -> None:
        assert node.pstate is not None
        new = aggregated(node.tree, self._held(node.pstate, row.task), lambda arg: self._value(arg, row))
        self._write(node.pstate, row.task, new)

    def _depotappend(self, step: Step, node: df.DepotAppend, row: Row) -> None:
        record = self._value(node.value, row)
        check_data(record)
        self.appends.append((node.depot, row.task, record))
        self._follow(step, row)

    # --- queries ---

    def _invokequery(self, step: Step, node: df.InvokeQuery, row: Row) -> None:
        args = [self._value(arg, row) for arg in node.args]
        answer = self.oracle.ask(node.query, args, self.theirs, self.schedule.another())
        self._follow(step, row.binding(node.outs, [answer]) if node.outs else row)

    def _queryanswer(self, step: Step, node: df.QueryAnswer, row: Row) -> None:
        self.answers.append(self._value(node.value, row))

    # --- batch blocks ---

    def _batchblock(self, step: Step, node: df.BatchBlock, row: Row) -> None:
        """It begins once all rows have come that go on before the next message."""
        if row.task != 0:
            raise OracleError("a batch block begins on task 0")
        self._send(step, row, 0)

    def _begin(self, step: Step, row: Row) -> None:
        assert step.block is not None
        block = self.blocks.setdefault(step.number, BlockRun(step, step.block))
        self.pending[row.region] += 1
        if block.entered is None:
            self._enter(block, row)
        else:
            block.waiting.append(row)

    def _enter(self, block: BlockRun, row: Row) -> None:
        block.entered = row
        block.sides, block.joined = {join.number: ([], []) for join in block.graph.joins}, 0
        self.pending[block.step.number] += 1
        self._follow(block.graph.root, Row(row.env, 0, block.step.number))
        self.pending[block.step.number] -= 1

    def _subbatchrows(self, step: Step, node: df.SubBatchRows, row: Row) -> None:
        self._begin(step, row)

    def _subrows(self, step: Step, node: SubRows, row: Row) -> None:
        """A row of a sub-batch goes on in the block around it."""
        block = self.blocks[row.region]
        entered, outs = block.entered, block.step.node.outs
        assert entered is not None
        out = replace(entered, task=row.task).binding(outs, [row.env[name] for name in node.vars])
        self._follow(block.step, out)

    def _gather(self, step: Step, node: Gather, row: Row) -> None:
        self.blocks[row.region].sides[node.join.number][node.side].append(row)

    def _join(self, block: BlockRun, step: Step) -> None:
        """All pairs of rows of both sides that agree; on which task they are is promised to nobody."""
        join: Join = step.node
        left, right = block.sides[step.number]
        alike = [(a, b) for a in left for b in right if all(same_key(a.env[name], b.env[name]) for name in join.on)]
        made = [replace(a, env={**b.env, **a.env}) for a, b in alike]
        for rows, is_kept, names in ((left, join.keeps[0], join.names[1]), (right, join.keeps[1], join.names[0])):
            met = [row for pair in alike for row in pair]
            alone = [row for row in rows if is_kept and not any(row is other for other in met)]
            made += [replace(row, env={**dict.fromkeys(names), **row.env}) for row in alone]
        self.pending[block.step.number] += 1
        for row in self.schedule.shuffled(made):
            self._follow(step, replace(row, task=self.schedule.dealt(self.tasks)))
        self.pending[block.step.number] -= 1

    def _collect(self, block: BlockRun, row: Row) -> None:
        keys = block.graph.keys
        if keys is None:
            block.collected.setdefault(row.task, []).append(row)
            return
        self._send(block.graph.collect, row, self._group_task([row.env[key] for key in keys]))

    def _group_task(self, values: Sequence[Any]) -> int:
        """The task of a group: of one key its hash, of several the mix of theirs."""
        if len(values) == 1:
            return route(values[0], self.tasks)
        total = route(values[0], _WIDE)
        for value in values[1:]:
            total = (total * 31 + route(value, _WIDE)) % _WIDE
        return total % self.tasks

    def _finishable(self) -> list[int]:
        return [n for n, block in self.blocks.items() if block.entered is not None and not self.pending[n]]

    def _finish(self, block: BlockRun) -> None:
        graph, entered = block.graph, block.entered
        assert entered is not None
        if block.joined < len(graph.joins):
            block.joined += 1
            self._join(block, graph.joins[block.joined - 1])
            return
        collected, block.collected = block.collected, {}
        tasks = [0] if graph.is_single else range(self.tasks)
        for task in self.schedule.shuffled(list(tasks)):
            rows = collected.get(task, [])
            if graph.keys is not None:
                self._groups(block, task, rows)
            elif graph.aggregators:
                self._results(block, task, {}, rows)
        block.entered = None
        if not isinstance(block.step.node, df.SubBatchRows):
            self._follow(block.step, entered)
        self.pending[entered.region] -= 1
        if block.waiting and block.entered is None:
            self._enter(block, block.waiting.pop(0))

    def _limited(self, node: df.Limit, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The variables of the rows that a limit keeps; which of equal rows are cut is promised to nobody."""
        ordered = self.schedule.shuffled(list(rows))
        if node.sort:
            ordered.sort(key=lambda row: [sort_key(row.env[name]) for name in node.sort], reverse=node.is_reverse)
        kept = [{name: row.env[name] for name in node.vars} for row in ordered[: node.amount]]
        return kept if node.index is None else [{**bound, node.index: i} for i, bound in enumerate(kept)]

    def _groups(self, block: BlockRun, task: int, rows: Sequence[Row]) -> None:
        keys = block.graph.keys or ()
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(key_token(row.env[key]) for key in keys), []).append(row)
        for members in self.schedule.shuffled(list(groups.values())):
            self._results(block, task, {key: members[0].env[key] for key in keys}, members)

    def _results(self, block: BlockRun, task: int, env: dict[str, Any], rows: Sequence[Row]) -> None:
        """Aggregates rows, and runs post-agg on what comes of them."""
        limits = [node for node in block.graph.aggregators if isinstance(node, df.Limit)]
        for node in block.graph.aggregators:
            if isinstance(node, df.Limit):
                continue
            if node.pstate is not None:
                for row in rows:
                    self._into_pstate(node, row)
            else:
                evaluates = [lambda arg, row=row: self._value(arg, row) for row in rows]
                env = {**env, node.outs[0]: folded(node.tree, evaluates)}
        captures = captures_of(block.graph.aggregators)
        if limits:
            for bound in self._limited(limits[0], rows):
                self._follow(block.graph.post, Row({**env, **bound}, task, block.step.number))
            return
        if not captures:
            self._follow(block.graph.post, Row(env, task, block.step.number))
            return
        evaluates = [lambda arg, row=row: self._value(arg, row) for row in rows]
        for bound in self.schedule.shuffled(captured(captures, evaluates, lambda name: self._held(name, task))):
            self._follow(block.graph.post, Row({**env, **bound}, task, block.step.number))
