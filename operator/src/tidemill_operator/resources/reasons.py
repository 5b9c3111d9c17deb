"""Every reason of a condition and of an event, in one place; docs/reference/reasons.md is made from it.

Reasons are stable: people and GitOps tools match on them. Each says what is so and who must act.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Reasons of the conditions Ready, Reconciling and Stalled."""

    RUNNING = "Running"
    PAUSED = "Paused"
    NEW_REVISION = "NewRevision"
    DESCRIBING = "Describing"
    WARMING = "Warming"
    HANDING_OVER = "HandingOver"
    STABILIZING = "Stabilizing"
    ROLLING_BACK = "RollingBack"
    NOT_LEADING = "NotLeading"
    NOT_REPORTING = "NotReporting"
    STARTING = "Starting"
    TOPOLOGIES_NOT_READY = "TopologiesNotReady"
    GATEWAY_NOT_READY = "GatewayNotReady"
    WAITING_FOR_MODULE = "WaitingForModule"
    DELETING = "Deleting"
    DESTROYING = "Destroying"

    INVALID_DEFINITION = "InvalidDefinition"
    INVALID_OBJECT = "InvalidObject"
    OWNED_BY_ANOTHER = "OwnedByAnother"
    DESCRIBE_FAILED = "DescribeFailed"
    STORE_UNAVAILABLE = "StoreUnavailable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG = "ContainerConfigError"
    CRASH_LOOP = "CrashLoop"
    REFUSED = "Refused"
    UNSCHEDULABLE = "Unschedulable"
    NO_ROOM_FOR_SURGE = "NoRoomForSurge"
    DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    ATTEMPTS_FAIL = "AttemptsFail"
    ROLLED_BACK = "RolledBack"
    ROLLBACK_IMPOSSIBLE = "RollbackImpossible"
    NO_SUCH_TOPOLOGY = "NoSuchTopology"
    NO_SUCH_SOURCE = "NoSuchSource"
    DUPLICATE_TOPOLOGY = "DuplicateTopology"
    MODULE_NOT_FOUND = "ModuleNotFound"
    DESTROY_FAILED = "DestroyFailed"
    NAMESPACE_GOING = "NamespaceGoing"


MEANING: dict[Reason, str] = {
    Reason.RUNNING: "Everything works.",
    Reason.PAUSED: "The driver leads and waits, because `paused` is set.",
    Reason.NEW_REVISION: "The spec asks for something else than what runs; a revision is being made of it.",
    Reason.DESCRIBING: "A Job checks whether the image's module is a valid update of what the store holds.",
    Reason.WARMING: "Drivers of the new revision start beside the running ones.",
    Reason.HANDING_OVER: "The new revision may lead; its drivers take over at the end of the microbatch under way.",
    Reason.STABILIZING: "The new revision leads and has not committed `rollout.stableMicrobatches` yet.",
    Reason.ROLLING_BACK: "The last stable revision comes back under a new number.",
    Reason.NOT_LEADING: "No driver of the topology leads at the moment.",
    Reason.NOT_REPORTING: "The driver that leads has not written its status for 40 s; lag and rate are unknown.",
    Reason.STARTING: "Objects or pods are on their way.",
    Reason.TOPOLOGIES_NOT_READY: "Some topologies do not work; their own conditions say why.",
    Reason.GATEWAY_NOT_READY: "No gateway pod is ready.",
    Reason.WAITING_FOR_MODULE: "The Module has no revision yet that may run.",
    Reason.DELETING: "The object is being deleted.",
    Reason.DESTROYING: "A Job deletes the module's data, because `deletionPolicy` is Delete.",
    Reason.INVALID_DEFINITION: (
        "The image's module is no valid update. The message has all faults; the old goes on. `breakMirrors: IMAGE` "
        "(the image's name) lets it take away or change what other modules mirror."
    ),
    Reason.INVALID_OBJECT: "The API server refused an object made from this spec, mostly because of a `template`.",
    Reason.OWNED_BY_ANOTHER: (
        "The store's module belongs to another Module, or was made by hand; the message says to whom. Use another "
        "store, or `store.takeOverFrom`."
    ),
    Reason.DESCRIBE_FAILED: "The image could not be described: import error, wrong entry, no Tidemill in the image.",
    Reason.STORE_UNAVAILABLE: "The store does not answer, or refuses the credentials. It is tried again.",
    Reason.IMAGE_PULL_FAILED: "A node can not pull the image. It is tried again.",
    Reason.CONTAINER_CONFIG: "A pod can not start: a Secret or ConfigMap is missing, or its user is root.",
    Reason.CRASH_LOOP: "The container ends again and again; the message has its last words.",
    Reason.REFUSED: "The driver refused to run; the message says why.",
    Reason.UNSCHEDULABLE: "No node has room for a pod.",
    Reason.NO_ROOM_FOR_SURGE: "New drivers do not fit beside the old: add room, or use `rollout.strategy: Recreate`.",
    Reason.DEADLINE_EXCEEDED: "The revision did not get on for `rollout.progressDeadlineSeconds`.",
    Reason.ATTEMPTS_FAIL: "Three attempts of a microbatch in a row failed; the Topology's `status.failures` say why.",
    Reason.ROLLED_BACK: "The spec's revision was not stable; the last stable one runs again. Change the spec.",
    Reason.ROLLBACK_IMPOSSIBLE: "Going back is no valid update: data that it needs is gone, or does not fit any more.",
    Reason.NO_SUCH_TOPOLOGY: "The module's code has no topology of this name.",
    Reason.NO_SUCH_SOURCE: (
        "A start is asked for a depot that the topology does not read, or for a topology that the module has not. "
        "Nothing begins before it is corrected: where a source began holds for ever."
    ),
    Reason.DUPLICATE_TOPOLOGY: "An older Topology runs this topology already; delete one of the two.",
    Reason.MODULE_NOT_FOUND: "There is no Module of this name in the namespace.",
    Reason.NAMESPACE_GOING: "The namespace is being deleted: nothing can be made in it.",
    Reason.DESTROY_FAILED: (
        "The data could not be deleted; tried again. `deletionPolicy: Retain` lets the Module go; "
        "`breakMirrors: deletion` deletes what other modules mirror, too."
    ),
}


class Happening(StrEnum):
    """Reasons of events."""

    REVISION_CREATED = "RevisionCreated"
    DEFINITION_VALID = "DefinitionValid"
    REVISION_ACTIVATED = "RevisionActivated"
    REVISION_STABLE = "RevisionStable"
    ROLLBACK_STARTED = "RollbackStarted"
    STALLED = "Stalled"
    RECOVERED = "Recovered"
    TOPOLOGY_CREATED = "TopologyCreated"
    TOPOLOGY_DELETED = "TopologyDeleted"
    START_FROM_IGNORED = "StartFromIgnored"
    RECORDS_SKIPPED = "RecordsSkipped"
    DRIFT_REPAIRED = "DriftRepaired"
    API_FAILED = "ApiFailed"
    DATA_DESTROYED = "DataDestroyed"
    DATA_RETAINED = "DataRetained"


HAPPENING_MEANING: dict[Happening, str] = {
    Happening.REVISION_CREATED: "The spec changed in a way that drivers notice; a new revision was made.",
    Happening.DEFINITION_VALID: "The describe Job found a valid update.",
    Happening.REVISION_ACTIVATED: "Drivers of this revision may lead from now on.",
    Happening.REVISION_STABLE: "The revision is stable; drivers of older ones are deleted.",
    Happening.ROLLBACK_STARTED: "The revision was not stable; the last stable one comes back.",
    Happening.STALLED: "Nothing gets on without somebody's help; the reason comes first in the text.",
    Happening.RECOVERED: "What was Stalled gets on again.",
    Happening.TOPOLOGY_CREATED: "A Topology was made for a topology of the definition that had none.",
    Happening.TOPOLOGY_DELETED: "A Topology that the operator had made is not needed any more.",
    Happening.START_FROM_IGNORED: "A source's startFrom was edited after the topology had met the depot: no effect.",
    Happening.RECORDS_SKIPPED: "Retention deleted records of a depot before the topology read them.",
    Happening.DRIFT_REPAIRED: "An object of ours was gone or changed, and was put right.",
    Happening.API_FAILED: "The API server, or a webhook that it asks, failed on an object of ours. It is tried again.",
    Happening.DATA_DESTROYED: "The module's data was deleted from the store.",
    Happening.DATA_RETAINED: "The Module is gone, its data stays in the store.",
}
