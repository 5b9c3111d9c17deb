"""What a checkpoint names, with checksums, found without running anything of it.

Its pickle is read with a class that is nothing in the place of every class and function: so whoever has not the code of
a graph may look, and no code in the store runs.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeAlias

from tidemill.graphs.checkpoints import names_of
from tidemill.graphs.dataset import DatasetObject
from tidemill.graphs.spark_channels import StoredPart

Named: TypeAlias = DatasetObject | StoredPart
_KINDS: Final[Mapping[tuple[str, str], type[Named]]] = {
    (kind.__module__, kind.__qualname__): kind for kind in (DatasetObject, StoredPart)
}


def named_objects(content: bytes) -> dict[str, list[Named]]:
    """The keys of the objects that a whole checkpoint needs, each with what it says of the bytes there: nothing of
    objects that say themselves what they are.

    Raises:
        CorruptState: it has not the keys.
    """
    found: dict[str, list[Named]] = {key: [] for key in names_of(content)}
    reader = _NamedReader(io.BytesIO(content[content.index(b"\n") + 1 :]))
    with suppress(Exception):  # a state may be pickled in a way that only its own classes understand: no damage is that
        reader.load()
    for each in dict.fromkeys(reader.found):
        found.setdefault(each.key, []).append(each)
    return found


class _Nothing(type):
    """What stands for any class, any function and what they make: itself, whatever is done with it."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        return cls

    def __setstate__(cls, state: Any) -> None:
        """A state of nothing."""

    def __setitem__(cls, key: Any, value: Any) -> None:
        """An item of nothing."""

    def append(cls, item: Any) -> None:
        """An item of nothing."""

    add = append


class _Any(metaclass=_Nothing):
    def __new__(cls, *_: Any, **__: Any) -> Any:
        return cls


class _Note:
    """Stands for an object of a kind that is looked for, and notes it when its fields come."""

    kind: ClassVar[type[Named]]
    found: ClassVar[list[Named]]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.found.append(self.kind(**state))


class _NamedReader(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer)
        self.found: list[Named] = []
        self._notes = {
            name: type(kind.__name__, (_Note,), {"kind": kind, "found": self.found}) for name, kind in _KINDS.items()
        }

    def find_class(self, module: str, name: str) -> Any:
        return self._notes.get((module, name), _Any)

    def persistent_load(self, key: str) -> Any:
        return _Any
