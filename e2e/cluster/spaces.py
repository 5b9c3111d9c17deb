"""Network namespaces: what runs in them, and how to end it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from e2e.cluster.plan import CGROUPS, Plan
from e2e.cluster.shell import run, wait_until


def spaces_of(plan: Plan) -> list[str]:
    """The network namespaces of a cluster that exist, known by their names."""
    return [name for name in spaces_of_all() if name.startswith(f"{plan.tag}-")]


def spaces_of_all() -> list[str]:
    """Those of all clusters of this machine."""
    return sorted(path.name for path in Path("/run/netns").glob("tm[0-9]-*"))


def processes_in(space: str) -> list[int]:
    """Processes whose network is `space`. Nothing but the cluster enters it, so all of them are the cluster's."""
    if not Path("/run/netns", space).exists():
        return []
    return [int(pid) for pid in run("ip", "netns", "pids", space).split()]


def first_process(space: str) -> int | None:
    """The process 1 of a node's process namespace, by its number on the host; None when the node is off."""
    for pid in processes_in(space):
        if _numbers(pid)[1:] == [1]:
            return pid
    return None


def end_all(space: str) -> None:
    """Ends every process of a namespace at once; of a node also its pods, as if power failed."""
    first = first_process(space)
    pids = processes_in(space)
    for pid in [first] if first else pids:
        end(pid)
    _wait_ended(space, pids)


def end(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Signals one process; one that has ended already is fine."""
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return


def processes_in_group(name: str) -> list[int]:
    """Processes in a control group of the cluster or below it, in any hierarchy."""
    found: set[int] = set()
    for folder in group_folders(name):
        for below, _, _ in os.walk(folder):  # unlike Path.rglob it bears groups that end meanwhile
            found.update(_read_numbers(Path(below, "cgroup.procs")))
    return sorted(found - {0})


def group_folders(name: str) -> list[Path]:
    """The folders of a control group: one for each hierarchy of cgroup v1, one for cgroup v2."""
    return [path for path in [CGROUPS / name, *CGROUPS.glob(f"*/{name}")] if path.is_dir()]


def remove_group(name: str) -> None:
    """Removes a control group with all below it, once nothing runs there."""
    for pid in processes_in_group(name):
        end(pid)
    for folder in group_folders(name):
        for below, _, _ in os.walk(folder, topdown=False):
            _remove_folder(Path(below))


def inside(space: str, *command: str | Path) -> list[str | Path]:
    """A command that runs in a network namespace. Not by `ip netns exec`: that hides the control groups."""
    return ["nsenter", f"--net=/run/netns/{space}", *command]


def remove_space(space: str) -> None:
    """Ends what runs in a namespace and removes it with its links."""
    while pids := processes_in(space):
        for pid in pids:
            end(pid)
        _wait_ended(space, pids)
    run("ip", "netns", "delete", space)


def _wait_ended(space: str, pids: list[int]) -> None:
    wait_until(f"all processes of {space} have ended", lambda: not any(_is_alive(pid) for pid in pids), 30)


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _numbers(pid: int) -> list[int]:
    """The numbers of a process in its process namespaces, the host's first."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(number) for line in lines if line.startswith("NSpid:") for number in line.split()[1:]]


def _read_numbers(path: Path) -> list[int]:
    try:
        return [int(number) for number in path.read_text().split()]
    except OSError:
        return []


def _remove_folder(path: Path) -> None:
    def gone() -> bool:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    wait_until(f"the control group {path} is empty", gone, 10)
