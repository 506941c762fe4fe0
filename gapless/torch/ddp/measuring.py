"""What data-parallel training of a model takes on this machine: when gradients are ready, what hooks take to send them.

Measured in as many processes as there are ranks. Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.torch.ddp.beside import StepWork, measure_work, step_work_s
from gapless.torch.ddp.buckets import size_bytes, trainable
from gapless.torch.ddp.hook import HookState, Sent, reduce_bucket
from gapless.torch.devices import Marks
from gapless.torch.library import Module, Tensor, rank_count, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named
from gapless.torch.step_state import unchanged

__all__ = [
    "Found",
    "Gradients",
    "HookTimes",
    "ProfileTask",
    "measure_gradients",
    "measure_hook",
    "measured",
    "sample_groups",
]

T = TypeVar("T")

_WARM_UP = 3


@dataclass(frozen=True)
class Gradients:
    """The gradients of a model in the order in which they become ready; times are medians over steps.

    `gaps_s[k]`: between gradient k - 1 and gradient k; the first from the end of forward. `spread`: the range of the
    middle half of all backward passes, as a share of the median. `finish_s`: what comes after the last gradient, such
    as what DDP does once all buckets are there.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    size_bytes: tuple[int, ...]
    forward_s: float
    gaps_s: tuple[float, ...]
    spread: float
    finish_s: float = 0.0


def measure_gradients(
    model: torch.nn.Module,
    loss_of: Callable[[Module], Tensor],
    steps: int = 20,
    warm_up: int = 5,
    group: torch.distributed.ProcessGroup | None = None,
) -> Gradients:
    """The order of a model's gradients, and what forward and backward take.

    `model`: bare, not wrapped in DDP; `loss_of(model)` is a step's loss, and counts as forward. Each of `steps` steps,
    after `warm_up` others, runs forward and backward without an optimiser; buffers, gradients and the random state are
    put back afterwards. In several ranks (`group`: None for the default process group), all call it and get what rank 0
    measured. Raises `InputError` where DDP could not keep a plan's buckets: gradients of several types or devices or
    sparse ones, a parameter without a gradient, an order that differs from step to step.
    """
    for title, value, least in (("steps", steps, 1), ("warm_up", warm_up, 0)):
        if value < least:
            raise InputError(f"{title}: must be at least {least}, got {value}")
    parameters = trainable(model)
    device = next(iter(parameters.values())).device
    with unchanged(model, device):
        taken = [_step(model, loss_of, parameters, device) for _ in range(warm_up + steps)][warm_up:]
    _check_order(taken)
    names, forward_s, ready_s, spread, finish_s = _of_rank_0((taken[0].order, *_medians(taken)), group)
    return Gradients(
        names=names,
        shapes=tuple(tuple(parameters[name].shape) for name in names),
        size_bytes=tuple(size_bytes(parameters[name]) for name in names),
        forward_s=forward_s,
        gaps_s=tuple(after - before for before, after in pairwise((0.0, *ready_s))),
        spread=spread,
        finish_s=finish_s,
    )


# -- what hooks take ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """A bucket as DDP passes it to a hook, of random gradients."""

    flat: Tensor
    tensors: list[Tensor]

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> _Group:
        sizes = [torch.Size(shape).numel() for shape in shapes]
        flat = torch.randn(sum(sizes), dtype=dtype)
        return cls(flat, [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)])

    def buffer(self) -> Tensor:
        """All gradients, one after the other."""
        return self.flat

    def gradients(self) -> list[Tensor]:
        """Each in its shape."""
        return self.tensors

    parameters = gradients

    def index(self) -> int:
        """The first bucket."""
        return 0

    def is_last(self) -> bool:
        """The only one."""
        return True


def measure_hook(
    mode: str,
    shapes: Sequence[tuple[int, ...]],
    repeats: int = 9,
    dtype: torch.dtype = torch.float32,
    group: torch.distributed.ProcessGroup | None = None,
) -> list[Sent]:
    """What the hook takes to send a bucket of such tensors in a mode, `repeats` times after three others.

    To be called in every rank. Raises `InputError` for an unknown mode, and for no repetition.
    """
    if repeats < 1:
        raise InputError(f"repeats: must be at least 1, got {repeats}")
    state = HookState(mode, group, is_measured=True)
    bucket = _Group.of(shapes, dtype)
    kept = bucket.flat.clone()
    for _ in range(_WARM_UP + repeats):
        bucket.flat.copy_(kept)  # a plain sum is made in place
        reduce_bucket(state, bucket).wait()
    return state.sent[_WARM_UP:]


# -- one step ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """One step: the parameters as their gradients became ready, when each did after forward's end, forward, and what
    came after the last gradient."""

    order: tuple[str, ...]
    ready_s: tuple[float, ...]
    forward_s: float
    finish_s: float


def _step(
    model: torch.nn.Module,
    loss_of: Callable[[Module], Tensor],
    parameters: dict[str, torch.nn.Parameter],
    device: torch.device,
) -> _Step:
    marks, order = Marks(device), []

    def note(name: str) -> None:
        marks.mark()
        order.append(name)

    def hook_for(name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: note(name)

    hooks = [parameter.register_post_accumulate_grad_hook(hook_for(name)) for name, parameter in parameters.items()]
    try:
        model.zero_grad(set_to_none=True)
        marks.mark()
        value = loss_of(model)
        marks.mark()
        value.backward()
        marks.mark()
    finally:
        for hook in hooks:
            hook.remove()
    _check_each_once(order, parameters)
    _, forward_s, *ready_s, end_s = marks.elapsed_s()
    return _Step(tuple(order), tuple(time_s - forward_s for time_s in ready_s), forward_s, end_s - ready_s[-1])


def _medians(steps: Sequence[_Step]) -> tuple[float, list[float], float, float]:
    """Forward time, the ready time of each gradient, which rise as they do in each step, the spread of the last, and
    what comes after it."""
    columns = [sorted(column) for column in zip(*(step.ready_s for step in steps), strict=True)]
    forward_s, finish_s = (
        statistics.median(getattr(step, name) for step in steps) for name in ("forward_s", "finish_s")
    )
    return forward_s, [*map(statistics.median, columns)], _spread(columns[-1]), finish_s


def _spread(rising: Sequence[float]) -> float:
    """The range of the middle half, as a share of the median."""
    return (rising[3 * len(rising) // 4] - rising[len(rising) // 4]) / statistics.median(rising)


def _of_rank_0(measured: T, group: torch.distributed.ProcessGroup | None) -> T:
    if rank_count(group) == 1:
        return measured
    box = [measured]
    torch.distributed.broadcast_object_list(box, group=group, group_src=0)
    return box[0]


def _check_each_once(order: Sequence[str], parameters: dict[str, torch.nn.Parameter]) -> None:
    missing = [name for name in parameters if name not in set(order)]
    if missing:
        way_out = "use it in every step, or freeze it with requires_grad_(False)"
        raise InputError(f"parameter {missing[0]!r}: must get a gradient in every step, got none; {way_out}")
    if len(order) > len(parameters):
        twice = next(name for k, name in enumerate(order) if name in order[:k])
        raise InputError(f"parameter {twice!r}: must get its gradient at once, got it in parts; checkpoint it once")


def _check_order(steps: Sequence[_Step]) -> None:
    for number, step in enumerate(steps):
        for first, other in zip(steps[0].order, step.order, strict=True):
            if first != other:
                raise InputError(
                    f"model: gradients must become ready in one order, since DDP keeps that of its first step, "
                    f"got {other!r} in step {number} where {first!r} came in step 0"
                )


@dataclass(frozen=True)
class ProfileTask:
    """What all ranks measure: a model as `load_named` takes it, so many steps of it, and each mode so many times.

    `wait_s`: the longest that a rank waits for another. `is_whole`: modes send all gradients in one group only.
    """

    model: str
    seed: int
    modes: tuple[str, ...]
    steps: int
    repeats: int
    ranks: int
    wait_s: float
    is_whole: bool = False


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


@dataclass(frozen=True)
class Found:
    """What as many processes find of gradients, of hooks by themselves, and of their work beside a backward pass."""

    gradients: Gradients
    times: tuple[HookTimes, ...]
    works: tuple[StepWork, ...]


def measured(task: ProfileTask, stop: threading.Event | None = None) -> Found:
    """What as many processes find. Raises `InputError` for a model or mode that can't be, and `RunError`."""
    for mode in task.modes:
        method_of(mode)  # refused here, not in each rank
    trainable(load_named(task.model, task.seed).model)
    answer, *_ = run_ranks(prepared, task, task.ranks, task.wait_s, stop)
    rows = answer["gradients"]
    columns = {name: tuple(rows[name]) for name in ("names", "size_bytes", "gaps_s")}
    gradients = Gradients(**{**rows, **columns, "shapes": tuple(map(tuple, rows["shapes"]))})
    works = tuple(
        StepWork(
            row["mode"], tuple(map(tuple, row["groups"])), tuple(row["encode_s"]), tuple(row["decode_s"]),
            row["sending_s"],
        )
        for row in answer["works"]
    )  # fmt: skip
    return Found(gradients, tuple(HookTimes(**row) for row in answer["hooks"]), works)


def sample_groups(size_bytes: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive gradients to measure hooks with, (first, last): from either end, each at least twice as large as the
    one before it, and all of them.
    """
    count, groups = len(size_bytes), set()
    for of_end in (False, True):
        least = 0
        for number, total in enumerate(accumulate(reversed(size_bytes) if of_end else size_bytes)):
            if total >= least:
                groups.add((count - 1 - number, count - 1) if of_end else (0, number))
                least = 2 * total
    return sorted(groups | {(0, count - 1)})


def prepared(folder: Path) -> Program:
    """What all ranks measure, by what is in a folder."""
    task = read_task(folder, ProfileTask)
    return Program(task.ranks, task.wait_s, lambda rank: _work(task))


def _work(task: ProfileTask) -> dict[str, object]:
    work = load_named(task.model, task.seed)
    torch.distributed.barrier()
    ddp = _unsent(work.model)
    gradients = measure_gradients(work.model, lambda _: work.loss_of(ddp), task.steps)
    dtype = next(iter(trainable(work.model).values())).dtype
    rows, works = [], list[StepWork]()
    unsent_s = 0.0 if task.is_whole else step_work_s(lambda: _unsent_step(ddp, work), task.steps)
    groups = [(0, len(gradients.names) - 1)] if task.is_whole else sample_groups(gradients.size_bytes)
    for mode in task.modes:
        for first, last in groups:
            rows.append(asdict(_hook_times(mode, gradients, first, last, task.repeats, dtype)))
        if not task.is_whole:
            works += measure_work(mode, work, gradients.names, task.steps, unsent_s)
    return {"gradients": asdict(gradients), "hooks": rows, "works": [asdict(each) for each in works]}


def _unsent_step(ddp: Module, work: Workload) -> None:
    ddp.zero_grad(set_to_none=True)
    work.loss_of(ddp).backward()


def _unsent(model: Module) -> torch.nn.parallel.DistributedDataParallel:
    """The model in DDP that sends nothing: what DDP itself does counts as computation."""

    def unsent(state: None, bucket: torch.distributed.GradBucket) -> torch.futures.Future[Tensor]:
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    unsent.__annotations__ = {}  # DDP compares those that are there with its own types
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    ddp.register_comm_hook(None, unsent)
    return ddp


def _hook_times(mode: str, gradients: Gradients, first: int, last: int, repeats: int, dtype: torch.dtype) -> HookTimes:
    taken = measure_hook(mode, gradients.shapes[first : last + 1], repeats, dtype)
    titles = ("encode_s", "send_s", "decode_s", "between_s")
    slowest_s = _slowest([statistics.median(getattr(each, title) for each in taken) for title in titles])
    sums = sorted(each.encode_s + each.send_s + each.decode_s for each in taken)
    return HookTimes(mode, first, last, **dict(zip(titles, slowest_s, strict=True)), spread=_spread(sums))


def _slowest(times_s: list[float]) -> list[float]:
    slowest_s = torch.tensor(times_s, dtype=torch.float64)
    if rank_count() > 1:
        torch.distributed.all_reduce(slowest_s, torch.distributed.ReduceOp.MAX)
    return [float(time_s) for time_s in slowest_s]
