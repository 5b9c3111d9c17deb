"""The compiled source of a segment that runs row by row, and the operators before it that can run by columns."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tidemill.engine.compiled import CompiledProgram
from tidemill.engine.rows.source import SegmentSource, SourceWriter
from tidemill.plan import program as pg


@dataclass(frozen=True)
class SegmentCode:
    """The compiled source of a segment; `make(runtime)` gives the function of its rows
    (`engine.row_runtime`).

    `prefix` are the operators that run by columns before, `start` the last of them; `first` is the one behind it, at
    which the time of all is told.
    """

    start: int
    first: int
    prefix: tuple[int, ...]
    source: SegmentSource
    file: str
    make: Callable[[Any], Callable[[Any], None]]


@lru_cache(maxsize=256)
def segment_code(compiled: CompiledProgram, start: int) -> SegmentCode:
    """The code of a segment."""
    program = compiled.program
    numbers = program.segments[start].operators
    prefix = () if program.segments[start].is_strict else stateless_prefix(program, start)
    begin = prefix[-1] if prefix else start
    writer = SourceWriter(program, begin, numbers)
    writer.path_arguments = {number: compiled.paths[number].arguments for number in numbers if number in compiled.paths}
    writer.fold_arguments = {number: compiled.folds[number].args for number in numbers if number in compiled.folds}
    source = writer.write()
    file = f"<tidemill {program.topology} {program.key} {start}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(source.text, file, "exec"), space)  # the text is this package's own, see rows.source
    return SegmentCode(begin, next(iter(program.next[begin]), begin), prefix, source, file, space["make"])


def stateless_prefix(program: pg.Program, start: int) -> tuple[int, ...]:
    """The operators behind `start` that every row passes one after the other before it meets state or a fork; captures
    among them, which are to see no row's writes.
    """
    entries: dict[int, int] = {}
    for successors in program.next:
        for successor in successors:
            entries[successor] = entries.get(successor, 0) + 1
    found: list[int] = []
    current = start
    while len(program.next[current]) == 1:
        current = program.next[current][0]
        operator = program.operators[current]
        is_capture = isinstance(operator, pg.Select) and operator.is_capture
        is_free = is_capture or isinstance(operator, (pg.Apply, pg.Keep, pg.Join))
        if not is_free or entries[current] != 1:
            break
        found.append(current)
    return tuple(found)
