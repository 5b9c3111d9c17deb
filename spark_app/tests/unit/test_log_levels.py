"""TIDEMILL_LOG_LEVEL: which lines the commands that stay write to stderr."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path as Folder

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from tidemill.cli.main import app
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.spark.given_settings import given_settings
from tidemill.store.urls import open_store

PROGRAM = """
import logging
from tidemill.cli.logs import begin_log
begin_log()
for level in ("debug", "info", "warning", "error"):
    logging.getLogger("tidemill.any").log(getattr(logging, level.upper()), "own %s", level)
    logging.getLogger("httpx2").log(getattr(logging, level.upper()), "library %s", level)
audit = logging.getLogger("tidemill.audit")
audit.setLevel(logging.INFO)
audit.info("audit")
"""


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ("", ["own warning", "library warning", "own error", "library error", "audit"]),
        ("ERROR", ["own error", "library error", "audit"]),
        ("info", ["own info", "own warning", "library warning", "own error", "library error", "audit"]),
        (" Debug ", ["own debug", "library debug", "own info", "library info", "own warning", "library warning",
                     "own error", "library error", "audit"]),
    ],
)  # fmt: skip
def test_lines_from_a_level_on_are_written_when_the_environment_names_it(level: str, told: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"TIDEMILL_LOG_LEVEL": level}, capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert [" ".join(line.split()[4:]) for line in lines] == told
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ [A-Z]+ \S+ ", line) for line in lines)


@pytest.mark.parametrize("command", ["run", "gateway", "ui"])
def test_the_levels_are_named_when_the_environment_names_none_of_them(
    command: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_LOG_LEVEL", "loud")
    words = [command, *(["nothing:Nothing"] if command == "run" else []), "--store", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "TIDEMILL_LOG_LEVEL is debug, info, warning or error, not 'loud'" in done.output.replace("\n", " ")


def test_each_request_is_logged_with_its_status_when_a_gateway_debugs(
    tmp_path: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    http = TestClient(make_app(Modules(open_store(tmp_path.as_uri())), GatewaySettings()))
    with caplog.at_level(logging.DEBUG, "tidemill.gateway.guard"):
        http.get("/api/v1/modules/A%0Ab")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "tidemill.gateway.guard"]
    assert re.fullmatch(r"GET '/api/v1/modules/A\\nb' 404 in \d+\.\d ms", line)


@pytest.mark.parametrize(("asked", "level"), [(None, "ERROR"), ("debug", "DEBUG"), ("Warning", "WARN")])
def test_spark_logs_from_the_same_level_on_when_the_environment_names_one(
    asked: str | None, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMILL_LOG_LEVEL", raising=False)
    if asked is not None:
        monkeypatch.setenv("TIDEMILL_LOG_LEVEL", asked)
    assert given_settings().log_level == level
