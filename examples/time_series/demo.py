"""A hundred days of renders, and ranges of any length: `python examples/time_series/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.time_series.module import TimeSeries, cover
from tidemill import InProcessCluster, LaunchConfig, MockOutputCollector, Path

MINUTES_A_DAY = 1_440


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(TimeSeries(), LaunchConfig(4, 2))
        renders = cluster.cluster_depot("TimeSeries", "*renders")
        every_hour = range(0, 100 * MINUTES_A_DAY, 60)
        renders.append_many(
            [{"url": "/home", "at": minute * 60_000, "millis": 10 + minute % 7} for minute in every_hour]
        )
        cluster.wait_until_processed("TimeSeries")

        windows = cluster.cluster_pstate("TimeSeries", "$$windows")
        for bucket, window in windows.select(Path.key("/home", "30 days").all()):
            print(f"30 days from day {bucket * 30}: {window}")
        start, end = 5 * MINUTES_A_DAY + 90, 95 * MINUTES_A_DAY + 30
        print("90 days:", cluster.cluster_query("TimeSeries", "range").invoke("/home", start, end))
        for granularity, first, last in MockOutputCollector().run(cover, start, end).get_emits():
            print(f"  read {last - first} of {granularity}")


if __name__ == "__main__":
    main()
