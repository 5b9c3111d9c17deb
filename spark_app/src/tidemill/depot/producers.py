"""What the idempotent producers of a depot appended last: the newest table in the log, and the headers after it.

A table of thousands of keys in each segment would cost more than the records. So only some segments carry it whole (a
"full" header), and all say which one did so last. Any number of processes may append: each finds the same table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from tidemill.depot import record_reader
from tidemill.depot.files import DepotFiles
from tidemill.depot.header import Header, LastSequence, Produced
from tidemill.depot.producer_names import KEY_PREFIX, TOPOLOGY_PREFIX
from tidemill.store.objects import NotFound
from tidemill.values.errors import CorruptState, invariant

KEYS_MAX = 8_192
"""How many idempotency keys a depot remembers, those used last; as many of those that number their appends, and of
other producers, apart: who uses a new key for each append does not push out who numbers them. Nothing is forgotten by
time: a clock that is ahead would make a repeated append a second one."""

TABLE_EVERY = 64
"""A segment carries the table when this many came since the last one that did; so many headers a reader needs."""

SMALL_TABLE = 16
"""A table of so few producers rides along always: then nobody has to look back."""


class HeaderMissing(CorruptState):
    """A header that the table needs is deleted: there is a newer table, or somebody deleted what the depot needs."""


class ProducerTable:
    """Producers by name; keys in the order in which they were used, so that those used last are remembered."""

    def __init__(self, number: int = 0, sequences: Mapping[str, LastSequence] | None = None) -> None:
        self.number = number
        self._topologies: dict[str, LastSequence] = {}
        self._named: OrderedDict[str, LastSequence] = OrderedDict()
        self._keys: OrderedDict[str, LastSequence] = OrderedDict()
        self._numbered: OrderedDict[str, LastSequence] = OrderedDict()
        for name, last in (sequences or {}).items():
            self.put(name, last)

    def get(self, name: str) -> LastSequence | None:
        """What a producer appended last, as far as it is remembered."""
        kinds = (self._named, self._numbered, self._keys, self._topologies)
        return next((found for kind in kinds if (found := kind.get(name)) is not None), None)

    def add(self, header: Header) -> None:
        """Go on by the next segment."""
        invariant(
            header.number == self.number + 1, "S6: the table of producers misses no segment", number=header.number
        )
        self.number = header.number
        for append in header.produced:
            self.put(append.producer, LastSequence(append.sequence, header.number, append.digest))

    def put(self, name: str, last: LastSequence) -> None:
        """What this producer appended now is its last; the one used longest ago is forgotten if they are too many."""
        if name.startswith(TOPOLOGY_PREFIX):
            self._topologies[name] = last
            return
        self._keys.pop(name, None)
        is_key = name.startswith(KEY_PREFIX)
        kind = self._named if not is_key else self._numbered if last.sequence else self._keys
        kind[name] = last
        kind.move_to_end(name)
        while len(kind) > KEYS_MAX:
            kind.popitem(last=False)

    def sequences(self) -> dict[str, LastSequence]:
        """As a header carries them."""
        return {**self._topologies, **self._named, **self._keys, **self._numbered}


class Producers:
    """The table of one depot, brought up to the newest segment when it is needed. One thread at a time."""

    def __init__(self, files: DepotFiles) -> None:
        self._files = files
        self._table = ProducerTable()

    def last(self, newest: Header, name: str) -> LastSequence | None:
        """What a producer appended last, as of a segment; None if nothing is remembered.

        Raises:
            HeaderMissing: look for a newer segment and ask again.
        """
        return self._as_of(newest).get(name)

    def find(self, newest: Header, name: str, sequence: int) -> Produced | None:
        """An idempotent append of the past; None if its segment is deleted, or it never was. Raises as `last`."""
        last = self._as_of(newest).get(name)
        return record_reader.find_produced(self._files, last.segment, name, sequence) if last else None

    def after(self, newest: Header, produced: Sequence[Produced]) -> dict[str, LastSequence]:
        """The whole table as the segment after `newest` carries it, in which `produced` is. Raises as `last`."""
        sequences = self._as_of(newest).sequences()
        for append in produced:
            sequences.pop(append.producer, None)  # what was used last stands last
            sequences[append.producer] = LastSequence(append.sequence, newest.number + 1, append.digest)
        return sequences

    def _as_of(self, newest: Header) -> ProducerTable:
        if self._table.number < newest.number:
            self._table = brought_up(self._files, self._table, newest)
        return self._table


def brought_up(files: DepotFiles, known: ProducerTable, newest: Header) -> ProducerTable:
    """The table as of a segment: `known`, or a newer one in the log, and what was appended since. May change `known`.

    Where others rolled the log beyond `newest` it may be younger than that: a commit after `newest` fails anyway.

    Raises:
        HeaderMissing: a header that it takes is deleted.
    """
    later: list[Header] = []
    header = newest
    while not header.is_full and header.number > known.number:
        later.append(header)
        if header.number == known.number + 1:
            break
        header = _header(files, header.number - 1, newest)
    table = ProducerTable(header.number, header.sequences) if header.is_full else known
    for each in reversed(later):
        if each.number > table.number:
            table.add(each)
    return table


def _header(files: DepotFiles, number: int, newest: Header) -> Header:
    try:
        header = files.header(number)
    except NotFound as error:
        text = f"The segments of {files.prefix} from {newest.table_at} on hold its producers, but {number} is missing."
        raise HeaderMissing(text, prefix=files.prefix, number=number) from error
    invariant(header.is_full or header.number == number, "S6: what is rolled carries the table", number=number)
    return header
