"""Looks for secrets wherever somebody could read them who may not read Secrets."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from e2e.harness.faults import Faults
from e2e.harness.kubernetes import Kubernetes, Object

SHOWN = (
    "modules.tidemill.dev,topologies.tidemill.dev,controllerrevisions,configmaps,pods,deployments,replicasets,jobs,"
    "leases,events,services,serviceaccounts,rolebindings,networkpolicies"
)
LOOK_SECONDS = 0.5


def forms(value: str) -> set[str]:
    """A secret as it may be written: plain, in base64 (three alignments are one here: alone), in a URL."""
    return {value, base64.b64encode(value.encode()).decode(), urllib.parse.quote(value, safe="")}


@dataclass
class Observer:
    """Keeps, from the first pod to the last, what each pod of a namespace looked like, logged, and was started with."""

    kubernetes: Kubernetes
    faults: Faults
    namespace: str
    pods: dict[str, Object] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    is_own: bool = True
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for pod in self.kubernetes.list("Pod", self.namespace):
                    self._see(pod)
            except Exception as error:  # noqa: BLE001 - the API server is busy: the next look comes soon
                self.troubles.append(f"{type(error).__name__}: {error}")
            self._stop.wait(LOOK_SECONDS)

    def _see(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        is_new = uid not in self.pods or _state(self.pods[uid]) != _state(pod)
        self.pods[uid] = pod
        if not is_new or pod["status"].get("phase") == "Pending":
            return
        try:
            self.texts[f"log of {name} {_state(pod)}"] = self.kubernetes.logs(self.namespace, name, lines=100_000)
        except AssertionError:
            return  # Its container is being made, or it has gone; another look comes.
        if self.is_own:
            self.note_arguments(pod)

    def note_arguments(self, pod: Object) -> None:
        """Keeps what the processes of a pod were started with."""
        for pid in self.faults.processes_of(pod):
            text = _read(pid)
            self.texts[f"arguments of {pid} in {pod['metadata']['name']}"] = text

    def look(self) -> None:
        """Keeps all logs and objects of the namespace as they are now."""
        for pod in self.kubernetes.list("Pod", self.namespace):
            self.pods[pod["metadata"]["uid"]] = {**pod, "status": {}}
            self._see(pod)
        found = self.kubernetes.kubectl("-n", self.namespace, "get", SHOWN, "-o", "json", "--show-managed-fields")
        self.texts.update({_name(each): json.dumps(each) for each in json.loads(found)["items"]})

    def components(self) -> dict[str, set[str]]:
        """Phases in which pods of each component were seen."""
        seen: dict[str, set[str]] = {}
        for pod in self.pods.values():
            component = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
            seen.setdefault(component, set()).add(pod["status"].get("phase", ""))
        return seen

    def leaks(self, secrets: dict[str, str]) -> list[str]:
        """Which secret is readable where."""
        return [
            f"{name} in {where}"
            for where, text in self.texts.items()
            for name, value in secrets.items()
            if any(form in text for form in forms(value))
        ]


def _state(pod: Object) -> str:
    statuses = pod["status"].get("containerStatuses", ())
    return f"{pod['status'].get('phase')} {[sorted(each.get('state', {})) for each in statuses]}"


def _name(each: Object) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


def _read(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""
