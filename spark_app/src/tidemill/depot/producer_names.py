"""The names of idempotent producers; how one begins says of what kind it is."""

from __future__ import annotations

from typing import Final

TOPOLOGY_PREFIX: Final = "topology/"
"""Producers whose id begins so are never forgotten."""

KEY_PREFIX: Final = "key/"
"""Producers whose id begins so are the idempotency keys of clients that come and go, often one for each append."""


def producer_of(prefix: str) -> str:
    """The name under which the topology below `prefix` appends; with its id, so that no other one ever has it."""
    return TOPOLOGY_PREFIX + prefix.rpartition("/")[2]
