"""Several strategies to cut and send the gradients of one model, each under DDP in the same processes, in turns. Needs
`torch`.
"""

from __future__ import annotations

import copy
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets
from gapless.profiles.compressors.grammar import method_of
from gapless.torch.ddp.buckets import actual_buckets, check_same_parameters, distribute, state_for, trainable
from gapless.torch.ddp.emulation import Clock, Sending, sleep_until
from gapless.torch.ddp.hook import HookState, reduce_bucket
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.pipeline.layers import squared_error
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named

__all__ = ["Measured", "RunTask", "Strategy", "compare", "prepared"]


@dataclass(frozen=True)
class Strategy:
    """One way: the groups that gradients are cut into, (first, last) in ready order, and how each is sent.

    `is_default`: DDP makes the groups itself, as its options are unless somebody sets them.
    """

    name: str
    groups: tuple[tuple[int, int], ...]
    sendings: tuple[Sending, ...]
    is_default: bool = False


@dataclass(frozen=True)
class RunTask:
    """What all ranks run: a model as `load_named` takes it, its gradients in ready order, and each strategy so often.

    `profile`: the name of what was planned for. `wait_s`: the longest that a rank waits for another. `forward_s`,
    `gaps_s`: what forward takes and what lies between gradients in emulated time; None and empty where they take what
    they take. `train_steps`: descended afterwards with each strategy, at `learning_rate`, over as many `batches` of
    each rank in turns. `warm_up`: steps before any counts, three at least: in the first DDP's buckets are others, in
    the second they are new. `ranks_per_node`: those among which gradients stay plain.
    """

    model: str
    profile: str
    seed: int
    parameter_names: tuple[str, ...]
    parameter_bytes: tuple[int, ...]
    strategies: tuple[Strategy, ...]
    repeats: int
    ranks: int
    wait_s: float
    forward_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    train_steps: int = 0
    learning_rate: float = 0.1
    warm_up: int = 3
    ranks_per_node: int = 1
    batches: int = 4

    def buckets(self, strategy: Strategy) -> DdpBuckets:
        """A strategy's buckets."""
        return DdpBuckets(self.profile, self.parameter_names, self.parameter_bytes, strategy.groups)


@dataclass(frozen=True)
class Measured:
    """What running a strategy found.

    `steps_s`: of each repetition, forward and backward, until the last rank is through; `synced_s`: without forward,
    from when the last rank has its loss. `buckets`: whether those that DDP had were the strategy's. `equal`,
    `gradients`: how many of the gradients have the bits that DDP finds by itself in the same buckets; `error`: the
    squared distance from those, relative to them, and `mean_error` that of the mean over all steps, which error
    feedback brings down. `late_s`: by how much a collective was through later than an emulated wire says, the most in a
    step and the median over steps. `losses`: of the steps of a training, the mean of all ranks, and `train_s`: what
    each of these steps took. `looked`: the steps after which rank 0's model was tried on batches that nobody trains on,
    `held_out` its losses there, and `accuracy` the share of right guesses, empty where targets aren't to be guessed.
    """

    name: str
    steps_s: tuple[float, ...]
    buckets: bool
    equal: int
    gradients: int
    error: float
    mean_error: float
    late_s: float
    losses: tuple[float, ...] = ()
    train_s: tuple[float, ...] = ()
    synced_s: tuple[float, ...] = ()
    looked: tuple[int, ...] = ()
    held_out: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()


def compare(task: RunTask, stop: threading.Event | None = None) -> tuple[Measured, ...]:
    """Run all strategies. Raises `InputError` for a model or mode that can't be, or gradients that aren't the model's,
    `RunError` where a process fails.
    """
    model = load_named(task.model, task.seed).model
    parameters = trainable(model)
    devices = {str(parameter.device) for parameter in parameters.values()} - {"cpu"}
    if devices:
        raise InputError(f"model: ranks run on the CPU, over gloo, got parameters on {devices.pop()}")
    for strategy in task.strategies:
        check_same_parameters(parameters, task.buckets(strategy))
        for sending in strategy.sendings:
            method_of(sending.mode)
    answers = run_ranks(prepared, task, task.ranks, task.wait_s, stop)
    found = ([Measured(**row) for row in rank["strategies"]] for rank in answers)
    return tuple(_together(rows) for rows in zip(*found, strict=True))


def _together(rows: Sequence[Measured]) -> Measured:
    """What all ranks found of a strategy."""
    most = {name: max(getattr(row, name) for row in rows) for name in ("error", "mean_error", "late_s")}
    is_planned, equal = all(row.buckets for row in rows), min(row.equal for row in rows)
    return replace(rows[0], buckets=is_planned, equal=equal, **most)


_AHEAD_S = 0.003
"""How long before a step rank 0 says when it begins."""


@dataclass
class _Running:
    """A strategy with a model of its own; `state`: None where DDP sums by itself."""

    strategy: Strategy
    ddp: torch.nn.parallel.DistributedDataParallel
    state: HookState | None
    clock: Clock | None
    steps_s: list[float] = field(default_factory=list)
    synced_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Of the gradients of all steps, by name."""


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, RunTask)
    return Program(task.ranks, task.wait_s, lambda rank: _work(task, rank))


def _work(task: RunTask, rank: int) -> dict[str, object]:
    work = load_named(task.model, task.seed)
    batch = load_named(task.model, task.seed + 1 + rank)
    work = Workload(work.model, batch.inputs, work.loss, batch.targets)
    running = [_running(task, strategy, work.model) for strategy in task.strategies]
    for number in range(task.warm_up + task.repeats):
        for each in running:
            taken = _step(task, each, work, rank)
            if number < task.warm_up:
                continue
            each.steps_s.append(taken.step_s)
            each.synced_s.append(taken.synced_s)
            for name, gradient in _gradients(each.ddp).items():
                each.sums[name] = each.sums.get(name, 0.0) + gradient.double()
    found = [_found(task, each, work, rank) for each in running]
    if task.train_steps:
        found = [_trained(task, each, rank) for each in found]
    return {"strategies": [asdict(each) for each in found]}


_LOOKS = 16
"""How often a training is tried on what nobody trains on, in as many batches."""


def _trained(task: RunTask, found: Measured, rank: int) -> Measured:
    """With a training by a strategy: SGD from the same start, over the same batches in each."""
    model = load_named(task.model, task.seed).model
    strategy = next(each for each in task.strategies if each.name == found.name)
    running = _running(task, strategy, model)
    optimizer = torch.optim.SGD(running.ddp.parameters(), lr=task.learning_rate)
    works = [load_named(task.model, task.seed + 1 + rank + task.ranks * number) for number in range(task.batches)]
    others = range(task.ranks * task.batches, task.ranks * task.batches + _LOOKS)
    held_out = [load_named(task.model, task.seed + 1 + number) for number in others]
    losses, train_s, looks = list[float](), list[float](), dict[int, tuple[float, float | None]]()
    for number in range(task.train_steps):
        batch = works[number % task.batches]
        taken = _step(task, running, Workload(model, batch.inputs, batch.loss, batch.targets), rank)
        optimizer.step()
        torch.distributed.all_reduce(taken.loss)
        losses.append(float(taken.loss) / task.ranks)
        train_s.append(taken.step_s)
        if (number + 1) % max(1, task.train_steps // _LOOKS) == 0 or number + 1 == task.train_steps:
            looks[number + 1] = _tried(running.ddp.module, held_out)
    return replace(
        found,
        losses=tuple(losses),
        train_s=tuple(train_s),
        looked=tuple(looks),
        held_out=tuple(loss for loss, _ in looks.values()),
        accuracy=tuple(accuracy for _, accuracy in looks.values() if accuracy is not None),
    )


def _tried(model: Module, works: Sequence[Workload]) -> tuple[float, float | None]:
    """The mean loss and accuracy on batches, without learning from them."""
    model.eval()
    with torch.no_grad():
        loss = statistics.mean(float(work.loss_of(model)) for work in works)
        accuracies = [work.accuracy_of(model) for work in works]
    model.train()
    known = [each for each in accuracies if each is not None]
    return loss, statistics.mean(known) if known else None


def _running(task: RunTask, strategy: Strategy, model: Module) -> _Running:
    """The strategy under way. Buffers such as running means stay each rank's own: sending them isn't in any plan."""
    model = copy.deepcopy(model)
    clock = None if task.forward_s is None else Clock()
    buckets = task.buckets(strategy)
    state = state_for(model, buckets, strategy.sendings, clock, ranks_per_node=task.ranks_per_node)
    if strategy.is_default:
        ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
        ddp.register_comm_hook(state, reduce_bucket)
    else:
        ddp = distribute(model, buckets, state, broadcast_buffers=False)
    if clock is not None:
        parameters = trainable(model)
        for name, gap_s in zip(task.parameter_names, task.gaps_s, strict=True):
            parameters[name].register_hook(_spending(clock, gap_s))
    return _Running(strategy, ddp, state, clock)


def _spending(clock: Clock, duration_s: float) -> Callable[[Tensor], None]:
    return lambda _: clock.spend(duration_s)


@dataclass(frozen=True)
class _Taken:
    """A step: from when all ranks begin, and from when the last has its loss, until the last is through; this rank's
    loss.
    """

    step_s: float
    synced_s: float
    loss: Tensor


def _step(task: RunTask, running: _Running, work: Workload, rank: int) -> _Taken:
    """Forward and backward."""
    running.ddp.zero_grad(set_to_none=True)
    torch.manual_seed(task.seed + rank)  # what is dropped is the same in every strategy
    begin = torch.tensor(time.monotonic() + _AHEAD_S, dtype=torch.float64)
    torch.distributed.all_reduce(begin, torch.distributed.ReduceOp.MAX)
    begin_s = float(begin)
    sleep_until(begin_s)
    if running.clock is not None:
        running.clock.start(begin_s)
    loss = work.loss_of(running.ddp)
    if running.clock is not None and task.forward_s is not None:
        running.clock.spend(task.forward_s)
    backward_s = time.monotonic()
    loss.backward()
    ends = torch.tensor([time.monotonic(), backward_s], dtype=torch.float64)
    torch.distributed.all_reduce(ends, torch.distributed.ReduceOp.MAX)
    if running.state is not None:
        running.late_s.append(running.state.late_s)
        running.state.clear()
    end_s, backward_s = ends.tolist()
    return _Taken(end_s - begin_s, end_s - backward_s, loss.detach().double())


def _found(task: RunTask, running: _Running, work: Workload, rank: int) -> Measured:
    buckets = task.buckets(running.strategy)
    gradients = _gradients(running.ddp)
    expected = _by_ddp_itself(task, running, work, rank)
    means = {name: total / task.repeats for name, total in running.sums.items()}
    return Measured(
        name=running.strategy.name,
        steps_s=tuple(running.steps_s),
        synced_s=tuple(running.synced_s),
        buckets=[set(names) for names in actual_buckets(running.ddp)] == [set(names) for names in buckets.buckets],
        equal=sum(bool(torch.equal(gradients[name], gradient)) for name, gradient in expected.items()),
        gradients=len(expected),
        error=squared_error(gradients, expected),
        mean_error=squared_error(means, expected),
        late_s=statistics.median(running.late_s[task.warm_up :]),
    )


def _gradients(ddp: torch.nn.parallel.DistributedDataParallel) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in trainable(ddp.module).items()}


def _by_ddp_itself(task: RunTask, running: _Running, work: Workload, rank: int) -> dict[str, Tensor]:
    """The same gradients without a hook, in the same buckets: in others, sums come in another order."""
    model = load_named(task.model, task.seed).model
    ddp = distribute(model, task.buckets(running.strategy), broadcast_buffers=False)
    bare = _Running(running.strategy, ddp, None, None)
    for _ in range(2):
        _step(task, bare, work, rank)
    return _gradients(ddp)
