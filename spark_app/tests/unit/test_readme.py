"""The README's first example, pasted as a newcomer would paste it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST = README[README.index("## First success") : README.index("## How fast")]
MODULE, TEST = re.findall(r"```python\n(.*?)```", FIRST, re.DOTALL)
[COMMANDS] = re.findall(r"```sh\n(.*?)```", FIRST, re.DOTALL)


def test_the_commands_give_what_they_promise_when_pasted_at_once(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(MODULE)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMILL")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    script = f"set -e\ntrap 'kill %1; wait %1 || true' EXIT\n{COMMANDS}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    promised = re.search(r"# (\[.*\])$", COMMANDS, re.MULTILINE)
    assert promised is not None
    assert promised[1] in done.stdout.splitlines(), done.stdout


def test_the_test_passes_when_it_is_pasted_beside_the_module(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(MODULE)
    (tmp_path / "test_counts.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_counts.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
