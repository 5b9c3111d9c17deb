"""The cache of everything the operator watches; reconciling reads it instead of the API server.

What the API server answers to our own writes is put in at once, so that the next decision sees it even before the watch
does. An event that is older than what is known is dropped.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidemill_operator.observe.fingerprint import change_fingerprint
from tidemill_operator.resources import names
from tidemill_operator.resources.names import Json

_BURIED_MAX = 5_000


class Ref(NamedTuple):
    """One object: kind, namespace, name."""

    kind: str
    namespace: str
    name: str


def ref_of(obj: Mapping[str, Any]) -> Ref:
    """The reference to an object of the API server; the namespace is "" for objects outside namespaces."""
    return Ref(obj["kind"], names.namespace_of(obj), names.name_of(obj))


def module_of(obj: Mapping[str, Any]) -> str | None:
    """The Module that an object belongs to."""
    if obj["kind"] == "Module":
        return names.name_of(obj)
    if obj["kind"] == "Topology":
        return str(obj["spec"]["moduleRef"]["name"])
    found: str | None = obj["metadata"].get("labels", {}).get(names.MODULE_LABEL)
    return found


class ObjectCache:
    """Objects by reference, and by (kind, namespace, Module)."""

    def __init__(self) -> None:
        self._notify: Callable[[Json], None] = lambda obj: None
        self._objects: dict[Ref, Json] = {}
        self._gone: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._by_module: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """The object as it was seen last; None if there is none. Callers must not change it."""
        return self._objects.get(Ref(kind, namespace, name))

    def of_module(self, kind: str, namespace: str, module: str) -> list[Json]:
        """Objects of this kind that belong to the Module, in no order."""
        found = self._by_module.get((kind, namespace, module), {})
        return [self._objects[Ref(kind, namespace, name)] for name in found]

    def all(self, kind: str) -> list[Json]:
        """Every known object of a kind, in all namespaces."""
        return [obj for ref, obj in self._objects.items() if ref.kind == kind]

    def listen(self, notify: Callable[[Json], None]) -> None:
        """Call `notify` from now on with each object that came, went, or changed in something that matters."""
        self._notify = notify

    def put(self, obj: Mapping[str, Any]) -> None:
        """Remember `obj`, unless this or something newer is known."""
        ref = ref_of(obj)
        known = self._objects.get(ref)
        latest = known or self._gone.get(obj["metadata"].get("uid", ""))
        if latest is not None and not _is_newer(obj, latest):
            return
        if known is not None:
            self._forget(ref, known)
        trimmed = _trimmed(obj)
        self._objects[ref] = trimmed
        module = module_of(trimmed)
        if module is not None:
            self._by_module[(ref.kind, ref.namespace, module)][ref.name] = None
        if known is None or change_fingerprint(known) != change_fingerprint(trimmed):
            self._notify(trimmed)

    def remove(self, obj: Mapping[str, Any]) -> None:
        """Forget `obj`, unless another one has taken its name since."""
        known = self._objects.get(ref_of(obj))
        if known is None or known["metadata"].get("uid") != obj["metadata"].get("uid"):
            return
        self._forget(ref_of(obj), known)
        self._bury(obj)
        self._notify(known)

    def _bury(self, obj: Mapping[str, Any]) -> None:
        """A late answer to a call of ours, or a list, may still show what was deleted: only something newer counts."""
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        self._gone[obj["metadata"].get("uid", "")] = {"metadata": metadata}
        while len(self._gone) > _BURIED_MAX:
            self._gone.popitem(last=False)

    def refs(self, kind: str, namespace: str | None = None) -> set[Ref]:
        """What is known of a kind (in a namespace)."""
        return {ref for ref in self._objects if _is_in(ref, kind, namespace)}

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], before: set[Ref]) -> None:
        """Forget what of `before`, known when the list was asked for, is not listed: a watch may miss deletions.

        What came to be known since may have been made after the list.
        """
        present = {ref_of(obj): obj for obj in objects}
        for obj in present.values():
            self.put(obj)
        for ref in before - present.keys():
            missed = self._objects.get(ref)
            if missed is not None:
                self.remove(missed)

    def _forget(self, ref: Ref, known: Mapping[str, Any]) -> None:
        del self._objects[ref]
        module = module_of(known)
        if module is not None:
            named = self._by_module[(ref.kind, ref.namespace, module)]
            named.pop(ref.name, None)
            if not named:
                del self._by_module[(ref.kind, ref.namespace, module)]


def _is_in(ref: Ref, kind: str, namespace: str | None) -> bool:
    return ref.kind == kind and namespace in (None, ref.namespace)


def _is_newer(obj: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    new, old = obj["metadata"].get("resourceVersion", ""), known["metadata"].get("resourceVersion", "")
    if new.isdigit() and old.isdigit():
        return int(new) > int(old)
    return bool(new != old)


def _trimmed(obj: Mapping[str, Any]) -> Json:
    """Without the bulk that nobody reads: who set which field (but for Topologies, where it says whose they are)."""
    metadata = dict(obj["metadata"])
    fields = metadata.pop("managedFields", None)
    if obj["kind"] == "Topology" and fields:
        metadata["managedFields"] = [_short(entry) for entry in fields]
    return {**obj, "metadata": metadata}


def _short(entry: Mapping[str, Any]) -> Json:
    kept = {key: entry[key] for key in ("manager", "subresource") if key in entry}
    return {**kept, "fieldsV1": {key: {} for key in entry.get("fieldsV1", {})}}
