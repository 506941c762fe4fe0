"""Plans of collectives, called by real processes; what each rank gives and gets. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gapless.collective import Collective
from gapless.torch.collectives import planned

LENGTH = 3
"""Numbers in a chunk."""


def numbers(collective: Collective, rank: int) -> torch.Tensor:
    """A rank's input, whole numbers that say whose they are; of one that only passes on, as long as a chunk."""
    is_relay = not collective.inputs[rank] and not collective.outputs[rank]
    return torch.arange(LENGTH * (len(collective.inputs[rank]) + is_relay), dtype=torch.float64) + 1000 * rank


def expected(collective: Collective, rank: int) -> torch.Tensor:
    """A rank's output, by the definition of the collective."""
    parts: dict[int, torch.Tensor] = {}
    for other, chunks in enumerate(collective.inputs):
        for chunk, part in zip(chunks, numbers(collective, other).split(LENGTH), strict=False):
            parts[chunk] = parts[chunk] + part if chunk in parts else part
    return torch.cat([parts[chunk] for chunk in collective.outputs[rank]] or [torch.empty(0, dtype=torch.float64)])


def call_all(rank: int, folder: Path) -> dict[str, Any]:
    """Which plans of the folder end right on this rank: twice into new memory, and in place where that is possible."""
    found = {}
    for path in sorted(folder.glob("*.plan")):
        collective = planned(path)
        given, wanted = numbers(collective.collective, rank), expected(collective.collective, rank)
        before = given.clone()
        result = torch.full_like(wanted, -1)
        calls = [collective(given, result).equal(wanted), collective(given, result).equal(wanted), given.equal(before)]
        buffers = zip(collective.collective.inputs, collective.collective.outputs, strict=True)
        if all(0 < len(one) == len(other) for one, other in buffers):
            calls.append(collective(given, given).equal(wanted))
        found[path.stem] = (calls, collective.sent_bytes)
    return found
