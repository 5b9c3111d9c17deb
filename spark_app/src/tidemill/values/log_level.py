"""The least level of log lines, as TIDEMILL_LOG_LEVEL says it."""

from __future__ import annotations

import os
from typing import Final

from tidemill.values.errors import BadInput

VARIABLE: Final = "TIDEMILL_LOG_LEVEL"
LEVELS: Final = ("debug", "info", "warning", "error")


def asked_level() -> str | None:
    """One of LEVELS, in whatever case it is written; None where nobody says. Raises BadInput: it is none of them."""
    given = os.environ.get(VARIABLE, "").strip()
    if given and given.lower() not in LEVELS:
        raise BadInput(f"{VARIABLE} is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {given!r}.")
    return given.lower() or None
