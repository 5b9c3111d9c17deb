"""`python -m e2e [quick | all | STORY… | publish]`: builds what changed, brings up a cluster, and tells stories.

A cluster that was started for this run is taken down at its end, also when the run is interrupted. `publish` only
brings the figures of earlier runs into the project's files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from e2e.cluster import own, packages
from e2e.cluster.choice import Cluster, find
from e2e.cluster.shell import ClusterError, say
from e2e.harness.figures import publish
from e2e.harness.system import cluster_number

HERE = Path(__file__).parent
NODES = "2"


def main(stories: list[str]) -> int:
    """The exit code of pytest."""
    signal.signal(signal.SIGTERM, _interrupt)
    if stories == ["publish"]:
        publish()
        return 0
    try:
        selection = select(stories)
        cluster = find(cluster_number())
        if cluster.kind == "own":
            packages.install_missing()
        subprocess.run([sys.executable, "-m", "e2e.images", "build"], check=True)
        was_up = cluster.kind != "own" or own.exists(cluster.plan)
        try:
            _cluster("up", "--nodes", _nodes(cluster))
            return tell(selection)
        finally:
            if not was_up:
                _cluster("down")
    except (ClusterError, subprocess.CalledProcessError, ValueError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def select(stories: list[str]) -> list[str]:
    """Arguments of pytest for `quick`, `all` (or nothing), or names of stories.

    Raises:
        ValueError: there is no such story; its text lists them.
    """
    known = {path.stem.removeprefix("test_"): str(path) for path in sorted(HERE.glob("test_*.py"))}
    if stories in ([], ["all"]):
        return list(known.values())
    if stories == ["quick"]:
        return [*known.values(), "-m", "quick"]
    unknown = [name for name in stories if name not in known]
    if unknown:
        raise ValueError(f"There is no story {', '.join(unknown)}; there are quick, all, {', '.join(known)}.")
    return [known[name] for name in stories]


def tell(selection: list[str]) -> int:
    """Runs pytest; its exit code. An interrupt is passed on, so that stories clean up after themselves."""
    command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE), *selection]
    process = subprocess.Popen(command, cwd=HERE.parent, env=os.environ | {"PYTHONPATH": str(HERE.parent)})
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)


def _nodes(cluster: Cluster) -> str:
    running = len(own.nodes_of(cluster.plan)) if cluster.kind == "own" else 0
    return str(running) if running else NODES


def _cluster(*arguments: str) -> None:
    command = [sys.executable, "-m", "e2e.cluster", "--number", str(cluster_number())]
    subprocess.run([*command, *arguments], check=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
