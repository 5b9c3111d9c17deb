"""Microbatches as spans: one for each attempt, with its phases; the attempts of one microbatch are one trace."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.entries import Entry, Failure
from tidemill.journal.spans import TracedSpan, Tracer
from tidemill.leader.machine import Machine
from tidemill.leader.phases import MachinePhase
from tidemill.values.numbers import MicrobatchId, Version

_OF_AN_ATTEMPT: Final[frozenset[MachinePhase]] = frozenset({"prime", "process", "commit", "back-off"})


class AttemptSpans:
    """Looks at a runner's machine after each event, and hands in a span when an attempt has committed or failed.

    Attempts that read nothing and change nothing are none.
    """

    def __init__(self, tracer: Tracer, definition: StoredDefinition, topology: str) -> None:
        self._tracer = tracer
        self._place = {"tidemill.module": definition.module, "tidemill.topology": topology}
        self._prefix = definition.topology_prefix(topology)  # another life of the module has another one
        self._known = (0, 0)
        self._failure: Failure | None = None
        self._phases: list[tuple[str, float]] = []

    def observe(self, machine: Machine, at: float, wall_ms: float) -> None:
        """Take note of where the machine is; `at` is now by the clock of its waits, `wall_ms` by that of people."""
        entry, failure, phase = machine.entry, machine.failure, machine.phase
        known = (entry.last_id, entry.last_version) if entry is not None else (0, 0)
        if self._phases and entry is not None:
            if failure is not None and failure is not self._failure:
                self._record(self._failed(entry, failure), at, wall_ms)
            elif known != self._known:
                self._record(self._committed(entry), at, wall_ms)
        self._known, self._failure = known, failure
        if phase not in _OF_AN_ATTEMPT:
            self._phases = []
        elif not self._phases or self._phases[-1][0] != phase:
            self._phases.append((phase, at))

    def _committed(self, entry: Entry) -> TracedSpan:
        done = entry.committed[0]
        first, began = self._phases[0]
        if first == "process":  # it was begun by the commit of the microbatch before it
            self._phases.insert(0, ("prime", began - done.metrics.get("prime_ms", 0.0)))
        return self._attempt(done.microbatch_id, done.version, done.records)

    def _failed(self, entry: Entry, failure: Failure) -> TracedSpan:
        begun = entry.attempt
        records = begun.records if begun is not None and begun.microbatch_id == failure.microbatch_id else 0
        span = self._attempt(failure.microbatch_id, failure.version, records)
        told = {"error.type": failure.code, "tidemill.step": failure.step}
        return replace(span, attributes={**span.attributes, **told}, error=failure.message, stack=failure.trace)

    def _attempt(self, microbatch: MicrobatchId, version: Version, records: int) -> TracedSpan:
        """The span of an attempt, without its times."""
        attributes: dict[str, str | int] = {
            **self._place,
            "tidemill.microbatch.id": microbatch,
            "tidemill.microbatch.version": version,
            "tidemill.microbatch.records": records,
        }
        name = hashlib.blake2b(f"{self._prefix} {microbatch}".encode(), digest_size=16).digest()
        return TracedSpan(name="microbatch", attributes=attributes, trace_id=int.from_bytes(name))

    def _record(self, span: TracedSpan, at: float, wall_ms: float) -> None:
        """Hand it in: it ends now, and so does its last phase, which has its error."""
        moved, phases, self._phases = wall_ms - at, self._phases, []
        ends = [*(began for _, began in phases[1:]), at]
        parts = [
            TracedSpan(name=name, begin_ms=began + moved, end_ms=end + moved, attributes=span.attributes)
            for (name, began), end in zip(phases, ends, strict=True)
        ]
        parts[-1] = replace(parts[-1], error=span.error)
        begin = parts[0].begin_ms
        self._tracer.record(replace(span, begin_ms=begin, end_ms=wall_ms, children=tuple(parts)))
