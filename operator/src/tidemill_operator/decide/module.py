"""A Module: from what is seen to actions. Status first; objects follow from the status that was read back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from tidemill_operator.decide import deletion, rollout
from tidemill_operator.decide.actions import (
    Action,
    Announce,
    CreateToken,
    Decision,
    Delete,
    Ensure,
    ReadVerdict,
    SetFinalizer,
    SetStatus,
)
from tidemill_operator.decide.intent import Intent, live_revisions
from tidemill_operator.decide.rollout import Plan
from tidemill_operator.decide.starts import runnable
from tidemill_operator.observe.views import JobView, ModuleView
from tidemill_operator.resources import access, conditions, driver, gateway, jobs, names, revision, topology
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.reasons import Happening
from tidemill_operator.resources.revision import Revision
from tidemill_operator.resources.settings import Defaults

RETRY_DESCRIBE_SECONDS = 60.0
"""A describe Job that gave up because the store did not answer is made anew after this time."""


def decide_module(view: ModuleView, now: datetime, defaults: Defaults) -> Decision:
    """What to do now for a Module."""
    if view.obj["metadata"].get("deletionTimestamp"):
        return deletion.decide_deleted(view, now)
    plan = rollout.plan(view, now, stamp(now))
    status = status_of(view, plan, stamp(now))
    if status == view.status:  # ours as a whole
        return Decision(list(_objects(view, plan, defaults)), plan.again_seconds)
    actions: list[Action] = [SetStatus(view.obj, status, is_exclusive=True), *_news(view, plan)]
    if plan.intent == Intent.read(view.status):
        actions += _objects(view, plan, defaults)
    return Decision(actions, 0.0 if plan.intent != Intent.read(view.status) else plan.again_seconds)


def stamp(now: datetime) -> str:
    """A UTC time as the API server writes it, to the second: 2024-05-01T12:00:00Z."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def status_of(view: ModuleView, plan: Plan, now: str) -> Json:
    """The whole status that the plan asks for."""
    generation = view.obj["metadata"]["generation"]
    status = plan.intent.write() | {"observedGeneration": generation}
    led = sum(1 for runner in view.topologies if runner.is_led)
    if view.topologies:
        status["topologiesReady"] = f"{led}/{len(view.topologies)}"
    active = view.revisions.get(plan.intent.active)
    if active is not None and active.verdict is not None and active.verdict.is_valid:
        status["definition"] = {
            "module": active.verdict.module,
            "revision": active.number,
            "depots": list(active.verdict.depots),
            "pstates": list(active.verdict.pstates),
            "topologies": list(active.verdict.topologies),
            "warnings": list(active.verdict.warnings),
        }
    status["conditions"] = conditions.conditions(plan.state, view.status.get("conditions", ()), generation, now)
    return status


def _news(view: ModuleView, plan: Plan) -> Iterator[Action]:
    for reason, note in plan.news:
        is_warning = reason == Happening.ROLLBACK_STARTED
        yield Announce(view.obj, reason, note, is_warning)
    yield from stalled_news(view.obj, plan.state)


def stalled_news(obj: Json, state: conditions.State) -> Iterator[Action]:
    """An event when an object becomes Stalled, changes its reason, or gets on again."""
    old = obj.get("status", {}).get("conditions", ())
    if state.kind == "stalled" and conditions.stalled_reason(old) != str(state.reason):
        yield Announce(obj, Happening.STALLED, f"{state.reason}: {state.message}", is_warning=True)
    if state.kind != "stalled" and conditions.is_stalled(old):
        yield Announce(obj, Happening.RECOVERED, state.message)


def _objects(view: ModuleView, plan: Plan, defaults: Defaults) -> Iterator[Action]:
    """Everything that the recorded intent needs, and what it needs no more."""
    intent = plan.intent
    yield from _finalizer(view)
    if view.refused is not None:
        return
    update = view.revisions.get(intent.update)
    if update is None:
        made = replace(_new_revision(view, intent), cluster=defaults.cluster)
        yield Ensure(revision.controller_revision(view.obj, made))
        return
    if update.verdict is None:
        yield from _describe(view, update)
    live = [view.revisions[number] for number in _live(view, intent)]
    if live:
        yield from _rebinding(view, defaults)
        yield from (Ensure(built) for built in access.objects(view.obj, defaults))
    for item in live:
        yield Ensure(driver.config_map(view.obj, item))
    yield from _topologies(view, intent)
    yield from _gateway(view, intent, defaults)
    yield from _history(view, intent)


def _rebinding(view: ModuleView, defaults: Defaults) -> Iterator[Action]:
    """A binding can not be turned to another role (the operator was installed anew under another name)."""
    wanted = access.role_binding(view.obj, defaults)
    if view.binding is not None and view.binding["roleRef"] != wanted["roleRef"]:
        yield Delete(wanted)


def _live(view: ModuleView, intent: Intent) -> list[int]:
    return live_revisions(intent, runnable(view), rollout.is_recreate(view))


def _finalizer(view: ModuleView) -> Iterator[Action]:
    is_wanted = view.spec.get("deletionPolicy") == "Delete"
    if is_wanted != (names.FINALIZER in view.obj["metadata"].get("finalizers", ())):
        yield SetFinalizer(view.obj, is_wanted)


def _new_revision(view: ModuleView, intent: Intent) -> Revision:
    rollback = intent.rollback
    if rollback is not None and rollback.number == intent.update:
        template = revision.rollback_template(view.revisions[rollback.stable], view.revisions.get(rollback.failed))
        return Revision(intent.update, template, "rollback", copy_of=rollback.stable)
    return Revision(intent.update, revision.template_of(view.spec), copy_of=rollout.copied_by_hand(view, intent))


def _describe(view: ModuleView, update: Revision) -> Iterator[Action]:
    job = view.describes.get(update.number, JobView())
    yield Ensure(driver.config_map(view.obj, update))
    is_log_gone = job.is_complete and job.pod is None
    gave_up = job.is_failed and job.may_retry and job.finished_seconds > RETRY_DESCRIBE_SECONDS
    if job.pod is not None:
        yield ReadVerdict(view.obj, update.number, job.pod)
    elif is_log_gone or gave_up:
        yield Delete(jobs.describe(view.obj, update))
    elif not job.exists:
        yield Ensure(jobs.describe(view.obj, update))


def _topologies(view: ModuleView, intent: Intent) -> Iterator[Action]:
    """Topologies for what has none; and ours go where a person made another, or the definition has none any more."""
    wanted: dict[str, None] = {}
    for number in _live(view, intent):
        verdict = view.revisions[number].verdict
        wanted |= dict.fromkeys(verdict.topologies if verdict else ())
    for name in wanted:
        if view.runner_of(name) is None:
            yield Ensure(topology.generated(view.obj, name, wanted))
            yield Announce(view.obj, Happening.TOPOLOGY_CREATED, f"Topology for {name}")
    is_rolled_out = intent.current == intent.active == intent.update
    for runner in view.topologies:
        is_other = view.runner_of(runner.topology) is not runner
        is_gone = is_rolled_out and runner.topology not in wanted
        if wanted and topology.is_generated(runner.obj) and (is_other or is_gone):
            yield Delete(runner.obj)
            yield Announce(view.obj, Happening.TOPOLOGY_DELETED, f"Topology {runner.name} is not needed any more")


def _gateway(view: ModuleView, intent: Intent, defaults: Defaults) -> Iterator[Action]:
    active = view.revisions.get(intent.active)
    if active is None or not active.is_valid:
        return
    if gateway.makes_token(view.obj):
        yield CreateToken(view.obj)
    yield from (Ensure(built) for built in gateway.objects(view.obj, active, defaults))


def _history(view: ModuleView, intent: Intent) -> Iterator[Action]:
    """Old revisions beyond the limit; what is in use, was rolled back or is the newest of the spec stays.

    What a revision needs only while it has drivers goes with them.
    """
    needed = {intent.update, *_live(view, intent)}
    for number, item in view.revisions.items():
        if number not in needed:
            yield Delete(driver.config_map(view.obj, item))
            yield Delete(jobs.describe(view.obj, item))
    asked = [number for number, item in view.revisions.items() if item.origin == "spec"]
    kept = {intent.update, intent.active, intent.current, max(asked, default=0)}
    if intent.rollback is not None:
        kept |= {intent.rollback.failed, intent.rollback.stable}
    old = sorted((number for number in view.revisions if number not in kept), reverse=True)
    for number in old[int(view.spec.get("revisionHistoryLimit", 10)) :]:
        yield Delete(revision.controller_revision(view.obj, view.revisions[number]))
