"""Clients of a gateway under test: some append, some read; each append counts once, however it is cut."""

from __future__ import annotations

import random
import threading
from collections import Counter

from soak.module import KEYS
from tidemill import Path
from tidemill.client import Client
from tidemill.values.errors import BadInput, OutcomeUnknown, RetryableError

BATCH = 50
APPENDERS, READERS = 2, 2
UNANSWERED_MAX = APPENDERS * BATCH
"""Records that may be appended, though nobody was told yet."""
PAUSE_SECONDS = 0.05
"""Between two calls of a client: microbatches stay small."""

_AGAIN = (RetryableError, OutcomeUnknown, TimeoutError, OSError)


class Load:
    """Appends and selects until `stop`; `appended` are the records that were acknowledged."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, retry_seconds=5)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.appended = 0
        self.sum = 0
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        made = [(self._append, i) for i in range(APPENDERS)] + [(self._read, i) for i in range(READERS)]
        self._threads = [threading.Thread(target=self._guard, args=each, daemon=True) for each in made]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends when every append that was begun is acknowledged."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def state(self) -> tuple[int, int]:
        """(sum of all counts, sum of all sums), of one entry each."""
        counts = self._client.pstate("Soaked", "$$counts").scan()
        sums = self._client.pstate("Soaked", "$$sums").scan(Path.map_vals())
        return sum(count for _, count in counts), sum(sum(found) for _, found in sums)

    def wait(self, seconds: float) -> None:
        self._client.wait_until_processed("Soaked", timeout_seconds=seconds)

    def set_option(self, name: str, value: object, **place: str) -> None:
        self._client.set_option("Soaked", name, value, **place)

    def _guard(self, work: object, number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001 - whatever ends a client is what the soak looks for
            self.faults.append(f"a client ended: {error!r}")

    def _append(self, number: int) -> None:
        depot = self._client.depot("Soaked", "*numbers")
        drawn, sequence = random.Random(number), 0
        while not self._over.wait(PAUSE_SECONDS):
            sequence += 1
            batch = [drawn.randrange(100 * KEYS) for _ in range(BATCH)]
            while True:  # the same name and number: it is appended once, whatever was cut
                try:
                    depot.append_many(batch, producer=f"soak-{number}", sequence=sequence)
                    break
                except _AGAIN:
                    self._count("append again")
            with self._lock:
                self.appended += BATCH
                self.sum += sum(batch)
                self.done["appends"] += 1

    def _read(self, number: int) -> None:
        counts, seen = self._client.pstate("Soaked", "$$counts"), Counter[int]()
        drawn = random.Random(100 + number)
        while not self._over.wait(PAUSE_SECONDS):
            key = drawn.randrange(KEYS)
            try:
                found = counts.select_one(Path.key(key)) or 0
            except _AGAIN:
                self._count("select again")
                continue
            except BadInput as error:
                self.faults.append(f"a select was refused: {error!r}")
                return
            if found < seen[key]:
                self.faults.append(f"a reader saw key {key} go back from {seen[key]} to {found}")
            seen[key] = found
            self._count("selects")

    def _count(self, what: str) -> None:
        with self._lock:
            self.done[what] += 1
