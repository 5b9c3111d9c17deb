"""Fixtures for every kind of test: a real MinIO server, stores of each kind, and one SparkContext for all of them.

A property that fails says so within the time that a test has: its first fault is made smaller for SHRINK_SECONDS_MAX,
then printed with the line that repeats it (`@reproduce_failure`). Examples are drawn anew in each run.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import minio
import pytest
import urllib3
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine as hypothesis_engine

from tidemill.spark import placement
from tidemill.spark.session import Session, shared_session, stop_shared_session
from tidemill.spark.settings import SparkSettings
from tidemill.store import lease

if TYPE_CHECKING:
    from kafka_broker import KafkaBroker
    from postgres_process import PostgresProcess

SCRIPT = Path(__file__).parents[2] / "scripts" / "minio.sh"
USER, PASSWORD = "tidemill", "tidemill-secret"
BUCKET = "tidemill"
START_SECONDS_MAX = 30
SHRINK_SECONDS_MAX = 30

# A busy machine is slow: no property fails for that.
PROPERTIES = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
    print_blob=True,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink),
)
settings.register_profile("tidemill", PROPERTIES)
settings.load_profile("tidemill")
# There is no setting for it, and with its 300 seconds a test may pass its timeout, which would end it without a word.
assert hypothesis_engine.MAX_SHRINKING_SECONDS > SHRINK_SECONDS_MAX
hypothesis_engine.MAX_SHRINKING_SECONDS = SHRINK_SECONDS_MAX


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes take the files in an order that mixes the folders: files that wait beside files that compute,
    and not a browser in each of them. The same order each time.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: zlib.crc32(item.nodeid.partition("::")[0].encode()))


class MinioServer:
    """A MinIO server on a free loopback port; `kill` and `start` let a test take it away and bring it back."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.binary = binary
        self.folder = folder
        self.port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
        command = [self.binary, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(self.folder)]
        with open(self.folder.parent / "minio.log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._wait_until_ready()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        for _ in range(START_SECONDS_MAX * 20):
            if self.process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{self.endpoint}/minio/health/ready", timeout=1).close()
                return
            except (urllib.error.URLError, OSError):
                threading.Event().wait(0.05)
        raise RuntimeError(f"MinIO did not start; see {self.folder.parent / 'minio.log'}")


def _use_credentials() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID=USER, AWS_SECRET_ACCESS_KEY=PASSWORD, AWS_REGION="us-east-1")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Decoded parts are kept here, also by the processes that tests start, and not in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def young_objects() -> None:
    """The collector of garbage looks only at objects of the test file under way.

    A process that has run many files holds millions that stay. Looking at all of them took a second each time, and a
    test that makes many objects ten times as long.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3 the lease of a leader that died ends after two seconds, and not after ten: for tests that kill many."""
    monkeypatch.setattr(lease.HeartbeatLease.__init__, "__defaults__", (2_000,))
    monkeypatch.setattr(lease.HeartbeatLease, "pace", lease.LeasePace(renew_ms=600, claim_wait_ms=600))


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """A running server with an empty bucket; its credentials are in the environment."""
    found = subprocess.run([str(SCRIPT)], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.fail(found.stderr.strip().splitlines()[-1], pytrace=False)
    folder = tmp_path_factory.mktemp("minio") / "data"
    folder.mkdir()
    _use_credentials()
    server = MinioServer(found.stdout.strip(), folder)
    server.start()
    # It is ready a moment before it makes buckets, and then asks to come again in a minute.
    again = urllib3.Retry(
        100, backoff_factor=0.05, backoff_max=0.2, respect_retry_after_header=False, status_forcelist=[503]
    )
    client = minio.Minio(
        f"127.0.0.1:{server.port}", USER, PASSWORD, secure=False, http_client=urllib3.PoolManager(retries=again)
    )
    client.make_bucket(BUCKET)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def minio_url(minio_server: MinioServer) -> str:
    """An `s3://` URL on the running server; add a path of your own below the bucket with `s3_url`."""
    return f"s3://{BUCKET}?endpoint={minio_server.endpoint}"


@pytest.fixture
def s3_url(minio_url: str, request: pytest.FixtureRequest) -> str:
    """A URL whose prefix is this test's own."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid)
    return minio_url.replace(f"s3://{BUCKET}", f"s3://{BUCKET}/{name}")


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The same test on a local folder and on MinIO."""
    fixture = {"folder": "tmp_path", "s3": "s3_url"}[request.param]
    value = request.getfixturevalue(fixture)
    return value.as_uri() + "/store" if isinstance(value, Path) else value


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running broker of Apache Kafka."""
    from kafka_broker import KafkaBroker  # most sessions need no client of Kafka

    found = subprocess.run([str(SCRIPT.with_name("kafka.sh"))], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.fail(found.stderr.strip().splitlines()[-1], pytrace=False)
    broker = KafkaBroker(found.stdout.strip(), tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    """A running server of PostgreSQL."""
    from postgres_process import PostgresProcess  # most sessions need no client of PostgreSQL

    server = PostgresProcess()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def spark() -> Iterator[Session]:
    """One SparkContext for all tests that need Spark: starting one takes seconds."""
    _use_credentials()  # workers have the environment in which Spark was started
    yield shared_session(SparkSettings(master="local[2]"))
    stop_shared_session()


@pytest.fixture(
    params=[
        "local",
        pytest.param("fused", marks=pytest.mark.spark),
        pytest.param("spread", marks=pytest.mark.spark),
    ]
)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same test on each engine, and on Spark also with small microbatches spread over all threads."""
    if request.param == "local":
        return "local"
    request.getfixturevalue("spark")
    monkeypatch.setattr(placement, "FUSED_ROWS_MAX", -1 if request.param == "spread" else 1_000_000)
    return "spark"
