"""Definitions as JSON, as `<module>/definition/<n>.json` holds them: their fields, but for what is no plain data.

Schemas have a form of their own (`language.schema`), an initial value is MessagePack in hexadecimal digits, and a
retired object says of which kind it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from tidemill.definition.stored import (
    StoredDefinition,
    StoredDepot,
    StoredMirror,
    StoredPState,
    StoredQuery,
    StoredSource,
    StoredTopology,
)
from tidemill.language import schema as schemas
from tidemill.store.json_codec import JsonCodec
from tidemill.values import message_pack

_KINDS: Final[dict[str, Any]] = {
    "depot": StoredDepot, "pstate": StoredPState, "query": StoredQuery, "source": StoredSource,
    "topology": StoredTopology,
}  # fmt: skip


def _to_stored(definition: StoredDefinition) -> StoredDefinition:
    return replace(
        definition,
        depots={name: _plain(depot) for name, depot in definition.depots.items()},
        topologies={name: _plain(topology) for name, topology in definition.topologies.items()},
        retired=tuple(replace(gone, item=_named(gone.item)) for gone in definition.retired),
        mirrors={name: _plain(mirror) for name, mirror in definition.mirrors.items()},
        former=tuple(map(_plain, definition.former)),
    )


def _from_stored(definition: StoredDefinition) -> StoredDefinition:
    return replace(
        definition,
        depots=_whole_by_name(definition.depots),
        topologies=_whole_by_name(definition.topologies),
        queries=_whole_by_name(definition.queries),
        retired=tuple(replace(gone, item=_unnamed(gone.item)) for gone in definition.retired),
        mirrors=_whole_by_name(definition.mirrors),
        former=tuple(map(_whole, definition.former)),
    )


def _named(item: Any) -> Any:
    return {name: _plain(item) for name, kind in _KINDS.items() if isinstance(item, kind)}


def _unnamed(named: Any) -> Any:
    ((name, item),) = named.items()
    return _whole(msgspec.convert(item, _KINDS[name]))


def _plain(item: Any) -> Any:
    """A declared object with plain data in the place of what is none."""
    match item:
        case StoredDepot():
            return replace(item, schema=None if item.schema is None else schemas.to_json(item.schema))
        case StoredPState():
            packed = message_pack.pack(item.initial_value).hex()
            migrations = tuple(replace(made, before=schemas.to_json(made.before)) for made in item.migrations)
            return replace(item, schema=schemas.to_json(item.schema), initial_value=packed, migrations=migrations)
        case StoredTopology():
            return replace(item, pstates={name: _plain(pstate) for name, pstate in item.pstates.items()})
        case StoredMirror():
            return replace(item, item=_named(item.item))
    return item


def _whole(item: Any) -> Any:
    """The inverse of `_plain`."""
    match item:
        case StoredDepot():
            return replace(item, schema=None if item.schema is None else schemas.from_json(item.schema))
        case StoredPState():
            initial = message_pack.unpack(bytes.fromhex(item.initial_value))
            migrations = tuple(replace(made, before=schemas.from_json(made.before)) for made in item.migrations)
            return replace(item, schema=schemas.from_json(item.schema), initial_value=initial, migrations=migrations)
        case StoredTopology():
            return replace(item, pstates=_whole_by_name(item.pstates))
        case StoredMirror():
            return replace(item, item=_unnamed(item.item))
    return item


def _whole_by_name(items: Mapping[str, Any]) -> dict[str, Any]:
    """Objects by the name that each of them holds, too. Raises ValueError: it is another one."""
    for name, item in items.items():
        if item.name != name:
            raise ValueError(f"{name!r} is called {item.name!r} inside")
    return {name: _whole(item) for name, item in items.items()}


JSON: Final = JsonCodec(StoredDefinition, _to_stored, _from_stored)
