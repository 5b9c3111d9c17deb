"""`tidemill check`: whether the invariants S1 to S8 hold on a store (docs/invariants.md)."""

from __future__ import annotations

import contextlib

import typer

from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    OptionalModule,
    StoreOption,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import EXIT_CORRUPT, command, console, counted, show_json, wants_json
from tidemill.journal.definition_log import modules_of, orphans
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import CorruptState


def _must_be_there(store: ObjectStore, name: str) -> None:
    """A module whose definition cannot be read is there."""
    with contextlib.suppress(CorruptState):
        stored_definition(store, name)


@command
def check(
    module: OptionalModule = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Read everything that a store's logs name and verify it; exit code 4 if something is wrong."""
    from tidemill.leader.check import check_module, orphan_finding
    from tidemill.spark.staged import check_staged

    wants_json(json_)
    opened = existing_store(store)
    names = [module] if module else modules_of(opened)
    found = []
    for name in names:
        if module:
            _must_be_there(opened, name)
        found += [(name, finding) for finding in (*check_module(opened, name), *check_staged(opened, name))]
    datasets = 0
    if not module:
        from tidemill.graphs.saved_graphs import check_graphs

        datasets, of_graphs = check_graphs(opened)
        found += of_graphs
        found += [(name, orphan_finding(name, key)) for name, key in orphans(opened)]
    faults = [(name, finding) for name, finding in found if finding.is_fault]
    if json_:
        show_json(
            {
                "modules": names,
                "datasets": datasets,
                "findings": [{"module": name, **vars(finding)} for name, finding in found],
            }
        )
    else:
        out = console()
        for name, finding in found:
            out.print(f"{name}: {finding}", markup=False, soft_wrap=True)
        beside = f", {counted(datasets, 'Dataset')}" if datasets else ""
        out.print(f"{counted(len(names), 'module')}{beside} checked: {counted(len(faults), 'fault')}.", markup=False)
    if faults:
        raise typer.Exit(EXIT_CORRUPT)
