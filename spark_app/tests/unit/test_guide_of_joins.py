"""The modules of docs/guide/joins.md run as they stand there, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from attempts import Attempts
from guide_code import names_of

from tidemill import Agg, Block, Ops
from tidemill import Path as StatePath
from tidemill.api.declaration import record_module
from tidemill.engine.joins import SLICE_ROWS
from tidemill.plan.check.module import check

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "joins.md"
PLACES = [(1, 1, False), (4, 2, True)]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's code defines, its blocks run one after the other."""
    return names_of(GUIDE)


def attempts(tmp_path: Path, module: Any, place: tuple[int, int, bool]) -> Attempts:
    assert check(record_module(module)) == []
    return Attempts(tmp_path, module, place[0], place[1], as_bytes=place[2])


@pytest.mark.parametrize("place", PLACES)
def test_orders_are_multiplied_with_offers(names: dict[str, Any], tmp_path: Path, place: Any) -> None:
    run = attempts(tmp_path, names["Orders"](), place)
    orders = [{"type": "order", "item": item, "count": count} for item, count in (("a", 2), ("a", 1), ("b", 5))]
    offers = [{"type": "offer", "item": item, "price": price} for item, price in (("a", 10), ("c", 7))]
    run.feed("*events", [*orders, *offers])
    run.attempt()

    assert dict(run.everywhere("$$spent", StatePath.all())) == {"a": 30}


@pytest.mark.parametrize("place", PLACES)
def test_visitors_without_a_name_stay_when_the_join_is_outer(names: dict[str, Any], tmp_path: Path, place: Any) -> None:
    run = attempts(tmp_path, names["Profiles"](), place)
    run.feed("*visits", ["u1", "u2", "u1"])
    run.attempt()

    assert dict(run.everywhere("$$seen", StatePath.all())) == {"u1": [None, None], "u2": [None]}


@pytest.mark.parametrize("place", PLACES)
def test_shares_add_up_when_aggregates_are_joined(names: dict[str, Any], tmp_path: Path, place: Any) -> None:
    run = attempts(tmp_path, names["Shares"](), place)
    run.feed("*sales", [["s", "x", 1], ["s", "y", 2], ["s", "x", 1], ["t", "x", 5]])
    run.attempt()

    assert dict(run.everywhere("$$shares", StatePath.all())) == {"s": {"x": 0.5, "y": 0.5}, "t": {"x": 1.0}}


@pytest.mark.parametrize("name", ["both"])
def test_merged_rows_are_those_that_the_page_says(names: dict[str, Any], tmp_path: Path, name: str) -> None:
    from test_joins import kept, module_of

    block = names[name].macro(kept("*v"))
    run = attempts(tmp_path, module_of(lambda mb: mb.source("*d").out("*mb").batch_block(block)), (4, 2, True))
    run.attempt()

    assert sorted(run.select("$$rows", StatePath.stay(), 0)[0]) == [[1], [2], [2], [3]]


def test_names_and_figures_of_the_page_exist() -> None:
    text = GUIDE.read_text(encoding="utf-8")

    assert f"{SLICE_ROWS:,} rows" in text
    for owner, label in ((Agg, "Agg"), (Ops, "Ops"), (StatePath, "Path"), (Block, "Block")):
        assert [name for name in re.findall(rf"\b{label}\.([A-Za-z_]+)", text) if not hasattr(owner, name)] == []
