"""What one select over HTTP may take: steps, results, bytes and time, counted while it navigates.

A path of a few hundred bytes can ask for more than any machine has (a `multiPath` in a `multiPath`, a text times a
billion), so its work itself stops here, rather than only the wait for it.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from tidemill.paths.containers import SCALARS
from tidemill.paths.nodes import Node
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath, BudgetExceeded, NotOneValue, NotSelectable, TidemillError

STEPS_MAX: Final = 1_000_000
"""Navigators that a select visits, each once for each value that it meets; each 8 elements that one looks through."""

RESULTS_MAX: Final = 100_000
"""Values that a select gives."""

BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of all values that a select makes, copies or gives, as they are held in memory."""

Bound = Literal["steps", "time", "results", "bytes"]
_RANGES = "Ask for ranges, one after the other"
_TEXTS: Final[dict[Bound, tuple[str, str]]] = {
    "steps": (f"visits more than {STEPS_MAX:,} places", "Ask for less, in several selects"),
    "time": ("takes longer than a request may", "Ask for less, in several selects"),
    "results": (f"gives more than {RESULTS_MAX:,} values", _RANGES),
    "bytes": (f"makes or gives more than {BYTES_MAX // 2**20} MB of values", _RANGES),
}
_ELEMENTS_PER_STEP = 8
_STEPS_PER_LOOK = 64
_CONTAINERS = (dict, list, tuple, set, frozenset)
_DATA = frozenset({type(None), bool, int, float, str, bytes, datetime.datetime, *_CONTAINERS})
_GROWING = frozenset({"TIMES", "TIMES_LONG"})
_WRONG = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
T = TypeVar("T")
Step = Callable[[Any, Sequence[Any], tuple[Any, ...]], Any]


def _never() -> bool:
    return False


@dataclass
class Budget:
    """What is left of one select's budget; used by one thread.

    `is_late` says whether its time is over. `first` is the number of the path's first navigator in what its writer
    wrote, and `at` the place of the navigator that was visited last: where an error happened.
    """

    is_late: Callable[[], bool] = _never
    steps: int = STEPS_MAX
    results: int = RESULTS_MAX
    bytes: int = BYTES_MAX
    first: int = 0
    at: str = "path"

    @staticmethod
    def boundless(first: int = 0) -> Budget:
        """For a reader on a machine of its own: nothing is bounded, but errors of functions are the path's."""
        return Budget(steps=sys.maxsize, results=sys.maxsize, bytes=sys.maxsize, first=first)

    def spend(self, steps: int = 1) -> None:
        """Count steps; looks at the time each so many of them.

        Raises:
            BudgetExceeded: too many, or too late.
        """
        before = self.steps // _STEPS_PER_LOOK
        self.steps -= steps
        if self.steps < 0 or before != self.steps // _STEPS_PER_LOOK:
            self._look()

    def _look(self) -> None:
        if self.steps < 0:
            raise self._exceeded("steps")
        if self.is_late():
            raise self._exceeded("time")

    def charge(self, value: Any) -> None:
        """Count the bytes of a value with all that is in it, each time that it is in it.

        Raises:
            BudgetExceeded: too many.
            BadPath: something in it is no data.
        """
        if type(value) in SCALARS:
            self._take(sys.getsizeof(value))
            return
        left = [value]
        while left:
            item = left.pop()
            kind = type(item)
            self._take(sys.getsizeof(item))
            if kind in _CONTAINERS:
                self.spend(1 + len(item) // _ELEMENTS_PER_STEP)
            if kind is dict:
                left.extend(item.keys())
                left.extend(item.values())
            elif kind in _CONTAINERS:
                left.extend(item)
            elif kind not in _DATA and item is not ABSENT and not isinstance(item, Node):
                self._met_strange(kind)

    def result(self, value: Any, collected: Sequence[Any]) -> None:
        """Count a result. Raises BudgetExceeded."""
        self.results -= 1
        if self.results < 0:
            raise self._exceeded("results")
        self.charge(value)
        for item in collected:
            self.charge(item)

    def metered(self, items: Iterable[T]) -> Iterator[T]:
        """The items, each counted when it is taken."""
        for item in items:
            self.spend()
            self.charge(item)
            yield item

    @contextmanager
    def placed(self) -> Iterator[None]:
        """What goes wrong in the path says where."""
        try:
            yield
        except (BadPath, NotSelectable, NotOneValue) as error:
            error.context.setdefault("at", self.at)
            raise
        except RecursionError as error:
            raise BadPath(
                f"at {self.at}: the path, or a value that it makes, is nested too deep", at=self.at
            ) from error

    # --- what is built into a path ---

    def stepping(self, at: str, step: Step, *, copies: bool, looks_through: bool) -> Step:
        """The step of a navigator, counted at each visit, with the copies that it makes and the elements that it looks
        through.
        """

        def visited(value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Any:
            self.at = at
            self.steps = left = self.steps - 1
            if left < 0 or left % _STEPS_PER_LOOK == _STEPS_PER_LOOK - 1:
                self._look()
            return step(value, values, collected)

        def counted(value: Any, values: Sequence[Any], collected: tuple[Any, ...]) -> Any:
            self.at = at
            is_long = looks_through and isinstance(value, _CONTAINERS)
            self.spend(1 + len(value) // _ELEMENTS_PER_STEP if is_long else 1)
            if copies:
                self.charge(value)
                for item in collected:
                    self.charge(item)
            return step(value, values, collected)

        return counted if copies or looks_through else visited

    def calling(self, name: str, call: Callable[..., Any], at: str) -> Callable[..., Any]:
        """A built-in function whose result is counted, and whose errors are the path's.

        Raises (when called):
            BadPath: it does not take such values.
        """

        def called(*args: Any) -> Any:
            try:
                self._check_growth(name, args)
                made = call(*args)
            except TidemillError:
                raise
            except _WRONG as error:
                kinds = ", ".join(type(arg).__name__ for arg in args)
                text = f"at {at}: {name} cannot be called with ({kinds}): {error}"
                raise BadPath(text, at=at, function=name) from error
            self.at = at
            self.charge(made)
            return made

        return called

    def _check_growth(self, name: str, args: Sequence[Any]) -> None:
        """Results that are far larger than what they are made from are counted before they are made."""
        held = sum(sys.getsizeof(arg) for arg in args if isinstance(arg, (str, bytes, list, tuple)))
        if name in _GROWING and held:
            for number in args:
                held *= max(1, abs(number)) if isinstance(number, int) else 1
        elif name == "PLUS":
            held *= len(args)
        elif name == "MOD" and isinstance(args[0], (str, bytes)):
            raise BadPath(f"MOD is of numbers, not of a {type(args[0]).__name__}", function=name)
        self._take(held)

    def _take(self, size: int) -> None:
        self.bytes -= size
        if self.bytes < 0:
            raise self._exceeded("bytes")

    def _met_strange(self, kind: type) -> None:
        raise BadPath(f"at {self.at}: a {kind.__name__} is no data that could be an answer", at=self.at)

    def _exceeded(self, bound: Bound) -> BudgetExceeded:
        text, advice = _TEXTS[bound]
        return BudgetExceeded(f"at {self.at}: the path {text}. {advice}.", at=self.at)
