"""Checks the models in docs/spec with TLC: as they are they hold, and each mutation violates what it should."""

from __future__ import annotations

import concurrent.futures
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SPEC = Path(__file__).resolve().parents[1] / "docs" / "spec"
SECONDS_MAX = 1_500


@dataclass(frozen=True)
class Run:
    """One check; `violates` are the properties of which one must be found violated, none for the model as it is.

    `bounds` are other ones than the model's configuration has: some mistakes need a longer way, and fewer branches.
    """

    model: str
    mutation: str
    violates: tuple[str, ...] = ()
    bounds: tuple[tuple[str, int], ...] = ()

    def check(self, jar: str) -> tuple[bool, str]:
        """Whether it came out as it must, and a line for people."""
        began = time.monotonic()
        output = self._output(jar)
        found = re.findall(r"(?:Invariant|Action property|property) (\w+) (?:is|was) violated", output)
        states = re.findall(r"([\d,]+) distinct states found", output)
        is_done = "Model checking completed. No error has been found." in output
        is_right = bool(set(found) & set(self.violates)) if self.violates else is_done and not found
        told = f"violates {found[0]}" if found else "nothing is violated" if is_done else "not checked to the end"
        seconds = time.monotonic() - began
        line = f"{self.model}, {self.mutation}: {told} ({states[-1] if states else '?'} states, {seconds:.0f} s)"
        return is_right, line if is_right else f"{line}\n{output[-3000:]}"

    def _output(self, jar: str) -> str:
        config = (SPEC / f"{self.model}.cfg").read_text().replace('"none"', f'"{self.mutation}"')
        for name, value in self.bounds:
            config, count = re.subn(rf"{name} = \d+", f"{name} = {value}", config)
            assert count == 1, name
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"{self.model}.cfg").write_text(config)
            Path(folder, f"{self.model}.tla").write_text((SPEC / f"{self.model}.tla").read_text())
            # It unpacks its own modules into the folder of temporary files, and deletes them, whoever else reads them.
            command = ["java", f"-Djava.io.tmpdir={folder}", "-XX:+UseParallelGC", "-Xmx2g", "-cp", jar, "tlc2.TLC"]
            command += ["-workers", "1", "-metadir", folder, self.model]
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired as error:
                return f"{error.stdout!r}\nnot done within {SECONDS_MAX} s"
        return done.stdout + done.stderr


WHOLE = ("S3_S5_StatesAreWhole",)
ACKNOWLEDGED = ("S6_AcknowledgedIsThere",)
SKIPPED = ("S1_NothingSkipped",)
RUNS = (
    Run("CommitLog", "none"),
    Run("AppendLog", "none"),
    Run("AppendLog", "the floor is not asked", ACKNOWLEDGED),
    Run("AppendLog", "a collision is not noticed", ACKNOWLEDGED),
    Run("AppendLog", "a void object is followed", ("FollowersSeeEntries",)),
    Run("AppendLog", "the floor is recorded last", ("EntriesStay", "FollowersSeeEntries", "Dense", *ACKNOWLEDGED)),
    Run("CommitLog", "collected too early", WHOLE),
    Run("CommitLog", "the previous state is forgotten", WHOLE),
    Run("CommitLog", "a claim drops the attempt", ("S2_AttemptsAreEqual",)),
    Run("CommitLog", "a retry is counted twice", ("S1_EachRecordOnce",)),
    Run("CommitLog", "a compaction is not registered", WHOLE, (("RecordsMax", 3), ("EntriesMax", 7), ("ClaimsMax", 1))),
    Run("CommitLog", "a collision is not noticed", ("S1_EachRecordOnce", "S4_OneCommit", "S7_WholeMicrobatches")),
    Run("Publication", "none"),
    Run("Publication", "a claim forgets appends", ("S8_NothingForgotten",)),
    Run("Publication", "an entry leaves out what is not published", ("S8_NothingForgotten",)),
    Run("Publication", "a producer is not known again", ("S8_OnceInOrder",)),
    Run("Publication", "collected too early", ("S8_PartsAreThere",)),
    Run("Publication", "another digest each time", ("S8_NobodyIsRefused",)),
    Run("Quarantine", "none"),
    Run("Quarantine", "a claim forgets poison", ("S2_LeftOutStays",)),
    Run("Quarantine", "another record is left out", ("S8_CountedOrHeld",)),
    Run("Quarantine", "a retry is not known again", ("S8_RetriedOnce",)),
    Run("Quarantine", "settled records come back", ("S8_DecidedOnce",)),
    Run("Quarantine", "the decision before is not finished", ("S8_DecisionsAreDone",)),
    Run("Mirrors", "none"),
    Run("Mirrors", "collection asks nobody", SKIPPED),
    Run("Mirrors", "a reader leaves no mark", SKIPPED),
    Run("Mirrors", "the mark comes last", SKIPPED),
    Run("Mirrors", "a reader counts as done", SKIPPED),
)


def main(jar: str) -> int:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        failed = 0
        for is_right, line in pool.map(lambda run: run.check(jar), RUNS):
            failed += not is_right
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(RUNS) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
