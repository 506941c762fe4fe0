"""Tiny training graphs whose implementations have a power, and one on which the fastest step isn't the most frugal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st
from tiny_training import training_graphs

from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

__all__ = ["fast_or_frugal", "powered_graphs", "with_power"]


@st.composite
def powered_graphs(draw: st.DrawFn, max_ops: int = 4) -> TrainingGraph:
    """A tiny graph with a random power for every implementation, which may be none at all."""
    chance = draw(st.randoms(use_true_random=False))
    return with_power(draw(training_graphs(max_ops)), lambda impl: 100.0 * chance.randint(0, 3))


def with_power(graph: TrainingGraph, power_w: Callable[[Implementation], float | None]) -> TrainingGraph:
    """The graph with the power that is given for each implementation."""
    return graph.with_implementations(lambda _, impl: replace(impl, power_w=power_w(impl)))


def fast_or_frugal() -> TrainingGraph:
    """Two convolutions of 1 s at 100 W or 3 s at 10 W, and their gradients of 1 s at 50 W; every tensor has 10 bytes.

    The fastest step takes 4 s and 300 J, the most frugal one 8 s and 160 J.
    """
    impls = (Implementation(1.0, 0, "fast", 100.0), Implementation(3.0, 0, "frugal", 10.0))
    gradient = (Implementation(1.0, power_w=50.0),)
    forward = (
        ForwardNode("conv.0", "conv", 10, (), impls),
        ForwardNode("conv.1", "conv", 10, (0,), impls),
        ForwardNode("loss.2", "loss", 1, (1,), (Implementation(0.0),)),
    )
    backward = (
        BackwardNode("conv_grad.3", "conv", 1, 10, (2,), (Variant((0,), gradient),), 5),
        BackwardNode("conv_grad.4", "conv", 0, 0, (3,), (Variant((), gradient),), 5),
    )
    return TrainingGraph("fast or frugal", 1, forward, backward, 5)
