"""Aggregation into a PState one row at a time: each leaf of the tree is a path that ends in a term.

A list of aggregators is such a leaf itself where the list is one value; where each element is a row it is changed at
its indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.engine.compiled import Arguments
from tidemill.model import columns as cols
from tidemill.model.aggregation import onto_of
from tidemill.model.dataflow import AggList, AggMap, Aggregator, AggTree, Arg, Const, Function, Nav, Path, Var
from tidemill.model.schema import FixedKeysSchema, ListSchema, MapSchema, Schema, has_indexed
from tidemill.plan import program as pg
from tidemill.state.nodes import ABSENT
from tidemill.state.paths import compile_path
from tidemill.state.row_nodes import RecordNode
from tidemill.state.value_trees import compile_value_tree

if TYPE_CHECKING:
    from tidemill.engine.thread import ThreadRun


Step = tuple[Callable[..., None], tuple[Arg, ...]]
"""`transform(root, values)` and the arguments whose values follow those of the keys."""


class RowFold:
    """`fold(task, values)`: aggregates one row, whose values are the arguments of the tree in order."""

    def __init__(self, run: ThreadRun, operator: pg.Fold) -> None:
        self._state = run.state
        self._pstate = operator.pstate
        self._compiled = run.compiled.folds[operator.id]
        self._steps: list[tuple[Callable[..., None], tuple[int, ...]]] = []
        self._constants: list[Any] = []
        schema = run.compiled.schema(operator.pstate)
        self._is_simple = not _has_deep_list(operator.tree, schema)
        if self._is_simple:
            self._build(operator, schema)

    def _build(self, operator: pg.Fold, schema: Schema) -> None:
        positions = {arg: i for i, arg in enumerate(self._compiled.args)}
        for keys, leaf, below in _leaf_paths(operator.tree, (), schema):
            if isinstance(leaf, AggList) and isinstance(below, ListSchema) and below.subindexed:
                transform, args = _elements_step(leaf, len(keys))
            else:
                transform, args = _path_step(leaf, len(keys), schema, operator.pstate)
            self._steps.append((transform, tuple(self._place(arg, positions) for arg in (*keys, *args))))

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


def _has_deep_list(tree: AggTree, schema: Schema | None) -> bool:
    """Whether elements of a list are structures of rows themselves: those only the writer of many rows knows."""
    lists = [below for _, leaf, below in _leaf_paths(tree, (), schema) if isinstance(leaf, AggList)]
    return any(has_indexed(below.element) for below in lists if isinstance(below, ListSchema))


def _leaf_paths(
    tree: AggTree, keys: tuple[Arg, ...], schema: Schema | None
) -> Iterator[tuple[tuple[Arg, ...], Aggregator | AggList, Schema | None]]:
    """The keys above each leaf, and the schema of its place where that is known."""
    if isinstance(tree, AggMap):
        for key, inner in tree.entries:
            yield from _leaf_paths(inner, (*keys, key), _below(schema, key))
    else:
        yield keys, tree, schema


def _below(schema: Schema | None, key: Arg) -> Schema | None:
    if isinstance(schema, MapSchema):
        return schema.value
    return schema.field(key.value) if isinstance(schema, FixedKeysSchema) and isinstance(key, Const) else None


def _path_step(leaf: Aggregator | AggList, keys: int, schema: Schema, pstate: str) -> Step:
    """A leaf as a path that ends in a term."""
    function, args = (None, ()) if isinstance(leaf, Aggregator) and leaf.kind == "void" else _onto(leaf)
    flat = [Var(f"*{i}") for i in range(keys + len(args))]
    navs = [Nav("key", (var,)) for var in flat[:keys]]
    navs.append(Nav("term_void") if function is None else Nav("term", (function, *flat[keys:])))
    return compile_path(Path(tuple(navs)), schema, "transform", pstate=pstate).transform, args


def _elements_step(leaf: AggList, keys: int) -> Step:
    """Each aggregator of a list onto the element at its index."""
    functions: list[tuple[Callable[..., Any], int, int]] = []
    args: list[Arg] = []
    for item in leaf.items:
        function, own = _onto(item)
        functions.append((function.call, keys + len(args), keys + len(args) + len(own)))
        args += own

    def transform(root: Any, values: Sequence[Any]) -> None:
        node = root
        for key in values[:keys]:
            node = node.get_field(key) if isinstance(node, RecordNode) else node.get(key)
        for index, (onto, first, last) in enumerate(functions):
            held = node.get_at(index)
            node.put_at(index, onto(None if held is ABSENT else held, *values[first:last]))

    return transform, tuple(args)


def _onto(leaf: AggTree) -> tuple[Function, tuple[Arg, ...]]:
    """What aggregates one row onto a stored value, as the function of a `term`, and its arguments."""
    if isinstance(leaf, Aggregator):
        return Function(leaf.name, "function", onto_of(leaf)), leaf.args
    found = Arguments()
    tree = compile_value_tree(leaf, found.index)
    return Function("tree", "function", lambda current, *row: tree.apply(current, row)), tuple(found.args)
