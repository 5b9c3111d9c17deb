"""What the gateway serves to a browser: the page's files, its session, and the looks that the page follows."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import served
from starlette.testclient import TestClient
from test_gateway_access import Guarded

from tidemill import Depot, InProcessCluster, LaunchConfig, Module
from tidemill.api.declaration import record_module
from tidemill.clients.history import RANGES_MAX
from tidemill.gateway import live
from tidemill.gateway.app import PREFIX, make_app
from tidemill.gateway.live import LiveStream, module_changes, topology_changes
from tidemill.gateway.looks import SharedLook
from tidemill.gateway.module_looks import UNREAD_MAX, ModuleLook, module_news
from tidemill.gateway.modules import Modules
from tidemill.gateway.overview import Overview
from tidemill.gateway.page import FILES, TOKEN_BYTES_MAX, page_files
from tidemill.gateway.sessions import COOKIE, MARK, cookie_value
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.subscriptions import PENDING_BYTES_MAX, Subscriptions
from tidemill.gateway.tokens import Tokens
from tidemill.journal.options_log import OptionsLog
from tidemill.language.options import OPTIONS
from tidemill.values.errors import UnknownName

VENDORED = {
    "vendor/preact-htm.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "vendor/uplot.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "vendor/uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""Files that others wrote, as they were published: htm 3.1.1 with Preact, uPlot 1.6.32."""


class Other(Guarded):
    def module_name(self) -> str:
        return "Other"


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        for module in (Guarded(), Other()):
            cluster.launch_module(module, LaunchConfig(2, 1))
        cluster.cluster_depot("Guarded", "*log").append_many([1, 2, 2])
        cluster.wait_until_processed("Guarded")
        yield cluster


@pytest.fixture
def browser(cluster: InProcessCluster, tmp_path: Path) -> Iterator[TestClient]:
    tokens = tmp_path / "tokens"
    tokens.write_text("all\nreader read\nother read,operate Other\n")
    app = make_app(Modules(cluster.store), GatewaySettings(tokens=Tokens(file=tokens)))
    with TestClient(app, base_url="https://tidemill.test") as client:
        yield client


def sign_in(browser: TestClient, token: str) -> Any:
    return browser.post("/session", json={"token": token}, headers={MARK: "1"})


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_are_sent_with_a_strict_policy_and_a_tag_when_a_browser_asks(browser: TestClient) -> None:
    first = browser.get("/")
    assert first.status_code == 200 and first.headers["content-type"].startswith("text/html")
    assert "default-src 'none'; script-src 'self'" in first.headers["content-security-policy"]
    assert browser.get("/", headers={"if-none-match": first.headers["etag"]}).status_code == 304
    script = browser.get("/page/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert browser.get("/page/%2e%2e/app.py").json()["error"]["code"] in ("NotFound", "Unauthorized")
    assert browser.get("/page/absent.js").json()["error"]["code"] == "NotFound"


def test_the_page_asks_no_other_host_when_its_files_are_read() -> None:
    ours = [name for name in page_files() if not name.startswith("vendor/")]
    for name in ours:
        text = page_files()[name].content.decode()
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, f"{name} names {addresses}"
        assert "innerHTML" not in text and "eval(" not in text and "style=" not in text, name
        for imported in re.findall(r'from "(\./[^"]+)"', text):
            assert (FILES / imported).is_file(), f"{name} imports {imported}"
    assert re.search(r"<script(?![^>]*src=)", page_files()["index.html"].content.decode()) is None


def test_vendored_files_are_those_published_when_they_are_hashed() -> None:
    found = {n: hashlib.sha256(f.content).hexdigest() for n, f in page_files().items() if n in VENDORED}
    assert found == VENDORED
    assert {"vendor/LICENSE-htm", "vendor/LICENSE-preact", "vendor/LICENSE-uplot"} <= set(page_files())


# --- signing in ------------------------------------------------------------------------------------------------------


def test_a_cookie_holds_the_token_when_a_browser_signs_in(browser: TestClient) -> None:
    assert browser.get("/session").status_code == 401
    assert browser.get(f"{PREFIX}/modules").status_code == 401
    assert sign_in(browser, "wrong").status_code == 401
    answer = sign_in(browser, " all ")
    assert answer.json()["roles"] == ["append", "operate", "read"] and answer.json()["needs_token"]
    flags = answer.headers["set-cookie"].lower()
    assert all(flag in flags for flag in ("httponly", "samesite=strict", "secure", "max-age=43200"))
    assert browser.get(f"{PREFIX}/modules").json() == ["Guarded", "Other"]
    assert browser.delete("/session").status_code == 403
    assert browser.delete("/session", headers={MARK: "1"}).status_code == 204
    assert browser.post("/session", json={"token": "all"}).status_code == 403
    assert browser.get(f"{PREFIX}/modules").status_code == 401


def test_a_sign_in_is_refused_when_it_is_long(browser: TestClient) -> None:
    assert sign_in(browser, "x" * (TOKEN_BYTES_MAX - 100)).status_code == 401
    assert sign_in(browser, "x" * TOKEN_BYTES_MAX).status_code == 413


def test_a_follower_is_given_the_newest_lines_when_the_log_is_longer(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = live.TopologyLook(Modules(cluster.store), "Guarded", "mb").look()["log"]
    assert len(whole) > 1
    monkeypatch.setattr(live, "LINES_MAX", 1)
    newest = live.TopologyLook(Modules(cluster.store), "Guarded", "mb").look()["log"]
    assert [line["entry"] for line in newest] == [whole[-1]["entry"]]


def test_a_change_needs_the_mark_of_the_page_when_a_cookie_signs_it(browser: TestClient) -> None:
    sign_in(browser, "all")
    at = f"{PREFIX}/modules/Guarded/topologies/mb/resume"
    assert browser.post(at).json()["error"]["code"] == "Forbidden"
    assert browser.post(at, headers={MARK: "1"}).status_code == 200


def test_a_cookie_may_what_its_token_may_when_it_has_roles(browser: TestClient) -> None:
    assert sign_in(browser, "reader").json()["roles"] == ["read"]
    answer = browser.post(f"{PREFIX}/modules/Guarded/topologies/mb/pause", headers={MARK: "1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "Forbidden")
    assert sign_in(browser, "other").json()["modules"] == ["Other"]
    assert [one["module"] for one in browser.get(f"{PREFIX}/overview").json()] == ["Other"]


@pytest.mark.parametrize("cookie", ["", "!!!", "YWJj", "a" * 5000, "=;=", cookie_value(b"all") + "x"])
def test_a_request_is_refused_when_its_cookie_is_none_of_ours(browser: TestClient, cookie: str) -> None:
    answer = browser.get(f"{PREFIX}/modules", headers={"cookie": f"{COOKIE}={cookie}"})
    assert answer.status_code == 401


def test_a_header_counts_alone_when_a_cookie_comes_with_it(browser: TestClient) -> None:
    sign_in(browser, "all")
    assert browser.get(f"{PREFIX}/modules", headers={"authorization": "Bearer wrong"}).status_code == 401


# --- looks -----------------------------------------------------------------------------------------------------------


def test_the_overview_has_every_topology_when_it_is_asked(browser: TestClient, cluster: InProcessCluster) -> None:
    sign_in(browser, "all")
    found = {one["module"]: one for one in browser.get(f"{PREFIX}/overview").json()}
    assert set(found) == {"Guarded", "Other"} and found["Guarded"]["tasks"] == 2
    status = found["Guarded"]["topologies"][0]
    assert (status["topology"], status["state"], status["processed"]) == ("mb", "running", 3)


def test_nothing_of_each_partition_is_told_when_many_topologies_are_looked_at(cluster: InProcessCluster) -> None:
    modules = Modules(cluster.store)
    overview = Overview(modules)
    [of_all] = overview.look()["Guarded"]["topologies"]
    overview.close()
    of_one = ModuleLook(modules, "Guarded").look()["topologies"]["mb"]
    whole = live.TopologyLook(modules, "Guarded", "mb").look()["status"]
    assert of_all == of_one and of_one["processed"] == whole["processed"]
    assert set(whole) - set(of_one) == {"progress", "start_from", "lag_by_partition"}


def test_the_overview_keeps_up_when_modules_come_and_go() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        overview = Overview(Modules(cluster.store))
        assert overview.look() == {}
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        assert list(overview.look()) == ["Guarded"]
        cluster.cluster_depot("Guarded", "*log").append(1)
        cluster.wait_until_processed("Guarded")
        assert overview.look()["Guarded"]["topologies"][0]["processed"] == 1
        cluster.destroy_module("Guarded")
        assert overview.look() == {}
        overview.close()


def test_a_client_is_told_what_changed_when_it_follows_the_overview() -> None:
    tell = module_changes(lambda name: name != "Hidden")
    assert list(tell({"A": 1, "Hidden": 1})) == [("modules", {"A": 1})]
    assert list(tell({"A": 1, "Hidden": 2})) == []
    assert list(tell({"B": 2, "Hidden": 2})) == [("modules", {"A": None, "B": 2})]
    assert list(module_changes(lambda name: True)({})) == [("modules", {})]


def test_a_client_is_told_new_lines_and_the_one_before_when_it_follows_a_topology() -> None:
    tell = topology_changes()
    lines = [{"entry": number} for number in range(1, 6)]
    assert list(tell({"status": 1, "log": lines[:3]})) == [("status", 1), ("log", lines[:3])]
    assert list(tell({"status": 1, "log": lines[:3]})) == []
    assert list(tell({"status": 2, "log": lines})) == [("status", 2), ("log", lines[2:])]
    assert list(topology_changes()({"status": 1, "log": []})) == [("status", 1), ("log", [])]


def test_a_client_is_told_that_a_log_began_anew_when_its_module_was_launched_again() -> None:
    def log(first: int, last: int, owner: str) -> dict[str, Any]:
        return {"status": 1, "log": [{"entry": number, "owner": owner} for number in range(first, last + 1)]}

    for anew in (log(1, 3, "b"), log(1, 4, "b"), log(1, 2, "a"), {"status": 1, "log": []}):
        tell = topology_changes()
        list(tell(log(1, 3, "a")))
        assert list(tell(anew)) == [("restart", {}), ("log", anew["log"])]
        assert list(tell(anew)) == []
    tell = topology_changes()
    list(tell(log(1, 3, "a")))
    assert [name for name, _ in tell(log(7, 9, "a"))] == ["log"]


def test_a_look_shows_the_new_log_when_its_module_was_destroyed_and_launched_again() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        look, tell = live.TopologyLook(Modules(cluster.store), "Guarded", "mb"), topology_changes()
        for expected in ([], ["restart"]):
            cluster.launch_module(Guarded(), LaunchConfig(1, 1))
            cluster.cluster_depot("Guarded", "*log").append(1)
            cluster.wait_until_processed("Guarded")
            found = look.look()
            events = list(tell(found))
            assert [name for name, _ in events if name != "status"] == [*expected, "log"]
            assert events[-1] == ("log", found["log"]) and found["log"][0]["entry"] == 1
            cluster.destroy_module("Guarded")
            with pytest.raises(UnknownName):
                look.look()


def test_a_look_goes_on_when_its_entries_are_gone_at_this_moment(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = live.TopologyLook(Modules(cluster.store), "Guarded", "mb")
    with monkeypatch.context() as patched:
        patched.setattr(live, "lines_of", lambda *_, **__: [])
        assert look.look()["log"] == []
    assert look.look()["log"]


def test_a_client_is_sent_away_when_its_look_fails_unexpectedly() -> None:
    def broken() -> Any:
        raise KeyError("x")

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def follow() -> None:
        look = SharedLook("broken", broken, 5.0)
        await LiveStream(Subscriptions(lambda _: None), look, topology_changes())({}, receive, send)
        look.close()

    asyncio.run(asyncio.wait_for(follow(), 30))
    assert sent[-1].startswith(b"event: end") and b"KeyError" not in b"".join(sent)


def test_all_lines_are_told_at_first_when_they_are_more_than_may_wait_for_a_slow_client() -> None:
    failure = {"microbatch_id": 1, "version": 1, "message": "m", "trace": "t" * 8_000}
    lines = [{"entry": number, "failure": failure} for number in range(1, live.LINES_MAX + 1)]
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        while not b"".join(sent):
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def follow() -> None:
        look = SharedLook("long", lambda: {"status": {"state": "failing"}, "log": lines}, 5.0)
        await LiveStream(Subscriptions(lambda _: None), look, topology_changes())({}, receive, send)
        look.close()

    asyncio.run(asyncio.wait_for(follow(), 30))
    names = [line.removeprefix(b"event: ") for line in b"".join(sent).split(b"\n") if line.startswith(b"event: ")]
    assert names == [b"status", b"log"] and len(b"".join(sent)) > PENDING_BYTES_MAX


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's own JavaScript with node")
def test_a_number_beyond_2_to_53_is_kept_or_refused_when_a_person_writes_it(tmp_path: Path) -> None:
    text = page_files()["api.js"].content.decode()
    script = text[text.index("const LONG") : text.index("export async function ask")].replace("export ", "")
    (tmp_path / "numbers.js").write_text(
        script
        + """
        const outcome = (text) => {
          try { return JSON.stringify(written(text)); } catch (error) { return error.message; }
        };
        console.log(JSON.stringify(["9007199254740993", "[1, 2.5, 1e3]", "[9007199254740991]"].map(outcome)));"""
    )
    answer = subprocess.run(["node", tmp_path / "numbers.js"], capture_output=True, text=True, check=True, timeout=60)
    long, *short = json.loads(answer.stdout)
    assert long == "9007199254740993" or "would round" in long
    assert short == ["[1,2.5,1000]", "[9007199254740991]"]


def test_a_look_has_the_whole_log_once_when_entries_come(cluster: InProcessCluster) -> None:
    look = live.TopologyLook(Modules(cluster.store), "Guarded", "mb")
    first = look.look()
    cluster.cluster_depot("Guarded", "*log").append(7)
    cluster.wait_until_processed("Guarded")
    second = look.look()
    entries = [line["entry"] for line in second["log"]]
    assert entries == list(range(1, len(entries) + 1)) and len(entries) > len(first["log"])
    assert second["status"]["processed"] == first["status"]["processed"] + 1
    commits = [line for line in second["log"][:-1] if line["kind"] == "commit"]
    assert all("commit_ms" in line["metrics"] for line in commits)


def test_followers_share_a_look_and_are_bounded_when_many_come(cluster: InProcessCluster) -> None:
    modules = Modules(cluster.store)
    looks = live.FollowedLooks("topologies", lambda module, name: live.TopologyLook(modules, module, name).look, 5.0)
    one = looks.follow(("Guarded", "mb"), "first")
    assert looks.follow(("Guarded", "mb"), "second") is one
    for number in range(1, live.FOLLOWED_MAX):
        looks.follow((f"M{number}", "mb"), number)
    with pytest.raises(live.Busy):
        looks.follow(("Late", "mb"), 0)
    looks.leave(("M1", "mb"), 1)
    looks.leave(("Guarded", "mb"), "first")
    assert looks.follow(("Guarded", "mb"), "third") is one
    looks.follow(("Late", "mb"), 0)
    looks.close()


def test_the_log_is_read_in_pages_when_it_is_long(browser: TestClient) -> None:
    sign_in(browser, "all")
    at = f"{PREFIX}/modules/Guarded/topologies/mb/log"
    newest = browser.get(at, params={"limit": 2}).json()
    before = browser.get(at, params={"limit": 500, "before": newest[0]["entry"]}).json()
    assert [line["entry"] for line in before + newest] == list(range(1, newest[-1]["entry"] + 1))
    assert browser.get(at, params={"limit": 2, "before": newest[-1]["entry"] + 1_000}).json() == newest
    begun = next(line["begun"] for line in before + newest if "begun" in line)
    assert sum(end - start for _, start, end in begun["ranges"]["*log"]) == begun["records"]
    assert len(begun["ranges"]["*log"]) <= RANGES_MAX
    for wrong in ({"limit": 0}, {"limit": 501}, {"before": 0}, {"limit": "x"}, {"other": 1}):
        assert browser.get(at, params=wrong).status_code in (400, 422), wrong


def test_every_option_is_described_when_the_registry_is_asked(browser: TestClient) -> None:
    sign_in(browser, "reader")
    found = {one["name"]: one for one in browser.get(f"{PREFIX}/options").json()}
    assert set(found) == set(OPTIONS)
    assert found["depot.max.fetch"]["bounds"] == "1..100000000" and found["depot.max.fetch"]["help"]


def test_events_come_when_a_topology_or_the_overview_is_followed(cluster: InProcessCluster) -> None:
    with served(Modules(cluster.store)) as server:

        def first(path: str, count: int) -> dict[str, Any]:
            found = {}
            with urllib.request.urlopen(f"{server.url}{PREFIX}{path}", timeout=20) as answer:
                while len(found) < count:
                    name = answer.readline().decode().removeprefix("event: ").strip()
                    found[name] = json.loads(answer.readline().decode().removeprefix("data: "))
                    answer.readline()
            return found

        events = first("/modules/Guarded/topologies/mb/subscribe", 2)
        assert events["status"]["topology"] == "mb" and events["log"][0]["kind"] == "claim"
        assert set(first("/overview/subscribe", 1)["modules"]) == {"Guarded", "Other"}
        module = first("/modules/Guarded/subscribe", 1)["module"]
        assert (module["definition"], set(module["topologies"]), module["depots"]) == (1, {"mb"}, {})
        for absent in ("Guarded/topologies/no", "Absent"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{server.url}{PREFIX}/modules/{absent}/subscribe", timeout=20)


class Unread(Module):
    """A module with depots that no topology reads, one more than a look looks at."""

    def define(self, setup: Any, topologies: Any) -> None:
        for number in range(UNREAD_MAX + 1):
            setup.declare_depot(f"*log{number:02}", Depot.random())


def test_a_client_is_told_of_a_module_when_its_definition_its_options_or_its_depots_change() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        cluster.launch_module(Unread(), LaunchConfig(1, 1))
        look, tell = ModuleLook(Modules(cluster.store), "Guarded"), module_news()
        [(name, first)] = tell(look.look())
        assert (name, first["options"], set(first["topologies"])) == ("module", 0, {"mb"})
        OptionsLog(cluster.store, "Guarded").set("module", "", "store.collection.period.seconds", 60)
        [(_, second)] = tell({**look.look(), "topologies": first["topologies"]})
        assert (second["options"], second["topologies"]) == (1, {})
        assert list(tell({**second, "topologies": first["topologies"]})) == []

        unread = ModuleLook(Modules(cluster.store), "Unread")
        assert unread.look()["depots"] == {f"*log{number:02}": [0] for number in range(UNREAD_MAX)}
        cluster.cluster_depot("Unread", "*log00").append(1)
        assert unread.look()["depots"]["*log00"] == [1]
        cluster.destroy_module("Unread")
        with pytest.raises(UnknownName):
            unread.look()
        cluster.launch_module(Unread(), LaunchConfig(1, 1))
        assert unread.look()["depots"]["*log00"] == [0]


def test_who_was_told_that_a_module_is_another_one_gets_it_when_asking_at_once() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        modules, at = Modules(cluster.store), f"{PREFIX}/modules/Guarded"
        look = ModuleLook(modules, "Guarded")
        look.look()
        with TestClient(make_app(modules, GatewaySettings())) as client:
            assert client.get(at).json()["number"] == 1  # from now on the gateway looks once a second by itself
            cluster.update_module(Guarded())
            assert (look.look()["definition"], client.get(at).json()["number"]) == (2, 2)
            cluster.destroy_module("Guarded")
            with pytest.raises(UnknownName):
                look.look()
            assert client.get(at).status_code == 404


def test_the_guide_has_every_page_that_the_help_of_a_view_names() -> None:
    named = set(re.findall(r'\["([a-z-]+\.md)", \[\[', page_files()["help.js"].content.decode()))
    guide = Path(__file__).parents[3] / "docs" / "guide"
    assert len(named) > 5 and all((guide / name).is_file() for name in named)


def test_graphs_are_shown_when_a_gateway_has_the_code_of_one_module(cluster: InProcessCluster) -> None:
    modules = Modules(cluster.store, declaration=record_module(Guarded()))
    with TestClient(make_app(modules, GatewaySettings())) as client:
        assert client.get("/session").json()["has_graphs"] is True
        assert client.get(f"{PREFIX}/modules").json() == ["Guarded", "Other"]
        assert client.get(f"{PREFIX}/graphs").json() == {"graphs": [], "left_out": 0}
        assert 'tidemill_topology_led{module="Guarded"' in client.get("/metrics").text
