"""What `helm test` runs in a pod: the operator answers, a replica holds its Lease, custom resources can be listed."""

import json
import os
import ssl
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"


def ask(path: str) -> dict:
    """One object or list of the API server, with the operator's own rights."""
    request = urllib.request.Request(API + path, headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"})
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
        return json.load(answer)


operator, namespace = os.environ["OPERATOR"], os.environ["POD_NAMESPACE"]
with urllib.request.urlopen(f"http://{operator}:8080/readyz", timeout=10) as ready:
    assert ready.status == 200, f"the operator is not ready: {ready.status}"
lease = ask(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{operator}")
assert lease["spec"].get("holderIdentity"), "no replica of the operator holds its Lease"
for scope in [f"namespaces/{name}/" for name in os.environ["NAMESPACES"].split(",") if name] or [""]:
    for plural in ("modules", "topologies"):
        ask(f"/apis/tidemill.dev/v1alpha1/{scope}{plural}")
