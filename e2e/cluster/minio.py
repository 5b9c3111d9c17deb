"""A MinIO for tests in a namespace of the cluster."""

from __future__ import annotations

import base64
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.certificates import make_authority, sign
from e2e.cluster.shell import run

HERE = Path(__file__).parent
USER, PASSWORD, BUCKET = "tidemill-tests", "tidemill-tests-only", "tidemill"


@dataclass(frozen=True)
class Store:
    """What a Module says to use the store."""

    url: str
    credentials_secret: str = "minio"
    ca_secret: str | None = None


def install(
    kubectl: list[str | Path], namespace: str, *, tls: bool = False, user: str = USER, password: str = PASSWORD
) -> Store:
    """Brings MinIO into a namespace that exists and waits until it is ready.

    With `tls` it talks HTTPS only, and the Secret `minio-ca` holds the authority to trust, as `ca.crt`. `user` and
    `password` are its credentials, in the Secret `minio`.

    Raises:
        ClusterError: it is not ready within a minute.
    """
    text = (HERE / "manifests/minio.yaml").read_text()
    text = text.replace(f"_ID: {USER}\n", f"_ID: {user}\n").replace(f"_KEY: {PASSWORD}\n", f"_KEY: {password}\n")
    host = f"minio.{namespace}.svc"
    if tls:
        _apply_certificate(kubectl, namespace, host)
        text = text.replace("scheme: HTTP}", "scheme: HTTPS}")
    run(*kubectl, "apply", "-n", namespace, "-f", "-", text=text)
    run(*kubectl, "rollout", "status", "-n", namespace, "statefulset/minio", "--timeout=60s")
    scheme = "https" if tls else "http"
    return Store(f"s3://{BUCKET}?endpoint={scheme}://{host}:9000", ca_secret="minio-ca" if tls else None)


def _apply_certificate(kubectl: list[str | Path], namespace: str, host: str) -> None:
    names = ["minio", host, f"{host}.cluster.local", "localhost"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make_authority(folder)
        sign(folder, "minio", "/CN=minio", ",".join(f"DNS:{name}" for name in names))
        content = {name: base64.b64encode((folder / name).read_bytes()).decode()
                   for name in ["ca.crt", "minio.crt", "minio.key"]}  # fmt: skip
    pair = {"tls.crt": content["minio.crt"], "tls.key": content["minio.key"]}
    secrets = [
        _secret("minio-certificate", pair, "kubernetes.io/tls"),
        _secret("minio-ca", {"ca.crt": content["ca.crt"]}),
    ]
    run(*kubectl, "apply", "-n", namespace, "-f", "-",
        text=json.dumps({"apiVersion": "v1", "kind": "List", "items": secrets}))  # fmt: skip


def _secret(name: str, data: dict[str, str], kind: str = "Opaque") -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name}, "data": data}
