"""The control plane: etcd, API server, controller manager, scheduler, DNS, and a kube-proxy for the host.

That kube-proxy turns a Service's address into that of a pod for whoever asks from outside the nodes.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from pathlib import Path

from e2e.cluster.plan import Plan
from e2e.cluster.shell import ClusterError, start, wait_until
from e2e.cluster.spaces import end, inside, processes_in

Command = list[str | Path]
PROGRAMS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns", "kube-proxy"]
# What no test needs: each controller costs watches and wake-ups on cores that the tests share.
UNUSED_CONTROLLERS = [
    "node-ipam-controller", "node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller",
    "horizontal-pod-autoscaler-controller", "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller", "bootstrap-signer-controller", "token-cleaner-controller",
    "certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller", "storage-version-migrator-controller",
]  # fmt: skip


def start_control(plan: Plan, tools: dict[str, Path]) -> None:
    """Starts what does not run yet of the control plane; returns when the API server is ready."""
    commands = _commands(plan, tools)
    for program in ["etcd", "kube-apiserver"]:
        _start(plan, program, commands[program])
    wait_ready(plan)
    for program in PROGRAMS[2:]:
        _start(plan, program, commands[program])


def start_api_server(plan: Plan, tools: dict[str, Path]) -> None:
    """Starts the API server again; returns when it is ready."""
    _start(plan, "kube-apiserver", _commands(plan, tools)["kube-apiserver"])
    wait_ready(plan)


def stop_api_server(plan: Plan) -> None:
    """Kills the API server. Pods go on, nobody can change anything."""
    pid = running(plan).get("kube-apiserver")
    if pid is None:
        return
    end(pid)
    wait_until("the API server has ended", lambda: "kube-apiserver" not in running(plan), 20)


def running(plan: Plan) -> dict[str, int]:
    """Process numbers of the programs of the control plane that run, by name."""
    found = {}
    for pid in processes_in(plan.control_space):
        try:
            program = os.readlink(f"/proc/{pid}/exe").rsplit("/", 1)[-1].removesuffix(" (deleted)")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.update({name: pid for name in PROGRAMS if program.startswith(f"{name}-")})
    return found


def wait_ready(plan: Plan, seconds: float = 90) -> None:
    """Waits for the API server.

    Raises:
        ClusterError: it is not ready in time; the error names its log.
    """
    try:
        wait_until("the API server is ready", lambda: _get(plan, "/readyz") == "ok", seconds)
    except ClusterError as error:
        raise ClusterError(f"{error} Its log: {plan.logs / 'kube-apiserver.log'}") from error


def _get(plan: Plan, path: str) -> str:
    trust = ssl.create_default_context(cafile=str(plan.pki / "ca.crt"))
    trust.load_cert_chain(plan.pki / "admin.crt", plan.pki / "admin.key")
    try:
        with urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        ).open(f"https://{plan.control_address}:6443{path}", timeout=2) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _start(plan: Plan, program: str, command: Command) -> None:
    if program not in running(plan):
        start(inside(plan.control_space, *command), plan.logs / f"{program}.log")


def _commands(plan: Plan, tools: dict[str, Path]) -> dict[str, Command]:
    kubeconfig = f"--kubeconfig={plan.kubeconfig}"
    return {
        "etcd": _etcd(plan, tools["etcd"]),
        "kube-apiserver": _api_server(plan, tools["kube-apiserver"]),
        "kube-controller-manager": _controller_manager(plan, tools["kube-controller-manager"]),
        "kube-scheduler": [tools["kube-scheduler"], kubeconfig, "--leader-elect=false", "--profiling=false"],
        "coredns": [tools["coredns"], "-conf", _write_corefile(plan)],
        "kube-proxy": [tools["kube-proxy"], kubeconfig, "--hostname-override=node0", "--proxy-mode=iptables",
                       f"--cluster-cidr={plan.pod_range}", "--iptables-min-sync-period=100ms",
                       "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
                       "--conntrack-tcp-timeout-close-wait=0"],
    }  # fmt: skip


def _etcd(plan: Plan, program: Path) -> Command:
    client = "http://127.0.0.1:2379"
    return [program, f"--data-dir={plan.folder / 'etcd'}", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync", "--heartbeat-interval=250", "--election-timeout=1250"]  # fmt: skip


def _api_server(plan: Plan, program: Path) -> Command:
    pki = plan.pki
    return [program, "--etcd-servers=http://127.0.0.1:2379", f"--service-cluster-ip-range={plan.service_range}",
            f"--advertise-address={plan.control_address}", "--bind-address=0.0.0.0",
            f"--tls-cert-file={pki / 'apiserver.crt'}", f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--cert-dir={pki}", f"--client-ca-file={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'admin.crt'}", f"--kubelet-client-key={pki / 'admin.key'}",
            f"--service-account-key-file={pki / 'accounts.key'}",
            f"--service-account-signing-key-file={pki / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            # Without this `kubectl logs` would look the node's name up.
            "--kubelet-preferred-address-types=InternalIP", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
            *_audit(plan)]  # fmt: skip


def _audit(plan: Plan) -> Command:
    """Who asked for what, of pods that talk to the API server: tells which rights are used (e2e/test_rights.py)."""
    kubernetes = {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]}
    accounts = {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
              "rules": [kubernetes, accounts, {"level": "None"}]}  # fmt: skip
    path = plan.folder / "audit.json"
    path.write_text(json.dumps(policy))
    return [f"--audit-policy-file={path}", f"--audit-log-path={audit_log(plan)}", "--audit-log-maxsize=50",
            "--audit-log-maxbackup=1"]  # fmt: skip


def audit_log(plan: Plan) -> Path:
    """Where the API server writes, as JSON lines, what service accounts asked for."""
    return plan.logs / "audit.log"


def _controller_manager(plan: Plan, program: Path) -> Command:
    controllers = ",".join(["*", *(f"-{name}" for name in UNUSED_CONTROLLERS)])
    return [program, f"--kubeconfig={plan.kubeconfig}", f"--root-ca-file={plan.pki / 'ca.crt'}",
            f"--service-account-private-key-file={plan.pki / 'accounts.key'}", f"--controllers={controllers}",
            "--use-service-account-credentials=true", "--leader-elect=false", "--profiling=false",
            "--node-monitor-grace-period=20s"]  # fmt: skip


def _write_corefile(plan: Plan) -> Path:
    path = plan.folder / "Corefile"
    path.write_text(f"""cluster.local:53 in-addr.arpa:53 {{
  bind {plan.control_address}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {plan.kubeconfig} tidemill
    pods verified
    ttl 5
  }}
  cache 5
}}
.:53 {{
  bind {plan.control_address}
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
""")
    return path
