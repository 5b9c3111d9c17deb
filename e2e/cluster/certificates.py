"""Certificates of the cluster and the kubeconfig files that hold them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from e2e.cluster.plan import NodePlan, Plan
from e2e.cluster.shell import run

DAYS = "30"
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def make_all(plan: Plan, nodes: list[NodePlan]) -> None:
    """The authority, the certificates it signs, and a kubeconfig for the administrator and for each kubelet."""
    plan.pki.mkdir(parents=True)
    plan.pki.chmod(0o700)
    make_authority(plan.pki)
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", plan.pki / "accounts.key")
    sign(plan.pki, "apiserver", "/CN=kube-apiserver", _server_names(plan))
    sign(plan.pki, "admin", "/O=system:masters/CN=admin", "DNS:admin")
    _write_kubeconfig(plan, "admin", plan.kubeconfig)
    for node in nodes:
        subject = f"/O=system:nodes/CN=system:node:{node.name}"
        sign(plan.pki, node.name, subject, f"DNS:{node.name},IP:{node.address}")
        _write_kubeconfig(plan, node.name, plan.pki / f"{node.name}.kubeconfig")


def _server_names(plan: Plan) -> str:
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    addresses = ["127.0.0.1", plan.control_address, plan.api_service_address]
    return ",".join([*(f"DNS:{name}" for name in ["localhost", *names]), *(f"IP:{address}" for address in addresses)])


def make_authority(folder: Path) -> None:
    """An authority: `ca.crt` and `ca.key` in a folder."""
    key, crt = folder / "ca.key", folder / "ca.crt"
    usage = "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"  # without it Python >= 3.13 trusts nothing of it
    run("openssl", "req", "-x509", *CURVE, "-days", DAYS, "-subj", "/CN=tidemill-tests", "-addext", usage,
        "-keyout", key, "-out", crt)  # fmt: skip


def sign(folder: Path, name: str, subject: str, names: str) -> None:
    """A certificate by the authority of a folder, as NAME.crt and NAME.key there."""
    path = folder / name
    request = run("openssl", "req", *CURVE, "-subj", subject, "-addext", f"subjectAltName={names}", "-keyout",
                  path.with_suffix(".key"))  # fmt: skip
    authority: list[str | Path] = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial"]
    run("openssl", "x509", "-req", *authority, "-days", DAYS, "-copy_extensions", "copy", "-out",
        path.with_suffix(".crt"), text=request)  # fmt: skip


def _write_kubeconfig(plan: Plan, user: str, path: Path) -> None:
    def encoded(name: str) -> str:
        return base64.b64encode((plan.pki / name).read_bytes()).decode()

    cluster = {"server": f"https://{plan.control_address}:6443", "certificate-authority-data": encoded("ca.crt")}
    credentials = {"client-certificate-data": encoded(f"{user}.crt"), "client-key-data": encoded(f"{user}.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tidemill", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "tidemill", "context": {"cluster": "tidemill", "user": user}}],
        "current-context": "tidemill",
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
