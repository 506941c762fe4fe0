"""What hooks take of a rank's processors beside a running backward pass. Needs the extra `torch`.

A step that sends nothing takes its processor seconds, whatever else the machine does; a step whose buckets go in a mode
takes more. Of that, encoding and decoding have what their threads took, and collectives all the rest: gloo's threads,
what waits for it, and what DDP does for a bucket.
"""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gapless.io.formats.ddp_buckets import DdpBuckets
from gapless.torch.ddp.buckets import distribute, size_bytes, trainable
from gapless.torch.ddp.hook import HookState
from gapless.torch.library import Module, rank_count, torch
from gapless.torch.run.workload import Workload

__all__ = ["StepWork", "cores_of_rank", "measure_work", "step_work_s"]

_WARM_UP = 3
_PARTS = (1, 4, 12)
"""Into so many groups of about the same bytes gradients are cut."""


@dataclass(frozen=True)
class StepWork:
    """What sending all gradients in a mode took beside a backward pass: processor seconds, medians over steps, the mean
    over ranks.

    `groups`: (first, last) gradient of each bucket. `encode_s`, `decode_s`: of each bucket. `sending_s`: of all
    collectives.
    """

    mode: str
    groups: tuple[tuple[int, int], ...]
    encode_s: tuple[float, ...]
    decode_s: tuple[float, ...]
    sending_s: float


def cores_of_rank(ranks: int) -> float:
    """The cores that each of so many ranks of this machine has; below 1 where they share one."""
    is_bound = hasattr(os, "sched_getaffinity")
    return (len(os.sched_getaffinity(0)) if is_bound else os.cpu_count() or 1) / ranks


def step_work_s(run: Callable[[], object], steps: int) -> float:
    """The processor seconds of a step, of all threads of this process: the median after a few others."""
    taken = []
    for number in range(_WARM_UP + steps):
        if rank_count() > 1:
            torch.distributed.barrier()
        begin_s = time.process_time()
        run()
        if number >= _WARM_UP:
            taken.append(time.process_time() - begin_s)
    return statistics.median(taken)


def measure_work(mode: str, work: Workload, names: Sequence[str], steps: int, unsent_s: float) -> list[StepWork]:
    """Run steps whose gradients, in the order of `names`, go in a mode, in few groups and in many; in every rank.

    `unsent_s`: the processor seconds of a step that sends nothing.
    """
    parameters = trainable(work.model)
    sizes = [size_bytes(parameters[name]) for name in names]
    cuts = {tuple(_cut(sizes, parts)) for parts in _PARTS}
    return [_in_groups(mode, work, names, sizes, groups, steps, unsent_s) for groups in sorted(cuts)]


def _cut(sizes: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """(first, last) of groups that each reach another of `parts` even shares of the bytes."""
    groups, first, total = list[tuple[int, int]](), 0, max(1, sum(sizes))
    for number, held in enumerate(accumulate(sizes)):
        is_last = number == len(sizes) - 1
        if is_last or (held * parts >= total * (len(groups) + 1) and sizes[number]):
            groups.append((first, number))
            first = number + 1
    return groups


def _in_groups(
    mode: str, work: Workload, names: Sequence[str], sizes: Sequence[int], groups: tuple[tuple[int, int], ...],
    steps: int, unsent_s: float,
) -> StepWork:  # fmt: skip
    model: Module = copy.deepcopy(work.model)
    state = HookState(mode, is_counted=True)
    ddp = distribute(model, DdpBuckets("work", tuple(names), tuple(sizes), groups), state, broadcast_buffers=False)

    def step() -> None:
        ddp.zero_grad(set_to_none=True)
        state.clear()
        work.loss_of(ddp).backward()
        coded.append([(each.encode_work_s, each.decode_work_s) for each in state.sent])

    coded = list[list[tuple[float, float]]]()
    taken_s = step_work_s(step, steps)
    columns = zip(*coded[_WARM_UP:], strict=True)
    medians = [[statistics.median(times) for times in zip(*column, strict=True)] for column in columns]
    encode_s, decode_s = ([each[place] for each in medians] for place in (0, 1))
    sending_s = max(0.0, taken_s - unsent_s - sum(encode_s) - sum(decode_s))
    means = _mean_of_ranks([*encode_s, *decode_s, sending_s])
    count = len(groups)
    return StepWork(mode, groups, tuple(means[:count]), tuple(means[count : 2 * count]), means[-1])


def _mean_of_ranks(times_s: list[float]) -> list[float]:
    sums = torch.tensor(times_s, dtype=torch.float64)
    if rank_count() > 1:
        torch.distributed.all_reduce(sums)
    return [float(each_s) / rank_count() for each_s in sums]
