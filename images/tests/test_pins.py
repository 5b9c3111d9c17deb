"""The pinned packages of the images, without building one."""

from __future__ import annotations

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
