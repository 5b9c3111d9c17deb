"""Whose fault an error in a step is."""

from __future__ import annotations

import pytest

from tidemill.engine.failures import user_error
from tidemill.language.dataflow import Location
from tidemill.store.objects import NotFound
from tidemill.values.errors import CorruptState, NewerFormat, SnapshotExpired, StoreUnavailable, UserCodeError


@pytest.mark.parametrize("kind", [CorruptState, NewerFormat, SnapshotExpired, StoreUnavailable, NotFound])
def test_error_passes_as_it_is_when_state_cannot_be_read(kind: type[Exception]) -> None:
    error = kind("deltas/1.zip does not match its checksum")
    assert user_error(error, "local_select($$s)", Location(), None) is error


def test_error_names_its_step_when_a_function_of_the_module_raised() -> None:
    found = user_error(ValueError("no"), "each(f)", Location("m.py", 3), {"*k": 1})
    assert isinstance(found, UserCodeError)
    assert "each(f) at m.py:3 raised ValueError: no (record: *k=1)" in str(found)


def test_a_default_is_advised_when_a_step_met_none() -> None:
    error = TypeError("unsupported operand type(s) for +: 'NoneType' and 'int'")
    found = str(user_error(error, "each(PLUS)", Location("m.py", 3), {"*n": None}))
    assert "'NoneType' and 'int'. A value is None, as one is that a path does not find: give a default" in found
    assert "A value is None" not in str(user_error(TypeError("no"), "each(PLUS)", Location("m.py", 3), None))
