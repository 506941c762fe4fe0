"""Ranks of which the last says nothing while links are measured. Imports torch."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from gapless.topologies.measured.experiments import Flow
from gapless.torch.links.transfers import Transfers
from gapless.torch.processes import Program

__all__ = ["LONG_S", "WAIT_S", "measuring", "slow"]

WAIT_S = 2.0
"""The longest that a rank waits for another."""
LONG_S = 120.0
"""How long the rank is silent that nobody hears of any more."""


def measuring(folder: Path) -> Program:
    """Rank 0 times a flow to a rank that doesn't take part."""

    def work(rank: int) -> dict[str, object]:
        transfers = Transfers(torch.device("cpu"), WAIT_S)
        if rank:
            time.sleep(LONG_S)
        transfers.time([Flow(0, 1, 1, 8, at_once=True)])
        return {}

    return Program(2, LONG_S, work)


def slow(folder: Path) -> Program:
    """Both ranks take long, and none waits for the other."""

    def work(rank: int) -> dict[str, object]:
        time.sleep(LONG_S)
        return {}

    return Program(2, LONG_S, work)
