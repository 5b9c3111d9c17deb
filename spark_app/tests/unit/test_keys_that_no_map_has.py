"""A topology that reads a key which its map can never have finds nothing there, by columns as by rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from attempts import Attempts

from tidemill import Depot, Module, Ops, Path, PState

KEYS = ["a", {"no": "key"}, 5, [{"no": "key"}], "b", {1, 2}, None, "a"]
MAPS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "str": (PState.map_schema(str, int), [["a", 1], ["b", 2]], [1, None, None, None, 2, None, None, 1]),
    "float": (PState.map_schema(float, int), [[5.0, 3]], [None, None, 3, None, None, None, None, None]),
    "object": (PState.map_schema(object, int), [["a", 1], [5, 3]], [1, None, 3, None, None, None, None, 1]),
    "record": (PState.map_schema(str, PState.fixed_keys_schema("n", int)), [["b", {"n": 2}]],
               [None, None, None, None, {"n": 2}, None, None, None]),
}  # fmt: skip


@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize(("schema", "held", "expected"), MAPS.values(), ids=MAPS)
def test_nothing_is_found_when_a_key_does_not_fit_the_map(
    tmp_path: Any, schema: Any, held: list[Any], expected: list[Any], form: str
) -> None:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*filled", Depot.random())
            setup.declare_depot("*read", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", schema)
            mb.pstate("$$found", PState.map_schema(int, object))
            (mb.source("*filled").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
               .local_transform("$$p", Path.key("*k").term_val("*v")))  # fmt: skip
            (mb.source("*read").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*n", "*k")
               .local_select("$$p", Path.key("*k")).out("*v")
               .local_transform("$$found", Path.key("*n").term_val("*v")))  # fmt: skip

    attempts = Attempts(tmp_path, Made(), 1, 1)
    if form == "rows":
        segments = {at: replace(segment, mode="rows") for at, segment in attempts.program.segments.items()}
        attempts.program = replace(attempts.program, segments=segments, key=f"{attempts.program.key}-rows")
    attempts.feed("*filled", held)
    attempts.attempt()
    attempts.feed("*read", [list(pair) for pair in enumerate(KEYS)])
    attempts.attempt()

    assert attempts.everywhere("$$found", Path.map_vals()) == expected
