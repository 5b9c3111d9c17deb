"""Starts that a resource asks for and no source takes: a source that once began elsewhere begins nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidemill_operator.decide.intent import Intent
from tidemill_operator.observe.views import ModuleView
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision


def unread_starts(view: ModuleView, revision: Revision) -> str:
    """What is wrong with the starts of a revision that may not lead yet, in a sentence; empty if nothing is.

    What the topology met earlier, or an earlier revision declared, may stay in the spec, with no effect.
    """
    return "; ".join(_faults(view, revision))


def runnable(view: ModuleView) -> Mapping[int, Revision]:
    """The revisions that may have drivers: not one that waits until such a start is corrected."""
    intent = Intent.read(view.status)
    update = view.revisions.get(intent.update)
    if update is None or not update.is_valid or intent.active == intent.update or not unread_starts(view, update):
        return view.revisions
    return {number: revision for number, revision in view.revisions.items() if number != intent.update}


def _faults(view: ModuleView, revision: Revision) -> Iterator[str]:
    read = revision.verdict.topologies if revision.verdict else {}
    for name, given in sorted(view.spec.get("topologyDefaults", {}).items()):
        if name in read:
            yield from _unread(view, f"topologyDefaults of {name}", name, given, read[name])
        elif not _was_declared(view, name):
            yield f"topologyDefaults names the topology {name}, which the module has not; it has {_listed(read)}"
    for runner in view.topologies:
        if runner.topology in read and view.runner_of(runner.topology) is runner:
            what = f"Topology {runner.name}"
            yield from _unread(view, what, runner.topology, runner.obj["spec"], read[runner.topology])


def _unread(view: ModuleView, what: str, topology: str, given: Json, read: Iterable[str]) -> Iterator[str]:
    runner = view.runner_of(topology)
    met = runner.status.get("startedFrom", {}) if runner is not None else {}
    for depot in sorted(given.get("sources", {})):
        if depot not in {*read, *met}:
            yield f"{what} says where {depot} starts, which topology {topology} does not read; it reads {_listed(read)}"


def _was_declared(view: ModuleView, topology: str) -> bool:
    verdicts = (revision.verdict for revision in view.revisions.values() if revision.verdict is not None)
    return any(topology in verdict.topologies for verdict in verdicts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
