"""Constant appends and constant reads, with a ledger of what must come out of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from e2e.harness import timeouts
from e2e.harness.waiting import WaitedInVain, until

KEYS = 8
BATCH_RECORDS = 10
FAILURES_MAX = 5_000


class Counted(Protocol):
    """What traffic needs of the `Counts` module behind a gateway."""

    def append(self, records: list[list[Any]], idempotency_key: str) -> None:
        """Returns when the records are durable."""
        ...

    def versions(self) -> dict[str, int]:
        """Records counted so far, by the revision that counted them."""
        ...

    def ids(self, key: str) -> dict[str, int]:
        """How often each id of a key was counted."""
        ...


@dataclass(frozen=True)
class Failure:
    """A request that failed, `at` seconds of the monotonic clock."""

    at: float
    error: str


@dataclass
class Ledger:
    """Which records were acknowledged: the truth beside the system."""

    acknowledged: dict[str, set[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, records: list[list[Any]]) -> None:
        """These are durable."""
        with self.lock:
            for key, record_id, _ in records:
                self.acknowledged.setdefault(key, set()).add(record_id)

    def count(self) -> int:
        """Records that must be counted."""
        with self.lock:
            return sum(len(ids) for ids in self.acknowledged.values())

    def differences(self, rows: Counted) -> dict[str, list[str]]:
        """What is lost, doubled, or was never acknowledged, by key and id; empty lists if rows equal the truth."""
        found: dict[str, list[str]] = {"lost": [], "doubled": [], "unknown": []}
        with self.lock:
            expected = {key: set(ids) for key, ids in self.acknowledged.items()}
        for key, ids in expected.items():
            counted = rows.ids(key)
            found["lost"] += [f"{key}/{each}" for each in sorted(ids - counted.keys())]
            found["unknown"] += [f"{key}/{each}" for each in sorted(counted.keys() - ids)]
            found["doubled"] += [f"{key}/{each} x{n}" for each, n in sorted(counted.items()) if n != 1]
        return found


class Appender:
    """Appends a small batch each `pace` seconds until it is stopped, and counts failures.

    A batch that failed is sent again with its idempotency key until its outcome is known, so nothing stays in doubt.
    """

    def __init__(self, rows: Counted, ledger: Ledger, pace: float = 0.1, milliseconds: int = 0) -> None:
        self._rows = rows
        self._ledger = ledger
        self._pace = pace
        self._milliseconds = milliseconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)
        self.failures: list[Failure] = []
        self.latencies: list[float] = []

    def __enter__(self) -> Appender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it; waits for the batch under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeouts.RECOVERY + timeouts.REQUEST)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            batch = [[f"k{i % KEYS}", f"a{number}-{i}", self._milliseconds] for i in range(BATCH_RECORDS)]
            self._append(batch, f"appender-{id(self)}-{number}")
            number += 1
            self._stop.wait(self._pace)

    def _append(self, batch: list[list[Any]], idempotency_key: str) -> None:
        end = time.monotonic() + timeouts.RECOVERY
        while time.monotonic() < end and len(self.failures) < FAILURES_MAX:
            begin = time.monotonic()
            try:
                self._rows.append(batch, idempotency_key)
            except Exception as error:  # noqa: BLE001 - each failed request is counted, whatever it is
                self.failures.append(Failure(begin, f"{type(error).__name__}: {error}"))
                threading.Event().wait(self._pace)
                continue
            self.latencies.append(time.monotonic() - begin)
            self._ledger.note(batch)
            return


@dataclass(frozen=True)
class Sight:
    """What one read saw."""

    at: float
    versions: dict[str, int]

    @property
    def total(self) -> int:
        """Records counted by then."""
        return sum(self.versions.values())


class Reader:
    """Reads the counts by revision again and again, counts failures, and keeps each change: commits, seen as rows."""

    def __init__(self, rows: Counted, pace: float = 0.03) -> None:
        self._rows = rows
        self._pace = pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self.failures: list[Failure] = []
        self.latencies: list[float] = []
        self.sights: list[Sight] = []
        self.reads = 0

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeouts.REQUEST * 2)

    def _run(self) -> None:
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                versions = self._rows.versions()
            except Exception as error:  # noqa: BLE001 - each failed request is counted, whatever it is
                self.failures.append(Failure(begin, f"{type(error).__name__}: {error}"))
                self._stop.wait(self._pace)
                continue
            now = time.monotonic()
            self.reads += 1
            self.latencies.append(now - begin)
            if not self.sights or versions != self.sights[-1].versions:
                self.sights.append(Sight(now, versions))
            self._stop.wait(self._pace)

    @property
    def total(self) -> int:
        """Records in the newest rows that were read."""
        return self.sights[-1].total if self.sights else 0

    def has_seen(self, total: int) -> bool:
        """Whether the newest rows have more than `total` records."""
        return self.total > total

    def never_went_back(self) -> bool:
        """Whether no reader saw fewer records than before: a commit is never taken back."""
        totals = [each.total for each in self.sights]
        return totals == sorted(totals)

    def first_commit_after(self, moment: float, seconds: float, settle: float = 0.5) -> float:
        """When rows first changed after `moment`; what was committed before it and seen late (`settle`) is no such.

        Raises:
            WaitedInVain: not within `seconds`.
        """

        def look() -> float | None:
            return next((each.at for each in list(self.sights) if each.at > moment + settle), None)

        return until("rows change again", look, seconds, pause=0.05) or 0.0

    def hand_over(self, old: str, new: str) -> tuple[float, float]:
        """(when the old revision's count last grew, when the new one's was first seen).

        Raises:
            WaitedInVain: no row tells of one of the two.
        """
        sights = list(self.sights)
        grown = [
            b.at for a, b in zip(sights, sights[1:], strict=False) if b.versions.get(old, 0) > a.versions.get(old, 0)
        ]
        first = next((each.at for each in sights if each.versions.get(new, 0)), None)
        if not grown or first is None:
            raise WaitedInVain(f"rows tell of both {old} and {new}: {sights[-1].versions if sights else {}}")
        return max(at for at in grown if at <= first), first

    def longest_pause(self, begin: float, end: float) -> float:
        """The longest time between two changes of rows in a span of time, its ends included."""
        moments = [begin, *(each.at for each in self.sights if begin < each.at < end), end]
        return max(b - a for a, b in zip(moments, moments[1:], strict=False))


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def assert_equals_truth(rows: Counted, ledger: Ledger, seconds: float = timeouts.CAUGHT_UP) -> None:
    """Waits until as many records are counted as were acknowledged, then compares each id.

    Raises:
        AssertionError: a record is lost, doubled, or never acknowledged.
    """
    wanted = ledger.count()
    until(f"{wanted} records are counted", lambda: sum(rows.versions().values()) >= wanted, seconds)
    differences = ledger.differences(rows)
    totals = Counter({kind: len(found) for kind, found in differences.items()})
    shown = {kind: found[:5] for kind, found in differences.items() if found}
    assert not +totals, f"{dict(totals)}: {shown}"
    assert sum(rows.versions().values()) == wanted, f"counted {rows.versions()}, acknowledged {wanted}"
