"""The rollout of a Module as a machine: from the numbers in its status and what is seen to the next numbers.

It only plans. What was planned is written to the status first; objects follow in a later pass, from the status that was
read back (`decide.module`). So an operator that is killed between any two calls goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tidemill_operator.decide.intent import Intent, Rollback
from tidemill_operator.decide.stability import Trouble, ailment_of, is_stable, trouble_of
from tidemill_operator.decide.starts import unread_starts
from tidemill_operator.observe.problems import age_seconds
from tidemill_operator.observe.views import JobView, ModuleView, TopologyView, gateway_is_ready
from tidemill_operator.resources.conditions import State, ready, reconciling, stalled, stalled_before
from tidemill_operator.resources.names import digest
from tidemill_operator.resources.reasons import Happening, Reason
from tidemill_operator.resources.revision import Revision, running_digest, template_of

LOOK_AGAIN_SECONDS = 5.0
"""Pace of looking at things that only time changes, such as deadlines; events come at once."""


@dataclass(frozen=True)
class Plan:
    """The next numbers, what the conditions say, what to announce, and when to look again."""

    intent: Intent
    state: State
    news: tuple[tuple[Happening, str], ...] = ()
    again_seconds: float | None = None


def plan(view: ModuleView, now: datetime, stamp: str) -> Plan:
    """`stamp` is `now` as the API server writes it."""
    intent = _without_old_rollback(view, Intent.read(view.status))
    number = target(view, intent)
    if number != intent.update:
        return _new_update(view, intent.updating(number, stamp), number)
    if view.refused is not None:
        return Plan(intent, stalled(view.refused.reason, view.refused.message, _is_serving(view)), again_seconds=30.0)
    revision = view.revisions.get(number)
    if revision is None:
        text = f"revision {number} is being made of the spec"
        return Plan(intent, reconciling(Reason.NEW_REVISION, text, _is_serving(view)))
    if intent.current != number and _is_overtaken(view, revision):
        return _described_again(view, intent, revision, stamp)
    if revision.verdict is None:
        return _describing(view, intent, revision, now)
    if not revision.is_valid:
        return _invalid(view, intent, revision, stamp)
    if intent.active != number and (unread := unread_starts(view, revision)):
        text = (
            f"{unread}. Correct the name: revision {number} does not begin before, since its first start holds for ever"
        )
        return Plan(intent, stalled(Reason.NO_SUCH_SOURCE, text, _is_serving(view)), again_seconds=LOOK_AGAIN_SECONDS)
    if intent.active != number:
        return _warming(view, intent, revision, now, stamp)
    if intent.current != number:
        return _settling(view, intent, revision, now, stamp)
    return _steady(view, intent, revision, now)


def _without_old_rollback(view: ModuleView, intent: Intent) -> Intent:
    """A rollback is over when the spec asks for something else than what failed."""
    rollback = intent.rollback
    if rollback is None or _is_same(view.revisions.get(rollback.failed), template_of(view.spec)):
        return intent
    return replace(intent, rollback=None)


def target(view: ModuleView, intent: Intent) -> int:
    """The revision that the spec asks for: one that is there, or a new number."""
    template = template_of(view.spec)
    if intent.update and intent.update not in view.revisions:
        return intent.update
    if intent.rollback is not None:
        return intent.rollback.number
    active = view.revisions.get(intent.active)
    if active is not None and active.asks_nothing_of(template):
        return intent.active
    asked = [revision for revision in view.revisions.values() if revision.origin == "spec"]
    newest = max(asked, key=lambda revision: revision.number, default=None)
    if newest is not None and _is_same(newest, template) and newest.number >= intent.active:
        return newest.number
    return max([0, intent.update, intent.active, intent.current, *view.revisions]) + 1


def _is_overtaken(view: ModuleView, revision: Revision) -> bool:
    """Whether another revision wrote a definition after this one was described: its drivers may never lead then."""
    verdict = revision.verdict
    if verdict is None or not verdict.is_valid:
        return False
    for runner in view.topologies:
        leading = view.revisions.get(int(runner.status.get("revision") or 0))
        if leading is None or leading.verdict is None or not runner.is_led:
            continue
        is_other = leading.number != revision.number and leading.verdict.module == verdict.module
        if is_other and int(runner.status.get("definition") or 0) > verdict.base:
            return True
    return False


def _described_again(view: ModuleView, intent: Intent, revision: Revision, stamp: str) -> Plan:
    """The same template under a new number, which is described against the newest definition."""
    number = max([intent.update, *view.revisions]) + 1
    rollback = intent.rollback
    if rollback is not None and rollback.number == revision.number:
        again = replace(intent, update=number, update_time=stamp, rollback=replace(rollback, number=number))
        again = again.activating(number, stamp) if intent.active == revision.number else again
    else:
        again = intent.updating(number, stamp)
    note = f"Revision {number}: as {revision.number}, after a definition that was written meanwhile"
    state = reconciling(Reason.NEW_REVISION, note, _is_serving(view))
    return Plan(again, state, ((Happening.REVISION_CREATED, note),))


def _is_same(revision: Revision | None, template: dict[str, object]) -> bool:
    return revision is not None and revision.full_digest == digest(template)


def _new_update(view: ModuleView, intent: Intent, number: int) -> Plan:
    if number == intent.active:
        state = reconciling(Reason.NEW_REVISION, f"the spec asks for revision {number} again", _is_serving(view))
        return Plan(intent, state)
    text = f"revision {number} is made of the spec"
    return Plan(
        intent,
        reconciling(Reason.NEW_REVISION, text, _is_serving(view)),
        ((Happening.REVISION_CREATED, f"Revision {number}: {view.spec['image']}"),),
    )


def _is_serving(view: ModuleView) -> bool:
    """Whether everything works on some revision."""
    active = view.revisions.get(Intent.read(view.status).active)
    runners = _runners(view, active) if active is not None else list(view.topologies)
    return bool(runners) and all(runner.is_led for runner in runners) and gateway_is_ready(view)


def _describing(view: ModuleView, intent: Intent, revision: Revision, now: datetime) -> Plan:
    job = view.describes.get(revision.number, JobView())
    trouble = _describe_trouble(view, intent, job, now)
    shown = None if job.is_complete else _stalled_before(view, revision)
    if shown is not None and (trouble is None or trouble.reason == Reason.DEADLINE_EXCEEDED):
        state = shown
    elif trouble is not None:
        state = stalled(trouble.reason, f"revision {revision.number}: {trouble.message}", _is_serving(view))
    else:
        text = f"revision {revision.number} is checked against what the store holds"
        state = reconciling(Reason.DESCRIBING, text, _is_serving(view))
    return Plan(intent, state, again_seconds=LOOK_AGAIN_SECONDS)


def _stalled_before(view: ModuleView, revision: Revision) -> State | None:
    """Why this revision was Stalled: a retry that runs is no news yet."""
    shown = stalled_before(view.status.get("conditions", ()), view.obj["metadata"]["generation"], _is_serving(view))
    return shown if shown is not None and shown.message.startswith(f"revision {revision.number}: ") else None


def _describe_trouble(view: ModuleView, intent: Intent, job: JobView, now: datetime) -> Trouble | None:
    if job.problem is not None:
        is_refusal = job.problem.reason in (Reason.REFUSED, Reason.CRASH_LOOP)
        return Trouble(Reason.DESCRIBE_FAILED if is_refusal else job.problem.reason, job.problem.message)
    if job.is_failed:
        reason = Reason.STORE_UNAVAILABLE if job.may_retry else Reason.DESCRIBE_FAILED
        return Trouble(reason, "the describe Job failed; its pod's log says why")
    if job.is_complete:
        return None
    seconds = deadline_seconds(view)
    if age_seconds(intent.update_time, now) > seconds:
        return Trouble(Reason.DEADLINE_EXCEEDED, f"the describe Job has not ended for {seconds} s")
    return None


def deadline_seconds(view: ModuleView) -> int:
    """Seconds that a revision has for each stage of its rollout (`rollout.progressDeadlineSeconds`, 120 by default)."""
    return int(view.spec.get("rollout", {}).get("progressDeadlineSeconds", 120))


def is_recreate(view: ModuleView) -> bool:
    """Whether the old drivers must stop before new ones start (`rollout.strategy: Recreate`)."""
    return bool(view.spec.get("rollout", {}).get("strategy") == "Recreate")


def _invalid(view: ModuleView, intent: Intent, revision: Revision, stamp: str) -> Plan:
    faults = revision.verdict.faults if revision.verdict else ()
    listed = "; ".join(f"{place}) {fault}" for place, fault in enumerate(faults, 1)) or "no reason was given"
    count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
    rollback = intent.rollback
    if revision.origin == "rollback" and rollback is not None:
        if intent.active == revision.number:
            intent = intent.activating(rollback.failed, stamp)
        failed = rollback.message
        text = f"{failed}; going back to revision {revision.copy_of} is impossible, {count}: {listed}"
        return Plan(intent, stalled(Reason.ROLLBACK_IMPOSSIBLE, text))
    goes_on = f". Revision {intent.active} goes on" if intent.active else ""
    if revision.verdict is not None and revision.verdict.is_owned:
        return Plan(intent, stalled(Reason.OWNED_BY_ANOTHER, f"{listed}{goes_on}", _is_serving(view)))
    if revision.goes_back:
        text = f"going back to what revision {revision.copy_of} was is impossible, {count}: {listed}{goes_on}. {_ANEW}"
        return Plan(intent, stalled(Reason.ROLLBACK_IMPOSSIBLE, text, _is_serving(view)))
    text = f"revision {revision.number} is no valid update, {count}: {listed}{goes_on}"
    return Plan(intent, stalled(Reason.INVALID_DEFINITION, text, _is_serving(view)))


_ANEW = "With another rollout.retryNonce it is an update like any other, and what is gone starts empty"


def copied_by_hand(view: ModuleView, intent: Intent) -> int | None:
    """The stable revision to which an edited spec goes back; None if it is a new one."""
    wanted = running_digest(template_of(view.spec))
    found = [number for number in intent.stable if number in view.revisions and number != intent.update]
    return max((number for number in found if view.revisions[number].running_digest == wanted), default=None)


def _warming(view: ModuleView, intent: Intent, revision: Revision, now: datetime, stamp: str) -> Plan:
    number = revision.number
    news = ((Happening.REVISION_ACTIVATED, f"Revision {number} may lead"),)
    activated = intent.activating(number, stamp)
    handing = reconciling(Reason.HANDING_OVER, f"revision {number} takes over", _is_serving(view))
    if not intent.active:
        starting = reconciling(Reason.STARTING, f"drivers of revision {number} start")
        return Plan(activated, starting, news, again_seconds=0.0)
    if is_recreate(view):
        if all(drivers.pods == 0 for runner in view.topologies for drivers in runner.drivers.values()):
            return Plan(activated, handing, news)
        text = f"drivers of revision {intent.active} stop, then revision {number} starts"
        return Plan(intent, reconciling(Reason.HANDING_OVER, text))
    waiting = [runner for runner in _runners(view, revision) if not runner.of(number).is_warm]
    if not waiting and _has_all_runners(view, revision):
        return Plan(activated, handing, news)
    for runner in waiting:
        problem = runner.of(number).problem
        if problem is not None:
            reason = Reason.NO_ROOM_FOR_SURGE if problem.reason == Reason.UNSCHEDULABLE else problem.reason
            text = f"revision {number}: {problem.message}. Revision {intent.active} goes on"
            return Plan(intent, stalled(reason, text, _is_serving(view)), again_seconds=LOOK_AGAIN_SECONDS)
    if age_seconds(intent.update_time, now) > deadline_seconds(view):
        late = ", ".join(runner.topology for runner in waiting) or "a topology"
        text = f"revision {number}: drivers of {late} are not warm after {deadline_seconds(view)} s"
        state = stalled(Reason.DEADLINE_EXCEEDED, f"{text}. Revision {intent.active} goes on", _is_serving(view))
        return Plan(intent, state, again_seconds=LOOK_AGAIN_SECONDS)
    text = f"drivers of revision {number} get warm ({len(waiting)} to go)"
    return Plan(intent, reconciling(Reason.WARMING, text, _is_serving(view)), again_seconds=LOOK_AGAIN_SECONDS)


def _runners(view: ModuleView, revision: Revision) -> list[TopologyView]:
    names = revision.verdict.topologies if revision.verdict else {}
    return [runner for name in names if (runner := view.runner_of(name)) is not None]


def _has_all_runners(view: ModuleView, revision: Revision) -> bool:
    return len(_runners(view, revision)) == len(revision.verdict.topologies if revision.verdict else {})


def _settling(view: ModuleView, intent: Intent, revision: Revision, now: datetime, stamp: str) -> Plan:
    runners, number = _runners(view, revision), revision.number
    if _has_all_runners(view, revision) and all(is_stable(view, intent, runner, now) for runner in runners):
        stable = intent.stabilized(number, view.revisions)
        state = _steady(view, stable, revision, now).state
        return Plan(stable, state, ((Happening.REVISION_STABLE, f"Revision {number} is stable"),))
    for runner in runners:
        trouble = trouble_of(view, intent, runner, now)
        if trouble is not None:
            return _unstable(view, intent, revision, trouble, stamp)
    if intent.rollback is not None and intent.rollback.number == number:
        reason, text = Reason.ROLLING_BACK, f"revision {intent.rollback.stable} comes back as revision {number}"
    elif all(runner.is_led_by(number) for runner in runners):
        reason, text = Reason.STABILIZING, f"revision {number} leads and is not stable yet"
    elif not intent.current:
        reason, text = Reason.STARTING, f"drivers of revision {number} start"
    else:
        reason, text = Reason.HANDING_OVER, f"revision {number} takes over"
    return Plan(intent, reconciling(reason, text, _is_serving(view)), again_seconds=LOOK_AGAIN_SECONDS)


def _unstable(view: ModuleView, intent: Intent, revision: Revision, trouble: Trouble, stamp: str) -> Plan:
    is_automatic = view.spec.get("rollout", {}).get("rollback", "Automatic") == "Automatic"
    can_return = intent.current in view.revisions and revision.origin == "spec" and trouble.is_of_revision
    text = f"revision {revision.number} is not stable: {trouble.message}"
    if not (is_automatic and can_return):
        return Plan(intent, stalled(trouble.reason, text), again_seconds=LOOK_AGAIN_SECONDS)
    number = max([intent.update, *view.revisions]) + 1
    rollback = Rollback(revision.number, intent.current, number, str(trouble.reason), text)
    back = replace(intent, update=number, update_time=stamp, active=number, active_time=stamp, rollback=rollback)
    note = f"{text}. Revision {intent.current} comes back as revision {number}"
    return Plan(back, reconciling(Reason.ROLLING_BACK, note), ((Happening.ROLLBACK_STARTED, note),))


def _seconds_without(view: ModuleView, now: datetime) -> float:
    """How long the Module has not been Ready."""
    times = [item["lastTransitionTime"] for item in view.status.get("conditions", ()) if item["type"] == "Ready"]
    is_ready = any(i["type"] == "Ready" and i["status"] == "True" for i in view.status.get("conditions", ()))
    return 0.0 if is_ready or not times else age_seconds(times[0], now)


def _steady(view: ModuleView, intent: Intent, revision: Revision, now: datetime) -> Plan:
    if intent.rollback is not None:
        text = (
            f"{intent.rollback.message}; revision {intent.rollback.stable} runs again, as revision {revision.number}. "
            "Change the spec to try something else"
        )
        return Plan(intent, stalled(Reason.ROLLED_BACK, text, _is_serving(view)))
    runners = _runners(view, revision)
    for runner in runners:
        trouble = trouble_of(view, intent, runner, now)
        if trouble is not None:
            text = f"topology {runner.topology}: {trouble.message}"
            return Plan(intent, stalled(trouble.reason, text), again_seconds=LOOK_AGAIN_SECONDS)
        ailment = ailment_of(runner, now) if runner.is_led_by(revision.number) else None
        if ailment is not None:
            text = f"topology {runner.topology}: {ailment.message}"
            return Plan(intent, reconciling(ailment.reason, text), again_seconds=LOOK_AGAIN_SECONDS)
    waiting = [runner.topology for runner in runners if not runner.is_led_by(revision.number)]
    if waiting or not _has_all_runners(view, revision):
        text = f"no driver leads {', '.join(waiting) or 'a topology'}"
        if _seconds_without(view, now) > deadline_seconds(view):
            text += f" for {deadline_seconds(view)} s; has somebody else changed the definition in the store?"
            return Plan(intent, stalled(Reason.DEADLINE_EXCEEDED, text), again_seconds=LOOK_AGAIN_SECONDS)
        return Plan(intent, reconciling(Reason.TOPOLOGIES_NOT_READY, text), again_seconds=LOOK_AGAIN_SECONDS)
    if not gateway_is_ready(view):
        if view.gateway_problem is not None:
            return Plan(intent, stalled(view.gateway_problem.reason, f"gateway: {view.gateway_problem.message}"))
        return Plan(intent, reconciling(Reason.GATEWAY_NOT_READY, "no gateway pod is ready"))
    text = f"revision {revision.number} runs {len(runners)} topolog{'y' if len(runners) == 1 else 'ies'}"
    return Plan(intent, ready(Reason.RUNNING, text + _warnings_text(revision)))


def _warnings_text(revision: Revision) -> str:
    """That its code is allowed and most likely not meant; the status has each warning with its line."""
    has_some = revision.verdict is not None and revision.verdict.warnings
    return "; its code has warnings: status.definition.warnings" if has_some else ""
