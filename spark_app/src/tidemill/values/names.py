"""The names that folders of a store and parts of paths of HTTP can have."""

from __future__ import annotations

import unicodedata
from typing import Final

from tidemill.values.data import has_utf8

NAME_BYTES_MAX: Final = 200
"""Folders of the store have a name and an id behind it, and a file system takes 255 bytes."""


def name_flaw(name: str) -> str:
    """What keeps a text from being a name, such as "has a '/'"; "" where nothing does."""
    if not has_utf8(name):
        return "has a lone surrogate, which cannot be stored"
    if not name:
        return "is empty"
    if "/" in name or name in (".", ".."):
        return "has a '/'" if "/" in name else "stands for a folder in paths"
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        return "has a control character"
    return f"takes more than {NAME_BYTES_MAX} bytes" if len(name.encode()) > NAME_BYTES_MAX else ""


def is_folder_name(name: str) -> bool:
    """Whether a module, a graph or a Dataset may be called so: it is safe to look for its folder."""
    return not name.startswith((".", "_")) and not name_flaw(name)
