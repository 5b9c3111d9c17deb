"""Who calls the command line, as the log of options names them."""

from __future__ import annotations

import os

from tidemill.store.standbys import host_name
from tidemill.values.data import with_utf8


def caller() -> str:
    """The user and the machine, as far as the environment tells."""
    return with_utf8(f"{os.environ.get('USER') or 'somebody'}@{host_name()}, by command")
