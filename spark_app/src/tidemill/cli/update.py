"""`tidemill update`: a module's new code becomes the next revision of what a store holds."""

from __future__ import annotations

from tidemill.cli.caller import caller
from tidemill.cli.loader import (
    STORE_DEFAULT,
    BreakMirrorsOption,
    ClassArgument,
    DeleteOption,
    JsonOption,
    StoreOption,
    existing_store,
    load_module,
)
from tidemill.cli.output import command, say, show_json, wants_json


@command
def update(
    name: ClassArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    delete: DeleteOption = None,
    break_mirrors: BreakMirrorsOption = False,
) -> None:
    """Store a module's new code as its next revision; the runner of the old one ends, `tidemill run` starts the new.

    State, progress and options carry over. `tidemill describe --against` says beforehand whether it may.
    """
    wants_json(json_)
    from tidemill.api.declaration import record_module
    from tidemill.cluster.launch import update as updated
    from tidemill.journal.clock import SystemClock
    from tidemill.plan.check.module import checked

    declaration = checked(record_module(load_module(name)))
    opened, deleted = existing_store(store), tuple(delete or ())
    definition = updated(opened, declaration, deleted, SystemClock(), breaks_mirrors=break_mirrors, by=caller())
    if json_:
        show_json({"module": definition.module, "definition": definition.number})
    else:
        say(
            f"{definition.module} has definition {definition.number} now. Start it: tidemill run {name} --store {store}"
        )
