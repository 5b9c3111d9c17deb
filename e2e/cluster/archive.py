"""Images that hold one static program, made without a base image or a builder."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

USER = "65532:65532"


def write_archive(path: Path, ref: str, program: Path, name: str) -> None:
    """A docker-archive at `path` whose image `ref` runs `program` as `/name`, as a user that is not root."""
    files = {name: program.read_bytes()} | {str(file).lstrip("/"): file.read_bytes() for file in _libraries(program)}
    layer = _tar(files, mode=0o755, folders=["tmp", "data"])
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"], "User": USER, "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    config_text = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(config_text).hexdigest()}.json"
    manifest: list[dict[str, Any]] = [{"Config": config_name, "RepoTags": [ref], "Layers": [f"{digest}/layer.tar"]}]
    parts = {config_name: config_text, f"{digest}/layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    partial = path.with_suffix(".partial")
    partial.write_bytes(_tar(parts, mode=0o644, folders=[digest]))
    partial.rename(path)


def _libraries(program: Path) -> list[Path]:
    """The shared libraries that a program loads: none when it was linked statically."""
    shown = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", shown)]


def _tar(files: dict[str, bytes], mode: int, folders: list[str]) -> bytes:
    """A tar whose bytes depend on its content only."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()
