"""Runs a built image the way a restricted pod does, without a cluster: its own user, its root read-only.

Mounts are made in a mount namespace of their own, so they are gone when the command ends, however it ends.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.images import buildah, layout

WRITABLE = ("/tmp", "/work")
SCRIPT = r"""
set -eu
root=$1 user=$2 directory=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for folder in $WRITABLE; do [ ! -d "$root$folder" ] || mount -t tmpfs -o mode=1777 none "$root$folder"; done
hostname localhost; ip link set lo up
exec chroot "$root" setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all -- env -C "$directory" "$@"
"""


@contextlib.contextmanager
def mounted(ref: str) -> Iterator[Path]:
    """The image's files as a folder, for as long as the block lasts."""
    container = buildah.run("from", "--pull=never", ref)
    try:
        yield Path(buildah.run("mount", container))
    finally:
        buildah.run("rm", container)


def config(ref: str) -> Mapping[str, Any]:
    """What the image says of itself: `User`, `Env`, `Entrypoint`, `Cmd`, `WorkingDir`."""
    found: Mapping[str, Any] = layout.read(layout.index()[ref].config)["config"]
    return found


def run(
    ref: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
    timeout_seconds: float = 120,
) -> subprocess.CompletedProcess[str]:
    """The image's entrypoint with `arguments`, in namespaces without a network but loopback."""
    said = config(ref)
    entrypoint = [*said["Entrypoint"], *arguments]
    variables = [*said["Env"], *(f"{name}={value}" for name, value in (environment or {}).items())]
    with mounted(ref) as root:
        command = [
            "unshare", "--mount", "--uts", "--pid", "--fork", "--net", "--ipc", "--kill-child",
            "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"WRITABLE={' '.join(WRITABLE)}",
            "sh", "-c", SCRIPT, "sandbox", str(root), user or said["User"], said.get("WorkingDir", "/"),
            "-i", *variables, *entrypoint,
        ]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_seconds)
