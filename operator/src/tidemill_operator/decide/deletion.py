"""A Module that is being deleted: with deletionPolicy Delete its data goes first; our finalizer waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tidemill_operator.decide.actions import Action, Announce, Decision, Delete, Ensure, SetFinalizer, SetStatus
from tidemill_operator.decide.intent import Intent
from tidemill_operator.observe.views import ModuleView
from tidemill_operator.resources import conditions, gateway, jobs, names, topology
from tidemill_operator.resources.conditions import State
from tidemill_operator.resources.reasons import Happening, Reason
from tidemill_operator.resources.revision import Revision, Verdict, template_of

RETRY_SECONDS = 30.0


def decide_deleted(view: ModuleView, now: datetime) -> Decision:
    """Stop everything, destroy the data, let the Module go. Without our finalizer garbage collection does it all."""
    if names.FINALIZER not in view.obj["metadata"].get("finalizers", ()):
        return Decision()
    revision = _described(view)
    if view.spec.get("deletionPolicy") != "Delete" or revision is None or _is_namespace_going(view):
        return Decision([SetFinalizer(view.obj, False), Announce(view.obj, Happening.DATA_RETAINED, _retained(view))])
    actions = [*_stopping(view)]
    if view.pods > 0:
        state = conditions.reconciling(Reason.DELETING, f"{view.pods} pods stop")
    elif view.destroy.is_complete:
        note = f"The data of module {_stored_name(revision)} was deleted"
        done = Delete(jobs.destroy(view.obj, revision, _stored_name(revision)))
        # The Job last: while the Module waits for it, one that is gone would be made again.
        return Decision([Announce(view.obj, Happening.DATA_DESTROYED, note), SetFinalizer(view.obj, False), done])
    elif view.destroy.problem is not None and view.destroy.problem.reason == Reason.OWNED_BY_ANOTHER:
        note = f"{_retained(view)}: {view.destroy.problem.message}"
        left = Delete(jobs.destroy(view.obj, revision, _stored_name(revision)))
        return Decision([Announce(view.obj, Happening.DATA_RETAINED, note), SetFinalizer(view.obj, False), left])
    else:
        state = _destroying(view)
        actions += _destroy(view, revision)
    return Decision([*_status(view, state, now), *actions], again_seconds=RETRY_SECONDS)


def _described(view: ModuleView) -> Revision | None:
    """A revision that knows the module's name in the store; without any nothing was ever written."""
    intent = Intent.read(view.status)
    numbers = [intent.active, intent.current, *sorted(view.revisions, reverse=True)]
    found = [view.revisions[number] for number in numbers if number in view.revisions]
    known = next((item for item in found if item.verdict is not None and item.verdict.module), None)
    return known or _remembered(view)


def _remembered(view: ModuleView) -> Revision | None:
    """A deletion in the foreground takes our records of revisions first; the status has what is needed."""
    shown = view.status.get("definition")
    if not shown:
        return None
    verdict = Verdict(str(shown["module"]), base=0, is_valid=True)
    return Revision(int(shown["revision"]), template_of(view.spec), verdict=verdict)


def _is_namespace_going(view: ModuleView) -> bool:
    """Nothing can be made in a namespace that is being deleted: the Module must not hold it up for ever."""
    return view.refused is not None and view.refused.reason == Reason.NAMESPACE_GOING


def _stored_name(revision: Revision) -> str:
    return revision.verdict.module if revision.verdict is not None else ""


def _retained(view: ModuleView) -> str:
    return f"The data stays at {view.spec['store']['url']}"


def _stopping(view: ModuleView) -> Iterator[Action]:
    """Our Topologies and the gateway go; a person's Topology loses its drivers when it sees the Module go."""
    for runner in view.topologies:
        if topology.is_generated(runner.obj) and not runner.obj["metadata"].get("deletionTimestamp"):
            yield Delete(runner.obj)
    if gateway.replicas(view.obj) > 0 and (view.gateway_ready or view.pods):
        frame = names.base_object("apps/v1", "Deployment", names.gateway_name(view.name), view.obj, {})
        yield Delete(frame)


def _destroy(view: ModuleView, revision: Revision) -> Iterator[Action]:
    job = jobs.destroy(view.obj, revision, _stored_name(revision))
    if view.destroy.is_failed and view.destroy.finished_seconds > RETRY_SECONDS:
        yield Delete(job)
    elif not view.destroy.exists:
        yield Ensure(job)


def _destroying(view: ModuleView) -> State:
    problem = view.destroy.problem
    if problem is not None:
        return conditions.stalled(Reason.DESTROY_FAILED, problem.message)
    if view.destroy.is_failed:
        return conditions.stalled(Reason.DESTROY_FAILED, "the destroy Job failed; its pod's log says why")
    shown = conditions.stalled_before(view.status.get("conditions", ()), view.obj["metadata"]["generation"])
    if shown is not None and shown.reason == Reason.DESTROY_FAILED:
        return shown  # a retry that runs is no news yet
    return conditions.reconciling(Reason.DESTROYING, "the data is being deleted")


def _status(view: ModuleView, state: State, now: datetime) -> Iterator[Action]:
    generation = view.obj["metadata"]["generation"]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    found = conditions.conditions(state, view.status.get("conditions", ()), generation, stamp)
    status = {**view.status, "observedGeneration": generation, "conditions": found}
    if status != view.status:
        yield SetStatus(view.obj, status, is_exclusive=True)
