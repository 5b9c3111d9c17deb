"""Settings of a Spark session as the environment gives them: single variables, or, in a pod, `spark.json` and the
executors' pod template, as the operator mounts them for its drivers.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tidemill.spark.on_kubernetes import DriverPod, Executors, OnKubernetes
from tidemill.spark.settings import SparkSettings, check_extra
from tidemill.values.errors import BadInput
from tidemill.values.extras import needing
from tidemill.values.log_level import asked_level

CONF_VARIABLE: Final = "TIDEMILL_SPARK_CONF"
_LEVELS: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_KEYS = (
    "master", "image", "executors", "executorCores", "executorMemory", "driverMemory", "imagePullPolicy",
    "podTemplate", "conf",
)  # fmt: skip


def given_settings() -> SparkSettings:
    """What TIDEMILL_SPARK_CONF, else TIDEMILL_SPARK_MASTER, TIDEMILL_SPARK_LOG and TIDEMILL_LOG_LEVEL say, else the
    defaults. TIDEMILL_SPARK_CONF is the path of a `spark.json`; the process then is a pod's, whose executors are pods,
    too, and the file has the master.

    Raises:
        BadInput: the file says something that cannot be, or the pod does not say who it is.
    """
    level = _LEVELS.get(asked_level() or "")
    if conf := os.environ.get(CONF_VARIABLE):
        pod = pod_from_environment(f"{CONF_VARIABLE} is for pods")
        found = read_settings(Path(conf), f"tidemill {pod.name}", pod)
    else:
        found = SparkSettings(master=os.environ.get("TIDEMILL_SPARK_MASTER") or SparkSettings.master)
    return replace(found, log=os.environ.get("TIDEMILL_SPARK_LOG") or found.log, log_level=level or found.log_level)


def pod_from_environment(why: str, topology: str = "") -> DriverPod:
    """This pod, as the downward API says; `why` tells whom it does not who needs it.

    Raises:
        BadInput: a variable is not set.
    """
    names = ("NAME", "NAMESPACE", "IP", "UID")
    if missing := [f"POD_{name}" for name in names if not os.environ.get(f"POD_{name}")]:
        raise BadInput(f"{', '.join(missing)} is not set: {why}.")
    name, namespace, ip, uid = (os.environ[f"POD_{name}"] for name in names)
    return DriverPod(name, namespace, ip, uid, topology)


def read_settings(path: Path, name: str, pod: DriverPod) -> SparkSettings:
    """The settings of one driver; `name` is the application's.

    Raises:
        BadInput: the file is not there or says something that cannot be; the text names all refused settings.
    """
    given = _read(path)
    conf = given.get("conf") or {}
    check_extra(conf)
    master = str(given.get("master") or "k8s://https://kubernetes.default.svc")
    executors = _executors(given, path)
    return SparkSettings(
        master=master,
        name=name,
        driver_memory=str(given.get("driverMemory") or "1g"),
        log="stderr",
        log_level="WARN",
        extra=conf,
        kubernetes=OnKubernetes(pod, executors) if master.startswith("k8s://") else None,
    )


def check_settings(path: Path) -> list[tuple[str, str]]:
    """What is wrong with a file, as (subject, text); for `describe`, which runs in no driver's pod."""
    try:
        read_settings(path, "tidemill", DriverPod("driver", "default", "127.0.0.1", "uid"))
    except BadInput as error:
        return [("spark.conf", str(error))]
    return []


def _read(path: Path) -> dict[str, Any]:
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from error
    unknown = sorted(given.keys() - set(_KEYS)) if isinstance(given, dict) else ["no object"]
    if unknown:
        raise BadInput(f"{path} has unknown settings: {', '.join(unknown)}; known are {', '.join(_KEYS)}.")
    return dict(given)


def _executors(given: dict[str, Any], path: Path) -> Executors:
    asked = given.get("executors") or {"count": 1}
    low = int(asked.get("count", asked.get("min", 1)))
    high = int(asked.get("count", asked.get("max", low)))
    if not 1 <= low <= high:
        raise BadInput(
            f"{low} to {high} executors make no sense: use at least one, and no fewer at most than at least."
        )
    template = Path(given.get("podTemplate") or path.parent / "executor.yaml")
    is_there = template.is_file()
    return Executors(
        image=str(given.get("image") or ""),
        count_min=low,
        count_max=high,
        cores=int(given.get("executorCores") or 1),
        memory=str(given.get("executorMemory") or ""),
        template=str(template) if is_there else "",
        pull_policy=str(given.get("imagePullPolicy") or "IfNotPresent"),
        resources=_resources(template) if is_there else {},
    )


def _resources(template: Path) -> dict[str, Any]:
    """What the executor's container asks for in its pod template."""
    with needing("kubernetes"):
        import yaml

    try:
        pod = yaml.safe_load(template.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"The pod template {template} cannot be read: {error}.") from error
    containers = (pod.get("spec") or {}).get("containers") or []
    named = [container for container in containers if container.get("name") == "executor"] or containers
    return dict(named[0].get("resources") or {}) if named else {}
