"""Methods that start a builder on the class and extend it on an instance: `Path.key("a").all()`, `Path.all()`."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class starter(Generic[P, R]):
    """Binds to the instance, or to a new empty one when called on the class."""

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type[Any]) -> Callable[P, R]:
        bound = owner() if instance is None else instance
        return cast("Callable[P, R]", MethodType(self.function, bound))
