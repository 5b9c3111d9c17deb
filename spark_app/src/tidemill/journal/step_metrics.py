"""What the steps of a microbatch took and passed on, as metrics beside those of its phases: bounded, for people.

`ms N` are the milliseconds of operator N of the plan, in all threads together; of a segment that goes row by row, all
stand at its first operator. `rows N` are the rows that went on behind it, `rows N>M` those that took the branch to M.
`plan` tells plans apart whose operators have other numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

STEPS_MAX: Final = 64
"""Operators of which a commit tells: those that took longest."""

PLAN: Final = "plan"
_MS, _ROWS, _PLACEMENT = "ms ", "rows ", "placement "


def step_metrics(
    seconds: Sequence[float], rows: Sequence[int], branches: Mapping[tuple[int, int], int]
) -> dict[str, float]:
    """What a thread measured in a superstep: by the number of an operator, and by that of a branch's two ends."""
    names = _names(len(seconds))
    found = {ms: spent * 1000 for (ms, _), spent in zip(names, seconds, strict=True) if spent}
    for (_, name), count in zip(names, rows, strict=True):
        if count:
            found[name] = float(count)
    for (number, to), count in branches.items():
        found[f"{_ROWS}{number}>{to}"] = float(count)
    return found


@lru_cache(maxsize=64)
def _names(operators: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"{_MS}{number}", f"{_ROWS}{number}") for number in range(operators))


def placement_metric(placement: str) -> dict[str, float]:
    """Where an attempt ran, as a metric of it."""
    return {f"{_PLACEMENT}{placement}": 1.0}


def placement_of(metrics: Mapping[str, float]) -> str:
    """Where an attempt ran; "" where its metrics do not say."""
    return next((name.removeprefix(_PLACEMENT) for name in metrics if name.startswith(_PLACEMENT)), "")


def is_of_step(name: str) -> bool:
    """Whether a metric is one of these."""
    return name == PLAN or name.startswith((_MS, _ROWS))


def bounded(metrics: Mapping[str, float], plan: int) -> dict[str, float]:
    """The metrics of an attempt with those of at most STEPS_MAX steps, and the number of its plan."""
    spent = {_operator(name): metrics.get(f"{_MS}{_operator(name)}", 0.0) for name in metrics if is_of_step(name)}
    kept = set(sorted(spent, key=lambda operator: spent[operator], reverse=True)[:STEPS_MAX])
    found = {name: value for name, value in metrics.items() if not is_of_step(name) or _operator(name) in kept}
    return {**found, PLAN: float(plan)}


def _operator(name: str) -> str:
    return name.partition(" ")[2].partition(">")[0]


def told(metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, Any]]:
    """The other metrics but the placement, and what is told of steps: `plan`, `ms` and `rows` by operator or branch."""
    others = {
        name: value for name, value in metrics.items() if not is_of_step(name) and not name.startswith(_PLACEMENT)
    }
    if PLAN not in metrics:
        return others, {}
    steps = {
        kind.strip(): {name.removeprefix(kind): value for name, value in metrics.items() if name.startswith(kind)}
        for kind in (_MS, _ROWS)
    }
    return others, {PLAN: int(metrics[PLAN]), **steps}
