"""Modules that are wrong in one known place: the line of a `define` that ends in `# <- fault`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tidemill import Module
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import check
from tidemill.values.errors import Fault

Define = Callable[[Any, Any], None]


class Cases:
    """Collects definitions with the text that their fault has."""

    def __init__(self) -> None:
        self.all: list[tuple[Define, str]] = []

    def expect(self, text: str) -> Callable[[Define], Define]:
        def add(define: Define) -> Define:
            self.all.append((define, text))
            return define

        return add

    @property
    def ids(self) -> list[str]:
        return [define.__name__ for define, _ in self.all]


def faults_of(define: Define) -> list[Fault]:
    """All faults of a module with this `define`."""

    class Faulty(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            define(setup, topologies)

    return check(record_module(Faulty()))


def fault_places(define: Define) -> list[str]:
    """`file:line` of the lines that are marked."""
    lines, first = inspect.getsourcelines(define)
    file = inspect.getsourcefile(define)
    return [f"{file}:{first + i}" for i, line in enumerate(lines) if line.rstrip().endswith("# <- fault")]


def assert_one_fault(define: Define, text: str) -> None:
    """The marked line is reported, in a sentence with this text, and nothing else is."""
    found = faults_of(define)

    assert [fault.location for fault in found] == fault_places(define), "\n".join(map(str, found))
    assert text in found[0].text, str(found[0])
    assert found[0].text.endswith(".")
