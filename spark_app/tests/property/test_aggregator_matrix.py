"""Every aggregator into every structure, by columns and by rows, in one process, over bytes and on Spark, in all states
of compaction: always what plain Python comes to, and one rule of which keys are the same.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from test_engine_equality import by_rows

from tidemill import AccumulatorAgg, Agg, Block, CombinerAgg, CompoundAgg, Depot, Expr, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.api.schemas import Schema
from tidemill.language import schema as schemas
from tidemill.paths.nodes import ListNode, MapNode, RootValue, SetNode
from tidemill.plan.check.module import check
from tidemill.spark.runner import SparkRunner
from tidemill.values.errors import UserCodeError

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests on their path
EXAMPLES = settings(
    max_examples=2,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Nothing here is about disks, and there are thousands of attempts."""
Row = tuple[Any, Any, Any, Any]
"""Two keys and two arguments."""


class Product(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return current * value

    def zero_val(self) -> Any:
        return 1


class Joined(AccumulatorAgg):
    def accumulate(self, current: Any, *args: Any) -> Any:
        return current + "".join(map(repr, args))

    def init_val(self) -> Any:
        return ""


# --- the model ----------------------------------------------------------------------------------------------------


def token(key: Any) -> Any:
    """Equal for equal keys: the rule of the guide, written down once more."""
    if isinstance(key, bool):
        return "bool", key
    if isinstance(key, (int, float)):
        return "number", "NaN" if key != key else int(key) if float(key).is_integer() else key
    if isinstance(key, (list, tuple)):
        return "list", tuple(map(token, key))
    return type(key).__name__, key


def canonical(value: Any) -> Any:
    """A value, or a node of an indexed structure, in a form that can be compared; what is empty is left out."""
    if isinstance(value, RootValue):
        return canonical(value.get_value())
    if isinstance(value, (dict, MapNode)):
        entries = [(repr(token(key)), canonical(item)) for key, item in value.items()]
        assert len({key for key, _ in entries}) == len(entries), entries
        return "map", sorted(entry for entry in entries if not is_empty(entry[1]))
    if isinstance(value, (set, frozenset, SetNode, Elements)):
        found = [repr(token(key)) for key in (value if isinstance(value, (set, frozenset)) else value.elements())]
        assert len(set(found)) == len(found), found
        return "set", sorted(found)
    if isinstance(value, (list, tuple, ListNode)):
        return "list", [canonical(item) for item in (value.elements() if isinstance(value, ListNode) else value)]
    return type(value).__name__, repr(value)


def is_empty(value: Any) -> bool:
    return value[0] in ("map", "set", "list") and not value[1]


class Mapping(dict[Any, Any]):
    """What a map holds, by the token of its keys; `items` gives the keys that came first."""

    def put(self, key: Any, value: Any) -> None:
        self[token(key)] = (self[token(key)][0] if token(key) in self else key, value)

    def at(self, key: Any, default: Any) -> Any:
        return self[token(key)][1] if token(key) in self else default

    def items(self) -> Any:
        return list(self.values())


class Elements:
    """What a set holds."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def elements(self) -> list[Any]:
        return list(self.held.values())


Args = Sequence[tuple[Any, Any]]


def mapped(pairs: Any) -> Mapping:
    found = Mapping()
    for key, value in pairs:
        found.put(key, value)
    return found


def counted(args: Args) -> Mapping:
    found = Mapping()
    for v, _ in args:
        found.put(v, found.at(v, 0) + 1)
    return found


def elements(args: Args, removes: bool = False) -> Elements:
    found = Elements()
    for v, w in args:
        found.held.setdefault(token(v), v)
        if removes:
            found.held.pop(token(w), None)
    return found


def ranked(args: Args) -> list[Any]:
    return sorted({v for v, _ in args}, reverse=True)[:2]


def first_of(values: list[Any]) -> Any:
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True)
class Case:
    """An aggregator: what it writes by its name, the schema of its result, what Python makes of its arguments, and the
    kinds of its arguments. `removes` is a second aggregator that follows each row.
    """

    agg: Any
    schema: Any
    model: Callable[[Args], Any]
    kind: str = "number"
    removes: Any = None

    @property
    def name(self) -> str:
        """As Tidemill calls it."""
        return str(self.agg.tree.name)


NUMBERS = PState.list_schema(int)
ANY, FLOAT = PState.nullable(object), PState.nullable(float)
CASES: dict[str, Case] = {
    "count": Case(Agg.count(), int, len),
    "sum": Case(Agg.sum("*v"), int, lambda args: sum(v for v, _ in args)),
    "min": Case(Agg.min("*v"), int, lambda args: min(v for v, _ in args)),
    "max": Case(Agg.max("*v"), int, lambda args: max(v for v, _ in args)),
    "and": Case(Agg.and_("*v"), bool, lambda args: all(v for v, _ in args), "bool"),
    "or": Case(Agg.or_("*v"), bool, lambda args: any(v for v, _ in args), "bool"),
    "first": Case(Agg.first("*v"), object, lambda args: first_of([v for v, _ in args]), "any"),
    "last": Case(Agg.last("*v"), object, lambda args: first_of([v for v, _ in reversed(args)]), "any"),
    "list": Case(Agg.list("*v"), PState.list_schema(object), lambda args: [v for v, _ in args], "any"),
    "set": Case(Agg.set("*v"), PState.set_schema(ANY), elements, "key"),
    "set of floats": Case(Agg.set("*v"), PState.set_schema(FLOAT), elements, "float"),
    "set_remove": Case(Agg.set("*v"), PState.set_schema(ANY), lambda args: elements(args, True), "key",
                       Agg.set_remove("*w")),
    "multi_set": Case(Agg.multi_set("*v"), PState.map_schema(ANY, int), counted, "key"),
    "multi_set of floats": Case(Agg.multi_set("*v"), PState.map_schema(FLOAT, int), counted, "float"),
    "map": Case(Agg.map("*v", "*w"), PState.map_schema(ANY, object), mapped, "key"),
    "map of numbers": Case(Agg.map("*v", "*w"), PState.map_schema(int, int), mapped),
    "merge": Case(Agg.merge(Expr(Ops.IDENTITY, "*w")), PState.map_schema(ANY, int),
                  lambda args: mapped(item for _, w in args for item in w.items()), "map"),
    "top_monotonic": Case(Agg.top_monotonic(2, "*v"), NUMBERS, ranked),
    "combiner": Case(Agg.combiner(Product(), "*v"), int, lambda args: math.prod(v for v, _ in args)),
    "accumulator": Case(Agg.accumulator(Joined(), "*v", "*w"), str,
                        lambda args: "".join(repr(v) + repr(w) for v, w in args)),
}  # fmt: skip

KEYS = [
    float("nan"), -float("nan"), 1, 1.0, 0, 0.0, -0.0, [1, 2.0], [1.0, 2], [float("nan")],
    [], "a", "1", None, b"a", 2**53, 2.0**53,
]  # fmt: skip
FLAGS = [True, False, 1, 0, 1.0, [True], [1], "a"]
FEW = ["a", "b", 1, float("nan")]
FLOATS = [float("nan"), -float("nan"), 0.0, -0.0, 1, 1.0, 2.5, None, float("inf")]
NUMBER = st.integers(-3, 3)
LARGE = st.sampled_from([1, 2, 2**31, 2**62, 2**63 - 1])
"""None is less than 1, so that sums and products which leave 64 bits do not come back."""
ARGUMENTS: dict[str, Any] = {
    "number": (NUMBER, NUMBER),
    "bool": (st.booleans(), NUMBER),
    "any": (st.none() | NUMBER | st.sampled_from(["x", 0.5]), NUMBER),
    "float": (st.sampled_from([float("nan"), 0.0, -0.0, 1.0, 1, 2.5, None]), NUMBER),
    "map": (NUMBER, st.dictionaries(st.sampled_from(["a", "b", 1, 1.0, -0.0]), NUMBER, max_size=2)),
}


def rows_of(kind: str, keys: Any) -> Any:
    first, second = (keys, keys) if kind == "key" else ARGUMENTS[kind]
    return st.lists(st.tuples(keys, keys, first, second), min_size=1, max_size=8)


def batches_of(kind: str, keys: Any, most: int) -> Any:
    """Microbatches; at times all of them with numbers whose sums and products leave 64 bits."""
    small = st.lists(rows_of(kind, keys), min_size=1, max_size=most)
    large = st.lists(st.tuples(keys, keys, LARGE, LARGE), min_size=1, max_size=8)
    return small | st.lists(large, min_size=1, max_size=most) if kind == "number" else small


def leaves_64_bits(expected: Any) -> bool:
    """Whether a number there cannot be stored."""
    return any(kind == "int" and not -(2**63) <= int(text) < 2**63 for kind, text in expected.values())


# --- the structures -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A structure around the place of an aggregator: `schema(s)`, `tree(agg)`, and which keys of a row lead to it."""

    schema: Callable[[Any], Any]
    tree: Callable[[Any], Any]
    paths: Callable[[Row], list[tuple[Any, ...]]]
    depth: int
    is_global: bool = False
    moves: bool = True
    has_plain_keys: bool = False
    pools: tuple[list[Any], ...] = (KEYS, FEW, FLAGS)

    def is_indexing(self, case: Case) -> bool:
        """Whether the aggregator's own structure is indexed though nobody says so: maps are at the top."""
        return self.depth == 0 and case.name in ("map", "merge", "multi_set")


def compound(*entries: Any) -> Any:
    return CompoundAgg.map(*entries)


SHAPES: dict[str, Shape] = {
    "map": Shape(lambda s: PState.map_schema(ANY, s), lambda a: compound("*k", a), lambda r: [(r[0],)], 1),
    "plain map": Shape(
        lambda s: PState.map_schema(ANY, PState.map_schema(ANY, s)),
        lambda a: compound("*k", compound("*j", a)), lambda r: [(r[0], r[1])], 2, has_plain_keys=True,
    ),
    "subindexed map": Shape(
        lambda s: PState.map_schema(ANY, PState.map_schema(ANY, s).subindexed()),
        lambda a: compound("*k", compound("*j", a)), lambda r: [(r[0], r[1])], 2,
    ),
    "fixed keys": Shape(
        lambda s: PState.map_schema(ANY, PState.fixed_keys_schema("a", s, "b", int)),
        lambda a: compound("*k", compound("a", a)), lambda r: [(r[0], "a")], 2,
    ),
    "top fixed keys": Shape(
        lambda s: PState.fixed_keys_schema("a", s, "b", int),
        lambda a: compound("a", a), lambda r: [("a",)], 1, is_global=True, moves=False,
    ),
    "top": Shape(lambda s: s, lambda a: a, lambda r: [()], 0, is_global=True, moves=False),
    "list": Shape(
        lambda s: PState.map_schema(ANY, PState.list_schema(s)),
        lambda a: compound("*k", CompoundAgg.list(a)), lambda r: [(r[0], 0)], 2,
    ),
    "subindexed list": Shape(
        lambda s: PState.map_schema(ANY, PState.list_schema(s).subindexed()),
        lambda a: compound("*k", CompoundAgg.list(a)), lambda r: [(r[0], 0)], 2,
    ),
    "map of floats": Shape(
        lambda s: PState.map_schema(FLOAT, s), lambda a: compound("*k", a), lambda r: [(r[0],)], 1, pools=(FLOATS,)
    ),
    "plain map of floats": Shape(
        lambda s: PState.map_schema(FLOAT, PState.map_schema(FLOAT, s)),
        lambda a: compound("*k", compound("*j", a)), lambda r: [(r[0], r[1])], 2, pools=(FLOATS,),
    ),
    "subindexed map of floats": Shape(
        lambda s: PState.map_schema(FLOAT, PState.map_schema(FLOAT, s).subindexed()),
        lambda a: compound("*k", compound("*j", a)), lambda r: [(r[0], r[1])], 2, pools=(FLOATS,),
    ),
    "meeting": Shape(
        lambda s: PState.map_schema(ANY, s),
        lambda a: compound("*k", a, "*j", a), lambda r: [(r[0],), (r[1],)], 1, moves=False,
    ),
    "meeting inside": Shape(
        lambda s: PState.map_schema(ANY, PState.fixed_keys_schema("a", s, "b", s)),
        lambda a: compound("*k", compound("a", a), "*j", compound("a", a, "b", a)),
        lambda r: [(r[0], "a"), (r[1], "a"), (r[1], "b")], 2, moves=False,
    ),
}  # fmt: skip


def without_null_keys(schema: Any) -> Any:
    """A schema, or a plain type, with None no longer among its keys, at any depth."""
    return Schema(_without_null_keys(schema.schema), schema.at) if isinstance(schema, Schema) else schema


def _without_null_keys(schema: schemas.Schema) -> schemas.Schema:
    if isinstance(schema, schemas.MapSchema):
        return replace(schema, value=_without_null_keys(schema.value), nullable=False)
    if isinstance(schema, schemas.ListSchema):
        return replace(schema, element=_without_null_keys(schema.element))
    if isinstance(schema, schemas.FixedKeysSchema):
        return schemas.FixedKeysSchema(tuple((name, _without_null_keys(field)) for name, field in schema.fields))
    return replace(schema, nullable=False) if isinstance(schema, schemas.SetSchema) else schema


def module_of(shape: Shape, case: Case, schema: Any, takes_null_keys: bool = True) -> Module:
    around = shape.schema(schema)

    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random()).global_()
            mb = topologies.microbatch("mb")
            pstate = mb.pstate("$$p", around if takes_null_keys else without_null_keys(around))
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r")
            rows = rows.each(Ops.EXPAND, "*r").out("*k", "*j", "*v", "*w")
            if shape.is_global:
                pstate.global_()
            if shape.moves:
                rows = rows.hash_partition("*k")
            for agg in [case.agg, *([case.removes] if case.removes is not None else [])]:
                tree = shape.tree(agg)
                rows = (rows.agg if tree is agg else rows.compound_agg)("$$p", tree)

    return Made()


def flat(value: Any, depth: int) -> dict[Any, Any]:
    """What stands at the ends of all paths of `depth` keys, by the tokens of the keys."""
    if depth == 0:
        found = canonical(value)
        return {} if is_empty(found) else {(): found}
    pairs = enumerate(value) if isinstance(value, list) else value.items()
    entries = [((repr(token(key)), *path), leaf) for key, item in pairs for path, leaf in flat(item, depth - 1).items()]
    assert len(dict(entries)) == len(entries), entries
    return dict(entries)


def expected_of(shape: Shape, case: Case, batches: Sequence[Sequence[Row]]) -> Any:
    """What Python makes of the rows of each place."""
    places: dict[Any, list[Any]] = {}
    for row in itertools.chain(*batches):
        for path in shape.paths(row):
            places.setdefault(tuple(repr(token(key)) for key in path), []).append(row[2:])
    found = {path: canonical(case.model(args)) for path, args in places.items()}
    return {path: value for path, value in found.items() if not is_empty(value)}


def meets_a_flag(shape: Shape, case: Case, batches: Sequence[Sequence[Row]], kind: str) -> bool:
    """Whether a plain structure would have to hold True and 1 (or such keys inside lists) as two keys."""
    groups: dict[Any, list[Any]] = {}
    is_indexed = kind == "subindexed"
    for row in itertools.chain(*batches):
        for path in shape.paths(row):
            if shape.has_plain_keys and not is_indexed:
                groups.setdefault(("keys", repr(token(path[0]))), []).append(path[1])
            if not is_indexed and case.kind == "key" and not shape.is_indexing(case):
                groups.setdefault(("leaf", *(repr(token(key)) for key in path)), []).append(row[2:])
    return any(meet(keys, case) for keys in groups.values())


def meet(rows: list[Any], case: Case) -> bool:
    """Whether keys meet that Python takes for one; `rows` are keys, or the arguments of rows that add and remove."""
    held: dict[Any, Any] = {}
    for row in rows:
        key, removed = row if isinstance(row, tuple) else (row, row)
        if any(repr(token(key)) != name and pythonic(key) == pythonic(other) for name, other in held.items()):
            return True
        held[repr(token(key))] = key
        if isinstance(row, tuple) and case.removes is not None:
            held.pop(repr(token(removed)), None)
    return False


def pythonic(key: Any) -> Any:
    return ("list", tuple(map(pythonic, key))) if isinstance(key, list) else key


def found_in(attempts: Attempts, shape: Shape) -> Any:
    found: dict[Any, Any] = {}
    for task in range(1 if shape.is_global else attempts.tasks):
        here = flat(attempts.state(task).root("$$p", task), shape.depth)
        assert not found.keys() & here.keys(), "a key is on two tasks"
        found |= here
    return found


@dataclass(frozen=True)
class Way:
    """How an attempt runs: by columns or by rows, over how many tasks and threads, and whether levels are compacted."""

    rows: bool = False
    tasks: int = 1
    threads: int = 1
    as_bytes: bool = False
    compacts: bool = False
    runner: Any = None
    placement: str = "auto"


WAYS = [Way(compacts=True), Way(rows=True), Way(tasks=4, threads=2, as_bytes=True)]


def run(way: Way, module: Module, shape: Shape, batches: Sequence[Sequence[Row]]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(Folder(folder), module, way.tasks, way.threads, as_bytes=way.as_bytes, runner=way.runner)
        attempts.options["topology.microbatch.placement"] = way.placement
        if way.rows:
            attempts.program = by_rows(attempts.program)
        for rows in batches:
            attempts.feed("*d", [list(row) for row in rows])
            try:
                attempts.attempt()
            except UserCodeError as error:
                return str(error)
            if way.compacts:
                attempts.compact()
        return found_in(attempts, shape)


def schemas_of(case: Case, shape: str) -> dict[str, Any]:
    is_structure = hasattr(case.schema, "subindexed")
    if shape == "top" and is_structure:  # maps are indexed there anyway, all else is one value
        return {"plain": {"SetSchema": set, "ListSchema": list}.get(type(case.schema.schema).__name__, case.schema)}
    return {"plain": case.schema} | ({"subindexed": case.schema.subindexed()} if is_structure else {})


COMBINATIONS = [
    pytest.param(shape, case, kind, id=f"{shape}-{case}-{kind}")
    for shape in SHAPES for case in CASES for kind in schemas_of(CASES[case], shape)
    if not (case == "top_monotonic" and kind == "subindexed")
]  # fmt: skip


@pytest.mark.parametrize(("shape", "case", "kind"), COMBINATIONS)
@EXAMPLES
@given(data=st.data())
def test_state_is_what_python_comes_to_whatever_aggregates_into_whatever(
    shape: str, case: str, kind: str, data: Any
) -> None:
    around, agg = SHAPES[shape], CASES[case]
    module = module_of(around, agg, schemas_of(agg, shape)[kind])
    assert check(record_module(module)) == []
    keys = st.sampled_from(data.draw(st.sampled_from(around.pools)))
    batches = data.draw(batches_of(agg.kind, keys, most=2))
    agrees(around, agg, kind, module, batches)


def agrees(shape: Shape, case: Case, kind: str, module: Module, batches: Sequence[Sequence[Row]]) -> None:
    """Each way comes to what Python comes to, or refuses it. Where two things are wrong, ways meet either one first."""
    expected = expected_of(shape, case, batches)
    refusals = ["one plain map or set"] if meets_a_flag(shape, case, batches, kind) else []
    refusals += ["SchemaMismatch"] if leaves_64_bits(expected) else []
    for way in WAYS:
        found = run(way, module, shape, batches)
        if refusals:
            assert isinstance(found, str) and "(record: " in found, (way, found)
            assert any(text in found for text in refusals), (way, found)
        else:
            assert found == expected, way


@pytest.mark.parametrize("is_flag_first", [True, False])
def test_one_of_two_refusals_comes_when_keys_meet_and_a_result_leaves_64_bits(is_flag_first: bool) -> None:
    shape, case = SHAPES["plain map"], CASES["combiner"]
    flags, large = [("a", True, 1, 0), ("a", 1, 1, 0)], [("a", "b", 2**62, 0), ("a", "b", 4, 0)]
    rows = [*flags, *large] if is_flag_first else [*large, *flags]
    assert meets_a_flag(shape, case, [rows], "plain") and leaves_64_bits(expected_of(shape, case, [rows]))
    agrees(shape, case, "plain", module_of(shape, case, case.schema), [rows])


def writes_a_null_key(shape: Shape, case: Case, schema: Any, rows: Sequence[Row]) -> bool:
    """Whether a row writes under the key None, or an element None, where the schema knows of keys."""
    inner = schema.schema if isinstance(schema, Schema) else None
    is_keyed = case.kind in ("key", "float") and isinstance(inner, (schemas.MapSchema, schemas.SetSchema))
    is_indexed = inner is not None and getattr(inner, "subindexed", False)
    for row in rows:
        removed = row[3] if case.removes is not None and is_indexed else 0
        if any(None in path for path in shape.paths(row)) or (is_keyed and (row[2] is None or removed is None)):
            return True
    return False


@pytest.mark.parametrize(("shape", "case", "kind"), COMBINATIONS)
@EXAMPLES
@given(data=st.data())
def test_null_keys_are_refused_in_the_same_words_when_no_schema_allows_them(
    shape: str, case: str, kind: str, data: Any
) -> None:
    around, agg = SHAPES[shape], CASES[case]
    schema = schemas_of(agg, shape)[kind]
    module = module_of(around, agg, schema, takes_null_keys=False)
    assert check(record_module(module)) == []
    pools = [[None, 0.0, 2.5], [0.0, 2.5]] if "float" in shape else [[None, "a", 1.5], ["a", "b", 1.5]]
    keys = st.sampled_from(data.draw(st.sampled_from(pools)))
    rows = data.draw(rows_of(agg.kind, keys))
    is_refused = writes_a_null_key(around, agg, schema, rows)
    found = [run(way, module, around, [rows]) for way in WAYS]
    if not is_refused:
        assert found == [expected_of(around, agg, [rows])] * len(WAYS)
        return
    told = [sentence_of(text) for text in found]
    assert all(told), found
    assert told[0] == told[1] or agg.removes is not None  # where several rows fail, threads begin with other ones


def sentence_of(text: Any) -> str | None:
    """What a failure says of a key that is None, without the step and the record."""
    found = re.search(r"SchemaMismatch: (\$\$p\S*: None is no key here\. .*) \(record: ", str(text))
    return found and found.group(1)


IN_VARIABLES = {name: case for name, case in CASES.items() if case.removes is None} | {
    "avg": Case(Agg.avg("*v"), None, lambda args: sum(v for v, _ in args) / len(args)),
    "median": Case(Agg.median("*v"), None, lambda args: statistics.median(v for v, _ in args)),
}


def grouping_module(case: Case, is_global: bool = True) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            depot = setup.declare_depot("*d", Depot.random())
            if is_global:
                depot.global_()
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(ANY, object))
            rows = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*j", "*v", "*w")
            block = rows.group_by("*k", Block.agg(case.agg).out("*a").agg(Agg.count()).out("*n"))
            block = block.local_transform("$$p", Path.key("*k").term_val("*a"))
            mb.source("*d").out("*mb").batch_block(block)

    return Made()


@pytest.mark.parametrize("name", IN_VARIABLES)
@settings(EXAMPLES, max_examples=5)
@given(data=st.data())
def test_variables_are_what_python_comes_to_whatever_aggregates_into_them(name: str, data: Any) -> None:
    case = IN_VARIABLES[name]
    (rows,) = data.draw(batches_of(case.kind, st.sampled_from(FEW), most=1))
    for way in WAYS:
        found = run(way, grouping_module(case), SHAPES["map"], [rows])
        expected = expected_of(SHAPES["map"], case, [rows])
        if leaves_64_bits(expected):
            assert isinstance(found, str) and "SchemaMismatch" in found and "(record: " in found, (way, found)
        else:
            assert found == expected, way


@pytest.mark.spark
@pytest.mark.parametrize("name", ["median", "avg", "top_monotonic", "list"])
def test_variables_are_what_python_comes_to_when_spark_aggregates(spark: Any, name: str) -> None:
    case = IN_VARIABLES[name]
    rows = [(i % 3, 0, i * 7 % 20, i) for i in range(40)]
    for placement in ("spread", "inline"):
        way = Way(tasks=4, threads=2, runner=SparkRunner(), placement=placement)
        assert run(way, grouping_module(case), SHAPES["map"], [rows]) == expected_of(SHAPES["map"], case, [rows]), way


@pytest.mark.spark
@pytest.mark.parametrize("name", ["sum", "combiner"])
def test_variables_are_what_python_comes_to_when_operands_on_spark_leave_64_bits(spark: Any, name: str) -> None:
    case = IN_VARIABLES[name]
    values = [2**62, -(2**62)] * 200 if name == "sum" else [2**40] * 400 + [0]  # dealt to the threads in turn
    rows = [("a", 0, value, 0) for value in values]
    module = grouping_module(case, is_global=False)
    for placement in ("spread", "inline"):
        way = Way(tasks=4, threads=2, runner=SparkRunner(), placement=placement)
        assert run(way, module, SHAPES["map"], [rows]) == expected_of(SHAPES["map"], case, [rows]), way


INDEXED: dict[str, Any] = {
    "map": PState.map_schema(object, object).subindexed(),
    "map of sets": PState.map_schema(str, PState.set_schema(object).subindexed()),
    "set": PState.set_schema(object).subindexed(),
    "list": PState.list_schema(object).subindexed(),
    "list of maps": PState.list_schema(PState.map_schema(str, object).subindexed()).subindexed(),
    "record": PState.fixed_keys_schema("a", PState.set_schema(object).subindexed(), "b", object),
}
TAKEN = {
    "map": {"map", "merge", "multi_set"}, "map of sets": {"map", "merge"}, "set": {"set", "set_remove"},
    "list": {"list"}, "list of maps": {"list"}, "record": {"map", "merge"},
}  # fmt: skip
ELEMENTS: dict[str, Any] = {"map of sets": {"x"}, "record": {"x"}, "list of maps": {"x": 1}}
AGGREGATORS = {name: case.agg for name, case in CASES.items() if " " not in name} | {"set_remove": Agg.set_remove("*v")}
BY_ELEMENT = {"map": Agg.map("*k", "*v"), "merge": Agg.merge("*m")}


@pytest.mark.parametrize("structure", INDEXED)
@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregator_works_or_is_refused_when_a_structure_is_indexed(name: str, structure: str) -> None:
    agg = BY_ELEMENT.get(name, AGGREGATORS[name])
    element = ELEMENTS.get(structure, 1)

    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str, INDEXED[structure]))
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*v")
            rows = rows.each(Ops.IDENTITY, "a").out("*k").each(lambda v: {"a": v}, "*v").out("*m")
            rows.each(Ops.IDENTITY, 1).out("*w").compound_agg("$$p", compound("*k", agg))

    faults = check(record_module(Made()))
    assert (faults == []) == (name in TAKEN[structure]), faults
    if faults:
        assert "$$p" in faults[0].text
        return
    for rows in (False, True):
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            attempts = Attempts(Folder(folder), Made(), 1)
            attempts.program = by_rows(attempts.program) if rows else attempts.program
            for _ in range(2):
                attempts.feed("*d", [element, element])
                attempts.attempt()


@pytest.mark.spark
@pytest.mark.parametrize(("shape", "case"), [("map", "multi_set"), ("subindexed map", "set"), ("meeting", "last")])
def test_state_is_what_python_comes_to_when_spark_aggregates(spark: Any, shape: str, case: str) -> None:
    around, agg = SHAPES[shape], CASES[case]
    keys = [key for key in KEYS if not isinstance(key, bytes)]
    values = [1, 2, None, "x"] if case == "last" else keys
    batches = [
        [(keys[i % len(keys)], keys[i * 7 % len(keys)], values[i * step % len(values)], i) for i in range(40)]
        for step in (3, 5)
    ]
    module = module_of(around, agg, agg.schema)
    for placement in ("spread", "inline"):
        way = Way(tasks=4, threads=2, runner=SparkRunner(), placement=placement)
        assert run(way, module, around, batches) == expected_of(around, agg, batches), way


@pytest.mark.spark
@pytest.mark.parametrize("shape", ["map", "subindexed map", "meeting"])
def test_null_keys_are_refused_in_the_same_words_when_spark_aggregates(spark: Any, shape: str) -> None:
    around, agg = SHAPES[shape], CASES["count"]
    rows = [("a", "b", 1, 1), (None, None, 1, 1), ("c", "d", 1, 1)]
    module = module_of(around, agg, agg.schema, takes_null_keys=False)
    ways = [Way(tasks=4, threads=2, runner=SparkRunner(), placement=placement) for placement in ("spread", "inline")]
    told = {sentence_of(run(way, module, around, [rows])) for way in (*WAYS, *ways)}
    assert len(told) == 1 and None not in told, told
