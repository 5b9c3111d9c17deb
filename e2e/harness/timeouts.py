"""How long stories wait, in seconds. Most waits end far sooner; these are for a busy machine with two cores.

Where promised durations get slack (`E2E_SLACK`), waits get the same; clients ask as ever.
"""

from __future__ import annotations

from e2e.harness.figures import SLACK

SYSTEM_UP = 300 * SLACK
"""Operator and MinIO installed and ready on a cluster that is up."""

FIRST_COMMIT = 180 * SLACK
"""Applied Module to first committed microbatch; the promise is 60, its breach is told by the figure, not by a hang."""

ROLLOUT = 300 * SLACK
"""A new revision described, warmed, led and stable."""

REFUSED = 180 * SLACK
"""A bad revision is `Stalled`; the promise is 120."""

RECOVERY = 120 * SLACK
"""The next commit after a fault."""

CAUGHT_UP = 120 * SLACK
"""All records that were appended are in the PStates."""

GONE = 120 * SLACK
"""An object and what it owns are deleted."""

STATUS = 30 * SLACK
"""A small change shows in a status."""

COMMAND = 60 * SLACK
"""One command of kubectl or helm."""

REQUEST = 10
"""One request to the gateway."""
