"""Which blocks of a definition nothing uses: a chain that was written and never put into a topology."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tidemill.language.dataflow import Node
from tidemill.values.errors import Fault

_found: ContextVar[list[Attachable] | None] = ContextVar("tidemill_blocks", default=None)


class Attachable:
    """A chain that is part of something, or is forgotten."""

    nodes: tuple[Node, ...] = ()
    _is_attached = False

    def _attach(self) -> None:
        """Another chain holds the nodes of this one."""
        self._is_attached = True

    def _note(self) -> None:
        """Say later that nothing used this chain, if it was made in a definition and nothing does."""
        found = _found.get()
        if found is not None:
            found.append(self)


def is_watched() -> bool:
    """Whether a definition is recorded in this thread."""
    return _found.get() is not None


@contextmanager
def watching() -> Iterator[list[Attachable]]:
    """All chains that are made meanwhile, in this thread."""
    found: list[Attachable] = []
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def unattached(blocks: list[Attachable]) -> tuple[Fault, ...]:
    """A warning for each chain that nothing uses, at its first node."""
    text = "This block is not part of any topology, so it never runs."
    advice = "Go on from source(…), or hand it to macro, batch_block, branch or a condition."
    left = [block.nodes[0].at for block in blocks if block.nodes and not block._is_attached]
    return tuple(Fault(str(at), text, advice) for at in left)
