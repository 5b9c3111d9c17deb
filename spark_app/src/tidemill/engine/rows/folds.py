"""Aggregation into a PState one row at a time: each leaf of the tree is a path that ends in a term."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.model import columns as cols
from tidemill.model.aggregation import onto_of
from tidemill.model.dataflow import AggList, AggMap, Aggregator, AggTree, Arg, Const, Function, Nav, Path, Var
from tidemill.plan import program as pg
from tidemill.state.paths import compile_path

if TYPE_CHECKING:
    from tidemill.engine.thread import ThreadRun


class RowFold:
    """`fold(task, values)`: aggregates one row, whose values are the arguments of the tree in order."""

    def __init__(self, run: ThreadRun, operator: pg.Fold) -> None:
        self._state = run.state
        self._pstate = operator.pstate
        self._compiled = run.compiled.folds[operator.id]
        self._steps: list[tuple[Callable[..., None], tuple[int, ...]]] = []
        self._constants: list[Any] = []
        self._is_simple = not _has_list(operator.tree)
        if self._is_simple:
            self._build(run, operator)

    def _build(self, run: ThreadRun, operator: pg.Fold) -> None:
        schema = run.compiled.schema(operator.pstate)
        positions = {arg: i for i, arg in enumerate(self._compiled.args)}
        for keys, leaf in _leaf_paths(operator.tree, ()):
            places = tuple(self._place(arg, positions) for arg in (*keys, *leaf.args))
            flat = [Var(f"*{i}") for i in range(len(places))]
            navs = [Nav("key", (var,)) for var in flat[: len(keys)]]
            if leaf.kind == "void":
                navs.append(Nav("term_void"))
            else:
                navs.append(Nav("term", (_onto(leaf), *flat[len(keys) :])))
            path = compile_path(Path(tuple(navs)), schema, "transform", pstate=operator.pstate)
            self._steps.append((path.transform, places))

    def _place(self, arg: Arg, positions: dict[Arg, int]) -> int:
        """The position of an argument; constants come behind the values of the row."""
        if arg in positions and not isinstance(arg, Const):
            return positions[arg]
        assert isinstance(arg, Const)
        self._constants.append(arg.value)
        return len(self._compiled.args) + len(self._constants) - 1

    def __call__(self, task: int, values: Sequence[Any]) -> None:
        if not self._is_simple:
            columns = [cols.from_values([value]) for value in values]
            self._compiled.writer.write(self._state, self._pstate, task, columns, 1)
            return
        root = self._state.root(self._pstate, task)
        values = (*values, *self._constants)
        for transform, places in self._steps:
            transform(root, [values[place] for place in places])


def _has_list(tree: AggTree) -> bool:
    if isinstance(tree, AggMap):
        return any(_has_list(inner) for _, inner in tree.entries)
    return isinstance(tree, AggList)


def _leaf_paths(tree: AggTree, keys: tuple[Arg, ...]) -> Iterator[tuple[tuple[Arg, ...], Aggregator]]:
    if isinstance(tree, AggMap):
        for key, inner in tree.entries:
            yield from _leaf_paths(inner, (*keys, key))
    elif isinstance(tree, Aggregator):
        yield keys, tree


def _onto(leaf: Aggregator) -> Function:
    """What aggregates one row onto a stored value, as the function of a `term`."""
    return Function(leaf.name, "function", onto_of(leaf))
