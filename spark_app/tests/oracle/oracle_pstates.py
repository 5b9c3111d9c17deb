# ruff: noqa: E501 - a table of texts
"""The PStates of random programs: schemas, and what a program may do with them, as texts with holes.

A hole names a type: `<int>` is filled with an expression of that type, `<name>` and `<n>` with a constant.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """One kind of PState. `selects` are (path, type of its values), `transforms` paths, `aggs` calls on `$$p`."""

    schema: str
    selects: tuple[tuple[str, str], ...]
    transforms: tuple[str, ...]
    aggs: tuple[str, ...]
    options: str = ""
    is_global: bool = False


def _compound(*trees: str) -> tuple[str, ...]:
    return tuple(f'.compound_agg("$$p", {tree})' for tree in trees)


def _agg(*aggs: str) -> tuple[str, ...]:
    return tuple(f'.agg("$$p", {agg})' for agg in aggs)


_NUMBER_AGGS = (
    "Agg.count()", "Agg.sum(<int>)", "Agg.min(<int>)", "Agg.max(<int>)", "Agg.first(<int>)", "Agg.last(<int>)",
    "Agg.combiner(BitsOr, <small>)", "Agg.accumulator(Digest, <any>)", "Agg.accumulator(Longest, <any>)",
    "Agg.voided()",
)  # fmt: skip
_OBJECT_AGGS = (
    "Agg.list(<any>)", "Agg.and_(<any>)", "Agg.or_(<any>)", "Agg.first(<any>)", "Agg.last(<any>)", "Agg.set(<str>)",
    "Agg.multi_set(<str>)", "Agg.map(<str>, <any>)", "Agg.merge(<dict>)", "Agg.top_monotonic(2, <int>)",
    "Agg.top_monotonic(2, Expr(pair, <str>, <int>), id_function=Ops.FIRST, sort_val_function=Ops.LAST)",
)  # fmt: skip

_MAP_SELECTS = (
    ("Path.key(<str>)", "any"), ("Path.key(<str>).null_to_val(0)", "int"), ("Path.must(<str>)", "int"),
    ("Path.map_vals()", "int"), ("Path.map_keys()", "str"), ("Path.all()", "list"), ("Path.map_key(<str>)", "str"),
    ("Path.sorted_map_range(<name>, <name>)", "dict"), ("Path.view(Ops.SIZE)", "int"),
    ("Path.sorted_map_range(<name>, <name>, include_start=False, include_end=True).map_vals()", "int"),
    ("Path.sorted_map_range_from(<name>, max_amt=<n>).map_keys()", "str"),
    ("Path.sorted_map_range_to(<name>, max_amt=<n>).map_keys()", "str"),
    ("Path.sorted_map_range_from_start(<n>).map_vals()", "int"), ("Path.sorted_map_range_to_end(<n>)", "dict"),
    ("Path.sub_map(<name>, <name2>).map_vals()", "int"), ("Path.map_vals().filter_pred(Ops.IS_EVEN)", "int"),
    ("Path.subselect(Path.map_vals().filter_greater_than(<int>))", "list"),
    ("Path.if_path(Path.must(<str>), Path.map_keys(), Path.stay().map_vals().view(as_text))", "str"),
    ("Path.multi_path(Path.must(<name>), Path.map_vals().filter_not_equal(<int>))", "int"),
    ("Path.collect_one(Path.key(<str>)).map_vals()", "list"),
    ("Path.collect(Path.map_vals()).put_collected(<any>).map_keys()", "list"),
    ("Path.collect(Path.map_vals()).is_collected(has_two).map_keys()", "list"),
    ("Path.filter_selected(Path.must(<str>)).map_vals()", "int"),
    ("Path.filter_not_selected(Path.must(<str>)).map_keys()", "str"),
    ("Path.cond_path(Path.must(<str>), Path.map_keys(), Path.must(<name>), Path.key(<name>).view(as_text))", "str"),
    ("Path.key(<str>).continue_then_stay(Path.filter_pred(Ops.IS_NOT_NULL)).view(as_text)", "str"),
    ("Path.put_collected(<int>).with_fresh_collected(Path.put_collected(1).map_vals().filter_greater_than(<int>)).view(Ops.INC)", "list"),
    ("Path.with_page_size(1, Path.map_vals()).filter_less_than_or_equal(<int>)", "int"),
    ("Path.key(<str>).null_to_val(1).view(Ops.PLUS, <int>)", "int"),
    ("Path.subselect(Path.map_vals()).transformed(Path.all().term(Ops.INC)).all()", "int"),
    ("Path.map_vals().filter_less_than(<int>)", "int"), ("Path.map_vals().filter_greater_than_or_equal(<int>)", "int"),
    ("Path.put_collected(<int>).dispense_collected().map_keys()", "str"), ("Path.multi_path(Path.stop(), Path.map_vals())", "int"),
)  # fmt: skip
_MAP_TRANSFORMS = (
    "Path.key(<str>).term_val(<int>)", "Path.key(<str>).null_to_val(0).term(Ops.PLUS, <int>)",
    "Path.must(<str>).term(Ops.INC)", "Path.key(<str>).term_void()", "Path.map_vals().term(Ops.DEC)",
    "Path.map_vals().filter_pred(Ops.IS_EVEN).term_void()", "Path.map_key(<name>).term_val(<name2>)",
    "Path.sub_map(<name>, <name2>).term_val({<name>: <constant>})", "Path.map_key(<str>).term(next_name)",
    "Path.sorted_map_range(<name>, <name2>).term_val(None)", "Path.sorted_map_range_from(<name>).map_vals().term_void()",
    "Path.multi_path(Path.key(<name>).term_val(<int>), Path.must(<name2>).term_void())",
    "Path.if_path(Path.must(<str>), Path.key(<name>).term_val(<int>), Path.key(<name2>).term_void())",
    "Path.subselect(Path.map_vals().filter_greater_than(<int>)).term(Ops.TUPLE)",
    "Path.filter_not_selected(Path.must(<str>)).key(<str>).term_val(<int>)",
    "Path.collect_one(Path.key(<name>).null_to_val(2)).key(<str>).null_to_val(0).term(Ops.PLUS)",
    "Path.cond_path(Path.must(<str>), Path.key(<name>).null_to_val(1).term(Ops.INC), Path.must(<name>), Path.key(<name2>).term_val(<int>))",
    "Path.key(<str>).null_to_val(0).continue_then_stay(Path.filter_pred(Ops.IS_EVEN)).term(Ops.INC)",
    "Path.put_collected(5).with_fresh_collected(Path.put_collected(<int>).key(<str>).null_to_val(0)).term(Ops.PLUS)",
    "Path.map_keys().filter_equal(<str>).term_void()", "Path.sorted_map_range_to(<name>, max_amt=<n>).map_vals().term(Ops.INC)",
    "Path.sorted_map_range_from_start(<n>).map_vals().term(Ops.INC)", "Path.sorted_map_range_to_end(<n>).map_vals().term_void()",
    "Path.map_vals().filter_less_than(<int>).term(Ops.INC)", "Path.map_vals().filter_greater_than_or_equal(<int>).term(Ops.DEC)",
    "Path.map_vals().filter_less_than_or_equal(<int>).term_void()", "Path.map_vals().filter_not_equal(<int>).term(Ops.INC)",
    "Path.if_path(Path.must(<str>), Path.stop(), Path.key(<str>).term_val(<int>))",
    "Path.put_collected(<int>).dispense_collected().key(<str>).null_to_val(0).term(Ops.INC)",
)  # fmt: skip


def _below(prefix: str, selects: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((prefix + path.removeprefix("Path"), kind) for path, kind in selects)


def _below_all(prefix: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(prefix + path.removeprefix("Path") for path in paths)


NUMBERS = Template(
    "PState.map_schema(str, int)",
    _MAP_SELECTS,
    _MAP_TRANSFORMS,
    _compound(*(f"CompoundAgg.map(<str>, {agg})" for agg in _NUMBER_AGGS),
              "CompoundAgg.map(<str>, Agg.count(), <name>, Agg.sum(<int>))")
    + _agg("Agg.map(<str>, <int>)", "Agg.multi_set(<str>)"),
)  # fmt: skip
NESTED = Template(
    "PState.map_schema(str, PState.map_schema(str, int).subindexed())",
    _below("Path.key(<str>)", _MAP_SELECTS)
    + (("Path.map_vals().map_vals()", "int"), ("Path.all().nth(0)", "str"), ("Path.map_vals().view(Ops.SIZE)", "int"),
       ("Path.map_keys()", "str"), ("Path.must(<str>).map_keys()", "str"), ("Path.view(Ops.SIZE)", "int")),
    _below_all("Path.key(<str>)", _MAP_TRANSFORMS)
    + ("Path.key(<str>).term_void()", "Path.must(<str>, <name>).term(Ops.INC)", "Path.map_vals().map_vals().term_void()",
       "Path.key(<str>).term_val({<name>: <constant>})"),
    _compound(*(f"CompoundAgg.map(<str>, CompoundAgg.map(<str>, {agg}))" for agg in _NUMBER_AGGS),
              "CompoundAgg.map(<str>, Agg.multi_set(<str>))", "CompoundAgg.map(<str>, Agg.map(<str>, <int>))",
              "CompoundAgg.map(<str>, Agg.voided())"),
)  # fmt: skip
OBJECTS = Template(
    "PState.map_schema(object, object)",
    (("Path.key(<looked>)", "any"), ("Path.map_vals()", "any"), ("Path.map_keys()", "any"), ("Path.all()", "list"),
     ("Path.key(<small>).null_to_list()", "any"), ("Path.must(<looked>).view(as_text)", "str"), ("Path.view(Ops.SIZE)", "int"),
     ("Path.key(<str>).filter_equal(<str>)", "any"), ("Path.sorted_map_range_from(<small>).map_keys()", "any")),
    ("Path.key(<key>).term_val(<any>)", "Path.key(<key>).view(as_text).term(joined, <any>)",
     "Path.must(<key>).term_void()", "Path.map_vals().view(as_text).term(next_name)"),
    _compound(*(f"CompoundAgg.map(<str>, {agg})" for agg in _OBJECT_AGGS[:2]), "CompoundAgg.map(<key>, Agg.last(<any>))",
              *(f"CompoundAgg.map('{i}', {agg})" for i, agg in enumerate(_OBJECT_AGGS))),
)  # fmt: skip
LOGS = Template(
    "PState.map_schema(str, list)",
    (("Path.key(<str>)", "any"), ("Path.key(<str>).null_to_list().all()", "any"), ("Path.must(<str>)", "list"),
     ("Path.map_vals().last()", "any"), ("Path.map_vals().first()", "any"), ("Path.key(<str>).sublist(1, <n>)", "list"),
     ("Path.key(<str>).sublist_to_end(<n>).all()", "any"), ("Path.map_vals().all().view(as_text)", "str"),
     ("Path.must(<str>).filter_selected(Path.all()).nth(0)", "any"), ("Path.key(<str>).indexed_vals()", "list"),
     ("Path.key(<str>).index(<n>)", "int"), ("Path.key(<str>).filtered_list(Path.filter_pred(Ops.IS_NOT_NULL))", "list"),
     ("Path.map_vals().continuous_subseqs(is_odd_one)", "list"), ("Path.key(<str>).sublist_dynamic(one, middle)", "list"),
     ("Path.key(<str>).beginning()", "list"), ("Path.key(<str>).end()", "list"),
     ("Path.key(<str>).custom_nav(Alternate(2))", "any"), ("Path.map_vals().custom_nav_builder(Alternate, <small>).view(as_text)", "str"),
     ("Path.must(<str>).put_collected(<int>).custom_nav(Alternate()).filter_pred(is_odd_one)", "list"),
     ("Path.must(<str>).filter_selected(Path.custom_nav(Alternate(2)).filter_pred(Ops.IS_NULL)).view(Ops.SIZE)", "int")),
    ("Path.key(<str>).before_elem().term_val(<any>)", "Path.key(<str>).after_elem().term_val(<any>)",
     "Path.key(<str>).null_to_list().filter_selected(Path.first()).before_index(1).term_val(<any>)",
     "Path.must(<str>).beginning().term_val([<constant>])", "Path.must(<str>).end().term_val([<constant>, 'x'])",
     "Path.must(<str>).sublist_dynamic(one, middle).term_void()", "Path.must(<str>).filtered_list(Path.filter_pred(is_odd_one)).term(turned)",
     "Path.must(<str>).continuous_subseqs(is_odd_one).term(turned)", "Path.must(<str>).indexed_vals().nth(1).term(as_text)",
     "Path.must(<str>).custom_nav(Alternate()).term(as_text)", "Path.key(<str>).custom_nav(Alternate(2)).filter_pred(is_odd_one).term_void()",
     "Path.must(<str>).custom_nav_builder(Alternate, <small>).term_val(<any>)", "Path.must(<str>).filtered_list(Path.filter_pred(Ops.IS_NOT_NULL)).custom_nav(Alternate()).term(as_text)",
     "Path.must(<str>).index(0).term_val(0)", "Path.must(<str>).filtered_list(Path.filter_pred(Ops.IS_NULL)).term_void()",
     "Path.must(<str>).indexed_vals().term(turned_index)", "Path.key(<str>).term(appended, <any>)", "Path.key(<str>).null_to_list().term(appended, <text>)",
     "Path.must(<str>).first().term_void()", "Path.must(<str>).last().term_val(<any>)",
     "Path.must(<str>).sublist(0, <n>).term_val([<constant>, None])", "Path.must(<str>).sublist_to_end(1).term_void()",
     "Path.map_vals().all().term(as_text)", "Path.must(<str>).subselect(Path.all()).sublist_to_end(1).term_void()",
     "Path.key(<str>).term_void()"),
    _compound("CompoundAgg.map(<str>, Agg.list(<any>))", "CompoundAgg.map(<str>, Agg.top_monotonic(2, <int>))",
              "CompoundAgg.map(<str>, CompoundAgg.list(Agg.count(), Agg.sum(<int>), Agg.last(<any>)))"),
)  # fmt: skip
LISTS = Template(
    "PState.map_schema(str, PState.list_schema(int).subindexed())",
    (("Path.key(<str>).all()", "int"), ("Path.key(<str>).first()", "int"), ("Path.key(<str>).last()", "int"),
     ("Path.key(<str>).view(Ops.SIZE)", "int"), ("Path.key(<str>).view(Ops.CONTAINS, <int>)", "bool"),
     ("Path.key(<str>).sublist(1, <n>)", "list"), ("Path.map_keys()", "str"),
     ("Path.key(<str>).sublist_to_end(<n>).all()", "int"), ("Path.must(<str>).nth(0)", "int"),
     ("Path.key(<str>).indexed_vals()", "list"), ("Path.key(<str>).index(<n>)", "int"),
     ("Path.key(<str>).filtered_list(Path.filter_greater_than(<int>))", "list"),
     ("Path.key(<str>).continuous_subseqs(Ops.IS_EVEN)", "list"), ("Path.key(<str>).sublist_dynamic(one, middle).all()", "int")),
    ("Path.key(<str>).before_elem().term_val(<int>)", "Path.key(<str>).after_elem().term_val(<int>)",
     "Path.must(<str>).before_index(1).term_val(<int>)", "Path.must(<str>).beginning().term_val([<constant>])",
     "Path.key(<str>).end().term_val([<constant>, 5])", "Path.key(<str>).sublist_dynamic(one, middle).term_void()",
     "Path.key(<str>).filtered_list(Path.filter_pred(Ops.IS_EVEN)).term(turned)", "Path.key(<str>).index(0).term_void()",
     "Path.key(<str>).continuous_subseqs(Ops.IS_EVEN).term(turned)", "Path.key(<str>).indexed_vals().nth(1).term(Ops.INC)",
     "Path.must(<str>).indexed_vals().term(turned_index)",
     "Path.key(<str>).all().term(Ops.INC)", "Path.key(<str>).sublist(1, <n>).term_val([<constant>])",
     "Path.key(<str>).first().term_void()", "Path.key(<str>).last().term_val(<int>)", "Path.key(<str>).term_void()",
     "Path.key(<str>).sublist_to_end(<n>).term_void()", "Path.key(<str>).all().filter_pred(Ops.IS_EVEN).term_void()"),
    _compound("CompoundAgg.map(<str>, Agg.list(<int>))", "CompoundAgg.map(<str>, CompoundAgg.list(Agg.sum(<int>)))"),
)  # fmt: skip
SETS = Template(
    "PState.map_schema(str, PState.set_schema(str).subindexed())",
    (("Path.key(<str>).all()", "str"), ("Path.key(<str>).set_elem(<str>)", "str"), ("Path.map_keys()", "str"),
     ("Path.key(<str>).view(Ops.SIZE)", "int"), ("Path.key(<str>).view(Ops.CONTAINS, <str>)", "bool"),
     ("Path.key(<str>).sorted_set_range(<name>, <name2>).all()", "str"),
     ("Path.key(<str>).sorted_set_range_from(<name>, max_amt=<n>)", "any"),
     ("Path.key(<str>).sorted_set_range_from_start(<n>).all()", "str"), ("Path.key(<str>).sorted_set_range_to(<name>, max_amt=<n>).all()", "str"),
     ("Path.key(<str>).sorted_set_range_to_end(<n>)", "any"), ("Path.key(<str>).subset(<str>, <name>)", "any")),
    ("Path.key(<str>).void_set_elem().term_val(<str>)", "Path.key(<str>).set_elem(<str>).term_void()",
     "Path.key(<str>).set_elem(<name>).term_val(<str>)", "Path.key(<str>).all().term(next_name)",
     "Path.key(<str>).sorted_set_range_from(<name>).term_val(None)", "Path.key(<str>).term_void()",
     "Path.key(<str>).sorted_set_range(<name>, <name2>).term_val(None)", "Path.key(<str>).sorted_set_range_to(<name>).all().term_void()",
     "Path.key(<str>).sorted_set_range_from_start(<n>).all().term_void()", "Path.key(<str>).sorted_set_range_to_end(<n>).term_val(None)",
     "Path.key(<str>).subset(<name>, <str>).term_val({<name2>})",
     "Path.map_vals().all().filter_equal(<name>).term_void()"),
    _compound("CompoundAgg.map(<str>, Agg.set(<str>))", "CompoundAgg.map(<str>, Agg.set_remove(<str>))"),
)  # fmt: skip
RECORDS = Template(
    "PState.map_schema(str, PState.fixed_keys_schema('n', int, 'l', PState.list_schema(object), "
    "'m', PState.map_schema(str, int).subindexed(), 's', PState.set_schema(int)))",
    (("Path.key(<str>, 'n')", "any"), ("Path.key(<str>, 'l').all()", "any"), ("Path.must(<str>).key('n')", "any"),
     ("Path.key(<str>, 's').all()", "int"), ("Path.key(<str>, 's').null_to_set().view(Ops.SIZE)", "int"), ("Path.map_vals().key('n').null_to_val(7)", "int"),
     *_below("Path.key(<str>, 'm')", _MAP_SELECTS[:12])),
    ("Path.key(<str>, 'n').null_to_val(0).term(Ops.PLUS, <int>)", "Path.key(<str>, 'l').term(appended, <any>)",
     "Path.key(<str>, 's').void_set_elem().term_val(<int>)", "Path.key(<str>, 'n').term_void()",
     "Path.key(<str>).term_void()", "Path.must(<str>).key('n').term_val(<int>)",
     *_below_all("Path.key(<str>, 'm')", _MAP_TRANSFORMS)),
    _compound("CompoundAgg.map(<str>, CompoundAgg.map('n', Agg.sum(<int>), 'l', Agg.list(<any>)))",
              "CompoundAgg.map(<str>, CompoundAgg.map('m', CompoundAgg.map(<str>, Agg.max(<int>)), 's', Agg.set(<int>)))",
              "CompoundAgg.map(<str>, CompoundAgg.map('s', Agg.set_remove(<int>), 'n', Agg.voided()))"),
)  # fmt: skip
FIELDS = Template(
    "PState.fixed_keys_schema('n', int, 'l', list, 'm', PState.map_schema(str, PState.list_schema(int).subindexed()).subindexed())",
    (("Path.key('n')", "any"), ("Path.key('l').null_to_list().all()", "any"), ("Path.key('m', <str>).all()", "int"),
     ("Path.key('m').map_keys()", "str"), ("Path.must('n')", "int"), ("Path.key('m').view(Ops.SIZE)", "int")),
    ("Path.key('n').null_to_val(0).term(Ops.PLUS, <int>)", "Path.key('l').term(appended, <any>)",
     "Path.key('n').term_void()", "Path.key('m', <str>).term_void()", "Path.key('m', <str>).all().term(Ops.INC)"),
    _compound("CompoundAgg.map('n', Agg.count(), 'l', Agg.list(<any>))",
              "CompoundAgg.map('m', CompoundAgg.map(<str>, Agg.list(<int>)))"),
)  # fmt: skip
NULLABLE = Template(
    "PState.map_schema(PState.nullable(str), PState.map_schema(str, int))",
    (("Path.key(None).map_vals()", "int"), ("Path.map_vals().map_vals()", "int"), ("Path.map_vals().view(Ops.SIZE)", "int"),
     ("Path.must(<str>)", "dict"), ("Path.map_keys().view(as_text)", "str"), *_below("Path.key(<str>)", _MAP_SELECTS)),
    ("Path.key(None).key(<str>).term_val(<int>)", "Path.key(None).term_void()",
     *_below_all("Path.key(<str>)", _MAP_TRANSFORMS)),
    _compound("CompoundAgg.map(<str>, CompoundAgg.map(<str>, Agg.sum(<int>)))",
              "CompoundAgg.map(None, CompoundAgg.map(<str>, Agg.count()))", "CompoundAgg.map(<str>, Agg.multi_set(<str>))",
              "CompoundAgg.map(<str>, Agg.merge({<name>: <constant>}))"),
)  # fmt: skip
_SUM = (
    "Agg.count()", "Agg.sum(<int>)", "Agg.max(<int>)", "Agg.min(<int>)", "Agg.combiner(BitsOr, <small>)", "Agg.last(<int>)",
    "Agg.accumulator(Digest, <any>)",
)  # fmt: skip
TOTAL = Template(
    "int", (("Path.stay()", "int"), ("Path.filter_greater_than(<int>)", "int")),
    ("Path.term_val(<int>)", "Path.term(Ops.PLUS, <int>)"), _agg(*_SUM), ".global_().initial_value(0)", True,
)  # fmt: skip
EACH_TOTAL = Template("int", TOTAL.selects, TOTAL.transforms, TOTAL.aggs, ".initial_value(3)")
VALUE = Template(
    "object",
    (("Path.stay()", "any"), ("Path.null_to_list().view(as_text)", "str"), ("Path.view(Ops.IS_NULL)", "bool")),
    ("Path.term_val(<any>)", "Path.view(as_text).term(next_name)"),
    _agg("Agg.last(<any>)", "Agg.and_(<any>)"),
)
ALIKE = Template(
    "PState.map_schema(object, PState.map_schema(object, PState.set_schema(PState.nullable(object)).subindexed()).subindexed())",
    (("Path.key(<alike>).view(Ops.SIZE)", "int"), ("Path.key(<alike>, <alike>).view(Ops.SIZE)", "int"),
     ("Path.key(<alike>, <alike>).set_elem(<alike>)", "any"), ("Path.key(<alike>).map_keys()", "any"),
     ("Path.must(<alike>).must(<alike>).all()", "any"), ("Path.map_vals().view(Ops.SIZE)", "int"),
     ("Path.map_vals().map_vals().view(Ops.SIZE)", "int"), ("Path.map_keys()", "any"), ("Path.view(Ops.SIZE)", "int"),
     ("Path.key(<alike>).sorted_map_range_from(<alike>).map_keys()", "any"),
     ("Path.key(<alike>).sub_map(1, True).map_vals().all()", "any"),
     ("Path.key(<alike>, <alike>).sorted_set_range_from(<alike>).all()", "any")),
    ("Path.key(<alike>, <alike>).void_set_elem().term_val(<alike>)", "Path.key(<alike>, <alike>).set_elem(<alike>).term_void()",
     "Path.key(<alike>).key(<alike>).term_void()", "Path.key(<alike>).term_void()", "Path.map_vals().key(<alike>).term_void()",
     "Path.map_vals().map_vals().set_elem(<alike>).term_void()", "Path.key(<alike>, <alike>).term_val({<constant>, 1.5})",
     "Path.map_vals().map_vals().void_set_elem().term_val(<alike>)"),
    _compound("CompoundAgg.map(<alike>, CompoundAgg.map(<alike>, Agg.set(<alike>)))",
              "CompoundAgg.map(<alike>, CompoundAgg.map(<alike>, Agg.set_remove(<alike>)))",
              "CompoundAgg.map(<alike>, CompoundAgg.map(<alike>, Agg.voided()))"),
)  # fmt: skip
FLOATS = Template(
    "PState.map_schema(float, PState.map_schema(PState.nullable(float), int).subindexed())",
    (("Path.key(<float>, <float>)", "any"), ("Path.key(<float>).view(Ops.SIZE)", "int"), ("Path.must(<float>).map_vals()", "int"),
     ("Path.map_vals().map_vals()", "int"), ("Path.view(Ops.SIZE)", "int"), ("Path.map_vals().view(Ops.SIZE)", "int"),
     ("Path.key(<float>).sorted_map_range_from(<float>).map_vals()", "int"), ("Path.key(<float>, None)", "any"),
     ("Path.key(<float>).sub_map(0, Constant(nan)).map_vals()", "int"), ("Path.key(<float>).must(<float>)", "int")),
    ("Path.key(<float>, <float>).term_val(<int>)", "Path.key(<float>, <float>).null_to_val(0).term(Ops.PLUS, <int>)",
     "Path.key(<float>, None).term_val(<int>)", "Path.key(<float>, <float>).term_void()", "Path.key(<float>).term_void()",
     "Path.map_vals().map_vals().term(Ops.INC)", "Path.map_vals().key(<float>).term_void()",
     "Path.map_vals().key(<float>).term_val(<int>)", "Path.key(<float>).map_key(<float>).term_val(<float>)"),
    _compound(*(f"CompoundAgg.map(<float>, CompoundAgg.map(<float>, {agg}))" for agg in _NUMBER_AGGS),
              "CompoundAgg.map(<float>, Agg.multi_set(<float>))", "CompoundAgg.map(<float>, Agg.map(<float>, <int>))"),
)  # fmt: skip
TEMPLATES = (
    NUMBERS, NESTED, OBJECTS, LOGS, LISTS, SETS, RECORDS, FIELDS, NULLABLE, TOTAL, EACH_TOTAL, VALUE,
    ALIKE, FLOATS,
)  # fmt: skip
