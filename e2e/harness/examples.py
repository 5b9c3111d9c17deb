"""Load for two modules of examples/, and what must come out of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from examples.bank_transfer.load import ACCOUNTS, Transfers
from examples.social_graph.load import PEOPLE, Posts

from e2e.harness import timeouts
from e2e.harness.rows import Gateway
from e2e.harness.waiting import until
from tidemill import Path


class Load:
    """Appends batch after batch, in a thread of its own; `records` were acknowledged."""

    def __init__(self, gateway: Gateway, module: str, depot: str, batch: Callable[[], list[Any]]) -> None:
        self._gateway, self._module, self._depot, self._batch = gateway, module, depot, batch
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.records = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeouts.RECOVERY * 2)
        assert not self._thread.is_alive(), "the last batch is not acknowledged"

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            self.records += append(self._gateway, self._module, self._depot, self._batch(), f"load-{number}")
            self._over.wait(0.1)


def append(gateway: Gateway, module: str, depot: str, records: list[Any], key: str) -> int:
    """Sends the records under their key until they are acknowledged; how many there are."""

    def is_appended() -> bool:
        gateway.append(module, depot, records, key)
        return True

    until(f"{key} is appended to {depot}", is_appended, timeouts.RECOVERY)
    return len(records)


def faults_of_bank(gateway: Gateway, transfers: Transfers) -> list[str]:
    """What is wrong with the PStates of the bank when all transfers are processed."""
    sent, received = (
        {account: dict(gateway.select("BankTransfer", pstate, Path.key(account).all())) for account in ACCOUNTS}
        for pstate in ("$$sent", "$$received")
    )
    funds = {account: gateway.select_one("BankTransfer", "$$funds", Path.key(account)) for account in ACCOUNTS}
    return transfers.faults(sent, received, funds)


def faults_of_graph(gateway: Gateway, posts: Posts) -> list[str]:
    """The people whose timelines are not what was posted, when all is delivered."""
    expected = posts.timelines()
    seen = {name: dict(gateway.select("SmallPages", "$$timelines", Path.key(name).all())) for name in PEOPLE}
    return [f"{name}: {seen[name]} in place of {expected[name]}" for name in PEOPLE if seen[name] != expected[name]]
