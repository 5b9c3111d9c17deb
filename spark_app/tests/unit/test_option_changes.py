"""Who set an option, and when: each change is signed, and the newest of them say whose each setting is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from test_gateway_access import Guarded
from typer.testing import CliRunner

from tidemill import InProcessCluster, LaunchConfig
from tidemill.cli.main import app
from tidemill.gateway import topologies
from tidemill.gateway.access import name_of
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.journal.clock import ManualClock
from tidemill.journal.options_log import OptionsLog, set_by
from tidemill.store.urls import open_store
from tidemill.testing.memory_store import MemoryStore

FETCH, RECORDS = "depot.max.fetch", "depot.microbatch.max.records"
VALUES = st.sampled_from([None, 7, 8])
CHANGES = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from([FETCH, RECORDS, "pause"]), VALUES), max_size=12
)


@given(CHANGES, st.integers(1, 14))
def test_a_setting_is_of_who_gave_it_its_value_when_many_change_it(changes: Any, window: int) -> None:
    store, clock = MemoryStore(), ManualClock()
    expected: dict[tuple[str, str, str], tuple[Any, int, str]] = {}
    for by, name, value in changes:
        log, number = OptionsLog(store, "m", by=by, clock=clock), OptionsLog(store, "m").newest_number()
        place = ("topology", "t", "paused") if name == "pause" else ("module", "", name)
        if name == "pause":
            log.resume("t") if value is None else log.pause("t")
            value = None if value is None else True
        elif value is None:
            log.unset("module", "", name)
        else:
            log.set("module", "", name, value)
        if OptionsLog(store, "m").newest_number() > number:  # else it was so before
            expected.pop(place, None)
            if value is not None:
                expected[place] = (value, number + 1, by)
    entries = OptionsLog(store, "m").newest(window)
    first = entries[0].number if entries else 0
    known = {place: (number, by) for place, (_, number, by) in expected.items() if number > first or first <= 1}
    assert {place: (entry.number, entry.change.by) for place, entry in set_by(entries).items()} == known


def test_a_change_says_who_and_when_when_a_token_or_a_command_makes_it(tmp_path: Path) -> None:
    store = str(tmp_path / "data")
    (tmp_path / "tokens").write_text("secret\n")
    with InProcessCluster.create(engine="local", store=store) as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        settings = GatewaySettings(tokens=Tokens(file=tmp_path / "tokens"))
        with TestClient(make_app(Modules(cluster.store), settings), headers={"authorization": "Bearer secret"}) as http:
            at = "/api/v1/modules/Guarded"
            assert http.patch(f"{at}/options", json={"set": {RECORDS: 5}}).status_code == 200
            done = CliRunner().invoke(app, ["options", "set", "Guarded", FETCH, "9", "--store", store, "--json"])
            assert done.exit_code == 0, done.output
            assert http.post(f"{at}/topologies/mb/pause").status_code == 200
            found = http.get(f"{at}/options").json()
    whose = {one["name"]: one["by"] for one in found["set_by"]}
    assert whose[RECORDS] == whose["paused"] == f"{name_of(b'secret')}, through the gateway"
    assert whose[FETCH].endswith(", by command")
    assert [(one["number"], one["action"], one["name"]) for one in found["changes"]] == [
        (3, "pause", "paused"), (2, "set", FETCH), (1, "set", RECORDS),
    ]  # fmt: skip
    assert all(one["at_ms"] > 1_600_000_000_000 for one in found["changes"])
    assert "secret" not in json.dumps(found)


def test_a_resource_is_named_when_it_decides(tmp_path: Path) -> None:
    log = OptionsLog(open_store(str(tmp_path)), "m")
    log.manage("Topology t", {("module", "", FETCH): 3})
    log.manage("Topology t", {("module", "", FETCH): 3, ("module", "", RECORDS): 4})
    found = {name: (entry.number, entry.change.by) for (_, _, name), entry in set_by(log.newest(10)).items()}
    assert found == {FETCH: (1, "Topology t"), RECORDS: (2, "Topology t")}


def test_as_many_changes_are_looked_at_as_are_allowed_when_there_are_more(monkeypatch: Any) -> None:
    monkeypatch.setattr(topologies, "CHANGES_MAX", 2)
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        log = OptionsLog(cluster.store, "Guarded", by="ann")
        for value, name in ((1, FETCH), (2, RECORDS), (3, RECORDS)):
            log.set("module", "", name, value)
        with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
            found = http.get("/api/v1/modules/Guarded/options").json()
    assert [one["number"] for one in found["changes"]] == [3, 2]
    assert [(one["name"], one["by"]) for one in found["set_by"]] == [(RECORDS, "ann")]
    assert len(found["set"]) == 2
