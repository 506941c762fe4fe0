"""The integer program over blocks: what it says of a chain whose best step is known."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_training import MIB

from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.encodings.monet.evaluate import unlimited_s
from gapless.encodings.monet.options import cost_unit
from gapless.encodings.monet.study.offload_blocks import encode_blocks
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant
from gapless.solvers.registry import solve_model
from gapless.topologies.host import HostLink

TICK_S = 1e-3
KEEPS_ALL = 4 * MIB


def chain() -> TrainingGraph:
    """Four operators of a tick, whose outputs of a MiB the backward operators read in the reverse order."""
    run = (Implementation(TICK_S),)
    forward = [ForwardNode(f"op{k}", "op", MIB, (k - 1,) if k else (), run) for k in range(4)]
    forward.append(ForwardNode("loss", "loss", 0, (3,), (Implementation(0.0),)))
    backward = [BackwardNode(f"grad{b}", "grad", 3 - b, 0, (4 + b,), (Variant((3 - b,), run),), 0) for b in range(4)]
    return TrainingGraph("chain", 1, tuple(forward), tuple(backward), 0)


@pytest.mark.parametrize(
    ("budget_bytes", "copies_a_tick", "ticks", "again", "away"),
    [
        (KEEPS_ALL, 0.001, 8.0, 0, 0),  # all has room
        (KEEPS_ALL - MIB, 100.0, 8.0, 0, 1),  # a fast link takes some away for nothing
        (KEEPS_ALL - MIB, 0.001, 9.0, 1, 0),  # a slow one doesn't pay: one is made again
    ],
)
def test_a_tensor_stays_travels_or_is_made_again_as_it_pays(
    budget_bytes: int, copies_a_tick: float, ticks: float, again: int, away: int
) -> None:
    graph = chain()
    problem = Problem(graph, budget_bytes, method="offload-blocks", link=HostLink(copies_a_tick * MIB / TICK_S, 2**40))
    program = encode_blocks(problem, budget_bytes, np.zeros(4, dtype=np.int64))
    solution = solve_model(program.model, SolveOptions(gap=0.0, threads=1))
    assert solution.values is not None
    assert solution.objective is not None
    assert solution.objective * cost_unit(unlimited_s(graph)) == pytest.approx(ticks * TICK_S, rel=1e-6)
    kept, is_away = program.modes(solution.values, 5)
    assert 4 - kept.sum() == again
    assert bool(is_away.any()) is bool(away)
