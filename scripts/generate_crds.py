"""Writes what of crds/ follows from the registry of options, its copy in the chart, and the reference pages.

`python scripts/generate_crds.py` writes; with `--check` it only says which files are not up to date, and exits 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from generated_page import ROOT, write_or_check

from tidemill.language import options

CRDS = ("crds/module.yaml", "crds/topology.yaml")
IN_CHART = "charts/tidemill/files/"
"""Helm reads no file outside a chart; a link would not be in a packed one."""

REFERENCE = "docs/reference/crds.md"
REASONS = "docs/reference/reasons.md"

_MARKED = re.compile(
    r"^(?P<indent> *)(?P<name>\w+): # generated: (?P<what>\w+)\n(?P<body>.*?)^(?P=indent)# end generated$", re.M | re.S
)


def main() -> int:
    written = {name: generate_crd((ROOT / name).read_text()) for name in CRDS}
    written |= {f"{IN_CHART}{name}": written[name] for name in CRDS}
    written[REFERENCE] = reference(yaml.safe_load(written[name]) for name in CRDS)
    written[REASONS] = reasons_page()
    return max([write_or_check(ROOT / name, text) for name, text in written.items()])


def generate_crd(text: str) -> str:
    """`text` with each marked part made anew."""

    def replace(match: re.Match[str]) -> str:
        indent = match["indent"]
        schema = SCHEMAS[match["what"]]()
        lines = yaml.safe_dump(schema, sort_keys=False, width=110, allow_unicode=True).splitlines()
        body = "\n".join(f"{indent}  {line}" for line in lines)
        return f"{indent}{match['name']}: # generated: {match['what']}\n{body}\n{indent}# end generated"

    return _MARKED.sub(replace, text)


def options_schema() -> dict[str, Any]:
    """A map, not one property an option: a name that does not exist is refused in words instead of dropped."""
    names = sorted(options.OPTIONS)
    lines = [f"{name}: {_described(options.OPTIONS[name])}" for name in names]
    listed = ", ".join(f"'{name}'" for name in names)
    rules = [
        {
            "rule": f"self.all(name, name in [{listed}])",
            "message": f"spec.options: there is no such option; use one of {', '.join(names)}",
        }
    ]
    return {
        "type": "object",
        "maxProperties": len(names),
        "description": (
            "Dynamic options, effective from the next microbatch without a restart. An option named here can not be "
            'changed elsewhere. Fractions are written as texts ("0.5"). ' + " ".join(lines)
        ),
        "additionalProperties": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 64,
        },
        "x-kubernetes-validations": rules + [_rule(options.OPTIONS[name]) for name in names],
    }


def _described(option: options.Option) -> str:
    unit = f" {option.unit}" if option.unit else ""
    default = "not set" if option.default is None else f"{option.default}"
    return f"{option.help} ({_bounds(option)}{unit}; default {default})"


def _bounds(option: options.Option) -> str:
    if option.choices:
        return " | ".join(option.choices)
    if option.type == "bool":
        return "true | false"
    return f"{_number(option.minimum)} to {_number(option.maximum)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10f}".rstrip("0").rstrip(".")


def _rule(option: options.Option) -> dict[str, str]:
    value = f"self['{option.name}']"
    low, high = _number(option.minimum), _number(option.maximum)
    unit = f" {option.unit}" if option.unit else ""
    if option.choices:
        text = f"{' or '.join(option.choices)}"
        fine = f"{value} in [{', '.join(repr(choice) for choice in option.choices)}]"
    elif option.type == "int":
        text = f"a whole number without quotes, {low} to {high}{unit}"
        fine = f"(type({value}) == int && {value} >= {low} && {value} <= {high})"
    elif option.type == "float":
        text = f'a number, {low} to {high}{unit}; a fraction in quotes, such as "0.5"'
        as_text = f"{value}.matches('^[0-9]+([.][0-9]+)?$') && double({value})"
        low, high = f"{float(low)}", f"{float(high)}"
        fine = (
            f"(type({value}) == int ? (double({value}) >= {low} && double({value}) <= {high}) : "
            f"({as_text} >= {low} && double({value}) <= {high}))"
        )
    else:
        text, fine = '"true" or "false"', f"{value} in ['true', 'false']"
    return {"rule": f"!('{option.name}' in self) || {fine}", "message": f"spec.options: {option.name} must be {text}"}


def sources_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": 64,
        "description": (
            "By depot name, where the topology starts to read when it first meets that depot. Later edits have no "
            "effect and say so in an event. Precedence: Topology, the Module's topologyDefaults, the code, end."
        ),
        "additionalProperties": {
            "type": "object",
            "required": ["startFrom"],
            "properties": {"startFrom": _start_from()},
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(depot, depot.startsWith('*') && depot.size() > 1)",
                "message": 'sources: name depots as in the code, with their star, such as "*clicks"',
            }
        ],
    }


def _start_from() -> dict[str, Any]:
    kinds = ("end", "beginning", "offsetAfterTimestamp", "offsetAgo")
    present = ", ".join(f"has(self.{kind})" for kind in kinds)
    return {
        "type": "object",
        "description": "Exactly one of end, beginning, offsetAfterTimestamp and offsetAgo.",
        "properties": {
            "end": {"type": "object", "description": "Records appended from now on: {}."},
            "beginning": {"type": "object", "description": "All records that are there: {}."},
            "offsetAfterTimestamp": {
                "type": "string",
                "format": "date-time",
                "description": "The first record appended after this time, such as 2026-08-01T00:00:00Z.",
            },
            "offsetAgo": {
                "type": "object",
                "required": ["count", "unit"],
                "description": "So many records, or so much time, before the end.",
                "properties": {
                    "count": {
                        "type": "integer",
                        "format": "int64",
                        "minimum": 0,
                        "maximum": 10**12,
                        "description": "How many.",
                    },
                    "unit": {
                        "type": "string",
                        "enum": ["Records", "Seconds", "Minutes", "Hours", "Days"],
                        "description": "Of what.",
                    },
                },
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": f"[{present}].filter(set, set).size() == 1",
                "message": "startFrom: set exactly one of end: {}, beginning: {}, offsetAfterTimestamp and offsetAgo",
            }
        ],
    }


def conditions_schema() -> dict[str, Any]:
    return {
        "type": "array",
        "description": "Ready always; Reconciling and Stalled only while true. Reasons: docs/reference/reasons.md.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "description": "Ready, Reconciling or Stalled."},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it is so."},
                "reason": {"type": "string", "description": "Why, as one word."},
                "message": {"type": "string", "description": "Why, and what to do."},
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when."},
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "The metadata.generation that it is about.",
                },
            },
        },
    }


SCHEMAS = {"options": options_schema, "sources": sources_schema, "conditions": conditions_schema}


def reference(crds: Iterator[Mapping[str, Any]]) -> str:
    """The reference page: each field of each kind, its type, default, bounds and what it says."""
    lines = [
        "# Custom resources",
        "",
        "Made by `scripts/generate_crds.py` from `crds/`; `kubectl explain module.spec --recursive` says the same. "
        "How they work together: [architecture](../kubernetes/architecture.md).",
    ]
    for crd in crds:
        version = crd["spec"]["versions"][0]
        names = crd["spec"]["names"]
        schema = version["schema"]["openAPIV3Schema"]
        lines += ["", f"## {names['kind']} (`kubectl get {names['plural']}`, short `{names['shortNames'][0]}`)", ""]
        lines += [schema["description"], "", "| field | type | default | what it says |", "| --- | --- | --- | --- |"]
        for part in ("spec", "status"):
            lines += list(_rows(part, schema["properties"][part]))
        lines += ["", "Refused with these sentences:", ""]
        lines += [f"- {message}" for message in dict.fromkeys(_messages(schema))]
    return "\n".join(lines) + "\n"


def reasons_page() -> str:
    """The reference page of all reasons of conditions and events."""
    sys.path.insert(0, str(ROOT / "operator/src"))
    from tidemill_operator.resources import reasons

    lines = [
        "# Reasons",
        "",
        "Made by `scripts/generate_crds.py`. Conditions: `Ready` always; `Reconciling` and `Stalled` only while true "
        "(kstatus). Reasons are stable: match on them, not on messages.",
        "",
        "## Of conditions",
        "",
        "| reason | what is so, and who must act |",
        "| --- | --- |",
    ]
    lines += [f"| `{reason}` | {reasons.MEANING[reason]} |" for reason in reasons.Reason]
    lines += ["", "## Of events", "", "| reason | what happened |", "| --- | --- |"]
    lines += [f"| `{reason}` | {reasons.HAPPENING_MEANING[reason]} |" for reason in reasons.Happening]
    return "\n".join(lines) + "\n"


def _rows(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    default = json.dumps(schema["default"]) if schema.get("default") not in (None, {}) else ""
    text = schema.get("description", "").replace("|", "\\|")
    yield f"| `{path}` | {_type(schema)} | {f'`{default}`' if default else ''} | {text} |"
    required = set(schema.get("required", ()))
    for name, child in schema.get("properties", {}).items():
        yield from _rows(f"{path}.{name}" + ("" if name not in required else " *"), child)
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping) and "properties" in values:
        for name, child in values["properties"].items():
            yield from _rows(f"{path}.<name>.{name}", child)
    items = schema.get("items")
    if isinstance(items, Mapping) and "properties" in items:
        for name, child in items["properties"].items():
            yield from _rows(f"{path}[].{name}", child)


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " \\| ".join(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or text"
    kind = schema.get("type", "any")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        return f"{kind} {low}..{high}"
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return f"map of {_type(values)}"
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    return {"string": "text", "boolean": "true \\| false"}.get(kind, str(kind))


def _messages(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for rule in schema.get("x-kubernetes-validations", ()):
            yield rule["message"]
        for child in schema.values():
            yield from _messages(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from _messages(child)


if __name__ == "__main__":
    sys.exit(main())
