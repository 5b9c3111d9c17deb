"""A soak: small microbatches, one after the other, while the runner is killed and the store cuts, stalls and goes away.

Each backup that is made meanwhile is brought back beside the store, where it comes to all that was acknowledged before
it. At the end each acknowledged record counts once, `tidemill check` is clean, and in the second half, which leaves the
processes alone, neither memory nor open files nor objects grew. Prints a line for the table of docs/performance.md.
usage: python -m soak [--minutes N] [--seed N] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from soak.load import UNANSWERED_MAX, Load
from soak.processes import BUCKET, OPEN_FILES_MAX, Held, Minio, Tidemill, once, until
from soak.proxy import FlakyProxy

MODULE = "soak.module:Soaked"
KILL_SECONDS = (10.0, 40.0)
AWAY_SECONDS = (2.0, 6.0)
SAMPLE_SECONDS = 2.0
BACKUP_MINUTES = 10.0
GROWTH_SHARE, GROWTH_MEGABYTES, GROWTH_FILES, GROWTH_OBJECTS = 0.15, 25.0, 20, 500
CATCH_UP_SECONDS = 300.0


@dataclass(frozen=True)
class Sample:
    """One look at everything, `at` seconds after the start."""

    at: float
    runner: Held
    gateway: Held
    objects: int


class Soak:
    """One soak in a folder; `run` returns what was found wrong."""

    def __init__(self, folder: Path, minutes: float, seed: int, stack: ExitStack) -> None:
        self._folder, self._seconds = folder, 60 * minutes
        self._random = random.Random(seed)
        self._minio = Minio(folder)
        stack.callback(self._minio.close)
        self.proxy = FlakyProxy(self._minio.port, seed)
        stack.callback(self.proxy.close)
        self.url = f"s3://{BUCKET}/store?endpoint=http://127.0.0.1:{self.proxy.port}"
        # Behind the proxy: what only looks at the end must not be cut.
        self.quiet_url = f"s3://{BUCKET}/store?endpoint=http://127.0.0.1:{self._minio.port}"
        run = ("run", MODULE, "--store", self.url, "--engine", "local", "--tasks", "8", "--json")
        self.runner = Tidemill(folder, "runner", *run)
        stack.callback(self.runner.kill)
        until(lambda: self.runner.said or self.runner.check_alive(), "the runner leads")
        self.gateway = Tidemill(folder, "gateway", "gateway", "--store", self.url, "--port", "0", "--json")
        stack.callback(self.gateway.kill)
        until(lambda: self.gateway.said or self.gateway.check_alive(), "the gateway serves")
        self.load = Load(self.gateway.said[0]["url"])
        self.samples: list[Sample] = []
        self.backups = 0
        self.faults: list[str] = []
        self._quiet_at = 0.0
        self._over = threading.Event()

    def run(self) -> list[str]:
        self._set_options()
        started = time.monotonic()
        sampler = threading.Thread(target=self._sample, args=(started,), daemon=True)
        sampler.start()
        self._disturb(started + self._seconds / 2)
        self.load.wait(CATCH_UP_SECONDS)
        self._back_up()
        self._quiet_at = time.monotonic() - started
        self._watch(started + self._quiet_at + self._seconds / 2)
        self._over.set()
        sampler.join()
        self.load.stop()
        self.load.wait(CATCH_UP_SECONDS)
        return [*self.faults, *self.load.faults, *self._state_faults(), *self._growth_faults()]

    def _set_options(self) -> None:
        for name, value in (("store.collection.period.seconds", 2), ("store.snapshot.retention.seconds", 5)):
            self.load.set_option(name, value)
        self.load.set_option("depot.max.entries.per.partition", 1_000, depot="*numbers")

    # --- while it runs ---

    def _disturb(self, end: float) -> None:
        """Kill the runner and take the store away by turns, until the middle."""
        is_killed = False
        while (left := end - time.monotonic()) > 0:
            self._over.wait(min(left, self._random.uniform(*KILL_SECONDS)))
            self.gateway.check_alive()
            self.runner.check_alive()
            is_killed = not is_killed
            if is_killed:
                self.runner.kill()
                self.runner.start()
            else:
                self.proxy.away(self._random.uniform(*AWAY_SECONDS))

    def _watch(self, end: float) -> None:
        again = time.monotonic() + 60 * BACKUP_MINUTES
        while (left := end - time.monotonic()) > 0:
            self._over.wait(min(left, SAMPLE_SECONDS))
            self.gateway.check_alive()
            self.runner.check_alive()
            if time.monotonic() > again:
                again += 60 * BACKUP_MINUTES
                self._back_up()

    def _back_up(self) -> None:
        """A backup, which is restored beside the store at once: it comes to what was acknowledged before it began."""
        before = self.load.appended
        once("backup", str(self._folder / "backups"), "--store", self.quiet_url)
        self.backups += 1
        after = self.load.appended + UNANSWERED_MAX
        copy = self._folder / "copy"
        once("restore", str(self._folder / "backups"), "--store", str(copy))
        once("check", "--store", str(copy))
        once("run", MODULE, "--store", str(copy), "--engine", "local", "--until-idle", "--json")
        found = sum(json.loads(line)[1] for line in once("scan", "Soaked", "counts", "--store", str(copy)).splitlines())
        if not before <= found <= after:
            self.faults.append(f"backup {self.backups} comes to {found:,} records, not to {before:,} to {after:,}")
        shutil.rmtree(copy)

    def _sample(self, started: float) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            runner, gateway = self.runner.held(), self.gateway.held()
            if runner is not None and gateway is not None:
                self.samples.append(Sample(time.monotonic() - started, runner, gateway, self._minio.objects()))

    # --- at the end ---

    def _state_faults(self) -> list[str]:
        faults = []
        wanted, found = (self.load.appended, self.load.sum), self.load.state()
        if found != wanted:
            faults.append(f"(records, sum) are {found} in the state, {wanted} were acknowledged")
        once("check", "--store", self.quiet_url)
        return faults

    def _growth_faults(self) -> list[str]:
        middle = self._quiet_at + self._seconds / 4
        third = [sample for sample in self.samples if self._quiet_at <= sample.at < middle]
        last = [sample for sample in self.samples if sample.at >= middle]
        if not third or not last:
            return ["too few samples: let it run for longer"]
        faults = [
            f"{name} grew from {before:,.0f} to {after:,.0f}"
            for name, before, after, spare in self._grown(third, last)
            if after > before * (1 + GROWTH_SHARE) + spare
        ]
        most = max(max(sample.runner.files, sample.gateway.files) for sample in self.samples)
        return faults + ([f"{most} open files"] if most > OPEN_FILES_MAX // 2 else [])

    def _grown(self, third: list[Sample], last: list[Sample]) -> list[tuple[str, float, float, float]]:
        """(what, before, after, spare), by medians."""
        found = []
        for name, value, spare in (
            ("runner's megabytes", lambda s: s.runner.megabytes, GROWTH_MEGABYTES),
            ("gateway's megabytes", lambda s: s.gateway.megabytes, GROWTH_MEGABYTES),
            ("runner's open files and maps", lambda s: s.runner.files + s.runner.maps, GROWTH_FILES),
            ("gateway's open files and maps", lambda s: s.gateway.files + s.gateway.maps, GROWTH_FILES),
            ("objects", lambda s: s.objects, GROWTH_OBJECTS),
        ):
            found.append((name, statistics.median(map(value, third)), statistics.median(map(value, last)), spare))
        return found

    def line(self) -> str:
        """The figures as a row of a table."""
        status = json.loads(once("status", "Soaked", "--store", self.quiet_url, "--json"))[0]
        last = self.samples[-1]
        cells = [
            f"{self._seconds / 60:g}", f"{status['microbatch_id']:,}", f"{status['processed']:,}",
            f"{self.load.done['selects']:,}", f"{self.runner.starts - 1} / {dict(self.proxy.faults)}",
            f"{self.backups}",
            f"{last.runner.megabytes:.0f} / {last.gateway.megabytes:.0f} MB",
            f"{last.runner.files} / {last.gateway.files}", f"{last.objects:,}",
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="A new folder for all that it leaves; else one that is removed.")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        folder.mkdir(parents=True, exist_ok=arguments.keep is None)
        soak = Soak(folder.resolve(), arguments.minutes, arguments.seed, stack)
        faults = soak.run()
        print("| minutes | microbatches | records | selects | kills / faults | backups | memory | files | objects |")
        print(soak.line(), flush=True)
        for name, before, after, _ in soak._grown(soak.samples[len(soak.samples) // 2 :], soak.samples[-10:]):
            print(f"{name}: {before:,.0f}, in the end {after:,.0f}")
    for fault in faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
