"""The two Jobs: describe (is this image a valid update?) and destroy (delete the data with its Module)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemill_operator.resources import names, pods
from tidemill_operator.resources.driver import RESTORE, engine_of
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision, may_break, may_break_at_deletion, ownership

RETRY_EXIT_CODE: Final = 3
"""The store did not answer: worth trying again. Any other failure would fail again."""

_RETRIES: Final = 5
_KEEP_SECONDS: Final = 600
_RESOURCES: Final = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def describe(module: Mapping[str, Any], revision: Revision) -> Json:
    """Job `M-n-describe`; its verdict is the last line of its log."""
    template = revision.template
    command = ["tidemill", "describe", template["entry"], "--json", "--exit-zero"]
    command += ["--against", template["store"]["url"]]
    command += ["--tasks", str(template["tasks"]), "--threads", str(template["threads"])]
    if template.get("objectsToDelete"):
        command += ["--objects-to-delete", ",".join(template["objectsToDelete"])]
    if revision.goes_back:
        command += [RESTORE]
    command += ownership(module, revision) + may_break(revision)
    configured = None
    if engine_of(template) == "spark":
        configured = names.revision_name(names.name_of(module), revision.number)
        command += ["--conf", f"{pods.CONF_FOLDER}/spark.json"]
    name = names.describe_name(names.name_of(module), revision.number)
    return _job(module, name, "describe", revision, command, configured)


def destroy(module: Mapping[str, Any], revision: Revision, stored_name: str) -> Json:
    """Job `M-destroy`: deletes the data of the module that the store knows as `stored_name`."""
    command = ["tidemill", "destroy", stored_name, "--store", revision.template["store"]["url"], "--yes"]
    command += ownership(module, revision)[:2]  # it takes nothing over: what is another's stays
    command += may_break_at_deletion(module["spec"])
    built = _job(module, names.destroy_name(names.name_of(module)), "destroy", revision, command, None)
    # A deletion in the foreground collects what the Module owns, again and again: this Job is deleted by name.
    del built["metadata"]["ownerReferences"]
    return built


def _job(
    module: Mapping[str, Any],
    name: str,
    component: str,
    revision: Revision,
    command: list[str],
    configured: str | None,
) -> Json:
    labels = names.labels(names.name_of(module), component, revision=revision.number)
    built = names.base_object("batch/v1", "Job", name, module, labels)
    built["spec"] = {
        "backoffLimit": _RETRIES,
        "ttlSecondsAfterFinished": _KEEP_SECONDS,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": component, "operator": "NotIn", "values": [RETRY_EXIT_CODE]},
                },
            ]
        },
        "template": {
            "metadata": {"labels": labels, "annotations": {"argocd.argoproj.io/ignore-restart-policy": "true"}},
            "spec": _pod(component, revision, command, configured),
        },
    }
    return built


def _pod(component: str, revision: Revision, command: list[str], configured: str | None) -> Json:
    template = revision.template
    found, mounts = pods.volumes(template["store"], configured)
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": pods.pod_security(),
        "tolerations": pods.node_tolerations(),
        **pods.pull(template),
        "volumes": found,
        "containers": [
            {
                "name": component,
                "image": template["image"],
                "imagePullPolicy": template.get("imagePullPolicy", "IfNotPresent"),
                "args": pods.words(command),
                "env": pods.store_env(template["store"]) + pods.folder_env(),
                "resources": dict(_RESOURCES),
                "securityContext": pods.container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": mounts,
            }
        ],
    }
