"""What Argo CD and Flux make of Modules and Topologies, by their own languages: Lua and CEL."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import celpy
import lupa
import pytest
import yaml
from celpy.adapter import json_to_cel

from tidemill_operator.resources import conditions
from tidemill_operator.resources.reasons import Reason

GITOPS = Path(__file__).parents[1]
ARGO = GITOPS / "argocd/resource_customizations/tidemill.dev"
KINDS = ("Module", "Topology")
FLUX = {"Healthy": "current", "Suspended": "current", "Degraded": "failed", "Progressing": "inProgress"}
Object = dict[str, Any]


def _cases() -> list[Any]:
    found = []
    for kind in KINDS:
        for case in yaml.safe_load((ARGO / kind / "health_test.yaml").read_text())["tests"]:
            path = ARGO / kind / case["inputPath"]
            found.append(pytest.param(kind, path, case["healthStatus"], id=f"{kind}-{path.stem}"))
    return found


def argo_health(kind: str, obj: Object) -> Object:
    """What health.lua says of the object."""
    runtime = lupa.LuaRuntime(unpack_returned_tuples=True)
    runtime.globals().obj = runtime.table_from(obj, recursive=True)
    return dict(runtime.execute((ARGO / kind / "health.lua").read_text()))


def flux_health(kind: str, obj: Object) -> str:
    """The first expression that is true, in Flux's order; `waiting` if none is, or if one cannot be evaluated."""
    kustomization = yaml.safe_load((GITOPS / "flux/kustomization.yaml").read_text())
    checks = next(check for check in kustomization["spec"]["healthCheckExprs"] if check["kind"] == kind)
    environment = celpy.Environment()
    variables = {name: json_to_cel(value) for name, value in obj.items()}
    for word in ("inProgress", "failed", "current"):
        program = environment.program(environment.compile(checks[word]))
        try:
            if program.evaluate(variables):
                return word
        except celpy.CELEvalError:
            return "waiting"
    return "waiting"


def test_every_recorded_object_is_tested_when_files_and_cases_are_compared() -> None:
    for kind in KINDS:
        listed = {case["inputPath"] for case in yaml.safe_load((ARGO / kind / "health_test.yaml").read_text())["tests"]}
        assert listed == {f"testdata/{path.name}" for path in (ARGO / kind / "testdata").iterdir()}


@pytest.mark.parametrize(("kind", "path", "expected"), _cases())
def test_argo_says_what_the_case_says(kind: str, path: Path, expected: Object) -> None:
    assert argo_health(kind, yaml.safe_load(path.read_text())) == expected


@pytest.mark.parametrize(("kind", "path", "expected"), _cases())
def test_flux_never_calls_ready_what_argo_does_not(kind: str, path: Path, expected: Object) -> None:
    obj = yaml.safe_load(path.read_text())
    if "deletionTimestamp" in obj["metadata"]:
        return  # Flux looks at what it applies, which is never on its way out.
    found = flux_health(kind, obj)
    if "status" not in obj:
        assert found in ("inProgress", "waiting")  # Flux's evaluator and this one differ here; both wait.
        return
    assert found == FLUX[expected["status"]]


STATES = {
    "ready": (conditions.ready(Reason.RUNNING, "it runs"), "Healthy"),
    "paused": (conditions.ready(Reason.PAUSED, "it waits"), "Suspended"),
    "updating": (conditions.reconciling(Reason.WARMING, "drivers start", is_serving=True), "Progressing"),
    "starting": (conditions.reconciling(Reason.STARTING, "pods start"), "Progressing"),
    "refused": (conditions.stalled(Reason.INVALID_DEFINITION, "2 faults", is_serving=True), "Degraded"),
    "broken": (conditions.stalled(Reason.CRASH_LOOP, "exit code 1"), "Degraded"),
}


@pytest.mark.parametrize(("kind", "state", "generation"), list(itertools.product(KINDS, STATES, (1, 2))))
def test_health_follows_the_operators_own_conditions_when_they_are_of_this_spec(
    kind: str, state: str, generation: int
) -> None:
    given, expected = STATES[state]
    listed = conditions.conditions(given, [], 1, "2026-11-21T15:00:00Z")
    obj = {"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "conditions": listed}}
    if generation == 2:
        expected = "Progressing"
    assert argo_health(kind, obj)["status"] == expected
    assert flux_health(kind, obj) == FLUX[expected]


def test_config_map_holds_the_scripts_word_for_word() -> None:
    data = yaml.safe_load((GITOPS / "argocd/argocd-cm.yaml").read_text())["data"]
    for kind in KINDS:
        assert data[f"resource.customizations.health.tidemill.dev_{kind}"] == (ARGO / kind / "health.lua").read_text()


def test_both_kinds_are_judged_alike() -> None:
    """Argo CD looks for a script in each kind's own folder; the two must not drift apart."""
    scripts = {(ARGO / kind / "health.lua").read_text() for kind in KINDS}
    assert len(scripts) == 1
