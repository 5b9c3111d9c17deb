"""Plain ZIPs as objects of a store: no member is compressed; damage is `CorruptState`, whatever it hits."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidemill.values.errors import CorruptState

_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
_DAMAGED: Final = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, LookupError, ValueError, OverflowError,
    EOFError, OSError, RuntimeError,
)  # fmt: skip
"""What `zipfile` raises where bits of a ZIP are flipped. RuntimeError: a flag says "encrypted" or names a feature."""


class Archive:
    """A ZIP in memory, which is not copied. The caller adds the object's name to errors (`values.errors`).

    Raises:
        CorruptState: its directory cannot be read.
    """

    def __init__(self, content: Any) -> None:
        self._view = memoryview(content)
        with _reading("directory"):
            self._zip = zipfile.ZipFile(_Window(self._view))

    @property
    def comment(self) -> bytes:
        """The text at its end."""
        return self._zip.comment

    def names(self) -> list[str]:
        """Its members, in their order."""
        return self._zip.namelist()

    def read(self, name: str) -> bytes:
        """A member's bytes, compared with their checksum. Raises CorruptState."""
        with _reading(name):
            return self._zip.read(self._stored(name))

    def view(self, name: str, *, is_checked: bool) -> memoryview:
        """A member's bytes in place; `is_checked` compares them with their checksum. Raises CorruptState."""
        with _reading(name):
            info = self._stored(name)
            begin = info.header_offset + _LOCAL_HEADER.size
            signature, named, extra = _LOCAL_HEADER.unpack(self._view[info.header_offset : begin])
            found = self._view[begin + named + extra :][: info.file_size]
            is_its_own = signature == b"PK\3\4" and self._view[begin : begin + named] == info.orig_filename.encode()
            if not is_its_own or len(found) != info.file_size or (is_checked and zlib.crc32(found) != info.CRC):
                raise CorruptState(f"a member {name} of an archive does not match its header or its checksum")
            return found

    def _stored(self, name: str) -> zipfile.ZipInfo:
        info = self._zip.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise CorruptState(f"a member {name} of an archive is compressed, as none that was written is")
        return info


@contextmanager
def _reading(part: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise CorruptState(f"an archive's {part} cannot be read: {error!r}") from error


class _Window(io.RawIOBase):
    """A buffer as a file, without a copy of it (`io.BytesIO` would make one)."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, len(self._view))[whence]
        if at < 0:
            raise ValueError(f"byte {at} is before the first")
        self._at = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._view) if size is None or size < 0 else self._at + size
        data = bytes(self._view[self._at : end])
        self._at += len(data)
        return data
