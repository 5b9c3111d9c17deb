"""Every kind the operator reads or writes, as the API server names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill_operator.resources import names


@dataclass(frozen=True)
class Kind:
    """`is_watched`: the operator keeps a cache of it. `is_ours`: the watch is for objects with our label only."""

    group: str
    version: str
    kind: str
    plural: str
    is_watched: bool = True
    is_ours: bool = True
    is_optional: bool = False

    @property
    def api_version(self) -> str:
        """As in objects: `apps/v1`, or `v1` for kinds of the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def selector(self) -> str | None:
        """The label selector of its watch; None watches every object of the kind."""
        return f"{names.MANAGED_BY}={names.FIELD_MANAGER}" if self.is_ours else None


_ALL: Final = (
    Kind(names.GROUP, "v1alpha1", "Module", "modules", is_ours=False),
    Kind(names.GROUP, "v1alpha1", "Topology", "topologies", is_ours=False),
    Kind("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Kind("apps", "v1", "Deployment", "deployments"),
    Kind("batch", "v1", "Job", "jobs"),
    Kind("", "v1", "Pod", "pods"),
    Kind("", "v1", "ConfigMap", "configmaps"),
    Kind("", "v1", "Service", "services"),
    Kind("", "v1", "ServiceAccount", "serviceaccounts"),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications", is_optional=True),
    Kind("", "v1", "Secret", "secrets", is_watched=False),
    Kind("", "v1", "Event", "events", is_watched=False),
    Kind("coordination.k8s.io", "v1", "Lease", "leases", is_watched=False),
)

KINDS: Final = {kind.kind: kind for kind in _ALL}
WATCHED: Final = tuple(kind for kind in _ALL if kind.is_watched)
