"""`gapless run taccl` on an emulated cluster, and lone transfers that say how quiet the machine is meanwhile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.emulation import Cluster, lone_transfer

__all__ = ["Compared", "command", "compared"]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900.0
_QUIET = 0.05
"""How far a lone transfer's bandwidth may be from the emulated one."""


@dataclass(frozen=True)
class Compared:
    """`answer`: of `run taccl --json`. `alone`: float, shape (2,), of lone transfers before and after: their bandwidth
    over the emulated one.
    """

    answer: dict[str, Any]
    alone: NDArray[np.float64]

    @property
    def is_quiet(self) -> bool:
        """Whether lone transfers had the bandwidth that is emulated."""
        return bool((np.abs(self.alone - 1) < _QUIET).all())


def command(plan: Path, repeats: int) -> tuple[list[str], dict[str, str]]:
    """What every rank is to run, and its environment."""
    words = [sys.executable, "-m", "gapless", "run", "taccl", "--plan", str(plan), "--repeats", str(repeats), "--json"]
    return words, {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def compared(cluster: Cluster, plans: Sequence[Path], repeats: int) -> list[Compared]:
    """Run each plan beside the library's own collective. Raises `RuntimeError` with what rank 0 says where it fails."""
    found, lone = [], [lone_transfer(cluster)]
    for plan in plans:
        words, environment = command(plan, repeats)
        ended = cluster.run(words, TIMEOUT_S, environment)
        if ended[0].code:
            raise RuntimeError(ended[0].out)
        lone.append(lone_transfer(cluster))
        answer = json.loads(ended[0].out[ended[0].out.index("\n{") if ended[0].out[0] != "{" else 0 :])
        found.append(Compared(answer, np.array(lone[-2:])))
    return found
