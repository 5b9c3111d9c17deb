"""What every check of a module needs: its declared objects by name, and the list that faults go to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidemill.language.dataflow import (
    Const,
    DepotDeclaration,
    Location,
    MirrorDeclaration,
    ModuleDeclaration,
    Partition,
    PStateDeclaration,
    QueryDeclaration,
)
from tidemill.values.errors import Fault


@dataclass(frozen=True)
class Temp:
    """A temporary PState: where it is made first, in the chain of which source, and its shape, as a person says it.

    It has a `declaration` where it is aggregated into; else it holds materialized rows of `width` values each.
    """

    at: Location
    source: str
    shape: str
    width: int = 0
    declaration: PStateDeclaration | None = None


@dataclass
class Context:
    """The module's objects; of two with one name the first counts. `pstates` gives the owning topology too.

    `mirrors` are objects of other modules; as far as a store told of them they are among the others as well. `temps`
    are the temporary PStates by topology and name, as far as chains were followed.
    """

    depots: dict[str, DepotDeclaration] = field(default_factory=dict)
    pstates: dict[str, tuple[str, PStateDeclaration]] = field(default_factory=dict)
    temps: dict[tuple[str, str], Temp] = field(default_factory=dict)
    queries: dict[str, QueryDeclaration] = field(default_factory=dict)
    objects: frozenset[str] = frozenset()
    mirrors: dict[str, MirrorDeclaration] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    @staticmethod
    def of(declaration: ModuleDeclaration) -> Context:
        """The declared objects of a module, with no faults yet."""
        context = Context()
        for depot in declaration.depots:
            context.depots.setdefault(depot.name, depot)
        for topology in declaration.topologies:
            for pstate in topology.pstates:
                context.pstates.setdefault(pstate.name, (topology.name, pstate))
        for query in declaration.queries:
            context.queries.setdefault(query.name, query)
        context.objects = frozenset(declaration.objects)
        for mirror in declaration.mirrors:
            context._add_mirror(mirror)
        return context

    def _add_mirror(self, mirror: MirrorDeclaration) -> None:
        """Beside the module's own objects; until the store was asked, nothing is known but its name."""
        self.mirrors.setdefault(mirror.name, mirror)
        found = mirror.found.declared if mirror.found is not None else None
        if mirror.kind == "depot":
            depot = found if isinstance(found, DepotDeclaration) else None
            self.depots.setdefault(mirror.name, depot or DepotDeclaration(mirror.name, "disallow", mirror.at))
        elif isinstance(found, PStateDeclaration):
            self.pstates.setdefault(mirror.name, (f"module {mirror.module}", found))
        elif isinstance(found, QueryDeclaration):
            self.queries.setdefault(mirror.name, found)

    def goes_to_zero(self, node: Partition) -> bool:
        """Whether a partitioner sends every row to task 0."""
        is_single = node.kind in ("global", "origin") or (node.target is not None and self.is_global(node.target))
        return is_single or (node.kind == "direct" and node.args == (Const(0),))

    def fault(self, at: Any, text: str, advice: str = "") -> None:
        """Note a fault at a place in the user's code, with advice on how to mend it."""
        self.faults.append(Fault(str(at), text, advice))

    def pstate(self, name: str, at: Any) -> PStateDeclaration | None:
        """The PState of this name; an unknown one is a fault."""
        found = self.pstates.get(name)
        if found is None and name in self.mirrors:
            return None
        if found is None:
            otherwise = f'Declare it with pstate(…), or make it in a batch block before this with agg(…).out("{name}").'
            self.fault(at, f"There is no PState '{name}'.", advice_for(name, self.pstates, otherwise))
            return None
        return found[1]

    def is_global(self, name: str) -> bool:
        """Whether the PState or depot of this name has one partition, on task 0."""
        if name in self.pstates:
            return self.pstates[name][1].is_global
        return name in self.depots and (self.depots[name].is_global or self.depots[name].tick_millis is not None)


def advice_for(name: str, known: Iterable[str], otherwise: str) -> str:
    """Which of the known names was meant, if one looks like it."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'?" if near else otherwise


def count_of(number: int, noun: str) -> str:
    """`1 variable`, `2 variables`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
