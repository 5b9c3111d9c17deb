"""Transfers for a load, and what must come out of them, whoever is killed meanwhile."""

from __future__ import annotations

import random
from typing import Any

Records = dict[str, dict[str, dict[str, Any]]]
"""Account -> id of a transfer -> what is stored of it."""

ACCOUNTS = [f"a{n}" for n in range(10)]
RICH = ACCOUNTS[:5]
PLENTY, LITTLE = 10**9, 50
"""The first deposits, in cents: the rich can always pay, the others sometimes."""


class Transfers:
    """Makes transfers between accounts at random, now and then one again, and remembers them."""

    def __init__(self, seed: int = 5) -> None:
        self.deposits = {account: PLENTY if account in RICH else LITTLE for account in ACCOUNTS}
        self.total = sum(self.deposits.values())
        self.made: list[dict[str, Any]] = []
        self._random = random.Random(seed)

    def first(self) -> list[dict[str, Any]]:
        """The deposits, to be processed before any transfer."""
        return [{"id": "d", "account": account, "amount": cents} for account, cents in self.deposits.items()]

    def more(self, count: int) -> list[dict[str, Any]]:
        """So many new transfers, and three that were made before."""
        self.made += [self._one(len(self.made) + number) for number in range(count)]
        return self.made[-count:] + self._random.sample(self.made, 3)

    def _one(self, number: int) -> dict[str, Any]:
        giver, taker = self._random.sample(ACCOUNTS, 2)
        return {"id": f"t{number}", "from": giver, "to": taker, "amount": self._random.randrange(1, 60)}

    def faults(self, sent: Records, received: Records, funds: dict[str, int]) -> list[str]:
        """What is wrong with the content of the PStates when all transfers are processed."""
        found = []
        expected = dict(self.deposits)
        credits: Records = {account: {} for account in ACCOUNTS}
        known: Records = {account: {} for account in ACCOUNTS}
        for each in self.made:
            number, giver, taker, amount = each["id"], each["from"], each["to"], each["amount"]
            accepted = (sent.get(giver, {}).get(number) or {}).get("accepted")
            known[giver][number] = {"to": taker, "amount": amount, "accepted": accepted}
            if accepted is None or (giver in RICH and not accepted):
                found.append(f"{each} has the outcome {accepted}")
            if accepted:
                expected[giver] -= amount
                expected[taker] += amount
                credits[taker][number] = {"from": giver, "amount": amount}
        for name, is_equal in (
            ("sent", known == sent),
            ("received", credits == received),
            ("funds", expected == funds),
        ):
            if not is_equal:
                found.append(f"$${name} is not what the outcomes make of the transfers")
        return found + self.faults_of_state(funds)

    def faults_of_state(self, funds: dict[str, int]) -> list[str]:
        """What is wrong with the balances of any committed state after the deposits."""
        total, least = sum(funds.values()), min(funds.values(), default=0)
        return [] if total == self.total and least >= 0 else [f"{total} cents in place of {self.total}, least {least}"]
