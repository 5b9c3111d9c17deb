"""Which cluster is chosen: no cluster is started here."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from e2e.cluster import ability, choice, kind, own, packages
from e2e.cluster.plan import Plan
from e2e.cluster.shell import ClusterError


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a cache of its own and no cluster."""
    monkeypatch.setenv("TIDEMILL_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(own, "exists", lambda plan: False)
    monkeypatch.setattr(kind, "is_possible", lambda: False)


def test_given_cluster_is_taken_when_kubeconfig_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/elsewhere/config")
    found = choice.find()
    assert (found.kind, found.kubeconfig, found.is_routed) == ("given", Path("/elsewhere/config"), False)


def test_own_cluster_is_taken_when_kubeconfig_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(Plan(0).kubeconfig))
    monkeypatch.setattr(own, "exists", lambda plan: True)
    assert choice.find().kind == "own"


def test_kind_is_taken_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "is_possible", lambda: True)
    assert choice.find().kind == "kind"


def test_own_cluster_is_taken_when_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "obstacles", list)
    assert choice.find().kind == "own"


def test_one_sentence_says_what_to_install_when_nothing_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "missing", lambda: ["containerd", "runc"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError) as refused:
        choice.find()
    said = str(refused.value)
    assert "KUBECONFIG" in said and "kind and Docker" in said and "root" in said and "containerd, runc" in said
    assert said.count(". ") == 0


def test_kind_gets_all_nodes_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Docker engine can be counted on here, so this holds the commands only."""
    calls: list[tuple[list[str], str | None]] = []

    def record(*command: object, text: str | None = None) -> str:
        calls.append(([str(part) for part in command], text))
        return ""

    monkeypatch.setattr(kind, "run", record)
    kind.up(2)
    command, config = calls[1]
    assert command[:5] == ["kind", "create", "cluster", "--name", "tidemill"]
    assert [node["role"] for node in json.loads(config or "")["nodes"]] == ["control-plane", "worker", "worker"]


def test_a_machine_without_writable_control_groups_is_told_so_when_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ability, "CGROUPS", tmp_path / "none")

    assert any("control groups" in each for each in ability.obstacles())
