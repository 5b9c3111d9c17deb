"""The base image where no registry is: a Debian tree with Python, as `python:…-slim` is elsewhere."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e.images import buildah
from e2e.images.places import cache

SUITE = "trixie"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
UNUSED = ("usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*", "usr/share/info/*")
DROPPED = (*UNUSED, "var/cache/apt/*", "var/lib/apt/lists/*", "var/log/*", "var/cache/debconf/*-old")
KEY = hashlib.sha256(repr((SUITE, PACKAGES, DROPPED)).encode()).hexdigest()[:12]
IMAGE = f"localhost/tidemill/base:{KEY}"


def ensure() -> str:
    """The name of the base image, which is made the first time (about a minute)."""
    if not buildah.has_image(IMAGE):
        tar = cache() / f"base-{KEY}.tar"
        if not tar.exists():
            _make_tree(tar)
        _import(tar)
    return IMAGE


def _make_tree(tar: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="base-", dir=cache()))
    try:
        tree = folder / "tree"
        _run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree))
        _trim(tree)
        _run("tar", "--numeric-owner", "--one-file-system", "-C", str(tree), "-cf", str(folder / "base.tar"), ".")
        (folder / "base.tar").rename(tar)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _trim(tree: Path) -> None:
    """Drops what packages bring for people, now and at each later install; licences stay."""
    rules = [f"path-exclude=/{pattern}" for pattern in UNUSED]
    (tree / "etc/dpkg/dpkg.cfg.d/slim").write_text("\n".join([*rules, "path-include=/usr/share/doc/*/copyright", ""]))
    for pattern in DROPPED:
        for path in tree.glob(pattern):
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.parent.name == "doc":
                _keep_only(path, "copyright")
            else:
                shutil.rmtree(path)
    # The machine's own name server is no part of the image; a builder and a kubelet bring theirs.
    (tree / "etc/resolv.conf").write_text("")
    (tree / "etc/hostname").unlink(missing_ok=True)


def _keep_only(folder: Path, name: str) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != name:
            path.unlink()


def _import(tar: Path) -> None:
    container = buildah.run("from", "scratch")
    try:
        buildah.run("add", "--quiet", container, str(tar), "/")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        buildah.run("config", "--env", path, "--cmd", "python3", container)
        buildah.run("commit", "--quiet", "--format", "oci", container, IMAGE)
    finally:
        buildah.run("rm", container)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise buildah.ImageError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
