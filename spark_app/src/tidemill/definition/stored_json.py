"""Definitions as JSON, as `<module>/definition/<n>.json` holds them.

Keys that are only there where they say something came later: a definition without them is what it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.definition.ownership import BY_HAND, Owner
from tidemill.definition.stored import (
    RetiredItem,
    Retirement,
    StoredDefinition,
    StoredDepot,
    StoredPState,
    StoredSource,
    StoredTopology,
)
from tidemill.language import schema as schemas
from tidemill.language.dataflow import StartFrom, StartFromKind
from tidemill.values import packing


def to_json(definition: StoredDefinition) -> dict[str, Any]:
    """The definition as the store keeps it."""
    return {
        "format_level": definition.format_level,
        "number": definition.number,
        "nonce": definition.nonce,
        "written_ms": definition.written_ms,
        "is_destroyed": definition.is_destroyed,
        "module": definition.module,
        "tasks": definition.tasks,
        "threads": definition.threads,
        "depots": [_depot_json(depot) for depot in definition.depots.values()],
        "topologies": [_topology_json(topology) for topology in definition.topologies.values()],
        "options": [list(setting) for setting in definition.options],
        **({"revision": definition.revision} if definition.revision else {}),
        **({"retired": [_retirement_json(gone) for gone in definition.retired]} if definition.retired else {}),
        **({"garbage": list(definition.garbage)} if definition.garbage else {}),
        **({"owner": dict(vars(definition.owner))} if definition.owner != BY_HAND else {}),
    }


def _retirement_json(gone: Retirement) -> dict[str, Any]:
    kind, item = _item_json(gone.item)
    return {"by": gone.by, kind: item, **({"topology": gone.topology} if gone.topology else {})}


def _item_json(item: RetiredItem) -> tuple[str, Any]:
    match item:
        case StoredDepot():
            return "depot", _depot_json(item)
        case StoredPState():
            return "pstate", _pstate_json(item)
        case StoredSource():
            return "source", [*_source_json(item), item.since]
        case StoredTopology():
            return "whole", _topology_json(item)


def _depot_json(depot: StoredDepot) -> dict[str, Any]:
    known = {name: value for name, value in vars(depot).items() if name not in ("fields", "schema")}
    if depot.fields:
        known["fields"] = list(depot.fields)
    if depot.schema is not None:
        known["schema"] = schemas.to_json(depot.schema)
    return known


def _topology_json(topology: StoredTopology) -> dict[str, Any]:
    since = {source.source_id: source.since for source in topology.sources if source.since}
    return {
        "name": topology.name,
        "id": topology.id,
        "pstates": [_pstate_json(pstate) for pstate in topology.pstates.values()],
        "sources": [_source_json(source) for source in topology.sources],
        **({"since": since} if since else {}),
    }


def _source_json(source: StoredSource) -> list[Any]:
    return [source.source_id, source.depot, source.start_from.kind, source.start_from.amount]


def _pstate_json(pstate: StoredPState) -> dict[str, Any]:
    initial = packing.pack(pstate.initial_value).hex()
    return {**vars(pstate), "schema": schemas.to_json(pstate.schema), "initial_value": initial}


def from_json(data: Mapping[str, Any]) -> StoredDefinition:
    """The inverse of `to_json`."""
    return StoredDefinition(
        module=data["module"],
        tasks=data["tasks"],
        threads=data["threads"],
        depots={depot["name"]: _depot_from(depot) for depot in data["depots"]},
        topologies={topology["name"]: _topology_from(topology) for topology in data["topologies"]},
        number=data["number"],
        format_level=data["format_level"],
        nonce=data["nonce"],
        written_ms=data["written_ms"],
        is_destroyed=data["is_destroyed"],
        options=tuple((scope, target, name, value) for scope, target, name, value in data["options"]),
        revision=data.get("revision", 0),
        retired=tuple(_retirement_from(gone) for gone in data.get("retired", ())),
        garbage=tuple(data.get("garbage", ())),
        owner=Owner(**data.get("owner", {})),
    )


def _retirement_from(data: Mapping[str, Any]) -> Retirement:
    item: RetiredItem
    if "depot" in data:
        item = _depot_from(data["depot"])
    elif "pstate" in data:
        item = _pstate_from(data["pstate"])
    elif "source" in data:
        item = _source_from(*data["source"])
    else:
        item = _topology_from(data["whole"])
    return Retirement(data["by"], item, data.get("topology", ""))


def _depot_from(data: Mapping[str, Any]) -> StoredDepot:
    schema = schemas.from_json(data["schema"]) if "schema" in data else None
    return StoredDepot(**{**data, "fields": tuple(data.get("fields", ())), "schema": schema})


def _topology_from(data: Mapping[str, Any]) -> StoredTopology:
    pstates = {pstate["name"]: _pstate_from(pstate) for pstate in data["pstates"]}
    since = data.get("since", {})
    sources = tuple(replace(_source_from(*source), since=since.get(source[0], 0)) for source in data["sources"])
    return StoredTopology(data["name"], data["id"], pstates, sources)


def _pstate_from(data: Mapping[str, Any]) -> StoredPState:
    initial = packing.unpack(bytes.fromhex(data["initial_value"]))
    return StoredPState(**{**data, "schema": schemas.from_json(data["schema"]), "initial_value": initial})


def _source_from(source_id: str, depot: str, kind: StartFromKind, amount: int, since: int = 0) -> StoredSource:
    return StoredSource(source_id, depot, StartFrom(kind, amount), since)
