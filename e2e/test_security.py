"""Rights, pods, secrets, tokens and network policies, looked at after a whole life: run, update, failures, deletion.

The life is on Spark and on a store that talks TLS by an authority of its own. Secrets have values that can be found.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import minio
from e2e.cluster.certificates import make_authority
from e2e.cluster.control import audit_log
from e2e.cluster.tools import find_tools
from e2e.harness import modules, policies, rights, timeouts
from e2e.harness.figures import Figures
from e2e.harness.kubernetes import Object, condition
from e2e.harness.rows import CountsRows, Gateway
from e2e.harness.secrecy import Observer
from e2e.harness.story import Story
from e2e.harness.system import NAMESPACE as SYSTEM
from e2e.harness.system import RELEASE, System
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import holds_for, until

SECRETS = {
    "access key": "recognisable-access-key",
    "secret key": "recognisable+secret/key=4711",
    "wrong secret key": "recognisable+wrong/key=0815",
    "token": "recognisable-token-1-cafebabe",
    "next token": "recognisable-token-2-deadbeef",
}
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
FAULTY = ("wrong-credentials", "wrong-authority", "no-store", "no-secret")
ROTATED_SECONDS = 180
"""A kubelet looks after mounted Secrets each minute or so."""


@dataclass
class Life:
    """What the tests look at."""

    story: Story
    observer: Observer
    stalled: dict[str, Object] = field(default_factory=dict)
    running: list[Object] = field(default_factory=list)
    environment: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def namespace(self) -> str:
        """Where it takes place."""
        return self.story.namespace

    def system_of(self) -> System:
        """The system under test."""
        return self.story.system


@pytest.fixture(scope="module")
def life(system: System) -> Iterator[Life]:
    """The whole life, once for all tests of this file."""
    story = Story(system, Figures(), "security")
    story.open()
    observer = Observer(system.kubernetes, system.faults, story.namespace, is_own=system.cluster.kind == "own")
    told = Life(story, observer)
    try:
        _restrict(told)
        _apply_secrets(told)
        _run(told)
        _fail(told)
        _rotate(told)
        _update(told)
        observer.look()
        told.answers["policies"] = _objects(told, "networkpolicies")
        told.running = _objects(told, "pods")
        _delete(told)
        _note_operator(told)
        yield told
    except AssertionError as error:
        raise AssertionError(f"{error}\n{story.tell()}") from error
    finally:
        observer.close()
        story.close()


# --- the life --------------------------------------------------------------------------------------------------------


def _restrict(told: Life) -> None:
    """Operator and Modules live where only restricted pods are admitted; the operator starts anew there."""
    kubernetes = told.story.kubernetes
    for namespace in (SYSTEM, told.namespace):
        labels = {"metadata": {"labels": RESTRICTED}}
        kubernetes.kubectl("patch", "namespace", namespace, "--type=merge", "-p", json.dumps(labels))
    kubernetes.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/tidemill-operator")
    told.system_of().wait_operator_ready()


def _apply_secrets(told: Life) -> None:
    kubernetes, namespace = told.story.kubernetes, told.namespace
    kubectl: list[str | Path] = [find_tools()["kubectl"], f"--kubeconfig={kubernetes.kubeconfig}"]
    minio.install(kubectl, namespace, tls=True, user=SECRETS["access key"], password=SECRETS["secret key"])
    with tempfile.TemporaryDirectory() as made:
        make_authority(Path(made))
        other = (Path(made) / "ca.crt").read_text()
    keys = {"AWS_ACCESS_KEY_ID": SECRETS["access key"], "AWS_SECRET_ACCESS_KEY": SECRETS["wrong secret key"]}
    kubernetes.apply(
        _secret(namespace, "wrong-credentials", keys),
        _secret(namespace, "wrong-authority", {"ca.crt": other}),
        _secret(namespace, "edge-token", {"token": SECRETS["token"]}),
    )


def _secret(namespace: str, name: str, data: dict[str, str]) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def _store(told: Life, prefix: str, **changes: Any) -> Object:
    url = f"s3://{minio.BUCKET}/{prefix}?endpoint=https://minio.{told.namespace}.svc:9000"
    given = {"url": url, "credentialsSecretRef": {"name": "minio"}, "caSecretRef": {"name": "minio-ca"}}
    return {**given, **changes}


def _module(told: Life, image: str = "v1") -> Object:
    spark = {**modules.SMALL_SPARK, "conf": {"spark.ui.enabled": "true"}}
    return told.story.counts_on_spark(
        image=modules.image(image),
        spark=spark,
        store=_store(told, "counts"),
        gateway={"auth": {"secretRef": {"name": "edge-token"}}},
        deletionPolicy="Delete",
    )


def _rows(told: Life, token: str) -> CountsRows:
    address = told.system_of().reach.address(told.namespace, "counts-gateway", 80)
    return CountsRows(Gateway(f"http://{address}", token))


def _run(told: Life) -> None:
    story = told.story
    story.apply(_module(told))
    story.wait_ready(seconds=timeouts.ROLLOUT)
    rows = _rows(told, SECRETS["token"])
    story.append(rows, [f"first-{i}" for i in range(50)])
    assert_equals_truth(rows, story.ledger)
    until("an executor runs", story.executors, timeouts.RECOVERY)
    told.environment = _environment(told)
    told.observer.look()


def _environment(told: Life) -> str:
    """What Spark's web page shows of its settings; only where this machine reaches pods."""
    if not told.system_of().cluster.is_routed:
        return ""
    base = f"http://{told.story.leader()['status']['podIP']}:4040/api/v1/applications"
    with urllib.request.urlopen(base, timeout=timeouts.REQUEST) as answer:
        application = json.load(answer)[0]["id"]
    with urllib.request.urlopen(f"{base}/{application}/environment", timeout=timeouts.REQUEST) as answer:
        return str(answer.read().decode())


def _fail(told: Life) -> None:
    """Modules that can not work, each for a reason that has to do with a secret."""
    stores = {
        "wrong-credentials": _store(told, "a", credentialsSecretRef={"name": "wrong-credentials"}),
        "wrong-authority": _store(told, "b", caSecretRef={"name": "wrong-authority"}),
        "no-store": _store(told, "c", url=f"s3://tidemill/c?endpoint=https://nowhere.{told.namespace}.svc:9000"),
        "no-secret": _store(told, "d", credentialsSecretRef={"name": "nobody-made-this"}),
    }
    told.story.apply(*(told.story.module(name, store=store) for name, store in stores.items()))
    for name in FAULTY:
        told.stalled[name] = told.story.wait_stalled(name)
    told.observer.look()
    for name in FAULTY:
        told.story.kubernetes.delete("Module", told.namespace, name)


def _status(told: Life, token: str | None, path: str = "/api/v1/modules/Counts") -> int:
    address = told.system_of().reach.address(told.namespace, "counts-gateway", 80)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        request = urllib.request.Request(f"http://{address}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=timeouts.REQUEST) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _rotate(told: Life) -> None:
    old, new = SECRETS["token"], SECRETS["next token"]
    told.answers["before"] = [_status(told, each) for each in (None, "", "wrong", new, old)]
    before = _gateway_pods(told)
    told.story.kubernetes.apply(_secret(told.namespace, "edge-token", {"token": new}))
    began = time.monotonic()
    until("the new token is good", lambda: _status(told, new) < 400, ROTATED_SECONDS)
    told.answers["rotated in"] = time.monotonic() - began
    told.answers["after"] = [_status(told, each) for each in (None, old, new)]
    told.answers["same pods"] = before == _gateway_pods(told)


def _gateway_pods(told: Life) -> list[tuple[str, int]]:
    labels = {"app.kubernetes.io/component": "gateway", "tidemill.dev/module": "counts"}
    pods = told.story.kubernetes.list("Pod", told.namespace, labels)
    return [(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]) for pod in pods]


def _update(told: Life) -> None:
    """A rolling update, and a driver that comes back."""
    told.story.apply(_module(told, "v3"))
    told.story.wait_stable(2)
    rows = _rows(told, SECRETS["next token"])
    told.story.append(rows, [f"second-{i}" for i in range(50)])
    assert_equals_truth(rows, told.story.ledger)


def _delete(told: Life) -> None:
    story = told.story
    story.kubernetes.delete("Module", told.namespace, "counts")
    until("the Module is gone with its data", lambda: not _has_module(told), timeouts.GONE)
    told.answers["destroyed"] = [each["message"] for each in story.events("DataDestroyed")]


def _has_module(told: Life) -> bool:
    return told.story.kubernetes.get("Module", told.namespace, "counts") is not None


def _note_operator(told: Life) -> None:
    """The operator's logs, and its own test, which is a pod, too."""
    told.answers["helm test"] = told.system_of().helm_run("test", RELEASE)
    for pod in told.system_of().operator_pods():
        name = pod["metadata"]["name"]
        told.observer.texts[f"log of {name}"] = told.story.kubernetes.logs(SYSTEM, name, lines=100_000)
    told.observer.look()


def _objects(told: Life, kinds: str) -> list[Object]:
    found: list[Object] = json.loads(told.story.kubernetes.kubectl("-n", told.namespace, "get", kinds, "-o", "json"))[
        "items"
    ]
    return found


# --- rights ----------------------------------------------------------------------------------------------------------

ACCOUNTS = {"Operator": f"{SYSTEM}:tidemill-operator", "Driver": "{namespace}:counts-driver"}


def test_accounts_may_do_what_is_written_and_nothing_else(life: Life) -> None:
    """In their own namespace, in another one, and where there is no namespace."""
    kubernetes = life.story.kubernetes
    life.story.apply(*_bound(life))
    operator, driver = (ACCOUNTS[who].format(namespace=life.namespace) for who in ("Operator", "Driver"))
    ours = rights.written("Operator, in every namespace that it serves")
    assert rights.of_account(kubernetes, operator, life.namespace) == ours
    assert rights.of_account(kubernetes, operator, SYSTEM) == ours | rights.written("Operator, in its own namespace")
    assert rights.of_account(kubernetes, operator, "default") == ours
    assert rights.of_account(kubernetes, driver, life.namespace) == rights.written("Driver, in its Module's namespace")
    assert rights.of_account(kubernetes, driver, "default") == set()
    assert rights.of_account(kubernetes, driver, SYSTEM) == set()
    assert rights.of_account(kubernetes, f"{life.namespace}:default", life.namespace) == set()


def _bound(life: Life) -> list[Object]:
    """What the operator made for the drivers of the Module that is gone by now."""
    name = {"name": "counts-driver", "namespace": life.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{RELEASE}-driver"}
    api = "rbac.authorization.k8s.io/v1"
    return [{"apiVersion": api, "kind": "RoleBinding", "metadata": name, "roleRef": role,
             "subjects": [{"kind": "ServiceAccount", **name}]}]  # fmt: skip


def test_every_right_is_used_and_none_is_missing_in_a_whole_life(life: Life) -> None:
    """By the API server's own log: an unused right has a reason that is written, a refused request is a bug."""
    if life.system_of().cluster.kind != "own":
        pytest.skip("the log of what was asked is that of the API server that e2e.cluster starts")
    log = audit_log(life.system_of().cluster.plan)
    granted = {
        "Operator": rights.written("Operator, in every namespace that it serves")
        | rights.written("Operator, in its own namespace"),
        "Driver": rights.written("Driver, in its Module's namespace"),
    }
    for who, account in ACCOUNTS.items():
        used = rights.used(log, f"system:serviceaccount:{account.format(namespace=life.namespace)}", life.began)
        refused = {right for right, codes in used.items() if 403 in codes}
        assert not refused, f"{who} was refused {sorted(refused)}"
        unused = {(what.split("=")[0], verb) for what, verb in granted[who]} - used.keys()
        assert unused <= rights.written(f"{who}: not seen in the log"), f"{who} never used {sorted(unused)}"


def test_pods_that_never_ask_the_api_server_hold_no_account_of_it(life: Life) -> None:
    for pod in life.observer.pods.values():
        component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
        has_token = any(
            "serviceAccountToken" in source
            for volume in pod["spec"].get("volumes", ())
            for source in volume.get("projected", {}).get("sources", ())
        )
        assert has_token == (component == "driver"), f"{pod['metadata']['name']} ({component})"


# --- pods ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_pod_runs_where_only_restricted_ones_are_admitted(life: Life) -> None:
    seen = life.observer.components()
    assert {"driver", "executor", "gateway", "describe", "destroy"} <= seen.keys()
    assert "Succeeded" in seen["describe"], seen
    assert all(phases & {"Running", "Succeeded"} for component, phases in seen.items() if component != "destroy"), seen
    assert life.answers["destroyed"], "the destroy Job did its work"
    assert "Succeeded" in life.answers["helm test"], life.answers["helm test"]
    events = [each for each in life.observer.texts if each.startswith("Event")]
    refused = [name for name in events if "violates PodSecurity" in life.observer.texts[name]]
    assert events and not refused, refused


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_is_readable_outside_of_secrets_after_a_whole_life(life: Life) -> None:
    kinds = {name.split(" ", 1)[0] for name in life.observer.texts}
    assert kinds >= {"log", "arguments", "Module", "Topology", "ControllerRevision", "ConfigMap", "Pod", "Deployment",
                     "Event", "Job", "Lease"}, kinds  # fmt: skip
    logs = [name for name in life.observer.texts if name.startswith("log of")]
    for part in ("describe", "gateway", "counts-count-1", "counts-count-2", "-exec-", "operator"):
        assert any(part in name for name in logs), f"no log of {part}: {logs}"
    assert not life.observer.leaks(SECRETS)


def test_no_secret_is_among_the_settings_that_sparks_page_shows(life: Life) -> None:
    if not life.system_of().cluster.is_routed:
        pytest.skip("this machine reaches no pod of the cluster")
    assert "spark.kubernetes.namespace" in life.environment
    shown = [name for name, value in SECRETS.items() if value in life.environment]
    assert not shown and "recognisable" not in life.environment


def test_the_search_finds_a_secret_that_is_there(life: Life) -> None:
    """The search itself is tried: it finds what is in the Secrets, in base64."""
    found = Observer.leaks(life.observer, {"namespace": life.namespace})
    assert found, "the namespace's name is everywhere"
    encoded = base64.b64encode(SECRETS["token"].encode()).decode()
    life.observer.texts["planted"] = f"Authorization: {encoded}"
    assert life.observer.leaks(SECRETS) == ["token in planted"]
    del life.observer.texts["planted"]


# --- the store's certificate and credentials -------------------------------------------------------------------------

REASONS = {
    "wrong-credentials": ("StoreUnavailable", "refuses the credentials"),
    "wrong-authority": ("StoreUnavailable", "certificate that is not trusted"),
    "no-store": ("StoreUnavailable", "did not answer"),
    "no-secret": ("ContainerConfigError", "nobody-made-this"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_module_says_what_is_wrong_with_its_secrets(life: Life, name: str) -> None:
    reason, words = REASONS[name]
    stalled = life.stalled[name]
    assert (stalled["reason"], words in stalled["message"]) == (reason, True), stalled["message"]


def test_drivers_executors_gateway_and_jobs_talk_tls_by_the_stores_own_authority(life: Life) -> None:
    """The store speaks nothing else, and every one of them reached it: rows were counted by executors and read."""
    for pod in life.observer.pods.values():
        if pod["metadata"]["labels"].get("tidemill.dev/module") == "counts":
            environment = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}
            assert environment["AWS_CA_BUNDLE"].startswith("/etc/tidemill-ca/"), pod["metadata"]["name"]
            assert "SSL_CERT_FILE" not in environment
    assert life.story.ledger.count() == 100


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_gateway_lets_only_the_token_in_and_follows_its_secret(life: Life) -> None:
    assert life.answers["before"] == [401, 401, 401, 401, 200]
    assert life.answers["after"] == [401, 401, 200]
    assert life.answers["same pods"], "a new token needs no restart"


def test_a_token_is_made_when_none_is_named(life: Life) -> None:
    life.story.apply(life.story.module("plain", gateway={"replicas": 1}))
    gateway = life.story.gateway("plain")
    until("the gateway answers", lambda: CountsRows(gateway).versions() == {}, timeouts.RECOVERY)
    secret = life.story.kubernetes.get("Secret", life.namespace, "plain-gateway-token")
    assert secret is not None
    token = base64.b64decode(secret["data"]["token"]).decode()
    assert len(token) >= 32
    life.observer.look()
    for pod in life.system_of().operator_pods():
        name = pod["metadata"]["name"]
        life.observer.texts[f"log of {name}"] = life.story.kubernetes.logs(SYSTEM, name, lines=100_000)
    assert not life.observer.leaks({"made token": token})
    holds_for("the token stays", lambda: _token(life) == token, 3)


def _token(life: Life) -> str:
    secret = life.story.kubernetes.get("Secret", life.namespace, "plain-gateway-token") or {"data": {"token": ""}}
    return base64.b64decode(secret["data"]["token"]).decode()


def test_module_that_names_a_missing_token_secret_says_so(life: Life) -> None:
    life.story.apply(life.story.module("tokenless", gateway={"auth": {"secretRef": {"name": "no-such-token"}}}))

    def look() -> bool:
        ready = condition(life.story.get_module("tokenless"), "Ready")
        return bool(ready and ready["status"] == "False" and ready["reason"] == "GatewayNotReady")

    until("the Module says that its gateway is not ready", look, timeouts.FIRST_COMMIT)


# --- network policies ------------------------------------------------------------------------------------------------

WEB, RPC, BLOCKS, PAGE, GATEWAY = 8081, 7078, 7079, 4040, 8080
TALKS = [
    # from, to, port, allowed
    ("executor", "driver", RPC, True),
    ("executor", "driver", BLOCKS, True),
    ("driver", "executor", 40000, True),
    ("executor", "executor", 40000, True),
    ("driver", "gateway", GATEWAY, True),
    ("outside", "gateway", GATEWAY, True),
    ("outside", "driver", WEB, True),
    ("outside", "driver", RPC, False),
    ("outside", "driver", BLOCKS, False),
    ("outside", "driver", PAGE, False),
    ("outside", "executor", 40000, False),
    ("stranger", "driver", RPC, False),
    ("stranger", "driver", PAGE, False),
    ("stranger", "executor", 40000, False),
    ("gateway", "driver", RPC, False),
    ("gateway", "executor", 40000, False),
    ("outside", "gateway", 9999, False),
    ("twin", "driver", RPC, False),
]


@pytest.mark.parametrize(("source", "target", "port", "is_allowed"), TALKS)
def test_policies_let_only_those_talk_who_must(
    life: Life, source: str, target: str, port: int, is_allowed: bool
) -> None:
    """Judged from the policies and pods that were on the cluster; our own cluster enforces none."""
    sources = {**_by_component(life), **_strangers(life)}
    found = policies.may_reach(life.answers["policies"], sources[source], sources[target] or {}, port)
    assert found == is_allowed


def _by_component(life: Life) -> dict[str, Object | None]:
    return {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod
        for pod in life.running
        if pod["metadata"]["labels"].get("tidemill.dev/module") == "counts"
    }


def _strangers(life: Life) -> dict[str, Object | None]:
    """A pod of somebody else, one of another Module, and one that looks like an executor in another namespace."""
    executor = _by_component(life)["executor"] or {}
    twin = {**executor, "metadata": {**executor["metadata"], "namespace": "elsewhere"}}
    return {"outside": None, "twin": twin, "stranger": {"metadata": {"namespace": life.namespace, "labels": {}}}}
