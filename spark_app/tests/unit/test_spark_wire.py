from __future__ import annotations

import threading

import pytest

from tidemill.engine.report import StepReport
from tidemill.spark import wire
from tidemill.values import errors


def raised(error: BaseException) -> BaseException:
    """What the driver raises for what a task raised, after the way through bytes."""
    control = wire.unpack_control(wire.pack_control(wire.pack_failure(error)))
    with pytest.raises(Exception) as caught:
        wire.raise_failure(control)
    return caught.value


def test_controls_and_payloads_are_told_apart_when_read() -> None:
    report = StepReport({0: 3}, (), frozenset({"words"}))

    inbox = wire.read_inbox([b"", b"one", wire.pack_control(report), b"two"])

    assert inbox.payloads == [b"one", b"two"]
    assert inbox.controls == [report]
    assert inbox.failure is None


def test_a_user_error_keeps_all_it_carries_when_raised_again() -> None:
    error = raised(errors.UserCodeError("boom", step="each f", trace="line 3", sample="x=1"))

    assert isinstance(error, errors.UserCodeError)
    assert (str(error), error.step, error.trace, error.sample) == ("boom", "each f", "line 3", "x=1")


def test_a_user_error_keeps_its_texts_when_its_context_cannot_be_pickled() -> None:
    error = raised(errors.UserCodeError("boom", step="each f", sample="x=1", lock=threading.Lock()))

    assert isinstance(error, errors.UserCodeError)
    assert (str(error), error.step, error.sample) == ("boom", "each f", "x=1")


def test_any_of_our_errors_keeps_each_fact_that_can_be_pickled_when_another_cannot() -> None:
    class Mine(errors.UserCodeError):
        def __reduce__(self) -> str:
            raise RuntimeError("no")

    for kind in (errors.UserCodeError, errors.RecordRefused, errors.RetryableError, Mine):
        error = raised(kind("boom", index=3, ranges=[(0, 5)], lock=threading.Lock()))

        assert isinstance(error, errors.UserCodeError if kind is Mine else kind)
        assert (str(error), error.context) == ("boom", {"index": 3, "ranges": [(0, 5)]})


def test_an_error_becomes_text_when_it_cannot_be_pickled() -> None:
    class Odd(Exception):
        def __reduce__(self) -> str:
            raise RuntimeError("no")

    error = raised(Odd("odd"))

    assert isinstance(error, errors.InvariantViolation)
    assert str(error) == "Odd: odd"


def test_a_user_error_is_raised_when_a_function_ends_the_process() -> None:
    assert isinstance(raised(SystemExit(3)), errors.UserCodeError)
