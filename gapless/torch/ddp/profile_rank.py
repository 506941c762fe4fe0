"""One rank that measures a model's gradients, and what hooks take to send them. The folder holds `task.json`."""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from gapless.leaving import temporary_folder
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.compressors import compressor_of
from gapless.torch.ddp.measuring import Gradients, measure_gradients, measure_hook
from gapless.torch.library import rank_count, torch
from gapless.torch.processes import Program, be_rank, run_processes
from gapless.torch.run.workload import load_named

__all__ = ["HookTimes", "ProfileTask", "measured", "sample_groups"]


@dataclass(frozen=True)
class ProfileTask:
    """What all ranks measure: a model as `load_named` takes it, so many steps of it, and each mode so many times.

    `wait_s`: the longest that a rank waits for another.
    """

    model: str
    seed: int
    modes: tuple[str, ...]
    steps: int
    repeats: int
    ranks: int
    wait_s: float


@dataclass(frozen=True)
class HookTimes:
    """What it took to send gradients `first` .. `last` in a mode: medians over repetitions, the slowest rank's.

    `between_s`: the part of `send_s` that goes into computing between two collectives. `spread`: the range of the
    middle half of the sums, as a share of their median.
    """

    mode: str
    first: int
    last: int
    encode_s: float
    send_s: float
    decode_s: float
    between_s: float
    spread: float


def measured(task: ProfileTask, stop: threading.Event | None = None) -> tuple[Gradients, list[HookTimes]]:
    """What as many processes find. Raises `InputError` for a model or mode that can't be, and `RunError`."""
    for mode in task.modes:
        compressor_of(mode)  # refused here, not in each rank
    trainable(load_named(task.model, task.seed).model)
    with temporary_folder("gapless-ranks-") as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(asdict(task)), "utf-8")
        found, *_ = run_processes("gapless.torch.ddp.profile_rank", folder, task.ranks, task.wait_s, stop)
    rows = found["gradients"]
    columns = {name: tuple(rows[name]) for name in ("names", "size_bytes", "gaps_s")}
    gradients = Gradients(**{**rows, **columns, "shapes": tuple(map(tuple, rows["shapes"]))})
    return gradients, [HookTimes(**row) for row in found["hooks"]]


def sample_groups(size_bytes: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive gradients to measure hooks with, (first, last): from either end, each at least twice as large as the
    one before it, and all of them.
    """
    count, found = len(size_bytes), set()
    for of_end in (False, True):
        least = 0
        for number, total in enumerate(accumulate(reversed(size_bytes) if of_end else size_bytes)):
            if total >= least:
                found.add((count - 1 - number, count - 1) if of_end else (0, number))
                least = 2 * total
    return sorted(found | {(0, count - 1)})


def _prepared(folder: Path) -> Program:
    data = json.loads((folder / "task.json").read_text("utf-8"))
    task = ProfileTask(**{**data, "modes": tuple(data["modes"])})
    return Program(task.ranks, task.wait_s, lambda rank: _work(task))


def _work(task: ProfileTask) -> dict[str, Any]:
    work = load_named(task.model, task.seed)
    torch.distributed.barrier()
    ddp = _unsent(work.model)
    gradients = measure_gradients(work.model, lambda _: work.loss_of(ddp), task.steps)
    dtype = next(iter(trainable(work.model).values())).dtype
    rows = []
    for mode in task.modes:
        for first, last in sample_groups(gradients.size_bytes):
            rows.append(asdict(_hook_times(mode, gradients, first, last, task.repeats, dtype)))
    return {"gradients": asdict(gradients), "hooks": rows}


def _unsent(model: Any) -> Any:
    """The model in DDP that sends nothing: what DDP itself does counts as computation."""

    def unsent(state: None, bucket: Any) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    unsent.__annotations__ = {}  # DDP compares those that are there with its own types
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    ddp.register_comm_hook(None, unsent)
    return ddp


def _hook_times(mode: str, gradients: Gradients, first: int, last: int, repeats: int, dtype: Any) -> HookTimes:
    taken = measure_hook(mode, gradients.shapes[first : last + 1], repeats, dtype)
    titles = ("encode_s", "send_s", "decode_s", "between_s")
    slowest_s = _slowest([statistics.median(getattr(each, title) for each in taken) for title in titles])
    sums = sorted(each.encode_s + each.send_s + each.decode_s for each in taken)
    spread = (sums[3 * len(sums) // 4] - sums[len(sums) // 4]) / statistics.median(sums)
    return HookTimes(mode, first, last, **dict(zip(titles, slowest_s, strict=True)), spread=spread)


def _slowest(times_s: list[float]) -> list[float]:
    found = torch.tensor(times_s, dtype=torch.float64)
    if rank_count() > 1:
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
    return [float(time_s) for time_s in found]


if __name__ == "__main__":
    be_rank(_prepared)
