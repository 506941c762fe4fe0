"""What ranks find of torch.distributed's functions under an installed selector. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gapless.errors import InputError
from gapless.torch.collectives import install

__all__ = ["LENGTHS", "call_installed", "call_otherwise", "train"]

LENGTHS = (7, 12, 60, 61)
"""Numbers in a share of each of the calls: 4 bytes each. Plans serve 40 bytes to 1 KB."""


def _newest(*names: str) -> Callable[..., Any]:
    """Calls torch.distributed's function by the first of its names that there is."""
    name = next(name for name in names if hasattr(dist, name))
    return lambda *arguments: getattr(dist, name)(*arguments)


_GATHER = _newest("all_gather_single", "all_gather_into_tensor")
_SCATTER = _newest("reduce_scatter_single", "reduce_scatter_tensor")


def _given(count: int, rank: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randint(100, (count,), generator=torch.Generator().manual_seed(rank)).to(kind)


def _called(length: int, kind: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """The result of each function for a share of so many numbers."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = {"all_reduce": _given(length, rank, kind), "broadcast": _given(length, rank, kind)}
    dist.all_reduce(found["all_reduce"])
    dist.broadcast(found["broadcast"], 0)
    found["all_gather"] = torch.empty(length * ranks, dtype=kind)
    _GATHER(found["all_gather"], _given(length, rank, kind))
    found["reduce_scatter"] = torch.empty(length, dtype=kind)
    _SCATTER(found["reduce_scatter"], _given(length * ranks, rank, kind))
    found["all_to_all"] = torch.empty(length * ranks, dtype=kind)
    dist.all_to_all_single(found["all_to_all"], _given(length * ranks, rank, kind))
    to = _given(length, rank, kind)
    dist.reduce(to, 0)
    found["reduce"] = to if rank == 0 else torch.empty(0)
    return found


def call_installed(rank: int, folder: Path) -> dict[str, Any]:
    """Whether results are the library's, and who has done how many calls, by length."""
    kinds = (torch.float32, torch.float64, torch.int64)
    library = {(length, kind): _called(length, kind) for length in LENGTHS for kind in kinds}
    before = dist.all_reduce
    counts: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    equal = []
    for length in LENGTHS:
        with install(folder / "tuned") as tuned:
            for kind in kinds:
                found = _called(length, kind)
                equal += [torch.equal(found[name], library[length, kind][name]) for name in found]
            counts[length] = (dict(tuned.taken), dict(tuned.left))
    return {"equal": all(equal), "counts": counts, "restored": dist.all_reduce is before}


def call_otherwise(rank: int, folder: Path) -> dict[str, Any]:
    """Calls that go to the library, calls in a group, and what is refused."""
    pair = dist.new_group([0, 2])
    with install(folder / "tuned") as tuned:
        whole = torch.full((100,), float(rank + 1))
        work = dist.all_reduce(whole, async_op=True)
        work.wait()
        largest = torch.full((100,), float(rank))
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        other_root = torch.full((100,), float(rank))
        dist.broadcast(other_root, 1)
        truth = torch.tensor([rank == 0] * 100)
        dist.all_reduce(truth)
        left = dict(tuned.taken)
        among = torch.full((100,), float(rank + 1))
        if rank != 1:
            dist.all_reduce(among, group=pair)
        try:
            install(folder / "tuned")
            twice = ""
        except InputError as error:
            twice = str(error)
        taken = dict(tuned.taken)
    refused = []
    for name in ("other-ranks", "other-backend", "changed", "nowhere"):
        try:
            install(folder / name)
        except InputError as error:
            refused.append(str(error))
    return {
        "values": [float(one[0]) for one in (whole, largest, other_root, among)], "taken before": left, "taken": taken,
        "twice": twice, "refused": refused,
    }  # fmt: skip


def train(rank: int, folder: Path) -> dict[str, Any]:
    """Losses of a small model under DDP, with the library alone and with the selector, and who summed the buckets."""
    library, _ = _losses(rank, None)
    with install(folder / "tuned") as tuned:
        winners, state = _losses(rank, tuned)
    return {"library": library, "winners": winners, "taken": state.taken, "left": state.left}


def _losses(rank: int, tuned: Any) -> tuple[list[float], Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.001)
    state = None if tuned is None else tuned.register(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    drawn = torch.Generator().manual_seed(rank + 1)
    losses = []
    for _ in range(6):
        given, wanted = torch.randn(16, 32, generator=drawn), torch.randint(4, (16,), generator=drawn)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(given), wanted)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, state
