"""The code of the guide to appends runs, and does what the guide says."""

from __future__ import annotations

from pathlib import Path

from guide_code import names_of

from tidemill.api.declaration import record_module
from tidemill.leader import publication
from tidemill.plan.check.module import check
from tidemill.plan.warn import warnings_of

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "appends.md"


def test_the_code_of_the_guide_to_appends_runs() -> None:
    names = names_of(GUIDE)

    assert names["total"] == 5
    declaration = record_module(names["Orders"]())
    assert (check(declaration), warnings_of(declaration)) == ([], [])


def test_the_guide_to_appends_names_the_bound_that_holds() -> None:
    assert f"goes on for {publication.MICROBATCHES_MAX} microbatches" in GUIDE.read_text(encoding="utf-8")
