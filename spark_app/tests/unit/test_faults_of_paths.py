"""Each path or aggregator that does not fit its PState is reported at its line."""

from __future__ import annotations

from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, faults_of

from tidemill import (
    AccumulatorAgg,
    Agg,
    BadPath,
    CombinerAgg,
    CompoundAgg,
    Constant,
    Depot,
    Ops,
    Path,
    PState,
    SortedRangeFromOptions,
    vectorized,
)
from tidemill.api.path import path_of

cases = Cases()
expect = cases.expect


def records(setup: Any, topologies: Any) -> Any:
    """A chain with `*k` and `*v`, and PStates of many schemas."""
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$counts", PState.map_schema(str, int))
    mb.pstate("$$names", PState.map_schema(str, str))
    mb.pstate("$$sets", PState.map_schema(str, PState.set_schema(int).subindexed()))
    mb.pstate("$$people", PState.map_schema(str, PState.fixed_keys_schema("name", str, "age", int)))
    mb.pstate("$$lists", PState.map_schema(str, PState.list_schema(int)))
    mb.pstate("$$pairs", PState.map_schema(str, PState.list_schema(int).subindexed()))
    mb.pstate("$$any", object).global_()
    topologies.microbatch("other").pstate("$$others", PState.map_schema(str, int))
    return mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")


# --- paths -----------------------------------------------------------------------------------------------------------


@expect("There is no PState '$$cuonts'.")
def unknown_pstate(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$cuonts", Path.key("*k")).out("*c")  # <- fault


@expect("'$$others' belongs to topology 'other', so 'mb' cannot write it.")
def transform_of_another_topology(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_transform("$$others", Path.key("*k").term_val(1))  # <- fault


@expect("'$$others' belongs to topology 'other', so 'mb' cannot write it.")
def clear_of_another_topology(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_clear("$$others")  # <- fault


@expect("'$$others' belongs to topology 'other', so 'mb' cannot write it.")
def aggregation_of_another_topology(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$others", CompoundAgg.map("*k", Agg.count()))  # <- fault


@expect("A select emits one value a row, which cannot be bound to 2 variables.")
def select_into_two_variables(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.all()).out("*a", "*b")  # <- fault


@expect("term_val changes a value, so it cannot be in a select.")
def terminal_in_a_select(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.key("*k").term_val(1)).out("*c")  # <- fault


@expect("term_void changes a value, so it cannot be in a select.")
def terminal_in_a_filter(setup: Any, topologies: Any) -> None:
    path = Path.map_vals().filter_selected(Path.term_void())
    records(setup, topologies).local_select("$$counts", path).out("*c")  # <- fault


@expect("The path of a transform of '$$counts' does not end in a terminal.")
def transform_without_terminal(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_transform("$$counts", Path.key("*k"))  # <- fault


@expect("The path of a transform of '$$counts' does not end in a terminal.")
def transform_with_one_open_branch(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").if_path(Path.filter_equal(0), Path.term_void(), Path.stay())
    records(setup, topologies).local_transform("$$counts", path)  # <- fault


@expect("term_val stands in the middle of a path.")
def terminal_in_the_middle(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").term_val(1).term_void()
    records(setup, topologies).local_transform("$$counts", path)  # <- fault


@expect("term_void at the top of '$$any' has nothing to remove the value from.")
def void_at_the_top(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().local_transform("$$any", Path.term_void())  # <- fault


@expect("'$$counts' holds int here; 'many' does not fit.")
def value_of_another_type(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_transform("$$counts", Path.key("*k").term_val("many"))  # <- fault


@expect("The keys of '$$counts' are str here; 7 is none.")
def key_of_another_type(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.key(7)).out("*c")  # <- fault


@expect("key meets an int in '$$counts', but needs a map.")
def key_into_a_number(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.key("*k", "x")).out("*c")  # <- fault


@expect("'$$people' has no key 'nmae' here.")
def key_that_a_record_does_not_have(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$people", Path.key("*k", "nmae")).out("*c")  # <- fault


@expect("map_vals meets a set in '$$sets', but needs a map.")
def map_navigator_on_a_set(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$sets", Path.key("*k").map_vals()).out("*c")  # <- fault


@expect("set_elem meets a map in '$$counts', but needs a set.")
def set_navigator_on_a_map(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.set_elem("*k")).out("*c")  # <- fault


@expect("first meets an int in '$$counts', but needs a list.")
def list_navigator_on_a_number(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.key("*k").first()).out("*c")  # <- fault


@expect("sublist_to_end meets an int in '$$counts', but needs a list.")
def list_part_of_a_number(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.key("*k").sublist_to_end(2)).out("*c")  # <- fault


@expect("before_index meets an int in '$$counts', but needs a list.")
def place_in_a_number(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").before_index("*v").term_val(1)
    records(setup, topologies).local_transform("$$counts", path)  # <- fault


@expect("cond_path takes pairs of a condition and a path, not 3 paths.")
def condition_without_a_path(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").cond_path(Path.stop(), Path.stay(), Path.stay())  # <- fault
    records(setup, topologies).local_select("$$counts", path).out("*c")


@expect("all meets a str in '$$names'.")
def navigator_behind_branches_that_all_lead_to_texts(setup: Any, topologies: Any) -> None:
    path = Path.if_path(Path.must("*k"), Path.key("*k")).with_page_size(5, Path.stay())
    path = path.with_fresh_collected(Path.multi_path(Path.stay(), Path.stop())).all()
    records(setup, topologies).local_select("$$names", path).out("*c")  # <- fault


@expect("'$$counts' holds int here; 'x' does not fit.")
def text_behind_branches_that_all_lead_to_numbers(setup: Any, topologies: Any) -> None:
    path = Path.cond_path(Path.must("*k"), Path.key("*k"), Path.stay(), Path.map_vals())
    records(setup, topologies).local_transform("$$counts", path.term_val("x"))  # <- fault


@expect("map_keys meets a list in '$$counts', but needs a map.")
def keys_of_a_list_of_what_was_selected(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.subselect(Path.all()).map_keys()).out("*c")  # <- fault


@expect("map_vals meets a list in '$$counts', but needs a map.")
def values_of_an_entry(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.all().map_vals()).out("*c")  # <- fault


@expect("term_val changes a value, so it cannot be in a select.")
def terminal_in_a_path_that_stays(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").continue_then_stay(Path.term_val(1)).term_val(2)
    records(setup, topologies).local_transform("$$counts", path)  # <- fault


@expect("The path of a transform of '$$counts' does not end in a terminal.")
def path_that_stays_at_its_end(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").continue_then_stay(Path.stop())
    records(setup, topologies).local_transform("$$counts", path)  # <- fault


@expect("The keys of '$$counts' are str here; 3 is none.")
def range_from_another_type(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.sorted_map_range(3, None)).out("*c")  # <- fault


@expect("The elements of '$$sets' are int here; 'a' is none.")
def range_of_a_set_to_another_type(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$sets", Path.key("*k").sorted_set_range_to("a")).out("*c")  # <- fault


@expect("sorted_map_range_from_start in '$$counts' needs a whole number from 0 on.")
def range_of_fewer_than_none(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.sorted_map_range_from_start(-1)).out("*c")  # <- fault


@expect("The option include_end of sorted_map_range is True or False, not '*v'.")
def end_that_a_variable_includes(setup: Any, topologies: Any) -> None:
    path = Path.sorted_map_range("a", "c", include_end="*v")  # type: ignore[arg-type]  # no truth value, on purpose  # <- fault
    records(setup, topologies).local_select("$$counts", path).out("*c")


@expect("sorted_set_range takes options behind its ends, not 2.")
def range_with_a_number_in_place_of_options(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").sorted_set_range(1, 5, 2)  # <- fault
    records(setup, topologies).local_select("$$sets", path).out("*s")


@expect("sorted_map_range_to has no option include_start.")
def range_with_the_options_of_another(setup: Any, topologies: Any) -> None:
    path = Path.sorted_map_range_to("c", SortedRangeFromOptions.exclude_start())  # <- fault
    records(setup, topologies).local_select("$$counts", path).out("*c")


@expect("sorted_map_range_from is told twice how many elements it has at most: 1 and 2.")
def range_with_two_amounts(setup: Any, topologies: Any) -> None:
    path = Path.sorted_map_range_from("a", 1, max_amt=2)  # <- fault
    records(setup, topologies).local_select("$$counts", path).out("*c")


@expect("sorted_map_range_from in '$$counts' needs a whole number from 0 on.")
def range_of_a_text_of_elements(setup: Any, topologies: Any) -> None:
    path = Path.sorted_map_range_from("a", max_amt="2")
    records(setup, topologies).local_select("$$counts", path).out("*c")  # <- fault


@expect("filtered_list meets a set in '$$sets', but needs a list.")
def filtered_list_of_a_set(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").filtered_list(Path.filter_equal("a"))
    records(setup, topologies).local_select("$$sets", path).out("*c")  # <- fault


@expect("map_vals meets an int in '$$lists', but needs a map.")
def map_navigator_in_the_path_of_a_filter(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").filtered_list(Path.map_vals())
    records(setup, topologies).local_select("$$lists", path).out("*c")  # <- fault


@expect("'$$lists' holds int here; 'x' does not fit.")
def text_after_the_numbers_of_a_list(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_transform("$$lists", Path.key("*k").after_elem().term_val("x"))  # <- fault


@expect("'$$lists' holds list(int) here; 3 does not fit.")
def number_at_the_beginning_of_a_list(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_transform("$$lists", Path.key("*k").beginning().term_val(3))  # <- fault


@expect("'$$lists' holds int here; 'x' does not fit.")
def text_as_the_new_index_of_an_element(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_transform("$$lists", Path.key("*k").index(0).term_val("x"))  # <- fault


@expect("nth in '$$lists' needs a whole number from 0 on.")
def place_before_the_first(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$lists", Path.key("*k").nth(-1)).out("*c")  # <- fault


@expect("sublist in '$$lists' needs a whole number from 0 on.")
def place_that_is_a_text(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$lists", Path.key("*k").sublist(0, "2")).out("*c")  # <- fault


@expect("first meets an int in '$$lists', but needs a list.")
def list_navigator_in_a_list_of_numbers(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").sublist(0, "*v").all().first()
    records(setup, topologies).local_select("$$lists", path).out("*c")  # <- fault


@expect("all meets a str in '$$names'.")
def all_of_a_text(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$names", Path.key("*k").all()).out("*c")  # <- fault


@expect("'stay' is not a path.")
def text_as_a_path(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$names", "stay").out("*c")  # <- fault


@expect("'positive' is not a function.")
def filter_without_function(setup: Any, topologies: Any) -> None:
    path = Path.map_vals().filter_pred("positive")  # <- fault
    records(setup, topologies).local_select("$$counts", path).out("*c")


@expect("takes the arguments (value), not 2.")
def term_with_too_many_arguments(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").term(lambda value: value, "*v")  # <- fault
    records(setup, topologies).local_transform("$$counts", path)


@expect("takes the arguments (collected, value), not 1.")
def term_without_the_value_that_would_be_collected(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").multi_path(Path.stop(), Path.term(lambda collected, value: value))  # <- fault
    records(setup, topologies).local_transform("$$counts", path)


@expect("takes the arguments (value), not 2.")
def term_with_too_many_arguments_though_it_collects(setup: Any, topologies: Any) -> None:
    path = Path.put_collected(1).key("*k").term(lambda value: value, "*v")  # <- fault
    records(setup, topologies).local_transform("$$counts", path)


@expect("'EXPLODE' does not return one value and cannot be used here.")
def view_of_many_values(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").view(Ops.EXPLODE)  # <- fault
    records(setup, topologies).local_select("$$lists", path).out("*c")


@expect("'halved' works on columns and cannot be used here.")
def view_by_columns(setup: Any, topologies: Any) -> None:
    path = Path.key("*k").view(vectorized(halved))  # <- fault
    records(setup, topologies).local_select("$$counts", path).out("*c")


def halved(value: Any) -> Any:
    return value / 2


# --- aggregators -----------------------------------------------------------------------------------------------------


class Product(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return current * value

    def zero_val(self) -> Any:
        return 1


class Longest(AccumulatorAgg):
    def accumulate(self, current: Any, text: Any) -> Any:
        return max(current or "", text, key=len)


@expect("Agg.count does not fit '$$names', which holds str at this place.")
def count_into_text(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$names", CompoundAgg.map("*k", Agg.count()))  # <- fault


@expect("Agg.sum does not fit '$$counts', which holds map(str, int) at this place.")
def sum_into_a_whole_map(setup: Any, topologies: Any) -> None:
    records(setup, topologies).agg("$$counts", Agg.sum("*v"))  # <- fault


@expect("Agg.list does not fit '$$sets'")
def list_into_a_set(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$sets", CompoundAgg.map("*k", Agg.list("*v")))  # <- fault


@expect("Agg.set does not fit '$$lists'")
def set_into_a_list(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$lists", CompoundAgg.map("*k", Agg.set("*v")))  # <- fault


@expect("Agg.multi_set does not fit '$$names'")
def multi_set_into_texts(setup: Any, topologies: Any) -> None:
    records(setup, topologies).agg("$$names", Agg.multi_set("*k"))  # <- fault


@expect("Agg.map does not fit '$$counts'")
def map_into_a_number(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$counts", CompoundAgg.map("*k", Agg.map("*k", "*v")))  # <- fault


@expect("CompoundAgg.map does not fit '$$counts', which holds int at this place.")
def map_too_deep(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*k", CompoundAgg.map("*v", Agg.count()))
    records(setup, topologies).compound_agg("$$counts", tree)  # <- fault


@expect("CompoundAgg.list does not fit '$$counts'")
def list_of_aggregators_into_a_map(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$counts", CompoundAgg.list(Agg.count()))  # <- fault


@expect("Agg.voided() would leave a gap in the subindexed list of '$$pairs'.")
def voided_element_of_a_subindexed_list(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*k", CompoundAgg.list(Agg.count(), Agg.voided()))
    records(setup, topologies).compound_agg("$$pairs", tree)  # <- fault


@expect("'$$people' has no key 'size' here.")
def aggregation_into_a_missing_field(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*k", CompoundAgg.map("size", Agg.count()))
    records(setup, topologies).compound_agg("$$people", tree)  # <- fault


@expect("The keys of '$$counts' are str here; 1 is none.")
def aggregation_at_a_key_of_another_type(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$counts", CompoundAgg.map(1, Agg.count()))  # <- fault


@expect("Agg.median cannot aggregate into '$$counts': a median is not enough to go on from.")
def median_into_a_pstate(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$counts", CompoundAgg.map("*k", Agg.median("*v")))  # <- fault


@expect("Agg.avg cannot aggregate into '$$counts'")
def mean_into_a_pstate(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$counts", CompoundAgg.map("*k", Agg.avg("*v")))  # <- fault


@expect("Agg.voided() at the top of '$$any' has nothing to remove the value from.")
def void_aggregator_at_the_top(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().agg("$$any", Agg.voided())  # <- fault


@expect("CompoundAgg.map takes pairs of a key and an aggregator.")
def compound_map_without_aggregator(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*k", Agg.count(), "*v")  # <- fault
    records(setup, topologies).compound_agg("$$counts", tree)


@expect("'count' is not an aggregator.")
def text_as_an_aggregator(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().agg("$$any", "count")  # <- fault


@expect("agg takes an aggregator, and before it perhaps a PState; 3 arguments are given.")
def aggregation_with_too_many_arguments(setup: Any, topologies: Any) -> None:
    records(setup, topologies).agg("$$any", Agg.count(), Agg.sum("*v"))  # <- fault


@expect("is no combiner: it has no combine() and no zero_val().")
def combiner_without_methods(setup: Any, topologies: Any) -> None:
    aggregator = Agg.combiner(object(), "*v")  # <- fault
    records(setup, topologies).global_partition().agg("$$any", aggregator)


@expect("A combiner takes one value, not 2.")
def combiner_of_two_values(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().agg("$$any", Agg.combiner(Product, "*k", "*v"))  # <- fault


@expect("Longest.accumulate does not take 3 arguments.")
def accumulator_with_too_many_values(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().agg("$$any", Agg.accumulator(Longest, "*k", "*v"))  # <- fault


class Halved(CombinerAgg):
    def combine(self, current: Any) -> Any:  # type: ignore[override]  # the mistake that is tested
        return current


class Scaled(CombinerAgg):
    def __init__(self, factor: int) -> None:
        self.factor = factor


@expect("Halved.combine does not take 2 arguments.")
def combiner_of_one_value(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().agg("$$any", Agg.combiner(Halved, "*v"))  # <- fault


@expect("Scaled() raised TypeError: Scaled.__init__() missing 1 required positional argument: 'factor'.")
def combiner_class_with_arguments(setup: Any, topologies: Any) -> None:
    aggregator = Agg.combiner(Scaled, "*v")  # <- fault
    records(setup, topologies).global_partition().agg("$$any", aggregator)


@expect("top_monotonic begins with how many values it keeps, not with '*k'.")
def ranking_of_a_variable_amount(setup: Any, topologies: Any) -> None:
    aggregator = Agg.top_monotonic("*k", "*v")  # <- fault
    records(setup, topologies).global_partition().agg("$$any", aggregator)


@expect("The third argument of a select is its options, not 3.")
def select_with_a_number_as_options(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$any", Path.stay(), 3).out("*found")  # <- fault


@expect("term_val changes a value, so it cannot be in a select.")
def select_of_a_value_that_writes(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("*v", Path.key("a").term_val(1)).out("*found")  # <- fault


@expect("A select emits one value a row, which cannot be bound to 2 variables.")
def select_of_a_value_into_two_variables(setup: Any, topologies: Any) -> None:
    records(setup, topologies).select("*v", Path.all()).out("*one", "*other")  # <- fault


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_a_path_or_aggregator_does_not_fit(define: Define, text: str) -> None:
    assert_one_fault(define, text)


WHOLE = {
    "key": ("$$sets", Path.key("*k"), "set(int).subindexed()"),
    "map_vals": ("$$pairs", Path.map_vals(), "list(int).subindexed()"),
    "filter": ("$$pairs", Path.key("*k").filter_selected(Path.first()), "list(int).subindexed()"),
    "stay": ("$$pairs", Path.stay(), "map(str, list(int).subindexed())"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_fault_names_line_and_structure_when_a_select_takes_it_whole(name: str) -> None:
    pstate, path, shown = WHOLE[name]

    def selects(setup: Any, topologies: Any) -> None:
        records(setup, topologies).local_select(pstate, path).out("*l")  # <- fault

    assert_one_fault(selects, f"This select takes {shown} of '{pstate}' whole")


COLLECTING = {
    "collect": Path.collect(Path.stay()),
    "collect_one": Path.collect_one(Path.stay()),
    "put_collected": Path.put_collected(1),
    "dispense_collected": Path.dispense_collected(),
    "is_collected": Path.is_collected(Ops.SIZE),
}


@pytest.mark.parametrize("name", COLLECTING)
def test_fault_names_line_and_navigator_when_a_subselect_collects(name: str) -> None:
    """Only the compiled path shows it, so paths are compiled before a launch: no microbatch meets it first."""
    path = Path.key("*k").subselect(Path.all().if_path(Path.stay(), COLLECTING[name]))

    def selects(setup: Any, topologies: Any) -> None:
        records(setup, topologies).local_select("$$lists", path).out("*l")  # <- fault

    def transforms(setup: Any, topologies: Any) -> None:
        records(setup, topologies).local_transform("$$lists", path.term_val([]))  # <- fault

    def asks(setup: Any, topologies: Any) -> None:
        records(setup, topologies).each(Ops.IDENTITY, "*k").out("*same")
        query = topologies.query("q", "*k").out("*l").hash_partition("*k")
        query.local_select("$$lists", path).out("*l").origin_partition()  # <- fault

    for define in (selects, transforms, asks):
        assert_one_fault(define, f"'$$lists': {name} cannot be inside a subselect.")


def what_fits(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies)
    chain.local_select("$$people", Path.must("*k").sub_map("name")).out("*p")
    chain.local_select("$$lists", Path.key("*k").nth(0).filter_greater_than(1)).out("*l")
    chain.local_transform("$$lists", Path.key("*k").sublist_to_end("*v").term_val([1]))
    chain.local_select("$$sets", Path.key("*k").sorted_set_range_from(1, max_amt="*v").all()).out("*s")
    chain.local_select("$$sets", Path.key("*k").view(Ops.SIZE)).out("*size")
    chain.local_select("$$pairs", Path.key("*k").sublist(0, 2)).out("*pairs")
    chain.local_select("$$pairs", Path.subselect(Path.key("*k").all())).out("*all")
    chain.local_transform("$$sets", Path.key("*k").void_set_elem().term_val(5))
    chain.local_transform("$$counts", Path.key("*k").null_to_val(0).term(Ops.PLUS, "*v"))
    chain.local_transform("$$counts", Path.key("*k").multi_path(Path.filter_equal(0).term_void(), Path.term(Ops.INC)))
    chain.local_transform("$$people", Path.key("*k").term_val({"name": "a"})).local_transform(
        "$$names", Path.key("*k").term_val(None)
    )
    chain.compound_agg("$$people", CompoundAgg.map("*k", CompoundAgg.map("age", Agg.max("*v"), "name", Agg.last("*k"))))
    chain.compound_agg("$$sets", CompoundAgg.map("*k", Agg.set("*v"), Constant("gone"), Agg.voided()))
    chain.compound_agg("$$counts", CompoundAgg.map("*k", Agg.combiner(Product(), "*v")))
    chain.agg("$$counts", Agg.multi_set("*k")).agg("$$any", Agg.top_monotonic(3, "*v", id_function=Ops.FIRST))
    chain.select("$$others", Path.key("*k")).out("*o")


def test_no_fault_is_found_when_paths_and_aggregators_fit() -> None:
    assert faults_of(what_fits) == []


def test_client_path_is_refused_with_its_fault_when_it_is_wrong() -> None:
    with pytest.raises(BadPath, match="'x' is not a path"):
        path_of(Path.key("a").filter_selected("x"))  # type: ignore[arg-type]
    with pytest.raises(BadPath, match="'a' is none"):
        path_of("a")  # type: ignore[arg-type]
