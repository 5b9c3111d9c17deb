"""The main job: a year of flights, appended at full speed, while the module's own runner is killed once in the middle.

Starts two runners (`tidemill run`) on local Spark and a local folder: the second one stands by. When part of the
flights is processed, the first one is killed with `kill -9`; the second claims the topologies and goes on. At the end
every PState is compared with a direct Polars computation over the same files.
usage: python examples/flights/demo.py [--store FOLDER] [--engine local|spark]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rich.console import Console
from rich.live import Live
from rich.table import Table

from examples.flights import data, tables, truth
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import topology_status
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.options_log import OptionsLog
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import UnknownName

MODULE = "FlightsModule"
TOPOLOGIES = ("flights", "reference")
CHUNK_ROWS = 20_000
RECORDS_PER_PARTITION = 10_000
"""Small enough for several microbatches, so that there is a middle to be killed in."""

KILL_AFTER_ROWS = 100_000
STANDS_BY = ": standby,"
"""What a runner says once it has started and waits for its turn."""

SECONDS_MAX = 300
console = Console()


class Demo:
    """One run: its runners, its appender, and what a person sees of them."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder = folder
        self.engine = engine
        self.store: ObjectStore = open_store(f"file://{folder}")
        self.client = ModuleClient(self.store, MODULE)
        self.frames = {table: data.read(table) for table in data.TABLES}
        self.total = sum(frame.height for frame in self.frames.values())
        self.appended = 0
        self.runners: list[subprocess.Popen[bytes]] = []
        self.events: list[str] = []
        self.began = time.monotonic()

    # --- the parts of the job ----------------------------------------------------------------------------------------

    def start_runner(self) -> None:
        """`tidemill run` in a process of its own, its output in a file beside the store."""
        number = len(self.runners) + 1
        log = (self.folder.parent / f"runner-{number}.log").open("wb")
        command = [str(Path(sys.executable).with_name("tidemill")), "run", "examples.flights.module:FlightsModule"]
        options = ["--store", f"file://{self.folder}", "--engine", self.engine, "--tasks", "4", "--threads", "2"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.runners.append(subprocess.Popen([*command, *options], cwd=ROOT, stdout=log, stderr=log, env=environment))
        self.events.append(f"runner {number} started (process {self.runners[-1].pid})")

    def definition(self) -> StoredDefinition | None:
        try:
            return self.client.definition()
        except UnknownName:
            return None

    def append_all(self) -> None:
        """Everything, as fast as the depots take it; does not know or care whether a runner is alive."""
        for table, frame in self.frames.items():
            depot = DepotHandle(self.client, f"*{table}")
            for start in range(0, frame.height, CHUNK_ROWS):
                piece = frame.slice(start, CHUNK_ROWS)
                depot.append_many(piece)
                self.appended += piece.height

    def statuses(self, definition: StoredDefinition) -> dict[str, TopologyStatus]:
        return {name: topology_status(self.store, definition, name) for name in TOPOLOGIES}

    def kill_leader(self, status: TopologyStatus) -> None:
        """A real kill -9 of the runner that leads, Spark and all, in the middle of a microbatch."""
        victim = self.runners[0]
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        under_way = status.under_way or (status.microbatch_id, status.version)
        what = f"microbatch {under_way[0]} version {under_way[1]} under way"
        self.events.append(f"kill -9 of runner 1 at {status.processed:,} flights, {what}")

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until every record is processed.

        Raises:
            SystemExit: it takes longer than SECONDS_MAX, or a runner ends by itself.
        """
        self.start_runner()
        self.wait_for_claims()
        self.start_runner()
        self.wait_for_standby()
        options = OptionsLog(self.store, MODULE)
        options.set("depot", "*flights", "depot.microbatch.max.records", RECORDS_PER_PARTITION)
        appender = threading.Thread(target=self.append_all, daemon=True)
        appender.start()
        definition = self.client.definition()
        is_killed = False
        with Live(console=console, refresh_per_second=5, transient=False) as live:
            while True:
                now = self.statuses(definition)
                live.update(self.picture(now))
                flights = now["flights"]
                if not is_killed and flights.processed >= KILL_AFTER_ROWS:
                    self.kill_leader(flights)
                    is_killed = True
                if self.is_done(now):
                    break
                self.check_alive(is_killed)
                time.sleep(0.1)
        if not is_killed:
            raise SystemExit("The runner was done before it could be killed: this demo proved nothing.")

    def wait_for_claims(self) -> None:
        with console.status("Starting Spark and the module ..."):
            while True:
                definition = self.definition()
                if definition is not None and all(status.entry for status in self.statuses(definition).values()):
                    return
                self.check_alive(False)
                time.sleep(0.1)

    def wait_for_standby(self) -> None:
        """The second runner has started all it needs to take over: what follows its death of the first is no start."""
        with console.status("Starting a second runner, which stands by ..."):
            while STANDS_BY not in (self.folder.parent / "runner-2.log").read_text(errors="replace"):
                self.check_alive(False)
                time.sleep(0.1)

    def is_done(self, now: dict[str, TopologyStatus]) -> bool:
        return sum(status.processed for status in now.values()) >= self.total

    def check_alive(self, is_killed: bool) -> None:
        for number, runner in enumerate(self.runners, start=1):
            if runner.poll() is not None and not (is_killed and number == 1):
                text = (self.folder.parent / f"runner-{number}.log").read_text(errors="replace")[-3000:]
                raise SystemExit(f"Runner {number} ended by itself ({runner.returncode}):\n{text}")
        if time.monotonic() - self.began > SECONDS_MAX:
            raise SystemExit(f"Not done after {SECONDS_MAX} s; see runner-*.log in {self.folder.parent}")

    def picture(self, now: dict[str, TopologyStatus]) -> Table:
        """What is going on, in one table."""
        seconds = time.monotonic() - self.began
        table = Table(title=f"{self.appended:,} of {self.total:,} records appended, {seconds:.0f} s", min_width=90)
        for column in ("topology", "processed", "microbatch", "version", "leader's epoch", "rows/s"):
            table.add_column(column, justify="left" if column == "topology" else "right")
        for name, status in now.items():
            ids = (str(status.microbatch_id), str(status.version), str(status.epoch))
            table.add_row(name, f"{status.processed:,}", *ids, f"{status.rows_per_second:,.0f}")
        table.caption = "\n".join(self.events)
        return table

    def stop(self) -> None:
        for runner in self.runners:
            if runner.poll() is None:
                runner.terminate()
        for runner in self.runners:
            runner.wait(timeout=60)


def compare(client: ModuleClient) -> bool:
    """Every PState against the truth; prints a line for each."""
    table = Table(title="PStates compared with Polars over the same files")
    for column in ("PState", "elements", "equal"):
        table.add_column(column)
    is_equal = True
    for name, expected in truth.compute().items():
        actual = tables.content(PStateHandle(client, name), client.definition().tasks)
        matches = actual == expected
        is_equal &= matches
        table.add_row(name, f"{tables.size(actual):,}", "[green]yes" if matches else "[red]NO")
    console.print(table)
    return is_equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="demo-data/store", help="a folder; what is in it is removed first")
    parser.add_argument("--engine", default="spark", choices=("spark", "local"))
    arguments = parser.parse_args()
    folder = Path(arguments.store).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    demo = Demo(folder, arguments.engine)
    try:
        demo.run()
    finally:
        demo.stop()
    seconds = time.monotonic() - demo.began
    tables.show(console, demo.client)
    is_equal = compare(demo.client)
    verdict = "every record counted exactly once" if is_equal else "[red]the results are WRONG[/red]"
    console.print(f"\n{demo.total:,} records in {seconds:.0f} s with one kill -9: {verdict}.\n")
    console.print("The store is still there. Look further with:")
    store = f"--store {os.path.relpath(folder)}"
    for command in tables.COMMANDS:
        console.print(f"  .venv/bin/tidemill {command} {store}", highlight=False, markup=False, soft_wrap=True)
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
