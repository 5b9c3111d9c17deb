"""What is allowed and most likely not meant is told at its line, by `describe` and at a launch; nothing else is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest
from faulty import fault_places
from typer.testing import CliRunner

from tidemill import (
    Agg,
    Block,
    Case,
    CompoundAgg,
    DefinitionWarning,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.plan.check.module import check
from tidemill.plan.warn import warnings_of
from tidemill.values.errors import Fault

Define = Callable[[Any, Any], None]
WRONG: list[tuple[Define, str]] = []
RIGHT: list[Define] = []


def domain(address: str) -> str:
    return address.partition("@")[2]


def wrong(text: str) -> Callable[[Define], Define]:
    def add(define: Define) -> Define:
        WRONG.append((define, text))
        return define

    return add


def right(define: Define) -> Define:
    RIGHT.append(define)
    return define


def found(define: Define) -> list[Fault]:
    class Defined(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            define(setup, topologies)

    declaration = record_module(Defined())
    assert check(declaration) == []
    return warnings_of(declaration)


def source(setup: Any, topologies: Any, partitioning: Any, key: Any = str) -> Any:
    setup.declare_depot("*d", partitioning)
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(key, int))
    return mb.source("*d").out("*mb")


def rows(setup: Any, topologies: Any, partitioning: Any, key: Any = str) -> Any:
    return source(setup, topologies, partitioning, key).explode_microbatch("*mb").out("*r")


def fields(setup: Any, topologies: Any, partitioning: Any) -> Any:
    chain = rows(setup, topologies, partitioning)
    return chain.each(Ops.MUST_GET, "*r", "user").out("*user").each(Ops.MUST_GET, "*r", "page").out("*page")


def counted(key: Any) -> CompoundAgg:
    return CompoundAgg.map(key, Agg.count())


# --- rows on another task than their key -----------------------------------------------------------------------------


@wrong("writes '$$p' under the key \"*user\", perhaps not on the key's task: '*d' has its records on any task")
def random_depot(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.random()).compound_agg("$$p", counted("*user"))  # <- fault


@wrong("'*d' is partitioned by hash_by('page').")
def depot_by_another_field(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by("page")).compound_agg("$$p", counted("*user"))  # <- fault


@wrong("'*d' is partitioned by hash_by(Ops.FIRST).")
def depot_by_another_element(setup: Any, topologies: Any) -> None:
    chain = rows(setup, topologies, Depot.hash_by(Ops.FIRST)).each(Ops.EXPAND, "*r").out("*a", "*b")
    chain.local_transform("$$p", Path.key("*b").term_val(1))  # <- fault


@wrong('hash_partition("*page") at')
def partitioner_of_another_variable(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).hash_partition("*page")
    chain.compound_agg("$$p", counted("*user"))  # <- fault


@wrong("shuffle_partition at")
def shuffled(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).shuffle_partition()
    chain.compound_agg("$$p", counted("*user"))  # <- fault


@wrong("rows are on task 0 here.")
def key_on_task_0(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).global_partition()
    chain.compound_agg("$$p", counted("*user"))  # <- fault


@wrong("under the key 'all'")
def constant_key(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("all"))  # <- fault


@wrong("The key of '$$p' is the text 'user' in every row.")
def key_whose_asterisk_was_forgotten(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("user"))  # <- fault


@wrong("The key of '$$g' is the text 'page' in every row.")
def inner_key_whose_asterisk_was_forgotten(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by("user"))
    mb = topologies.microbatch("mb")
    pages = PState.fixed_keys_schema("page", PState.map_schema(str, int))  # a key of a record is rightly a text
    mb.pstate("$$g", PState.map_schema(str, pages))
    chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").fields("*r", "user", "page")
    chain.compound_agg("$$g", CompoundAgg.map("*user", CompoundAgg.map("page", counted("page"))))  # <- fault


@wrong("The key of '$$p' is the text 'user' in every row.")
def key_of_a_path_whose_asterisk_was_forgotten(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by("user")).local_transform("$$p", Path.key("user").term_val(1))  # <- fault


@wrong("No topology reads the tick depot '*tick', so it never ticks.")
def clock_that_nothing_reads(setup: Any, topologies: Any) -> None:
    setup.declare_tick_depot("*tick", 1000)  # <- fault
    fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))


@wrong("No record has the field 'usr': the schema of '*d' lacks it.")
def field_that_the_schema_lacks(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by("user")).schema(PState.fixed_keys_schema("user", str))
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(str, int))
    chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r")
    chain = chain.each(Ops.GET, "*r", "usr").out("*usr").hash_partition("*usr")  # <- fault
    chain.compound_agg("$$p", counted("*usr"))


@wrong('under the key "*user"')
def variable_that_was_changed(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).each(domain, "*user").out("*user")
    chain.compound_agg("$$p", counted("*user"))  # <- fault


@wrong("This reads '$$p' under the key \"*page\"")
def read_elsewhere(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))
    chain.local_select("$$p", Path.key("*page")).out("*n")  # <- fault


@wrong("which is on task 0, but '*d' is partitioned by hash_by('user').")
def global_pstate(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by("user"))
    mb = topologies.microbatch("mb")
    mb.pstate("$$g", PState.map_schema(str, int)).global_()
    chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.MUST_GET, "*r", "user").out("*user")
    chain.compound_agg("$$g", counted("*user"))  # <- fault


@wrong('hash_partition("*user") at')
def one_of_two_ways(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).anchor("root")
    chain.each(Ops.IDENTITY, "*user").out("*k").hash_partition("*user").anchor("a").hook("root")
    chain.each(Ops.IDENTITY, "*page").out("*k").hash_partition("*user").anchor("b")
    chain.unify("a", "b").compound_agg("$$p", counted("*k"))  # <- fault


@wrong("'*d' has its records on any task")
def one_case_moved_only(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).if_true("*page", Block.hash_partition("*user"))
    chain.compound_agg("$$p", counted("*user"))  # <- fault


@wrong("group_by(*user, *page) at")
def group_by_keys_whose_list_is_another_key(setup: Any, topologies: Any) -> None:
    block = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*user", "*page")
    block = block.group_by("*user", "*page", Block.agg(Agg.count()).out("*n"))
    block = block.each(Ops.TUPLE, "*user", "*page").out("*both")
    block = block.local_transform("$$p", Path.key("*both").term_val("*n"))  # <- fault
    source(setup, topologies, Depot.random()).batch_block(block)


@wrong("group_by(*page) at")
def group_by_another_key(setup: Any, topologies: Any) -> None:
    block = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*user", "*page")
    block = block.group_by("*page", Block.agg(Agg.last("*user")).out("*u"))
    block = block.local_transform("$$p", Path.key("*u").term_val(1))  # <- fault
    source(setup, topologies, Depot.random()).batch_block(block)


@wrong("perhaps not on the key's task")
def moved_on_in_a_loop(setup: Any, topologies: Any) -> None:
    body = (
        Block.compound_agg("$$p", counted("*k"))  # <- fault
        .each(Ops.TO_STRING, "*k", "x").out("*next")
        .if_true(Expr(Ops.EQUAL, "*next", "stop"), Block.emit_loop(), Block.shuffle_partition().continue_loop("*next"))
    )  # fmt: skip
    fields(setup, topologies, Depot.hash_by("user")).loop_with_vars(LoopVars.var("*k", "*user"), body)


@right
def depot_by_the_field(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))


@right
def depot_by_a_field_of_several(setup: Any, topologies: Any) -> None:
    chain = rows(setup, topologies, Depot.hash_by(["user", "page"]), object)
    chain = chain.each(Ops.GET, "*r", "user").out("*u").each(Ops.GET, "*r", "page").out("*p")
    chain.compound_agg("$$p", counted(Expr(Ops.TUPLE, "*u", "*p")))


@right
def depot_by_first_and_expand(setup: Any, topologies: Any) -> None:
    chain = rows(setup, topologies, Depot.hash_by(Ops.FIRST)).each(Ops.EXPAND, "*r").out("*a", "*b")
    chain.compound_agg("$$p", counted("*a")).local_transform("$$p", Path.key(Expr(Ops.FIRST, "*r")).term_val(1))


@right
def depot_by_last_and_expand(setup: Any, topologies: Any) -> None:
    chain = rows(setup, topologies, Depot.hash_by(Ops.LAST)).each(Ops.EXPAND, "*r").out("*a", "*b")
    chain.compound_agg("$$p", counted("*b"))


@right
def depot_by_the_record(setup: Any, topologies: Any) -> None:
    rows(setup, topologies, Depot.hash_by(Ops.IDENTITY)).compound_agg("$$p", counted("*r"))


@right
def depot_by_a_function(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by(lambda r: r["user"])).compound_agg("$$p", counted("*user"))


@right
def partitioner_of_what_a_function_makes(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).hash_partition(Expr(domain, "*user"))
    chain.each(domain, "*user").out("*domain").compound_agg("$$p", counted("*domain"))


@right
def select_went_there(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).select("$$p", Path.key("*user")).out("*n")
    chain.compound_agg("$$p", counted("*user"))


@right
def two_ways_to_the_task_of_one_variable(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).anchor("root")
    chain.each(Ops.IDENTITY, "*user").out("*k").hash_partition("*k").anchor("a").hook("root")
    chain.each(Ops.IDENTITY, "*page").out("*k").hash_partition("*k").anchor("b")
    chain.unify("a", "b").compound_agg("$$p", counted("*k"))


@right
def cases_that_both_move(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).cond(
        Case.create(Expr(Ops.IS_NULL, "*page")).hash_partition("*user"), Case.create(True).hash_partition("*user")
    )
    chain.compound_agg("$$p", counted("*user"))


@right
def loop_that_moves_with_its_variable(setup: Any, topologies: Any) -> None:
    body = (
        Block.compound_agg("$$p", counted("*k")).each(Ops.TO_STRING, "*k", "x").out("*next").hash_partition("*next")
        .if_true(Expr(Ops.EQUAL, "*next", "stop"), Block.emit_loop("*next"), Block.continue_loop("*next"))
    )  # fmt: skip
    chain = fields(setup, topologies, Depot.hash_by("user")).loop_with_vars(LoopVars.var("*k", "*user"), body)
    chain.out("*end").compound_agg("$$p", counted("*end"))


@right
def group_by_the_key(setup: Any, topologies: Any) -> None:
    block = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*user", "*page")
    block = block.group_by("*page", Block.agg(Agg.count()).out("*n"))
    block = block.local_transform("$$p", Path.key("*page").term_val("*n"))
    source(setup, topologies, Depot.random()).batch_block(block)


@right
def key_partitioner(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(str, int)).key_partitioner(lambda partitions, key: 0)
    mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").compound_agg("$$p", counted("*r"))


@right
def tasks_that_a_function_chooses(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.random()).custom_partition(lambda tasks, user: 0, "*user")
    chain.compound_agg("$$p", counted("*user")).all_partition().compound_agg("$$p", counted("*page"))


# --- what is left over -----------------------------------------------------------------------------------------------


@wrong("This block is not part of any topology, so it never runs.")
def block_alone(setup: Any, topologies: Any) -> None:
    fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))
    Block.each(Ops.INC, "*v").out("*w")  # <- fault


@wrong("Nothing follows the source of '*d'.")
def source_alone(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    topologies.microbatch("mb").source("*d").out("*mb")  # <- fault


@wrong("'mb' never writes the PState '$$q'.")
def pstate_alone(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$q", PState.map_schema(str, int))  # <- fault
    mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r")


@wrong("Ops.INC is given the text 'user' in every row.")
def operation_on_a_text(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))
    chain.each(Ops.INC, "user").out("*v")  # <- fault


@wrong("domain is given the text 'user' in every row.")
def function_on_a_text(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))
    chain.keep_true(Expr(Ops.NOT, Expr(domain, "user")))  # <- fault


@wrong("hash_partition is given the text 'user' in every row.")
def partitioner_on_a_text(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).compound_agg("$$p", counted("*user"))
    chain.hash_partition("user")  # <- fault


@wrong("Agg.sum is given the text 'page' in every row.")
def aggregator_on_a_text(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user"))
    chain.compound_agg("$$p", CompoundAgg.map("*user", Agg.sum("page")))  # <- fault


@right
def texts_that_are_meant(setup: Any, topologies: Any) -> None:
    chain = fields(setup, topologies, Depot.hash_by("user")).each(Ops.TO_STRING, "user", "*page").out("*t")
    chain.each(Ops.GET, "*r", "user").out("*u").keep_true(Expr(Ops.EQUAL, "*page", "user"))
    chain.compound_agg("$$p", counted("*u"))


@right
def blocks_that_are_used(setup: Any, topologies: Any) -> None:
    unused = Block.each(Ops.IDENTITY, "*user").out("*k")
    step = Block.macro(unused)
    case = Case.create("*page").macro(step)
    chain = fields(setup, topologies, Depot.hash_by("user")).cond(case, Case.create(True).macro(step))
    chain.branch(Block.keep_true("*k")).compound_agg("$$p", counted("*k"))


def name_of(define: Define) -> str:
    return define.__name__


@pytest.mark.parametrize(("define", "text"), WRONG, ids=[define.__name__ for define, _ in WRONG])
def test_warning_names_the_line_when_something_is_most_likely_not_meant(define: Define, text: str) -> None:
    warnings_found = found(define)
    assert [warning.location for warning in warnings_found] == fault_places(define), "\n".join(map(str, warnings_found))
    assert text in warnings_found[0].text
    assert warnings_found[0].advice.endswith(".")


@pytest.mark.parametrize("define", RIGHT, ids=name_of)
def test_nothing_is_warned_of_when_rows_are_where_their_keys_are(define: Define) -> None:
    assert found(define) == []


class Astray(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        random_depot(setup, topologies)


def test_warning_is_shown_at_the_line_of_its_author_when_a_module_is_launched_or_updated() -> None:
    (place,) = fault_places(random_depot)
    with InProcessCluster.create(engine="local") as cluster:
        for start in (
            lambda: cluster.launch_module(Astray(), LaunchConfig(2, 1)),
            lambda: cluster.update_module(Astray()),
        ):
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter("always")
                start()
            told = [each for each in shown if issubclass(each.category, DefinitionWarning)]
            assert [f"{each.filename}:{each.lineno}" for each in told] == [place]
            assert 'Write .hash_partition("*user") before it' in str(told[0].message)


def test_describe_shows_warnings_to_people_and_programs(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "astray.py").write_text(
        "from tidemill import *\n\n\nclass Lost(Module):\n    def define(self, setup, topologies):\n"
        '        setup.declare_depot("*d", Depot.random())\n        mb = topologies.microbatch("mb")\n'
        '        mb.pstate("$$p", PState.map_schema(str, int))\n'
        '        mb.source("*d").out("*m").explode_microbatch("*m").out("*r")\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for words in (["describe", "astray:Lost"], ["describe", "astray:Lost", "--against", f"{tmp_path}/store"]):
        told = CliRunner().invoke(app, [*words, "--json"])
        assert told.exit_code == 0, told.output
        (warning,) = json.loads(told.output.splitlines()[-1])["warnings"]
        assert warning["text"] == "'mb' never writes the PState '$$p'."
        assert "never writes the PState '$$p'" in CliRunner().invoke(app, words).output
