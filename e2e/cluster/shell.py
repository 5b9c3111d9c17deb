"""Running programs and waiting for them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class ClusterError(Exception):
    """Something that the person at the keyboard must do; its text is one sentence that says what."""


def say(text: str) -> None:
    """Tells progress on stderr, so that stdout holds only what was asked for."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def run(*command: str | Path, text: str | None = None, seconds: float = 600) -> str:
    """The output of a program.

    Raises:
        ClusterError: the program failed; its last lines say why.
    """
    done = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip())[-1000:]
        raise ClusterError(f"{' '.join(str(part) for part in command)[:200]} failed: {why}")
    return done.stdout


def succeeds(*command: str | Path) -> bool:
    """Whether a program ends well; what it prints is dropped."""
    try:
        return subprocess.run([str(part) for part in command], capture_output=True, timeout=60).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def start(command: Sequence[str | Path], log: Path) -> int:
    """Starts a program that outlives this one, writing to `log`; its process id."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
        )
    return process.pid


def wait_until(what: str, condition: Callable[[], bool], seconds: float, pause: float = 0.1) -> None:
    """Returns once `condition` holds.

    Raises:
        ClusterError: it did not within `seconds`.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise ClusterError(f"Waited {seconds:g} s in vain until {what}.")
        threading.Event().wait(pause)
