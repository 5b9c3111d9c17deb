"""The state of a run as objects of the store: one pickle, and each larger frame in it as an object of its own.

A frame that an earlier checkpoint wrote is named and not written again, so a state that only grows costs what was
added. Reading a checkpoint runs code, as reading any pickle does: who may write to the store may run code in a graph.
Its first line can be read without that: the keys of all objects that the state needs, as JSON.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl

from tidemill.graphs.dataset import DatasetObject
from tidemill.graphs.pickled_code import CodePickler
from tidemill.graphs.sealed import sealed, unsealed
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import CorruptState
from tidemill.values.ids import nonce

INLINE_BYTES = 32 * 1024
"""Smaller frames stand in the pickle itself."""
FRAME = ".arrow"
"""How the keys of frames end."""

_WRITERS = 8


class FrameStore:
    """Frames as Arrow objects below a folder, each written once."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        # The frames are kept with their keys: an identity means something only while its object lives.
        self._known: dict[int, tuple[pl.DataFrame, int, str]] = {}

    def dump(self, value: Any, also: Iterable[str] = ()) -> tuple[bytes, tuple[str, ...]]:
        """Anything as bytes, and the keys of the frames that it names, all of them written.

        `also` are keys of other objects that it needs, beside frames and those of Datasets.
        """
        written: set[str] = set(also)
        named: dict[int, tuple[pl.DataFrame, int, str]] = {}
        new: list[tuple[str, pl.DataFrame]] = []

        def name(frame: pl.DataFrame) -> str:
            found = named.get(id(frame)) or self._known.get(id(frame))
            if found is None or found[1] != frame.height:
                found = (frame, frame.height, f"{self._folder}/{nonce()}{FRAME}")
                new.append((found[2], frame))
            named[id(frame)] = found
            return found[2]

        buffer = io.BytesIO()
        _FramePickler(buffer, name, written.add).dump(value)
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(lambda each: write_frame(self._store, *each), new))
        self._known = named
        frames = tuple(key for _, _, key in named.values())
        return json.dumps(sorted({*frames, *written})).encode() + b"\n" + buffer.getvalue(), frames

    def load(self, content: bytes) -> tuple[Any, tuple[str, ...]]:
        """What was dumped, and the keys of the frames that it names."""
        frames: dict[str, pl.DataFrame] = {}

        def find(key: str) -> pl.DataFrame:
            if key not in frames:
                frames[key] = read_frame(self._store, key)
            return frames[key]

        pickled = memoryview(content)[content.index(b"\n") + 1 :]
        value = _FrameUnpickler(io.BytesIO(pickled), find).load()
        self._known = {id(frame): (frame, frame.height, key) for key, frame in frames.items()}
        return value, tuple(frames)


class _FramePickler(CodePickler):
    """Puts a name in the place of each frame that is not small, and notes the objects of Datasets."""

    def __init__(self, buffer: io.BytesIO, name: Callable[[pl.DataFrame], str], note: Callable[[str], object]) -> None:
        super().__init__(buffer)
        self._name, self._note = name, note

    def persistent_id(self, value: Any) -> str | None:
        """The name of a frame; None for all else, which is pickled."""
        if type(value) is DatasetObject:
            self._note(value.key)
        if type(value) is pl.DataFrame and value.estimated_size() >= INLINE_BYTES:
            return self._name(value)
        return None


class _FrameUnpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, find: Callable[[str], pl.DataFrame]) -> None:
        super().__init__(buffer)
        self._find = find

    def persistent_load(self, key: str) -> pl.DataFrame:
        """The frame of a name."""
        return self._find(key)


def names_of(content: bytes) -> list[str]:
    """The keys of the objects that a checkpoint needs. Raises CorruptState where it has not them."""
    try:
        found: list[str] = json.loads(content[: content.index(b"\n")])
    except ValueError as error:
        raise CorruptState(f"A checkpoint of a graph cannot be read: {error}") from error
    return found


def write_frame(store: ObjectStore, key: str, frame: pl.DataFrame) -> None:
    """Create an object with the rows of a frame."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="lz4")
    store.create(key, sealed(key, buffer.getvalue()))


def read_frame(store: ObjectStore, key: str) -> pl.DataFrame:
    """The rows of an object. Raises CorruptState where it is gone, or is not what was written."""
    try:
        return pl.read_ipc(io.BytesIO(unsealed(key, store.get(key))))
    except NotFound as error:
        text = f"{key} is gone: another process resumed this graph, or somebody deleted it."
        raise CorruptState(text, key=key) from error


def delete_but(store: ObjectStore, folder: str, kept: Iterable[str]) -> None:
    """Delete what is below a folder but for some keys."""
    stays = set(kept)
    for key in list(store.list(folder)):
        if key not in stays:
            store.delete(key)
