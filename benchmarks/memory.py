"""Peak memory of this process and of those it started, from /proc (Linux): what is the processes' own, without pages of
mapped files, which the system takes back when it needs memory.
"""

from __future__ import annotations

import os
import re
import threading
from itertools import count
from pathlib import Path
from types import TracebackType

SAMPLE_SECONDS = 0.05
SAMPLES_PER_LISTING = 20
KINDS = {"java": "jvm", "python": "worker"}


def _status(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def _number(name: str, status: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else 0


def descendants() -> list[str]:
    """The processes below this one."""
    parents = {pid: str(_number("PPid", _status(pid))) for pid in os.listdir("/proc") if pid.isdigit()}
    mine = str(os.getpid())

    def descends(pid: str) -> bool:
        while pid in parents and pid != "0":
            pid = parents[pid]
            if pid == mine:
                return True
        return False

    return [pid for pid in parents if descends(pid)]


def own_kilobytes(below: list[str]) -> dict[str, int]:
    """Anonymous memory now: of this process (`driver`), of the JVM, and of the largest Python worker, among `below`."""
    found = {"driver": _number("RssAnon", _status("self")), "jvm": 0, "worker": 0}
    for status in map(_status, below):
        kind = next((kind for name, kind in KINDS.items() if status.startswith(f"Name:\t{name}")), None)
        if kind is not None:
            found[kind] = max(found[kind], _number("RssAnon", status))
    return found


class Peaks:
    """Samples in the background between entering and leaving."""

    def __init__(self) -> None:
        self._peaks: dict[str, int] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        for sample in count():
            if self._is_over.wait(SAMPLE_SECONDS):
                return
            if sample % SAMPLES_PER_LISTING == 0:  # to read of all processes of the machine takes 7 % of a core
                below = descendants()
            for name, size in own_kilobytes(below).items():
                self._peaks[name] = max(self._peaks.get(name, 0), size)

    def megabytes(self) -> dict[str, float]:
        return {name: round(size / 1024, 1) for name, size in self._peaks.items()}
