"""Where things lie: the checkout, and the cache outside it that survives it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cache() -> Path:
    """`$TIDEMILL_CACHE/images`, made if it is missing."""
    home = os.environ.get("TIDEMILL_CACHE") or str(Path.home() / ".cache" / "tidemill")
    folder = Path(home) / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
