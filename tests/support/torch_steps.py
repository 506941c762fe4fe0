"""Steps of models for tests: eager's and a plan's, with all that they leave behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.offload.keeper import OffloadKeeper
from gapless.encodings.monet.search.keepset import KeepSet, Move
from gapless.encodings.monet.search.retention import just_in_time
from gapless.topologies.host import HostLink
from gapless.torch.capture.program import CapturedStep
from gapless.torch.devices import device_of, measure_peak
from gapless.torch.run import StepPlan, run

__all__ = ["Left", "keep_all", "left_by_eager", "left_by_plan", "offloading_plan", "random_plan"]

_SEED = 7


@dataclass(frozen=True)
class Left:
    """What steps leave behind: each step's loss, gradients, buffers, the random state; and their measured peak."""

    losses: list[torch.Tensor]
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]
    random: torch.Tensor
    peak_bytes: int

    def differs_from(self, other: Left) -> list[str]:
        """Names of what isn't equal bit by bit."""
        found = [f"loss {k}" for k, pair in enumerate(zip(self.losses, other.losses, strict=True)) if _differ(*pair)]
        for mine, its in ((self.gradients, other.gradients), (self.buffers, other.buffers)):
            assert mine.keys() == its.keys()
            found += [name for name in mine if _differ(mine[name], its[name])]
        return found + (["random state"] if _differ(self.random, other.random) else [])


def _differ(mine: torch.Tensor | None, its: torch.Tensor | None) -> bool:
    if mine is None or its is None:
        return mine is not its
    return not torch.equal(mine, its)


def left_by_eager(model: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor], steps: int = 1) -> Left:
    """Steps of a copy of the model; gradients add up."""
    copied = copy.deepcopy(model)

    def step() -> torch.Tensor:
        loss = loss_of(copied)
        loss.backward()
        return loss.detach()

    return _left(copied, step, steps)


def left_by_plan(model: nn.Module, plan: StepPlan, *arguments: Any, steps: int = 1, **named: Any) -> Left:
    """The same by a plan."""
    copied = copy.deepcopy(model)
    step = run(plan, copied, tolerance=None)  # whose first run would be measured with eager's
    return _left(copied, lambda: step(*arguments, **named), steps)


def _left(model: nn.Module, step: Callable[[], torch.Tensor], steps: int) -> Left:
    device = next(model.parameters()).device
    with device_of(device).forked_random():
        torch.manual_seed(_SEED)
        peak_bytes, first = measure_peak(step, device)
        losses = [first, *(step() for _ in range(steps - 1))]
        state = device_of(device).random_state()
    gradients = {name: its.grad for name, its in model.named_parameters()}
    return Left(losses, gradients, dict(model.named_buffers()), state, peak_bytes)


def keep_all(step: CapturedStep) -> StepPlan:
    """The plan that recomputes nothing, as an eager framework does it, with the framework's own operators."""
    graph = step.graph
    kept, variants = np.ones(len(graph.forward), dtype=np.bool_), np.zeros(len(graph.backward), dtype=np.int64)
    return StepPlan.of(step, to_schedule(graph, just_in_time(graph, kept, variants)))


def random_plan(step: CapturedStep, seed: int) -> StepPlan:
    """A plan that keeps, recomputes and picks variants by chance."""
    chance = np.random.default_rng(seed)
    graph = step.graph
    variants = np.array([chance.integers(len(node.variants)) for node in graph.backward])
    kept = chance.random(len(graph.forward)) < chance.random()
    return StepPlan.of(step, to_schedule(graph, just_in_time(graph, kept, variants)))


def offloading_plan(step: CapturedStep, seed: int, step_copies: float = 1.0, moves: int = 40) -> StepPlan:
    """A plan that keeps, recomputes, offloads and picks variants by chance, half of the seeds within little memory.

    `step_copies`: how often all outputs could be copied in the time of a forward pass.
    """
    chance, graph = np.random.default_rng(seed), step.graph
    forward_s = sum(node.implementations[0].duration_s for node in graph.forward)
    rate = step_copies * float(graph.output_bytes.sum()) / max(forward_s, 1e-9)
    budget_bytes = 2**50 if seed % 2 else keep_all(step).peak_bytes * 2 // 3
    keeper = OffloadKeeper(graph, budget_bytes, HostLink(rate, 2**60))
    variants = np.array([chance.integers(len(node.variants)) for node in graph.backward])
    state = keeper.state(KeepSet.just_in_time(np.ones(len(graph.forward), dtype=np.bool_), variants))
    for _ in range(moves):
        kept, dropped, offloaded = (
            (int(chance.integers(graph.loss)),) if chance.random() < share else () for share in (0.2, 0.1, 0.7)
        )
        state = keeper.moved(state, Move(kept=kept, dropped=dropped, offloaded=offloaded))
    return StepPlan.of(step, to_schedule(graph, keeper.decide(state.keep), None, keeper.link))
