"""A store that goes away and comes back: the runner says so, goes on by itself, and nothing is written elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from tidemill import InProcessCluster
from tidemill.values.errors import StoreUnavailable

HERE = Path(__file__).parent
SECONDS = 60


class Runner:
    """A real `tidemill run --json` whose lines are kept."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", "from tidemill.cli.main import app; app()", "run", "driven.py:Driven"]
        command += ["--store", url, "--engine", "local", "--json"]
        self.process = subprocess.Popen(
            command, cwd=HERE, env=os.environ.copy(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[dict[str, Any]] = []
        self.errors: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr or ()), daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(json.loads(line))

    def until(self, condition: Callable[[dict[str, Any]], object]) -> None:
        eventually(lambda: self.process.poll() is not None or any(map(condition, self.lines)), SECONDS)
        assert self.process.poll() is None, "".join(self.errors)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def away_and_back(
    store_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """What takes the store away, and what brings it back."""
    if store_url.startswith("file"):
        store, other = tmp_path / "store", tmp_path / "elsewhere"
        yield lambda: store.rename(other) and None, lambda: other.rename(store) and None
        return
    server = request.getfixturevalue("minio_server")
    yield server.kill, server.start


def test_a_runner_goes_on_when_its_store_goes_away_and_comes_back(
    store_url: str, tmp_path: Path, away_and_back: tuple[Callable[[], None], Callable[[], None]]
) -> None:
    away, back = away_and_back
    runner = Runner(store_url)
    try:
        runner.until(lambda line: line["role"] == "leader")
        with InProcessCluster.create("local", store=store_url) as client:
            client.cluster_depot("Driven", "*records").append(1)
            runner.until(lambda line: line["processed"] == 1)
            away()
            runner.until(lambda line: line["trouble"])
            assert not (tmp_path / "store").exists()
            back()
            client.cluster_depot("Driven", "*records").append(1)
            runner.until(lambda line: line["processed"] == 2 and not line["trouble"])
    finally:
        runner.close()


def test_an_append_is_refused_when_the_folder_of_the_store_was_moved_away(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "elsewhere"
    with InProcessCluster.create("local", store=store) as cluster:
        depot = launched(cluster)
        store.rename(other)
        with pytest.raises(StoreUnavailable, match="is not there"):
            depot.append(1)
        assert not store.exists()
        store.mkdir()  # an empty mount point
        with pytest.raises(StoreUnavailable, match="another folder"):
            depot.append(1)
        assert list(store.iterdir()) == []
        store.rmdir()
        other.rename(store)
        depot.append(1)
        cluster.wait_for_microbatch_processed_count("Driven", "mb", 1)


def launched(cluster: InProcessCluster) -> Any:
    from driven import Driven

    from tidemill import LaunchConfig

    cluster.launch_module(Driven(), LaunchConfig(2, 1))
    return cluster.cluster_depot("Driven", "*records")
