"""Modules that raise at records of every kind of source; in a file of their own, so that workers import them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lines_depot import LinesDepot

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, PState

Kind = Literal["own", "mirrored", "external", "migrated", "mirrored and migrated"]
KINDS: tuple[Kind, ...] = ("own", "mirrored", "external", "migrated", "mirrored and migrated")
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


class Liked:
    """A record [key, number], unless the number is below zero and the file `mended` is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, record: Any) -> Any:
        if record[1] < 0 and not (self.folder / "mended").exists():
            raise ValueError(f"{record[0]} has {record[1]}")
        return record


class WithUnit:
    """A migration: it gives records a unit, takes those of zero away, and raises at those above 1,000."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, record: Any) -> Any:
        if record[1] > 1_000 and not (self.folder / "mended").exists():
            raise ValueError(f"{record[1]} is too large")
        if record[1] == 0:
            return Depot.TOMBSTONE
        return record if len(record) == 3 else [*record, "EUR"]


class Owner(Module):
    """Has a depot of pairs, which are migrated where `folder` is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def module_name(self) -> str:
        return "Owner"

    def define(self, setup: Any, topologies: Any) -> None:
        declared(setup, self.folder)


def declared(setup: Any, folder: Path | None) -> None:
    depot = setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
    if folder is not None:
        depot.migration("unit", WithUnit(folder))


class Picky(Module):
    """Counts pairs by key, and puts those that it does not like into quarantine; `lines` has those from outside."""

    def __init__(self, kind: Kind, folder: Path, **options: Any) -> None:
        self.kind, self.folder, self.options = kind, folder, options

    def module_name(self) -> str:
        return "Picky"

    def define(self, setup: Any, topologies: Any) -> None:
        self._declare_source(setup)
        for name, value in {"on.record.error": "quarantine", **self.options}.items():
            setup.set_launch_module_dynamic_option(f"topology.{name}", value)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        rows = mb.source("*pairs", BEGINNING).out("*batch").explode_microbatch("*batch").out("*record")
        rows = rows.each(Liked(self.folder), "*record").out("*liked").each(Ops.FIRST, "*liked").out("*key")
        rows.hash_partition("*key").compound_agg("$$counts", CompoundAgg.map("*key", Agg.count()))

    def _declare_source(self, setup: Any) -> None:
        folder = self.folder if "migrated" in self.kind else None
        if "mirrored" in self.kind:
            setup.cluster_depot("*pairs", "Owner" if folder is None else Owner(folder), "*pairs")
        elif self.kind == "external":
            setup.declare_object("*pairs", LinesDepot(self.folder))
        else:
            declared(setup, folder)
