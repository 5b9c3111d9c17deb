"""The module of docs/guide/task-globals.md runs as it stands there."""

from __future__ import annotations

from pathlib import Path

from guide_code import names_of

from tidemill import InProcessCluster, LaunchConfig
from tidemill import Path as StatePath

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "task-globals.md"


def test_the_examples_do_what_the_page_says(tmp_path: Path) -> None:
    names = names_of(GUIDE)
    (tmp_path / "rates").write_text("eur 1.5\nusd 1\n")
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(names["Payments"](str(tmp_path / "rates")), LaunchConfig(4, 2))
        payments = cluster.cluster_depot("Payments", "*payments")
        payments.append({"user": "ann", "currency": "eur", "amount": 2})
        payments.append({"user": "ann", "currency": "usd", "amount": 1})
        cluster.wait_for_microbatch_processed_count("Payments", "mb", 2)
        assert cluster.cluster_pstate("Payments", "$$cents").select_one(StatePath.key("ann")) == 400
        greeting = cluster.cluster_query("Payments", "greeting")
        assert [greeting.invoke("ann"), greeting.invoke("bob")] == ["Dear Ann", "Hi bob"]
