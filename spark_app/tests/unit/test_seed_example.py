"""The seed's example is a program, and prints what the seed says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MAIN = Path(__file__).resolve().parents[3] / "examples" / "seed_example" / "main.py"
PUBLISHED = """\
Global sum: 11
Counts for 'a': [["b" 2] ["c" 1]]
Counts for 'x': [["y" 3] ["z" 1]]
"""


def test_seed_example_prints_the_published_lines_when_run_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(MAIN)], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert done.stdout == PUBLISHED, done.stderr
    assert done.returncode == 0
