"""A plan under FSDP2 on an emulated wire, beside others, and beside FSDP2 as it is. Needs `torch`.

All train from the same start over the same batches, a batch a rank, by SGD; gradients are compared in each step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Wrapping
from gapless.torch.ddp.emulation import sleep_until
from gapless.torch.fsdp.applied import DTYPES, apply, modules_of
from gapless.torch.fsdp.nodes import AllRanks, Nodes
from gapless.torch.fsdp.wire import Durations, Network, Seen
from gapless.torch.library import Tensor, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named

__all__ = ["Collective", "Ran", "RunTask", "Strategy", "compare", "prepared"]

_AHEAD_S = 0.003
"""How long before a step rank 0 says when it begins."""


@dataclass(frozen=True)
class Strategy:
    """A wrapping, and what the gather and the scatter of each of its groups take in emulated time, part by part."""

    name: str
    wrapping: Fsdp2Wrapping
    durations_s: tuple[tuple[Durations, Durations], ...]


@dataclass(frozen=True)
class RunTask:
    """What all ranks run, in turns: a model as `load_named` takes it, by each strategy.

    `passes_s`: forward and backward of each layer in emulated time; empty where they take what they take. `warm_up`:
    steps before any counts. `wait_s`: the longest that a rank waits for another. `ranks_per_node`: of which nodes there
    are two, with a network between them and one inside; 1 where there is one network.
    """

    model: str
    seed: int
    ranks: int
    strategies: tuple[Strategy, ...]
    passes_s: tuple[tuple[float, float], ...]
    repeats: int
    wait_s: float
    ranks_per_node: int = 1
    warm_up: int = 1
    learning_rate: float = 0.1


@dataclass(frozen=True)
class Collective:
    """One of a step, in the order in which FSDP2 began them: of which group, on which networks one after the other,
    when it was begun, from when to when it held networks, and for gathers until when the parameters were there; seconds
    from the step's begin."""

    group: int
    is_scatter: bool
    networks: tuple[int, ...]
    issued_s: float
    start_s: float
    end_s: float
    released_s: float

    @property
    def which(self) -> tuple[int, bool, tuple[int, ...]]:
        """What ranks and steps have in common."""
        return self.group, self.is_scatter, tuple(self.networks)


@dataclass
class Ran:
    """What a strategy came to.

    `steps_s`: from when all ranks begin until the last is through. `collectives`: of rank 0's last step. `is_same`:
    whether ranks and steps had the same order. `equal`, `gradients`: how many of the gradients, of all steps and ranks,
    have the bits that FSDP2 finds with each layer by itself, in hybrid sharding where there are nodes. `late_s`: how
    far a collective fell behind the emulated wire.
    """

    name: str
    steps_s: list[float] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    is_same: bool = True
    equal: int = 0
    gradients: int = 0
    late_s: float = 0.0


def compare(task: RunTask, stop: threading.Event | None = None) -> tuple[Ran, ...]:
    """Run all strategies. Raises `InputError` for what can't run, `RunError` where a process fails."""
    model = load_named(task.model, task.seed).model
    for strategy in task.strategies:
        modules_of(model, strategy.wrapping)
    others = {each.scatter for strategy in task.strategies for each in strategy.wrapping.groups}
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise InputError(f"model: ranks run on the CPU, over gloo, got parameters on {parameter.device}")
        other = next((each for each in sorted(others) if DTYPES[each] != parameter.dtype), None)
        if other is not None:
            rule = f"parameter {name} is in {parameter.dtype}, gradients are scattered in {other}"
            raise InputError(f"plan: {rule}; on CPUs both must be one: solve with another --scatter")
    found = run_ranks(prepared, task, task.ranks, task.wait_s, stop)
    return tuple(_together(rows) for rows in zip(*(rank["strategies"] for rank in found), strict=True))


def _together(rows: Sequence[dict[str, Any]]) -> Ran:
    """What all ranks found of a strategy."""
    first = rows[0]
    orders = [[Collective(**each).which for each in row["collectives"]] for row in rows]
    return Ran(
        first["name"], first["steps_s"], [Collective(**each) for each in first["collectives"]],
        all(row["is_same"] for row in rows) and all(order == orders[0] for order in orders),
        sum(row["equal"] for row in rows), sum(row["gradients"] for row in rows), max(row["late_s"] for row in rows),
    )  # fmt: skip


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, RunTask)
    return Program(task.ranks, task.wait_s, lambda rank: _work(task, rank))


@dataclass
class _Running:
    """A wrapped model under way; `network`: None for FSDP2 as it is."""

    model: Any
    optimizer: torch.optim.Optimizer
    network: Network | None
    found: Ran


def _work(task: RunTask, rank: int) -> dict[str, object]:
    batch = load_named(task.model, task.seed + 1 + rank)
    running = [_wrapped(task, strategy) for strategy in task.strategies]
    reference = _reference(task)
    for number in range(task.warm_up + task.repeats):
        expected = _step(reference, batch, number)
        for each in running:
            _note(each, _step(each, batch, number), expected, number >= task.warm_up)
    return {"strategies": [asdict(each.found) for each in running]}


def _wrapped(task: RunTask, strategy: Strategy) -> _Running:
    model, wrapping = load_named(task.model, task.seed).model, strategy.wrapping
    modules = modules_of(model, wrapping)
    apply(model, wrapping)
    ranks = Nodes(task.ranks_per_node) if task.ranks_per_node > 1 else AllRanks()
    network = Network(strategy.durations_s, wrapping.scatters_in_flight, bool(task.passes_s), ranks)
    passes_s = task.passes_s or ((0.0, 0.0),) * len(modules)
    parts = [slice(group.first, group.last + 1) for group in wrapping.groups]
    network.attach([modules[part] for part in parts], [passes_s[part] for part in parts])
    return _Running(model, torch.optim.SGD(model.parameters(), task.learning_rate), network, Ran(strategy.name))


def _reference(task: RunTask) -> _Running:
    """FSDP2 by itself: each layer a module of its own, in the precisions of the first strategy. Where there are nodes,
    each has a replica: then sums are inside nodes first, as parts of scatters are."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model, wrapping = load_named(task.model, task.seed).model, task.strategies[0].wrapping
    modules = modules_of(model, wrapping)
    has_nodes = task.ranks_per_node > 1
    mesh = Nodes(task.ranks_per_node).mesh if has_nodes else init_device_mesh("cpu", (task.ranks,))
    for group in wrapping.groups:
        policy = MixedPrecisionPolicy(param_dtype=DTYPES[group.gather], reduce_dtype=DTYPES[group.scatter])
        for layer in modules[group.first : group.last + 1]:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    return _Running(model, torch.optim.SGD(model.parameters(), task.learning_rate), None, Ran("reference"))


def _step(running: _Running, batch: Workload, number: int) -> dict[str, Tensor]:
    """One step; gradients by name, of all ranks' shards. What is drawn at random in a step is the same for all."""
    torch.manual_seed(number)
    running.model.zero_grad(set_to_none=True)
    begin_s = _latest(time.monotonic() + _AHEAD_S)
    sleep_until(begin_s)
    if running.network is not None:
        running.network.start(begin_s)
    batch.loss_of(running.model).backward()
    if running.network is not None:
        running.network.drain()
    running.found.steps_s.append(_latest(time.monotonic()) - begin_s)
    trained = {name: each for name, each in running.model.named_parameters() if each.grad is not None}
    gradients = {name: each.grad.full_tensor().clone() for name, each in trained.items()}
    running.optimizer.step()
    if running.network is not None:
        seen = [_since(begin_s, each) for each in running.network.seen]
        found, before = running.found, running.found.collectives
        found.is_same &= not before or [each.which for each in seen] == [each.which for each in before]
        found.collectives = seen
    return gradients


def _since(begin_s: float, seen: Seen) -> Collective:
    networks = tuple(part.network for part in seen.parts)
    instants = seen.issued_s, seen.parts[0].start_s, seen.parts[-1].end_s, seen.released_s
    return Collective(seen.group, seen.is_scatter, networks, *(at - begin_s for at in instants))


def _latest(at_s: float) -> float:
    """Of all ranks."""
    latest = torch.tensor(at_s, dtype=torch.float64)
    torch.distributed.all_reduce(latest, torch.distributed.ReduceOp.MAX)
    return float(latest)


def _note(running: _Running, found: dict[str, Tensor], expected: dict[str, Tensor], counts: bool) -> None:
    assert running.network is not None
    running.found.gradients += len(expected)
    same = (name in found and bool(torch.equal(found[name], gradient)) for name, gradient in expected.items())
    running.found.equal += sum(same)
    if counts:
        running.found.late_s = max(running.found.late_s, running.network.late_s)
    else:
        running.found.steps_s.pop()
