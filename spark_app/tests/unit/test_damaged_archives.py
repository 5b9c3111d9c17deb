"""A flipped bit in a ZIP of a store is `CorruptState`, whatever `zipfile` makes of it, or changes nothing."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.journal import entries
from tidemill.tables import container
from tidemill.values.errors import CorruptState, check_place

TESTS = Path(__file__).parents[1]
STORE = zipfile.ZipFile(TESTS / "golden" / "store.zip")


def smallest(folder: str) -> tuple[str, bytes]:
    infos = [info for info in STORE.infolist() if folder in info.filename and info.filename.endswith(".zip")]
    name = min(infos, key=lambda info: info.file_size).filename
    return name.partition("/")[2], STORE.read(name)


def flips(content: bytes, first: int) -> Iterator[bytes]:
    for bit in range(8 * first, 8 * len(content)):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        yield bytes(broken)


def directory(content: bytes) -> int:
    """Where the directory of a ZIP begins."""
    (begin,) = struct.unpack_from("<I", content, content.rindex(b"PK\5\6") + 16)
    assert isinstance(begin, int)
    return begin


def outcomes(read: Callable[[bytes], Any], content: bytes, first: int) -> set[str]:
    whole, found = read(content), set()
    for broken in flips(content, first):
        try:
            found.add("equal" if read(broken) == whole else "other")
        except CorruptState as error:
            found.add(f"of {error.context.get('key')}")
    return found


def test_only_corrupt_state_of_the_entry_when_any_bit_of_it_flips() -> None:
    key, content = smallest("/log/")
    assert outcomes(lambda data: entries.from_bytes(data, key), content, 0) <= {"equal", f"of {key}"}


@pytest.mark.parametrize("is_checked", [True, False])
def test_only_corrupt_state_when_any_bit_of_a_parts_directory_flips(is_checked: bool) -> None:
    key, content = smallest("/runs/")

    def read(data: bytes) -> Any:
        with container.reading_container(data, is_checked=is_checked) as (members, bounds, found):
            check_place(found, key)
            return [(member.key, member.kind, member.buffer.to_pybytes(), member.meta) for member in members], bounds

    assert outcomes(read, content, directory(content)) <= {"equal", "of None", f"of {key}"}


@pytest.mark.parametrize("damage", [ValueError, NotImplementedError, RuntimeError, OSError, struct.error, IndexError])
def test_error_names_the_object_when_zipfile_raises_anything(
    damage: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, content = smallest("/log/")

    def read(*_: Any) -> bytes:
        raise damage("no")

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    with pytest.raises(CorruptState, match=key):
        entries.from_bytes(content, key)
