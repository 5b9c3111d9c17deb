"""Transfers on the real local engine under crashes: each counts once, and the total never changes."""

from __future__ import annotations

import os

import pytest
from simulation_runs import run

from tidemill.testing.bank_simulation import BankSimulation

SEEDS = int(os.environ.get("TIDEMILL_BANK_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_total_stays_when_anything_fails_at_any_time(seed: int) -> None:
    run(BankSimulation(seed), 150)
