"""Topology objects: those that the operator makes, and how a startFrom is remembered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill_operator.resources import names
from tidemill_operator.resources.names import Json


def generated(module: Mapping[str, Any], topology: str, among: Iterable[str] = ()) -> Json:
    """A Topology that holds only references; everything else comes from the Module's defaults and the code."""
    name = names.name_of(module)
    made = names.generated_topology_name(name, topology)
    if any(made == names.generated_topology_name(name, other) for other in among if other > topology):
        made = names.generated_topology_name(name, topology, is_ambiguous=True)
    labels = names.labels(name, "topology") | {names.GENERATED_LABEL: "true"}
    built = names.base_object(names.API_VERSION, "Topology", made, module, labels)
    built["spec"] = {"moduleRef": {"name": name}, "topology": topology}
    return built


def is_generated(topology: Mapping[str, Any]) -> bool:
    """Whether the operator made it and nobody has put anything into it since."""
    spec = dict(topology["spec"])
    if spec.get("driver") in ({}, {"replicas": 1}):
        spec.pop("driver")
    is_ours = topology["metadata"].get("labels", {}).get(names.GENERATED_LABEL) == "true"
    return is_ours and set(spec) <= {"moduleRef", "topology"} and not _has_other_owner(topology)


def _has_other_owner(topology: Mapping[str, Any]) -> bool:
    """Whether another field manager has applied the spec, too: then it is a person's, even if equal to ours."""
    return any(
        entry.get("manager") not in (names.FIELD_MANAGER, None)
        and entry.get("subresource") != "status"
        and "f:spec" in entry.get("fieldsV1", {})
        for entry in topology["metadata"].get("managedFields", ())
    )


def module_of(topology: Mapping[str, Any]) -> str:
    """The name of the Module that a Topology belongs to."""
    return str(topology["spec"]["moduleRef"]["name"])


def sources(topology: Mapping[str, Any], module: Mapping[str, Any] | None) -> dict[str, str]:
    """What resources say each depot's start is, as texts: the Topology's own, else the Module's defaults."""
    defaults = (module or {}).get("spec", {}).get("topologyDefaults", {})
    merged = {
        **defaults.get(topology["spec"]["topology"], {}).get("sources", {}),
        **topology["spec"].get("sources", {}),
    }
    return {depot: json.dumps(given["startFrom"], sort_keys=True) for depot, given in merged.items()}
