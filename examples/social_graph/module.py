"""People follow each other; what they post is delivered to the timelines of all their followers, in pages."""

from __future__ import annotations

from typing import Any

from tidemill import (
    Agg,
    Block,
    Depot,
    Expr,
    LoopVars,
    MicrobatchSourceOptions,
    MicrobatchTopology,
    Module,
    Ops,
    Path,
    PState,
    Setup,
    Topologies,
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
FOLLOW = PState.fixed_keys_schema("from", str, "to", str, "follows", bool)
POST = PState.fixed_keys_schema("id", int, "author", str, "text", str)
DELIVERY = PState.fixed_keys_schema("id", int, "author", str, "after", str)
SUGGESTIONS = 5


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


def delivery(number: int, author: str, after: str) -> dict[str, Any]:
    return {"id": number, "author": author, "after": after}


def newest_first(posts: list[list[Any]]) -> list[dict[str, Any]]:
    return [{"id": number, "author": author, "text": text} for number, author, text in sorted(posts, reverse=True)]


def best(counts: dict[str, int] | None) -> list[str]:
    """The names that were met most often; of equal ones the first in the alphabet. None where nobody was met."""
    return [name for name, _ in sorted((counts or {}).items(), key=lambda item: (-item[1], item[0]))[:SUGGESTIONS]]


class SocialGraph(Module):
    """Ids of posts are whole numbers that grow with time; names are not empty.

    A microbatch delivers a post to at most `page * pages` followers, and goes on with the others in the next one.
    A timeline keeps the newest `kept` posts.
    """

    def __init__(self, page: int = 100, pages: int = 10, kept: int = 800) -> None:
        self.page, self.pages, self.kept = page, pages, kept

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*follows", Depot.hash_by("from")).schema(FOLLOW)
        setup.declare_depot("*posts", Depot.hash_by("author")).schema(POST)
        setup.declare_depot("*deliveries", Depot.disallow()).schema(DELIVERY)
        mb = topologies.microbatch("social")
        mb.pstate("$$following", PState.map_schema(str, PState.set_schema(str).subindexed()))
        mb.pstate("$$followers", PState.map_schema(str, PState.set_schema(str).subindexed()))
        mb.pstate("$$posts", PState.map_schema(str, PState.map_schema(int, str).subindexed()))
        mb.pstate("$$timelines", PState.map_schema(str, PState.map_schema(int, str).subindexed()))
        self._define_follows(mb)
        self._define_posts(mb)
        self._define_timeline(topologies)
        self._define_suggestions(topologies)

    def _define_follows(self, mb: MicrobatchTopology) -> None:
        """Rows of one pair keep their order on the way, so that the last word counts on both tasks."""

        def put(pstate: str, key: str, element: str) -> Block:
            return Block.if_true(
                "*follows",
                Block.local_transform(pstate, Path.key(key).void_set_elem().term_val(element)),
                Block.local_transform(pstate, Path.key(key).set_elem(element).term_void()),
            )

        (mb.source("*follows", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*follow")
           .macro(fields, "*follow", "from", "to", "follows")
           .keep_true(Expr(Ops.AND, "*from", "*to", Expr(Ops.IS_NOT_NULL, "*follows")))
           .keep_true(Expr(Ops.NOT_EQUAL, "*from", "*to"))
           .macro(put("$$following", "*from", "*to"))
           .hash_partition("*to")
           .macro(put("$$followers", "*to", "*from")))  # fmt: skip

    def _define_posts(self, mb: MicrobatchTopology) -> None:
        (mb.source("*posts", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*post")
           .macro(fields, "*post", "id", "author", "text")
           .keep_true(Expr(Ops.AND, "*id", "*author", "*text"))
           .local_select("$$posts", Path.key("*author", "*id")).out("*known")
           .keep_true(Expr(Ops.IS_NULL, "*known"))
           .local_transform("$$posts", Path.key("*author", "*id").term_val("*text"))
           .macro(self._deliver, ""))  # fmt: skip
        (mb.source("*deliveries", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*delivery")
           .macro(fields, "*delivery", "id", "author", "after")
           .macro(self._deliver, "*after"))  # fmt: skip

    def _deliver(self, block: Block, after: str) -> Block:
        """Deliver post `*id` of `*author` to the followers behind `after`; the row is on the task of the author."""
        followers = Path.key("*author").sorted_set_range_from("*last", max_amt=self.page, include_start=False)
        page = (
            Block.local_select("$$followers", followers).out("*page")
            .each(Ops.SIZE, "*page").out("*size")
            .if_true(
                Expr(Ops.EQUAL, "*size", self.page),
                Block.each(max, "*page").out("*next").if_true(
                    Expr(Ops.GREATER_THAN, "*left", 1),
                    Block.continue_loop("*next", Expr(Ops.DEC, "*left")),
                    Block.depot_partition_append("*deliveries", Expr(delivery, "*id", "*author", "*next")),
                ),
            )
            .each(Ops.EXPLODE, "*page").out("*one")
            .emit_loop("*one")
        )  # fmt: skip
        timeline = Path.key("*follower")
        surplus = timeline.sorted_map_range_from_start(1)
        return (
            block.loop_with_vars(LoopVars.var("*last", after).var("*left", self.pages), page).out("*follower")
            .hash_partition("*follower")
            .local_transform("$$timelines", timeline.key("*id").term_val("*author"))
            .local_select("$$timelines", timeline.view(Ops.SIZE)).out("*kept")
            .if_true(
                Expr(Ops.GREATER_THAN, "*kept", self.kept),
                Block.local_transform("$$timelines", surplus.term_val({})),
            )
        )  # fmt: skip

    def _define_timeline(self, topologies: Topologies) -> None:
        """The newest posts before an id, without those of people whom the user does not follow any more."""
        (topologies.query("timeline", "*user", "*before", "*limit").out("*posts")
            .hash_partition("*user")
            .local_select("$$timelines", Path.key("*user").sorted_map_range_to("*before", max_amt="*limit")).out("*ids")
            .each(Ops.EXPLODE_MAP, "*ids").out("*id", "*author")
            .local_select("$$following", Path.key("*user").set_elem("*author")).out("*followed")
            .select("$$posts", Path.key("*author", "*id")).out("*text")
            .each(Ops.TUPLE, "*id", "*author", "*text").out("*post")
            .origin_partition()
            .agg(Agg.list("*post")).out("*found")
            .each(newest_first, "*found").out("*posts"))  # fmt: skip

    def _define_suggestions(self, topologies: Topologies) -> None:
        """Whom those follow whom the user follows."""
        (topologies.query("suggestions", "*user").out("*names")
            .select("$$following", Path.key("*user").subselect(Path.all())).out("*known")
            .each(Ops.EXPLODE, "*known").out("*friend")
            .select("$$following", Path.key("*friend").all()).out("*name")
            .keep_true(Expr(Ops.NOT_EQUAL, "*name", "*user"))
            .keep_true(Expr(Ops.NOT, Expr(Ops.CONTAINS, "*known", "*name")))
            .origin_partition()
            .agg(Agg.multi_set("*name")).out("*counts")
            .each(best, "*counts").out("*names"))  # fmt: skip
