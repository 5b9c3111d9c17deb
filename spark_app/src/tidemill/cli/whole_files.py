"""Files that a command writes: whole, or not at all. One that was cut off in the middle reads like a whole one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.values.ids import nonce


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A name beside a file under which to write it; it becomes the file at the end, unless something went wrong."""
    beside = file.with_name(f".tidemill-{nonce()}{file.suffix}")
    try:
        yield beside
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)
