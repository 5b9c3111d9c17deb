"""What an append with an idempotency key costs while the depot remembers many keys; one process, a local folder.

usage: python -m benchmarks.appends_by_key [remembered keys ...]      (prints one JSON object a line)
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tidemill.depot.append_identity import Producer
from tidemill.depot.commit import SegmentBatch
from tidemill.depot.log import DepotLog
from tidemill.depot.rows import of_pairs
from tidemill.store.local import LocalStore

APPENDS = 640
RECORD = of_pairs([(0, [{"a": 1}])])


def measure(keys: int) -> dict[str, float]:
    """CPU and wall time of an append of one record, alone in its segment, and the mean bytes of a segment."""
    with tempfile.TemporaryDirectory() as folder:
        depot = DepotLog(LocalStore(Path(folder)), "depot", 1)
        if keys:
            depot.append_group([SegmentBatch(RECORD, new_key()) for _ in range(keys)])
        cpu = time.process_time()
        seconds = [timed_append(depot, new_key() if keys else None) for _ in range(APPENDS)]
        cpu = time.process_time() - cpu
        sizes = [path.stat().st_size for path in sorted((Path(folder) / "depot" / "log").glob("*.arrow"))[1:]]
    return {
        "keys": keys,
        "cpu_ms": round(1000 * cpu / APPENDS, 2),
        "p50_ms": round(1000 * statistics.median(seconds), 2),
        "p99_ms": round(1000 * statistics.quantiles(seconds, n=100)[98], 2),
        "segment_bytes": round(statistics.mean(sizes)),
    }


def new_key() -> Producer:
    return Producer(f"key/{uuid.uuid4()}", 0, "0123456789abcdef")


def timed_append(depot: DepotLog, producer: Producer | None) -> float:
    start = time.perf_counter()
    depot.append_group([SegmentBatch(RECORD, producer)])
    return time.perf_counter() - start


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ("0", "256", "4096", "16384")):
        print(json.dumps(measure(count)))
