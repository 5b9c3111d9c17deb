"""Revisions: what of a Module's spec makes drivers differ, kept as ControllerRevisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidemill_operator.resources import names
from tidemill_operator.resources.names import Json

Origin = Literal["spec", "rollback"]

_COPIED: Final = (
    *("image", "imagePullPolicy", "imagePullSecrets"),
    *("entry", "tasks", "threads", "engine", "store", "spark"),
)

_TAKES_FROM: Final = "takeOverFrom"
_BREAKS: Final = "breakMirrors"
_DELETION: Final = "deletion"
"""What `breakMirrors` says instead of an image where the Module's deletion may break mirrors."""
_ONCE: Final = ("objectsToDelete", _TAKES_FROM, _BREAKS)
"""Done once, by the first definition of the revision."""


@dataclass(frozen=True)
class Verdict:
    """What the describe Job said: whether the image's module may follow definition number `base` of the store.

    `is_owned`: it may not, because the store's module belongs to somebody else.
    """

    module: str
    base: int
    is_valid: bool
    faults: tuple[str, ...] = ()
    depots: tuple[str, ...] = ()
    pstates: tuple[str, ...] = ()
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The depots that each topology reads."""

    needs_own_gateway: bool = False
    is_owned: bool = False
    warnings: tuple[str, ...] = ()
    """What is allowed in the module and most likely not meant."""

    def to_json(self) -> str:
        """The text of the annotation that keeps it at its ControllerRevision; `from_json` is its inverse."""
        return json.dumps(
            {
                "module": self.module,
                "base": self.base,
                "isValid": self.is_valid,
                "faults": list(self.faults),
                "depots": list(self.depots),
                "pstates": list(self.pstates),
                "topologies": {name: list(depots) for name, depots in self.topologies.items()},
                "needsOwnGateway": self.needs_own_gateway,
                "isOwned": self.is_owned,
                "warnings": list(self.warnings),
            }
        )

    @staticmethod
    def from_json(text: str) -> Verdict:
        """The verdict in the text that `to_json` gave. Raises KeyError where a field is missing."""
        found = json.loads(text)
        return Verdict(
            module=found["module"],
            base=found["base"],
            is_valid=found["isValid"],
            faults=tuple(found["faults"]),
            depots=tuple(found["depots"]),
            pstates=tuple(found["pstates"]),
            topologies={name: tuple(depots) for name, depots in found["topologies"].items()},
            needs_own_gateway=found["needsOwnGateway"],
            is_owned=found["isOwned"],
            warnings=tuple(found.get("warnings", ())),  # operators before this one kept none
        )


@dataclass(frozen=True)
class Revision:
    """Revision `number` of a Module.

    `origin` rollback: its template is that of revision `copy_of`. So it is, without `objectsToDelete`, where somebody
    edited the spec back to what was stable before. `cluster` is where it was made, empty if that was not known.
    """

    number: int
    template: Json = field(default_factory=dict)
    origin: Origin = "spec"
    copy_of: int | None = None
    verdict: Verdict | None = None
    cluster: str = ""

    @property
    def full_digest(self) -> str:
        """Equal for revisions with equal templates."""
        return names.digest(self.template)

    @property
    def running_digest(self) -> str:
        """Equal for templates whose drivers are equal once their definition is in place."""
        return running_digest(self.template)

    @property
    def goes_back(self) -> bool:
        """Whether it wants the data of the revision that it copies: its module restores what others deleted."""
        return self.copy_of is not None

    def asks_nothing_of(self, template: Json) -> bool:
        """Whether drivers of this revision are what a spec with this template wants."""
        takes = template.get(_TAKES_FROM)
        is_taken = takes is None or takes == self.template.get(_TAKES_FROM)
        return is_taken and self.running_digest == running_digest(template)

    @property
    def is_valid(self) -> bool:
        """Whether the describe Job has found it to be a valid update; False before it ran."""
        return self.verdict is not None and self.verdict.is_valid


def template_of(spec: Mapping[str, Any]) -> Json:
    """What of a Module's spec makes drivers differ."""
    template = {name: spec[name] for name in _COPIED if name in spec}
    takes_from = spec.get("store", {}).get(_TAKES_FROM)
    if takes_from:
        template["store"] = {name: value for name, value in spec["store"].items() if name != _TAKES_FROM}
        template[_TAKES_FROM] = takes_from
    if spec.get("objectsToDelete"):
        template["objectsToDelete"] = sorted(spec["objectsToDelete"])
    if spec.get(_BREAKS) == spec["image"]:
        template[_BREAKS] = True
    nonce = spec.get("rollout", {}).get("retryNonce")
    if nonce:
        template["retryNonce"] = nonce
    return template


def rollback_template(stable: Revision, failed: Revision | None) -> Json:
    """The stable revision's template; PStates that the failed one added go if its definition was written ("?").

    Depots that it added do not: somebody may have appended to them. Then the rollback is no valid update. Where the
    failed one could break mirrors, the way back can, too.
    """
    template = {name: value for name, value in stable.template.items() if name not in _ONCE}
    if failed is not None and _BREAKS in failed.template:
        template[_BREAKS] = True
    known = stable.verdict.pstates if stable.verdict is not None else ()
    added = failed.verdict.pstates if failed is not None and failed.verdict is not None else ()
    gone = sorted(f"{name}?" for name in added if name not in known)
    return {**template, "objectsToDelete": gone} if gone else template


def running_digest(template: Mapping[str, Any]) -> str:
    """What is done when a revision runs may be dropped from the spec afterwards: that is no new revision."""
    return names.digest({name: value for name, value in template.items() if name not in _ONCE})


def controller_revision(module: Mapping[str, Any], revision: Revision) -> Json:
    """The object that remembers a revision. Its data never changes; the verdict comes later, as an annotation."""
    name = names.name_of(module)
    built = names.base_object(
        "apps/v1",
        "ControllerRevision",
        names.revision_name(name, revision.number),
        module,
        names.labels(name, "definition", revision=revision.number),
    )
    if revision.verdict is not None:
        built["metadata"]["annotations"] = {names.VERDICT_ANNOTATION: revision.verdict.to_json()}
    built["revision"] = revision.number
    built["data"] = {"template": revision.template, "origin": revision.origin}
    if revision.copy_of is not None:
        built["data"]["copyOf"] = revision.copy_of
    if revision.cluster:
        built["data"]["cluster"] = revision.cluster
    return built


def read_revision(obj: Mapping[str, Any]) -> Revision:
    """The revision that a ControllerRevision of ours remembers."""
    data = obj.get("data", {})
    text = obj["metadata"].get("annotations", {}).get(names.VERDICT_ANNOTATION)
    return Revision(
        number=int(obj["revision"]),
        template=data.get("template", {}),
        origin=data.get("origin", "spec"),
        copy_of=data.get("copyOf"),
        verdict=Verdict.from_json(text) if text else None,
        cluster=data.get("cluster", ""),
    )


def ownership(module: Mapping[str, Any], revision: Revision) -> list[str]:
    """Arguments that say for which Module a container works, and whose store it may take."""
    owner = f"{revision.cluster}/{names.namespace_of(module)}/{names.name_of(module)}/{module['metadata']['uid']}"
    takes_from = revision.template.get(_TAKES_FROM)
    return ["--owner", owner, *(["--take-over-from", takes_from] if takes_from else [])]


def may_break(revision: Revision) -> list[str]:
    """Arguments that say whether what other modules mirror may go with a revision."""
    return ["--break-mirrors"] if revision.template.get(_BREAKS) else []


def may_break_at_deletion(spec: Mapping[str, Any]) -> list[str]:
    """The same for the deletion of a Module with its data; a word for an update is none for that."""
    return ["--break-mirrors"] if spec.get(_BREAKS) == _DELETION else []
