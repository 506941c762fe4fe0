"""Every wait of a profile of links has an end, whatever the ranks' first group waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from silent_ranks import LONG_S, measuring, slow

from gapless.errors import RunError
from gapless.torch.processes import run_processes


def test_a_rank_that_falls_silent_ends_the_flow_it_is_part_of(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="rank 0: no message from another rank within the time that it may wait"):
        run_processes(measuring, tmp_path, 2, LONG_S)


def test_ranks_that_take_longer_than_they_may_in_all_are_ended(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ranks 0, 1: no end within 1 s"):
        run_processes(slow, tmp_path, 2, LONG_S, limit_s=1.0)
