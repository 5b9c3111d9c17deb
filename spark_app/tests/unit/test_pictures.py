"""Pictures: layouts in which nothing overlaps, and plans of programs as SVG that every reader of XML takes."""

from __future__ import annotations

from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Agg, Block, CompoundAgg, Depot, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.drawing.layout import BOX_HEIGHT, Arrow, Box, layout
from tidemill.drawing.svg import to_svg
from tidemill.plan.check.module import checked
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.picture import picture

NAMES = [str(number) for number in range(12)]
ARROWS = st.lists(st.builds(Arrow, st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=30)
BOXES = [Box(name, f"step {name}", "*a → *b" * int(name)) for name in NAMES]


@given(ARROWS)
def test_no_boxes_overlap_when_any_graph_is_laid_out(arrows: list[Arrow]) -> None:
    found = layout(BOXES, arrows)
    assert [placed.box for placed in found.boxes] == BOXES
    for one, other in combinations(found.boxes, 2):
        is_beside = abs(one.x - other.x) >= (one.width + other.width) / 2
        assert is_beside or abs(one.y - other.y) >= BOX_HEIGHT
    for placed in found.boxes:
        assert placed.x - placed.width / 2 >= 0 and placed.x + placed.width / 2 <= found.width
        assert placed.y - BOX_HEIGHT / 2 >= 0 and placed.y + BOX_HEIGHT / 2 <= found.height


@given(ARROWS)
def test_each_arrow_leads_down_or_back_when_any_graph_is_laid_out(arrows: list[Arrow]) -> None:
    found = layout(BOXES, arrows)
    assert {route.arrow for route in found.routes} == set(arrows)
    for route in found.routes:
        if not route.is_back:
            heights = [y for _, y in route.points]
            assert heights == sorted(heights)
    without_back = {(r.arrow.source, r.arrow.target) for r in found.routes if not r.is_back}
    assert all(source != target for source, target in without_back)


def test_an_arrow_to_no_box_is_an_error_when_it_is_laid_out() -> None:
    with pytest.raises(KeyError):
        layout(BOXES, [Arrow("0", "absent")])


@given(st.text())
def test_the_svg_is_xml_when_texts_hold_anything(text: str) -> None:
    box = Box("1", text, text, text, mark=text)
    root = ElementTree.fromstring(to_svg(layout([box], [Arrow("1", "1", label=text)]), text))
    assert root.tag.endswith("svg")


class Drawn(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*sales", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*out", Depot.disallow())
        mb = topologies.microbatch("mb")
        mb.pstate("$$all", PState.map_schema(str, int))
        mb.pstate("$$seen", PState.map_schema(str, int))
        block = (Block.explode_microbatch("*microbatch").out("*sale").each(Ops.EXPAND, "*sale").out("*u", "*n")
                 .hash_partition("*u").compound_agg("$$all", CompoundAgg.map("*u", Agg.sum("*n"))))  # fmt: skip
        (mb.source("*sales").out("*microbatch").batch_block(block)
           .explode_microbatch("*microbatch").out("*sale").each(Ops.EXPAND, "*sale").out("*u", "*n")
           .local_select("$$seen", Path.key("*u")).out("*s")
           .local_transform("$$seen", Path.key("*u").term_val("*n"))
           .depot_partition_append("*out", "*u"))  # fmt: skip


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_plan_shows_steps_and_stores_when_it_is_drawn() -> None:
    found = texts(picture(compile_topology(checked(record_module(Drawn())), "mb")))
    for expected in (
        "*sales", "*out", "$$all", "$$seen", "batch block", "aggregate", "hash_partition", "local_select($$seen)",
        "depot_partition_append(*out)", "*sale → *u, *n", "rows",
    ):  # fmt: skip
        assert expected in found, expected
    assert not any("'" in text or "~" in text.replace("*~", "") for text in found)
