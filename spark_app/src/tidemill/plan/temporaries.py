"""Aggregations into temporary PStates declare them: the schema and initial value that follow from the aggregators.
Each query has one of its own.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tidemill.language import dataflow as df
from tidemill.language.combiners import accumulator_of, combiner_of
from tidemill.language.schema import Leaf, MapSchema, Schema

_ANY = Leaf("object")


def own_of(query: df.QueryDeclaration) -> df.PStateDeclaration:
    """The temporary PState of a query, `$$name$$`: one value of any kind on each task, None when a call begins."""
    return df.PStateDeclaration(f"$${query.name}$$", _ANY, query.at)


def declared_by(node: df.Aggregate) -> df.PStateDeclaration:
    """The declaration of the temporary PState that an aggregation makes.

    Raises:
        DefinitionError: a leaf is no aggregator.
    """
    assert node.pstate is not None
    return df.PStateDeclaration(node.pstate, temp_schema(node.tree), node.at, initial_value=_zero(node.tree))


def temp_schema(tree: df.AggTree, *, is_top: bool = True) -> Schema:
    """What an aggregator tree makes. Its maps are indexed on each level: subindexed below the top.

    Lists, and maps whose entries differ, are plain values.
    """
    if isinstance(tree, df.AggMap):
        inner = (temp_schema(below, is_top=False) for _, below in tree.entries)
        value = reduce(lambda a, b: a if a == b else _ANY, inner)
        return MapSchema("object", value, subindexed=not is_top, nullable=True)
    is_count = isinstance(tree, df.Aggregator) and tree.kind == "combiner" and not tree.args  # of rows: nothing else
    return Leaf("int") if is_count else _ANY


def _zero(tree: df.AggTree) -> Any:
    """What a task without rows has: nothing in maps and lists, else what the aggregator gives for no rows."""
    if not isinstance(tree, df.Aggregator) or tree.kind == "void":
        return None
    if tree.kind == "accumulator":
        return accumulator_of(tree).init()
    combiner = combiner_of(tree)
    return combiner.finish(combiner.zero())
