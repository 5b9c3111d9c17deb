"""What the command line shows of options: their exact values, and where something else holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from tidemill import Depot, Module
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.definition import definition as definitions
from tidemill.definition.stored import StoredMirror
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.urls import open_store
from tidemill.values.ids import Ids

RECORDS = "depot.microbatch.max.records"


class Visits(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*visits", Depot.random())


@pytest.fixture
def store(tmp_path: Folder) -> str:
    definition = definitions.launch(record_module(Visits()), 2, 1, Ids(1))
    DefinitionLog(open_store(tmp_path.as_uri()), "Visits").append(definition, 1)
    return str(tmp_path)


def told(*words: str, store: str) -> str:
    done = CliRunner().invoke(app, ["options", *words, "--store", store], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.output


def test_fraction_is_shown_with_all_its_digits_when_options_are_listed(store: str) -> None:
    name = "depot.excess.proportion"
    (line,) = [line for line in told("list", store=store).splitlines() if name in line]
    assert line.split().count("0.25") == 2
    assert f"{name} = 0.25 share" in told("get", "Visits", name, store=store)
    assert "0.125" in told("set", "Visits", name, "0.125", store=store)


def test_bounds_are_shown_with_all_their_digits_when_options_are_listed(store: str) -> None:
    lines = told("list", store=store).splitlines()
    for name, bounds in (
        ("depot.max.fetch", "1..100000000"),
        ("depot.max.entries.per.partition", "1..1000000000000"),
        ("topology.microbatch.phase.timeout.seconds", "0.01..86400"),
    ):
        assert [bounds in line.split() for line in lines if name in line] == [True]
    assert not [line for line in lines if "e+" in line]
    assert "bounds 1..100000000." in " ".join(told("get", "Visits", "depot.max.fetch", store=store).split())


def test_setting_of_an_object_is_told_when_the_module_gets_another_value(store: str) -> None:
    told("set", "Visits", RECORDS, "100", "--depot", "*visits", store=store)
    for words in (("set", "Visits", RECORDS, "7"), ("unset", "Visits", RECORDS)):
        assert "It is overridden for *visits: 100." in told(*words, store=store)
        assert json.loads(told(*words, "--json", store=store))["overridden"] == {"*visits": 100}
    assert "overridden" not in told("unset", "Visits", RECORDS, "--depot", "*visits", store=store)
    assert "overridden" not in told("unset", "Visits", RECORDS, store=store)


def test_choices_are_offered_when_an_option_has_some(store: str) -> None:
    assert "retry | quarantine" in told("list", store=store)
    command = ["options", "set", "Visits", "topology.on.record.error"]
    assert CliRunner().invoke(app, [*command, "skip", "--store", store]).exit_code == 1
    assert CliRunner().invoke(app, [*command, "quarantine", "--store", store]).exit_code == 0


def test_only_close_names_are_suggested_when_an_option_is_unknown(store: str) -> None:
    done = CliRunner().invoke(app, ["options", "get", "Visits", "depot.microbatch.max.record", "--store", store])
    assert done.exit_code == 1
    assert "Did you mean depot.microbatch.max.records?" in str(done.exception) + done.output


def test_an_option_holds_from_the_next_call_on_when_it_is_about_queries(store: str) -> None:
    assert "from the next call on" in told("set", "Visits", "topology.query.max.rows", "5", store=store)
    assert "from the next microbatch on" in told("set", "Visits", RECORDS, "5", store=store)


MIRRORED = "a mirror of '*visits' of module 'Visits': only module Visits sets it"


@pytest.fixture
def mirroring(store: str) -> str:
    """A store in which a module reads `*visits` as `*theirs`."""
    opened = open_store(Folder(store).as_uri())
    theirs = StoredMirror("*theirs", "Visits", 2, DefinitionLog(opened, "Visits").read(1).depots["*visits"])
    own = definitions.launch(record_module(Reads()), 2, 1, Ids(2))
    DefinitionLog(opened, "Reads").append(replace(own, mirrors={theirs.name: theirs}), 1)
    return store


class Reads(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*own", Depot.random())


def test_how_a_depot_of_another_module_is_read_is_set_when_the_module_mirrors_it(mirroring: str) -> None:
    for name in ("*theirs", "theirs"):
        assert "is 7 for *theirs" in told("set", "Reads", RECORDS, "7", "--depot", name, store=mirroring)
    assert f"{RECORDS} = 7 records" in told("get", "Reads", RECORDS, "--depot", "theirs", store=mirroring)
    assert "is 100000 for *theirs" in told("unset", "Reads", RECORDS, "--depot", "theirs", store=mirroring)


def test_what_a_depot_keeps_is_refused_with_its_module_when_it_is_mirrored(mirroring: str) -> None:
    words = ["set", "Reads", "depot.max.entries.per.partition", "9", "--depot", "theirs", "--store", mirroring]
    done = CliRunner().invoke(app, ["options", *words], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert MIRRORED in " ".join((str(done.exception) + done.output).split())


def test_depots_of_other_modules_have_options_over_http_when_they_are_mirrored(mirroring: str) -> None:
    with TestClient(make_app(Modules(open_store(Folder(mirroring).as_uri())), GatewaySettings())) as http:
        where = "/api/v1/modules/Reads/options"
        found = http.patch(where, json={"depot": "theirs", "set": {RECORDS: 7}}).json()
        assert found["set"] == [{"scope": "depot", "object": "*theirs", "name": RECORDS, "value": 7}]
        refused = http.patch(where, json={"depot": "theirs", "set": {"depot.excess.proportion": 1}})
        assert refused.status_code == 422 and MIRRORED in refused.text
        owned = {one["name"] for one in http.get("/api/v1/options").json() if one["is_of_owner"]}
        assert {"depot.excess.proportion"} < owned and RECORDS not in owned
