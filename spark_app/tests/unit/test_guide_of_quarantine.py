"""The page on poison records, told as a test: its example gives what it says, its bounds are those of the options."""

from __future__ import annotations

import re
from pathlib import Path

from guide_code import names_of

from tidemill.api.declaration import record_module
from tidemill.clients.quarantine import DECIDED_MAX
from tidemill.language.options import find_option
from tidemill.leader import attempt_failures
from tidemill.leader.diagnosis import PROBES_MAX
from tidemill.plan.check.module import check
from tidemill.plan.warn import warnings_of

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "quarantine.md"
TEXT = GUIDE.read_text(encoding="utf-8")


def test_the_example_gives_what_the_page_says_when_it_is_run() -> None:
    names = names_of(GUIDE)

    declaration = record_module(names["Orders"]())
    assert (check(declaration), warnings_of(declaration)) == ([], [])
    assert (names["sold"], sorted(names["held"])) == (2, ["no JSON", '{"item": "tea", "count": "many"}'])
    assert "each(loads)" in names["reason"] and "JSONDecodeError" in names["reason"]
    assert names["left"] == 0


def test_the_bounds_are_those_of_the_code_when_the_page_names_them() -> None:
    rows = re.findall(r"\| `(topology\.quarantine\.[a-z.]+)` \| ([0-9,]+)", TEXT)
    assert len(rows) == 3
    for name, value in rows:
        assert int(value.replace(",", "")) == find_option(name).default
    assert f"at most {PROBES_MAX}." in TEXT
    assert f"at most {DECIDED_MAX} records" in TEXT
    cut = (attempt_failures.TRACE_CHARS_MAX, attempt_failures.MESSAGE_CHARS_MAX, attempt_failures.SAMPLE_CHARS_MAX)
    assert "({:,}, {:,} and {:,} characters)".format(*cut) in TEXT
