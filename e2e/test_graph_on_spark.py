"""A task graph on Spark with executors as pods, by the manifest of the guide: executors and drivers die on its way."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
import yaml

from e2e.harness import timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.store import credentials
from e2e.harness.story import Story
from e2e.harness.waiting import until
from tidemill import Dataset
from tidemill.graphs.run_log import list_graphs
from tidemill.store.urls import open_store

MANIFEST = Path(__file__).resolve().parents[1] / "examples/taskgraph/kubernetes.yaml"
FILES, ROWS, PAGES = 4, 60_000, 1_000
SMALL_STRIDE = "STRIDE = 4 * 1024"
"""So many waves that there is time to kill in."""
PROGRESS = re.compile(r"wave (\d+): ([\d,]+) rows read")


@pytest.mark.quick
def test_rows_are_counted_once_when_executors_and_drivers_of_a_graph_are_killed(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.system.faults.need_own_cluster()
    for number in range(FILES):
        story.system.store.put(story.bucket, f"visits/{number}.csv", _rows(number))
    story.apply(*_manifest(story))
    executor = until("an executor works", lambda: _working(story), timeouts.FIRST_COMMIT)[0]
    seen = until("the graph reads", lambda: _rows_read(_driver(story), story), timeouts.RECOVERY)
    story.system.faults.kill(executor)
    seen = until("it goes on", partial(_reads_more, story, seen), timeouts.RECOVERY)
    driver = _driver(story)
    story.system.faults.kill(driver)
    until("another driver goes on", lambda: _driver(story)["metadata"]["uid"] != driver["metadata"]["uid"], 120)
    last = until("the graph has ended", lambda: _succeeded(story), timeouts.RECOVERY * 3)
    said = story.kubernetes.logs(story.namespace, last["metadata"]["name"], lines=1)
    assert json.loads(said.splitlines()[-1]) == {"pages": PAGES, "visits": FILES * ROWS}
    for name, value in credentials(story.namespace)["stringData"].items():
        monkeypatch.setenv(name, value)
    url = story.system.store.outer_url(story.bucket)
    ((graph, record),) = list_graphs(open_store(url))
    assert (graph, record.state, record.starts) == ("visits", "finished", 2)
    (dataset,) = record.datasets
    assert dict(Dataset(url, dataset.id).to_polars().select("page", "millis").rows()) == _expected()
    assert not _working(story), "executors end with their driver"


def _rows(number: int) -> bytes:
    """One file: user, page, millis."""
    rows = range(number * ROWS, (number + 1) * ROWS)
    return "".join(f"u{n % 97},page-{n % PAGES},{n % 1009}\n" for n in rows).encode()


def _expected() -> dict[str, int]:
    sums = dict.fromkeys((f"page-{n}" for n in range(PAGES)), 0)
    for n in range(FILES * ROWS):
        sums[f"page-{n % PAGES}"] += n % 1009
    return sums


def _manifest(story: Story) -> list[Object]:
    """The example's objects, on the story's store and with smaller waves."""
    text = MANIFEST.read_text()
    assert text.count("STRIDE = 16 * 1024 * 1024") == 1
    text = text.replace("STRIDE = 16 * 1024 * 1024", SMALL_STRIDE)
    found = list(yaml.safe_load_all(text))
    for each in found:
        each["metadata"]["namespace"] = story.namespace
        for subject in each.get("subjects", ()):
            subject["namespace"] = story.namespace
    url = story.system.store.url(story.bucket)
    places = {"TIDEMILL_STORE": url, "BUCKET": url.replace(f"{story.bucket}/store", story.bucket)}
    for variable in found[-1]["spec"]["template"]["spec"]["containers"][0]["env"]:
        variable["value"] = places.pop(variable["name"], variable.get("value"))
        if variable["value"] is None:
            del variable["value"]
    assert not places
    return found


def _drivers(story: Story) -> list[Object]:
    """The Job's pods, the oldest first."""
    return sorted(
        story.kubernetes.list("Pod", story.namespace, {"app": "visits"}),
        key=lambda pod: str(pod["metadata"]["creationTimestamp"]),
    )


def _driver(story: Story) -> Object:
    return _drivers(story)[-1]


def _working(story: Story) -> list[Object]:
    """Executors that have Python workers."""
    pods = story.kubernetes.list("Pod", story.namespace, {"spark-role": "executor"})
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    return [pod for pod in running if story.system.faults.processes_of(pod, "python")]


def _rows_read(driver: Object, story: Story) -> int:
    """How many rows its newest line of progress names; 0 where it has said none."""
    said = PROGRESS.findall(story.kubernetes.logs(story.namespace, driver["metadata"]["name"], lines=1000))
    return int(said[-1][1].replace(",", "")) if said else 0


def _reads_more(story: Story, before: int) -> int:
    now = _rows_read(_driver(story), story)
    return now if now > before else 0


def _succeeded(story: Story) -> Object | None:
    return next((pod for pod in _drivers(story) if pod["status"].get("phase") == "Succeeded"), None)
