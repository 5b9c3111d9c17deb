"""Runs a program through the oracle and through the engine, and compares what the PStates hold.

When is a difference a mistake? The language leaves some orders open (`oracle_schedules`), and a program may show them.
1. The engine must come to what the oracle comes to in *some* promised order. First that of an engine in supersteps is
   tried, then TRIES_MAX others.
2. Where none of them fits and all of these agree with each other, the program has one right result: a mistake.
3. Where they differ, what they agree on must hold: first each PState by itself, then its lists without their order.
   The rest is undecided (`Verdict.is_undecided`).
Numbers compare as numbers: whether a whole number was stored as 1 or as 1.0 is not compared in PStates (texts that user
functions make of values are compared, and show the types in rows).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path as Folder
from typing import Any
from unittest.mock import patch

from attempts import Attempts
from oracle_interpreter import Oracle, TooLong
from oracle_programs import Program
from oracle_schedules import Chance, Schedule
from oracle_structures import IndexedMap, IndexedSet, settled

from tidemill import Constant, Ops, Path
from tidemill.api.declaration import record_module
from tidemill.engine import combined, joins, row_walk
from tidemill.engine.work import Pinned
from tidemill.language import schema as sc
from tidemill.language.dataflow import ModuleDeclaration, Nav
from tidemill.plan import program as pg
from tidemill.plan.check.module import checked
from tidemill.pstate import committed
from tidemill.tables import lookup, merge_reader
from tidemill.values.columns import from_values
from tidemill.values.data import route
from tidemill.values.errors import SchemaMismatch, UserCodeError

TRIES_MAX = 40
FAILED = "the microbatch fails"

Outcome = list[Any]
"""What all PStates hold after each attempt: {PState: [value of each task]}, or FAILED as the last one."""


@dataclass(frozen=True)
class Variant:
    """A way to run the engine: `runner` None is in process; then threads may know of each other by bytes only.

    `is_cut`: what is done for many rows, or in pieces of many rows, is done for a few.
    """

    runner: Any = None
    placement: str = "auto"
    as_bytes: bool = False
    by_rows: bool = False
    compacts: bool = False
    is_cut: bool = False


BOUNDS: dict[tuple[Any, str], int] = {
    (combined, "COMBINE_ROWS_MIN"): 1, (joins, "SLICE_ROWS"): 2, (row_walk, "CHUNK_ROWS"): 2,
    (lookup, "_TOGETHER_MIN"): 1, (lookup, "_PROBES_PER_ROW"): 0, (merge_reader, "_CHUNK_MIN"): 1,
    (committed, "COLUMN_ROWS_MIN"): 1,
}  # fmt: skip
"""From how many rows on the engine works in another way, and how many it takes at once."""

OPTIONS = {"topology.microbatch.pstate.flush.path.count": 1, "topology.combiner.limit": 2}


@contextmanager
def cut_bounds(is_cut: bool) -> Iterator[None]:
    """So small bounds that the few rows of random programs pass them."""
    with ExitStack() as stack:
        for (module, name), bound in BOUNDS.items() if is_cut else ():
            stack.enter_context(patch.object(module, name, bound))
        yield


@dataclass(frozen=True)
class Verdict:
    """`fault` is the text of a mistake; None if there is none, or if it is undecided."""

    fault: str | None = None
    is_undecided: bool = False
    is_failed: bool = False


def placed(declared: ModuleDeclaration, depot: str, records: list[Any], tasks: int) -> dict[int, list[Any]]:
    """The records of each partition."""
    found = next(each for each in declared.depots if each.name == depot)
    count = 1 if found.is_global else tasks
    places: dict[int, list[Any]] = {}
    for number, record in enumerate(records):
        key = found.function.call(record) if found.function else record[found.fields[0]] if found.fields else None
        place = number % count if found.function is None and not found.fields else route(key, count)
        places.setdefault(place, []).append(record)
    return dict(sorted(places.items()))


# --- the oracle ------------------------------------------------------------------------------------------------------


def expected(program: Program, declared: ModuleDeclaration, schedule: Any = None) -> Outcome:
    """What the oracle comes to; `schedule` makes one for each attempt."""
    oracle = Oracle(declared, program.tasks)
    seen: Outcome = []
    for feeds in program.rounds:
        oracle.due = {depot for depot in program.ticks if feeds[depot]}
        for depot, records in feeds.items():
            if depot not in program.ticks:
                for place, held in placed(declared, depot, records, program.tasks).items():
                    oracle.append(depot, place, held)
        for topology in in_order(program):
            made: Schedule | None = schedule() if schedule else None
            try:
                oracle.attempt(topology, made)
            except (TooLong, RecursionError):
                raise
            except Exception:  # noqa: BLE001 - whatever the user's code raises fails the microbatch
                return [*seen, FAILED]
            seen.append({name: [settled(value) for value in held] for name, held in oracle.state.items()})
            for depot, place, record in oracle.appended:
                oracle.append(depot, place, [record])
            seen[-1] |= {depot: settled(log) for depot, log in oracle.logs.items() if depot in program.outlets}
    return seen


def in_order(program: Program) -> list[str]:
    return list(reversed(program.topologies)) if program.is_reversed else list(program.topologies)


# --- the engine ------------------------------------------------------------------------------------------------------


class Engine:
    """The topologies of a program on one folder."""

    def __init__(self, program: Program, folder: Folder, variant: Variant) -> None:
        self.variant = variant
        self.runs = {
            name: Attempts(
                folder, program.module(), program.tasks, program.threads, name, variant.as_bytes, variant.runner,
                f"m/topologies/{name}",
            )
            for name in program.topologies
        }  # fmt: skip
        self.first = next(iter(self.runs.values()))
        self.outlets = program.outlets
        self.due: set[str] = set()
        self.logs: dict[str, list[list[Any]]] = {depot: [[] for _ in range(program.tasks)] for depot in program.outlets}
        for run in self.runs.values():
            run.options["topology.microbatch.placement"] = variant.placement
            run._depots = self.first._depots
            run.options |= OPTIONS if variant.is_cut else {}
            if variant.by_rows:
                run.program = _by_rows(run.program)

    def append(self, depot: str, places: dict[int, list[Any]]) -> None:
        log = self.first._depot(depot)
        for place, held in places.items():
            self.logs.setdefault(depot, [[] for _ in range(self.first.tasks)])[place].extend(held)
        log.append([(place, from_values(held, True)) for place, held in places.items()])

    def attempt(self, topology: str) -> None:
        run = self.runs[topology]
        run.due = self.due
        run.others = {
            name: Pinned(other.prefix, other.snapshot) for name, other in self.runs.items() if other is not run
        }
        run.attempt()
        for depot, places in run.appended.items():
            self.append(depot, dict(sorted(places.items())))
        run.appended = {}
        if self.variant.compacts:
            run.compact()

    def state(self) -> dict[str, list[Any]]:
        held: dict[str, Any] = {}
        for run in self.runs.values():
            for name, plan in run.program.pstates.items():
                held[name] = [settled(_dumped(run, name, plan, task)) for task in range(run.tasks)]
        return held | {depot: settled(log) for depot, log in self.logs.items() if depot in self.outlets}


def _by_rows(program: pg.Program) -> pg.Program:
    segments = {number: replace(segment, mode="rows") for number, segment in program.segments.items()}
    return replace(program, segments=segments, key=program.key + "r")


def _dumped(run: Attempts, name: str, plan: pg.PStatePlan, task: int) -> Any:
    if plan.declaration.is_global and task:
        return plan.declaration.initial_value
    return _contents(run, name, task, plan.schema, Path.stay(), True)


def _contents(run: Attempts, name: str, task: int, schema: sc.Schema, path: Path, is_top: bool = False) -> Any:
    """The whole content at a path; indexed structures are gone through element by element."""
    if isinstance(schema, sc.MapSchema) and (is_top or schema.subindexed):
        if not sc.has_indexed(schema.value):
            return IndexedMap(run.select(name, path.all(), task))
        keys = run.select(name, path.map_keys(), task)
        return IndexedMap([(key, _contents(run, name, task, schema.value, path.key(Constant(key)))) for key in keys])
    if isinstance(schema, sc.FixedKeysSchema) and (is_top or sc.has_indexed(schema)):
        there = [(key, field) for key, field in schema.fields if _is_there(run, name, task, path.key(key), field)]
        return {key: _contents(run, name, task, field, path.key(key)) for key, field in there}
    if isinstance(schema, sc.SetSchema) and schema.subindexed:
        return IndexedSet(run.select(name, path.all(), task))
    if isinstance(schema, sc.ListSchema) and schema.subindexed:
        return run.select(name, path.all(), task)
    return run.select(name, path, task)[0]


def _is_there(run: Attempts, name: str, task: int, path: Path, field: sc.Schema) -> bool:
    if sc.has_indexed(field):
        return bool(run.select(name, path.view(Ops.SIZE), task)[0])
    *before, last = path.path.navs
    return bool(run.select(name, Path((*before, Nav("must", last.args))), task))


def found(program: Program, declared: ModuleDeclaration, variant: Variant) -> Outcome:
    """What the engine comes to."""
    seen: Outcome = []
    with tempfile.TemporaryDirectory() as folder, cut_bounds(variant.is_cut):
        engine = Engine(program, Folder(folder), variant)
        for feeds in program.rounds:
            engine.due = {depot for depot in program.ticks if feeds[depot]}
            for depot, records in feeds.items():
                if records and depot not in program.ticks:
                    engine.append(depot, placed(declared, depot, records, program.tasks))
            for topology in in_order(program):
                try:
                    engine.attempt(topology)
                except (UserCodeError, SchemaMismatch):
                    return [*seen, FAILED]
                seen.append(engine.state())
    return seen


# --- the comparison --------------------------------------------------------------------------------------------------


def compared(program: Program, variant: Variant) -> Verdict:
    """Whether the engine and the oracle agree. Raises TooLong for a program that runs on and on."""
    declared = checked(record_module(program.module()))
    plain = expected(program, declared)
    engine = found(program, declared, variant)
    if repr(engine) == repr(plain):
        return Verdict(is_failed=plain[-1] == FAILED)
    return explained(program, declared, plain, engine)


def explained(program: Program, declared: ModuleDeclaration, plain: Outcome, engine: Outcome) -> Verdict:
    """Whether another promised order explains what the engine came to."""
    others = [plain]
    for seed in range(TRIES_MAX):
        seeds = iter(range(seed * 1000, seed * 1000 + 1000))
        outcome = expected(program, declared, lambda seeds=seeds: Chance(next(seeds)))
        if repr(outcome) == repr(engine):
            return Verdict()
        others.append(outcome)
    if len(set(map(repr, others))) == 1:
        return Verdict(f"the oracle comes to\n{shown(plain, engine)}\nthe engine to\n{shown(engine, plain)}")
    return _weighed(others, engine)


def _weighed(others: list[Outcome], engine: Outcome) -> Verdict:
    if len({len(outcome) for outcome in others}) > 1 or any(outcome[-1] == FAILED for outcome in others):
        return Verdict(is_undecided=True)
    if len(engine) != len(others[0]) or engine[-1] == FAILED:
        return Verdict(f"no order fails, but the engine does, or the other way round: {engine[-1]!r}")
    for number, state in enumerate(engine):
        for name, held in state.items():
            for is_ordered in (True, False):
                texts = {repr(_bags(outcome[number][name], is_ordered)) for outcome in others}
                if len(texts) == 1 and repr(_bags(held, is_ordered)) not in texts:
                    return Verdict(f"after {number + 1} attempts {name} is {texts.pop()}, in the engine {held!r}")
    return Verdict(is_undecided=True)


def _bags(value: Any, is_ordered: bool) -> Any:
    if is_ordered:
        return value
    if isinstance(value, dict):
        return {key: _bag(item) if isinstance(item, list) else item for key, item in value.items()}
    return _bag(value) if isinstance(value, list) else value


def _bag(items: list[Any]) -> list[str]:
    return sorted(repr(_bags(item, False)) for item in items)


def shown(outcome: Outcome, other: Outcome) -> str:
    """The first attempt after which two outcomes differ."""
    for number, state in enumerate(outcome):
        if number >= len(other) or repr(state) != repr(other[number]):
            if state == FAILED or number >= len(other) or other[number] == FAILED:
                return f"after attempt {number + 1}: {state!r}"
            differing = {name: held for name, held in state.items() if repr(held) != repr(other[number][name])}
            return f"after attempt {number + 1}: {differing!r}"
    return repr(outcome)
