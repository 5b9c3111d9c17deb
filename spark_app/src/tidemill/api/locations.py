"""Where in the user's code a builder was called."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from tidemill.language.dataflow import Location

_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_LIBRARIES = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib")})


def is_of_tidemill(file: str) -> bool:
    """Whether this source file is part of Tidemill itself."""
    return file.startswith(_PACKAGE)


def caller_location() -> Location:
    """The place of the nearest call that was made outside Tidemill."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_of_tidemill(frame.f_code.co_filename):
        frame = frame.f_back
    return Location() if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


def raised_location(trace: TracebackType | None) -> Location:
    """The innermost line of the user's own code that an exception passed; that of a library where there is no other."""
    lines: list[Location] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not is_of_tidemill(file) and not file.startswith("<frozen "):
            lines.append(Location(file, trace.tb_lineno))
        trace = trace.tb_next
    own = [line for line in lines if not _is_of_library(line.file)]
    return next(reversed(own or lines), Location())


def _is_of_library(file: str) -> bool:
    """Whether this file came with Python or was installed, so that its user cannot have made the mistake there."""
    return file.startswith(_LIBRARIES) or "/site-packages/" in file or "/dist-packages/" in file


def class_location(kind: type) -> Location:
    """Where a class was written; nowhere if its source is not there, as of one typed at a prompt, or no longer Python.
    Its whole file is parsed for that: only to tell of a mistake.
    """
    try:
        file = inspect.getsourcefile(kind)
        line = inspect.getsourcelines(kind)[1]
    except (OSError, TypeError, SyntaxError, SystemError):  # the last: of two threads that parse (gh-106905)
        return Location()
    return Location() if file is None else Location(file, line)


def defined_location(code: CodeType | None) -> Location:
    """Where a function was written; nowhere if it is not written in Python."""
    return Location() if code is None else Location(code.co_filename, code.co_firstlineno)
