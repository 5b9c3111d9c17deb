"""Selects from a value that a row holds, in place of a PState."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.language.dataflow import RecordedPath


@dataclass(frozen=True)
class SelectFrom:
    """The call of such a select as it is recorded: what its rows bring follows the value, numbered `*0`, `*1`, … in the
    path. The plan puts what follows paths in its place.
    """

    path: RecordedPath

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError("A recorded select is compiled before it runs.")
