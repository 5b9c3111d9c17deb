"""Images as one tar stream that containerd, Docker and kind read: an OCI layout and Docker's manifest side by side."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection
from typing import IO, Any

from e2e.images.layout import Built, blob

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def write(stream: IO[bytes], images: list[Built], present: Collection[str] = ()) -> int:
    """Writes the images without the blobs that the reader has; returns how many bytes of blobs went out."""
    sent: set[str] = set()
    total = 0
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "oci-layout", {"imageLayoutVersion": "1.0.0"})
        for digest in (digest for built in images for digest in built.digests):
            if digest in sent or digest in present:
                continue
            sent.add(digest)
            total += _add_blob(tar, digest)
        if not present:
            _add(tar, "manifest.json", [_docker_entry(built) for built in images])
        _add(tar, "index.json", {"schemaVersion": 2, "manifests": [_oci_entry(built) for built in images]})
    return total


def _oci_entry(built: Built) -> dict[str, Any]:
    names = {"io.containerd.image.name": built.ref, "org.opencontainers.image.ref.name": built.ref.rpartition(":")[2]}
    size = blob(built.manifest).stat().st_size
    return {"mediaType": MANIFEST, "digest": built.manifest, "size": size, "annotations": names}


def _docker_entry(built: Built) -> dict[str, Any]:
    return {"Config": _name(built.config), "RepoTags": [built.ref], "Layers": [_name(layer) for layer in built.layers]}


def _name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add_blob(tar: tarfile.TarFile, digest: str) -> int:
    path = blob(digest)
    member = tarfile.TarInfo(_name(digest))
    member.size = path.stat().st_size
    with path.open("rb") as content:
        tar.addfile(member, content)
    return member.size


def _add(tar: tarfile.TarFile, name: str, document: Any) -> None:
    content = json.dumps(document).encode()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
