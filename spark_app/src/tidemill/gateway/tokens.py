"""Bearer tokens: from a file that is read again when it changes, so that tokens rotate without a restart."""

from __future__ import annotations

import hmac
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from tidemill.gateway.access import ROLES, Access, name_of
from tidemill.values.errors import BadInput

FILE_VARIABLE = "TIDEMILL_TOKEN_FILE"
VARIABLE = "TIDEMILL_TOKEN"
_log = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


class Tokens:
    """The tokens that are good now: one a line of a file, or one that was given; safe for several threads.

    A line may say what its token may do: `TOKEN read,append Orders,Users`; alone it may do everything. Several lines
    let an old and a new token hold side by side while clients change over. A file that goes away, becomes empty or
    cannot be understood leaves the tokens that were read last.
    """

    def __init__(self, *, file: Path | None = None, token: str = "") -> None:
        self._file = file
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._known: tuple[tuple[bytes, Access], ...] = (_entry(token.encode()),) if token else ()
        if file is not None:
            self._look()
        if not self._known:
            raise BadInput(f"There is no token in {file}." if file else "The token is empty.")

    def fits(self, given: bytes) -> bool:
        """Whether this token is good."""
        return self.access(given) is not None

    def access(self, given: bytes) -> Access | None:
        """What this token may do, None if it is not good; takes as long for a wrong one as for a right one."""
        if self._file is not None:
            self._look()
        found = None
        for token, access in self._known:
            if hmac.compare_digest(token, given):
                found = access
        return found

    def _look(self) -> None:
        """Read the file if it changed."""
        if self._file is None:
            return
        with self._lock:
            try:
                stat = os.stat(self._file)
                stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
                if stamp == self._stamp:
                    return
                lines = self._file.read_bytes().splitlines()
            except OSError as error:
                if not self._known:
                    raise BadInput(f"The token file {self._file} cannot be read: {error.strerror}.") from error
                _log.warning("The token file cannot be read: %s; the tokens read last stay.", error.strerror)
                return
            self._stamp = stamp
            try:
                read = tuple(_entry(line) for line in lines if line.strip())
            except BadInput as error:
                if not self._known:
                    raise
                _log.warning("The token file cannot be used: %s; the tokens read last stay.", error)
                return
            self._known = read or self._known


def _entry(line: bytes) -> tuple[bytes, Access]:
    """`TOKEN`, `TOKEN role[,role]` or `TOKEN role[,role] module[,module]`; a token alone may do everything."""
    token, *rest = line.split()
    if not rest:
        return token, Access(name_of(token))
    roles = frozenset(rest[0].decode(errors="replace").split(","))
    if unknown := sorted(roles - set(ROLES)):
        raise BadInput(f"There is no role {unknown[0]!r} of a token; there are {', '.join(ROLES)}.")
    if len(rest) > 2:
        raise BadInput("A line of tokens has at most three words: the token, its roles, its modules.")
    modules = frozenset(rest[1].decode(errors="replace").split(",")) if len(rest) == 2 else None
    return token, Access(name_of(token), roles, modules)


def tokens_from(file: str, environment: Mapping[str, str]) -> Tokens | None:
    """The tokens that a flag or the environment names, the flag first; None where nobody does.

    Raises:
        BadInput: the file cannot be read, or holds none.
    """
    named = file or environment.get(FILE_VARIABLE, "")
    if named:
        return Tokens(file=Path(named))
    token = environment.get(VARIABLE, "").strip()
    return Tokens(token=token) if token else None
