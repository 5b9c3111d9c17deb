"""Disks for claims: folders of a node's disk as local volumes, since nothing here makes volumes on demand."""

from __future__ import annotations

import json

from e2e.cluster.plan import NodePlan

DISKS_PER_NODE = 20
DISK_FOLDER = "/run/disks"
"""Where a node sees the folder `disks` of its own; see `node.sh`."""


def make_folders(node: NodePlan) -> None:
    """The folders behind the volumes; pods that are not root write there."""
    for number in range(DISKS_PER_NODE):
        folder = node.folder / "disks" / str(number)
        folder.mkdir(parents=True)
        folder.chmod(0o777)


def manifest(nodes: list[NodePlan]) -> str:
    """The default StorageClass and the volumes of these nodes."""
    volumes = [_volume(node, number) for node in nodes for number in range(DISKS_PER_NODE)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [_storage_class(), *volumes]})


def _storage_class() -> dict[str, object]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(node: NodePlan, number: int) -> dict[str, object]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{node.name}-{number}"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"{DISK_FOLDER}/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
