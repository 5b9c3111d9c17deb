"""What a ServiceAccount may do, as the API server says, beside what a page of the docs says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from e2e.harness.kubernetes import Kubernetes, Object

PAGE = Path(__file__).resolve().parents[2] / "docs/kubernetes/security.md"
Right = tuple[str, str]
"""(`group/resource`, verb); a resource that is narrowed to one name ends with `=name`."""


def of_account(kubernetes: Kubernetes, account: str, namespace: str) -> set[Right]:
    """Rights of `account` (namespace:name) in a namespace, without those that everybody has who is logged in."""
    nobody = "system:serviceaccount:nobody:nobody"
    return _asked(kubernetes, f"system:serviceaccount:{account}", namespace) - _asked(kubernetes, nobody, namespace)


def _asked(kubernetes: Kubernetes, user: str, namespace: str) -> set[Right]:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    text = json.dumps({**review, "spec": {"namespace": namespace}})
    answer: Object = json.loads(
        kubernetes.kubectl("create", f"--as={user}", "--validate=false", "-o", "json", "-f", "-", text=text)
    )
    assert not answer["status"].get("incomplete"), answer["status"]
    found = {right for rule in answer["status"]["resourceRules"] for right in _expanded(rule)}
    return found | {(url, verb) for rule in answer["status"]["nonResourceRules"] for url, verb in _urls(rule)}


def _expanded(rule: Object) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames") or [""]:
                where = f"{group}/{resource}" + (f"={name}" if name else "")
                yield from ((where, verb) for verb in rule["verbs"])


def _urls(rule: Object) -> Iterator[Right]:
    return ((url, verb) for url in rule.get("nonResourceURLs") or () for verb in rule["verbs"])


def written(title: str) -> set[Right]:
    """Rights in the table below a heading of the page: | group | resources | verbs | why |."""
    lines = PAGE.read_text().split(f"### {title}\n", 1)[1].split("\n#", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]
    return {
        (f"{group.strip('`') if group != 'core' else ''}/{resource.strip('` ')}", verb.strip())
        for group, resources, verbs, *_ in rows
        for resource in resources.split(",")
        for verb in verbs.split(",")
    }


def used(log: Path, user: str, since: str) -> dict[Right, set[int]]:
    """What `user` asked the API server for since a time, by the log of its audit: status codes by right."""
    found: dict[Right, set[int]] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        asked = entry.get("objectRef")
        if entry["user"]["username"] != user or entry["requestReceivedTimestamp"] < since or not asked:
            continue
        part = f"/{asked['subresource']}" if asked.get("subresource") else ""
        right = (f"{asked.get('apiGroup', '')}/{asked['resource']}{part}", entry["verb"])
        found.setdefault(right, set()).add(entry.get("responseStatus", {}).get("code", 0))
    return found
