"""Finding the record at which the module's code raises: parts of a microbatch are run again, and none is committed.

A row that fails may still hold its record (`engine.origins`); where it does not, the microbatch runs once more with
rows that keep it (`plan.traced`). A record that is found so is to blame only if it fails alone. Where none does, as
behind an aggregation, the records are halved: the first one with which the records before it fail is to blame, or one
that fails together with it if the microbatch gets further without that one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tidemill.engine.work import AttemptWork, SourceWork
from tidemill.leader.attempt_failures import is_of_record
from tidemill.plan.traced import traced
from tidemill.values.offsets import OffsetRanges

PROBES_MAX: Final = 150
"""A microbatch of a billion records takes fewer; past it the microbatch is tried again as it is."""

Run = Callable[[AttemptWork], object]
"""Runs an attempt; raises what it raises."""


@dataclass(frozen=True)
class SourceRecord:
    """A record of a microbatch."""

    source_id: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Blamed:
    """The record to blame, and what the module's code raised because of it."""

    record: SourceRecord
    error: BaseException


class TooManyProbes(Exception):
    """The record was not found with as many runs as there may be."""


def find_poison(run: Run, work: AttemptWork, error: BaseException) -> Blamed | None:
    """The record at which the module's code raised `error` in an attempt.

    None where the microbatch fails without any record too, or not each time.

    Raises:
        TooManyProbes: it was not found.
        Exception: what a run raises that is not the module's fault.
    """
    return _Diagnosis(run, work).find(error)


@dataclass
class _Diagnosis:
    """Records are numbered from 0: source by source, partition by partition, in the order of offsets."""

    run: Run
    work: AttemptWork
    probes: int = 0

    @cached_property
    def _spans(self) -> list[tuple[int, str, int, int]]:
        """(number of the first record, source, partition, its offset) of each partition that has records."""
        spans, number = [], 0
        for source in self.work.sources.values():
            for partition, (start, end) in enumerate(source.ranges):
                if end > start:
                    spans.append((number, source.source_id, partition, start))
                    number += end - start
        return spans

    def find(self, error: BaseException) -> Blamed | None:
        total = sum(source.records for source in self.work.sources.values())
        if not total or self._error_of(self._part(0, 0)) is not None:
            return None
        blamed = self._named(error) or self._found_again(total)
        # One that is left out already cannot be to blame: the code fails now and then.
        return None if blamed is not None and self._is_left_out(blamed.record) else blamed

    def _is_left_out(self, record: SourceRecord) -> bool:
        return (record.partition, record.offset) in self.work.sources[record.source_id].left_out

    def _found_again(self, total: int) -> Blamed | None:
        again = self._error_of(replace(self.work, program=traced(self.work.program)))
        if again is None:
            return None
        return self._named(again) or self._halved(total, again)

    def _named(self, error: BaseException) -> Blamed | None:
        """The record that the failing row holds, if it fails alone."""
        context: Mapping[str, object] = getattr(error, "context", {})
        places = {"source", "partition", "offset"}
        if not places <= context.keys():
            return None
        source, partition, offset = (context[name] for name in ("source", "partition", "offset"))
        assert isinstance(source, str) and isinstance(partition, int) and isinstance(offset, int)
        number = next(
            first + offset - start for first, *where, start in self._spans if where == [source, partition]
        )  # fmt: skip
        alone = self._error_of(self._part(number, number + 1))
        return Blamed(SourceRecord(source, partition, offset), alone) if alone is not None else None

    def _halved(self, total: int, error: BaseException) -> Blamed | None:
        last, error = self._first_failing(self.work, total, error)
        alone = self._error_of(self._part(last, last + 1))
        if alone is not None:
            return Blamed(self._record(last), alone)
        other = self._last_before(last)
        if self._error_of(self._part(other, last + 1)) is None:
            return None
        is_other = self._reach(other, total) > self._reach(last, total)
        return Blamed(self._record(other if is_other else last), error)

    def _first_failing(self, work: AttemptWork, total: int, error: BaseException) -> tuple[int, BaseException]:
        """The first record with which the records before it fail; all of them together raise `error`."""
        good, bad = 0, total
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self._error_of(self._part(0, middle, work))
            good, bad, error = (middle, bad, error) if found is None else (good, middle, found)
        return bad - 1, error

    def _last_before(self, last: int) -> int:
        """The last record that fails together with those behind it up to `last`, which does not fail alone."""
        bad, good = 0, last
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._error_of(self._part(middle, last + 1)) is None:
                good = middle
            else:
                bad = middle
        return bad

    def _reach(self, number: int, total: int) -> int:
        """How far the microbatch gets without this record: its first record that fails, or the end."""
        work = without(self.work, self._record(number))
        error = self._error_of(work)
        return total if error is None else self._first_failing(work, total, error)[0]

    # --- runs --------------------------------------------------------------------------------------------------------

    def _error_of(self, work: AttemptWork) -> BaseException | None:
        """What the module's code raises in a run. Raises whatever else the run does."""
        self.probes += 1
        if self.probes > PROBES_MAX:
            raise TooManyProbes(f"{PROBES_MAX} runs of parts of the microbatch did not show which record it is")
        try:
            self.run(work)
        except BaseException as error:  # a function of the module raises anything
            if not is_of_record(error):
                raise
            return error
        return None

    def _part(self, first: int, last: int, work: AttemptWork | None = None) -> AttemptWork:
        """The attempt with the records `first` to `last` - 1 only."""
        work = work or self.work
        begins = {(source, partition): (number, start) for number, source, partition, start in self._spans}

        def cut(source: SourceWork) -> SourceWork:
            pairs = []
            for partition, (start, end) in enumerate(source.ranges):
                number, _ = begins.get((source.source_id, partition), (0, 0))
                low, high = (min(max(at - number, 0), end - start) + start for at in (first, last))
                pairs.append((low, high))
            return replace(source, ranges=OffsetRanges.of(pairs))

        sources = {name: cut(source) if source.ranges else source for name, source in work.sources.items()}
        return replace(work, sources=sources)

    def _record(self, number: int) -> SourceRecord:
        first, source, partition, start = self._spans[bisect_right(self._spans, number, key=lambda span: span[0]) - 1]
        return SourceRecord(source, partition, start + number - first)


def without(work: AttemptWork, record: SourceRecord) -> AttemptWork:
    """The attempt without one more record."""
    source = work.sources[record.source_id]
    left_out = source.left_out | {(record.partition, record.offset)}
    return replace(work, sources={**work.sources, record.source_id: replace(source, left_out=left_out)})
