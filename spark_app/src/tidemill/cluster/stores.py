"""Stores as people name them."""

from __future__ import annotations

from pathlib import Path


def absolute_url(url: str) -> str:
    """A store's URL that means the same wherever this process goes: folders become absolute."""
    return url if "://" in url or not url else str(Path(url).absolute())
