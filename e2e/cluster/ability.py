"""What a machine must allow before a cluster can be started on it."""

from __future__ import annotations

import os
import platform

from e2e.cluster.plan import CGROUPS
from e2e.cluster.shell import succeeds


def obstacles() -> list[str]:
    """What this machine refuses, each with what to do about it; empty: a cluster can be started."""
    if platform.system() != "Linux":
        return ["it runs on Linux only"]
    if os.geteuid() != 0:
        return ["it needs root: run it with sudo"]
    found = []
    if not succeeds("unshare", "--net", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"):
        found.append("this machine allows no namespaces of processes, networks and mounts: use another one")
    if not _can_make_group():
        found.append(f"control groups can not be made: let {CGROUPS} be writable here")
    return found


def _can_make_group() -> bool:
    hierarchies = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else sorted(CGROUPS.glob("*/"))
    name = f"tidemill-try-{os.getpid()}"
    try:
        for each in hierarchies:
            (each / name).mkdir()
            (each / name).rmdir()
    except OSError:
        return False
    return bool(hierarchies)
