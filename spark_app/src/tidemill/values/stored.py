"""What dataclasses have in common that a store keeps (`store.json_codec`)."""

from __future__ import annotations

from typing import Any, ClassVar


class Stored:
    """Base of a dataclass with defaults that is stored: all fields are written, so none may be missing when it is read.

    `msgspec` leaves a default that stands in for a field to the class.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        if len(vars(self)) < len(self.__dataclass_fields__):
            raise ValueError(f"a {type(self).__name__} without {self._missing()}")

    def _missing(self) -> str:
        return ", ".join(sorted(self.__dataclass_fields__.keys() - vars(self).keys()))
