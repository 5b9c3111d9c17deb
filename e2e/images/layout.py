"""All images in one OCI layout, each layer in it once and uncompressed, and the index of what is built.

Uncompressed, because a layer's name is then the same here and in a containerd that unpacked it, whoever wrote the tar:
that is how `load` knows what is there already. The index is written last and in one step, so what it names is whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from e2e.images import buildah
from e2e.images.places import cache


@dataclass(frozen=True)
class Built:
    """One image of the index; sizes in bytes."""

    ref: str
    key: str
    manifest: str
    config: str
    layers: list[str]
    bytes: int

    @property
    def digests(self) -> list[str]:
        """Everything that the image consists of, small things first."""
        return [self.manifest, self.config, *self.layers]


def index() -> dict[str, Built]:
    """What is built: image ref -> its parts."""
    path = cache() / "images.json"
    if not path.exists():
        return {}
    return {ref: Built(ref=ref, **entry) for ref, entry in json.loads(path.read_text()).items()}


def blob(digest: str) -> Path:
    algorithm, _, name = digest.partition(":")
    return cache() / "layout" / "blobs" / algorithm / name


def add(image: str, ref: str, key: str) -> Built:
    """Copies an image out of buildah's storage, only what is new of it, and enters it in the index."""
    buildah.copy_out(image, f"oci:{cache() / 'layout'}:{ref}")
    manifest = _pushed(ref)
    parts = read(manifest)
    layers = [layer["digest"] for layer in parts["layers"]]
    size = sum(layer["size"] for layer in parts["layers"])
    built = Built(ref, key, manifest, parts["config"]["digest"], layers, size)
    _write({**index(), ref: built})
    return built


def read(digest: str) -> Any:
    return json.loads(blob(digest).read_text())


def _pushed(ref: str) -> str:
    listed = json.loads((cache() / "layout" / "index.json").read_text())["manifests"]
    name = "org.opencontainers.image.ref.name"
    return str(next(entry["digest"] for entry in listed if entry.get("annotations", {}).get(name) == ref))


def _write(entries: dict[str, Built]) -> None:
    plain = {ref: {k: v for k, v in asdict(built).items() if k != "ref"} for ref, built in sorted(entries.items())}
    path = cache() / "images.json"
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(plain, indent=1))
    draft.rename(path)


def prune() -> int:
    """Removes blobs that no image of the index has any more; returns the bytes that this freed."""
    used = {digest for built in index().values() for digest in built.digests}
    freed = 0
    for path in (cache() / "layout" / "blobs" / "sha256").glob("*"):
        if f"sha256:{path.name}" not in used:
            freed += path.stat().st_size
            path.unlink()
    return freed
