"""Several people write one text at once: what was written against an older version is moved to where it belongs now."""

from __future__ import annotations

from typing import Any

from tidemill import Depot, Expr, MicrobatchSourceOptions, Module, Ops, Path, PState, Setup, Topologies

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
EDIT = PState.fixed_keys_schema("id", str, "doc", str, "version", int, "at", int, "add", str, "remove", int)
CHANGE = PState.fixed_keys_schema("id", str, "at", int, "add", str, "remove", int)
Change = dict[str, Any]
Range = tuple[int, int]
"""(first, end) of characters."""


def is_whole(edit: dict[str, Any]) -> bool:
    """Whether an edit adds text or removes characters, and says where, in which version of which document."""
    known = all(edit.get(name) is not None for name in ("id", "doc", "version", "at"))
    return known and min(edit["version"], edit["at"]) >= 0 and bool(edit.get("add")) != ((edit.get("remove") or 0) > 0)


def transformed(edit: dict[str, Any], missed: list[Change], length: int) -> list[Change]:
    """The changes of a text of `length` characters that mean what the edit meant before the missed changes.

    They are to be made one after the other. None, if the edit is one of those that were made already.
    """
    if any(change["id"] == edit["id"] for change in missed):
        return []
    if edit.get("add"):
        return [{"id": edit["id"], "at": min(_moved(edit["at"], missed), length), "add": edit["add"], "remove": 0}]
    ranges = [(edit["at"], edit["at"] + edit["remove"])]
    for change in missed:
        ranges = [part for each in ranges for part in _parts(each, change)]
    # From the last to the first: so none of them moves the others.
    kept = [(first, min(end, length)) for first, end in reversed(ranges) if first < min(end, length)]
    return [{"id": edit["id"], "at": first, "add": "", "remove": end - first} for first, end in kept]


def _moved(at: int, missed: list[Change]) -> int:
    """Where a place is after the missed changes; of two texts added at one place the earlier one comes first."""
    for change in missed:
        start = change["at"]
        if change["add"]:
            at += len(change["add"]) if start <= at else 0
        elif start < at:
            at = max(start, at - change["remove"])
    return at


def _parts(found: Range, change: Change) -> list[Range]:
    """What is left of a range of characters after a change: none, one part, or two around a text in between."""
    (first, end), at, added = found, change["at"], len(change["add"])
    if added:
        if at <= first:
            return [(first + added, end + added)]
        return [(first, at), (at + added, end + added)] if at < end else [found]
    gone = at + change["remove"]
    before = max(0, min(end, at) - first)
    behind = max(0, end - max(first, gone))
    start = first if first <= at else max(at, first - change["remove"])
    return [(start, start + before + behind)] if before + behind else []


def made(text: str, changes: list[Change]) -> str:
    """The text after these changes."""
    for change in changes:
        at = change["at"]
        text = text[:at] + change["add"] + text[at + change["remove"] :]
    return text


class CollaborativeDocument(Module):
    """An edit is {"id", "doc", "version", "at"} and either "add": a text, or "remove": a number of characters.

    A version is the number of changes that were made before; the text of version 0 is empty. The id of an edit is its
    author's; an edit that is sent again is made once.
    """

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*edits", Depot.hash_by("doc")).schema(EDIT)
        mb = topologies.microbatch("documents")
        mb.pstate("$$texts", PState.map_schema(str, str))
        mb.pstate("$$changes", PState.map_schema(str, PState.list_schema(CHANGE).subindexed()))

        size = Path.key("*doc").view(Ops.SIZE)
        (mb.source("*edits", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*edit")
           .keep_true(Expr(is_whole, "*edit"))
           .each(Ops.GET, "*edit", "doc").out("*doc")
           .each(Ops.GET, "*edit", "version").out("*version")
           .local_select("$$changes", size).out("*latest")
           .keep_true(Expr(Ops.LESS_THAN_OR_EQUAL, "*version", "*latest"))
           .local_select("$$changes", Path.key("*doc").sublist("*version", "*latest")).out("*missed")
           .local_select("$$texts", Path.key("*doc").null_to_val("")).out("*text")
           .each(transformed, "*edit", "*missed", Expr(Ops.SIZE, "*text")).out("*made")
           .local_transform("$$changes", Path.key("*doc").end().term_val("*made"))
           .local_transform("$$texts", Path.key("*doc").term_val(Expr(made, "*text", "*made"))))  # fmt: skip

        # The text with its version, of one moment; and what others changed since a version.
        (topologies.query("document", "*doc").out("*document")
            .hash_partition("*doc")
            .local_select("$$texts", Path.key("*doc").null_to_val("")).out("*text")
            .local_select("$$changes", size).out("*version")
            .origin_partition()
            .each(lambda *found: dict(zip(("text", "version"), found, strict=True)), "*text", "*version")
            .out("*document"))  # fmt: skip
        (topologies.query("since", "*doc", "*version").out("*changes")
            .hash_partition("*doc")
            .local_select("$$changes", size).out("*latest")
            .local_select("$$changes", Path.key("*doc").sublist("*version", "*latest")).out("*found")
            .origin_partition()
            .each(Ops.IDENTITY, "*found").out("*changes"))  # fmt: skip
