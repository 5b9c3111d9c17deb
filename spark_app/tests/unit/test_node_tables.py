"""What each part of the code must know of each node and operator: read from the record, or from a table that names all.

Specimens are made from the records' fields, so a new class is checked without a line of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from tidemill import Block
from tidemill.engine import column_walk
from tidemill.engine.rows.source import SourceWriter
from tidemill.language import dataflow as df
from tidemill.language.schema import Leaf
from tidemill.plan import follow
from tidemill.plan import program as pg
from tidemill.plan.check import blocks
from tidemill.plan.compile import graph
from tidemill.plan.compile.liveness import binds_of, reads_of
from tidemill.plan.compile.order import merging_trees, observes_order
from tidemill.plan.compile.segments import segments_of
from tidemill.plan.nodes import every_node
from tidemill.plan.steps import step_of
from tidemill.plan.warn_constants import _bound

AT = df.Location("m.py", 1)
NODES, OPERATORS = get_args(df.Node), get_args(pg.Operator)
ENDS = {pg.Move, pg.Collect, pg.Gather, pg.Enter}
"""Operators at the end of a segment, where frames gather (`_Walk._end`, `RowRuntime._end`)."""

INNER = df.Anchor("inner", AT)


def read(name: str) -> df.Var:
    return df.Var(f"*read {name}")


def specimen(kind: type) -> Any:
    """A record of this class: a variable `*read field` wherever it takes one, `*out` wherever it binds one."""
    values: dict[str, Any] = {
        "Arg": read, "Arg | None": read, "tuple[Arg, ...]": lambda name: (read(name),),
        "RecordedPath": lambda name: df.RecordedPath((df.Nav("key", (read(name),)),)),
        "AggTree": lambda name: df.Aggregator("sum", "combiner", (read(name),)),
        "Function": lambda name: df.Function("f", "plain", len), "Function | None": lambda name: None,
        "int": lambda name: 0, "int | None": lambda name: None, "bool": lambda name: False, "Location": lambda name: AT,
        "str": lambda name: "$$p" if name == "pstate" else name, "PartitionKind": lambda name: "hash",
        "str | None": lambda name: {"pstate": "$$p", "out": "*out"}.get(name),
        "tuple[str, ...]": lambda name: ("*out",) if name == "outs" else (),
        "Literal['enter', 'head', 'again', 'emit', 'bind']": lambda name: "enter",
        "tuple[Node, ...]": lambda name: (INNER,), "tuple[Move, ...]": lambda name: (),
        "tuple[tuple[str, Arg], ...]": lambda name: (("*out", read(name)),),
        "tuple[tuple[Arg, tuple[Node, ...]], ...]": lambda name: ((read(name), (INNER,)),),
    }  # fmt: skip
    return kind(**{field.name: values[str(field.type).replace('"', "'")](field.name) for field in fields(kind)})


def fields(kind: type) -> tuple[Any, ...]:
    return dataclasses.fields(kind)


def has(kind: type, name: str) -> bool:
    return any(field.name == name for field in fields(kind))


def variables(part: Any) -> Iterator[str]:
    """All variables anywhere in a record."""
    if isinstance(part, df.Var):
        yield part.name
    elif dataclasses.is_dataclass(part):
        yield from variables(tuple(vars(part).values()))
    elif isinstance(part, tuple):
        for inner in part:
            yield from variables(inner)


# --- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [blocks._HANDLERS, graph._HANDLERS, follow._STEPS], ids=["check", "graph", "follow"])
def test_a_table_names_each_node_when_it_chooses_by_class(table: dict[type, str]) -> None:
    assert set(NODES) <= set(table)


@pytest.mark.parametrize("kind", NODES)
def test_variables_of_a_node_are_known_when_it_binds_them(kind: type) -> None:
    node = specimen(kind)

    if has(kind, "outs"):
        unbound = dataclasses.replace(node, outs=())
        block = Block((unbound,)).out("*a", "*b")
        assert block.nodes[-1].outs == ("*a", "*b")
    assert ("*out" in _bound(node)) is (has(kind, "outs") or has(kind, "out"))


@pytest.mark.parametrize("kind", NODES)
def test_inner_nodes_are_found_when_a_node_has_some(kind: type) -> None:
    has_inner = any("Node" in str(field.type) for field in fields(kind))

    assert (INNER in every_node([specimen(kind)])) is has_inner


# --- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OPERATORS)
def test_both_engines_know_an_operator_when_a_row_reaches_it(kind: type) -> None:
    assert kind in column_walk._HANDLERS or kind in ENDS
    assert hasattr(SourceWriter, f"_write_{kind.__name__.lower()}")


@pytest.mark.parametrize("kind", OPERATORS)
def test_variables_of_an_operator_are_known_when_it_reads_or_binds_them(kind: type) -> None:
    operator = specimen(kind)
    region = pg.Region(0, "source", 0)

    assert reads_of(operator, [region]) == set(variables(operator))
    assert binds_of(operator) == (("*out",) if has(kind, "outs") or has(kind, "out") else ())


@pytest.mark.parametrize("kind", [kind for kind in OPERATORS if has(kind, "pstate")])
def test_an_operator_is_taken_to_write_in_order_when_it_touches_a_pstate(kind: type) -> None:
    operator = specimen(kind)
    is_quiet = kind in (pg.Select, pg.Fold)  # a read, and here a sum of integers

    assert step_of(operator).endswith("($$p)")
    assert observes_order(operator, {"$$p": Leaf("int")}, []) is not is_quiet
    assert list(merging_trees([operator], [], ["$$p"])) == (["$$p"] if kind is pg.Fold else [])
    start, write = pg.Start(0, 0, AT), dataclasses.replace(specimen(pg.Clear), id=2)
    chain = [start, dataclasses.replace(operator, id=1), write]
    (segment,) = segments_of(chain, [[1], [2], []], [pg.Region(0, "source", 0)], {"$$p": Leaf("int")}).values()
    assert segment.mode == "rows"
