"""How much of a driver's memory is the JVM's heap: payloads pass through it one by one, and Python has the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HEAP_MEBIBYTES_MIN: Final = 512
HEAP_MEBIBYTES_DEFAULT: Final = 1024
BESIDE_MEBIBYTES_MIN: Final = 384
"""What Spark itself keeps free beside the heap at least."""

_UNITS: Final = {
    "": 1, "m": 10**-3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def heap_mebibytes(resources: Mapping[str, Any]) -> int:
    """Half of the container's memory and at least 512 MiB; 1 GiB where nothing says how much it has."""
    total = total_mebibytes(resources)
    return max(HEAP_MEBIBYTES_MIN, total // 2) if total else HEAP_MEBIBYTES_DEFAULT


def total_mebibytes(resources: Mapping[str, Any]) -> int:
    """The container's memory: its limit, else its request; 0 if it names neither."""
    for kind in ("limits", "requests"):
        quantity = (resources.get(kind) or {}).get("memory")
        if quantity is not None:
            return mebibytes(str(quantity))
    return 0


def mebibytes(quantity: str) -> int:
    """A quantity of Kubernetes, such as `1500Mi`, `2G` or `1e9`, rounded down; 0 for what is none.

    The API server refuses what is none where it is applied, with words of its own.
    """
    found = re.fullmatch(r"([0-9]*\.?[0-9]+|[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]i?|Ki)?)", quantity)
    if found is None or (found[3] or "") not in _UNITS:
        return 0
    return int(float(found[1]) * 10.0 ** int(found[2] or 0) * _UNITS[found[3] or ""] / 2**20)
