"""Real processes die in the middle of a microbatch on Spark: the runner, a Python worker, the store. Whoever reads
meanwhile sees whole microbatches only, and in the end each record counts once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger import Gate, Ledger, Ledgers, Reader, Transfers
from waiting import eventually

from tidemill import InProcessCluster, LaunchConfig
from tidemill.clients.history import topology_history
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader.check import check_module
from tidemill.store.urls import connect
from tidemill.values.errors import RetryableError

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
TASKS, THREADS = 4, 2


class Story:
    """A store with a ledger, its gate, a client and a reader that never stops looking."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.gate = Gate(folder / "gate")
        self.transfers = Transfers(7)
        self.client = InProcessCluster.create("local", store=url)
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, engine: str) -> subprocess.Popen[bytes]:
        """A real `tidemill run` in a process of its own."""
        command = [
            sys.executable,
            "-c",
            "from tidemill.cli.main import app; app()",
            "run",
            "ledger.py:Ledger",
            "--json",
        ]
        command += ["--store", self.url, "--tasks", str(TASKS), "--threads", str(THREADS), "--engine", engine]
        command += ["--master", "local[2]"] if engine == "spark" else []
        environment = {**os.environ, "LEDGER_GATE": str(self.gate.folder)}
        with open(self.gate.folder / f"stderr-{len(self.processes)}", "wb") as errors:
            process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        self.processes.append(process)
        return process

    def launch(self, check: Any = None) -> InProcessCluster:
        cluster = InProcessCluster.create("spark", store=self.url)
        cluster.launch_module(Ledger(self.gate, check), LaunchConfig(TASKS, THREADS))
        return cluster

    def append(self, count: int) -> None:
        self.client.cluster_depot("Ledger", "*transfers").append_many(self.transfers.make(count))

    def wait(self) -> None:
        count = len(self.transfers.made)
        self.client.wait_for_microbatch_processed_count("Ledger", "mb", count, 60_000)

    def hold_in_the_middle(self, count: int) -> int:
        """Append, and return the process that is in the middle of the microbatch."""
        self.gate.close()
        self.append(count)
        eventually(self.gate.arrived, 60)
        return self.gate.arrived()

    def finish(self, version_min: int) -> None:
        """Everything is there once, the last microbatch after some retries; `tidemill check` agrees."""
        self.wait()
        Ledgers(self.client).check(self.transfers)
        assert self.client.microbatch_state("Ledger", "mb")[1] >= version_min
        assert check_module(connect(self.url), "Ledger") == []

    def kinds(self) -> list[str]:
        store = connect(self.url)
        definition = DefinitionLog(store, "Ledger").newest()
        assert definition is not None
        return [line["kind"] for line in topology_history(store, definition, "mb")]

    def close(self) -> None:
        self.gate.open()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.client.close()


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    made = Story(tmp_path, (tmp_path / "store").as_uri())
    yield made
    made.close()


@pytest.fixture
def s3_story(tmp_path: Path, s3_url: str) -> Iterator[Story]:
    made = Story(tmp_path, s3_url)
    yield made
    made.close()


def is_launched(story: Story) -> bool:
    try:
        return DefinitionLog(connect(story.url), "Ledger").newest() is not None and bool(story.kinds())
    except RetryableError:
        return False


def test_each_record_counts_once_when_the_runner_is_killed_in_mid_microbatch(story: Story, spark: Any) -> None:
    runner = story.run("spark")
    eventually(lambda: is_launched(story), 60)
    with Reader(story.client) as reader:
        story.append(100)
        story.wait()
        story.hold_in_the_middle(300)
        runner.send_signal(signal.SIGKILL)
        assert runner.wait() == -signal.SIGKILL
        story.gate.open()
        with story.launch():
            story.finish(version_min=2)
    assert reader.states <= {0, 100, 400}


def test_attempt_starts_again_when_a_python_worker_is_killed_in_mid_microbatch(story: Story, spark: Any) -> None:
    with story.launch(), Reader(story.client) as reader:
        story.append(100)
        story.wait()
        worker = story.hold_in_the_middle(300)
        assert worker != os.getpid()
        os.kill(worker, signal.SIGKILL)
        story.gate.open()
        story.finish(version_min=2)
    assert reader.states <= {0, 100, 400}


@pytest.mark.s3
def test_each_record_counts_once_when_minio_is_killed_in_mid_microbatch(
    s3_story: Story, minio_server: Any, spark: Any
) -> None:
    with s3_story.launch() as cluster, Reader(s3_story.client) as reader:
        s3_story.append(100)
        s3_story.wait()
        s3_story.hold_in_the_middle(300)
        minio_server.kill()
        try:
            s3_story.gate.open()
            eventually(lambda: is_troubled(cluster), 180)  # reads are asked again for a while, one after another
        finally:
            minio_server.start()
        s3_story.finish(version_min=1)
    assert reader.states <= {0, 100, 400}


def is_troubled(cluster: InProcessCluster) -> bool:
    """Whether the store's absence reached the runner: its attempt failed, or its commit has no answer."""
    report = cluster._running["Ledger"].topologies["mb"].state.report
    return bool(report.store_trouble or report.failure)


def dislike_some(number: Any) -> Any:
    """Raises now and then, and never twice at the same place."""
    if random.SystemRandom().random() < 0.02:
        raise ValueError(f"transfer {number} is not liked this time")
    return number


def test_total_stays_when_functions_raise_at_random_and_runners_die(story: Story, spark: Any) -> None:
    failures = 0
    with story.launch(dislike_some) as first, Reader(story.client) as reader:
        for _ in range(3):
            story.append(60)
            story.wait()
            failures += story.client.microbatch_state("Ledger", "mb")[1] - 1
        story.append(60)
        first._running["Ledger"].kill()
        with story.launch(dislike_some):
            for _ in range(3):
                story.append(60)
                story.wait()
                failures += story.client.microbatch_state("Ledger", "mb")[1] - 1
            story.finish(version_min=1)
    assert failures > 0
    assert reader.looks > 10


@pytest.mark.s3
def test_a_zombie_never_commits_when_it_wakes_after_its_lease(s3_story: Story) -> None:
    """The leader sleeps in the middle of a microbatch until another one has committed it, and then goes on."""
    leader = s3_story.run("local")
    eventually(lambda: is_launched(s3_story), 60)
    with Reader(s3_story.client) as reader:
        s3_story.append(100)
        s3_story.wait()
        s3_story.hold_in_the_middle(300)
        leader.send_signal(signal.SIGSTOP)
        s3_story.gate.open()
        standby = InProcessCluster.create("local", store=s3_story.url)
        with standby:
            standby.launch_module(Ledger(s3_story.gate), LaunchConfig(TASKS, THREADS))
            s3_story.wait()
            assert s3_story.client.microbatch_state("Ledger", "mb") == (2, 2)
            leader.send_signal(signal.SIGCONT)
            assert leader.wait(60) != 0
            s3_story.append(50)
            s3_story.finish(version_min=1)
    assert "taken over" in (s3_story.gate.folder / "stderr-0").read_text()
    assert reader.states <= {0, 100, 400, 450}
    assert s3_story.kinds().count("claim") == 2
    assert s3_story.kinds().count("commit") == s3_story.client.microbatch_state("Ledger", "mb")[0]
