"""Who calls the command line, as the log of options names them."""

from __future__ import annotations

import os
import pwd

from tidemill.store.standbys import host_name
from tidemill.values.data import with_utf8


def caller() -> str:
    """The user and the machine, as far as the environment or the system tells."""
    return with_utf8(f"{os.environ.get('USER') or _name_of_user()}@{host_name()}, by command")


def _name_of_user() -> str:
    """Services and containers often have no variable with it, and some containers no entry for their user."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
