"""From a user's module to its `ModuleDeclaration`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.api.attachment import unattached, watching
from tidemill.api.locations import class_location, defined_location, raised_location
from tidemill.api.module import Module, Setup, Topologies
from tidemill.language.dataflow import Location, MirrorDeclaration, ModuleDeclaration
from tidemill.language.objects import DeclaredObject, with_objects
from tidemill.values.errors import DefinitionError, Fault, TidemillError, message_of
from tidemill.values.ids import nonce


def record_module(module: Any, *, follows_mirrors: bool = True) -> ModuleDeclaration:
    """Run `module.define` and return what it declared, with the mistakes found so far as `faults`.

    An exception in `define` becomes a fault too; then `extra["is_incomplete"]` is true, because what would have
    followed is not known. `extra["option_locations"]` runs parallel to `options`; `extra["defined_at"]` is where the
    class of a module is that declares nothing; `extra["unattached"]` are warnings about blocks that nothing uses.
    Modules that it mirrors objects of, and that are given as code, are recorded as well, but not those that they
    mirror.

    Raises:
        DefinitionError: this is no module; the caller passes an instance of `Module`.
    """
    instance = module() if isinstance(module, type) and issubclass(module, Module) else module
    if not callable(getattr(instance, "define", None)):
        raise DefinitionError(
            f"{module!r} is no module: derive a class from tidemill.Module and pass an instance of it."
        )
    setup, topologies = Setup(), Topologies()
    with watching() as blocks:
        raised = _define(instance, setup, topologies)
    recorded = [topology.declaration() for topology in topologies.declared]
    queries = [query.declaration() for query in topologies.queries]
    faults = [*setup.faults, *topologies.faults, *_faults_of(recorded), *_faults_of(queries), *raised]
    name = _name_of(instance)
    objects = declared_objects(setup.objects, name, faults)
    return ModuleDeclaration(
        name,
        setup.depots(),
        with_objects(tuple(topology for topology, _ in recorded), objects),
        tuple(setup.options),
        tuple(faults),
        {
            "is_incomplete": bool(raised),
            "option_locations": tuple(map(str, setup.option_locations)),
            "unattached": unattached(blocks),
            "defined_at": Location() if setup.depots() or recorded or queries else class_location(type(instance)),
        },
        with_objects(tuple(query for query, _ in queries), objects),
        objects,
        tuple(_with_code(mirror) if follows_mirrors else replace(mirror, code=None) for mirror in setup.mirrors),
    )


def _with_code(mirror: MirrorDeclaration) -> MirrorDeclaration:
    return mirror if mirror.code is None else replace(mirror, code=record_module(mirror.code, follows_mirrors=False))


def declared_objects(
    declared: Sequence[DeclaredObject], module: str, faults: list[Fault]
) -> Mapping[str, DeclaredObject]:
    """Objects by name, as one recording of a module has them; of two with one name the first counts."""
    scope = nonce() if declared else ""
    found: dict[str, DeclaredObject] = {}
    for each in declared:
        if each.name in found:
            text = f"The object '{each.name}' is declared twice; the first time at {found[each.name].at}."
            faults.append(Fault(str(each.at), text, "Give one of them another name."))
        found.setdefault(each.name, replace(each, module=module, scope=scope))
    return found


def _faults_of(recorded: Sequence[tuple[Any, list[Fault]]]) -> Iterator[Fault]:
    return (fault for _, found in recorded for fault in found)


def _name_of(instance: Any) -> str:
    name = instance.module_name() if hasattr(instance, "module_name") else type(instance).__name__
    if not isinstance(name, str):
        raise DefinitionError(f"module_name() of {type(instance).__name__} returns {name!r}, which is no string.")
    return name


def _define(instance: Any, setup: Setup, topologies: Topologies) -> list[Fault]:
    try:
        instance.define(setup, topologies)
    except TidemillError as error:
        return [Fault(str(raised_location(error.__traceback__)), str(error))]
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is a fault of the definition
        text = f"define raised {type(error).__name__}: {message_of(error)}"
        at = raised_location(error.__traceback__)
        if getattr(type(instance), "define", None) is Module.define:  # of the base: the subclass has none
            return [Fault(str(class_location(type(instance))), text, "Write define in this class.")]
        if at == Location():  # raised by the call itself: `define` does not take what it is given
            at = defined_location(getattr(getattr(instance.define, "__func__", instance.define), "__code__", None))
        return [Fault(str(at), text if text.endswith((".", "?", "!")) else f"{text}.", "Correct this line.")]
    return []
