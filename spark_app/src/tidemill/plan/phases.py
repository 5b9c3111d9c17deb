"""The three phases of a batch block, divided by where its aggregators stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Node

_AGGREGATORS = (df.Aggregate, df.GroupBy, df.Limit)
Aggregators = Sequence[Union[df.Aggregate, df.GroupBy, df.Limit]]


def phases(body: Sequence[Node]) -> tuple[Sequence[Node], Aggregators, Sequence[Node]]:
    """The nodes before the aggregators, the aggregators (they stand together), and the nodes after them."""
    first = next((i for i, node in enumerate(body) if isinstance(node, _AGGREGATORS)), len(body))
    last = first
    found: list[df.Aggregate | df.GroupBy | df.Limit] = []
    while last < len(body):
        node = body[last]
        if not isinstance(node, _AGGREGATORS):
            break
        found.append(node)
        last += 1
    return body[:first], found, body[last:]
