"""Which name was meant where there is none of that name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

_NEAR = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one; None if none does. Upper and lower case are the same."""
    folded = {each.lower(): each for each in sorted(known, reverse=True)}
    near = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=_NEAR)
    return folded[near[0]] if near else None


def missing(owner: str, name: str, known: Iterable[str], synonyms: Mapping[str, str]) -> str:
    """The sentence about an attribute that is not there."""
    names = sorted(each for each in known if not each.startswith("_"))
    meant = synonyms.get(name.lower()) or nearest(name, names)
    return f"{owner} has no '{name}'. " + (f"Did you mean {owner}.{meant}?" if meant else f"It has {', '.join(names)}.")


class Suggesting(type):
    """The class of classes whose unknown attributes are answered with the name that was meant.

    `_synonyms` are names from other libraries, in lower case, with the name here; `_shown` is what a person calls the
    class, where that is not its name. `_unlisted` names are refused, or do nothing: no shell offers them.
    """

    _synonyms: ClassVar[Mapping[str, str]] = {}
    _shown: ClassVar[str] = ""
    _unlisted: ClassVar[frozenset[str]] = frozenset()

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in cls._unlisted]

    if not TYPE_CHECKING:  # for a type checker there are only the names that are there

        def __getattr__(cls, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'", name=name, obj=cls)
            raise AttributeError(missing(cls._shown or cls.__name__, name, dir(cls), cls._synonyms))


class SuggestingInstances(metaclass=Suggesting):
    """The base of builders whose instances answer unknown attributes as their class does."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in type(self)._unlisted]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return getattr(type(self), name)
