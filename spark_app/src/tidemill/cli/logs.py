"""Log lines of the commands that stay until they are stopped: on stderr, from a level on."""

from __future__ import annotations

import logging
import time
from typing import Final

from tidemill.values.log_level import asked_level

_NOISY: Final = ("httpx2", "httpcore2", "py4j")


def begin_log(default: str = "warning") -> None:
    """Write what is logged from the level of TIDEMILL_LOG_LEVEL on, or from `default` on; lines of audit always.

    Libraries that log each request do so only at the level debug.

    Raises:
        BadInput: there is no such level.
    """
    level = logging.getLevelNamesMapping()[(asked_level() or default).upper()]
    lines = logging.Formatter("%(asctime)sZ %(levelname)s %(name)s %(message)s", "%Y-%m-%d %H:%M:%S")
    lines.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(lines)
    logging.basicConfig(level=level, handlers=[handler])
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.DEBUG if level == logging.DEBUG else max(logging.WARNING, level))
