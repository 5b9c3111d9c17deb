"""Measured figures: gathered while stories run, and kept in a file outside the checkout.

`make promises` brings them into `e2e/results.json` and `docs/kubernetes/promises.md`; a run alone changes no file of
the project.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.cluster.plan import cache_folder

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "e2e/results.json"
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


def kept() -> Path:
    """The file that runs write to."""
    return cache_folder() / "e2e/results.json"


def _save(figure: Figure) -> None:
    entry = asdict(figure) | {"holds": figure.holds, "command": figure.command}
    entry |= {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    kept().parent.mkdir(parents=True, exist_ok=True)
    _write(kept(), _read(kept()) | {figure.name: entry})


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def _write(path: Path, figures: Mapping[str, Any]) -> None:
    path.write_text(json.dumps({"figures": figures}, indent=2, sort_keys=True) + "\n")


def publish() -> None:
    """Brings what was measured into the project: its results and its page."""
    _write(PUBLISHED, _read(PUBLISHED) | _read(kept()))
    write_page()


def machine() -> str:
    """Cores and kind of this machine."""
    return f"{os.cpu_count()} cores, {platform.machine()}"


def write_page() -> None:
    """Renews the table of `promises.md` from the saved figures."""
    saved = dict(sorted(_read(PUBLISHED).items()))
    lines = ["| figure | measured | bound | holds | note | command |", "| --- | --- | --- | --- | --- | --- |"]
    for name, entry in saved.items():
        bound = "" if entry["bound"] is None else f"<= {entry['bound']:g} {entry['unit'].partition('of ')[0]}".rstrip()
        holds = "" if entry["bound"] is None else ("yes" if entry["holds"] else "**no**")
        value = f"{entry['value']:.4g} {entry['unit']}"
        lines.append(f"| {name} | {value} | {bound} | {holds} | {entry['note']} | `{entry['command']}` |")
    text = PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}")
