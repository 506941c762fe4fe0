"""The plans that won: found by collective, group and size, and made at their first call."""

from __future__ import annotations

from pathlib import Path

from gapless.io.formats.tuned_file import Selector
from gapless.torch.collectives.executor import Channels, planned
from gapless.torch.collectives.fitted import FittedCollective
from gapless.torch.library import torch

__all__ = ["WinningPlans", "ranks_of"]


def ranks_of(group: torch.distributed.ProcessGroup | None) -> tuple[int, ...]:
    """The ranks of a group, in its order."""
    return tuple(torch.distributed.get_process_group_ranks(group))


class WinningPlans:
    """Plans of a folder that are never called at the same time: those of a group share its channels."""

    def __init__(self, folder: Path, selector: Selector, wait_s: float) -> None:
        self._folder, self._selector, self._wait_s = folder, selector, wait_s
        self._channels: dict[tuple[int, ...], Channels] = {}
        self._made: dict[tuple[int, tuple[int, ...]], FittedCollective] = {}

    def serves(self, collective: str, size_bytes: int, group: torch.distributed.ProcessGroup | None) -> bool:
        """Whether there is one."""
        return self._selector.plan_for(collective, ranks_of(group), size_bytes) is not None

    def plan_for(
        self, collective: str, size_bytes: int, group: torch.distributed.ProcessGroup | None
    ) -> FittedCollective | None:
        """The plan that won, None where the library is to do it; made by all ranks of the group, at its first call."""
        if torch.distributed.get_rank(group) < 0:
            return None
        ranks = ranks_of(group)
        number = self._selector.plan_for(collective, ranks, size_bytes)
        if number is None:
            return None
        if (number, ranks) not in self._made:
            if ranks not in self._channels:
                self._channels[ranks] = Channels(group, self._wait_s)
            path = self._folder / self._selector.plans[number].file
            plan = planned(
                path, group=group, wait_s=self._wait_s, collective=collective, anyway=True,
                channels=self._channels[ranks],
            )  # fmt: skip
            self._made[number, ranks] = FittedCollective(plan)
        return self._made[number, ranks]
