"""People register under a name that nobody else has, and edit their profiles."""

from __future__ import annotations

from typing import Any

from tidemill import Block, Depot, Expr, MicrobatchSourceOptions, Module, Ops, Path, PState, Setup, Topologies

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
EDITABLE = ("email", "city", "about")
REGISTRATION = PState.fixed_keys_schema("user", str, "name", str, "email", str)


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


def allowed(edits: dict[str, Any] | None) -> dict[str, Any]:
    """The edits of fields that may be edited; a name is not one of them."""
    return {field: edits[field] for field in EDITABLE if edits and field in edits}


class UserProfiles(Module):
    """A user is known by an id that the registering client makes up (a UUID). A name belongs to one id, for ever."""

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*registrations", Depot.hash_by("name")).schema(REGISTRATION)
        setup.declare_depot("*edits", Depot.hash_by("user")).schema(
            PState.fixed_keys_schema("user", str, "edits", PState.map_schema(str, str))
        )
        mb = topologies.microbatch("profiles")
        mb.pstate("$$names", PState.map_schema(str, str))
        profile = PState.fixed_keys_schema("name", str, "email", str, "city", str, "about", str)
        mb.pstate("$$profiles", PState.map_schema(str, profile))

        (mb.source("*registrations", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*registration")
           .macro(fields, "*registration", "user", "name", "email")
           .keep_true(Expr(Ops.AND, "*user", "*name"))
           # All who want a name meet on its task, one after the other: the first one has it.
           .local_select("$$names", Path.key("*name")).out("*owner")
           .keep_true(Expr(Ops.IS_NULL, "*owner"))
           .local_transform("$$names", Path.key("*name").term_val("*user"))
           .hash_partition("*user")
           .local_transform("$$profiles", Path.key("*user", "name").term_val("*name"))
           .local_transform("$$profiles", Path.key("*user", "email").term_val("*email")))  # fmt: skip

        (mb.source("*edits", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*edit")
           .macro(fields, "*edit", "user", "edits")
           .keep_true("*user")
           .local_select("$$profiles", Path.key("*user", "name")).out("*name")
           .keep_true(Expr(Ops.IS_NOT_NULL, "*name"))
           .each(Ops.EXPLODE_MAP, Expr(allowed, "*edits")).out("*field", "*value")
           .local_transform("$$profiles", Path.key("*user", "*field").term_val("*value")))  # fmt: skip
