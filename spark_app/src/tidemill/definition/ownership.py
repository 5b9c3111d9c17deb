"""Whose a module of a store is: the Module resource of a cluster that made it, or whoever runs it by hand.

Two Modules, or a Module and a runner by hand, that share a name and a store would fence each other for ever, and the
deletion of one would delete the other's data. So the definition names its owner, and only the owner may go on with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.values.errors import BadInput, OwnedByAnother
from tidemill.values.stored import Stored

HAND: Final = "hand"
"""How `takeOverFrom` names whoever runs a module by hand."""


@dataclass(frozen=True)
class Owner(Stored):
    """A Module resource; without a uid it is whoever runs the module by hand (`tidemill run`, `InProcessCluster`).

    `cluster` is the uid of the cluster's namespace kube-system, empty where the operator may not read it.
    """

    cluster: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @staticmethod
    def parse(text: str) -> Owner:
        """From `CLUSTER/NAMESPACE/NAME/UID`, as the operator writes it; empty is by hand.

        Raises:
            BadInput: it is nothing like that.
        """
        if not text:
            return BY_HAND
        parts = text.split("/")
        if len(parts) != len(Owner.__dataclass_fields__) or not all(parts[1:]):
            raise BadInput(f"'{text}' names no owner; write it as CLUSTER/NAMESPACE/NAME/UID.")
        return Owner(*parts)

    @property
    def word(self) -> str:
        """How `takeOverFrom` names it."""
        return self.uid or HAND

    def is_followed_by(self, other: Owner) -> bool:
        """Whether `other` may go on without asking for it: the same, or the Module that was made anew under its name.

        A cluster has one Module of a name at a time, so the one before is gone, and its drivers are fenced.
        """
        if self.uid == other.uid:
            return True
        is_known = bool(self.cluster and self.uid)
        return is_known and (self.cluster, self.namespace, self.name) == (other.cluster, other.namespace, other.name)

    def __str__(self) -> str:
        if not self.uid:
            return "whoever runs it by hand"
        cluster = f" of cluster {self.cluster}" if self.cluster else ""
        return f"the Kubernetes Module {self.namespace}/{self.name} (uid {self.uid}{cluster})"


BY_HAND: Final = Owner()


def owned_by_another(module: str, url: str, owner: Owner, advice: str) -> OwnedByAnother:
    """The refusal: who owns the module, and what to do."""
    text = f"Module '{module}' in {url} belongs to {owner}. Use another store, or another prefix of it. {advice}"
    return OwnedByAnother(text, module=module, owner=owner.word)
