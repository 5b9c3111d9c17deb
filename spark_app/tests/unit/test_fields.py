"""`fields` binds fields of a dict record to variables of their names."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Constant,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
    UserCodeError,
)

VISIT = Constant({"user": "ann", "page": "/home", "seconds": None})


def visit() -> Block:
    return Block.each(Ops.IDENTITY, VISIT).out("*visit")


class Visits(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*visits", Depot.hash_by("user"))
        mb = topologies.microbatch("count")
        mb.pstate("$$visits", PState.map_schema(str, PState.map_schema(str, int)))
        (mb.source("*visits").out("*microbatch").explode_microbatch("*microbatch").out("*visit")
           .fields("*visit", "user", "page")
           .compound_agg("$$visits", CompoundAgg.map("*user", CompoundAgg.map("*page", Agg.count()))))  # fmt: skip


def test_each_field_is_bound_to_the_variable_of_its_name_when_records_are_dicts() -> None:
    (row,) = visit().fields("*visit", "user", "page", "seconds").execute()
    assert (row["*user"], row["*page"], row["*seconds"]) == ("ann", "/home", None)
    (row,) = Block.fields(VISIT, "page").execute()
    assert row == {"*page": "/home"}


def test_records_are_counted_by_their_fields_when_a_module_binds_them() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Visits(), LaunchConfig(4, 2))
        cluster.cluster_depot("Visits", "*visits").append_many(2 * [{"user": "ann", "page": "/home"}])
        cluster.wait_until_processed("Visits")
        assert cluster.cluster_pstate("Visits", "$$visits").select_one(Path.key("ann", "/home")) == 2


def test_the_field_is_named_when_a_record_lacks_it() -> None:
    with pytest.raises(UserCodeError, match="nothing"):
        visit().fields("*visit", "user", "nothing").execute()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "fields names no field"),
        (("*user",), r"fields takes names of fields, not '\*user'"),
        (("user", 5), "fields takes names of fields, not 5"),
        (("",), "fields takes names of fields, not ''"),
    ],
)
def test_the_line_is_refused_when_fields_are_named_otherwise(names: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told) as raised:
        visit().fields("*visit", *names).execute()
    assert "test_fields.py" in str(raised.value)
    assert 'Write .fields("*visit", "user", "page")' in str(raised.value)
