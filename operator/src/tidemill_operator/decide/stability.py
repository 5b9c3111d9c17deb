"""When an active revision counts as stable, and when as not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidemill_operator.decide.intent import Intent
from tidemill_operator.observe.problems import age_seconds
from tidemill_operator.observe.views import ModuleView, TopologyView
from tidemill_operator.resources.reasons import Reason

QUIET_SECONDS: Final = 30.0
"""A topology with nothing to do is stable after leading for so long without a failed attempt."""

FAILED_ATTEMPTS: Final = 3
SILENT_SECONDS: Final = 40.0
"""A driver reports each 10 s; clocks of nodes may differ, and the API server may have been away for a while."""

_STORE_CODES: Final = {"StoreUnavailable", "OutcomeUnknown"}
_OF_REVISION: Final = {
    Reason.CRASH_LOOP,
    Reason.REFUSED,
    Reason.ATTEMPTS_FAIL,
    Reason.DEADLINE_EXCEEDED,
    Reason.CONTAINER_CONFIG,
}


@dataclass(frozen=True)
class Trouble:
    """A reason why a topology does not work, with a sentence for people."""

    reason: Reason
    message: str

    @property
    def is_of_revision(self) -> bool:
        """Whether an older revision could be better: a store that is down or a full cluster would stop it as well."""
        return self.reason in _OF_REVISION


def is_stable(view: ModuleView, intent: Intent, runner: TopologyView, now: datetime) -> bool:
    """Led by the active revision with enough commits, or quietly for a while with nothing to do."""
    if not runner.is_led_by(intent.active):
        return False
    status = runner.status
    enough = int(view.spec.get("rollout", {}).get("stableMicrobatches", 3))
    if int(status.get("commitsSinceClaim", 0)) >= enough:
        return True
    led_seconds = age_seconds(status.get("claimTime") or intent.active_time, now)
    is_quiet = int(status.get("failuresInRow", 0)) == 0 and _has_nothing_to_do(runner)
    return is_quiet and led_seconds >= QUIET_SECONDS


def _has_nothing_to_do(runner: TopologyView) -> bool:
    """A lag that is left out is not known: the store does not answer, or was not asked yet."""
    lag = runner.status.get("lag")
    is_paused = runner.status.get("phase") == "Paused"
    return is_paused or (lag is not None and not any(lag.values()) and not runner.status.get("storeTrouble"))


def trouble_of(view: ModuleView, intent: Intent, runner: TopologyView, now: datetime) -> Trouble | None:
    """What is wrong with a topology at the active revision; None while it works or is still on its way."""
    drivers, status = runner.of(intent.active), runner.status
    if runner.is_led_by(intent.active):
        if int(status.get("failuresInRow", 0)) < FAILED_ATTEMPTS:
            return None
        return _failing_attempts(runner)
    if drivers.problem is not None:
        return Trouble(drivers.problem.reason, drivers.problem.message)
    seconds = int(view.spec.get("rollout", {}).get("progressDeadlineSeconds", 120))
    is_late = intent.current != intent.active and age_seconds(intent.active_time, now) > seconds
    if is_late:
        return Trouble(Reason.DEADLINE_EXCEEDED, f"no driver of topology {runner.topology} leads after {seconds} s")
    return None


def ailment_of(runner: TopologyView, now: datetime) -> Trouble | None:
    """What keeps a led topology from its work though no revision is to blame: its store, or a driver without a word."""
    silent, leader = runner.silent_seconds(now), runner.status.get("leader")
    if silent > SILENT_SECONDS:
        text = f"pod {leader} has not reported since {runner.status['heartbeatTime']}; lag and rate are unknown"
        return Trouble(Reason.NOT_REPORTING, text)
    if runner.status.get("storeTrouble"):
        return Trouble(Reason.STORE_UNAVAILABLE, f"pod {leader} can not commit: {runner.status['storeTrouble']}")
    return None


def _failing_attempts(runner: TopologyView) -> Trouble:
    failures = runner.status.get("failures") or [{}]
    newest = failures[0]
    text = f"{runner.status.get('failuresInRow')} attempts of topology {runner.topology} failed in a row"
    words = ": ".join(str(newest[key]) for key in ("code", "message") if newest.get(key))
    text += f", last with {words[:1000]}" if words else ""
    reason = Reason.STORE_UNAVAILABLE if newest.get("code") in _STORE_CODES else Reason.ATTEMPTS_FAIL
    return Trouble(reason, text)
