"""What several viewers ask for within a second costs one look at the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from test_gateway_access import Guarded

from tidemill import InProcessCluster, LaunchConfig
from tidemill.gateway.app import make_app
from tidemill.gateway.module_looks import ModuleLook
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.shared_answers import ANSWERS_MAX, FRESH_MS, SharedAnswers
from tidemill.gateway.tokens import Tokens
from tidemill.journal.clock import SystemClock
from tidemill.store.objects import ObjectStore

AT = "/api/v1/modules/Guarded"


class ManualClock(SystemClock):
    at = 0.0

    def monotonic_ms(self) -> float:
        return self.at


class CountedStore:
    """Counts what is asked of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self.count = store, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def asked(*arguments: Any, **more: Any) -> Any:
            self.count += 1
            return found(*arguments, **more)

        return asked


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(2, 1))
        cluster.cluster_depot("Guarded", "*log").append_many([1, 2, 3])
        cluster.wait_until_processed("Guarded")
        yield cluster


@pytest.mark.parametrize("path", ["depots/log/facts", "log?limit=20", "pstates/kept/levels", "pstates/kept/tasks"])
def test_the_store_is_asked_once_when_many_look_within_a_second(cluster: InProcessCluster, path: str) -> None:
    store, clock = CountedStore(cluster.store), ManualClock()
    with TestClient(make_app(Modules(store, clock=clock), GatewaySettings())) as http:  # type: ignore[arg-type]
        first = http.get(f"{AT}/{path}")
        assert first.status_code == 200
        clock.at += 2 * FRESH_MS
        store.count = 0
        http.get(f"{AT}/{path}")
        alone, store.count = store.count, 0

        clock.at += FRESH_MS
        answers = [http.get(f"{AT}/{path}").json() for _ in range(50)]

        assert answers == [first.json()] * 50
        assert 0 < store.count <= alone


def test_the_newest_is_told_when_a_change_was_told_of_before(cluster: InProcessCluster) -> None:
    clock = ManualClock()
    modules = Modules(cluster.store, clock=clock)
    look = ModuleLook(modules, "Guarded")
    with TestClient(make_app(modules, GatewaySettings())) as http:
        look.look()
        before = http.get(f"{AT}/depots/log/facts").json()["offsets"]
        cluster.cluster_depot("Guarded", "*log").append_many([4, 5])
        cluster.wait_until_processed("Guarded")
        assert http.get(f"{AT}/depots/log/facts").json()["offsets"] == before

        look.look()  # and its viewers are told of it

        assert sum(end for _, end in http.get(f"{AT}/depots/log/facts").json()["offsets"]) == 5


def test_a_change_of_options_is_in_the_log_when_this_gateway_made_it(cluster: InProcessCluster) -> None:
    with TestClient(make_app(Modules(cluster.store, clock=ManualClock()), GatewaySettings())) as http:
        kinds = [line["kind"] for line in http.get(f"{AT}/log").json()["lines"]]
        http.patch(f"{AT}/options", json={"set": {"depot.max.fetch": 7}})
        assert [line["kind"] for line in http.get(f"{AT}/log").json()["lines"]] == ["option", *kinds]


def test_the_records_are_in_the_facts_when_this_gateway_appended_them(cluster: InProcessCluster) -> None:
    with TestClient(make_app(Modules(cluster.store, clock=ManualClock()), GatewaySettings())) as http:
        for count in (3, 4, 5):
            offsets = http.get(f"{AT}/depots/log/facts").json()["offsets"]
            assert sum(end for _, end in offsets) == count
            assert http.post(f"{AT}/depots/log/append", json={"records": [count]}).status_code == 200


def test_modules_are_hidden_from_one_viewer_when_another_may_see_them(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("all\none read Guarded\n")
    settings = GatewaySettings(tokens=Tokens(file=tmp_path / "tokens"))
    with TestClient(make_app(Modules(cluster.store, clock=ManualClock()), settings)) as http:
        answers = [
            http.get(f"{AT}/depots/log/facts", headers={"authorization": f"Bearer {token}"}).json()
            for token in ("all", "one", "all")
        ]
        assert answers[0] == answers[2]
        assert [reader["module"] for reader in answers[1]["readers"]] == ["Guarded"] * len(answers[1]["readers"])


def test_one_looks_and_the_others_wait_when_all_ask_at_once() -> None:
    answers, asked, go = SharedAnswers(ManualClock()), threading.Semaphore(0), threading.Event()

    def look() -> object:
        asked.release()
        go.wait(10)
        return object()

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(answers.get, "what", look) for _ in range(4)]
        asked.acquire()
        go.set()
        found = {id(each.result()) for each in waiting}
    assert len(found) == 1 and not asked.acquire(blocking=False)


def test_an_error_is_not_kept_when_a_look_fails() -> None:
    answers = SharedAnswers(ManualClock())
    with pytest.raises(KeyError):
        answers.get("what", lambda: {}["x"])
    assert answers.get("what", lambda: 1) == 1


def test_only_so_many_answers_are_kept_when_viewers_ask_for_different_things() -> None:
    answers = SharedAnswers(ManualClock())
    for number in range(ANSWERS_MAX + 1):
        answers.get(number, lambda: "old")
    assert [answers.get(number, lambda: "new") for number in (ANSWERS_MAX, 0)] == ["old", "new"]


def test_nothing_old_is_held_when_others_are_asked_for() -> None:
    clock = ManualClock()
    answers = SharedAnswers(clock)
    for number in range(5):
        answers.get(number, lambda: "old")
    clock.at += FRESH_MS
    answers.get("what", lambda: "new")
    assert len(answers) == 1
