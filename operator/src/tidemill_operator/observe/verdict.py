"""Reads a describe Job's verdict: the last line of its log that is ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemill_operator.resources.reasons import Reason
from tidemill_operator.resources.revision import Verdict

WARNINGS_MAX: Final = 20
WARNING_TEXT_MAX: Final = 500


def parse_verdict(log: str) -> Verdict | None:
    """The verdict in a log; None if there is none, such as when the image has no Tidemill."""
    for line in reversed(log.splitlines()):
        if not line.startswith("{"):
            continue
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("tidemill") == "describe":
            return _verdict(found)
    return None


def _verdict(found: Mapping[str, Any]) -> Verdict:
    definition = found.get("definition") or {}
    return Verdict(
        module=str(found.get("module") or ""),
        base=int(found.get("base") or 0),
        is_valid=bool(found.get("is_valid")),
        faults=tuple(_sentence(fault) for fault in found.get("faults", ())),
        depots=_names(definition, "depots"),
        pstates=_names(definition, "pstates"),
        topologies={item["name"]: _depots(item) for item in definition.get("topologies", ())},
        needs_own_gateway=found.get("gateway") == "module",
        is_owned=found.get("reason") == Reason.OWNED_BY_ANOTHER,
        warnings=_warnings(found.get("warnings", ())),
    )


def _warnings(found: Sequence[Any]) -> tuple[str, ...]:
    """As many as a status may carry; a last one says how many more there are."""
    shown = [_warning(warning)[:WARNING_TEXT_MAX] for warning in found[:WARNINGS_MAX]]
    more = len(found) - len(shown)
    return (*shown, f"and {more} more, which tidemill describe shows") if more else tuple(shown)


def _warning(warning: Mapping[str, Any]) -> str:
    return f"{warning['location']}: {warning['text']} {warning.get('advice', '')}".rstrip()


def _sentence(fault: Any) -> str:
    if not isinstance(fault, Mapping):
        return str(fault)
    text = ": ".join(part for part in (fault.get("subject"), fault.get("text")) if part)
    return f"{text} ({fault['advice']})" if fault.get("advice") else text


def _names(definition: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    return tuple(item["name"] if isinstance(item, Mapping) else str(item) for item in definition.get(kind, ()))


def _depots(topology: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source["depot"] for source in topology.get("sources", ())))
