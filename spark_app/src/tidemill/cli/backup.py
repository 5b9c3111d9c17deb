"""`tidemill backup` and `tidemill restore`: a store saved while it runs, and brought back."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.loader import STORE_DEFAULT, JsonOption, StoreOption, existing_store
from tidemill.cli.output import command, counted, messages, say, show_json, show_table, time_text, wants_json
from tidemill.cluster.stores import absolute_url
from tidemill.store.local import LocalStore
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, probe_create
from tidemill.values.errors import BadInput, CorruptState

if TYPE_CHECKING:
    from tidemill.leader.backup import Copied
    from tidemill.leader.backup_folder import BackupFolder
    from tidemill.leader.restore import At

TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="Where backups are: a folder, file:///folder or s3://bucket/prefix?…")
]


@command
def backup(
    target: TargetArgument,
    store: StoreOption = STORE_DEFAULT,
    list_: Annotated[bool, typer.Option("--list", help="Show the backups that are there, and make none.")] = False,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Then delete all but the newest so many backups of this store.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Save a store, which may be in use. What an earlier backup in TARGET saved is not copied again."""
    from tidemill.graphs.saved_graphs import saved_parts
    from tidemill.leader.backup import BackupRun
    from tidemill.leader.backup_folder import about

    wants_json(json_)
    if list_:
        _show_list(target, json_)
        return
    opened = existing_store(store)
    folder = _folder(target)
    _check_apart(connect(absolute_url(store)), folder.store)
    probe_create(folder.store)
    with folder.turn():
        with _progress("saved") as tell:
            run = BackupRun(opened, folder, _now_ms(), tell, saved_parts)
            made = run.take()
        forgotten = folder.forget(made.url, keep) if keep is not None else 0
    if json_:
        show_json({**about(made), "copied": vars(run.copied), "forgotten": forgotten})
        return
    say(
        f"Backup {made.id}: {counted(len(made.modules), 'module')}, {counted(len(made.datasets), 'Dataset')}, "
        f"{counted(len(made.objects), 'object')}, {_size(made.bytes)}; "
        f"copied: {counted(run.copied.objects, 'object')}, {_size(run.copied.bytes)}."
    )
    if forgotten:
        say(f"{forgotten} older backups were deleted.")


@command
def restore(
    target: TargetArgument,
    store: StoreOption = STORE_DEFAULT,
    backup_id: Annotated[str, typer.Option("--backup", metavar="ID", help="One backup of `backup --list`.")] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="TIME|MODULE/TOPOLOGY@ENTRY",
            help="The newest consistent state at or before it, instead of the newest: 2026-01-31T12:00:00 (UTC).",
        ),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Let it take the place of a store that is there.")] = False,
    json_: JsonOption = False,
) -> None:
    """Bring a store back. Stop everything that uses the store first; whatever still has it open ends with an error."""
    from tidemill.graphs.saved_graphs import check_graphs, graph_logs
    from tidemill.leader.restore import Beside, plan_restore
    from tidemill.leader.restore import restore as restore_store

    wants_json(json_)
    folder = _folder(target)
    plan = plan_restore(folder, backup_id=backup_id, at=_parse_at(at) if at else None)
    beside = Beside(graph_logs, lambda copy: [f"{name}: {finding}" for name, finding in check_graphs(copy)[1]])
    url = absolute_url(store)
    with _progress("restored") as tell:
        made = restore_store(plan, folder, url, replaces=replace, now_ms=_now_ms(), tell=tell, beside=beside)
    copied, newer = made.copied, folder.after(plan.backup)
    if json_:
        topologies = [
            {**vars(point.topology), "entry": point.number, "microbatch_id": point.entry.last_id,
             "processed": point.entry.processed, "written_ms": point.entry.written_ms}
            for point in plan.points
        ]  # fmt: skip
        show_json({"backup": plan.backup.id, "folder": made.incarnation.folder, "copied": vars(copied),
                   "replaced": list(made.replaced), "topologies": topologies, "newer": newer})  # fmt: skip
        return
    rows = [
        (point.topology.module, point.topology.name, point.number, point.entry.last_id, point.entry.processed,
         time_text(point.entry.written_ms))
        for point in plan.points
    ]  # fmt: skip
    columns = ("module", "topology", "entry", "microbatch", "records", "as of (UTC)")
    show_table("", columns, rows, right=columns[2:5])
    say(f"{store} is backup {plan.backup.id} now: {counted(copied.objects, 'object')}, {_size(copied.bytes)}, checked.")
    if newer:
        text = f"Depots are as of {time_text(plan.backup.written_ms)}: what was appended since then is in newer backups"
        say(f"{text} only ({counted(len(newer), 'backup')} in {target}).")
    if made.replaced:
        say(f"What was there ({', '.join(made.replaced)}) is kept beside it until you delete it (see the guide).")


def _show_list(target: str, is_json: bool) -> None:
    from tidemill.leader.backup_folder import about

    backups = list(_folder(target).each())
    found = [about(each) for each in backups if not isinstance(each, CorruptState)]
    damaged = [str(each) for each in backups if isinstance(each, CorruptState)]
    if is_json:
        show_json({"backups": found, "damaged": damaged})
        return
    rows = [(b["id"], time_text(b["written_ms"]), b["store"], ", ".join(b["modules"]), b["objects"], _size(b["bytes"]))
            for b in found]  # fmt: skip
    show_table("", ("backup", "begun (UTC)", "of", "modules", "objects", "size"), rows, right=("objects", "size"))
    for text in damaged:
        say(text)


def _folder(target: str) -> BackupFolder:
    from tidemill.leader.backup_folder import BackupFolder

    return BackupFolder(connect(absolute_url(target)))


def _check_apart(store: ObjectStore, target: ObjectStore) -> None:
    """A backup in the store that it saves is none."""
    if isinstance(store, LocalStore) and isinstance(target, LocalStore):
        is_apart = not target.folder.resolve().is_relative_to(store.folder.resolve())
    else:
        held, place = (f"{each.url.partition('?')[0].rstrip('/')}/" for each in (store, target))
        is_apart = not place.startswith(held)
    if not is_apart:
        raise BadInput(f"{target.url} is in the store that is to be saved; name another place.")


def _parse_at(text: str) -> At:
    """What `--at` means.

    Raises:
        BadInput: it is neither a time nor an entry.
    """
    from tidemill.leader.restore import At

    topology, mark, entry = text.rpartition("@")
    if mark and "/" in topology and entry.isdecimal():
        return At(topology=topology, entry=int(entry))
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"--at {text!r} is neither a time such as 2026-01-31T12:00:00 nor MODULE/TOPOLOGY@ENTRY."
        ) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return At(millis=int(moment.timestamp() * 1000))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"


@contextmanager
def _progress(word: str) -> Iterator[Callable[[str, Copied], None]]:
    """What is copied, on one line of a terminal; nothing where there is none."""
    from rich.text import Text

    with messages().status("") as status:

        def tell(key: str, copied: Copied) -> None:  # names of modules may look like tags of Rich
            status.update(Text(f"{copied.objects:,} objects, {_size(copied.bytes)} {word}: {key}"))

        yield tell
