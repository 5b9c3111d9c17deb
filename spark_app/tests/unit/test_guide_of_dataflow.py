"""The examples of docs/guide/dataflow.md run as they stand there, and what they assert holds."""

from __future__ import annotations

import re
from pathlib import Path as Folder
from typing import Any

from guide_code import blocks_of, names_of

from tidemill import Block, Helpers, Ops, SubSource
from tidemill.api.calls import ASYNC_CONCURRENCY

GUIDE = Folder(__file__).resolve().parents[3] / "docs" / "guide" / "dataflow.md"


def test_examples_of_the_guide_hold_when_they_run_one_after_the_other(capsys: Any) -> None:
    text = GUIDE.read_text(encoding="utf-8")

    names_of(GUIDE)

    assert all("assert " in block for block in blocks_of(text))
    assert capsys.readouterr().out.splitlines() == ["odd: 1", "odd: 3"]
    assert f"`concurrency` at once ({ASYNC_CONCURRENCY})" in text


def test_names_of_the_dataflow_page_exist() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    owners = {"Block": Block, "Ops": Ops, "SubSource": SubSource, "Helpers": Helpers}

    missing = [
        f"{label}.{name}"
        for label, owner in owners.items()
        for name in re.findall(rf"\b{label}\.([A-Za-z_]+)", text)
        if not hasattr(owner, name)
    ]

    assert missing == []
