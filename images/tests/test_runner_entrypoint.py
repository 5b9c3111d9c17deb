"""The entrypoint's side of Spark's contract; programs that write down how they were called stand for Java and Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / "runner"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "4",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "600m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "exec-4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
RECORDER = """#!/usr/bin/env python3
import json, sys
json.dump(sys.argv, open({report!r}, "w"))
"""

EXECUTOR_PROGRAM = """import pathlib, signal
folder = pathlib.Path(__file__).parent
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPWR})
(folder / "up").write_text("")
received = signal.sigwait({signal.SIGPWR})
(folder / "done").write_text(signal.Signals(received).name)
"""
STORY = """mkfifo {folder}/up
{folder}/java {folder}/org.KubernetesExecutorBackend &
executor=$!
cat {folder}/up
bash {script}
! kill -0 $executor 2>/dev/null
"""


class Machine:
    """A folder that stands for the image's JAVA_HOME and SPARK_HOME."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = folder / "called.json"
        for name in ("java/bin/java", "spark/bin/spark-submit"):
            program = folder / name
            program.parent.mkdir(parents=True)
            program.write_text(RECORDER.format(report=str(self.report)))
            program.chmod(0o755)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        home = {"JAVA_HOME": str(self.folder / "java"), "SPARK_HOME": str(self.folder / "spark")}
        command = ["bash", str(RUNNER / "entrypoint.sh"), *arguments]
        environment = {"PATH": os.environ["PATH"], **home, **variables}
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=20
        )

    def called(self) -> list[str]:
        found: list[str] = json.loads(self.report.read_text())
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_executor_gets_every_flag_when_spark_sets_its_variables(machine: Machine) -> None:
    assert machine.run("executor", **EXECUTOR).returncode == 0
    called = machine.called()
    backend = called.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    flags = called[backend + 1 :]
    assert dict(zip(flags[::2], flags[1::2], strict=True)) == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "4",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.1.2.4",
        "--resourceProfileId": "0",
        "--podName": "exec-4",
    }
    assert called[0] == str(machine.folder / "java/bin/java")
    assert called[1:3] == ["-Xms600m", "-Xmx600m"]


def test_java_options_keep_order_and_spaces_when_there_are_more_than_ten(machine: Machine) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn{number}=a b_{number}" for number in range(12)}
    options["SPARK_JAVA_OPT_3"] = "-Dtwo=first line\nsecond = line"
    assert machine.run("executor", **EXECUTOR, **options, NOT_SPARK_JAVA_OPT_5="no").returncode == 0
    assert machine.called()[1:13] == [options[f"SPARK_JAVA_OPT_{number}"] for number in range(12)]


def test_classpath_has_sparks_order_when_all_its_parts_are_set(machine: Machine) -> None:
    parts = {
        "SPARK_CONF_DIR": "/conf",
        "HADOOP_CONF_DIR": "/hadoop",
        "SPARK_CLASSPATH": "/mine/*",
        "SPARK_EXTRA_CLASSPATH": "/extra.jar",
        "SPARK_DIST_CLASSPATH": "/dist/*",
    }
    machine.run("executor", **EXECUTOR, **parts)
    called = machine.called()
    jars, here = machine.folder / "spark/jars/*", machine.folder
    assert called[called.index("-cp") + 1] == f"/conf:/hadoop:/mine/*:{jars}:/extra.jar:{here}:/dist/*"


def test_classpath_is_conf_jars_and_here_when_nothing_else_is_set(machine: Machine) -> None:
    machine.run("executor", **EXECUTOR)
    called = machine.called()
    spark = machine.folder / "spark"
    assert called[called.index("-cp") + 1] == f"{spark}/conf:{spark}/jars/*:{machine.folder}"


def test_executor_uses_the_class_archive_when_the_image_has_one(machine: Machine) -> None:
    home = machine.folder / "spark"
    names = ("b.jar", "B.jar", "a_c.jar", "a-b.jar")
    (home / "jars").mkdir()
    for name in names:
        (home / "jars" / name).touch()
    (home / "classes.jsa").touch()
    machine.run("executor", **EXECUTOR, SPARK_JAVA_OPT_0="-Da=b", LC_ALL="en_US.UTF-8")
    called = machine.called()
    assert called[1:3] == ["-Da=b", f"-XX:SharedArchiveFile={home}/classes.jsa"]
    jars = ":".join(str(home / "jars" / name) for name in sorted(names))
    assert called[called.index("-cp") + 1] == f"{jars}:{home}/conf:{home}/jars/*:{machine.folder}"


def test_archive_stays_unused_when_jars_came_after_it(machine: Machine) -> None:
    home = machine.folder / "spark"
    (home / "classes.jsa").touch()
    os.utime(home / "classes.jsa", (1, 1))
    (home / "jars").mkdir()
    machine.run("executor", **EXECUTOR)
    assert not [part for part in machine.called() if "SharedArchiveFile" in part]


@pytest.mark.parametrize("variable", ["SPARK_CLASSPATH", "HADOOP_CONF_DIR"])
def test_archive_stays_unused_when_a_class_path_of_the_user_comes_first(machine: Machine, variable: str) -> None:
    (machine.folder / "spark/classes.jsa").touch()
    machine.run("executor", **EXECUTOR, **{variable: "/mine"})
    called = machine.called()
    assert not [part for part in called if "SharedArchiveFile" in part]
    assert "/mine" in called[called.index("-cp") + 1].split(":")


def test_executor_fails_and_names_the_variable_when_spark_did_not_set_it(machine: Machine) -> None:
    without = {name: value for name, value in EXECUTOR.items() if name != "SPARK_DRIVER_URL"}
    done = machine.run("executor", **without)
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr
    assert not machine.report.exists()


def test_driver_is_submitted_in_client_mode_when_spark_starts_it(machine: Machine) -> None:
    machine.run("driver", "--class", "A", "local:///app.py", "two words", SPARK_DRIVER_BIND_ADDRESS="10.1.2.3")
    assert machine.called() == [
        str(machine.folder / "spark/bin/spark-submit"),
        "--conf", "spark.driver.bindAddress=10.1.2.3",
        "--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.1.2.3",
        "--deploy-mode", "client",
        "--class", "A", "local:///app.py", "two words",
    ]  # fmt: skip


def test_any_other_command_is_run_as_it_is_when_it_is_no_word_of_spark(machine: Machine) -> None:
    done = machine.run("sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "two words", "*")
    assert (done.returncode, done.stdout) == (7, "two words|*|")


def _alone(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The command's pgrep finds only processes of its own session, as in a container it finds those of the pod."""
    pgrep = shutil.which("pgrep")
    assert pgrep, "this test needs pgrep: apt-get install procps"
    (folder / "bin").mkdir()
    (folder / "bin/pgrep").write_text(f'#!/bin/sh\nexec {pgrep} -s 0 "$@"\n')
    (folder / "bin/pgrep").chmod(0o755)
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        command, env=environment, start_new_session=True, capture_output=True, text=True, check=False, timeout=20
    )


def test_decommission_script_does_nothing_when_there_is_no_executor(tmp_path: Path) -> None:
    done = _alone(tmp_path, "bash", str(RUNNER / "decom.sh"))
    assert done.returncode == 0, done.stderr


def test_decommission_script_signals_the_executor_and_waits_when_it_runs(tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to(sys.executable)
    (tmp_path / "org.KubernetesExecutorBackend").write_text(EXECUTOR_PROGRAM)
    story = tmp_path / "story.sh"
    story.write_text(STORY.format(folder=tmp_path, script=RUNNER / "decom.sh"))
    done = _alone(tmp_path, "bash", str(story))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "done").read_text() == "SIGPWR"
