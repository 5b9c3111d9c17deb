"""Definitions as JSON, as `<module>/definition/<n>.json` holds them: their fields, but for what is no plain data.

Schemas have a form of their own (`language.schema`), an initial value is MessagePack in hexadecimal digits, and a
retired object says of which kind it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from tidemill.definition.stored import (
    FORMAT,
    StoredDefinition,
    StoredDepot,
    StoredPState,
    StoredSource,
    StoredTopology,
)
from tidemill.language import schema as schemas
from tidemill.store.json_codec import JsonCodec
from tidemill.values import packing

_KINDS: Final[dict[str, Any]] = {
    "depot": StoredDepot, "pstate": StoredPState, "source": StoredSource, "topology": StoredTopology,
}  # fmt: skip


def _to_stored(definition: StoredDefinition) -> StoredDefinition:
    return replace(
        definition,
        depots={name: _plain(depot) for name, depot in definition.depots.items()},
        topologies={name: _plain(topology) for name, topology in definition.topologies.items()},
        retired=tuple(replace(gone, item=_named(gone.item)) for gone in definition.retired),
    )


def _from_stored(definition: StoredDefinition) -> StoredDefinition:
    return replace(
        definition,
        depots={name: _whole(depot) for name, depot in definition.depots.items()},
        topologies={name: _whole(topology) for name, topology in definition.topologies.items()},
        retired=tuple(replace(gone, item=_unnamed(gone.item)) for gone in definition.retired),
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
            packed = packing.pack(item.initial_value).hex()
            return replace(item, schema=schemas.to_json(item.schema), initial_value=packed)
        case StoredTopology():
            return replace(item, pstates={name: _plain(pstate) for name, pstate in item.pstates.items()})
    return item


def _whole(item: Any) -> Any:
    """The inverse of `_plain`."""
    match item:
        case StoredDepot():
            return replace(item, schema=None if item.schema is None else schemas.from_json(item.schema))
        case StoredPState():
            initial = packing.unpack(bytes.fromhex(item.initial_value))
            return replace(item, schema=schemas.from_json(item.schema), initial_value=initial)
        case StoredTopology():
            return replace(item, pstates={name: _whole(pstate) for name, pstate in item.pstates.items()})
    return item


JSON: Final = JsonCodec(StoredDefinition, FORMAT, _to_stored, _from_stored)
