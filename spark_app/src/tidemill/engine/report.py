"""What the driver learns from a superstep."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepReport:
    """`sent` counts messages per point, `entered` names the batch blocks that this step began, `exploded` the sources
    that it read.
    """

    sent: dict[int, int] = field(default_factory=dict)
    entered: tuple[int, ...] = ()
    exploded: frozenset[str] = frozenset()
    metrics: dict[str, float] = field(default_factory=dict)
