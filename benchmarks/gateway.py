"""Appends and selects over HTTP on a MinIO server: a gateway process, and clients that keep their connections.

usage: python -m benchmarks.gateway appends|acks|reads      (prints one JSON object)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import minio
import numpy as np

from benchmarks import modules, rows
from tidemill import LaunchConfig
from tidemill.cluster.launch import launch
from tidemill.local.runner import LocalRunner

ROOT = Path(__file__).resolve().parent.parent
USER, PASSWORD, BUCKET = "tidemill", "tidemill-secret", "bench"
SIZE = 1_000
CALLS = 1_000
CONNECTIONS = 4
ACKS = 300
READS = 2_000
KEYS = 100_000
MILLISECONDS = 1000.0
AT = "/api/v1/modules/KeyedCount"
TIDEMILL = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]


@contextmanager
def minio_store() -> Iterator[str]:
    """The URL of an empty bucket of a MinIO server of its own on loopback."""
    binary = subprocess.run([ROOT / "scripts" / "minio.sh"], capture_output=True, text=True, check=True).stdout.strip()
    os.environ.update(AWS_ACCESS_KEY_ID=USER, AWS_SECRET_ACCESS_KEY=PASSWORD, AWS_REGION="us-east-1")
    environment = os.environ | {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        port = 19_000 + os.getpid() % 1_000
        command = [binary, "server", "--quiet", "--address", f"127.0.0.1:{port}", folder]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(f"http://127.0.0.1:{port}/minio/health/ready")
            minio.Minio(f"127.0.0.1:{port}", USER, PASSWORD, secure=False).make_bucket(BUCKET)
            yield f"s3://{BUCKET}?endpoint=http://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def _wait_for(url: str) -> None:
    for _ in range(400):
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            threading.Event().wait(0.05)
    raise SystemExit(f"{url} does not answer")


@contextmanager
def gateway(store: str, *options: str) -> Iterator[tuple[int, str]]:
    """The process id and the URL of a gateway."""
    command = [*TIDEMILL, "gateway", "--store", store, "--port", "0", "--json", *options]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        yield served.pid, json.loads(served.stdout.readline())["url"]
    finally:
        served.terminate()
        served.wait()


def cpu_seconds(pid: int) -> float:
    """What a process has used of all cores so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def bodies() -> list[bytes]:
    """Batches of JSON lines."""
    batches = [rows.batch(seed, SIZE).to_dicts() for seed in range(20)]
    return ["".join(json.dumps(row) + "\n" for row in batch).encode() for batch in batches]


def _append(http: httpx.Client, body: bytes) -> float:
    start = time.perf_counter()
    response = http.post(f"{AT}/depots/rows/append", content=body, headers={"content-type": "application/x-ndjson"})
    if response.status_code != 200:
        raise SystemExit(response.text)
    return time.perf_counter() - start


def appends() -> dict[str, Any]:
    """Records a second of 1k-record batches of JSON lines from 4 connections, and per second of the gateway's CPU."""
    given = bodies()
    with minio_store() as store:
        launch(store, modules.KeyedCount(), LaunchConfig(4, 2), LocalRunner()).close()
        with gateway(store) as (pid, url):
            clients = [httpx.Client(base_url=url, timeout=60) for _ in range(CONNECTIONS)]
            for http in clients:
                _append(http, given[0])

            def load(http: httpx.Client) -> list[float]:
                return [_append(http, given[call % len(given)]) for call in range(CALLS // CONNECTIONS)]

            used, start = cpu_seconds(pid), time.perf_counter()
            with ThreadPoolExecutor(CONNECTIONS) as threads:
                seconds = [second for each in threads.map(load, clients) for second in each]
            wall, used = time.perf_counter() - start, cpu_seconds(pid) - used
    records = len(seconds) * SIZE
    return {
        "records_per_second": records / wall,
        "records_per_cpu_second": records / used,
        "p50_ms": statistics.median(seconds) * MILLISECONDS,
    }


def acks() -> dict[str, Any]:
    """From request to acknowledged, one append after the other: of one record, and of 1,000."""
    one, many = b'{"k": 1, "v": 2}\n', bodies()
    with minio_store() as store:
        launch(store, modules.KeyedCount(), LaunchConfig(4, 2), LocalRunner()).close()
        with gateway(store) as (_, url), httpx.Client(base_url=url, timeout=60) as http:
            for _ in range(20):
                _append(http, one)
            single = [_append(http, one) for _ in range(ACKS)]
            batches = [_append(http, many[call % len(many)]) for call in range(ACKS)]
    return {"one_record_p50_ms": _p50(single), "batch_p50_ms": _p50(batches)}


def reads() -> dict[str, Any]:
    """`selectOne` of one key among 100k, each with its freshness probe of the store."""
    keys = np.random.default_rng(5).integers(0, KEYS, READS).tolist()
    with minio_store() as store:
        running = launch(store, modules.KeyedCount(), LaunchConfig(4, 2), LocalRunner())
        try:
            with gateway(store) as (_, url), httpx.Client(base_url=url, timeout=60) as http:
                frame = rows.all_keys(KEYS)
                for start in range(0, KEYS, 50_000):
                    body = "".join(json.dumps(row) + "\n" for row in frame.slice(start, 50_000).to_dicts())
                    _append(http, body.encode())
                while http.get(f"{AT}/topologies/counts").json()["processed"] < KEYS:
                    threading.Event().wait(0.1)
                seconds = [_select(http, key) for key in keys][READS // 10 :]
        finally:
            running.close()
    return {"select_one_p50_ms": _p50(seconds), "select_one_p99_ms": float(np.percentile(seconds, 99)) * MILLISECONDS}


def _select(http: httpx.Client, key: int) -> float:
    start = time.perf_counter()
    response = http.post(f"{AT}/pstates/counts/selectOne", json={"path": [key]})
    if response.status_code != 200:
        raise SystemExit(response.text)
    return time.perf_counter() - start


def _p50(seconds: list[float]) -> float:
    return statistics.median(seconds) * MILLISECONDS


if __name__ == "__main__":
    print(json.dumps({"appends": appends, "acks": acks, "reads": reads}[sys.argv[1]]()))
