"""`tidemill describe --against STORE`: whether a module may follow what a store holds, with all reasons at once.

The operator runs it for each new revision, and reads the last line of its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.cli.loader import load_module
from tidemill.cli.output import console, show_json
from tidemill.cluster.stores import absolute_url
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.ownership import Owner
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.language import schema as schemas
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.plan.warn import warnings_of
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, DefinitionError, Fault, OwnedByAnother


@dataclass(frozen=True)
class Candidate:
    """A module's class that wants to follow what a store holds."""

    entry: str
    store: str
    tasks: int
    threads: int
    objects_to_delete: tuple[str, ...]
    conf: str = ""
    restores: bool = False
    owner: str = ""
    take_over_from: str = ""
    breaks_mirrors: bool = False

    def show(self, is_json: bool) -> bool:
        """Print the verdict; whether the module may follow. A refusal is a verdict too.

        Raises:
            StoreUnavailable, CorruptState: there is no verdict.
        """
        verdict = self.verdict()
        if is_json:
            show_json(verdict)
            return bool(verdict["is_valid"])
        out = console()
        name = verdict["module"] or self.entry
        out.print(f"Module {name} after definition {verdict['base']}: ", end="", markup=False)
        out.print("may lead." if verdict["is_valid"] else "refused:", style="bold")
        for fault in verdict["faults"]:
            out.print(f"{fault['subject']}: {fault['text']} {fault['advice']}".rstrip(), markup=False)
        for warning in verdict["warnings"]:
            text = "Warning: {location}: {text} {advice}".format(**warning)
            out.print(text, style="yellow", markup=False)
        return bool(verdict["is_valid"])

    def verdict(self) -> dict[str, Any]:
        """As the operator reads it. Raises: as `show`."""
        found: dict[str, Any] = {
            "tidemill": "describe", "module": None, "base": 0, "is_valid": False, "faults": [], "definition": None,
            "gateway": "stock", "reason": None, "warnings": [],
        }  # fmt: skip
        faults: list[Fault] = []
        try:
            declaration = declared(self.entry)
            found["warnings"] = [dict(vars(warning)) for warning in warnings_of(declaration)]
            store = open_store(absolute_url(self.store))
            found |= {"module": declaration.name, "base": DefinitionLog(store, declaration.name).newest_number()}
            found |= self._described(declaration, found["base"], store)
        except DefinitionError as error:
            faults += error.faults or [Fault(self.entry, str(error))]
        except BadInput as error:
            found["reason"] = error.code if isinstance(error, OwnedByAnother) else None
            faults.append(Fault(self.entry, str(error)))
        faults += self._conf_faults()
        found["faults"] = [{"subject": f.location, "text": f.text, "advice": f.advice} for f in faults]
        return found | {"is_valid": not faults}

    def _described(self, declaration: ModuleDeclaration, base: int, store: ObjectStore) -> dict[str, Any]:
        from tidemill.kubernetes.revision_gate import RevisionPlan, planned

        owner, take_over_from = Owner.parse(self.owner), self.take_over_from
        if not self.owner and base:  # a person asks about the code, whoever owns the store
            owner = DefinitionLog(store, declaration.name).read(base).owner
        plan = RevisionPlan(
            declaration, 0, base, self.tasks, self.threads, self.objects_to_delete, self.restores, owner,
            take_over_from, self.breaks_mirrors,
        )  # fmt: skip
        definition = planned(store, plan, SystemClock())
        gateway = "module" if needs_code(definition) else "stock"
        return {"definition": summary(declaration), "gateway": gateway}

    def _conf_faults(self) -> list[Fault]:
        if not self.conf:
            return []
        from tidemill.spark.given_settings import check_settings

        return [Fault(subject, text) for subject, text in check_settings(Path(self.conf))]


def declared(entry: str) -> ModuleDeclaration:
    """What a module's class declares, checked.

    Raises:
        BadInput: there is no such class. DefinitionError: lists all its faults.
    """
    from tidemill.api.declaration import record_module
    from tidemill.plan.check.module import checked

    return checked(record_module(load_module(entry)))


def split_names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def needs_code(definition: StoredDefinition) -> bool:
    """Whether serving the module needs its own code: queries, migrations, and partitioners that are not built in."""
    pstates = [pstate for topology in definition.topologies.values() for pstate in topology.pstates.values()]
    if any(pstate.declared_migrations for pstate in pstates) or any(d.migration for d in definition.depots.values()):
        return True
    is_custom = any(depot.needs_code for depot in definition.depots.values())
    return is_custom or bool(definition.queries) or any(pstate.has_key_partitioner for pstate in pstates)


def summary(declaration: ModuleDeclaration) -> dict[str, Any]:
    """A declaration in short."""
    return {
        "depots": [
            {"name": d.name, "partitioner": partitioner_text(d), "is_global": d.is_global, "tick_millis": d.tick_millis}
            for d in declaration.depots
        ],
        "pstates": [
            {
                "name": p.name, "topology": t.name, "schema": schemas.to_text(p.schema), "is_global": p.is_global,
                "is_private": p.is_private,
            }
            for t in declaration.topologies for p in t.pstates
        ],
        "topologies": [
            {
                "name": t.name,
                "sources": [
                    {"source_id": s.source_id, "depot": s.depot, "start_from": start_text(s.start_from)}
                    for s in t.sources
                ],
            }
            for t in declaration.topologies
        ],
    }  # fmt: skip


def partitioner_text(depot: Any) -> str:
    """How a depot is partitioned, for people."""
    if depot.tick_millis is not None:
        return "tick"
    if depot.fields:
        return f"{depot.partitioner}({', '.join(map(repr, depot.fields))})"
    return f"{depot.partitioner}({depot.function.name})" if depot.function is not None else str(depot.partitioner)


def start_text(start: Any) -> str:
    """Where a source starts, for people."""
    return f"{start.kind} {start.amount}" if start.kind not in ("end", "beginning") else str(start.kind)
