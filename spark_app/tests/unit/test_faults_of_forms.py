"""Each mistake in sub_source, out_stream, each_async, macros and blocks that are executed is reported at its line."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault

from tidemill import (
    BadInput,
    Block,
    Case,
    DefinitionError,
    Depot,
    Expr,
    Ops,
    Path,
    PState,
    SubSource,
    emit_stream,
    operation,
)

cases = Cases()
expect = cases.expect


@operation
def by_parity(number: int) -> Iterator[Any]:
    yield emit_stream("odd", number) if number % 2 else number


async def doubled(number: int) -> int:
    return number * 2


async def many(number: int) -> AsyncIterator[int]:
    yield number


def source(setup: Any, topologies: Any) -> Any:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$counts", PState.map_schema(str, int))
    return mb.source("*d").out("*mb")


def records(setup: Any, topologies: Any) -> Any:
    return source(setup, topologies).explode_microbatch("*mb").out("*v")


# --- sub_source ------------------------------------------------------------------------------------------------------


@expect("sub_source(…) has no case.")
def no_case(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sub_source("*v")  # <- fault


@expect("sub_source takes cases, not <Case: Each>")
def a_case_of_cond(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sub_source("*v", Case.create("*v").each(Ops.INC, "*v"))  # <- fault


@expect("The case for int of sub_source can never run")
def a_class_twice(setup: Any, topologies: Any) -> None:
    one, two = SubSource.create(int), SubSource.create(int)
    records(setup, topologies).sub_source("*v", one.each(Ops.INC, "*v"), two)  # <- fault


@expect("The case for 'x' of sub_source can never run")
def a_case_after_the_one_for_all(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sub_source("*v", SubSource.create(object), SubSource.create("x"))  # <- fault


@expect("The case for 'x' of sub_source can never run")
def a_constant_after_its_class(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sub_source("*v", SubSource.create(str), SubSource.create("x"))  # <- fault


@expect("sub_source is given the constant 'v'")
def a_constant_is_dispatched(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sub_source("v", SubSource.create(str))  # <- fault


@expect("A case of sub_source takes no variable; '*v' looks like one.")
def a_variable_as_case(setup: Any, topologies: Any) -> None:
    case = SubSource.create("*v")  # <- fault
    records(setup, topologies).sub_source("*v", case)


@expect("A case of sub_source takes no Expr.")
def a_condition_as_case(setup: Any, topologies: Any) -> None:
    case = SubSource.create(Expr(Ops.IS_NULL, "*v"))  # <- fault
    records(setup, topologies).sub_source("*v", case)


@expect("A case of sub_source takes no Schema.")
def a_schema_as_case(setup: Any, topologies: Any) -> None:
    case = SubSource.create(PState.fixed_keys_schema("a", int))  # <- fault
    records(setup, topologies).sub_source("*v", case)


@expect("A case of sub_source takes no list[int]")
def a_generic_type_as_case(setup: Any, topologies: Any) -> None:
    case = SubSource.create(list[int])  # <- fault
    records(setup, topologies).sub_source("*v", case)


@expect("'by_parity' does not return one value and cannot be used here.")
def an_operation_as_case(setup: Any, topologies: Any) -> None:
    case = SubSource.create(by_parity)  # <- fault
    records(setup, topologies).sub_source("*v", case)


@expect("The variable '*w' is not bound here.")
def a_variable_that_one_case_binds(setup: Any, topologies: Any) -> None:
    binds = SubSource.create(int).each(Ops.INC, "*v").out("*w")
    chain = records(setup, topologies).sub_source("*v", binds, SubSource.create(str))
    chain.each(Ops.PRINTLN, "*w")  # <- fault


# --- out_stream ------------------------------------------------------------------------------------------------------


@expect("out_stream has no each(…) of an @operation before it.")
def a_stream_of_a_plain_function(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v").out_stream("odd", "oddAnchor", "*w")  # <- fault


@expect("out_stream has no each(…) of an @operation before it.")
def a_stream_of_nothing(setup: Any, topologies: Any) -> None:
    source(setup, topologies).out_stream("odd", "oddAnchor", "*w")  # <- fault


@expect("out_stream has no each(…) of an @operation before it.")
def a_stream_of_a_select_from_a_value(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).local_select([1, 2], Path.all())
    chain.out_stream("odd", "oddAnchor", "*o").out("*w")  # <- fault


@expect("The stream of out_stream is a text, not None.")
def a_stream_without_name(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(by_parity, "*v").out_stream(None, "oddAnchor", "*w").out("*w")  # <- fault


@expect("An out variable is a string that begins with '*', not 'w'.")
def a_stream_bound_to_no_variable(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(by_parity, "*v").out_stream("odd", "oddAnchor", "w").out("*w")  # <- fault


@expect("The anchor 'a' stands twice.")
def an_anchor_that_is_there(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).anchor("a").each(by_parity, "*v")
    chain.out_stream("odd", "a", "*w").out("*w")  # <- fault


@expect("The variable '*w' is not bound here.")
def a_variable_of_the_default_stream(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).each(by_parity, "*v").out_stream("odd", "odd", "*o").out("*w")
    chain.hook("odd").each(Ops.PRINTLN, "*w")  # <- fault


# --- each_async ------------------------------------------------------------------------------------------------------


@expect("Ops.INC has nothing to await.")
def an_operation_is_awaited(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(Ops.INC, "*v").out("*w")  # <- fault


@expect("'many' does not return one value to await.")
def a_generator_is_awaited(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(many, "*v").out("*w")  # <- fault


@expect("3 is not a function.")
def a_number_is_awaited(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(3, "*v").out("*w")  # <- fault


@expect("'doubled' takes the arguments (number: 'int') -> 'int', not 2.")
def too_many_arguments_are_awaited(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(doubled, "*v", 2).out("*w")  # <- fault


@expect("'doubled' emits 1 value, which cannot be bound to 2 variables.")
def one_result_is_bound_twice(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(doubled, "*v").out("*w", "*x")  # <- fault


@expect("The concurrency of each_async is a number from 1 to 10,000, not 0.")
def no_call_at_once(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(doubled, "*v", concurrency=0).out("*w")  # <- fault


@expect("The timeout_seconds of each_async is a number above 0, not '1'.")
def a_text_as_time(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each_async(doubled, "*v", timeout_seconds="1").out("*w")  # <- fault


@expect("'doubled' is a coroutine.")
def a_coroutine_in_an_expression(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true(Expr(doubled, "*v"))  # <- fault


# --- atomic_block, macros, ack_return --------------------------------------------------------------------------------


@expect("A block is expected here, not 3.")
def no_block_is_atomic(setup: Any, topologies: Any) -> None:
    records(setup, topologies).atomic_block(3)  # <- fault


@expect("The variable '*w' is not bound here.")
def a_variable_of_an_atomic_block(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).atomic_block(Block.each(Ops.INC, "*v").out("*w"))
    chain.each(Ops.PRINTLN, "*w")  # <- fault


def broken(block: Block) -> Block:
    raise ValueError("no idea")


def test_fault_names_the_line_when_a_macro_raises() -> None:
    with pytest.raises(DefinitionError, match="The macro 'broken' raised ValueError: no idea.") as raised:
        Block.macro(broken).execute()
    _, first = inspect.getsourcelines(broken)
    assert [fault.location for fault in raised.value.faults] == [f"{__file__}:{first + 1}"]


@expect("A block is expected here, not None.")
def a_macro_without_result(setup: Any, topologies: Any) -> None:
    records(setup, topologies).macro(lambda block: None)  # <- fault


@expect("A block takes no arguments.")
def arguments_of_a_block(setup: Any, topologies: Any) -> None:
    records(setup, topologies).macro(Block.each(Ops.INC, "*v"), "*v")  # <- fault


@expect("ack_return belongs to stream topologies")
def an_answer_to_an_append(setup: Any, topologies: Any) -> None:
    records(setup, topologies).ack_return("*v")  # <- fault


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_a_form_is_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)


# --- execute ---------------------------------------------------------------------------------------------------------


def test_all_faults_are_listed_when_a_wrong_block_is_executed() -> None:
    block = Block.each(Ops.INC, "*nope").out("*v").each(Ops.EXPAND, "*v")
    with pytest.raises(DefinitionError) as raised:
        block.execute()
    assert [fault.text for fault in raised.value.faults] == [
        "The variable '*nope' is not bound here.", "'EXPAND' binds one variable for each element.",
    ]  # fmt: skip


def test_execute_is_refused_when_it_stands_in_a_definition() -> None:
    def define(setup: Any, topologies: Any) -> None:
        records(setup, topologies)
        Block.each(Ops.IDENTITY, 1).out("*v").execute()  # <- fault

    assert_one_fault(define, "define only records what is to run")


def test_execute_is_refused_when_tasks_are_no_power_of_two() -> None:
    with pytest.raises(BadInput, match="power of two, not 3"):
        Block.each(Ops.IDENTITY, 1).execute(tasks=3)


@pytest.mark.parametrize("pstates", [[1], ["$$n"], 3, "$$n"])
def test_execute_says_how_pstates_are_declared_when_they_are_no_dict(pstates: Any) -> None:
    with pytest.raises(BadInput, match=r"a dict of schemas by name, as \{.*\}, not"):
        Block.each(Ops.IDENTITY, 1).execute(pstates=pstates)
