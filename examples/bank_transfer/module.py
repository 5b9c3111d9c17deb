"""Money moves between accounts: no overdraft, and each transfer counts once, however often it is sent."""

from __future__ import annotations

from typing import Any

from tidemill import Agg, Block, Depot, Expr, MicrobatchSourceOptions, Module, Ops, Path, PState, Setup, Topologies

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
DEPOSIT = PState.fixed_keys_schema("id", str, "account", str, "amount", int)
AMOUNT_MAX = 10**12
"""Far below 64 bits, so that no balance ever leaves them."""
TRANSFER = PState.fixed_keys_schema("id", str, "from", str, "to", str, "amount", int)


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


def is_whole(record: dict[str, Any], *names: str) -> bool:
    """Whether all of these fields are there, and the amount is one that can be paid."""
    return all(record.get(name) is not None for name in names) and 0 < record["amount"] <= AMOUNT_MAX


def outgoing(to: str, amount: int, accepted: bool) -> dict[str, Any]:
    return {"to": to, "amount": amount, "accepted": accepted}


def incoming(sender: str, amount: int) -> dict[str, Any]:
    return {"from": sender, "amount": amount}


class BankTransfer(Module):
    """Amounts are whole cents. A deposit or transfer is known by its id, which whoever sends it chooses."""

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*deposits", Depot.hash_by("account")).schema(DEPOSIT)
        setup.declare_depot("*transfers", Depot.hash_by("from")).schema(TRANSFER)
        mb = topologies.microbatch("bank")
        mb.pstate("$$funds", PState.map_schema(str, int))
        mb.pstate("$$deposits", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        sent = PState.fixed_keys_schema("to", str, "amount", int, "accepted", bool)
        mb.pstate("$$sent", PState.map_schema(str, PState.map_schema(str, sent).subindexed()))
        received = PState.fixed_keys_schema("from", str, "amount", int)
        mb.pstate("$$received", PState.map_schema(str, PState.map_schema(str, received).subindexed()))

        (mb.source("*deposits", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*deposit")
           .keep_true(Expr(is_whole, "*deposit", "id", "account", "amount"))
           .macro(fields, "*deposit", "id", "account", "amount")
           .local_select("$$deposits", Path.key("*account", "*id")).out("*known")
           .keep_true(Expr(Ops.IS_NULL, "*known"))
           .local_transform("$$deposits", Path.key("*account", "*id").term_val("*amount"))
           .local_transform("$$funds", Path.key("*account").null_to_val(0).term(Ops.PLUS, "*amount")))  # fmt: skip

        (mb.source("*transfers", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*transfer")
           .keep_true(Expr(is_whole, "*transfer", "id", "from", "to", "amount"))
           .macro(fields, "*transfer", "id", "from", "to", "amount")
           # On the task of the sender: whoever comes first with an id decides, all others are repetitions.
           .local_select("$$sent", Path.key("*from", "*id")).out("*known")
           .keep_true(Expr(Ops.IS_NULL, "*known"))
           .local_select("$$funds", Path.key("*from").null_to_val(0)).out("*funds")
           .each(Ops.GREATER_THAN_OR_EQUAL, "*funds", "*amount").out("*accepted")
           .local_transform("$$sent", Path.key("*from", "*id").term_val(Expr(outgoing, "*to", "*amount", "*accepted")))
           .keep_true("*accepted")
           .local_transform("$$funds", Path.key("*from").term(Ops.MINUS, "*amount"))
           # On the task of the receiver, in the same microbatch: nobody ever sees one half of a transfer.
           .hash_partition("*to")
           .local_transform("$$funds", Path.key("*to").null_to_val(0).term(Ops.PLUS, "*amount"))
           .each(incoming, "*from", "*amount").out("*incoming")
           .local_transform("$$received", Path.key("*to", "*id").term_val("*incoming")))  # fmt: skip

        (topologies.query("total").out("*total")
            .all_partition()
            .local_select("$$funds", Path.map_vals()).out("*cents")
            .origin_partition()
            .agg(Agg.sum("*cents")).out("*total"))  # fmt: skip
