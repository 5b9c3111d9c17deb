"""How long stories wait, in seconds. Most waits end far sooner; these are for a busy machine with two cores."""

from __future__ import annotations

SYSTEM_UP = 300
"""Operator and MinIO installed and ready on a cluster that is up."""

FIRST_COMMIT = 180
"""Applied Module to first committed microbatch; the promise is 60, its breach is told by the figure, not by a hang."""

ROLLOUT = 300
"""A new revision described, warmed, led and stable."""

REFUSED = 180
"""A bad revision is `Stalled`; the promise is 120."""

RECOVERY = 120
"""The next commit after a fault."""

CAUGHT_UP = 120
"""All records that were appended are in the PStates."""

GONE = 120
"""An object and what it owns are deleted."""

STATUS = 30
"""A small change shows in a status."""

COMMAND = 60
"""One command of kubectl or helm."""

REQUEST = 10
"""One request to the gateway."""
