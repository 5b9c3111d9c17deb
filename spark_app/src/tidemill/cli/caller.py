"""Who calls the command line, as the log of options names them."""

from __future__ import annotations

import os
import socket


def caller() -> str:
    """The user and the machine, as far as the environment tells."""
    return f"{os.environ.get('USER') or 'somebody'}@{socket.gethostname()}, by command"
