"""The processes of a soak: MinIO, a runner that is killed, a gateway; and what each of them holds."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minio
import urllib3

ROOT = Path(__file__).resolve().parent.parent
USER, PASSWORD, BUCKET = "tidemill", "tidemill-secret", "soak"
OPEN_FILES_MAX = 1_024
START_SECONDS = 120.0


@dataclass(frozen=True)
class Held:
    """What a process holds: megabytes, open files, and files of the store or the cache that are mapped."""

    megabytes: float
    files: int
    maps: int


def held_by(pid: int) -> Held | None:
    """None where the process is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        status = (folder / "status").read_text()
        maps = sum(1 for line in (folder / "maps").read_text().splitlines() if ".columns" in line or ".zip" in line)
        files = len(list((folder / "fd").iterdir()))
        return Held(int(status.split("VmRSS:")[1].split()[0]) / 1024, files, maps)
    except (OSError, IndexError):
        return None


def until(condition: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
    """Raises SystemExit where the condition does not come true in time."""
    end, pace = time.monotonic() + seconds, threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"The soak failed: {what}, not within {seconds:.0f} s.")
        pace.wait(0.1)


class Minio:
    """A server with an empty bucket; its credentials are in this process's environment."""

    def __init__(self, folder: Path) -> None:
        found = subprocess.run([str(ROOT / "scripts" / "minio.sh")], capture_output=True, text=True, check=True)
        data = folder / "minio"
        data.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        os.environ.update(AWS_ACCESS_KEY_ID=USER, AWS_SECRET_ACCESS_KEY=PASSWORD, AWS_REGION="us-east-1")
        environment = os.environ | {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
        command = [found.stdout.strip(), "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(data)]
        with open(folder / "minio.log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        until(self._is_ready, "MinIO started")
        # It is ready a moment before it makes buckets, and then asks to come again in a minute.
        again = urllib3.Retry(
            100, backoff_factor=0.05, backoff_max=0.2, respect_retry_after_header=False, status_forcelist=[503]
        )
        http = urllib3.PoolManager(retries=again)
        self._client = minio.Minio(f"127.0.0.1:{self.port}", USER, PASSWORD, secure=False, http_client=http)
        self._client.make_bucket(BUCKET)

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/minio/health/ready", timeout=1).close()
            return True
        except (urllib.error.URLError, OSError):
            return False

    def objects(self) -> int:
        """How many objects the bucket holds."""
        return sum(1 for _ in self._client.list_objects(BUCKET, recursive=True))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Tidemill:
    """`tidemill` as a process of its own, whose lines of JSON are kept; its errors go to a file."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._folder, self._name, self._arguments = folder, name, arguments
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.said: list[dict[str, Any]] = []
        command = [sys.executable, "-c", "from tidemill.cli.main import app; app()", *self._arguments]
        with open(self._folder / f"{self._name}.log", "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=_limit_files
            )
        threading.Thread(target=self._read, args=(self.process, self.said), daemon=True).start()

    def _read(self, process: subprocess.Popen[str], said: list[dict[str, Any]]) -> None:
        for line in process.stdout or ():
            said.append(json.loads(line))
            del said[:-50]

    def kill(self) -> None:
        """As a machine dies: SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            log = (self._folder / f"{self._name}.log").read_text()[-3_000:]
            raise SystemExit(f"The soak failed: {self._name} ended with {self.process.returncode}.\n{log}")

    def held(self) -> Held | None:
        return held_by(self.process.pid)


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_MAX, OPEN_FILES_MAX))


def once(*arguments: str) -> str:
    """The output of one command; SystemExit where it failed."""
    command = [sys.executable, "-c", "from tidemill.cli.main import app; app()", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"The soak failed: tidemill {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout
