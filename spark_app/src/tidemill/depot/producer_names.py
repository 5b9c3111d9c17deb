"""The names of idempotent producers; how one begins says of what kind it is."""

from __future__ import annotations

from typing import Final

from tidemill.values.errors import BadInput

TOPOLOGY_PREFIX: Final = "topology/"
"""Producers whose id begins so are never forgotten."""

KEY_PREFIX: Final = "key/"
"""Producers whose id begins so are the idempotency keys of clients that come and go, often one for each append."""


def check_own_name(name: str) -> None:
    """A program may call its producer so.

    Raises:
        BadInput: it would share the numbers of a topology or of a client; the program chooses another name.
    """
    if name.startswith((TOPOLOGY_PREFIX, KEY_PREFIX)):
        text = f"No producer may be called {name!r}: so begin the names of topologies and of clients over HTTP."
        raise BadInput(f"{text} Call it otherwise.")


def producer_of(prefix: str) -> str:
    """The name under which the topology below `prefix` appends; with its id, so that no other one ever has it."""
    return TOPOLOGY_PREFIX + prefix.rpartition("/")[2]
