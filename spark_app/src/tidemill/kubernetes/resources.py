"""What a driver reads of its Module and Topology: where sources start, options, pauses; pure functions on documents."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidemill.definition.definition import StoredDefinition, StoredTopology
from tidemill.journal.options_log import PAUSED
from tidemill.kubernetes.api import Document
from tidemill.language import options
from tidemill.language.dataflow import StartFrom
from tidemill.language.options import Option, OptionTarget, Scope
from tidemill.values.errors import BadInput, OptionError

_UNIT_MILLIS: Final = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}


@dataclass(frozen=True)
class Wanted:
    """The settings that a resource names, and what is wrong with those that were left out."""

    settings: Mapping[OptionTarget, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


def active_revision(module: Document | None) -> int:
    """The revision that may lead, 0 if none."""
    status = (module or {}).get("status") or {}
    return int(status.get("activeRevision") or 0)


def current_revision(module: Document | None) -> int:
    """The newest revision that is stable, 0 if none."""
    status = (module or {}).get("status") or {}
    return int(status.get("currentRevision") or 0)


# --- where sources start ---------------------------------------------------------------------------------------------


def with_starts(
    definition: StoredDefinition, name: str, module: Document | None, topology: Document | None
) -> StoredDefinition:
    """The definition with the places where a Topology, else its Module's defaults, else the code let sources start.

    Raises:
        BadInput: a place is not one.
    """
    defaults = ((_spec(module).get("topologyDefaults") or {}).get(name) or {}).get("sources")
    starts = {**_starts(defaults), **_starts(_spec(topology).get("sources"))}
    stored = definition.topology(name)
    sources = tuple(replace(s, start_from=starts.get(s.depot, s.start_from)) for s in stored.sources)
    changed: dict[str, StoredTopology] = {**definition.topologies, name: replace(stored, sources=sources)}
    return replace(definition, topologies=changed)


def _starts(sources: Any) -> dict[str, StartFrom]:
    """By depot; depots are named as in the code, with or without their star."""
    found = {}
    for depot, source in (sources or {}).items():
        if (source or {}).get("startFrom") is not None:
            found[f"*{depot.lstrip('*')}"] = start_from(source["startFrom"])
    return found


def start_from(given: Mapping[str, Any]) -> StartFrom:
    """`{end: {}}`, `{beginning: {}}`, `{offsetAfterTimestamp: <RFC 3339>}` or `{offsetAgo: {count, unit}}`.

    Raises:
        BadInput: it is none of these.
    """
    named = [key for key in given if given[key] is not None]
    if named in (["end"], ["beginning"]):
        return StartFrom("end" if named == ["end"] else "beginning")
    if named == ["offsetAfterTimestamp"]:
        return StartFrom("after_timestamp", _millis(str(given["offsetAfterTimestamp"])))
    if named == ["offsetAgo"]:
        count, unit = int(given["offsetAgo"]["count"]), str(given["offsetAgo"]["unit"]).lower()
        if unit == "records":
            return StartFrom("ago_records", count)
        if unit in _UNIT_MILLIS:
            return StartFrom("ago_millis", count * _UNIT_MILLIS[unit])
    raise BadInput(f"{json.dumps(dict(given))} is no place to start from.")


def _millis(text: str) -> int:
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"'{text}' is no time; write it like 2026-08-01T00:00:00Z.") from error
    return int((time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


# --- options ---------------------------------------------------------------------------------------------------------


def topology_settings(topology: Document, name: str, definition: StoredDefinition) -> Wanted:
    """What a Topology decides: options of depots go to every depot that it reads, also of another module, unless they
    say how much is kept; those of modules go to the module.
    """
    spec = _spec(topology)
    depots = {source.depot for source in definition.topology(name).sources}
    regular = sorted(depot for depot in depots if definition.source_depot(depot).tick_millis is None)

    def places(option: Option) -> list[tuple[Scope, str]]:
        if option.scope != "depot":
            return [(option.scope, name if option.scope == "topology" else "")]
        found = [depot for depot in regular if not (option.is_of_owner and depot in definition.mirrors)]
        if not found and regular:
            definition.optioned_depot(regular[0], [option.name])
        if not found:
            raise OptionError(
                f"{option.name} has no effect: {name} reads no depot that has records", option=option.name
            )
        return [("depot", depot) for depot in found]

    found = _checked(spec.get("options"), places)
    if spec.get("paused") is None:
        return found
    return replace(found, settings={**found.settings, ("topology", name, PAUSED): bool(spec["paused"])})


def module_settings(module: Document) -> Wanted:
    """What a Module decides for all of its objects."""
    return _checked(_spec(module).get("options"), lambda _: [("module", "")])


def _checked(given: Any, places: Callable[[Option], list[tuple[Scope, str]]]) -> Wanted:
    """Options that a resource names, at the places that they have; what is wrong with one leaves only that one out."""
    settings: dict[OptionTarget, Any] = {}
    faults = []
    for name, value in (given or {}).items():
        try:
            option = options.find_option(name)
            checked = options.check_value(name, _typed(value, option.type))
            settings |= {(scope, target, name): checked for scope, target in places(option)}
        except OptionError as error:
            faults.append(str(error))
    return Wanted(settings, tuple(faults))


def _typed(value: Any, kind: str) -> Any:
    """Fractions travel as text, because a schema cannot say `int or fraction`."""
    if kind == "str" or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _spec(document: Document | None) -> Document:
    return (document or {}).get("spec") or {}
