"""A plan's step in one process a rank, beside the same steps of the whole model in one process.

Every rank computes both, and compares its own parts. Needs the extra `torch`.
"""

from __future__ import annotations

import copy
import math
import statistics
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed.tensor import DTensor

from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.layouts import MeshLayouts
from gapless.profiles.layouts.transitions import local_shape
from gapless.torch.ddp.emulation import sleep_until
from gapless.torch.devices import device_of
from gapless.torch.library import Module, Tensor, torch, tree_flatten
from gapless.torch.processes import Program, built, read_task
from gapless.torch.ranks import Ranks, run_ranks
from gapless.torch.run.difference import Outcome, gradient_difference
from gapless.torch.run.workload import Workload, load_named
from gapless.torch.sharding.execution.collectives import Alone, Sent, size_of
from gapless.torch.sharding.execution.step import ShardedStep, apply
from gapless.torch.sharding.execution.wire import sent_on_sockets

__all__ = ["RankFound", "Task", "prepared", "run_sharded"]

_LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Task:
    """What all ranks are to do: `steps` of training with AdamW, then `repeats` timed steps.

    `model`: as `load_named` takes it. `costs`: by which changes of layouts were planned. `wire`: the emulated one,
    on whose collectives ranks wait; None for none. `wait_s`: the longest that a rank waits for another.
    """

    model: str
    seed: int
    layouts: MeshLayouts
    costs: MeshCosts
    steps: int
    repeats: int
    wire: MeshCosts | None
    wait_s: float


@dataclass(frozen=True)
class RankFound:
    """What a rank found.

    `losses`, `expected_losses`: by step, of the plan and of one process. `error`: of what is furthest off in the first
    step, the loss or this rank's part of a gradient, relative to its norm; `furthest`: what it is. `planned_bytes`,
    `sent_bytes`: (kind of collective, axis, bytes) of a step. `socket_bytes`: what the kernel has counted in a step, -1
    where it doesn't. `messages`: collectives of a step. `given_bytes`: of parameters, buffers and inputs on this rank;
    `state_bytes`: of the optimiser; `step_bytes`: the most of all else in a step. `step_s`: by repetition, the clock's.
    `alone_s`, `alone_bytes`: processor time, and the most bytes, of a step without collectives. `planned_wire_s`,
    `predicted_wire_s`: what collectives take on the planned machine, and on the emulated wire.
    """

    losses: tuple[float, ...]
    expected_losses: tuple[float, ...]
    error: float
    furthest: str
    planned_bytes: tuple[tuple[str, int, int], ...]
    sent_bytes: tuple[tuple[str, int, int], ...]
    socket_bytes: int
    messages: int
    given_bytes: int
    state_bytes: int
    step_bytes: int
    step_s: tuple[float, ...]
    alone_s: float
    alone_bytes: int
    planned_wire_s: float
    predicted_wire_s: float | None


def run_sharded(task: Task, stop: threading.Event | None = None, among: Ranks | None = None) -> list[RankFound]:
    """What each rank found, in a process for each device of the mesh, or `among` those that are there.

    Raises `RunError` where one fails.
    """
    answers = run_ranks(prepared, task, task.layouts.device_count, task.wait_s, stop, among)
    return [built(RankFound, answer) for answer in answers]


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, Task)
    return Program(task.layouts.device_count, task.wait_s, lambda rank: asdict(_run(task)))


def _run(task: Task) -> RankFound:
    work = load_named(task.model, task.seed)
    whole = copy.deepcopy(work.model)
    step = apply(work.model, task.layouts, work.loss, targets=len(work.targets), cost=task.costs.step_s)
    expected = _one_process(task, work, whole)
    trained = _Trained(task, work, step)
    losses = [trained.step(number) for number in range(task.steps)]
    error, furthest = _compared(step, torch.tensor(losses[0]), trained.first, expected[0])
    sent, socket_bytes = trained.sent()
    usage, _ = device_of(work.device).used(trained.run)
    trained.optimizer.zero_grad()
    state_bytes = _bytes_of(value for state in trained.optimizer.state.values() for value in state.values())
    assert step.program is not None
    step_s = trained.timed()
    alone_s, alone_bytes = trained.alone()
    assert step.program is not None
    collectives = [each for change in step.program.changes for each in change.steps if each.sent_bytes]
    return RankFound(
        losses=tuple(losses), expected_losses=tuple(float(each.loss) for each in expected),
        error=error, furthest=furthest, planned_bytes=_rows(step.program.sent_bytes),
        sent_bytes=_rows(sent.size_bytes), socket_bytes=socket_bytes, messages=sum(sent.calls.values()),
        given_bytes=_given_bytes(step, work), state_bytes=state_bytes, step_bytes=usage.peak_bytes,
        step_s=step_s, alone_s=alone_s, alone_bytes=alone_bytes,
        planned_wire_s=sum(map(task.costs.step_s, collectives)),
        predicted_wire_s=None if task.wire is None else sum(map(task.wire.step_s, collectives)),
    )  # fmt: skip


def _one_process(task: Task, work: Workload, model: Module) -> list[Outcome]:
    """Steps of training the whole model; of all but the first the losses alone."""
    optimizer, outcomes = _optimizer(model), []
    for number in range(task.steps):
        torch.manual_seed(task.seed + number)
        loss = work.loss_of(model)
        loss.backward()
        outcomes.append(Outcome(loss.detach(), {}, {}) if number else Outcome.of(loss, model))
        optimizer.step()
        optimizer.zero_grad()
    return outcomes


def _optimizer(model: Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=_LEARNING_RATE)


class _Trained:
    """A model that is trained by the plan. `first`: the gradients of its first step, this rank's parts."""

    def __init__(self, task: Task, work: Workload, step: ShardedStep) -> None:
        self.task, self.work, self.sharded = task, work, step
        self.optimizer = _optimizer(work.model)
        self.first: dict[str, Tensor] = {}

    def run(self) -> Tensor:
        """Loss and gradients."""
        loss = self.work.train(self.sharded)
        loss.backward()
        return loss.detach()

    def step(self, number: int) -> float:
        """The loss of a step of training."""
        torch.manual_seed(self.task.seed + number)
        loss = float(self.run())
        if not self.first:
            named = self.work.model.named_parameters()
            self.first = {name: _local(each.grad) for name, each in named if each.grad is not None}
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def sent(self) -> tuple[Sent, int]:
        """What this rank sends in a step, and what the kernel counts; -1 where it doesn't."""
        torch.distributed.barrier()
        before, self.sharded.exchange.sent = sent_on_sockets(), Sent()
        self.run()
        torch.distributed.barrier()
        after, sent = sent_on_sockets(), self.sharded.exchange.sent
        self.sharded.exchange.sent = Sent()
        self.optimizer.zero_grad()
        return sent, -1 if before is None or after is None else after - before

    def timed(self) -> tuple[float, ...]:
        """Seconds of steps."""
        exchange, wire = self.sharded.exchange, self.task.wire
        if wire is not None:
            exchange.pace = lambda step, begin_s: sleep_until(begin_s + wire.step_s(step))
        times_s = []
        for _ in range(self.task.repeats):
            torch.distributed.barrier()
            begin_s = time.perf_counter()
            self.run()
            times_s.append(time.perf_counter() - begin_s)
            self.optimizer.zero_grad()
        exchange.pace = None
        return tuple(times_s)

    def alone(self) -> tuple[float, int]:
        """The median processor time of a step whose collectives are stand-ins, and its most bytes; its numbers are
        meaningless."""
        exchange, self.sharded.exchange = self.sharded.exchange, Alone(self.sharded.mesh)
        device, times_s = device_of(self.work.device), []
        for _ in range(self.task.repeats):
            times_s.append(device.timed_s(self.run))
            self.optimizer.zero_grad()
        usage, _ = device.used(self.run)
        self.optimizer.zero_grad()
        self.sharded.exchange = exchange
        return statistics.median(times_s), usage.peak_bytes


def _compared(step: ShardedStep, loss: Tensor, found: Mapping[str, Tensor], expected: Outcome) -> tuple[float, str]:
    """How far the loss, or this rank's part of a gradient, is off that is furthest, relative to its norm."""
    layouts = step.layouts.parameters
    parts = {
        name: step.place.cut(whole, layouts[name]) if name in layouts and whole is not None else whole
        for name, whole in expected.gradients.items()
    }
    gradients = {name: found.get(name) for name in parts}
    return gradient_difference(Outcome(loss, gradients, {}), Outcome(expected.loss, parts, {}))


def _given_bytes(step: ShardedStep, work: Workload) -> int:
    """Of parameters, buffers, inputs and constants on this rank."""
    assert step.program is not None
    tensors = [*work.model.parameters(), *work.model.buffers()]
    leaves, _ = tree_flatten((work.inputs, tuple(work.targets)))
    inputs = sum(
        math.prod(local_shape(tuple(leaf.shape), layout, step.layouts.mesh)) * int(leaf.element_size())
        for role, layout, _ in step.program.inputs if role.kind == "input"
        for leaf in (leaves[role.index],)
    )  # fmt: skip
    return inputs + _bytes_of(tensors)


def _bytes_of(values: Iterable[object]) -> int:
    """Of tensors among values, this rank's parts."""
    return sum(size_of(_local(value)) for value in values if isinstance(value, torch.Tensor))


def _local(tensor: Tensor) -> Tensor:
    local: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local


def _rows(totals: Mapping[tuple[str, int], int]) -> tuple[tuple[str, int, int], ...]:
    return tuple((kind, axis, size_bytes) for (kind, axis), size_bytes in sorted(totals.items()))
