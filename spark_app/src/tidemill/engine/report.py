"""What the driver learns from a superstep."""

from __future__ import annotations

from collections.abc import Iterable
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


def add(total: dict[str, float], metrics: Iterable[dict[str, float]]) -> None:
    """Add the milliseconds and counts of several steps to a total."""
    for each in metrics:
        for name, value in each.items():
            total[name] = total.get(name, 0.0) + value


def summed(metrics: Iterable[dict[str, float]]) -> dict[str, float]:
    """Milliseconds and counts of several steps as one."""
    total: dict[str, float] = {}
    add(total, metrics)
    return total
