"""Which records may go to the quarantine of a topology: what the options say, and how much is there already."""

from __future__ import annotations

from typing import Final

from tidemill.journal.entries import Attempt
from tidemill.language.options import ModuleOptions, resolve

ON_ERROR: Final = "topology.on.record.error"
MICROBATCH_MAX: Final = "topology.quarantine.microbatch.max.records"
SHARE_MAX: Final = "topology.quarantine.microbatch.max.share"
HELD_MAX: Final = "topology.quarantine.max.records"


def is_on(options: ModuleOptions, topology: str) -> bool:
    """Whether records at which the module's code raises go to the quarantine."""
    return bool(resolve(ON_ERROR, options.values, topology) == "quarantine")


def refusal(attempt: Attempt, held: int, options: ModuleOptions, topology: str) -> str:
    """Why no further record of a microbatch may go there; empty if one may. `held` are those that are there."""
    count = len(attempt.poisons)
    if not attempt.records:
        return "the microbatch has no records"
    at_once = resolve(MICROBATCH_MAX, options.values, topology)
    if count >= at_once:
        return f"{count} of this microbatch are there, and {MICROBATCH_MAX} is {at_once}"
    share = resolve(SHARE_MAX, options.values, topology)
    if 0 < count < attempt.records and (count + 1) / attempt.records > share:
        return f"{count} of the {attempt.records} records of this microbatch are there, and {SHARE_MAX} is {share:g}"
    most = resolve(HELD_MAX, options.values, topology)
    if held + count >= most:
        text = f"it holds {held + count} from the oldest on that nobody decided on, and {HELD_MAX} is {most}"
        return f"{text}; use `tidemill quarantine retry` or `drop`"
    return ""
