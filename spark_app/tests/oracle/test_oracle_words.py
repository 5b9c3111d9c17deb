"""Random programs use every word of the language, but for those that are named here."""

from __future__ import annotations

import re
from pathlib import Path as Folder

import pytest

from tidemill import Agg, Block, Ops, Path

TEXT = "".join(
    (Folder(__file__).parent / f"{name}.py").read_text()
    for name in ("oracle_words", "oracle_pstates", "oracle_programs")
)
UNUSED = {
    Block: {
        "execute",  # runs a block alone
        "faults",  # no word
        "fields",  # an EXPAND of a dict, by name
        "sample",  # a keep_true of a random number
        "ack_return",  # refused
        "yield_if_overtime",  # changes nothing
        "create",  # `Block` itself begins a block
    },
    Path: set(),
    Agg: set(),
    Ops: {
        "CLASS_OF",  # gives a type, which is no data
        "CURRENT_RANDOM_SOURCE", "RANDOM_UUID7",  # no two runs agree
        "MODULE_INSTANCE_INFO",  # tells how the engine runs
        "PRINTLN",  # shows the order of rows
        "SUM",  # PLUS of a list
    },
}  # fmt: skip


@pytest.mark.parametrize("words", [Block, Path, Agg, Ops])
def test_random_programs_use_each_word_when_it_is_not_named_as_unused(words: type) -> None:
    form = r"Ops\.{}\b" if words is Ops else r"\.{}\("
    known = {name for name in dir(words) if not name.startswith("_")}
    missing = {name for name in known if not re.search(form.format(name), TEXT)}
    assert missing <= UNUSED[words], sorted(missing - UNUSED[words])
