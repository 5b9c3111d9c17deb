"""JVMs use the archive of Spark's classes where there is one, and a class path of the user stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemill.spark import settings
from tidemill.spark.class_archive import ARCHIVE, archived
from tidemill.spark.on_kubernetes import DriverPod, Executors, OnKubernetes
from tidemill.spark.settings import SparkSettings, spark_conf

NAMES = ("b.jar", "B.jar", "a_c.jar", "a-b.jar")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's folder, with an archive."""
    folder = tmp_path / "spark"
    (folder / "jars").mkdir(parents=True)
    for name in (ARCHIVE, *(f"jars/{name}" for name in NAMES)):
        (folder / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(folder))
    return folder


def test_no_setting_is_made_when_there_is_no_archive(home: Path, tmp_path: Path) -> None:
    (home / ARCHIVE).unlink()

    assert archived({}, ("driver", "executor")) == {}
    assert "spark.driver.extraClassPath" not in spark_conf(SparkSettings("local[2]"), tmp_path)


def test_driver_and_executors_use_the_archive_when_they_run_on_this_machine(home: Path, tmp_path: Path) -> None:
    conf = spark_conf(SparkSettings("local-cluster[2,1,1024]"), tmp_path)

    for process in ("driver", "executor"):
        options = conf[f"spark.{process}.extraJavaOptions"].split()
        assert options[0] == "-XX:TieredStopAtLevel=1"
        assert options[-1] == f"-XX:SharedArchiveFile={home / ARCHIVE}"
        assert conf[f"spark.{process}.extraClassPath"] == ":".join(str(home / "jars" / name) for name in sorted(NAMES))


def test_only_the_driver_is_told_when_executors_are_pods(home: Path, tmp_path: Path) -> None:
    place = OnKubernetes(DriverPod("t-1-abc", "ns", "10.1.2.3", "uid-1"), Executors("image"))
    conf = spark_conf(SparkSettings("k8s://https://kubernetes.default.svc", kubernetes=place), tmp_path)

    assert conf["spark.driver.extraJavaOptions"].endswith(f" -XX:SharedArchiveFile={home / ARCHIVE}")
    assert "SharedArchiveFile" not in conf["spark.executor.extraJavaOptions"]
    assert "spark.executor.extraClassPath" not in conf


def test_archive_stays_unused_when_jars_came_after_it(home: Path) -> None:
    os.utime(home / ARCHIVE, (1, 1))

    assert archived({}, ("driver",)) == {}


def test_archive_is_named_by_its_real_place_when_the_home_is_a_link(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "link"))

    assert archived({}, ("driver",))["spark.driver.extraJavaOptions"] == f"-XX:SharedArchiveFile={home / ARCHIVE}"


def test_class_path_of_the_user_stays_alone_when_it_is_set(home: Path, tmp_path: Path) -> None:
    extra = {"spark.driver.extraClassPath": "/mine.jar", "spark.executor.extraJavaOptions": "-Da=b"}
    conf = spark_conf(SparkSettings("local-cluster[2,1,1024]", extra=extra), tmp_path)

    assert conf["spark.driver.extraClassPath"] == "/mine.jar"
    assert "SharedArchiveFile" not in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.executor.extraJavaOptions"] == f"-Da=b -XX:SharedArchiveFile={home / ARCHIVE}"


def test_the_script_makes_what_drivers_look_for_when_it_has_no_tidemill() -> None:
    script = (Path(__file__).parents[3] / "scripts/class_archive.py").read_text()

    assert f'JVM = "{settings._JVM}"' in script
    assert f'HOME / "{ARCHIVE}"' in script
