"""`setup.cluster_depot`, `cluster_pstate` and `cluster_query`: objects of other modules under a name of this one."""

from __future__ import annotations

import os
from typing import Any

from tidemill.api.arguments import to_name
from tidemill.language.dataflow import Location, MirrorDeclaration, MirrorKind
from tidemill.values.errors import Fault
from tidemill.values.names import is_folder_name

_WORDS = {"depot": "depot", "pstate": "PState", "query": "query"}


def recorded_mirror(
    kind: MirrorKind, name: Any, module: Any, object_name: Any, store: Any, at: Location, faults: list[Fault]
) -> MirrorDeclaration:
    """What one call declared; what is wrong with it goes to `faults`. `module` is a name, or the module itself."""
    known = to_name(name, "$$" if kind == "pstate" else "*", _WORDS[kind], at, faults)
    if kind == "query":
        wanted = str(object_name)
        if not isinstance(object_name, str) or not object_name or object_name.startswith(("*", "$$")):
            text = f"The name of a query is a string without '*' or '$$', not {object_name!r}."
            faults.append(Fault(str(at), text, f'Write setup.cluster_query("{known}", "Module", "query").'))
    else:
        wanted = to_name(object_name, "$$" if kind == "pstate" else "*", _WORDS[kind], at, faults)
    other, code = _module(module, at, faults)
    return MirrorDeclaration(known, kind, other, wanted, at, _url(store, at, faults), code)


def _module(module: Any, at: Location, faults: list[Fault]) -> tuple[str, Any]:
    """The name of a module that was named or given, and the one that was given."""
    if isinstance(module, str):
        if not is_folder_name(module):
            text = f"No module can have the name {module!r}."
            faults.append(Fault(str(at), text, "Give the name of the module, or its class."))
        return module, None
    instance = module() if isinstance(module, type) and callable(getattr(module, "define", None)) else module
    if not callable(getattr(instance, "define", None)):
        faults.append(Fault(str(at), f"{module!r} is no module.", "Give the name of the module, or its class."))
        return str(module), None
    return str(instance.module_name()), instance


def _url(store: Any, at: Location, faults: list[Fault]) -> str:
    """The URL of a store, empty for the module's own; a folder is named in full, for others open it, too."""
    if store is None:
        return ""
    if not isinstance(store, (str, os.PathLike)) or not os.fspath(store):
        text = f"store= is the URL of a store or a folder, not {store!r}."
        faults.append(Fault(str(at), text, 'Write store="s3://bucket/prefix", or leave it out for the own store.'))
        return ""
    path = os.fspath(store)
    return path if "://" in str(path) else os.path.abspath(os.path.expanduser(str(path)))
