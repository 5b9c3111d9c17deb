"""`TestPState`: one partition of a PState in memory, to try schemas and paths without a cluster."""

from __future__ import annotations

from typing import Any

from tidemill.api.path import Path, path_of
from tidemill.api.schemas import to_schema
from tidemill.language.dataflow import Location
from tidemill.language.schema import Schema, to_text
from tidemill.paths.compiled import argument_value, compile_path
from tidemill.paths.memory_nodes import memory_root
from tidemill.paths.nodes import Node, RootValue, whole
from tidemill.values.errors import DefinitionError, Fault, NotOneValue


class TestPState:
    """A PState's partition in memory, with the same paths, checks and results as a real one.

    `Block.execute(pstates={"$$n": it})` lets a block read and write it.
    """

    __test__ = False  # pytest takes every class called Test… for a test

    def __init__(self, schema: Schema, initial_value: Any = None) -> None:
        self._schema = schema
        self._root = memory_root(schema, initial_value)

    def __repr__(self) -> str:
        return f"TestPState({to_text(self._schema)})"

    @staticmethod
    def create(schema: Any, initial_value: Any = None) -> TestPState:
        """An empty PState; `schema` is written as in `Module.define`.

        Raises:
            DefinitionError: the schema is wrong.
        """
        faults: list[Fault] = []
        recorded = to_schema(schema, Location(), faults)
        if faults:
            raise DefinitionError(faults)
        return TestPState(recorded, initial_value)

    @property
    def schema(self) -> Schema:
        """The schema as it was recorded."""
        return self._schema

    def __enter__(self) -> TestPState:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what it holds; afterwards it is empty."""
        self._root = memory_root(self._schema, None)

    def lend(self, partition: Node | RootValue) -> None:
        """Write all that it holds into an empty partition of the same schema, in which a block is to run."""
        copy(self._root, partition)

    def take(self, partition: Node | RootValue) -> None:
        """Hold what a partition of the same schema holds, and nothing else."""
        self._root = memory_root(self._schema, None)
        copy(partition, self._root)

    def transform(self, path: Path) -> None:
        """Change what the path navigates to; the path ends in a terminal.

        Raises:
            BadPath: the path cannot be followed.
            SchemaMismatch: what it writes does not fit the schema.
        """
        compiled = compile_path(path_of(path), self._schema, "transform")
        compiled.transform(self._root, [argument_value(argument) for argument in compiled.arguments])

    def select(self, path: Path | None = None) -> list[Any]:
        """What the path navigates to, in order.

        Raises:
            BadPath: the path cannot be followed.
            NotSelectable: it selects a subindexed structure whole.
        """
        compiled = compile_path(path_of(path), self._schema, "select")
        return compiled.select(self._root, [argument_value(argument) for argument in compiled.arguments])

    def select_one(self, path: Path | None = None) -> Any:
        """The one value that the path navigates to; everything else as `select`.

        Raises:
            NotOneValue: it navigates to no value or to several.
        """
        values = self.select(path)
        if len(values) != 1:
            raise NotOneValue(f"the path navigates to {len(values)} values, not to one; use select()")
        return values[0]


def copy(source: Node | RootValue, target: Node | RootValue) -> None:
    """Write all that a partition holds into an empty one of the same schema."""
    if isinstance(source, RootValue):
        assert isinstance(target, RootValue)
        if source.get_value() is not None:
            target.put_value(source.get_value())
    else:
        assert isinstance(target, Node)
        target.fill(whole(source))
