"""One JSON object a line, on stderr."""

from __future__ import annotations

import logging

from pythonjsonlogger.json import JsonFormatter


def configure(level: str) -> None:
    """Send everything to stderr as JSON; kopf and HTTP clients only when something is wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("kopf", "httpx2", "httpcore2", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
