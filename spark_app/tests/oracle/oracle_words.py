# ruff: noqa: E501 - tables of texts
"""The words of random programs, as texts with holes: expressions by their type, steps, partitioners, aggregators; and odd
values of their records.
"""

from __future__ import annotations

import math

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "str": ('"a"', "Expr(name_of, <any>)", '"b"', "Expr(name_of, <int>)", "Expr(Ops.TO_STRING, <str>)"),
    "int": ("1", "0", "Expr(Ops.PLUS, <int>, <int>)", "Expr(small, <any>)", "-2", "Expr(Ops.MOD, <int>, 3)", "Expr(Ops.FLOOR_DIV, <int>, -2)",
            "Expr(Ops.SIZE, <list>)", "Expr(Ops.MINUS, <int>, <int>)", "Expr(Ops.CURRENT_TASK_ID)",
            "Expr(Ops.CURRENT_MICROBATCH_ID)", "Expr(Ops.MAX, <int>, <int>)", "Expr(Ops.MIN, <int>, <small>)",
            "Expr(Ops.TIMES, <small>, <small>)", "Expr(Ops.TIMES_LONG, <small>, 2)", "Expr(Ops.MINUS_LONG, <int>, <small>)",
            "Expr(Ops.PLUS_LONG, <int>, <small>)", "Expr(Ops.INC_LONG, <int>)", "Expr(Ops.DEC_LONG, <int>)"),
    "small": ("1", "Expr(small, <any>)"),
    "any": ("None", "1", "True", "1.5", 'Constant("*")', "Constant(nan)", "Expr(half, <int>)", "Expr(Ops.TUPLE, <any>)",
            "Expr(pair, <any>, <int>)", "Expr(record, <str>, <any>)", "Expr(text_of, <any>)", "2.0", "Constant([])"),
    "key": ('"a"', "1", "True", "2.0", "Expr(half, <int>)", "Expr(small, <any>)", "Expr(text_of, <any>)", "Constant(nan)",
            "Expr(pair, <int>, <str>)", "Expr(Ops.IS_NULL, <any>)", "0"),
    "bool": ("Expr(Ops.EQUAL, <int>, <int>)", "Expr(Ops.LESS_THAN, <int>, <int>)", "Expr(Ops.IS_NULL, <any>)",
             "Expr(Ops.NOT, <any>)", "Expr(Ops.AND, <any>, <any>)", "Expr(Ops.OR, <any>, <any>)", "Expr(Ops.IS_EVEN, <int>)",
             "Expr(Ops.EQUAL, <str>, <str>)", "Expr(Ops.NOT_EQUAL, <int>, <int>)", "Expr(Ops.CONTAINS, <list>, <str>)",
             "Expr(Ops.EQUAL, <any>, <any>)", "Expr(Ops.CONTAINS, <list>, <any>)", "Expr(Ops.IS_ODD, <int>)",
             "Expr(Ops.GREATER_THAN, <int>, <int>)", "Expr(Ops.GREATER_THAN_OR_EQUAL, <int>, <int>)",
             "Expr(Ops.LESS_THAN_OR_EQUAL, <int>, <int>)", "Expr(Ops.IS_INSTANCE_OF, int, <any>)"),
    "list": ("Constant([])", "Expr(Ops.TUPLE, <any>, <any>)", "Expr(pair, <int>, <str>)", "Expr(Ops.TUPLE, <str>)"),
    "dict": ("Expr(record, <str>, <any>)", "Expr(record, <str>, <int>)"),
    "big": ("Expr(big, <any>)", "Expr(Ops.PLUS, <big>, <int>)"),
    "alike": ("1", "Constant(nan)", "True", "2.0", "1.0", "-0.0", "0", "False", "Expr(half, <int>)", "Expr(small, <any>)",
              "Expr(Ops.IS_NULL, <any>)", '"a"', "Expr(pair, <int>, <small>)"),
    "float": ("1", "Constant(nan)", "1.0", "-0.0", "0", "Expr(half, <int>)", "Expr(small, <any>)", "Expr(half, <int>)", "<int>"),
    "looked": ("Expr(Ops.IDENTITY, <any>)", '"a"', "1", "True"),
    "text": ("Expr(text_of, <any>)",),
}  # fmt: skip
EACH: tuple[tuple[str, tuple[str, ...]], ...] = (
    (".each(Ops.IDENTITY, <any>)", ("any",)), (".each(Ops.PLUS, <int>, <int>)", ("int",)),
    (".each(text_of, <any>)", ("any",)), (".each(name_of, <any>)", ("str",)), (".each(pair, <any>, <any>)", ("list",)),
    (".each(up_to, <int>)", ("int",)), (".each(twice, <any>)", ("any", "int")), (".each(doubled, Expr(small, <any>))", ("int",)),
    (".each(Ops.EXPLODE, <list>)", ("any",)), (".each(Ops.EXPLODE_INDEXED, <list>)", ("int", "any")),
    (".each(Ops.RANGE, 0, Expr(small, <any>))", ("int",)), (".each(Ops.EXPAND, Expr(pair, <int>, <any>))", ("int", "any")),
    (".each(Ops.AND, <any>, <any>)", ("bool",)), (".each(Ops.EQUAL, <int>, <int>)", ("bool",)), (".each(half, <int>)", ("any",)),
    (".each(big, <any>)", ("big",)), (".each(text_of, <big>)", ("any",)), (".each(Ops.TO_STRING, <str>, <int>)", ("any",)), (".each(Ops.FIRST, <list>)", ("any",)),
    (".each(record, <str>, <any>)", ("dict",)), (".each(Ops.GET, <dict>, <str>)", ("any",)), (".each(small, <any>)", ()),
    (".each(Ops.CURRENT_TASK_ID)", ("int",)), (".each(Ops.EXPLODE_MAP, <dict>)", ("any", "any")),
    (".select(<dict>, Path.multi_path(Path.key(<str>), Path.map_vals().filter_not_equal(<any>)))", ("any",)),
    (".local_select(<list>, Path.all())", ("any",)),
    (".each(Ops.DIV, <int>, 2)", ("any",)), (".each(Ops.CURRENT_TOPOLOGY_TYPE)", ("any",)),
    (".each(sorted_out, <any>)", ("any",)), (".each_async(waited, <any>)", ("any",)), (".each_async(waited, <int>, concurrency=2)", ("int",)),
)  # fmt: skip
MOVES = (
    ".hash_partition(<str>)", ".hash_partition(<any>)", ".global_partition()", ".all_partition()", ".shuffle_partition()",
    ".direct_partition(0)", ".direct_partition(Expr(Ops.MOD, Expr(small, <any>), 1))", ".custom_partition(task_of, <any>)", ".hash_partition(<int>)",
)  # fmt: skip
CONSTANTS = ("1", "'a'", "0", "''", "[]", "1.5")
CLASSES = ("int", "str", "bool", "float", "list", "dict", "None", "bytes")
INTO_VARIABLES = (
    ("Agg.count()", "int"), ("Agg.sum(<int>)", "int"), ("Agg.min(<int>)", "any"), ("Agg.max(<int>)", "any"),
    ("Agg.list(<any>)", "list"), ("Agg.set(<str>)", "any"), ("Agg.multi_set(<str>)", "any"), ("Agg.first(<any>)", "any"),
    ("Agg.last(<any>)", "any"), ("Agg.and_(<any>)", "any"), ("Agg.or_(<any>)", "any"), ("Agg.avg(<int>)", "any"),
    ("Agg.median(<int>)", "any"), ("Agg.map(<str>, <any>)", "any"), ("Agg.merge(<dict>)", "any"),
    ("Agg.top_monotonic(2, <int>)", "list"), ("Agg.combiner(BitsOr, <small>)", "int"), ("Agg.sum(<big>)", "big"),
    ("Agg.accumulator(Digest, <any>)", "int"), ("Agg.accumulator(Longest, <any>)", "int"), ("Agg.sum(Expr(half, <int>))", "any"),
    ("Agg.top_monotonic(2, Expr(pair, <str>, <int>), id_function=Ops.FIRST, sort_val_function=Ops.LAST)", "list"),
    ("Agg.max(Expr(half, <int>))", "any"), ("CompoundAgg.map(<str>, CompoundAgg.map(<str>, Agg.sum(<int>)))", "any"),
    ("CompoundAgg.map(<any>, CompoundAgg.list(Agg.count(), Agg.last(<any>)), 'é', Agg.voided())", "any"),
)  # fmt: skip
ODD = (
    None, 0, 1, True, False, 1.0, 0.5, -0.0, "", "t", "é😀", "*", [], [1, None], {}, {"a": [1, {"b": None}]}, [[]],
    math.nan, math.inf, 2**63 - 1, -(2**63), b"\x00\xff", [True, 1.0], {"a": math.nan},
)  # fmt: skip
ALIKE = (None, math.nan, True, 1, 1.0, 0, -0.0, False)
"""Keys that some libraries take for equal and others do not; a column of one of them alone is a case of its own."""
