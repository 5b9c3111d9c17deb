"""Whom the NetworkPolicies of a cluster let talk to whom: what a network that enforces them would do.

Only what Tidemill's policies use is understood; anything else is an error, not a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from e2e.harness.kubernetes import Object

Labels = Mapping[str, str]


def may_reach(policies: list[Object], source: Object | None, target: Object, port: int) -> bool:
    """Whether a pod (None: anything outside the cluster) may open a connection to a port of another."""
    space = target["metadata"]["namespace"]
    there = [each for each in policies if each["metadata"]["namespace"] == space]
    chosen = [each for each in there if _fits(each["spec"]["podSelector"], _labels(target))]
    assert all(each["spec"]["policyTypes"] == ["Ingress"] for each in chosen), "policies are for what comes in"
    if not chosen:
        return True
    rules = [(each, rule) for each in chosen for rule in each["spec"].get("ingress") or ()]
    return any(_has_port(rule, target, port) and _admits(rule, each, source) for each, rule in rules)


def _has_port(rule: Object, target: Object, port: int) -> bool:
    if "ports" not in rule:
        return True
    named = {
        each["name"]: each["containerPort"]
        for container in target["spec"]["containers"]
        for each in container.get("ports") or ()
        if "name" in each
    }
    return any(named.get(each["port"], each["port"]) == port for each in rule["ports"])


def _admits(rule: Object, policy: Object, source: Object | None) -> bool:
    if "from" not in rule:
        return True
    if source is None:
        return False
    return any(_is_peer(peer, policy, source) for peer in rule["from"])


def _is_peer(peer: Object, policy: Object, source: Object) -> bool:
    assert peer.keys() <= {"podSelector", "namespaceSelector"}, peer
    if "namespaceSelector" in peer:
        assert not peer["namespaceSelector"], "labels of namespaces are not looked at here"
    elif source["metadata"]["namespace"] != policy["metadata"]["namespace"]:
        return False
    return _fits(peer.get("podSelector", {}), _labels(source))


def _fits(selector: Mapping[str, Any], labels: Labels) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for each in selector.get("matchExpressions") or ():
        assert each["operator"] == "In", each
        if labels.get(each["key"]) not in each["values"]:
            return False
    return True


def _labels(pod: Object) -> Labels:
    found: Labels = pod["metadata"].get("labels") or {}
    return found
