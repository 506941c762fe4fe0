"""A model whose calls follow plans of a folder: `python tests/support/kept_calls.py FOLDER` trains it in two lengths.

Prints a line of JSON: how many plans were solved for, how many operators timed, and the losses. Needs the extra torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from gapless.torch import planned
from gapless.torch.calls import kept
from gapless.torch.capture import timing


class Small(nn.Module):
    """Two layers with dropout and a temperature."""

    def __init__(self, width: int = 12, act: Callable[[torch.Tensor], torch.Tensor] = torch.relu) -> None:
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(6, width), nn.Linear(width, 6), nn.Dropout(0.2)
        self.act, self.temp = act, 1.0

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.act(self.first(given)))) / self.temp


@dataclass
class Work:
    """How often what a folder saves was done."""

    solved: int = 0
    timed: int = 0


@contextmanager
def counted() -> Iterator[Work]:
    """Count solves and timed operators in the block."""
    work, solve, run = Work(), kept.solve, timing.measure_peak

    def solving(*arguments: object) -> object:
        work.solved += 1
        return solve(*arguments)

    def timed(*arguments: object) -> object:
        work.timed += 1
        return run(*arguments)

    kept.solve, timing.measure_peak = solving, timed
    try:
        yield work
    finally:
        kept.solve, timing.measure_peak = solve, run


def losses(
    folder: Path | str | None,
    lines: list[str],
    make: Callable[[], nn.Module] = Small,
    batches: tuple[int, ...] = (8,),
    **how: object,
) -> list[float]:
    """Of a step for each batch."""
    torch.manual_seed(0)
    model = planned(make(), how.pop("budget", "1.0x"), cache=folder, report=lines.append, **how)
    found = []
    for rows in batches:
        torch.manual_seed(rows)
        loss = model(torch.randn(rows, 6)).pow(2).mean()
        loss.backward()
        found += [loss.item(), *(parameter.grad.sum().item() for parameter in model.parameters())]
    return found


if __name__ == "__main__":
    with counted() as done:
        trained = losses(sys.argv[1], [], batches=(8, 3))
    print(json.dumps({"solved": done.solved, "timed": done.timed, "losses": trained}))
