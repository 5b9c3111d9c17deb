"""The test kit for users: a cluster in the process, stores that fail where a test says, time that a test moves.

    from tidemill.testing import Crash, FaultPlan, FaultyObjectStore, ManualClock, MemoryStore

Tidemill itself never imports this package.
"""

from __future__ import annotations

from tidemill.graphs.confluence import NotConfluent, check_confluence
from tidemill.journal.clock import ManualClock
from tidemill.testing.fault_points import Abort, FaultPoints
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.testing.index_keys import gen_hashing_index_keys
from tidemill.testing.memory_store import MemoryStore

__all__ = [
    "Abort", "Crash", "FaultPlan", "FaultPoints", "FaultyObjectStore", "ManualClock", "MemoryStore",
    "NotConfluent", "check_confluence", "gen_hashing_index_keys",
]  # fmt: skip
