"""What can be done. `apply` performs these, one after the other; each is safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill_operator.resources.names import Json
from tidemill_operator.resources.reasons import Happening


@dataclass(frozen=True)
class SetStatus:
    """Write what the operator owns of an object's status; refused if the object has changed since it was read."""

    obj: Json
    status: Json
    is_exclusive: bool
    """True: nobody else writes this status, so a newer version of the object means that the decision is stale."""


@dataclass(frozen=True)
class ClearStatus:
    """Take fields out of an object's status that somebody else wrote and that nobody vouches for any more."""

    obj: Json
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Ensure:
    """Make the object be as described (server-side apply); nothing is sent if it is so already."""

    obj: Json


@dataclass(frozen=True)
class CreateToken:
    """Create the gateway's token Secret with a new random token, unless there is one."""

    module: Json


@dataclass(frozen=True)
class Delete:
    """Delete the object of this kind and name, which is one of ours."""

    obj: Json


@dataclass(frozen=True)
class ReadVerdict:
    """Read the describe pod's log and remember its verdict with the revision."""

    module: Json
    number: int
    pod: str


@dataclass(frozen=True)
class SetFinalizer:
    """Put our finalizer on a Module, or take it off."""

    obj: Json
    is_wanted: bool


@dataclass(frozen=True)
class Announce:
    """An event about `obj`."""

    obj: Json
    reason: Happening
    note: str
    is_warning: bool = False


Action = SetStatus | ClearStatus | Ensure | CreateToken | Delete | ReadVerdict | SetFinalizer | Announce


@dataclass(frozen=True)
class Decision:
    """Actions in order, and after how many seconds to look again even if nothing happens (None: no need)."""

    actions: list[Action] = field(default_factory=list)
    again_seconds: float | None = None
