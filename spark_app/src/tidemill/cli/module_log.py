"""What `tidemill log MODULE` shows: who changed what of a module, and what its topologies did, merged by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tidemill.cli.output import counted, say, show_json, show_table, time_text, to_json
from tidemill.clients.module_history import LOGS_MAX, HistoryPlace, Line, ModuleHistory
from tidemill.journal.definition_log import DefinitionLog, no_such_module
from tidemill.store.objects import ObjectStore
from tidemill.values.names import is_folder_name

COLUMNS = ("time", "where", "event", "by")


def show_module_log(store: ObjectStore, module: str, limit: int, is_json: bool) -> None:
    """The newest lines of a module's log, newest last; that of a module which was destroyed says who did it.

    Raises:
        UnknownName: the store never had such a module.
    """
    newest = DefinitionLog(store, module).newest() if is_folder_name(module) else None
    if newest is None:
        raise no_such_module(store, module)
    if newest.is_destroyed:  # the logs of its topologies are gone
        newest = replace(newest, topologies={})
    history, lines = ModuleHistory(store, module), list[Line]()
    place: HistoryPlace | None = HistoryPlace()
    while place is not None and len(lines) < limit:  # one answer has a bound
        found, place = history.read(newest, limit - len(lines), place)
        lines += found
    lines.reverse()
    if is_json:
        show_json(lines)
    else:
        show_table("", COLUMNS, map(_row, lines))
    if left_out := sorted(newest.topologies)[LOGS_MAX:]:
        others = f"{left_out[0]} and {len(left_out) - 1:,} more" if len(left_out) > 1 else left_out[0]
        say(f"Entries of the first {LOGS_MAX} topologies by name, and none of {others}: name one to see its own.")


def _row(line: dict[str, Any]) -> tuple[Any, ...]:
    by = line.get("by") or line.get("owner") or None
    return time_text(line["written_ms"]) if line["written_ms"] else None, _place(line), "; ".join(_events(line)), by


def _place(line: dict[str, Any]) -> str:
    if line["kind"] == "decision":
        return f"{line['topology']}, decision {line['number']}"
    if "topology" in line:
        return f"{line['topology']}, entry {line['entry']}"
    return f"{'options, change' if line['kind'] == 'option' else 'definition'} {line['number']}"


def _events(line: dict[str, Any]) -> Iterator[str]:
    if line["kind"] == "definition":
        yield "destroyed" if line["is_destroyed"] else "launched" if line["number"] == 1 else "defined anew"
        return
    if line["kind"] == "decision":
        yield f"{line['action']} {counted(line['records'], 'record')} in quarantine"
        return
    if line["kind"] == "option":
        value = f" = {to_json(line['value'])}" if line["action"] == "set" else ""
        target = f" of {line['scope']} {line['target']}" if line["target"] else ""
        name = "" if line["action"] in ("pause", "resume") else f" {line['name']}"
        yield f"{line['action']}{name}{value}{target}"
        return
    if "microbatch_id" in line:
        yield f"{line['kind']} {line['microbatch_id']}/{line['version']}, {counted(line['records'], 'record')}"
    else:
        yield str(line["kind"])
    if failure := line.get("failure"):
        where = f"{failure['microbatch_id']}/{failure['version']} failed in {failure['phase']}"
        yield f"{where}: {failure['code']}: {failure['message'].partition(chr(10))[0]}"
