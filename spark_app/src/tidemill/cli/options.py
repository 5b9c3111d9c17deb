"""`tidemill options list | get | set | unset`: dynamic options, in force from the next microbatch on."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidemill.cli import completion
from tidemill.cli.caller import caller
from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    StoreOption,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, console, say, show_json, show_table, wants_json
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.options_log import OptionsLog
from tidemill.language.options import (
    ENGINES,
    OPTIONS,
    ModuleOptions,
    Option,
    OptionTarget,
    Values,
    find_option,
    resolve,
)
from tidemill.values.errors import BadInput

app = typer.Typer(
    help="Dynamic options: change how a module runs while it runs.", no_args_is_help=True, add_completion=False
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Such as depot.microbatch.max.records.", autocompletion=completion.options)
]
TopologyChoice = Annotated[
    str, typer.Option("--topology", help="For one topology only.", autocompletion=completion.topologies)
]
DepotChoice = Annotated[str, typer.Option("--depot", help="For one depot only.", autocompletion=completion.read_depots)]
PStateChoice = Annotated[str, typer.Option("--pstate", help="For one PState only.", autocompletion=completion.pstates)]


@app.command("list")
@command
def list_(
    module: Annotated[
        str,
        typer.Argument(metavar="[MODULE]", help="Show what holds in this module.", autocompletion=completion.modules),
    ] = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """All options with their defaults; of a module, also what is set."""
    wants_json(json_)
    opened = existing_store(store) if module else None
    found = ModuleOptions()
    if opened is not None:
        stored_definition(opened, module)
        found = OptionsLog(opened, module).read()
    rows = [_described(option, found) for option in OPTIONS.values()]
    if json_:
        show_json(rows)
        return
    columns = ("name", "value", "default", "bounds", "unit", "set")
    show_table("", columns, ([_shown(row, column) for column in columns] for row in rows))


def _described(option: Option, found: ModuleOptions) -> dict[str, Any]:
    values = found.values
    places = {
        (scope, target): chosen[option.name] for (scope, target), chosen in values.items() if option.name in chosen
    }
    return {
        "name": option.name,
        "value": resolve(option.name, values),
        "default": option.default,
        "type": option.type,
        "unit": option.unit,
        "bounds": option.bounds,
        "scope": option.scope,
        "help": option.help,
        "set": [
            {"scope": scope, "object": target, "value": value, **_owner(found, (scope, target, option.name))}
            for (scope, target), value in sorted(places.items())
        ],
    }


def _owner(found: ModuleOptions, place: OptionTarget) -> dict[str, str]:
    return {"managed_by": found.managed[place]} if place in found.managed else {}


def _shown(row: dict[str, Any], column: str) -> Any:
    if column == "set":
        return ", ".join(map(_place_text, row["set"]))
    return _exact(row[column])


def _exact(value: Any) -> Any:
    """A number of an option with all its digits; a table rounds others."""
    return f"{value:.15g}" if isinstance(value, float) else value


def _place_text(place: dict[str, Any]) -> str:
    owner = f" (by {place['managed_by']})" if "managed_by" in place else ""
    return f"{place['object'] or 'module'}={place['value']}{owner}"


@app.command("get")
@command
def get(
    module: ModuleArgument,
    name: NameArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    topology: TopologyChoice = "",
    depot: DepotChoice = "",
    pstate: PStateChoice = "",
) -> None:
    """One option: what holds, what it means, and on which engines it matters."""
    wants_json(json_)
    opened = existing_store(store)
    option = find_option(name)
    _, target = _place(stored_definition(opened, module), topology, depot, pstate)
    found = OptionsLog(opened, module).read()
    value = resolve(name, found.values, target)
    if json_:
        meanings = {engine: option.meaning_on(engine) or None for engine in ENGINES}
        show_json(_described(option, found) | {"value": value, "meaning": meanings})
        return
    out = console()
    unit = f" {option.unit}" if option.unit and value is not None else ""
    out.print(f"{name} = {'not set' if value is None else _exact(value)}{unit}", markup=False)
    out.print(f"{option.help} Default {_exact(option.default)}, bounds {option.bounds}.", markup=False)
    described = _described(option, found)
    if described["set"]:
        out.print(f"Set: {_shown(described, 'set')}.", markup=False)
    for engine in ENGINES:
        if not option.meaning_on(engine):
            out.print(f"It does not matter on the engine {engine}.", markup=False)


@app.command("set")
@command
def set_(
    module: ModuleArgument,
    name: NameArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    topology: TopologyChoice = "",
    depot: DepotChoice = "",
    pstate: PStateChoice = "",
) -> None:
    """Set an option on the module, or on one of its objects; it survives restarts and updates."""
    wants_json(json_)
    opened = existing_store(store)
    find_option(name)
    scope, target = _place(stored_definition(opened, module), topology, depot, pstate, name)
    OptionsLog(opened, module, by=caller()).set(scope, target, name, _parsed(value))
    _told(json_, module, name, target, OptionsLog(opened, module).read().values)


@app.command("unset")
@command
def unset(
    module: ModuleArgument,
    name: NameArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    topology: TopologyChoice = "",
    depot: DepotChoice = "",
    pstate: PStateChoice = "",
) -> None:
    """Take a setting away: the module's, or the default, holds again."""
    wants_json(json_)
    opened = existing_store(store)
    find_option(name)
    scope, target = _place(stored_definition(opened, module), topology, depot, pstate)
    OptionsLog(opened, module, by=caller()).unset(scope, target, name)
    _told(json_, module, name, target, OptionsLog(opened, module).read().values)


def _place(definition: StoredDefinition, topology: str, depot: str, pstate: str, *set_: str) -> tuple[str, str]:
    """(scope, object) of the flags given, where the options `set_` may be set; the module without any."""
    if sum(map(bool, (topology, depot, pstate))) > 1:
        raise BadInput("Name one object only: --topology, --depot or --pstate.")
    if topology:
        return "topology", definition.optioned(topology)
    if depot:
        return "depot", definition.optioned_depot("*" + depot.removeprefix("*"), set_)
    if pstate:
        return "pstate", definition.pstate("$$" + pstate.removeprefix("$$"))[1].name
    return "module", ""


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _told(is_json: bool, module: str, name: str, target: str, values: Values) -> None:
    """What holds now, and where something else holds: a setting of an object wins over that of the module."""
    value = resolve(name, values, target)
    others = (
        {} if target else {place[1]: chosen[name] for place, chosen in values.items() if place[1] and name in chosen}
    )
    if is_json:
        show_json({"module": module, "name": name, "object": target, "value": value, "overridden": others})
        return
    begin = "call" if name.split(".")[1] == "query" else "microbatch"
    say(f"{name} is {_exact(value)} for {target or module} from the next {begin} on.")
    if others:
        say(
            f"It is overridden for {', '.join(f'{place}: {_exact(other)}' for place, other in sorted(others.items()))}."
        )
