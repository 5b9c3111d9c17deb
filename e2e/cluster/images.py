"""Images on the nodes.

They are unpacked once, into a store in the cache; the containerd of each new node starts from links to its files.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.archive import write_archive
from e2e.cluster.node import PAUSE_IMAGE, containerd_command, containerd_settings
from e2e.cluster.plan import CONTAINERD_SOCKET, NodePlan, Plan, cache_folder
from e2e.cluster.shell import ClusterError, run, start, wait_until
from e2e.cluster.spaces import first_process, inside, remove_space
from e2e.images import load
from e2e.images.buildah import ImageError

IMAGE_FORMAT = 2  # raise it when archive.py writes other images
# A copy that went on after this process was killed would write into a folder that is being removed.
_ENDS_WITH_THIS = ["setpriv", "--pdeathsig", "KILL"]
OWN_IMAGES = {"pause": PAUSE_IMAGE, "probe": "localhost/tidemill/probe:1", "minio": "localhost/tidemill/minio:dev"}
# Everything that containerd changes in place; all else in its folder is written once.
DATABASES = ["io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"]


def fill_store(plan: Plan, tools: dict[str, Path]) -> None:
    """Brings the store up to date with the images that are built."""
    with _locked_store() as store:
        stamp, wanted = store / "stamp", _fingerprint(tools)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        with _store_containerd(plan, store) as ctr:
            for archive in own_archives(tools):
                run(*ctr, "images", "import", archive)
            _import_built(ctr)
        stamp.write_text(wanted)


def link_store(node: NodePlan) -> None:
    """Gives a new node all images of the store, without a copy of their files."""
    target = node.folder / "containerd"
    with _locked_store() as store:
        source = store / "containerd"
        if source.stat().st_dev != node.folder.stat().st_dev:
            run(*_ENDS_WITH_THIS, "cp", "-a", source, target)
            return
        run(*_ENDS_WITH_THIS, "cp", "-al", source, target)
        for database in DATABASES:
            (target / database).unlink()
            shutil.copy2(source / database, target / database)


def load_built(nodes: list[NodePlan]) -> list[str]:
    """Brings running nodes up to date with the images that are built; the names of those that were new."""
    loaded: list[str] = []
    for node in nodes:
        loaded += _import_built(containerd_command(node))
    return sorted(set(loaded))


def load_archives(nodes: list[NodePlan], archives: list[Path]) -> None:
    """Puts the images of docker-archive or OCI archive files on running nodes."""
    for node in nodes:
        for archive in archives:
            run(*containerd_command(node), "images", "import", archive)


def own_archives(tools: dict[str, Path]) -> list[Path]:
    """Archives of the images that hold one program of the cluster."""
    folder = cache_folder() / "cluster-images/own"
    folder.mkdir(parents=True, exist_ok=True)
    archives = []
    for name, ref in OWN_IMAGES.items():
        archive = folder / f"{_content_name(tools[name])}.tar"
        if not archive.exists():
            write_archive(archive, ref, tools[name], name)
        archives.append(archive)
    return archives


def _import_built(ctr: list[str]) -> list[str]:
    try:
        return list(load.into_containerd(ctr, refs=None))
    except ImageError as error:
        raise ClusterError(str(error)) from error


def _fingerprint(tools: dict[str, Path]) -> str:
    index = cache_folder() / "images/images.json"
    content = index.read_bytes() if index.exists() else b""
    names = " ".join(_content_name(tools[name]) for name in OWN_IMAGES)
    return hashlib.sha256(content + names.encode()).hexdigest()


def _content_name(program: Path) -> str:
    """Another program by the same name is most likely of another size or time."""
    state = program.stat()
    return f"{program.name}-{state.st_size}-{int(state.st_mtime)}-{IMAGE_FORMAT}"


@contextmanager
def _locked_store() -> Iterator[Path]:
    """The store's folder, for one process at a time."""
    store = cache_folder() / "cluster-images"
    store.mkdir(parents=True, exist_ok=True)
    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield store


@contextmanager
def _store_containerd(plan: Plan, store: Path) -> Iterator[list[str]]:
    """A containerd that writes into the store while it is filled; yields the `ctr` command line for it."""
    space = f"{plan.tag}-images"
    settings = store / "containerd.toml"
    settings.write_text(containerd_settings(store / "containerd", store / "cni"))
    run("ip", "netns", "add", space)
    try:
        program = f"mount -t tmpfs tmpfs /run && mkdir /run/containerd && exec containerd -c {settings}"
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", program]
        start(inside(space, *apart), store / "containerd.log")
        wait_until("containerd of the image store has started", lambda: first_process(space) is not None, 10)
        socket = Path(f"/proc/{first_process(space)}/root{CONTAINERD_SOCKET}")
        wait_until("containerd of the image store answers", socket.exists, 30)
        yield ["ctr", "-a", str(socket), "-n", "k8s.io"]
    finally:
        remove_space(space)
