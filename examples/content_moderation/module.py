"""Posts on walls, shown to each reader without those of muted users, and without those that have a muted word."""

from __future__ import annotations

import re
from typing import Any

from tidemill import (
    Block,
    Depot,
    Expr,
    LoopVars,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
    Setup,
    Topologies,
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
POST = PState.fixed_keys_schema("wall", str, "author", str, "text", str)
MUTE = PState.fixed_keys_schema("reader", str, "kind", str, "what", str, "muted", bool)
KINDS = ("user", "word")


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


def as_met(kind: str, what: str) -> str:
    """Words are met in small letters, users as they are written."""
    return what.lower() if kind == "word" else what


def shown(page: list[dict[str, Any]], start: int, users: list[str], words: list[str]) -> list[dict[str, Any]]:
    """The posts of a page that no mute hides, the newest first, each with its index; the page begins at `start`."""
    found = [
        {"index": start + index, **post}
        for index, post in enumerate(page)
        if post["author"] not in users and not set(words) & set(re.findall(r"\w+", post["text"].lower()))
    ]
    return found[::-1]


def answer(posts: list[dict[str, Any]], wanted: int, start: int) -> dict[str, Any]:
    """`next` is the `*before` of the next page, None at the end of the wall; what is behind `start` was read."""
    end = posts[wanted - 1]["index"] if len(posts) >= wanted else start
    return {"posts": posts[:wanted], "next": end or None}


class ContentModeration(Module):
    """A mute is {"reader": who, "kind": "user" or "word", "what": name or word, "muted": true, or false to undo it}."""

    def __init__(self, page: int = 50) -> None:
        self.page = page

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*posts", Depot.hash_by("wall")).schema(POST)
        setup.declare_depot("*mutes", Depot.hash_by("reader")).schema(MUTE)
        mb = topologies.microbatch("moderation")
        post = PState.fixed_keys_schema("author", str, "text", str)
        mb.pstate("$$walls", PState.map_schema(str, PState.list_schema(post).subindexed()))
        mb.pstate("$$mutes", PState.map_schema(str, PState.map_schema(str, PState.set_schema(str).subindexed())))

        (mb.source("*posts", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*post")
           .macro(fields, "*post", "wall", "author", "text")
           .keep_true(Expr(Ops.AND, "*wall", "*author", "*text"))
           .each(lambda author, text: {"author": author, "text": text}, "*author", "*text").out("*stored")
           .local_transform("$$walls", Path.key("*wall").after_elem().term_val("*stored")))  # fmt: skip

        muted = Path.key("*reader", "*kind")
        (mb.source("*mutes", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*mute")
           .macro(fields, "*mute", "reader", "kind", "what", "muted")
           .keep_true(Expr(Ops.AND, "*reader", "*what", Expr(Ops.CONTAINS, KINDS, "*kind")))
           .keep_true(Expr(Ops.IS_NOT_NULL, "*muted"))
           .each(as_met, "*kind", "*what").out("*met")
           .if_true(
               "*muted",
               Block.local_transform("$$mutes", muted.void_set_elem().term_val("*met")),
               Block.local_transform("$$mutes", muted.set_elem("*met").term_void())))  # fmt: skip

        # Pages of the wall, the newest first, until enough posts are found, or the wall ends.
        pages = (
            Block.each(lambda end, page=self.page: max(0, end - page), "*end").out("*start")
            .local_select("$$walls", Path.key("*wall").sublist("*start", "*end")).out("*page")
            .each(Ops.PLUS, "*posts", Expr(shown, "*page", "*start", "*users", "*words")).out("*more")
            .if_true(
                Expr(Ops.OR, Expr(Ops.EQUAL, "*start", 0),
                     Expr(Ops.GREATER_THAN_OR_EQUAL, Expr(Ops.SIZE, "*more"), "*wanted")),
                Block.emit_loop("*more", "*start"),
                Block.continue_loop("*start", "*more"),
            )
        )  # fmt: skip
        (topologies.query("wall", "*reader", "*wall", "*before", "*limit").out("*answer")
            .hash_partition("*reader")
            .local_select("$$mutes", Path.key("*reader", "user").subselect(Path.all())).out("*users")
            .local_select("$$mutes", Path.key("*reader", "word").subselect(Path.all())).out("*words")
            .hash_partition("*wall")
            .local_select("$$walls", Path.key("*wall").view(Ops.SIZE)).out("*size")
            .each(lambda size, before: size if before is None else max(0, min(size, before)), "*size", "*before")
            .out("*last")
            .each(max, 1, "*limit").out("*wanted")
            .loop_with_vars(LoopVars.var("*end", "*last").var("*posts", []), pages).out("*found", "*from")
            .origin_partition()
            .each(answer, "*found", "*wanted", "*from").out("*answer"))  # fmt: skip
