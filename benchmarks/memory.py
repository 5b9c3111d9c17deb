"""Peak memory of this process and of those it started, from /proc (Linux)."""

from __future__ import annotations

import os
import re
from pathlib import Path


def _status(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def _number(name: str, status: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else 0


def peaks_mb() -> dict[str, float]:
    """The largest resident size so far: of this process (`driver`), of the JVM and of the largest Python worker."""
    statuses = {pid: _status(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    parents = {pid: str(_number("PPid", status)) for pid, status in statuses.items()}
    mine = str(os.getpid())

    def descends(pid: str) -> bool:
        while pid in parents and pid != "0":
            pid = parents[pid]
            if pid == mine:
                return True
        return False

    children = {pid: status for pid, status in statuses.items() if descends(pid)}
    java = [_number("VmHWM", s) for s in children.values() if s.startswith("Name:\tjava")]
    python = [_number("VmHWM", s) for s in children.values() if s.startswith("Name:\tpython")]
    kilobytes = {
        "driver": _number("VmHWM", statuses[mine]),
        "jvm": max(java, default=0),
        "worker": max(python, default=0),
    }
    return {name: round(size / 1024, 1) for name, size in kilobytes.items()}
