"""Values that a process keeps up to date, and what it tells of each change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import eventually

from tidemill import (
    Agg,
    BadInput,
    BadPath,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    NotOneValue,
    NotSelectable,
    Ops,
    Path,
    PState,
)
from tidemill.clients import callbacks, proxies
from tidemill.clients.diffs import (
    DestroyedDiff,
    Diff,
    KeyDiff,
    NewValueDiff,
    ResyncDiff,
    UngracefulTerminationDiff,
)
from tidemill.clients.proxies import ProxyState, ProxyStatus
from tidemill.pstate.changes import ChangedKeys
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.store.objects import NotFound


class Scores(Module):
    """A record [player, game] counts a game of a player."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*games", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$games", PState.map_schema(str, PState.map_schema(str, int)))
        mb.pstate("$$deep", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        mb.pstate("$$total", int).global_().initial_value(0)
        (
            mb.source("*games").out("*m")
            .explode_microbatch("*m").out("*r")
            .each(Ops.EXPAND, "*r").out("*player", "*game")
            .compound_agg("$$games", CompoundAgg.map("*player", CompoundAgg.map("*game", Agg.count())))
            .compound_agg("$$deep", CompoundAgg.map("*player", CompoundAgg.map("*game", Agg.count())))
            .global_partition()
            .agg("$$total", Agg.count())
        )  # fmt: skip


class Games:
    """The module at work; `play` returns when its games are committed."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster, self.played = cluster, 0

    def play(self, *games: tuple[str, str]) -> None:
        self.cluster.cluster_depot("Scores", "*games").append_many([list(game) for game in games])
        self.played += len(games)
        self.cluster.wait_for_microbatch_processed_count("Scores", "mb", self.played)

    def pstate(self, name: str) -> Any:
        return self.cluster.cluster_pstate("Scores", name)


@pytest.fixture
def games() -> Iterator[Games]:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Scores(), LaunchConfig(4, 2))
        yield Games(cluster)


def told() -> tuple[list[tuple[Any, Diff, Any]], Any]:
    """What a callback was told so far, and the callback."""
    found: list[tuple[Any, Diff, Any]] = []
    return found, lambda new, diff, old: found.append((new, diff, old))


def test_the_value_is_newest_when_commits_go_on(games: Games) -> None:
    found, callback = told()
    with games.pstate("$$games").proxy(Path.key("ann"), callback) as proxy:
        assert proxy.get() is None
        games.play(("ann", "chess"))
        eventually(lambda: proxy.get() == {"chess": 1})
        games.play(("bob", "go"))
        games.play(("ann", "chess"), ("ann", "go"))
        eventually(lambda: len(found) == 3)

        assert proxy.get() == {"chess": 2, "go": 1}
        assert found[0] == (None, ResyncDiff(None), None)
        assert found[1] == ({"chess": 1}, NewValueDiff({"chess": 1}), None)
        assert found[2][1].apply(found[2][2]) == found[2][0] == proxy.get()


def test_a_diff_names_the_place_when_one_key_changed(games: Games) -> None:
    games.play(("ann", "chess"), ("ann", "go"))
    found, callback = told()
    with games.pstate("$$games").proxy(Path.key("ann"), callback):
        games.play(("ann", "go"))
        eventually(lambda: len(found) == 2)

    assert found[1][1] == KeyDiff("go", NewValueDiff(2))


def test_nothing_is_read_when_other_keys_change(games: Games, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = games.pstate("$$games").proxy(Path.key("ann"))
    total = games.pstate("$$total").proxy()
    read: list[str] = []
    root = SnapshotReader.root
    monkeypatch.setattr(
        SnapshotReader, "root", lambda self, pstate, task: read.append(pstate) or root(self, pstate, task)
    )
    games.play(("bob", "go"))
    eventually(lambda: total.get() == 1)

    assert set(read) == {"$$total"}
    assert proxy.get() is None


def test_values_inside_a_subindexed_structure_are_followed(games: Games) -> None:
    handle = games.pstate("$$deep")
    with handle.proxy(Path.key("ann", "chess")) as proxy:
        games.play(("ann", "chess"), ("ann", "chess"))
        eventually(lambda: proxy.get() == 2)
    with pytest.raises(NotSelectable):
        handle.proxy(Path.key("ann"))


def test_a_proxy_is_refused_when_it_has_no_one_value(games: Games) -> None:
    handle = games.pstate("$$games")
    with pytest.raises(NotOneValue):
        handle.proxy(Path.must("ann"))
    with pytest.raises(BadPath, match="4 partitions"):
        handle.proxy(Path.all())
    with pytest.raises(BadInput, match="pinned"):
        handle.at(handle.current_entry()).proxy(Path.key("ann"))
    with pytest.raises(BadInput, match="callback of a proxy is a function"):
        handle.proxy(Path.key("ann"), "show")  # type: ignore[arg-type]


def test_the_callback_is_told_once_when_a_proxy_is_closed(games: Games) -> None:
    found, callback = told()
    proxy = games.pstate("$$total").proxy(callback=callback)
    proxy.close()
    proxy.close()
    games.play(("ann", "chess"))
    eventually(lambda: len(found) == 2)

    assert proxy.status is ProxyStatus.TERMINATED
    assert [diff for _, diff, _ in found] == [ResyncDiff(0), DestroyedDiff()]
    assert proxy.get() == 0


def test_a_proxy_ends_by_itself_when_its_module_is_gone(games: Games) -> None:
    found, callback = told()
    proxy = games.pstate("$$total").proxy(callback=callback)
    games.cluster.destroy_module("Scores")
    eventually(lambda: proxy.status is ProxyStatus.TERMINATED_UNGRACEFULLY)
    eventually(lambda: len(found) == 2)

    assert isinstance(found[1][1], UngracefulTerminationDiff)
    assert "Scores" in proxy.failure


def test_a_proxy_ends_by_itself_when_its_reads_fail_again_and_again(games: Games) -> None:
    games.play(("ann", "chess"))
    proxy = games.pstate("$$games").proxy(Path.key("ann").must("chess").filter_less_than(3))
    for _ in range(2 + proxies.ERRORS_MAX):
        games.play(("ann", "chess"))
        eventually(lambda: proxy.get() == 2 or proxy.status is not ProxyStatus.ACTIVE or bool(proxy._errors))
    eventually(lambda: proxy.status is ProxyStatus.TERMINATED_UNGRACEFULLY)

    assert "no value" in proxy.failure


def test_others_are_told_when_a_callback_raises_or_hangs(games: Games) -> None:
    hold = threading.Event()

    def broken(new: Any, diff: Diff, old: Any) -> None:
        raise ValueError("of the user")

    def hanging(new: Any, diff: Diff, old: Any) -> None:
        hold.wait()

    total = games.pstate("$$total")
    found, callback = told()
    wrong, slow = total.proxy(callback=broken), total.proxy(callback=hanging)
    total.proxy(callback=callback)
    games.play(("ann", "chess"))
    try:
        eventually(lambda: found and found[-1][0] == 1)
        eventually(lambda: "of the user" in wrong.failure)
        assert slow.get() == wrong.get() == 1
    finally:
        hold.set()


def test_only_their_own_proxies_end_when_many_callbacks_hang(games: Games, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there are threads for callbacks that return soon."""
    monkeypatch.setattr(callbacks, "SLOW_MILLIS", 1.0)
    hold = threading.Event()
    total = games.pstate("$$total")
    hanging = [total.proxy(callback=lambda *_: hold.wait()) for _ in range(3 * callbacks.CALLERS)]
    found, callback = told()
    fine = total.proxy(callback=callback)
    games.play(("ann", "chess"))
    try:
        eventually(lambda: found and found[-1][0] == 1)
        assert all(proxy.status is ProxyStatus.ACTIVE for proxy in hanging)
        monkeypatch.setattr(callbacks, "HANGING_MILLIS", 1.0)
        eventually(lambda: all(proxy.status is ProxyStatus.TERMINATED_UNGRACEFULLY for proxy in hanging))
        assert "did not return" in hanging[0].failure
        assert fine.status is ProxyStatus.ACTIVE
        games.play(("ann", "go"))
        eventually(lambda: found and found[-1][0] == 2)
    finally:
        hold.set()


def test_a_proxy_is_refused_when_no_thread_is_left_for_its_callback(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SLOW_MILLIS", 1.0), ("HANGING_MILLIS", 1.0), ("THREADS_MAX", 3)):
        monkeypatch.setattr(callbacks, name, value)
    monkeypatch.setattr(proxies, "THREADS_MAX", 3)
    hold = threading.Event()
    total = games.pstate("$$total")
    try:
        for _ in range(3):
            total.proxy(callback=lambda *_: hold.wait())
        eventually(lambda: total._module.proxies._callers.hanging == 3)
        with pytest.raises(BadInput, match="3 callbacks of proxies of Scores have not returned"):
            total.proxy(callback=lambda *_: None)
    finally:
        hold.set()
    found, callback = told()
    eventually(lambda: total._module.proxies._callers.hanging == 0)
    total.proxy(callback=callback)
    eventually(lambda: len(found) == 1)


def test_changes_become_one_when_a_callback_is_slow(games: Games, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "PENDING_MAX", 2)
    begun, hold = threading.Event(), threading.Event()
    found: list[tuple[Any, Diff, Any]] = []

    def slow(new: Any, diff: Diff, old: Any) -> None:
        found.append((new, diff, old))
        begun.set()
        hold.wait()

    proxy = games.pstate("$$total").proxy(callback=slow)
    assert begun.wait(20)
    for number in range(1, 8):
        games.play(("ann", "chess"))
        eventually(lambda number=number: proxy.get() == number)
        assert len(proxy._pending) <= 2
    hold.set()
    eventually(lambda: found and found[-1][0] == 7)

    value: Any = None
    for new, diff, old in found:
        assert old == value, "no change is left out without a word"
        value = diff.apply(old)
        assert value == new
    assert any(isinstance(diff, ResyncDiff) for _, diff, _ in found[1:])


def test_a_proxy_is_refused_when_there_are_too_many(games: Games, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "PROXIES_MAX", 3)
    total = games.pstate("$$total")
    opened: list[ProxyState] = [total.proxy() for _ in range(3)]
    with pytest.raises(BadInput, match="3 open proxies"):
        total.proxy()
    opened[0].close()
    total.proxy()


def test_threads_end_when_the_cluster_is_closed() -> None:
    before = set(threading.enumerate())
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Scores(), LaunchConfig(1, 1))
        found, callback = told()
        proxy = cluster.cluster_pstate("Scores", "$$total").proxy(callback=callback)
        future = cluster.cluster_pstate("Scores", "$$total").proxy_async()
        assert future.result().get() == 0

    assert proxy.status is ProxyStatus.TERMINATED
    assert [type(diff) for _, diff, _ in found] == [ResyncDiff, DestroyedDiff]
    assert not [thread for thread in set(threading.enumerate()) - before if "Scores" in thread.name]


def test_the_newest_value_is_told_when_what_was_there_before_is_collected(games: Games) -> None:
    handle, total = games.pstate("$$games"), games.pstate("$$total")
    games.play(("ann", "chess"))
    proxy, other = handle.proxy(Path.key("ann")), total.proxy()

    def gone(*_: Any) -> Any:
        raise NotFound("collected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangedKeys, "is_key_touched", gone)
        patch.setattr(ChangedKeys, "is_touched", gone)
        games.play(("ann", "chess"))
        eventually(lambda: proxy.get() == {"chess": 2} and other.get() == 2)


def test_other_proxies_go_on_when_a_function_of_a_path_raises(games: Games) -> None:
    games.play(("ann", "chess"))

    def fragile(games: dict[str, int]) -> int:
        return 1 // (2 - games["chess"])

    broken = games.pstate("$$games").proxy(Path.key("ann").view(fragile))
    total = games.pstate("$$total").proxy()
    games.play(("ann", "chess"))
    eventually(lambda: total.get() == 2)
    eventually(lambda: broken.status is ProxyStatus.TERMINATED_UNGRACEFULLY)

    assert "ZeroDivisionError" in broken.failure
    games.play(("ann", "go"))
    eventually(lambda: total.get() == 3)


def test_the_value_is_that_of_the_new_pstate_when_its_module_was_made_anew() -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Scores(), LaunchConfig(2, 1))
        games = Games(cluster)
        games.play(("ann", "chess"))
        handle = games.pstate("$$total")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proxies.ProxyHub, "_look", lambda *_: False)
            proxy = handle.proxy()
            assert proxy.get() == 1
            cluster.destroy_module("Scores")
            cluster.launch_module(Scores(), LaunchConfig(2, 1))
        eventually(lambda: proxy.get() == 0)


def test_closing_ends_when_a_callback_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_CLOSE_SECONDS", 0.2)
    hold = threading.Event()
    try:
        with InProcessCluster.create("local") as cluster:
            cluster.launch_module(Scores(), LaunchConfig(1, 1))
            cluster.cluster_pstate("Scores", "$$total").proxy(callback=lambda *_: hold.wait())
    finally:
        hold.set()


def test_no_thread_is_left_when_all_proxies_are_closed(games: Games) -> None:
    found, callback = told()
    games.pstate("$$total").proxy(callback=callback).close()
    eventually(lambda: len(found) == 2)

    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    eventually(lambda: not any("proxies-Scores" in name or "callbacks-Scores" in name for name in names()))
    with games.pstate("$$total").proxy() as proxy:
        games.play(("ann", "chess"))
        eventually(lambda: proxy.get() == 1)
