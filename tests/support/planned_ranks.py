"""Plans of collectives, called by real processes; what each rank gives and gets. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gapless.errors import InputError
from gapless.ir.collective import Collective
from gapless.torch.collectives import AllGather, AllReduce, PlannedCollective, planned

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


def refused(collective: PlannedCollective, *buffers: torch.Tensor) -> str:
    """What is said of buffers that don't suit a collective."""
    try:
        collective(*buffers)
    except InputError as error:
        return str(error)
    return ""


def call_otherwise(rank: int, folder: Path) -> dict[str, Any]:
    """What is refused, what other kinds of numbers end with, and a plan for two ranks on ranks 0 and 2."""
    plan, pair = AllGather(folder / "allgather.plan"), folder / "allgather.pair"
    own = torch.full((LENGTH,), rank)
    group = torch.distributed.new_group([0, 2])
    found = {
        "undivided": refused(planned(folder / "alltoall.plan"), torch.zeros(LENGTH + 1)),
        "not flat": refused(plan, torch.zeros(2, 2)),
        "other type": refused(plan, own, torch.zeros(3 * LENGTH)),
        "other length": refused(plan, own, torch.zeros(6 * LENGTH, dtype=own.dtype)),
        "kinds": [plan(own.to(kind)).tolist() for kind in (torch.uint8, torch.bfloat16, torch.int64)],
        "learned": plan(own.float().requires_grad_()).requires_grad,
        "pair": AllGather(pair, group=group)(own).tolist() if rank != 1 else [],
    }
    found["slower, anyway"] = AllGather(folder / "allgather.slow", anyway=True)(own).tolist()
    for name, make, path in (
        ("other collective", AllReduce, "allgather.plan"),
        ("slower", AllGather, "allgather.slow"),
    ):
        try:
            make(folder / path)
        except InputError as error:
            found[name] = str(error)
    return found
