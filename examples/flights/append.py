"""Appends all tables of a year of flights through a gateway, each record once however often it is run.

usage: TIDEMILL_TOKEN=… python -m examples.flights.append http://localhost:8080
"""

from __future__ import annotations

import sys
import time

from examples.flights import data
from tidemill.client import Client

MODULE = "FlightsModule"
CHUNK_ROWS = 20_000


def main(url: str) -> None:
    """Reads the tables and appends them in chunks; the name of each chunk makes a second run append nothing."""
    began, total = time.monotonic(), 0
    with Client(url) as client:
        for table in data.TABLES:
            frame, depot = data.read(table), client.depot(MODULE, f"*{table}")
            for number, start in enumerate(range(0, frame.height, CHUNK_ROWS)):
                depot.append_many(frame.slice(start, CHUNK_ROWS), producer=f"example-{table}", sequence=number)
            total += frame.height
            print(f"{table}: {frame.height:,} records")
    print(f"{total:,} records in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1])
