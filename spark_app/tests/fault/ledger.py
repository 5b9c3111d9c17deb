"""A module to be hurt: transfers across tasks, PStates that must agree in every committed state, and a gate that holds
a microbatch in the middle until a test opens it.

Run as `tidemill run ledger.py:Ledger`, or in process; `LEDGER_GATE` is the gate's folder.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, Path, PState
from tidemill.values.errors import RetryableError, SnapshotExpired

ACCOUNTS = 12
OPENING = 100
NOTE_BYTES = 3_000
"""Large enough that a few hundred transfers leave their microbatch as objects of their own, not inside its entry."""


class Gate:
    """While the file `hold` is there, whoever comes to the gate leaves its process id and waits."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def close(self) -> None:
        (self.folder / "arrived").unlink(missing_ok=True)
        (self.folder / "hold").touch()

    def open(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)

    def arrived(self) -> int:
        """The process that waits at the gate, 0 if none came yet."""
        file = self.folder / "arrived"
        text = file.read_text() if file.exists() else ""
        return int(text or 0)

    def function(self) -> Callable[[Any], Any]:
        folder = str(self.folder)

        def pass_gate(number: Any) -> Any:
            hold, pace = os.path.join(folder, "hold"), threading.Event()
            if os.path.exists(hold):
                with open(os.path.join(folder, "arrived"), "w") as file:
                    file.write(str(os.getpid()))
            while os.path.exists(hold):
                pace.wait(0.01)
            return number

        return pass_gate


class Ledger(Module):
    """A transfer debits one task and credits another if there is enough; a third sees it, and task 0 counts it."""

    def __init__(self, gate: Gate | None = None, check: Callable[[Any], Any] | None = None) -> None:
        self.gate = gate or Gate(Folder(os.environ["LEDGER_GATE"]))
        self.check = check or (lambda number: number)

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*transfers", Depot.hash_by(Ops.FIRST))
        setup.set_launch_topology_dynamic_option("mb", "topology.microbatch.placement", "spread")
        setup.set_launch_topology_dynamic_option("mb", "topology.microbatch.retry.delay.base.millis", 20)
        setup.set_launch_topology_dynamic_option("mb", "topology.microbatch.retry.delay.max.millis", 200)
        mb = topologies.microbatch("mb")
        mb.pstate("$$funds", PState.map_schema(int, int))
        mb.pstate("$$volume", PState.map_schema(int, int))
        mb.pstate("$$seen", PState.map_schema(int, PState.fixed_keys_schema("count", int, "note", str)))
        mb.pstate("$$total", int).global_().initial_value(0)
        (mb.source("*transfers", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
           .explode_microbatch("*microbatch").out("*transfer")
           .each(Ops.EXPAND, "*transfer").out("*from", "*to", "*amount", "*number", "*note")
           .compound_agg("$$volume", CompoundAgg.map("*from", Agg.sum("*amount")))
           .local_select("$$funds", Path.key("*from").null_to_val(OPENING)).out("*balance")
           .anchor("looked")
           .each(Ops.GREATER_THAN_OR_EQUAL, "*balance", "*amount").out("*enough")
           .keep_true("*enough")
           .each(Ops.MINUS, "*balance", "*amount").out("*rest")
           .local_transform("$$funds", Path.key("*from").term_val("*rest"))
           .hash_partition("*to")
           .local_select("$$funds", Path.key("*to").null_to_val(OPENING)).out("*before")
           .each(Ops.PLUS, "*before", "*amount").out("*after")
           .local_transform("$$funds", Path.key("*to").term_val("*after"))
           .hook("looked")
           .hash_partition("*number")
           .each(self.gate.function(), "*number").out("*passed")
           .each(self.check, "*passed").out("*checked")
           .local_transform("$$seen", Path.key("*checked", "count").null_to_val(0).term(Ops.INC))
           .local_transform("$$seen", Path.key("*checked", "note").term_val("*note"))
           .global_partition()
           .agg("$$total", Agg.count()))  # fmt: skip


class Transfers:
    """Makes transfers and remembers them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.made: list[list[Any]] = []

    def make(self, count: int) -> list[list[Any]]:
        new = [self._one(len(self.made) + i) for i in range(count)]
        self.made += new
        return new

    def _one(self, number: int) -> list[Any]:
        giver, taker = self._random.sample(range(ACCOUNTS), 2)
        note = self._random.randbytes(NOTE_BYTES // 2).hex()
        return [giver, taker, self._random.randint(1, 60), number, note]

    def volume(self) -> Counter[int]:
        volume: Counter[int] = Counter()
        for giver, _, amount, _, _ in self.made:
            volume[giver] += amount
        return volume


class Ledgers:
    """Looks at the PStates of a ledger as a client does."""

    def __init__(self, cluster: Any) -> None:
        names = ("$$funds", "$$volume", "$$seen", "$$total")
        self._handles = {name: cluster.cluster_pstate("Ledger", name) for name in names}

    def entry(self) -> int:
        return int(self._handles["$$total"].current_entry())

    def look(self, entry: int) -> int:
        """Check what must agree in the state of an entry, and tell how many transfers it has seen."""
        at = {name: handle.at(entry) for name, handle in self._handles.items()} if entry else self._handles
        total: int = at["$$total"].select_one(Path.stay())
        funds = [at["$$funds"].select_one(Path.key(account).null_to_val(OPENING)) for account in range(ACCOUNTS)]
        assert sum(funds) == ACCOUNTS * OPENING, (entry, funds)
        assert min(funds) >= 0, (entry, funds)
        # After failures microbatches are smaller, so that what is seen need not be the first transfers that were made.
        counts = dict(at["$$seen"].scan(Path.key("count"))) if entry else {}
        assert not entry or len(counts) == total, (entry, total, len(counts))
        assert all(count == [1] for count in counts.values()), (entry, total, counts)
        return total

    def check(self, transfers: Transfers) -> None:
        """Everything is there, once."""
        count = len(transfers.made)
        assert self.look(self.entry()) == count
        seen = self._handles["$$seen"]
        for _, _, _, number, note in transfers.made:
            assert seen.select(Path.key(number, "count")) == [1]
            assert seen.select(Path.key(number, "note")) == [note]
        volume = self._handles["$$volume"]
        assert {a: volume.select_one(Path.key(a)) for a in transfers.volume()} == dict(transfers.volume())


class Reader:
    """Polls the state in a thread of its own, all the time: it must be whole, and never go back."""

    def __init__(self, cluster: Any) -> None:
        self._ledgers = Ledgers(cluster)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._newest = (0, 0)
        self.error: BaseException | None = None
        self.states: set[int] = set()
        self.looks = 0

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._end.set()
        self._thread.join()
        if error is None and self.error is not None:
            raise self.error

    def _poll(self) -> None:
        while not self._end.is_set() and self.error is None:
            try:
                self._look()
            except (RetryableError, SnapshotExpired):
                self._end.wait(0.05)  # the store is away, or the pinned entry is
            except BaseException as error:  # noqa: BLE001 - raised again where the test ends
                self.error = error

    def _look(self) -> None:
        entry = self._ledgers.entry()
        now = (entry, self._ledgers.look(entry))
        assert now[0] >= self._newest[0] and now[1] >= self._newest[1], (now, self._newest)
        self._newest = now
        self.states.add(now[1])
        self.looks += 1
