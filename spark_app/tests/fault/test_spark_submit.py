"""The driver as a SparkApplication starts it: spark-submit's JVM is the parent, and Python its child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from test_drivers import SECONDS, Field
from waiting import eventually

from tidemill.journal.definition_log import DefinitionLog

ROOT = Path(__file__).parents[3]
SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"
pytestmark = pytest.mark.slow


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    made = Field(tmp_path)
    yield made
    made.close()


def submit(field: Field) -> subprocess.Popen[bytes]:
    """What the image's entrypoint runs for `driver`, with the arguments that the operator gives."""
    conf = field.folder / "spark.json"
    conf.write_text('{"master": "local[2]"}')
    environment = {
        **os.environ, "KUBECONFIG": field.kubeconfig, "POD_NAME": "one", "POD_NAMESPACE": "default",
        "POD_IP": "127.0.0.1", "POD_UID": "uid-one", "PYTHONPATH": str(Path(__file__).parent),
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    command = [
        SUBMIT, "--deploy-mode", "client", "--master", "local[2]", ROOT / "images/runner/drive.py",
        "drive", "driven:Driven", "--store", field.url, "--module-resource", "m", "--topology-resource", "t",
        "--topology", "mb", "--revision", "1", "--definition-base", "0", "--engine", "spark", "--conf", conf,
        "--tasks", "2", "--threads", "2", "--port", "0",
    ]  # fmt: skip
    with (field.folder / "one.log").open("wb") as stream:
        process = subprocess.Popen(
            [str(part) for part in command], env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
    field.processes.append(process)
    field.fake.put("pods", "one", metadata={"name": "one", "namespace": "default", "uid": "uid-one"})
    return process


def test_the_driver_works_and_the_next_goes_on_when_spark_submit_is_its_parent(field: Field) -> None:
    driver = submit(field)
    field.activate(1)
    eventually(lambda: DefinitionLog(field.store, "Driven").newest(), SECONDS)
    field.append_on()
    eventually(lambda: field.status().get("sparkApplicationId"), SECONDS)
    before = field.committed()
    eventually(lambda: field.committed() > before, SECONDS)

    os.killpg(driver.pid, signal.SIGKILL)  # as the end of its container does
    field.start(1, 0, "two").wait_until("leader")

    field.finish()
