"""What each built-in operation says of itself: there for all, and true."""

from __future__ import annotations

import pytest

from tidemill import Ops
from tidemill.language.operation_texts import TEXTS
from tidemill.language.operations import ALL_OPS


def test_each_operation_has_a_text_when_all_are_listed() -> None:
    assert set(TEXTS) == set(ALL_OPS)
    assert [name for name, operation in ALL_OPS.items() if operation.__doc__ != TEXTS[name].says] == []


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if text.example])
def test_an_example_is_true_when_it_is_called(name: str) -> None:
    text = TEXTS[name]
    found = eval(text.example, vars(Ops) | {"__builtins__": {"int": int}})

    assert text.example.startswith(f"{name}(")
    assert repr(list(found) if ALL_OPS[name].emits == "many" else found) == text.result


def test_every_operation_that_can_be_called_has_an_example_when_texts_are_read() -> None:
    bare = {name for name, operation in ALL_OPS.items() if operation.needs_context} | {"PRINTLN"}

    assert {name for name, text in TEXTS.items() if not text.example} == bare
