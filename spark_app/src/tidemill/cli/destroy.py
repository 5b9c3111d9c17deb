"""`tidemill destroy`: a module's data, deleted for good."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli.caller import caller
from tidemill.cli.loader import (
    STORE_DEFAULT,
    BreakMirrorsOption,
    JsonOption,
    ModuleArgument,
    OwnerOption,
    StoreOption,
    existing_store,
)
from tidemill.cli.output import command, say, show_json, wants_json
from tidemill.cluster.launch import destroy as destroy_module
from tidemill.definition.ownership import Owner
from tidemill.journal.definition_log import DefinitionLog, no_such_module
from tidemill.values.errors import BadInput, CorruptState
from tidemill.values.names import is_folder_name


@command
def destroy(
    module: ModuleArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Needed: nothing can bring the data back.")] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Although it belongs to a Kubernetes Module.")] = False,
    owner: OwnerOption = "",
    break_mirrors: BreakMirrorsOption = False,
) -> None:
    """Delete a module's depots, PStates and progress from a store. Stop everything that runs it first.

    Refused while somebody leads one of its topologies, where it belongs to a Kubernetes Module, and while other modules
    mirror its objects.
    """
    wants_json(json_)
    opened = existing_store(store)
    if not is_folder_name(module):
        raise no_such_module(opened, module)
    newest = DefinitionLog(opened, module).newest()
    if newest is None or (newest.is_destroyed and not yes):
        missing = no_such_module(opened, module)
        if not yes or isinstance(missing, CorruptState):
            raise missing
    if not yes:
        raise BadInput(f"This deletes all data of module '{module}' in {store}; say --yes if that is what you want.")
    is_there = newest is not None
    owned = Owner.parse(owner)
    by = f"the operator, for {owned}" if owner else caller()
    destroy_module(opened, module, owned, takes_over=take_over, breaks_mirrors=break_mirrors, by=by)
    if json_:
        show_json({"module": module, "is_deleted": is_there})
    else:
        say(f"Module {module} is deleted." if is_there else f"There was no module {module}.")
