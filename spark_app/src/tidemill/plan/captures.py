"""The captures of an aggregation: variables for the new values of keys, read when a batch block has aggregated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Nav, RecordedPath
from tidemill.language.schema import FixedKeysSchema, ListSchema, MapSchema, Schema


@dataclass(frozen=True)
class Capture:
    """`out` takes what is at `path` after the aggregation."""

    out: str
    path: RecordedPath

    @property
    def keys(self) -> tuple[df.Arg, ...]:
        """The keys on the way that rows decide, from the top."""
        return tuple(arg for nav in self.path.navs for arg in nav.args if not isinstance(arg, df.Const))


def captures_of(tree: df.AggTree, navs: tuple[Nav, ...] = ()) -> Iterator[Capture]:
    """The captures of an aggregator tree, from left to right."""
    if isinstance(tree, df.AggMap):
        for key, inner in tree.entries:
            yield from captures_of(inner, (*navs, Nav("key", (key,))))
    elif isinstance(tree, df.AggList):
        for index, inner in enumerate(tree.items):
            yield from captures_of(inner, (*navs, Nav("nth", (df.Const(index),))))
    elif tree.capture is not None:
        yield Capture(tree.capture, RecordedPath(navs))


def captured_keys(captures: Sequence[Capture]) -> tuple[df.Arg, ...] | None:
    """The keys of all captures; None where one of them branches off from the others."""
    longest = max((capture.keys for capture in captures), key=len, default=())
    is_chain = all(capture.keys == longest[: len(capture.keys)] for capture in captures)
    return longest if is_chain else None


def schema_at(schema: Schema | None, path: RecordedPath) -> Schema | None:
    """The schema of what a capture's path leads to; None inside a plain value."""
    for nav in path.navs:
        if isinstance(schema, MapSchema):
            schema = schema.value
        elif isinstance(schema, FixedKeysSchema) and isinstance(nav.args[0], df.Const):
            schema = schema.field(nav.args[0].value)
        else:
            schema = schema.element if isinstance(schema, ListSchema) else None
    return schema
