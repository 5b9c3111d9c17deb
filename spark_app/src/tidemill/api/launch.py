"""How a module is launched and updated, and when an append counts as done."""

from __future__ import annotations

import enum
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from tidemill.values.errors import BadInput


class AckLevel(enum.Enum):
    """When an append returns: APPEND_ACK when its records are durable, NONE at once, whatever becomes of them.

    Microbatch topologies take no part in an append, so ACK means the same as APPEND_ACK.
    """

    NONE = "none"
    APPEND_ACK = "append_ack"
    ACK = "ack"

    def answer(self, appended: Future[dict[str, Any]]) -> Future[dict[str, Any]]:
        """What an append of this level gives: its future, or for NONE one that is done."""
        if self is not AckLevel.NONE:
            return appended
        done: Future[dict[str, Any]] = Future()
        done.set_result({})
        return done


def check_ack(ack: object) -> None:
    """Raises BadInput: it is no AckLevel; the caller of an append corrects it."""
    if not isinstance(ack, AckLevel):
        raise BadInput(f"ack= is an AckLevel, such as AckLevel.ACK, not {ack!r}.")


@dataclass(frozen=True)
class LaunchConfig:
    """How many tasks (a power of two, fixed for the module's life) run in how many threads.

    Raises:
        BadInput: the numbers do not fit each other; the caller corrects them.
    """

    tasks: int
    threads: int
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("tasks", "threads", "workers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"LaunchConfig: {name} is a whole number from 1 on, not {value!r}.")
        if self.tasks & (self.tasks - 1):
            raise BadInput(f"LaunchConfig: tasks is a power of two (1, 2, 4, 8, …), not {self.tasks}.")
        if self.threads > self.tasks:
            raise BadInput(f"LaunchConfig: {self.threads} threads need at least as many tasks, not {self.tasks}.")

    def num_workers(self, count: int) -> LaunchConfig:
        """Accepted for Rama's sake: Spark decides how many processes run the threads."""
        return replace(self, workers=count)


@dataclass(frozen=True)
class UpdateOptions:
    """What an update may do: `UpdateOptions.objects_to_delete("$$old", "*gone")`."""

    deleted: tuple[str, ...] = ()
    breaks_mirrors: bool = False

    def break_mirrors(self) -> UpdateOptions:
        """Also what other modules mirror may go or change: they stop until they are updated."""
        return replace(self, breaks_mirrors=True)

    @classmethod
    def objects_to_delete(cls, *names: str) -> UpdateOptions:
        """The depots and PStates that the new definition does not have, and whose data goes away.

        Raises:
            BadInput: a name is no string.
        """
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise BadInput(f"objects_to_delete takes names such as '$$old' or '*gone', not {wrong[0]!r}.")
        return cls(tuple(names))
