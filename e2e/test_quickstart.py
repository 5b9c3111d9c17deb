"""The quickstart, word by word, as a new user would follow it; but on the cluster that is there already."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from e2e.harness.figures import ROOT
from e2e.harness.system import System

PAGE = ROOT / "docs/kubernetes/quickstart.md"
SECONDS = 1200


@pytest.fixture
def shell(system: System) -> Iterator[dict[str, str]]:
    """The environment that the first section of the page leaves behind; the namespace is gone afterwards."""
    programs = os.path.dirname(system.helm) + "/path"
    yield os.environ | {"KUBECONFIG": str(system.cluster.kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}"}
    system.kubernetes.kubectl("delete", "module", "flights", "-n", "flights", "--ignore-not-found", seconds=180)
    system.kubernetes.kubectl("delete", "namespace", "flights", "--ignore-not-found", seconds=180)
    system.install_operator()


@pytest.mark.long
def test_each_command_works_when_followed_word_by_word(shell: dict[str, str]) -> None:
    page = PAGE.read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n" + "\n".join(blocks)
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=shell, capture_output=True, text=True, timeout=SECONDS)

    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    for promised in re.findall(r"^prints `(.*)`", page, re.MULTILINE):
        assert promised.split("`")[0] in done.stdout, done.stdout[-4000:]
