"""A Topology: its drivers follow from its Module's status; its conditions from its leader and its pods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from tidemill_operator.decide.actions import Action, Announce, ClearStatus, Decision, Delete, Ensure, SetStatus
from tidemill_operator.decide.intent import Intent, live_revisions
from tidemill_operator.decide.module import stalled_news, stamp
from tidemill_operator.decide.rollout import is_recreate
from tidemill_operator.decide.stability import SILENT_SECONDS, ailment_of, trouble_of
from tidemill_operator.decide.starts import runnable
from tidemill_operator.observe.problems import age_seconds
from tidemill_operator.observe.views import ModuleView, TopologyUnit, TopologyView, revision_of
from tidemill_operator.resources import conditions, driver, driver_kind, topology
from tidemill_operator.resources.conditions import State
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.reasons import Happening, Reason

GENERATED_WAIT_SECONDS: Final = 5.0
"""A Topology that a person applies together with its Module may come so much later, and is not too late."""

MODULE_WAIT_SECONDS: Final = 10.0
"""A Module that is applied together with its Topology may come so much later."""

LOOK_AGAIN_SECONDS: Final = 5.0
_BY_CODE: Final = "code"
_CURRENT: Final = ("lag", "lagTotal", "rowsPerSecond", "phase", "storeTrouble", "optionTrouble")
_OWNED: Final = ("observedGeneration", "conditions", "startedFrom")


def decide_topology(unit: TopologyUnit, now: datetime) -> Decision:
    """What to do now for a Topology."""
    view = unit.view
    if view.obj["metadata"].get("deletionTimestamp"):
        return Decision()
    state = _state(unit, now)
    wait = _waiting_seconds(unit, now)
    actions: list[Action] = [*_status(unit, state, now), *_cleared(view, now)]
    if wait <= 0 and unit.refused is None:
        actions += _drivers(unit)
    if wait > 0:
        return Decision(actions, wait)
    return Decision(actions, LOOK_AGAIN_SECONDS if state.kind != "ready" else _seconds_to_silence(view, now))


def _seconds_to_silence(view: TopologyView, now: datetime) -> float | None:
    """When to look whether the driver still reports: its heartbeats wake nobody."""
    if not view.status.get("heartbeatTime"):
        return None
    return max(LOOK_AGAIN_SECONDS, SILENT_SECONDS - view.silent_seconds(now) + 1.0)


def _cleared(view: TopologyView, now: datetime) -> Iterator[Action]:
    """Figures of now, of which nobody says any more that they are of now."""
    found = tuple(name for name in _CURRENT if name in view.status)
    if found and view.silent_seconds(now) > SILENT_SECONDS:
        yield ClearStatus(view.obj, found)


def _waiting_seconds(unit: TopologyUnit, now: datetime) -> float:
    if not topology.is_generated(unit.view.obj) or unit.launched:
        return 0.0
    age = age_seconds(unit.view.obj["metadata"].get("creationTimestamp"), now)
    return max(0.0, GENERATED_WAIT_SECONDS - age)


def _numbers(unit: TopologyUnit) -> list[int]:
    """Revisions at which this topology has drivers, newest first."""
    module = unit.module
    if module is None or module.obj["metadata"].get("deletionTimestamp") or _is_duplicate(unit):
        return []
    intent = Intent.read(module.status)
    found = live_revisions(intent, runnable(module), is_recreate(module))
    if intent.rollback is not None and unit.view.of(intent.rollback.number).is_warm:
        found = [number for number in found if number != intent.rollback.failed]
    verdicts = {number: module.revisions[number].verdict for number in found}
    return [number for number, verdict in verdicts.items() if verdict and unit.view.topology in verdict.topologies]


def _is_duplicate(unit: TopologyUnit) -> bool:
    runner = unit.module.runner_of(unit.view.topology) if unit.module is not None else None
    return runner is not None and runner.name != unit.view.name


def _drivers(unit: TopologyUnit) -> Iterator[Action]:
    wanted: list[Json] = []
    if unit.module is not None:
        wanted = [
            driver_kind.launched(unit.module.obj, unit.view.obj, unit.module.revisions[number])
            for number in _numbers(unit)
        ]
        if driver.replicas(unit.view.obj) > 1 and wanted:
            yield Ensure(driver.disruption_budget(unit.module.obj, unit.view.obj))
        elif unit.budget is not None:
            yield Delete(unit.budget)
    ready = [built for built in wanted if _is_prepared(unit, built)]
    yield from (Ensure(built) for built in ready)
    kept = {(built["kind"], built["metadata"]["name"]) for built in wanted}
    for obj in unit.launched:
        is_going = bool(obj["metadata"].get("deletionTimestamp"))
        if (obj["kind"], obj["metadata"]["name"]) not in kept and not is_going and not _may_be_wanted(unit, obj):
            yield Delete(obj)


def _may_be_wanted(unit: TopologyUnit, obj: Json) -> bool:
    """A revision that the status names and whose record is gone is being described again: its drivers go on."""
    module = unit.module
    if module is None or module.obj["metadata"].get("deletionTimestamp") or _is_duplicate(unit):
        return False
    intent, number = Intent.read(module.status), revision_of(obj)
    found = module.revisions.get(number)
    return number in (intent.active, intent.current) and (found is None or found.verdict is None)


def _is_prepared(unit: TopologyUnit, built: Json) -> bool:
    """Whether its Module's reconcile has made what the pods name; its making wakes us."""
    return unit.has_account and revision_of(built) in unit.configured


def _state(unit: TopologyUnit, now: datetime) -> State:
    name = topology.module_of(unit.view.obj)
    if unit.refused is not None:
        return conditions.stalled(unit.refused.reason, unit.refused.message)
    age = age_seconds(unit.view.obj["metadata"].get("creationTimestamp"), now)
    if unit.module is None and age < MODULE_WAIT_SECONDS:
        return conditions.reconciling(Reason.WAITING_FOR_MODULE, f"there is no Module {name} yet in this namespace")
    if unit.module is None:
        return conditions.stalled(Reason.MODULE_NOT_FOUND, f"there is no Module {name} in this namespace")
    if unit.module.obj["metadata"].get("deletionTimestamp"):
        return conditions.reconciling(Reason.DELETING, f"Module {name} is being deleted")
    if _is_duplicate(unit):
        runner = unit.module.runner_of(unit.view.topology)
        other = runner.name if runner is not None else ""
        text = f"Topology {other} runs topology {unit.view.topology} of Module {name} already; delete one of them"
        return conditions.stalled(Reason.DUPLICATE_TOPOLOGY, text)
    return _running_state(unit.module, unit.view, now)


def _running_state(module: ModuleView, view: TopologyView, now: datetime) -> State:
    intent = Intent.read(module.status)
    active = module.revisions.get(intent.active)
    if active is None or active.verdict is None:
        if view.is_led:
            return conditions.reconciling(Reason.ROLLING_BACK, f"Module {module.name} goes back", is_serving=True)
        text = f"Module {module.name} has no revision yet that may run"
        return conditions.reconciling(Reason.WAITING_FOR_MODULE, text)
    if view.topology not in active.verdict.topologies:
        there = ", ".join(sorted(active.verdict.topologies)) or "none"
        text = f"revision {active.number} has no topology {view.topology!r}; it has: {there}"
        return conditions.stalled(Reason.NO_SUCH_TOPOLOGY, text)
    trouble = trouble_of(module, intent, view, now)
    if trouble is not None:
        return conditions.stalled(trouble.reason, trouble.message)
    if view.is_led_by(intent.active):
        return _led_state(view, now)
    if view.is_led:
        text = f"revision {intent.active} takes over from revision {view.status.get('revision')}"
        return conditions.reconciling(Reason.HANDING_OVER, text, is_serving=True)
    if view.of(intent.active).is_warm:
        return conditions.reconciling(Reason.NOT_LEADING, "the driver is warm and does not lead yet")
    return conditions.reconciling(Reason.STARTING, f"the driver of revision {intent.active} starts")


def _led_state(view: TopologyView, now: datetime) -> State:
    ailment = ailment_of(view, now)
    if ailment is not None:
        return conditions.reconciling(ailment.reason, ailment.message)
    where = f"pod {view.status.get('leader')} leads at revision {view.status.get('revision')}"
    skipped = _options_text(view) + _quarantine_text(view) + _skipped_text(view)
    if view.obj["spec"].get("paused") or view.status.get("phase") == "Paused":
        return conditions.ready(Reason.PAUSED, f"{where} and is paused{skipped}")
    return conditions.ready(Reason.RUNNING, f"{where}{skipped}")


def _options_text(view: TopologyView) -> str:
    """That options of the spec do not hold, and why."""
    trouble = view.status.get("optionTrouble")
    return f"; not all options hold: {trouble}" if trouble else ""


def _quarantine_text(view: TopologyView) -> str:
    """Without the number, which the status has: a condition must not change with each record."""
    is_empty = not view.status.get("inQuarantineCount", 0)
    return "" if is_empty else "; records wait in its quarantine: tidemill quarantine list"


def _skipped_text(view: TopologyView) -> str:
    count = int(view.status.get("skippedCount", 0))
    return f"; retention deleted {count} records before they were read" if count else ""


def _status(unit: TopologyUnit, state: State, now: datetime) -> Iterator[Action]:
    view = unit.view
    generation = view.obj["metadata"]["generation"]
    started = _started_from(unit)
    found = conditions.conditions(state, view.status.get("conditions", ()), generation, stamp(now))
    status: Json = {"observedGeneration": generation, "conditions": found}
    if started:
        status["startedFrom"] = started
    known = {name: view.status[name] for name in _OWNED if name in view.status}
    if status != known:
        yield SetStatus(view.obj, status, is_exclusive=False)
        yield from stalled_news(view.obj, state)
        yield from _ignored(unit, started)
        yield from _skipped(view, state)


def _skipped(view: TopologyView, state: State) -> Iterator[Action]:
    """Says each time that retention was faster than the topology; what was said already stands in its condition."""
    text = _skipped_text(view)
    shown = [item.get("message", "") for item in view.status.get("conditions", ()) if item["type"] == "Ready"]
    if text and state.kind == "ready" and not any(message.endswith(text) for message in shown):
        yield Announce(view.obj, Happening.RECORDS_SKIPPED, text.removeprefix("; "), is_warning=True)


def _started_from(unit: TopologyUnit) -> dict[str, str]:
    """The start of every depot that the topology has met: what it was when a driver first led with that depot."""
    known: dict[str, str] = dict(unit.view.status.get("startedFrom", {}))
    number = int(unit.view.status.get("revision") or 0)
    revision = unit.module.revisions.get(number) if unit.module is not None else None
    if revision is None or revision.verdict is None or not unit.view.is_led_by(number):
        return known
    asked = topology.sources(unit.view.obj, unit.module.obj if unit.module is not None else None)
    met = revision.verdict.topologies.get(unit.view.topology, ())
    return {**{depot: asked.get(depot, _BY_CODE) for depot in met}, **known}


def _ignored(unit: TopologyUnit, started: dict[str, str]) -> Iterator[Action]:
    """Says once for each generation that an edit of a start has no effect."""
    if unit.view.status.get("observedGeneration") == unit.view.obj["metadata"]["generation"]:
        return
    asked = topology.sources(unit.view.obj, unit.module.obj if unit.module is not None else None)
    before = unit.view.status.get("startedFrom", {})
    for depot in sorted(set(asked) & set(before)):
        if asked[depot] != before[depot]:
            note = (
                f"startFrom of {depot} has no effect: the topology has met this depot already "
                f"(it started from {before[depot]})"
            )
            yield Announce(unit.view.obj, Happening.START_FROM_IGNORED, note, is_warning=True)
