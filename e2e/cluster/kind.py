"""A cluster by kind, where it and a Docker engine are there."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.cluster.images import own_archives
from e2e.cluster.plan import cache_folder
from e2e.cluster.shell import run, succeeds

NAME = "tidemill"


def is_possible() -> bool:
    """Whether kind is installed and a Docker engine answers."""
    return shutil.which("kind") is not None and shutil.which("docker") is not None and succeeds("docker", "info")


def kubeconfig() -> Path:
    """Where kind writes the administrator's kubeconfig."""
    return cache_folder() / "kind/kubeconfig"


def up(node_count: int) -> None:
    """Starts the cluster, unless it runs."""
    kubeconfig().parent.mkdir(parents=True, exist_ok=True)
    if NAME in run("kind", "get", "clusters").split():
        run("kind", "export", "kubeconfig", "--name", NAME, "--kubeconfig", kubeconfig())
        return
    roles = [{"role": "control-plane"}, *({"role": "worker"} for _ in range(node_count))]
    config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": roles}
    run("kind", "create", "cluster", "--name", NAME, "--wait", "120s", "--kubeconfig", kubeconfig(), "--config", "-",
        text=json.dumps(config))  # fmt: skip


def load_all(tools: dict[str, Path]) -> None:
    """Puts the images that are built, and those of the cluster's own programs, on all nodes."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built.tar"
        run(sys.executable, "-m", "e2e.images", "archive", built)
        load_archives([*own_archives(tools), built])


def down() -> None:
    """Removes the cluster."""
    run("kind", "delete", "cluster", "--name", NAME)
    shutil.rmtree(kubeconfig().parent, ignore_errors=True)


def load_archives(archives: list[Path]) -> None:
    """Puts the images of docker-archive files on all nodes."""
    for archive in archives:
        run("kind", "load", "image-archive", "--name", NAME, archive)
