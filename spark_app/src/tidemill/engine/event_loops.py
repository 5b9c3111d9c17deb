"""Waits for what the functions of `each_async` return: one event loop for each thread and superstep, made when it is
first needed.

A fixed number of tasks takes the rows one after the other, so that a frame of any size holds few calls at once. When
one fails, the time is up or the attempt is cancelled, the others are cancelled and waited for before anything goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tidemill.language.dataflow import AsyncCall
from tidemill.values.errors import BadInput

R = TypeVar("R")
LOOK_SECONDS = 0.05
"""How often a wait looks whether the attempt was cancelled."""


class FailedCall(Exception):
    """A call failed; its cause is what it raised, `index` the number of its row."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Awaiting:
    """The event loop of one thread's superstep. `check_cancel` raises once the attempt's time is up."""

    def __init__(self, check_cancel: Callable[[], None], phase_seconds: float) -> None:
        self._check_cancel = check_cancel
        self._phase_seconds = phase_seconds
        self._runner: asyncio.Runner | None = None

    def results(self, call: Callable[..., Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """What the calls of an `AsyncCall` with these arguments give, in the order of the rows.

        Raises:
            FailedCall: one of them raised, or took too long.
            AttemptTimeout: the attempt was cancelled.
        """
        assert isinstance(call, AsyncCall)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return _beside_loop(self._runner.run, self._all(call, list(rows)))

    def close(self) -> None:
        """End the loop, if there is one."""
        runner, self._runner = self._runner, None
        if runner is not None:
            _beside_loop(runner.close)

    async def _all(self, call: AsyncCall, rows: list[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = [None] * len(rows)
        waiting = iter(enumerate(rows))
        seconds = min(call.timeout_seconds or self._phase_seconds, self._phase_seconds)
        count = min(call.concurrency, len(rows))
        tasks = [asyncio.ensure_future(_worker(call, waiting, results, seconds)) for _ in range(count)]
        pending = set(tasks)
        try:
            while pending:
                _, pending = await asyncio.wait(pending, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
                _raise_first(task for task in tasks if task not in pending)
                self._check_cancel()
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # so that each failure was looked at
        return results


def _raise_first(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Raises the failure of the first row, if tasks failed."""
    failures = [task.exception() if not task.cancelled() else asyncio.CancelledError() for task in tasks]
    found = [failure for failure in failures if failure is not None]
    if found:
        raise min(found, key=lambda failure: failure.index if isinstance(failure, FailedCall) else -1)


async def _worker(
    call: AsyncCall, waiting: Iterator[tuple[int, tuple[Any, ...]]], results: list[Any], seconds: float
) -> None:
    """Takes rows until there is none left."""
    for index, row in waiting:
        try:
            results[index] = await _within(seconds, call, row)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise FailedCall(index) from BadInput("somebody cancelled what it waits for")
        except Exception as error:
            raise FailedCall(index) from error


async def _within(seconds: float, call: AsyncCall, row: tuple[Any, ...]) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            result = await _awaitable(call(*row))
    except TimeoutError:
        if not limit.expired():
            raise
    if not limit.expired():
        return result
    raise TimeoutError(f"no result within {seconds:g} s")


def _beside_loop(function: Callable[..., R], *args: Any) -> R:
    """Calls a function that runs a loop; in a thread of its own where this one runs a loop already, as in a notebook
    or in a coroutine that calls a query.
    """
    if asyncio._get_running_loop() is None:
        return function(*args)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def _awaitable(returned: Any) -> Any:
    """What to await for the value of a call."""
    if isinstance(returned, Future):
        return asyncio.wrap_future(returned)
    if hasattr(returned, "__await__"):
        return returned
    raise BadInput(f"returned {type(returned).__name__}, which cannot be awaited; use each for plain functions")
