"""Where in the user's code a builder was called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, TracebackType

from tidemill.model.dataflow import Location

_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"


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
    """The innermost line of the user's code that an exception passed."""
    found = Location()
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not is_of_tidemill(file):
            found = Location(file, trace.tb_lineno)
        trace = trace.tb_next
    return found
