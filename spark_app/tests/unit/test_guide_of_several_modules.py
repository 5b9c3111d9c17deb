"""The code of the guide to several modules runs, and does what the guide says."""

from __future__ import annotations

from pathlib import Path

from guide_code import names_of

from tidemill.api.declaration import record_module
from tidemill.language.options import resolve
from tidemill.plan.check.module import check
from tidemill.plan.warn import warnings_of

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "several-modules.md"


def test_the_code_of_the_guide_to_several_modules_runs() -> None:
    names = names_of(GUIDE)

    assert (names["seen"], names["told"], names["twice"]) == (2, 2, 14)
    for module in (names["Bank"](), names["Watch"](), names["Lender"](), names["Desk"]()):
        declaration = record_module(module)
        assert (check(declaration), warnings_of(declaration)) == ([], [])


def test_the_guide_to_several_modules_names_the_time_that_holds() -> None:
    assert "commits nothing for a week" in GUIDE.read_text(encoding="utf-8")
    assert resolve("depot.trim.coordinate.remote.seconds", {}) == 7 * 86_400
