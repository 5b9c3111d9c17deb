"""What a program's operators need at run time, made once: paths, writers and aggregations with their arguments
numbered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from tidemill.model.dataflow import AggTree, Arg
from tidemill.model.schema import Schema
from tidemill.plan import program as pg
from tidemill.state.operands import OperandWriter, compile_writer
from tidemill.state.paths import CompiledPath, compile_path
from tidemill.state.variables import VariableAggregation, compile_aggregation


@dataclass
class Arguments:
    """Numbers the arguments of aggregators: position i of `args` is column i of a call."""

    args: list[Arg] = field(default_factory=list)

    def index(self, arg: Arg) -> int:
        self.args.append(arg)
        return len(self.args) - 1


@dataclass(frozen=True)
class CompiledFold:
    """An aggregation into a PState: `writer.write(state, pstate, tasks, columns of args)`."""

    pstate: str
    writer: OperandWriter
    args: tuple[Arg, ...]


@dataclass(frozen=True)
class CompiledBlock:
    """The aggregation of a batch block: folds into PStates, and one aggregation into the variables `outs`."""

    folds: tuple[CompiledFold, ...]
    aggregation: VariableAggregation | None
    args: tuple[Arg, ...]
    outs: tuple[str, ...]
    keys: tuple[str, ...]


class CompiledProgram:
    """The run-time parts of one program."""

    def __init__(self, program: pg.Program) -> None:
        self.program = program
        self.paths: dict[int, CompiledPath] = {}
        self.folds: dict[int, CompiledFold] = {}
        self.blocks: dict[int, CompiledBlock] = {}
        for operator in program.operators:
            if isinstance(operator, pg.Select):
                schema = self.schema(operator.pstate)
                self.paths[operator.id] = compile_path(operator.path, schema, "select", pstate=operator.pstate)
            elif isinstance(operator, pg.Transform):
                schema = self.schema(operator.pstate)
                self.paths[operator.id] = compile_path(operator.path, schema, "transform", pstate=operator.pstate)
            elif isinstance(operator, pg.Fold):
                self.folds[operator.id] = self._fold(operator.pstate, operator.tree)
        for region in program.regions:
            if region.collect is not None:
                self.blocks[region.id] = self._block(region)

    def schema(self, pstate: str) -> Schema:
        plan = self.program.pstates.get(pstate) or self.program.others[pstate]
        return plan.schema

    def _fold(self, pstate: str, tree: AggTree) -> CompiledFold:
        arguments = Arguments()
        plan = self.program.pstates[pstate]
        writer = compile_writer(tree, plan.schema, arguments.index, plan.merges is not None)
        return CompiledFold(pstate, writer, tuple(arguments.args))

    def _block(self, region: pg.Region) -> CompiledBlock:
        folds = tuple(self._fold(output.pstate, output.tree) for output in region.outputs if output.pstate is not None)
        own = [output for output in region.outputs if output.pstate is None]
        arguments = Arguments()
        aggregation = compile_aggregation([output.tree for output in own], arguments.index) if own else None
        outs = tuple(output.out or "" for output in own)
        return CompiledBlock(folds, aggregation, tuple(arguments.args), outs, region.keys or ())


@lru_cache(maxsize=8)
def _compiled(key: str, holder: _Holder) -> CompiledProgram:
    return CompiledProgram(holder.program)


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
