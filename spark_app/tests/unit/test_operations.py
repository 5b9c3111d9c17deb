"""The row form of every built-in operation: what the column forms are compared with."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import BadInput, Ops
from tidemill.language.operations import ALL_OPS, Op, elements_of, is_true, op_named

NAN = float("nan")

ONE: list[tuple[Op, tuple[Any, ...], Any]] = [
    (Ops.IDENTITY, (None,), None),
    (Ops.TUPLE, (), []),
    (Ops.TUPLE, (1, "a"), [1, "a"]),
    (Ops.GET, ({"a": 1}, "a"), 1),
    (Ops.GET, ({"a": 1}, "b"), None),
    (Ops.GET, ({"a": None}, "a", 5), None),
    (Ops.GET, ({}, "a", 5), 5),
    (Ops.GET, ([7, 8], 1), 8),
    (Ops.GET, ([7, 8], 2), None),
    (Ops.GET, ([7, 8], -1), None),
    (Ops.GET, ({7}, 7), 7),
    (Ops.GET, (None, "a"), None),
    (Ops.FIRST, ([7, 8],), 7),
    (Ops.FIRST, ([],), None),
    (Ops.FIRST, (None,), None),
    (Ops.FIRST, ({3, 1, 2},), 1),
    (Ops.LAST, ((7, 8),), 8),
    (Ops.MUST_GET, ({"a": None}, "a"), None),
    (Ops.MUST_GET, ([7, 8], 1), 8),
    (Ops.SIZE, ([7, 8],), 2),
    (Ops.SIZE, (None,), 0),
    (Ops.CONTAINS, ({"a": 1}, "a"), True),
    (Ops.CONTAINS, ([1, 2], 3), False),
    (Ops.CONTAINS, (None, 3), False),
    (Ops.CONTAINS, ([NAN], NAN), False),
    (Ops.CONTAINS, ([[NAN]], [NAN]), False),
    (Ops.CONTAINS, ([[1], 2], (1,)), True),
    (Ops.CONTAINS, ({NAN}, float("nan")), True),
    (Ops.CONTAINS, ({1: "a"}, True), False),
    (Ops.CONTAINS, ({1, 2}, 1.0), True),
    (Ops.CONTAINS, ({False}, 0), False),
    (Ops.CONTAINS, ({(1, "a")}, [1, "a"]), True),
    (Ops.CONTAINS, ({(1, "a")}, [True, "a"]), False),
    (Ops.GET, ({1: "a"}, True, "none"), "none"),
    (Ops.GET, ({1: "a"}, 1.0), "a"),
    (Ops.GET, ({(0, 1): "a"}, [0, 1]), "a"),
    (Ops.GET, ({0}, False, "none"), "none"),
    (Ops.GET, ([7, 8], True, "none"), "none"),
    (Ops.EQUAL, ({True: 1}, {1: 1}), False),
    (Ops.EQUAL, ({1.0: 1}, {1: 1}), True),
    (Ops.MUST_GET, ({True: "a"}, True), "a"),
    (Ops.CONTAINS, ({1.0}, NAN), False),
    (Ops.GET, ({NAN: 1}, float("nan")), 1),
    (Ops.MUST_GET, ({NAN: 1}, float("nan")), 1),
    (Ops.INC, (1,), 2),
    (Ops.INC, (1.5,), 2.5),
    (Ops.DEC, (1,), 0),
    (Ops.INC_LONG, (1.9,), 2),
    (Ops.DEC_LONG, (2**63,), 2**63 - 1),
    (Ops.PLUS, (), 0),
    (Ops.PLUS, (1, 2.5, 3), 6.5),
    (Ops.PLUS, ("a", "b"), "ab"),
    (Ops.PLUS, (2**63, 1), 2**63 + 1),
    (Ops.PLUS_LONG, (1.9, 2), 3),
    (Ops.MINUS, (5,), -5),
    (Ops.MINUS, (5, 2, 1), 2),
    (Ops.MINUS_LONG, (5.5, 2), 3),
    (Ops.TIMES, (), 1),
    (Ops.TIMES, (2, 3, 4), 24),
    (Ops.TIMES_LONG, (2.9, 3), 6),
    (Ops.DIV, (7, 2), 3.5),
    (Ops.FLOOR_DIV, (-7, 3), -3),
    (Ops.FLOOR_DIV, (7.5, 2), 3.0),
    (Ops.MOD, (-7, 3), 2),
    (Ops.SUM, ([1, 2, 3],), 6),
    (Ops.SUM, (None,), 0),
    (Ops.SUM, (1, 2), 3),
    (Ops.MIN, (3, 1, 2), 1),
    (Ops.MIN, ([],), None),
    (Ops.MAX, ([3, 1, 2],), 3),
    (Ops.EQUAL, (1, 1.0, 1), True),
    (Ops.EQUAL, (None, 0), False),
    (Ops.EQUAL, ([NAN], [NAN]), False),
    (Ops.EQUAL, ({"a": [NAN]}, {"a": [NAN]}), False),
    (Ops.EQUAL, ({NAN: 1}, {float("nan"): 1}), True),
    (Ops.EQUAL, ({NAN}, {float("nan")}), True),
    (Ops.EQUAL, ({"a": None}, {"b": None}), False),
    (Ops.EQUAL, ([1, {"a": (2,)}], (1, {"a": [2.0]})), True),
    (Ops.EQUAL, ([1], [1, 2]), False),
    (Ops.EQUAL, ([1], {1}), False),
    (Ops.NOT_EQUAL, (1, 1), False),
    (Ops.NOT_EQUAL, (1, 1, 2), True),
    (Ops.LESS_THAN, (1, 2, 3), True),
    (Ops.LESS_THAN, (1, 2, 2), False),
    (Ops.LESS_THAN_OR_EQUAL, (1, 2, 2), True),
    (Ops.GREATER_THAN, (3, 2), True),
    (Ops.GREATER_THAN_OR_EQUAL, (3, 3, 4), False),
    (Ops.AND, (), True),
    (Ops.AND, (0, "", []), True),
    (Ops.AND, (1, None), False),
    (Ops.OR, (), False),
    (Ops.OR, (False, None, 0), True),
    (Ops.NOT, (0,), False),
    (Ops.NOT, (None,), True),
    (Ops.IS_NULL, (False,), False),
    (Ops.IS_NOT_NULL, (None,), False),
    (Ops.IS_EVEN, (-2,), True),
    (Ops.IS_ODD, (-3,), True),
    (Ops.IS_INSTANCE_OF, (str, "a"), True),
    (Ops.IS_INSTANCE_OF, (int, "a"), False),
    (Ops.CLASS_OF, ("a",), str),
    (Ops.TO_STRING, (1, "a", None), "1aNone"),
]

MANY: list[tuple[Op, tuple[Any, ...], list[tuple[Any, ...]]]] = [
    (Ops.EXPLODE, ([1, 2],), [(1,), (2,)]),
    (Ops.EXPLODE, ([],), []),
    (Ops.EXPLODE, (None,), []),
    (Ops.EXPLODE, ({"b", "a"},), [("a",), ("b",)]),
    (Ops.EXPLODE, ({1, "a", None},), [(None,), (1,), ("a",)]),
    (Ops.EXPLODE, ({"a": 1},), [(["a", 1],)]),
    (Ops.EXPLODE_INDEXED, (["x", "y"],), [(0, "x"), (1, "y")]),
    (Ops.EXPLODE_MAP, ({"a": 1, "b": 2},), [("a", 1), ("b", 2)]),
    (Ops.EXPLODE_MAP, (None,), []),
    (Ops.RANGE, (2, 5), [(2,), (3,), (4,)]),
    (Ops.RANGE, (5, 2), []),
    (Ops.RANGE, (0, 5, 2), [(0,), (2,), (4,)]),
]


@pytest.mark.parametrize(("op", "args", "expected"), ONE, ids=lambda part: getattr(part, "name", None))
def test_operation_returns_one_value_when_called(op: Op, args: tuple[Any, ...], expected: Any) -> None:
    result = op(*args)

    assert (op.emits, result, type(result)) == ("one", expected, type(expected))


@pytest.mark.parametrize(("op", "args", "expected"), MANY, ids=lambda part: getattr(part, "name", None))
def test_operation_emits_rows_of_its_out_count_when_called(op: Op, args: tuple[Any, ...], expected: Any) -> None:
    rows = list(op(*args))

    assert rows == expected
    assert op.emits == "many" and all(len(row) == op.out_count for row in rows)


def test_expand_returns_a_list_to_bind() -> None:
    assert Ops.EXPAND(("a", 1)) == ["a", 1]
    assert Ops.EXPAND({2, 1}) == [1, 2]


def test_elements_of_a_set_have_one_order_when_they_have_none_of_their_own() -> None:
    """The hash of NaN, and so its place in a set, differs from process to process."""

    class InThisOrder(frozenset[Any]):
        def __init__(self, found: Any) -> None:
            self.found = list(found)

        def __iter__(self) -> Any:
            return iter(self.found)

    of_subsets = [frozenset({1}), frozenset({2}), frozenset({1, 2})]
    for values in ([math.nan, 2.0, 1.0, 3.0], of_subsets, [(math.nan,), (1.0,), (0.0,)]):
        orders = {repr(list(elements_of(InThisOrder(each)))) for each in itertools.permutations(values)}
        assert len(orders) == 1


@pytest.mark.parametrize("value", [{"user": "ann"}, "ann,/a", b"ann"])
@pytest.mark.parametrize("op", [Ops.EXPAND, Ops.FIRST, Ops.LAST, Ops.EXPLODE, Ops.EXPLODE_INDEXED])
def test_elements_of_records_and_texts_are_refused_when_nobody_means_them(op: Op, value: Any) -> None:
    if isinstance(value, dict) and op.emits == "many":
        assert op(value), "pairs of a dict are documented"
        return
    with pytest.raises(BadInput, match=f"Ops.{op.name} works on lists, not on a {type(value).__name__}."):
        op(value)


@pytest.mark.parametrize(
    ("value", "key", "text"),
    [
        ({"user": 1, "page": 2}, "usr", "there is no key 'usr'; there is 'user', 'page'. Did you mean 'user'?"),
        ({}, "user", "there is no key 'user'; there is no key."),
        ({1: 1}, 2, "there is no key 2; there is 1."),
        ([1, 2], 2, "there is no element 2 in a list of 2."),
        ([1, 2], "user", "there is no element 'user' in a list of 2."),
        (None, "user", "there is no element 'user' in a NoneType."),
        ("ann", 0, "there is no element 0 in a str."),
    ],
)
def test_must_get_says_what_there_is_when_a_key_is_missing(value: Any, key: Any, text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Ops.MUST_GET(value, key)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SUBTRACT", "Ops has no 'SUBTRACT'. Did you mean Ops.MINUS?"),
        ("Plus", "Did you mean Ops.PLUS?"),
        ("QQQ", "Ops has no 'QQQ'. It has AND, "),
    ],
)
def test_operation_that_was_meant_is_named_when_there_is_none_of_that_name(name: str, text: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(Ops, name)
    assert text in str(caught.value)
    assert not hasattr(Ops, "__wrapped__")


def test_println_writes_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert Ops.PRINTLN("a", 1) is None

    assert capsys.readouterr().out == "a 1\n"


@pytest.mark.parametrize("op", [op for op in ALL_OPS.values() if op.needs_context], ids=lambda op: op.name)
def test_operation_of_the_attempt_is_refused_when_called_outside_a_topology(op: Op) -> None:
    with pytest.raises(BadInput, match=op.name):
        op()


def test_every_operation_has_a_case() -> None:
    tested = {op.name for op, *_ in [*ONE, *MANY]} | {"EXPAND", "PRINTLN"}

    assert {name for name, op in ALL_OPS.items() if not op.needs_context} == tested


@pytest.mark.parametrize("op", ALL_OPS.values(), ids=ALL_OPS)
def test_operation_is_itself_when_pickled(op: Op) -> None:
    assert pickle.loads(pickle.dumps(op)) is op
    assert cloudpickle.loads(cloudpickle.dumps(op)) is op


def test_unknown_operation_is_refused() -> None:
    with pytest.raises(BadInput, match="no built-in operation 'PLUSS'"):
        op_named("PLUSS")


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
def test_only_none_and_false_are_false(value: Any) -> None:
    assert is_true(value) == (not (value is None or value is False)) == (not Ops.NOT(value))


@given(st.sets(st.one_of(st.integers(), st.text(), st.none(), st.booleans())))
def test_sets_are_exploded_in_one_order_when_built_in_any(values: set[Any]) -> None:
    backwards: set[Any] = set()
    for value in reversed(list(values)):
        backwards.add(value)

    assert list(Ops.EXPLODE(values)) == list(Ops.EXPLODE(backwards))
