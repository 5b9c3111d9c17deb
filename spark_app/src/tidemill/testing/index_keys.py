"""Keys that lie where a test wants them."""

from __future__ import annotations

import itertools

from tidemill.values.data import route
from tidemill.values.errors import BadInput

TASKS_MAX = 65_536


def gen_hashing_index_keys(tasks: int, prefix: str = "") -> list[str]:
    """A text key for each task, the same ones each time: key `i` belongs to task `i` of `tasks`.

    Raises:
        BadInput: `tasks` is no number from 1 to 65,536.
    """
    if isinstance(tasks, bool) or not isinstance(tasks, int) or not 1 <= tasks <= TASKS_MAX:
        raise BadInput(f"A number of tasks from 1 to {TASKS_MAX:,} is wanted, not {tasks!r}.")
    found: dict[int, str] = {}
    numbers = itertools.count()
    while len(found) < tasks:
        key = f"{prefix}{next(numbers)}"
        found.setdefault(route(key, tasks), key)
    return [found[task] for task in range(tasks)]
