"""The golden store: every stored format, as one run of a module left it. `python golden_store.py` makes it anew.

It is made anew only where a format changes on purpose; the commit says why.
"""

from __future__ import annotations

import tempfile
import threading
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path as Folder
from typing import Any

import polars as pl

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.clients.quarantine import Quarantine
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.store.urls import connect
from tidemill.values.data import to_text

HERE = Folder(__file__).parent
STORE, READ = HERE / "store.zip", HERE / "read.txt"
MODULE, TOPOLOGY, ROUNDS, POISON = "Ledger", "sales", 18, "poison"
VALUES: list[Any] = [
    None, True, -(2**62), 0.5, "ä", b"\x00", datetime(2026, 1, 2, tzinfo=UTC), (1, "x"), [1, [2]], {"a": {1}},
]  # fmt: skip


def liked(value: Any) -> Any:
    """The value, unless it is poison."""
    if value == POISON:
        raise ValueError("it is poison")
    return value


class Ledger(Module):
    """Sales by customer in several structures, and whatever value a depot takes."""

    def module_name(self) -> str:
        return MODULE

    def define(self, setup: Any, topologies: Any) -> None:
        sale = PState.fixed_keys_schema("customer", str, "day", int, "amount", int)
        setup.declare_depot("*sales", Depot.hash_by("customer")).schema(sale)
        setup.declare_depot("*values", Depot.random())
        sales = topologies.microbatch(TOPOLOGY)
        start = MicrobatchSourceOptions.start_from_beginning()
        rows = sales.source("*sales", start).out("*batch").explode_microbatch("*batch").out("*sale")
        for field in ("customer", "day", "amount"):
            rows = rows.each(Ops.GET, "*sale", field).out(f"*{field}")
        self.keep(sales, rows.hash_partition("*customer"))
        values = sales.source("*values", start).out("*others").explode_microbatch("*others").out("*value")
        sales.pstate("$$values", list).global_()
        values = values.each(liked, "*value").out("*liked")
        values.global_partition().compound_agg("$$values", Agg.list("*liked"))
        spent = topologies.query("spent", "*customer", "*field").out("*spent").select("$$totals", Path.key("*customer"))
        spent.out("*totals").each(Ops.GET, "*totals", "*field").out("*spent").origin_partition()

    def keep(self, sales: Any, rows: Any) -> Any:
        """Declare what is kept of the rows, and aggregate it."""
        totals = PState.fixed_keys_schema("count", int, "sum", int, "largest", int)
        sales.pstate("$$totals", PState.map_schema(str, totals))
        sales.pstate("$$days", PState.map_schema(str, PState.map_schema(int, int).subindexed()))
        sales.pstate("$$seen", PState.map_schema(str, PState.set_schema(int).subindexed()))
        sales.pstate("$$amounts", PState.map_schema(PState.nullable(int), PState.list_schema(int)))
        found = CompoundAgg.map("count", Agg.count(), "sum", Agg.sum("*amount"), "largest", Agg.max("*amount"))
        rows = rows.compound_agg("$$totals", CompoundAgg.map("*customer", found))
        days = CompoundAgg.map("*day", Agg.sum("*amount"))
        rows = rows.compound_agg("$$days", CompoundAgg.map("*customer", days))
        rows = rows.compound_agg("$$seen", CompoundAgg.map("*customer", Agg.set("*day")))
        return rows.hash_partition("*day").compound_agg("$$amounts", CompoundAgg.map("*day", Agg.list("*amount")))


class LaterLedger(Ledger):
    """The module's next revision: one PState and one depot more."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_tick_depot("*minute", 60_000)
        super().define(setup, topologies)

    def keep(self, sales: Any, rows: Any) -> Any:
        sales.pstate("$$best", PState.map_schema(str, int))
        return super().keep(sales, rows).hash_partition("*customer").compound_agg(
            "$$best", CompoundAgg.map("*customer", Agg.max("*amount"))
        )  # fmt: skip


def a_sale(number: int) -> dict[str, Any]:
    return {"customer": f"c{number % 7}", "day": number % 5, "amount": number}


def work(url: str) -> None:
    """Fill an empty store: records as dicts, as columns and as any value, two revisions, options, a pause, records in
    quarantine, a backup.
    """
    with InProcessCluster.create("local", url) as cluster:
        cluster.launch_module(Ledger(), LaunchConfig(2, 1))
        sales, values = (cluster.cluster_depot(MODULE, name) for name in ("*sales", "*values"))
        values.append_many(VALUES)
        values.append("once", producer="p", sequence=7)
        for number in range(ROUNDS):  # so many that deltas are merged
            sales.append(a_sale(number))
            cluster.wait_until_processed(MODULE, TOPOLOGY)
            threading.Event().wait(0.1)  # so that a merge has an entry of its own
        sales.append_many(pl.DataFrame([a_sale(number) for number in range(ROUNDS, 2 * ROUNDS)]))
        cluster.wait_until_processed(MODULE, TOPOLOGY)
        OptionsLog(cluster.store, MODULE).set("depot", "*sales", "depot.microbatch.max.records", 1_000)
        cluster.pause_microbatch_topology(MODULE, TOPOLOGY)
        cluster.resume_microbatch_topology(MODULE, TOPOLOGY)
        cluster.update_module(LaterLedger())
        sales.append(a_sale(2 * ROUNDS))
        cluster.wait_until_processed(MODULE, TOPOLOGY)
        OptionsLog(cluster.store, MODULE).set("module", "", "topology.on.record.error", "quarantine")
        values.append_many([POISON, POISON])
        cluster.wait_until_processed(MODULE, TOPOLOGY)
        eventually_in_quarantine(cluster, 2).drop([0])
        BackupRun(cluster.store, BackupFolder(connect(f"{url}-backup")), 1_800_000_000_000, lambda *_: None).take()


def eventually_in_quarantine(cluster: InProcessCluster, count: int) -> Quarantine:
    """The quarantine of the topology, when it holds so many records."""
    found = cluster.quarantine(MODULE, TOPOLOGY)
    while found.count < count:
        threading.Event().wait(0.05)
    return found


def readings(url: str) -> str:
    """All that clients can read of a running ledger, a line for each value."""
    lines = []
    with InProcessCluster.create("local", url) as cluster:
        cluster.launch_module(LaterLedger(), LaunchConfig(2, 1))
        cluster.wait_until_processed(MODULE, TOPOLOGY)
        for name, path in PATHS.items():
            handle = cluster.cluster_pstate(MODULE, name)
            keys = range(5) if name == "$$amounts" else [f"c{number}" for number in range(7)]
            lines += [f"{name} {key} {to_text(handle.select_one(path(key)))}" for key in keys]
        values = cluster.cluster_pstate(MODULE, "$$values").select_one(Path.stay())
        lines.append(f"$$values {to_text(values)}")
        spent = cluster.cluster_query(MODULE, "spent")
        lines += [f"spent c{number} {spent.invoke(f'c{number}', 'sum')}" for number in range(7)]
        lines += [
            f"in quarantine {each.number} {each.record}" for each in cluster.quarantine(MODULE, TOPOLOGY).records()
        ]
    return "\n".join(lines) + "\n"


PATHS: dict[str, Callable[[Any], Path]] = {
    "$$totals": Path.key,
    "$$days": lambda key: Path.key(key).sorted_map_range_from_start(100),
    "$$seen": lambda key: Path.key(key).sorted_set_range_from_start(100),
    "$$amounts": Path.key,
    "$$best": Path.key,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work(f"{folder}/store")
        left_out = {"lease", "probes", "stores"}  # of the backup only its list: the rest are copies
        names = sorted(path for path in Folder(folder).rglob("*") if path.is_file() and not left_out & {*path.parts})
        with zipfile.ZipFile(STORE, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in names:
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
        READ.write_text(readings(f"{folder}/store"))


if __name__ == "__main__":
    main()
