"""Calls in threads of their own, for clients of other systems that keep to no time that they are given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def in_thread(name: str, call: Callable[[], _T]) -> Future[_T]:
    """What a call comes to, in a thread that no end of the process waits for."""
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is asked for
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome
