"""What Spark itself must do for us: move opaque bytes, forget them, end code that hangs, and survive dead workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle

from tidemill.spark.session import Session, shared_session
from tidemill.spark.settings import SparkSettings
from tidemill.spark.worker import drain
from tidemill.values import errors

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests on their path


@dataclass
class SendToAll:
    threads: int
    payload: bytes = b""

    def __call__(self, thread: int, _records: Iterable[bytes]) -> Iterator[bytes]:
        for destination in range(self.threads):
            yield destination.to_bytes(8, "big")
            yield b"%d>%d" % (thread, destination) + self.payload


@dataclass
class NoteProcess:
    """Writes its process id to a file, then hangs where no signal from Python reaches it."""

    file: Path

    def __call__(self, _thread: int, _records: Iterable[bytes]) -> list[bytes]:
        self.file.write_text(str(os.getpid()))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        threading.Event().wait()
        return []


def gather(_thread: int, records: Iterable[bytes]) -> list[bytes]:
    return [b" ".join(sorted(bytes(record[:3]) + b"/%d" % len(record) for record in records))]


def process_of(_thread: int, records: Iterable[bytes]) -> list[bytes]:
    drain(records)
    threading.Event().wait(0.1)  # long enough that the other slot takes the other partition
    return [str(os.getpid()).encode()]


def shuffle_files(spark: Session) -> set[str]:
    return {name for _, _, names in os.walk(spark.folder) for name in names if name.startswith("shuffle_")}


def wait_for(file: Path) -> int:
    pace = threading.Event()
    for _ in range(1000):
        if file.exists() and file.read_text():
            return int(file.read_text())
        pace.wait(0.02)
    raise AssertionError("the worker did not start")


def is_gone(process: int) -> bool:
    pace = threading.Event()
    for _ in range(500):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        pace.wait(0.02)
    return False


def test_each_payload_arrives_where_it_was_sent_when_shuffled(spark: Session) -> None:
    stages = spark.stages
    stage = stages.shuffled(stages.python_stage(stages.base(3), SendToAll(3, b"x" * 1_000_000)), 3)

    assert stages.collect(stages.python_stage(stage, gather)) == [
        b"0>0/1000003 1>0/1000003 2>0/1000003",
        b"0>1/1000003 1>1/1000003 2>1/1000003",
        b"0>2/1000003 1>2/1000003 2>2/1000003",
    ]
    stages.forget(stage)


def test_only_named_partitions_are_computed_when_selected(spark: Session) -> None:
    stages = spark.stages
    stage = stages.shuffled(stages.python_stage(stages.base(2), SendToAll(4)), 4)

    assert sorted(stages.collect(stages.selected(stage, range(3, 4)))) == [b"0>3", b"1>3"]
    assert sorted(stages.collect(stages.selected(stage, range(2)))) == [b"0>0", b"0>1", b"1>0", b"1>1"]
    stages.forget(stage)


def test_shuffle_files_are_gone_when_forgotten(spark: Session) -> None:
    stages = spark.stages
    before = shuffle_files(spark)
    stage = stages.shuffled(stages.python_stage(stages.base(2), SendToAll(2)), 2)
    stages.collect(stage)
    written = shuffle_files(spark) - before
    assert written

    stages.forget(stage)

    pace = threading.Event()
    for _ in range(500):
        if not written & shuffle_files(spark):
            return
        pace.wait(0.01)
    raise AssertionError("shuffle files are still there")


def test_hanging_python_code_is_killed_when_its_jobs_are_cancelled(spark: Session, tmp_path: Path) -> None:
    stage = spark.stages.python_stage(spark.stages.base(1), NoteProcess(tmp_path / "process"))
    found: list[int] = []

    def cancel() -> None:
        found.append(wait_for(tmp_path / "process"))
        spark.cancel("hanging")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    spark.enter_group("hanging", "test")
    with pytest.raises(Py4JJavaError, match="cancelled"):
        spark.stages.collect(stage)
    canceller.join()

    assert is_gone(found[0])


def test_the_job_fails_at_once_when_a_python_worker_is_killed(spark: Session, tmp_path: Path) -> None:
    stage = spark.stages.python_stage(spark.stages.base(1), NoteProcess(tmp_path / "process"))
    killer = threading.Thread(target=lambda: os.kill(wait_for(tmp_path / "process"), signal.SIGKILL))
    killer.start()

    with pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
        spark.stages.collect(stage)
    killer.join()
    assert len(spark.stages.collect(spark.stages.python_stage(spark.stages.base(2), gather))) == 2


def test_workers_stay_when_their_tasks_are_done(spark: Session) -> None:
    stages = spark.stages
    spark.warm()
    warm = set(stages.collect(stages.python_stage(stages.base(2), process_of)))

    for _ in range(5):
        spark.warm()
        assert set(stages.collect(stages.python_stage(stages.base(2), process_of))) <= warm


def test_a_second_master_is_refused_when_spark_runs(spark: Session) -> None:
    assert shared_session(SparkSettings("local[2]")) is spark
    assert shared_session() is spark
    with pytest.raises(errors.BadInput, match=r"local\[2\] in this process already, local\[7\] was asked for"):
        shared_session(SparkSettings("local[7]"))


SEATED = """
import os, sys, tempfile
from tidemill.spark.jvm import Stages
from tidemill.spark.settings import worker_environment
from tidemill.spark.worker import drain
from pyspark import SparkConf, SparkContext

settings = {
    "spark.master": "local-cluster[2,1,1024]", "spark.app.name": "seats", "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.locality.wait": "0", "spark.local.dir": sys.argv[1],
}
context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(settings.items()))

def worker(_thread, records):
    drain(records)
    return [str(os.getpid()).encode()]

stages = Stages(context, sys.executable, worker_environment())
while len(stages.locations()) < 2:
    pass
for location in stages.locations():
    done = [stages.collect(stages.python_stage(stages.base_at(location), worker, worker=0))[0] for _ in range(6)]
    print(*{int(each) for each in done}, flush=True)
context.stop()
"""


def test_tasks_run_in_one_worker_of_the_executor_that_they_name_when_there_are_two(tmp_path: Path) -> None:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", SEATED, str(tmp_path)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    workers = [set(line.split()) for line in found.stdout.splitlines()]
    assert list(map(len, workers)) == [1, 1], found.stderr[-3000:]
    assert not workers[0] & workers[1]
