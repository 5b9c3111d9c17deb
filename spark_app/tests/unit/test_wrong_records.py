"""Records of another shape than a topology expects fail with the record; letters and None are never counted."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, CompoundAgg, Depot, Module, Ops, Path, PState, UserCodeError

RECORD = {"user": "ann", "page": "/a"}


class Steps(Module):
    """Counts what one step makes of each record; by rows where the segment also reads what it writes."""

    def __init__(self, function: Any, more: tuple[Any, ...], outs: tuple[str, ...], by_rows: bool) -> None:
        self._step = function, more, outs
        self._by_rows = by_rows

    def define(self, setup: Any, topologies: Any) -> None:
        function, more, outs = self._step
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(object, int))
        mb.pstate("$$last", PState.map_schema(int, int))
        rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r")
        if self._by_rows:
            rows.local_select("$$last", Path.key(0)).out("*old").local_transform("$$last", Path.key(0).term_val(1))
        rows.each(function, "*r", *more).out(*outs).compound_agg("$$counts", CompoundAgg.map(outs[0], Agg.count()))


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(
    ("function", "more", "outs", "record", "text"),
    [
        (Ops.EXPAND, (), ("*user", "*page"), RECORD, "Ops.EXPAND works on lists, not on a dict"),
        (Ops.EXPAND, (), ("*user", "*page"), "ab", "Ops.EXPAND works on lists, not on a str"),
        (Ops.EXPAND, (), ("*user", "*page"), b"ab", "Ops.EXPAND works on lists, not on a bytes"),
        (Ops.EXPAND, (), ("*user", "*page"), None, "Ops.EXPAND works on lists, not on a NoneType"),
        (Ops.FIRST, (), ("*user",), RECORD, "Ops.FIRST works on lists, not on a dict"),
        (Ops.LAST, (), ("*user",), "ab", "Ops.LAST works on lists, not on a str"),
        (Ops.EXPLODE, (), ("*letter",), "ab", "Ops.EXPLODE works on lists, not on a str"),
        (Ops.MUST_GET, ("usr",), ("*user",), RECORD, "there is no key 'usr'; there is 'user', 'page'."),
        (Ops.MUST_GET, (2,), ("*user",), ["a", "b"], "there is no element 2 in a list of 2."),
    ],
)
def test_microbatch_fails_with_the_record_when_a_step_cannot_mean_it(
    tmp_path: Folder, function: Any, more: tuple[Any, ...], outs: tuple[str, ...], record: Any, text: str, by_rows: bool
) -> None:
    attempts = Attempts(tmp_path, Steps(function, more, outs, by_rows), 1)
    assert {segment.mode for segment in attempts.program.segments.values()} >= ({"rows"} if by_rows else {"columns"})
    attempts.feed("*d", [record, record])
    with pytest.raises(UserCodeError) as caught:
        attempts.attempt()
    assert text in str(caught.value)
    assert repr(record) in caught.value.sample
    assert f"each({function.name}) at {__file__}:" in caught.value.step


@pytest.mark.parametrize("by_rows", [False, True])
def test_must_get_gives_the_field_when_it_is_there(tmp_path: Folder, by_rows: bool) -> None:
    attempts = Attempts(tmp_path, Steps(Ops.MUST_GET, ("user",), ("*user",), by_rows), 1)
    attempts.feed("*d", [RECORD, RECORD, {"user": "bob"}])
    attempts.attempt()
    assert attempts.select("$$counts", Path.all(), 0) == [["ann", 2], ["bob", 1]]
