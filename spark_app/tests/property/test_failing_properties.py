"""A property that fails says so in time, and how to repeat it: by the settings that all properties share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine


class Fault(Exception):
    pass


def failure(calls: list[int]) -> Fault:
    """What a property fails with that has two faults; each call is counted."""

    @settings(database=None, derandomize=True)
    @given(st.lists(st.integers(min_value=0)))
    def is_small(values: list[int]) -> None:
        calls.append(sum(values))
        if sum(values) > 1_000:
            raise Fault
        assert len(values) < 5

    with pytest.raises((Fault, AssertionError)) as caught:
        is_small()
    return caught.value  # type: ignore[return-value]


def test_failure_tells_how_to_repeat_it_when_a_property_fails() -> None:
    notes = "".join(getattr(failure([]), "__notes__", ()))
    assert "Failing test case: is_small(" in notes
    assert "@reproduce_failure(" in notes


def test_shrinking_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.MAX_SHRINKING_SECONDS <= 30, "a tenth of the time that a test has"
    whole: list[int] = []
    failure(whole)
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", 0)
    short: list[int] = []
    failure(short)
    assert len(short) < len(whole)
