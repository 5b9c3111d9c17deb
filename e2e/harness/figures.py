"""Measured figures: gathered while stories run, kept in `e2e/results.json`, shown in `docs/kubernetes/promises.md`."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "e2e/results.json"
PAGE = ROOT / "docs/kubernetes/promises.md"
SLACK = float(os.environ.get("E2E_SLACK", "1"))
"""How many times a bound a story bears: on a machine that others share, a slow hour is no fault."""
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Figure:
    """One measured value of a story; `bound` is what is promised, None where nothing is."""

    name: str
    value: float
    unit: str
    bound: float | None
    story: str
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value is within its bound."""
        return self.bound is None or self.value <= self.bound

    @property
    def is_borne(self) -> bool:
        """Whether the story passes: within the bound, or within `E2E_SLACK` times of it."""
        return self.bound is None or self.value <= self.bound * SLACK

    @property
    def command(self) -> str:
        """What measures it again."""
        return f"make e2e STORIES={self.story}"

    def __str__(self) -> str:
        bound = "" if self.bound is None else f" (bound {self.bound:g}{'' if self.holds else ', BROKEN'})"
        return f"{self.name}: {self.value:.4g} {self.unit}{bound}{', ' + self.note if self.note else ''}"


class Figures:
    """The figures of one run of pytest."""

    def __init__(self) -> None:
        self.measured: list[Figure] = []

    def add(self, figure: Figure) -> Figure:
        """Keeps it, at once: an interrupted run loses nothing that it measured."""
        self.measured.append(figure)
        _save(figure)
        return figure


def _save(figure: Figure) -> None:
    saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"figures": {}}
    entry = asdict(figure) | {"holds": figure.holds, "command": figure.command}
    entry |= {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    saved["figures"][figure.name] = entry
    RESULTS.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def machine() -> str:
    """Cores and kind of this machine."""
    return f"{os.cpu_count()} cores, {platform.machine()}"


def write_page() -> None:
    """Renews the table of `promises.md` from the saved figures."""
    saved = json.loads(RESULTS.read_text())["figures"] if RESULTS.exists() else {}
    lines = ["| figure | measured | bound | holds | note | command |", "| --- | --- | --- | --- | --- | --- |"]
    for name, entry in saved.items():
        bound = "" if entry["bound"] is None else f"<= {entry['bound']:g} {entry['unit'].partition('of ')[0]}".rstrip()
        holds = "" if entry["bound"] is None else ("yes" if entry["holds"] else "**no**")
        value = f"{entry['value']:.4g} {entry['unit']}"
        lines.append(f"| {name} | {value} | {bound} | {holds} | {entry['note']} | `{entry['command']}` |")
    text = PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}")
