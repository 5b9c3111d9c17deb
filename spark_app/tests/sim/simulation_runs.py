"""What the tests of all simulations share: runs that tell their seed and last events where they fail, and crashes at
every place of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tidemill.testing.simulation import CALM, CrashAt, Simulation
from tidemill.values.errors import TidemillError

S = TypeVar("S", bound=Simulation)


def run(simulation: S, steps: int) -> S:
    try:
        simulation.run(steps)
    except BaseException as error:
        error.add_note(f"seed {simulation.seed}, crash {simulation.crash_at}; the last events:")
        error.add_note("\n".join(simulation.trace[-25:]))
        raise
    return simulation


def crashes_and_places(kind: type[Simulation], seed: int, moment: Any, steps: int) -> tuple[int, int]:
    """How many crashes there were when a calm run was repeated with one at each place, and how many places it has."""
    calm = run(kind(seed, CALM), steps)
    places = calm.turns if moment == "before event" else calm.writes
    runs = (run(kind(seed, CALM, CrashAt(number, moment)), steps) for number in range(1, places + 1))
    return sum(one.crashes for one in runs), places


def is_caught(make: Callable[[int], Simulation], seeds: Iterable[int]) -> bool:
    """Whether a simulation of one of these seeds fails."""
    for seed in seeds:
        try:
            make(seed).run()
        except TidemillError:
            return True
    return False
