"""Consoles that show what was stored as text: a record or a message must not steer the terminal of who reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tidemill.cli.controls import without_controls


class PlainConsole(Console):
    """A console on which texts have no control characters; what Rich itself sends to the terminal stays."""

    def print(self, *objects: Any, **given: Any) -> None:
        """As Rich does it; texts are made plain before they are measured."""
        super().print(*(without_controls(one) if isinstance(one, str) else one for one in objects), **given)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As Rich does it."""
        for segment in super().render(renderable, options):
            is_plain = segment.control or segment.text.isprintable()
            yield segment if is_plain else Segment(without_controls(segment.text), segment.style)
