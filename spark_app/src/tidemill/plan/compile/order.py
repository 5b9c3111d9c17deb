"""Where the order of rows can be observed, and which PStates are only aggregated into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemill.language import dataflow as df
from tidemill.language.aggregation_order import depends_on_order
from tidemill.language.combiners import combiner_of
from tidemill.language.operations import Ops
from tidemill.plan import program as pg


def leaves(tree: df.AggTree) -> Iterator[df.Aggregator]:
    """The aggregators of a tree, from left to right."""
    if isinstance(tree, df.AggMap):
        for _, inner in tree.entries:
            yield from leaves(inner)
    elif isinstance(tree, df.AggList):
        for inner in tree.items:
            yield from leaves(inner)
    else:
        yield tree


def observes_order(operator: pg.Operator, schemas: Mapping[str, Any], regions: Sequence[pg.Region]) -> bool:
    """Whether what an operator does depends on the order in which rows reach it."""
    if isinstance(operator, pg.Collect):
        outputs = regions[operator.region].outputs
        return regions[operator.region].cut is not None or any(
            depends_on_order(output.tree, schemas.get(output.pstate or "")) for output in outputs
        )
    if isinstance(operator, pg.Apply):
        return operator.function.kind == "vectorized" or operator.function.call is Ops.PRINTLN
    if isinstance(operator, pg.Retain):  # its rows show their order where they come back
        return False
    return writes_in_order(operator, schemas.get(pstate_of(operator) or ""))


def pstate_of(operator: pg.Operator) -> str | None:
    """The PState that an operator reads or writes on the row's task; None if there is none."""
    found: str | None = getattr(operator, "pstate", None)
    return found


def touched_by(operator: pg.Operator) -> str | None:
    """The PState, the depot or the materialized rows that an operator reads or writes on the row's task; None if there
    is none.
    """
    if isinstance(operator, pg.Retain):
        return operator.temp
    return operator.depot if isinstance(operator, pg.Append) else pstate_of(operator)


def writes_in_order(operator: pg.Operator, schema: Any) -> bool:
    """Whether an operator writes what it touches in a way that shows the order of rows, as all do but some
    aggregations.
    """
    if isinstance(operator, (pg.Append, pg.Retain)):
        return True
    if isinstance(operator, pg.Fold):
        return depends_on_order(operator.tree, schema)
    return pstate_of(operator) is not None and not isinstance(operator, pg.Select)


def ordered_points(
    operators: Sequence[pg.Operator],
    following: Sequence[Sequence[int]],
    regions: Sequence[pg.Region],
    schemas: Mapping[str, Any],
) -> tuple[bool, ...]:
    """For each operator whether the order of the rows behind it shows anywhere, beyond messages and blocks too."""
    shows = [observes_order(operator, schemas, regions) for operator in operators]
    behind = [False] * len(operators)
    changed = True
    while changed:
        changed = False
        for number in range(len(operators) - 1, -1, -1):
            value = any(shows[successor] or behind[successor] for successor in following[number])
            if value != behind[number]:
                behind[number] = changed = True
    return tuple(behind)


def merging_trees(
    operators: Sequence[pg.Operator], regions: Sequence[pg.Region], names: Sequence[str]
) -> dict[str, df.AggTree]:
    """The PStates that are only aggregated into, always by the same built-in combiners, with that aggregation."""
    trees: dict[str, list[df.AggTree]] = {name: [] for name in names}
    read = set()
    for operator in operators:
        if isinstance(operator, pg.Fold):
            trees.setdefault(operator.pstate, []).append(operator.tree)
        elif (pstate := pstate_of(operator)) is not None:
            read.add(pstate)
    for region in regions:
        for output in region.outputs:
            if output.pstate is not None:
                trees.setdefault(output.pstate, []).append(output.tree)
    return {name: found[0] for name, found in trees.items() if name not in read and _is_mergeable(found)}


def _is_mergeable(trees: Sequence[df.AggTree]) -> bool:
    if not trees or len({repr(_outline(tree)) for tree in trees}) != 1:
        return False
    return all(_is_stored(leaf) for leaf in leaves(trees[0]))


def _is_stored(leaf: df.Aggregator) -> bool:
    return leaf.kind == "combiner" and combiner_of(leaf).is_stored


def _outline(tree: df.AggTree) -> Any:
    """A tree without what differs from row to row: two equal outlines write the same operands to the same places."""
    if isinstance(tree, df.AggMap):
        return [[key if isinstance(key, df.Const) else "*", _outline(inner)] for key, inner in tree.entries]
    if isinstance(tree, df.AggList):
        return ["list", *map(_outline, tree.items)]
    return (tree.name, tree.kind, repr(tree.options), id(tree.implementation) if tree.implementation else None)
