"""Count words, keep the most frequent ones, and tell how the words of one microbatch compare with all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
    Setup,
    Topologies,
    operation,
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
TOP = 5


@operation
def words(line: str) -> Iterator[str]:
    """The words of a line, in small letters."""
    yield from re.findall(r"[^\W\d_]+", line.lower())


class WordCount(Module):
    """Records are lines of text."""

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*lines", Depot.random()).schema(str)
        mb = topologies.microbatch("words")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$total", int).global_().initial_value(0)
        mb.pstate("$$top", list).global_()

        counted = (
            Block.explode_microbatch("*microbatch").out("*line")
            .each(words, "*line").out("*word")
            .hash_partition("*word")
            .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count().capture_new_val_into("*count")))
            .materialize("*word", "*count").out("$$changed")
        )  # fmt: skip
        ranked = (
            Block.explode_materialized("$$changed").out("*word", "*count")
            .each(Ops.TUPLE, "*word", "*count").out("*pair")
            .global_partition()
            .agg("$$top", Agg.top_monotonic(TOP, "*pair", id_function=Ops.FIRST, sort_val_function=Ops.LAST))
        )  # fmt: skip
        summed = (
            Block.explode_microbatch("*microbatch").out("*line")
            .each(words, "*line").out("*word")
            .global_partition()
            .agg("$$total", Agg.count())
        )  # fmt: skip
        (mb.source("*lines", BEGINNING).out("*microbatch")
           .batch_block(counted).batch_block(ranked).batch_block(summed))  # fmt: skip

        (topologies.query("share", "*word").out("*share")
            .select("$$counts", Path.key("*word").null_to_val(0)).out("*count")
            .origin_partition()
            .local_select("$$total", Path.stay()).out("*total")
            .each(lambda count, total: count / total if total else 0.0, "*count", "*total").out("*share"))  # fmt: skip
