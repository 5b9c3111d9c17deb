"""buildah with a storage of its own, so that it neither sees nor leaves anything in the machine's."""

from __future__ import annotations

import shutil
import subprocess

from e2e.images.places import cache

DRIVER = "overlay"


class ImageError(Exception):
    """An image cannot be built or loaded; the text says what to do."""


def run(*arguments: str) -> str:
    """Runs one buildah command and returns what it wrote to stdout.

    Raises:
        ImageError: it failed; the text holds the end of its output.
    """
    root, run_root = _storage()
    return _run("buildah", "--root", root, "--runroot", run_root, "--storage-driver", DRIVER, *arguments)


def copy_out(image: str, destination: str) -> None:
    """Copies an image to another place without compressing it, which buildah's own push cannot leave out."""
    root, run_root = _storage()
    source = f"containers-storage:[{DRIVER}@{root}+{run_root}]{image}"
    _run("skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", source, destination)


def _storage() -> tuple[str, str]:
    return str(cache() / "buildah" / "root"), str(cache() / "buildah" / "run")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise ImageError(f"{command[0]} failed with {done.returncode}:\n{tail}")
    return done.stdout.strip()


def has_image(name: str) -> bool:
    return bool(run("images", "--quiet", "--filter", f"reference={name}"))


def forget_storage() -> None:
    """Removes the storage; mounts below it are undone first."""
    storage = cache() / "buildah"
    if storage.exists():
        run("rm", "--all")
        run("rmi", "--all", "--force")
        shutil.rmtree(storage, ignore_errors=True)
