"""Where a depot's segments are: in its log, or rolled up; with what was decoded lately kept in memory.

Objects are immutable and their names are never used again, so what is cached is always right.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from tidemill.depot.header import Header, SegmentSummary, header_bytes, read_header, read_nonce
from tidemill.store.log import PATIENCE, Log
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import asked_twice, check_place, reading_object

if TYPE_CHECKING:
    from tidemill.depot.segment import Segment

_HEADERS_MAX = 4096
_HEADER_BYTES_MAX = 32 * 1024 * 1024
_HEADER_BYTES, _OFFSET_BYTES, _PRODUCER_BYTES = 1_500, 40, 400
_SEGMENTS_MAX = 128
_SEGMENT_BYTES_MAX = 64 * 1024 * 1024
_SEGMENT_BYTES = 16 * 1024
"""What a decoded segment takes beside its bytes."""

_MAPPED_BYTES_MIN = 1024 * 1024
"""Smaller files are read."""

_MAPPED_SHARE = 8
_HEADER_GUESS_BYTES = 64 * 1024
_V = TypeVar("_V")


class _Recent(Generic[_V]):
    """The values used last, up to a number of them and a sum of their weights."""

    def __init__(self, count_max: int, weight_max: int) -> None:
        self._count_max = count_max
        self._weight_max = weight_max
        self._weight = 0
        self._values: OrderedDict[str, tuple[_V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> _V | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: str, value: _V, weight: int) -> None:
        with self._lock:
            if key in self._values:
                return
            self._values[key] = (value, weight)
            self._weight += weight
            while len(self._values) > self._count_max or (self._weight > self._weight_max and len(self._values) > 1):
                _, (_, dropped) = self._values.popitem(last=False)
                self._weight -= dropped


class _Cache:
    def __init__(self) -> None:
        self.headers: _Recent[Header] = _Recent(_HEADERS_MAX, _HEADER_BYTES_MAX)
        self.segments: _Recent[Segment] = _Recent(_SEGMENTS_MAX, _SEGMENT_BYTES_MAX)


_caches: weakref.WeakKeyDictionary[Any, _Cache] = weakref.WeakKeyDictionary()


class DepotFiles:
    """The segments of one depot by number, wherever they are now."""

    def __init__(self, store: ObjectStore, prefix: str, patience: tuple[float, ...] = PATIENCE) -> None:
        self.store = store
        self.prefix = prefix
        self.log = Log(store, f"{prefix}/log", ".arrow", read_nonce, patience)
        self._cache = _caches.setdefault(store, _Cache())
        self._rolled: list[tuple[int, int, str]] = []

    # --- one segment -------------------------------------------------------------------------------------------------

    def header(self, number: int) -> Header:
        """The header of the object that holds this segment. Raises NotFound if it was deleted or never written."""
        return self._find(number, self._cache.headers, lambda key: asked_twice(lambda: self._load_header(key)))

    def segment(self, number: int) -> Segment:
        """The object that holds this segment, decoded. Raises NotFound if it was deleted or never written."""
        return self._find(number, self._cache.segments, lambda key: asked_twice(lambda: self._load_segment(key)))

    def entry(self, number: int) -> SegmentSummary:
        """The summary of this segment. Raises NotFound if it was deleted or never written."""
        return _entry_in(self.header(number), number)

    def ends_before(self, number: int) -> tuple[int, ...]:
        """The end offsets of all partitions before this segment."""
        return self.header(number).ends_before(number)

    def remember(self, header: Header) -> None:
        """Keep the header of a segment that this process wrote."""
        self._cache.headers.put(self.log.key(header.number), header, _weight(header))

    def first_after(self, is_after: Callable[[SegmentSummary], bool], newest: int) -> int:
        """The first segment up to `newest` for which `is_after`, which is true from some segment on; else newest + 1.

        Looks back from the end in growing steps, since what is looked for is mostly near. Deleted segments come before.
        """
        high, step = newest + 1, 1
        low = 0
        while low < high - 1:
            probe = max(low + 1, high - step) if low == 0 else (low + high) // 2
            if self._is_after(probe, is_after):
                high, step = probe, step * 2
            else:
                low = probe
        return high

    def _is_after(self, number: int, is_after: Callable[[SegmentSummary], bool]) -> bool:
        try:
            return is_after(self.entry(number))
        except NotFound:
            return False

    # --- rolled objects ----------------------------------------------------------------------------------------------

    def rolled_key(self, first: int, last: int) -> str:
        """The key of the object that holds the segments `first` to `last`, both included."""
        return f"{self.prefix}/rolled/{first:020d}-{last:020d}.arrow"

    def rolled_covers(self, number: int) -> bool:
        """Whether a rolled object holds this segment, by what was listed last."""
        return bool(_covering(self._rolled, number))

    def list_rolled(self) -> list[tuple[int, int, str]]:
        """(first, last, key) of the rolled objects there are, ascending."""
        found = []
        for key in self.store.list(f"{self.prefix}/rolled"):
            first, _, last = key.rpartition("/")[2].removesuffix(".arrow").partition("-")
            found.append((int(first), int(last), key))
        self._rolled = sorted(found)
        return self._rolled

    def _find(self, number: int, recent: _Recent[_V], load: Callable[[str], tuple[_V, int]]) -> _V:
        """The object that holds a segment: rolled, or in the log, or rolled since this instance looked last."""
        found = self._load_first(_covering(self._rolled, number), recent, load)
        if found is None:
            found = self._load_from_log(number, recent, load)
        if found is None:
            found = self._load_first(_covering(self.list_rolled(), number), recent, load)
        if found is None:
            self.log.floor()  # where the depot was deleted, that is why, and this says so
            raise NotFound(f"Segment {number} of {self.prefix} is gone.", number=number)
        return found

    def _load_first(self, keys: Sequence[str], recent: _Recent[_V], load: Callable[[str], tuple[_V, int]]) -> _V | None:
        for key in keys:
            value = recent.get(key)
            if value is not None:
                return value
            try:
                value, weight = load(key)
            except NotFound:
                continue
            recent.put(key, value, weight)
            return value
        return None

    def _load_from_log(self, number: int, recent: _Recent[_V], load: Callable[[str], tuple[_V, int]]) -> _V | None:
        """Rule of logs: what stands in a slot counts only if it is an entry, which is looked at after it was read."""
        key = self.log.key(number)
        value = recent.get(key)
        if value is not None:
            return value
        try:
            value, weight = load(key)
        except NotFound:
            return None
        if not self.log.is_entry(number):
            return None
        recent.put(key, value, weight)
        return value

    # --- objects -----------------------------------------------------------------------------------------------------

    def _load_header(self, key: str) -> tuple[Header, int]:
        data = self.store.get_range(key, 0, _HEADER_GUESS_BYTES)
        with reading_object(key):
            needed = header_bytes(data)
            if needed > len(data):
                data = self.store.get_range(key, 0, needed)
            header = read_header(data)
            check_place(header.key, key)
            return header, _weight(header)

    def _load_segment(self, key: str) -> tuple[Segment, int]:
        from tidemill.depot.segment import Segment  # loads Polars, which headers do without

        data, weight = self._bytes_at(key)
        with reading_object(key):
            segment = Segment(data)
            check_place(segment.header.key, key)
            return segment, weight

    def _bytes_at(self, key: str) -> tuple[Any, int]:
        """What `Segment` decodes, and its weight: that of a mapped file is less, but its disk space is held as well."""
        path = self.store.local_path(key)
        try:
            if path is not None and (size := path.stat().st_size) >= _MAPPED_BYTES_MIN:
                return pa.memory_map(str(path)), size // _MAPPED_SHARE
            data = self.store.get(key)
            return pa.py_buffer(data), _SEGMENT_BYTES + len(data)
        except (FileNotFoundError, NotADirectoryError) as error:
            self.store.exists(key)  # raises where the whole store is away
            raise NotFound(f"No object {key} in {self.store.url}.", key=key) from error


def _weight(header: Header) -> int:
    """About the bytes that a header takes as Python's objects."""
    offsets = len(header.starts) * (len(header.entries) + 2)
    return _HEADER_BYTES + _OFFSET_BYTES * offsets + _PRODUCER_BYTES * len(header.sequences)


def _covering(rolled: list[tuple[int, int, str]], number: int) -> list[str]:
    return [key for first, last, key in reversed(rolled) if first <= number <= last]


def _entry_in(header: Header, number: int) -> SegmentSummary:
    return header.entries[number - header.entries[0].number]
