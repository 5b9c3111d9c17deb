"""Debian packages that images and the cluster need on their machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from e2e.cluster import ability
from e2e.cluster.shell import ClusterError, run, say

# Each program or file with the package that brings it.
FOR_IMAGES = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "skopeo": "skopeo",
    "tar": "tar",
    "unshare": "util-linux",
}
FOR_CLUSTER = FOR_IMAGES | {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/lib/cni/portmap": "containernetworking-plugins",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ipset": "ipset",
    "openssl": "openssl",
    "sysctl": "procps",
    "nsenter": "util-linux",
    "mount": "mount",
}


def obstacles() -> list[str]:
    """What keeps this machine from running a cluster of its own, each with what to do about it."""
    found = ability.obstacles()
    if missing() and shutil.which("apt-get") is None:
        found.append(f"install {', '.join(missing())} (there is no apt-get to do it)")
    return found


def missing(needed: Mapping[str, str] = FOR_CLUSTER) -> list[str]:
    """Packages that are not installed, judged by what they bring."""
    return sorted({package for path, package in needed.items() if shutil.which(path) is None})


def install_missing(needed: Mapping[str, str] = FOR_CLUSTER) -> None:
    """Installs what is missing, with apt-get.

    Raises:
        ClusterError: it cannot; the error names the packages.
    """
    names = missing(needed)
    if not names:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"Missing: {' '.join(names)}. Install these, or run this as root where apt-get is.")
    say(f"Installing {' '.join(names)} with apt-get ...")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    wait = ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3", "-qq"]
    try:
        _without_services("apt-get", *wait, "update")
        _without_services("apt-get", *wait, "install", "-y", "--no-install-recommends", *names)
    except ClusterError as error:
        raise ClusterError(f"Install {' '.join(names)} by hand, then try again. {error}") from error
    if missing(needed):
        raise ClusterError(f"Install {' '.join(missing(needed))}: apt-get did not bring them.")


def _without_services(*command: str) -> None:
    """Runs apt-get so that no package starts a daemon of its own."""
    os.environ["RUNLEVEL"] = "1"
    try:
        run(*command, seconds=900)
    except subprocess.TimeoutExpired as error:
        raise ClusterError("apt-get took more than 15 minutes.") from error
