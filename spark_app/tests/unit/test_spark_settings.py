from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.engine.work import AttemptWork, SourceWork
from tidemill.journal.snapshot import Snapshot
from tidemill.spark import session
from tidemill.spark.placement import FUSED_ROWS_MAX, ROW_COST, place
from tidemill.spark.settings import SparkSettings, spark_conf
from tidemill.values import errors
from tidemill.values.offsets import OffsetRanges


def work_of(records: int, threads: int = 4, mode: str = "columns", **options: Any) -> AttemptWork:
    source = SourceWork("words", "m/depots/words-1", OffsetRanges((0, 0), (records // 2, records - records // 2)))
    program: Any = SimpleNamespace(segments={0: SimpleNamespace(mode="columns"), 1: SimpleNamespace(mode=mode)})
    return AttemptWork(
        "file:///store", "m", "m/topologies/t-1", program, 8, threads, 1, 1, Snapshot(), {"words": source}, {}, options
    )


@pytest.mark.parametrize(
    ("records", "threads", "placement"),
    [(0, 4, "fused"), (FUSED_ROWS_MAX, 4, "fused"), (FUSED_ROWS_MAX + 1, 4, "spread"), (10**7, 1, "fused")],
)
def test_placement_follows_size_when_auto(records: int, threads: int, placement: str) -> None:
    assert place(work_of(records, threads)) == placement


def test_fewer_rows_are_spread_when_they_run_one_by_one() -> None:
    assert place(work_of(FUSED_ROWS_MAX // ROW_COST, mode="rows")) == "fused"
    assert place(work_of(FUSED_ROWS_MAX // ROW_COST + 1, mode="rows")) == "spread"


@pytest.mark.parametrize("placement", ["spread", "fused", "inline"])
def test_placement_is_the_option_when_set(placement: str) -> None:
    assert place(work_of(10, **{"topology.microbatch.placement": placement})) == placement


def test_extra_settings_win_when_they_name_ours(tmp_path: Path) -> None:
    conf = spark_conf(SparkSettings(extra={"spark.locality.wait": "1s"}), tmp_path)

    assert conf["spark.locality.wait"] == "1s"
    assert conf["spark.stage.maxConsecutiveAttempts"] == "1"


def test_only_local_masters_bind_to_loopback_when_configured(tmp_path: Path) -> None:
    assert spark_conf(SparkSettings("local[2]"), tmp_path)["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in spark_conf(SparkSettings("k8s://https://kubernetes.default.svc"), tmp_path)


@pytest.mark.parametrize("master", ["local[2]", "k8s://https://kubernetes.default.svc"])
def test_drivers_and_executors_compile_quickly_when_they_name_no_options_of_java(tmp_path: Path, master: str) -> None:
    conf = spark_conf(SparkSettings(master), tmp_path)

    for part in ("driver", "executor"):
        assert "-XX:TieredStopAtLevel=1" in conf[f"spark.{part}.extraJavaOptions"]


def test_one_sentence_says_what_to_install_when_java_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(errors.BadInput, match="Java runtime, version 17 or newer.*default-jre-headless"):
        session.require_java()


def test_what_a_dead_process_left_is_removed_when_another_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session.tempfile, "tempdir", str(tmp_path))
    dead = 2**22 + 1  # larger than any process id
    (tmp_path / f"{session.FOLDER_PREFIX}{dead}-x" / "blocks").mkdir(parents=True)
    (tmp_path / f"{session.FOLDER_PREFIX}{os.getpid()}-y").mkdir()

    made = session.make_folder()

    assert {path.name for path in tmp_path.iterdir()} == {f"{session.FOLDER_PREFIX}{os.getpid()}-y", made.name}


def test_the_innermost_cause_is_told_when_the_jvm_ends_before_it_answers(tmp_path: Path) -> None:
    log = [
        'Exception in thread "main" java.io.IOException: failure to login',
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)",
        "Caused by: java.net.UnknownHostException: vm: vm: Name or service not known",
        "\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1931)",
        "Caused by: java.net.UnknownHostException: vm: Name or service not known",
        "\tat java.base/java.net.InetAddress.getAllByName0(InetAddress.java:1818)",
        "\t... 13 more",
    ]
    (tmp_path / "spark.log").write_text("\n".join(log))

    told = session._reason(RuntimeError("JAVA_GATEWAY_EXITED"), tmp_path)
    assert told == "java.net.UnknownHostException: vm: Name or service not known"


@pytest.mark.parametrize(
    ("master", "has_executors"),
    [("local", False), ("local[4]", False), ("local[*]", False), ("local-cluster[2,1,1024]", True), ("k8s://a", True)],
)
def test_executors_are_counted_when_they_are_processes_of_their_own(master: str, has_executors: bool) -> None:
    assert SparkSettings(master).has_executors is has_executors
