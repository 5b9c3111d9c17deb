"""What recorded nodes and the operators that they become hold: nodes inside them, and variables that they bind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.language import dataflow as df
from tidemill.plan import program as pg


def every_node(nodes: Iterable[df.Node]) -> Iterator[df.Node]:
    """These nodes and all those inside them."""
    for node in nodes:
        yield node
        yield from every_node(getattr(node, "body", ()))
        if isinstance(node, df.Cond):
            for _, body in node.cases:
                yield from every_node(body)


def binds_of(record: df.Node | pg.Operator) -> tuple[str, ...]:
    """The variables that a node or an operator binds: `out` and `outs` of its record."""
    out: str | None = getattr(record, "out", None)
    outs: tuple[str, ...] = getattr(record, "outs", ())
    return outs if out is None else (out, *outs)
