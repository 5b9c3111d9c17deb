"""The cluster starts, ends, leaves nothing, and starts again after whatever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from e2e.cluster import control, own, spaces
from e2e.cluster.plan import Plan
from e2e.cluster.shell import say, wait_until
from e2e.cluster.tests.conftest import NUMBER, ROOT, run_command, without_kubeconfig

PLAN = Plan(NUMBER)


def traces() -> set[str]:
    """All of this machine that a cluster touches, seen without the code that removes it."""
    found = {f"mount {line.split()[1]}" for line in Path("/proc/self/mounts").read_text().splitlines()}
    found |= {f"group {path}" for path in Path("/sys/fs/cgroup").glob("*/*")} | set(map(str, Path("/run").glob("*/*")))
    for command in ["ip netns", "ip -o link", "ip route", "iptables-save -t nat", "iptables-save -t filter"]:
        shown = subprocess.run(command.split(), capture_output=True, text=True).stdout
        found |= {f"{command}: {line}" for line in shown.splitlines() if not line.startswith("#")}
    return found | set(map(str, [*Path("/var/lib").iterdir(), *Path("/var/log").iterdir(), *Path("/opt").iterdir()]))


def processes() -> list[str]:
    """Command lines that name the cluster's folder or namespaces."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(PLAN.folder) in line or f"{PLAN.tag}-" in line:
            found.append(line)
    return found


@pytest.fixture
def clean() -> None:
    run_command("down")


def relevant(names: set[str]) -> set[str]:
    """Other clusters and tests may run beside this one; what is ours has our number, or no number at all."""
    others = [f"tm{number}-" for number in range(10) if number != NUMBER] + [" cni", "pytest", "veth", "buildah"]
    return {name for name in names if not any(other in name for other in others)}


def test_nothing_is_left_when_it_went_down(clean: None) -> None:
    before = relevant(traces())
    begin = time.monotonic()
    run_command("up", "--nodes", "2")
    say(f"\nup to Ready, two nodes, warm: {time.monotonic() - begin:.1f} s")
    assert time.monotonic() - begin < 60
    assert processes()
    assert any(PLAN.tag in trace for trace in traces())
    begin = time.monotonic()
    run_command("down")
    say(f"down: {time.monotonic() - begin:.1f} s")
    assert relevant(traces()) - before == set()
    assert processes() == []
    assert own.left_behind(PLAN) == []
    assert not PLAN.folder.exists()


@pytest.mark.parametrize("seconds", [0.4, 1.5, 3.0, 4.5])
def test_nothing_is_left_when_up_was_killed_on_its_way(clean: None, seconds: float) -> None:
    before = relevant(traces())
    command = [sys.executable, "-m", "e2e.cluster", "--number", str(NUMBER), "up", "--nodes", "2"]
    starting = subprocess.Popen(command, cwd=ROOT, env=without_kubeconfig(), stderr=subprocess.DEVNULL)
    try:
        starting.wait(seconds)
    except subprocess.TimeoutExpired:
        starting.kill()
        starting.wait()
    run_command("down")
    assert relevant(traces()) - before == set()
    assert processes() == []


def test_up_starts_anew_when_programs_crashed(clean: None) -> None:
    run_command("up")
    os.kill(control.running(PLAN)["etcd"], signal.SIGKILL)
    first = spaces.first_process(PLAN.node("node0").space)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until("the node is off", lambda: spaces.first_process(PLAN.node("node0").space) is None, 10)
    PLAN.kubeconfig.unlink()
    said = run_command("up").stderr
    assert "left behind" in said
    assert own.is_whole(PLAN, 1)
    run_command("down")
    assert own.left_behind(PLAN) == []


def test_up_changes_nothing_when_it_runs(clean: None) -> None:
    run_command("up")
    before = control.running(PLAN)
    run_command("up")
    assert control.running(PLAN) == before
    run_command("down")


def test_down_says_so_when_there_is_nothing(clean: None) -> None:
    assert "gone" in run_command("down").stderr
