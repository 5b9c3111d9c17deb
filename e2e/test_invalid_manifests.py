"""Each invalid manifest is refused by the API server with a sentence that says what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.harness.kubernetes import KubectlFailed
from e2e.harness.story import Story

FOLDER = Path(__file__).parent / "fixtures/invalid"
MANIFESTS = sorted(FOLDER.rglob("*.yaml"))


def test_there_are_invalid_manifests_when_listed() -> None:
    assert MANIFESTS


@pytest.mark.quick
def test_a_sentence_says_what_to_change_when_a_manifest_is_invalid(story: Story) -> None:
    """The first comment of each file is what the refusal must contain; steps of one file are applied in turn."""
    told: dict[str, str] = {}
    for path in MANIFESTS:
        expected = path.read_text().splitlines()[0].lstrip("# ").strip()
        told[path.name] = _fault(story, path, expected)

    assert not {name: fault for name, fault in told.items() if fault}


def _fault(story: Story, path: Path, expected: str) -> str:
    """What is wrong with how a manifest was answered; empty if nothing is."""
    documents = [each for each in yaml.safe_load_all(path.read_text()) if each]
    for valid in documents[:-1]:
        story.kubernetes.kubectl("apply", "-n", story.namespace, "-f", "-", text=yaml.safe_dump(valid))
    try:
        story.kubernetes.kubectl("apply", "-n", story.namespace, "-f", "-", text=yaml.safe_dump(documents[-1]))
    except KubectlFailed as refusal:
        return "" if expected in str(refusal) else f"expected {expected!r}, told {refusal}"
    finally:
        for document in documents:
            name = document["metadata"]["name"]
            kind = f"{document['kind'].lower()}s.tidemill.dev".replace("topologys", "topologies")
            story.kubernetes.kubectl("delete", "-n", story.namespace, kind, name, "--ignore-not-found", "--wait=false")
    return "it was accepted"
