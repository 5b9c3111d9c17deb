"""Brings built images into a containerd: names what it has already, sends the rest."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from e2e.images import archive, layout
from e2e.images.buildah import ImageError
from e2e.images.layout import Built


def into_containerd(ctr: Sequence[str], refs: Sequence[str] | None = None) -> list[str]:
    """Imports the images (all built ones, if none is named) that this containerd lacks or has as another version.

    `ctr` is the start of the command line: `["ctr", "-a", SOCKET, "-n", "k8s.io"]`. A layer is not sent when the
    containerd holds it, so after a change of code only the last layers travel. Returns the refs that were imported.

    Raises:
        ImageError: a ref is not built, or containerd refused.
    """
    wanted = chosen(refs)
    there = _images(ctr)
    missing = [built for built in wanted if there.get(built.ref) != built.manifest]
    if missing:
        _send(ctr, missing, _contents(ctr))
    return [built.ref for built in missing]


def chosen(refs: Sequence[str] | None) -> list[Built]:
    built = layout.index()
    unknown = [ref for ref in refs or () if ref not in built]
    if unknown:
        raise ImageError(f"Not built: {', '.join(unknown)}. Run `python -m e2e.images build` first.")
    return [built[ref] for ref in (refs or built)]


def _images(ctr: Sequence[str]) -> dict[str, str]:
    """Image name -> manifest digest."""
    lines = _run([*ctr, "images", "list"]).splitlines()[1:]
    return {columns[0]: columns[2] for columns in (line.split() for line in lines) if len(columns) > 2}


def _contents(ctr: Sequence[str]) -> set[str]:
    return set(_run([*ctr, "content", "list", "--quiet"]).split())


def _send(ctr: Sequence[str], images: list[Built], present: set[str]) -> None:
    command = [*ctr, "images", "import", "--local", "-"] if _has_local_flag(ctr) else [*ctr, "images", "import", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            archive.write(process.stdin, images, present)
            process.stdin.close()
        except BrokenPipeError:
            pass  # its own message says more than the pipe's
        said = process.stdout.read().decode(errors="replace")
    if process.returncode != 0:
        raise ImageError(f"containerd did not take {', '.join(built.ref for built in images)}: {said[-2000:]}")


def _has_local_flag(ctr: Sequence[str]) -> bool:
    """From 2.0 on `ctr` sends imports to a transfer service, which wants every blob in the stream."""
    return "--local" in _run([*ctr, "images", "import", "--help"])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"{' '.join(command)} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout
