"""The phases of a runner machine, and which may follow which.

    standby -> claiming -> idle <-> paused
                            |  ^
                            v  |
               prime -> process -> commit        back-off: an attempt failed, and its next version waits
                 ^______________________|

The machine never sets its phase: it is read off what it holds (`Machine.phase`), so that it cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Union

from tidemill.clients.status import Phase

MachinePhase = Union[Phase, Literal["standby", "claiming", "over"]]

FOLLOWING: Final[Mapping[MachinePhase, frozenset[MachinePhase]]] = {
    # another process leads, as far as the lease tells
    "standby": frozenset({"claiming", "over"}),
    # the lease is ours; the claim is written. An attempt of the leader before is begun anew: that is prime
    "claiming": frozenset({"idle", "prime", "over"}),
    # nothing is under way; what reads no record starts without a begin entry
    "idle": frozenset({"prime", "process", "paused", "over"}),
    # an attempt is begun in the log, or is about to be
    "prime": frozenset({"process", "back-off", "paused", "over"}),
    # the attempt runs
    "process": frozenset({"commit", "back-off", "paused", "over"}),
    # the attempt is done; its commit may begin the next one
    "commit": frozenset({"idle", "prime", "paused", "back-off", "over"}),
    # an attempt failed; its next version is begun at once, and starts after a while
    "back-off": frozenset({"prime", "process", "paused", "over"}),
    # nothing is begun until somebody ends the pause; an attempt that failed waits for it as well
    "paused": frozenset({"idle", "prime", "back-off", "over"}),
    "over": frozenset(),
}
"""Phase -> the phases that may come next, besides itself."""
