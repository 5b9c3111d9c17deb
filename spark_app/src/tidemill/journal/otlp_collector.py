"""What a collector of traces may do to the process that sends to it: little, whatever it answers."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from io import BytesIO
from typing import Any, Final

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from tidemill.journal.collector_address import ENDPOINTS, shown
from tidemill.values.texts import shortened

ANSWER_MAX: Final = 64 * 1024
"""Bytes that are read of an answer: nobody needs them, but a connection is used again only when all are read."""

ANSWER_SECONDS: Final = 1.0

TROUBLE_SECONDS: Final = 60.0
"""What is wrong with a collector is told once in this time: it may be away for days."""

TROUBLE_CHARS: Final = 400


class BoundedSession(Session):
    """Takes the status and the headers of an answer, and lets go of a body that is large or slow.

    A plain session keeps the whole body in memory, and one without end fills it.
    """

    def __init__(self) -> None:
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())


class _Adapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *given: Any, **named: Any) -> Response:
        response = super().send(request, *given, **named)
        raw, response.raw = response.raw, BytesIO()
        left, end = ANSWER_MAX, time.monotonic() + ANSWER_SECONDS
        with contextlib.suppress(HTTPError, OSError):  # the status is known already
            while left > 0 and time.monotonic() < end and (read := raw.read1(left)):
                left -= len(read)
        raw.close()  # cuts a connection whose answer goes on
        return response


class TroubleFilter(logging.Filter):
    """Lets one line of the exporter through in a while, without what may be secret in the collector's address."""

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until = 0.0

    @classmethod
    def put_on(cls, logger: logging.Logger) -> None:
        """Put a new one on a logger; it stays there, for what is told after the last span."""
        for each in [each for each in logger.filters if isinstance(each, cls)]:
            logger.removeFilter(each)
        logger.addFilter(cls())

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is told; changes its text."""
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + TROUBLE_SECONDS
        record.msg, record.args = _without_secrets(record.getMessage()), ()
        record.exc_info = record.exc_text = None
        return True


def _without_secrets(text: str) -> str:
    """Libraries show the address: whole, or the path with what comes after it."""
    for named in filter(None, map(os.environ.get, ENDPOINTS)):
        text = text.replace(named, shown(named))
    text = re.sub(r"//[^/\s]*@", "//", text)
    text = re.sub(r"[?#]\S*", "", text)
    text = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return shortened(text, TROUBLE_CHARS)
