"""What a program's operators need at run time, made once: paths, writers and aggregations with their arguments
numbered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tidemill.engine.query_budget import RUNNING
from tidemill.language.combiners import combiner_of
from tidemill.language.dataflow import AggList, AggMap, Aggregator, AggTree, Arg, RecordedPath, Var
from tidemill.language.schema import Schema
from tidemill.paths.compiled import CompiledPath, compile_path
from tidemill.paths.navigator import Mode
from tidemill.paths.variables import VariableAggregation, compile_aggregation
from tidemill.plan import program as pg
from tidemill.plan.compile.order import leaves
from tidemill.pstate.operands import OperandWriter, compile_writer


@dataclass
class Arguments:
    """Numbers the arguments of aggregators: position i of `args` is column i of a call."""

    args: list[Arg] = field(default_factory=list)

    def index(self, arg: Arg) -> int:
        """Append an argument; its column's number. An argument that comes twice gets two numbers."""
        self.args.append(arg)
        return len(self.args) - 1


@dataclass(frozen=True)
class CompiledFold:
    """An aggregation into a PState: `writer.write(state, pstate, tasks, columns of args)`."""

    pstate: str
    writer: OperandWriter
    args: tuple[Arg, ...]


@dataclass(frozen=True)
class Combining:
    """How rows are combined before the final partitioner: groups of the destination and `keys`, one operand a leaf.

    `folds` take the combined rows of aggregations into PStates, whose operands are the variables `*operand<i>`.
    """

    keys: tuple[str, ...]
    aggregation: VariableAggregation
    args: tuple[Arg, ...]
    folds: tuple[CompiledFold, ...] = ()


@dataclass(frozen=True)
class CompiledBlock:
    """The aggregation of a batch block: folds into PStates, and one aggregation into the variables `outs`.

    `combining` is None where rows must reach the aggregation one by one.
    """

    folds: tuple[CompiledFold, ...]
    aggregation: VariableAggregation | None
    args: tuple[Arg, ...]
    outs: tuple[str, ...]
    keys: tuple[str, ...]
    combining: Combining | None = None


class CompiledProgram:
    """The run-time parts of one program."""

    def __init__(self, program: pg.Program) -> None:
        self.program = program
        self.paths: dict[int, CompiledPath] = {}
        self.folds: dict[int, CompiledFold] = {}
        self.blocks: dict[int, CompiledBlock] = {}
        for operator in program.operators:
            if isinstance(operator, pg.Select):
                self.paths[operator.id] = self._path(operator.pstate, operator.path, "select")
            elif isinstance(operator, pg.Transform):
                self.paths[operator.id] = self._path(operator.pstate, operator.path, "transform")
            elif isinstance(operator, pg.Fold):
                self.folds[operator.id] = self._fold(operator.pstate, operator.tree)
        for region in program.regions:
            if region.collect is not None:
                self.blocks[region.id] = self._block(region)

    def schema(self, pstate: str) -> Schema:
        """The schema of a PState that the program writes or reads. Raises KeyError for any other."""
        return self.program.plan_of(pstate).schema

    def _path(self, pstate: str, path: RecordedPath, mode: Mode) -> CompiledPath:
        """A path; what those of queries do is counted."""
        budget = RUNNING if self.program.inputs is not None else None
        return compile_path(path, self.schema(pstate), mode, pstate=pstate, budget=budget)

    def _fold(self, pstate: str, tree: AggTree) -> CompiledFold:
        arguments = Arguments()
        plan = self.program.plan_of(pstate)
        writer = compile_writer(tree, plan.schema, arguments.index, plan.merges is not None)
        return CompiledFold(pstate, writer, tuple(arguments.args))

    def _block(self, region: pg.Region) -> CompiledBlock:
        folds = tuple(self._fold(output.pstate, output.tree) for output in region.outputs if output.pstate is not None)
        own = [output for output in region.outputs if output.pstate is None]
        arguments = Arguments()
        aggregation = compile_aggregation([output.tree for output in own], arguments.index) if own else None
        outs = tuple(output.out or "" for output in own)
        args, keys = tuple(arguments.args), region.keys or ()
        combining: Combining | None = None
        if region.combines and not folds and aggregation is not None and aggregation.is_two_phase:
            combining = Combining(keys, aggregation, args)
        elif region.combines and folds and not own:
            combining = self._combined_folds(region)
        return CompiledBlock(folds, aggregation, args, outs, keys, combining)

    def _combined_folds(self, region: pg.Region) -> Combining | None:
        """Sums, least and greatest values of values that were combined already are written like the values themselves.

        A count becomes a sum of counts, but not where operands are stored: there a combiner keeps its name.
        """
        if region.final is None or self.program.keeps_order[region.final]:
            return None
        found = [leaf for output in region.outputs for leaf in leaves(output.tree)]
        for output in region.outputs:
            is_stored = self.program.plan_of(output.pstate or "").merges is not None
            for combiner in map(combiner_of, leaves(output.tree)):
                if combiner.merged_by is None or (is_stored and combiner.merged_by != combiner.name):
                    return None
        keys = [tuple(sorted(set(key_variables(output.tree)))) for output in region.outputs]
        if len(set(keys)) != 1:
            return None
        arguments = Arguments()
        aggregation = compile_aggregation(found, arguments.index)
        numbers = iter(range(len(found)))
        folds = tuple(
            self._fold(output.pstate or "", with_operands(output.tree, numbers)) for output in region.outputs
        )  # fmt: skip
        return Combining(keys[0], aggregation, tuple(arguments.args), folds)


@lru_cache(maxsize=64)
def _compiled(key: str, holder: _Holder) -> CompiledProgram:
    return CompiledProgram(holder.program)


def key_variables(tree: AggTree) -> Iterator[str]:
    """The variables among the keys of a tree."""
    if isinstance(tree, AggMap):
        for key, inner in tree.entries:
            if isinstance(key, Var):
                yield key.name
            yield from key_variables(inner)
    elif isinstance(tree, AggList):
        for inner in tree.items:
            yield from key_variables(inner)


def with_operands(tree: AggTree, numbers: Iterator[int]) -> AggTree:
    """The tree that takes combined operands, from left to right, in place of its arguments."""
    if isinstance(tree, AggMap):
        return AggMap(tuple((key, with_operands(inner, numbers)) for key, inner in tree.entries))
    if isinstance(tree, AggList):
        return AggList(tuple(with_operands(inner, numbers) for inner in tree.items))
    name = combiner_of(tree).merged_by
    assert name is not None
    return Aggregator(name, "combiner", (Var(f"*operand{next(numbers)}"),))


class _Holder:
    """A program that is compared by its key alone, so that equal programs are compiled once a process."""

    def __init__(self, program: pg.Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder) and other.program.key == self.program.key

    def __hash__(self) -> int:
        return hash(self.program.key)


def compiled_program(program: pg.Program) -> CompiledProgram:
    """The run-time parts of a program, from this process's cache."""
    return _compiled(program.key, _Holder(program))
