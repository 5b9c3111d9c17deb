"""The programs that a cluster is made of."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.cluster.shell import ClusterError

RECIPE = Path(__file__).with_name("tools.sh")


def find_tools() -> dict[str, Path]:
    """The programs by name, built first where the cache lacks them; the recipe tells its progress on stderr.

    Raises:
        ClusterError: they cannot be built here; what it printed says why.
    """
    done = subprocess.run(["bash", str(RECIPE)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise ClusterError("The cluster's programs could not be built; the lines above say why.")
    return {name: Path(path) for name, path in (line.split() for line in done.stdout.splitlines())}
