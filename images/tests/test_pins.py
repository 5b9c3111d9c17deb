"""The pinned packages of the images, without building one."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from e2e.images import pins
from e2e.images.places import ROOT


def test_images_pin_what_the_project_pins_when_both_are_compared() -> None:
    for path, text in pins.requirements().items():
        assert (ROOT / path).read_text() == text, f"run `python -m e2e.images pin`: {path} is old"
        assert "--hash=sha256:" in text, path


@pytest.mark.parametrize("image", ["runner", "gateway"])
def test_traces_can_be_sent_when_the_image_is_one_of_ours(image: str) -> None:
    pinned = (ROOT / f"images/{image}/requirements.txt").read_text()

    for package in ("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "protobuf"):
        assert f"\n{package}==" in pinned, package


def test_a_recipe_adds_what_sinks_need_when_the_runner_has_none_of_it() -> None:
    """pip finds the extras of the Tidemill that is installed, without a registry that has it."""
    guide = (ROOT / "docs/kubernetes/images.md").read_text()
    (recipe,) = re.findall(r"```dockerfile\n(.*?RUN pip.*?)```", guide, re.DOTALL)
    (line,) = re.findall(r"^RUN (pip install .*)$", recipe, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line), "--dry-run", "--no-index", "--disable-pip-version-check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    pinned = (ROOT / "images/runner/requirements.txt").read_text()
    for package in ("psycopg", "pyiceberg", "confluent-kafka"):
        assert f"Requirement already satisfied: {package}" in done.stdout
        assert f"\n{package}==" not in pinned
    user = re.findall(r"^USER (.*)$", (ROOT / "images/runner/Dockerfile").read_text(), re.MULTILINE)[-1]
    assert re.findall(r"^USER (.*)$", recipe, re.MULTILINE) == ["root", user]
