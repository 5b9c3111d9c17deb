"""What is known at one place of the dataflow: which variables are bound, and on which task rows are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.language.dataflow import HIDDEN, Arg, Location, Var
from tidemill.language.recorded_parts import inner_parts
from tidemill.plan.check.context import Context, advice_for


@dataclass(frozen=True)
class Scope:
    """`names` are the bound variables; `microbatches` those of them that are microbatches.

    `is_on_zero`: rows here are surely on task 0. `hidden` are names that were bound before an aggregation and are gone
    after it, only for the text of faults. `temps` are the temporary PStates that batch blocks before made.
    """

    names: frozenset[str] = frozenset()
    microbatches: frozenset[str] = frozenset()
    is_on_zero: bool = True
    hidden: frozenset[str] = frozenset()
    temps: frozenset[str] = frozenset()

    def binding(self, names: Iterable[str]) -> Scope:
        """With these variables bound; one that was a microbatch is a plain variable then."""
        added = frozenset(names)
        return replace(self, names=self.names | added, microbatches=self.microbatches - added)

    def making(self, names: Iterable[str]) -> Scope:
        """With these temporary PStates."""
        return replace(self, temps=self.temps.union(names))

    def moved(self, is_on_zero: bool) -> Scope:
        """With rows on task 0 for certain, or not."""
        return replace(self, is_on_zero=is_on_zero)


def meet(scopes: Sequence[Scope]) -> Scope:
    """What is known where several ways come together: what is known on all of them.

    A temporary PState that only some ways made is there behind all of them, and holds nothing for the others.
    """
    first, *others = scopes
    for other in others:
        names = first.names & other.names
        microbatches = first.microbatches & other.microbatches & names
        is_on_zero, hidden = first.is_on_zero and other.is_on_zero, first.hidden | other.hidden
        first = Scope(names, microbatches, is_on_zero, hidden, first.temps | other.temps)
    return first


@dataclass
class LoopCheck:
    """A loop around the nodes being checked: what its emits and continues know."""

    variables: int
    outs: int
    emits: list[Scope] = field(default_factory=list)
    continues: list[Scope] = field(default_factory=list)


def use(context: Context, scope: Scope, part: Any, at: Location) -> None:
    """Every variable in an argument, path or option is bound here and is no microbatch."""
    for name in variables(part):
        if name in scope.microbatches:
            text = f"'{name}' is a microbatch and can only be exploded."
            context.fault(at, text, f'Use explode_microbatch("{name}").out("*record").')
        elif name not in scope.names:
            context.fault(at, _unbound(context, scope, name), _advice(context, scope, name))


def _unbound(context: Context, scope: Scope, name: str) -> str:
    if name in context.objects:
        return f"'{name}' is an object, which no row carries."
    if name in context.depots:
        return f"'{name}' is a depot, not a variable."
    if name in scope.hidden:
        return f"The variable '{name}' is not bound after the aggregation."
    return f"The variable '{name}' is not bound here."


def _advice(context: Context, scope: Scope, name: str) -> str:
    if name in context.objects:
        return "Pass it as an argument where it is used; it is not one of the variables of a row."
    if name in scope.hidden:
        return "Only the outputs of aggregators and the keys of group_by are; use those."
    known = sorted(known for known in scope.names if not known.startswith(HIDDEN))
    bound = ", ".join(known) or "no variable"
    return advice_for(name, known, f'Bound are: {bound}; write Constant("{name}") for the string.')


def variables(part: Any) -> list[str]:
    """The names of all variables in arguments, expressions and paths, in order."""
    if isinstance(part, Var):
        return [part.name]
    return [name for inner in inner_parts(part) for name in variables(inner)]


def use_all(context: Context, scope: Scope, args: Iterable[Arg], at: Location) -> None:
    """As `use`, for each of the arguments."""
    for arg in args:
        use(context, scope, arg, at)
