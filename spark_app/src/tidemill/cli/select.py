"""`tidemill select`, `scan` and `diff`: values of a PState, one a line."""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated, Any

import typer

from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    PStateArgument,
    StoreOption,
    client_of,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, say, show_json, to_json, wants_json
from tidemill.clients.pages import PAGE_KEYS, check_pin, pages
from tidemill.clients.pstate import PStateHandle
from tidemill.paths.budget import Budget
from tidemill.paths.json import keys_like_navigators, path_from_json
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath, NotOneValue

AtOption = Annotated[int | None, typer.Option("--at", help="Entry of the commit log to read.")]
MicrobatchOption = Annotated[int | None, typer.Option("--microbatch", help="The state when this one was committed.")]
PathBelow = Annotated[
    str, typer.Argument(metavar="[PATH]", help='JSON, below each key, such as \'[["mapKeys"]]\'; "" is the value.')
]


@command
def select(
    module: ModuleArgument,
    pstate: PStateArgument,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help='JSON, such as \'["a", ["all"]]\'; [] is the whole value.')
    ],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    one: Annotated[bool, typer.Option("--one", help="Exactly one value, else an error.")] = False,
    at: AtOption = None,
    microbatch: MicrobatchOption = None,
    code: Annotated[str, typer.Option("--module", help="MODULE:CLASS, for a key partitioner of its own.")] = "",
) -> None:
    """Read a PState; --json prints one list of all values (with --one the value)."""
    wants_json(json_)
    parsed = _parsed(path)
    found = path_from_json(parsed)
    opened = existing_store(store)
    stored_definition(opened, module)
    pstate = "$$" + pstate.removeprefix("$$")
    handle = _pinned(PStateHandle(client_of(opened, module, code), pstate), at, microbatch)
    given: dict[str, Any] = {} if found.pkey is ABSENT else {"pkey": found.pkey}
    values = handle.select(found.path, budget=Budget.boundless(found.first), **given)
    if one and len(values) != 1:
        raise NotOneValue(f"{pstate}: the path navigates to {len(values)} values, not to one.")
    if json_:
        show_json(values[0] if one else values)
        return
    for value in values:
        typer.echo(to_json(value))
    if values == [None] and (meant := keys_like_navigators(parsed)):
        say(f'There is nothing at the key "{meant[0]}". The navigator of that name is written ["{meant[0]}"].')


@command
def scan(
    module: ModuleArgument,
    pstate: PStateArgument,
    path: PathBelow = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Keys at most; 0 is all of them.")] = 0,
    after: Annotated[str, typer.Option("--after", help="The cursor that --limit printed: goes on behind it.")] = "",
    at: AtOption = None,
    microbatch: MicrobatchOption = None,
) -> None:
    """Read all keys of a map, of all its partitions, a list of key and value a line, as of one entry of the log."""
    wants_json(json_)
    below = path_from_json(_parsed(path)).path if path else None
    opened = existing_store(store)
    stored_definition(opened, module)
    handle = _pinned(PStateHandle(client_of(opened, module, ""), "$$" + pstate.removeprefix("$$")), at, microbatch)
    cursor, left, items = after or None, limit, []
    while True:
        page = handle.page(
            min(left, PAGE_KEYS) if limit else PAGE_KEYS, path=below, after=cursor, budget=Budget.boundless()
        )
        if json_:
            items += page.items
        else:
            for item in page.items:
                typer.echo(to_json(item))
        cursor, left = page.after, left - len(page.items)
        if cursor is None or (limit and left <= 0):
            break
    if json_:
        show_json({"items": items, "after": cursor, "entry": page.entry})
    elif cursor is not None:
        say(f"Go on with --after {cursor}")


@command
def diff(
    module: ModuleArgument,
    pstate: PStateArgument,
    before: Annotated[int, typer.Argument(metavar="BEFORE", help="A microbatch; 0 is the state before the first.")],
    after: Annotated[int, typer.Argument(metavar="AFTER", help="Another one.")],
    path: PathBelow = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Changes at most; 0 is all of them.")] = 0,
) -> None:
    """Show what changed in a PState between two microbatches: a key a line, its value before and after."""
    wants_json(json_)
    below = path_from_json(_parsed(path)).path if path else None
    opened = existing_store(store)
    stored_definition(opened, module)
    handle = PStateHandle(client_of(opened, module, ""), "$$" + pstate.removeprefix("$$"))
    budget = Budget.boundless()
    changes = pages(lambda at: handle.diff_page(before, after, path=below, cursor=at, budget=budget))
    shown = islice(changes, limit) if limit else changes
    if json_:
        show_json(list(shown))
        return
    for key, old, new in shown:
        typer.echo(f"{to_json(key)}  {_side(old)} -> {_side(new)}")
    if limit and next(changes, None) is not None:
        say(f"There are more; these are the first {limit:,}.")


def _side(values: list[Any]) -> str:
    return ", ".join(map(to_json, values)) if values else "nothing"


def _pinned(handle: PStateHandle, at: int | None, microbatch: int | None) -> PStateHandle:
    if microbatch is None:
        return handle if at is None else handle.at(at)
    if at is not None:
        check_pin(at, microbatch)
    return handle.at(microbatch=microbatch)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadPath(f'The path is not JSON ({error}); write it like \'["key", ["all"]]\'.') from error
