"""The code of the guide to writing modules is correct: it runs, and its modules have no fault."""

from __future__ import annotations

import re
from pathlib import Path

from guide_code import names_of

from tidemill import Agg, Module, Ops
from tidemill import Path as StatePath
from tidemill.api.block import Block
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import check

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "modules.md"


def test_modules_of_the_guide_have_no_fault() -> None:
    names = names_of(GUIDE)
    modules = [value for value in names.values() if isinstance(value, type) and issubclass(value, Module)]
    own = [module for module in modules if module is not Module]

    assert [module.__name__ for module in own] == ["Visits", "Words"]
    assert [check(record_module(module)) for module in own] == [[], []]


def test_names_in_the_guide_exist() -> None:
    text = GUIDE.read_text(encoding="utf-8")

    missing = [
        f"{owner.__name__}.{name}"
        for owner, label in ((Agg, "Agg"), (Ops, "Ops"), (StatePath, "Path"), (Block, "Block"))
        for name in re.findall(rf"\b{label}\.([A-Za-z_]+)", text)
        if not hasattr(owner, name)
    ]

    assert missing == []
