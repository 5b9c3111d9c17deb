"""A Kubernetes Module whose objects other modules mirror: what its next revision may not take from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mirrored import bank, launch, report
from stories import module_of
from typer.testing import CliRunner

from tidemill import Depot, InProcessCluster, Ops, PState
from tidemill.api.declaration import record_module
from tidemill.cli import verdict as verdicts
from tidemill.cli.main import app
from tidemill.cli.verdict import Candidate
from tidemill.cluster.launch import destroy, update
from tidemill.definition.ownership import Owner
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.kubernetes.revision_gate import RevisionGate, RevisionPlan
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.plan.check.module import checked
from tidemill.values.errors import DefinitionError

CLOCK = SystemClock()
OURS = Owner("c1", "prod", "bank", "u1")


def without_sums(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
    topologies.microbatch("mb")


def migrating(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST)).migration("twice", lambda r: [r[0], 2 * r[1]])
    topologies.microbatch("mb").pstate("$$sums", PState.map_schema(str, int))


CHANGES = [(without_sums, ("$$sums",)), (migrating, ())]


def declared(define: Any) -> ModuleDeclaration:
    return checked(record_module(module_of("Bank", define)))


def plan(define: Any, deleted: tuple[str, ...] = (), base: int = 1, **more: Any) -> RevisionPlan:
    return RevisionPlan(declared(define), base + 1, base, 2, 1, deleted, owner=OURS, **more)


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    """A bank of a Kubernetes Module, as its drivers made it; nobody runs it here."""
    with InProcessCluster.create() as made:
        RevisionGate(made.store, plan(bank, base=0), CLOCK).write()
        yield made


def text_of(error: DefinitionError) -> list[str]:
    return [str(fault) for fault in error.faults]


@pytest.mark.parametrize(("define", "deleted"), CHANGES)
def test_a_revision_is_refused_as_an_update_by_hand_when_it_takes_what_others_mirror(
    cluster: InProcessCluster, define: Any, deleted: tuple[str, ...]
) -> None:
    launch(cluster, "Report", report())
    with pytest.raises(DefinitionError, match="and module 'Report' mirrors it") as by_hand:
        update(cluster.store, declared(define), deleted, CLOCK, takes_over=True)

    with pytest.raises(DefinitionError) as refused:
        RevisionGate(cluster.store, plan(define, deleted), CLOCK)

    assert text_of(refused.value) == text_of(by_hand.value)
    gate = RevisionGate(cluster.store, plan(define, deleted, breaks_mirrors=True), CLOCK)
    gate.write()
    assert gate.look()[0] == "mine"


@pytest.mark.parametrize(("define", "deleted"), CHANGES)
def test_the_verdict_names_the_reader_when_a_revision_takes_what_it_mirrors(
    cluster: InProcessCluster, define: Any, deleted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "load_module", lambda entry: module_of("Bank", define))

    def told(**more: Any) -> dict[str, Any]:
        return Candidate("bank:Bank", cluster.store.url, 2, 1, deleted, **more).verdict()

    assert told()["is_valid"]
    launch(cluster, "Report", report())
    (fault,) = told()["faults"]
    assert fault["text"].endswith("and module 'Report' mirrors it.")
    assert told(breaks_mirrors=True)["is_valid"]


def test_a_revision_is_refused_at_its_turn_when_a_reader_came_while_its_drivers_got_warm(
    cluster: InProcessCluster,
) -> None:
    gate = RevisionGate(cluster.store, plan(without_sums, ("$$sums",)), CLOCK)
    launch(cluster, "Report", report())

    with pytest.raises(DefinitionError, match=r"\$\$sums.*mirrors it"):
        gate.write()

    assert DefinitionLog(cluster.store, "Bank").newest_number() == 1


def test_a_driver_starts_anew_when_a_reader_marked_what_its_revision_took_already(cluster: InProcessCluster) -> None:
    """Such as one that was launched in the same moment: it fails by itself, and a driver that ended helped nobody."""
    launch(cluster, "Report", report())
    RevisionGate(cluster.store, plan(without_sums, ("$$sums",), breaks_mirrors=True), CLOCK).write()

    assert RevisionGate(cluster.store, plan(without_sums, ("$$sums",)), CLOCK).look()[0] == "mine"


def test_the_job_of_a_deleted_module_ends_with_the_reason_unless_it_may_break_mirrors(
    cluster: InProcessCluster,
) -> None:
    """As the operator calls it; exit code 1 is what it does not try again by itself."""
    launch(cluster, "Report", report())
    job = ["destroy", "Bank", "--store", cluster.store.url, "--yes", "--owner", "c1/prod/bank/u1"]
    refused = CliRunner().invoke(app, job)
    assert refused.exit_code == 1
    assert "*moves: would be gone, and module 'Report' mirrors it." in " ".join(refused.output.split())

    assert CliRunner().invoke(app, [*job, "--break-mirrors"]).exit_code == 0


def test_a_mirrored_module_is_destroyed_by_its_owner_only_when_it_may_break_mirrors(cluster: InProcessCluster) -> None:
    launch(cluster, "Report", report())
    with pytest.raises(DefinitionError, match=r"\*moves.*would be gone, and module 'Report' mirrors it"):
        destroy(cluster.store, "Bank", OURS)

    destroy(cluster.store, "Bank", OURS, breaks_mirrors=True)

    newest = DefinitionLog(cluster.store, "Bank").newest()
    assert newest is not None and newest.is_destroyed
