"""A quarantined record, as everybody sees it: in this process, through a gateway, on a command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tidemill.values.numbers import MicrobatchId, Version

PAGE_RECORDS: Final = 100
"""Records of one answer, unless somebody asks for fewer."""


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record that was left out of a committed microbatch; `number` is its name in the quarantine.

    `record` stood at `offset` of `partition` of `depot`, which `source` reads. Version `version` of microbatch
    `microbatch_id`, which took `start_offset` to `end_offset` - 1 of that partition, failed at it with the code of
    revision `definition`: `message`, `step`, `trace` and `sample` say how.
    """

    number: int
    depot: str
    depot_id: str
    source: str
    partition: int
    offset: int
    record: Any
    microbatch_id: MicrobatchId
    version: Version
    definition: int
    start_offset: int
    end_offset: int
    at_ms: int
    message: str
    step: str
    trace: str
    sample: str

    @property
    def depot_place(self) -> tuple[str, str]:
        """The depot by its name and its id."""
        return self.depot, self.depot_id
