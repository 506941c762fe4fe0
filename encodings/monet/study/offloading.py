"""Offloading as others do it, on our timeline: by a rule, and by an integer program over sums of bytes and seconds.

`offload-all` is what frameworks' hooks for saved tensors do: whatever is saved goes to the host, the first made first,
here only until the step fits. `offload-layers` is after torchtitan's choice of keeping, recomputing or offloading each
operator's output: a linear integer program that minimises recomputation and what the link can't hide behind the
forward and the backward pass. It adds up bytes and knows no lifetimes: its budget is lowered until its plan fits.
`offload-blocks` does so block by block, after Rockmate's (`offload_blocks.py`). All are rebuilt from descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.evaluate import unlimited_s
from gapless.encodings.monet.offload.keeper import OffloadKeeper, keeper_of
from gapless.encodings.monet.offload.search import first_offloaded
from gapless.encodings.monet.options import byte_unit, cost_unit
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.encodings.monet.search.state import SOLVER, Attempt
from gapless.encodings.monet.study.baselines import lean_variants
from gapless.encodings.monet.study.offload_blocks import encode_blocks
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import StopReason
from gapless.solvers.registry import solve_model

__all__ = ["block_starts", "by_blocks", "by_layers", "in_order"]

_STEPS = 20
"""Budgets that the integer program is tried at."""
_GAP = 0.001
_START_STEPS = 20
"""Of the program over blocks, where it suggests a start."""
_MOST_TENSORS = 500
"""With which it does: of ResNet-50's 226 a program takes 0.2 to 0.4 processor seconds, of more soon too many."""

_Solved = Callable[[Problem, int, SolveOptions], KeepSet | None]


def in_order(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """Keep all, and offload what is made first, until the step fits."""
    keeper = keeper_of(problem)
    assert isinstance(keeper, OffloadKeeper)
    return _attempt(problem, keeper, first_offloaded(keeper), StopReason.FINISHED)


def by_layers(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """The integer program over sums."""
    return _lowered(problem, options, _of_layers)


def by_blocks(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """The integer program over blocks of operators: the better plan of default backward operators and of lean ones."""
    graph, deadline, found = problem.graph, Deadline(options), list[Attempt]()
    for variant in (np.zeros(len(graph.backward), dtype=np.int64), lean_variants(graph)):
        stage = deadline.stage(deadline.remaining_s / (2 - len(found)))
        found.append(_lowered(problem, stage, partial(_of_blocks, variant=variant)))
    keeper = keeper_of(problem)

    def cost_s(attempt: Attempt) -> float:
        if attempt.decisions is None:
            return math.inf
        return keeper.state(keep_set_of(graph, attempt.decisions)).outcome.cost_s

    return min(found, key=cost_s)


def block_starts(problem: Problem, options: SolveOptions) -> list[KeepSet]:
    """What the program over blocks suggests for the budget itself, in a few steps, whether it fits or not: starts of a
    search. None on a graph that is too large for that.
    """
    graph, budget_bytes = problem.graph, max(int(keeper_of(problem).budget_bytes), 0)
    if np.count_nonzero(graph.output_bytes) > _MOST_TENSORS:
        return []
    few = replace(options, step_limit=_START_STEPS)
    choices = (np.zeros(len(graph.backward), dtype=np.int64), lean_variants(graph))
    found = (_of_blocks(problem, budget_bytes, few, variant) for variant in choices)
    return [keep for keep in found if keep is not None]


def _lowered(problem: Problem, options: SolveOptions, solved: _Solved) -> Attempt:
    """Solve at the budget, and at less as long as the plan doesn't fit."""
    keeper, deadline = keeper_of(problem), Deadline(options)
    low, high, best = 0, max(int(keeper.budget_bytes), 0), None
    claim = high
    for _ in range(_STEPS):
        if deadline.over or high - low < 0.002 * problem.budget_bytes:
            break
        keep = solved(problem, claim, deadline.stage())
        state = None if keep is None else keeper.state(keep)
        if state is None:
            low = claim
        elif state.outcome.overflow_bytes > 0:
            high = claim
        else:
            low = claim
            best = state if best is None or state.outcome.cost_s < best.outcome.cost_s else best
        claim = (low + high) // 2
    reason = StopReason.TIME_LIMIT if deadline.over else StopReason.FINISHED
    found = _attempt(problem, keeper, None if best is None else best.keep, reason)
    return replace(found, details={"claimed_budget_bytes": low})


def _attempt(problem: Problem, keeper: Keeper, keep: KeepSet | None, reason: StopReason) -> Attempt:
    bound_s = unlimited_s(problem.graph, out_of_place=False)
    return Attempt(None if keep is None else keeper.decide(keep), reason, problem.method, bound_s)


def _of_layers(problem: Problem, claim_bytes: int, options: SolveOptions) -> KeepSet | None:
    """What a budget for the sum of what is kept suggests; None where the program has no solution."""
    program = _encode(problem, claim_bytes)
    values = _values(program.model, options)
    if values is None:
        return None
    is_away, is_kept = (np.append(values[columns] > 0.5, False) for columns in (program.away, program.kept))
    return replace(KeepSet.just_in_time(is_away | is_kept, lean_variants(problem.graph)), offloaded=is_away)


def _of_blocks(
    problem: Problem, claim_bytes: int, options: SolveOptions, variant: NDArray[np.int64]
) -> KeepSet | None:  # fmt: skip
    program = encode_blocks(problem, claim_bytes, variant)
    values = _values(program.model, options)
    if values is None:
        return None
    is_kept, is_away = program.modes(values, len(problem.graph.forward))
    return replace(KeepSet.just_in_time(is_kept, variant), offloaded=is_away)


def _values(model: Model, options: SolveOptions) -> NDArray[np.float64] | None:
    quiet = replace(options, gap=_GAP, threads=1, on_progress=None, on_plan=None)
    return solve_model(model, quiet, options.solver or SOLVER).values


@dataclass(frozen=True)
class _Program:
    """The integer program, and its columns for each node's output: whether it is kept, made again, or offloaded."""

    model: Model
    kept: NDArray[np.int64]
    again: NDArray[np.int64]
    away: NDArray[np.int64]


def _encode(problem: Problem, claim_bytes: int) -> _Program:
    """Recomputation, and what the link can't hide, at their least, for a budget of the sum of what is kept."""
    graph, nodes = problem.graph, problem.graph.loss
    model, unit = Model("offload_layers"), cost_unit(unlimited_s(graph))
    program = _Program(model, *(model.binaries(name, nodes) for name in ("kept", "again", "away")))
    waiting = model.continuous("waiting")
    _needed_is_there(program, graph)
    _again_has_inputs(program, graph)
    size = graph.output_bytes[:nodes] / byte_unit(graph)
    model.add_sparse("fits", 1, np.zeros(nodes, int), program.kept, size, upper=claim_bytes / byte_unit(graph))
    assert problem.link is not None
    copy_s = size * byte_unit(graph) / problem.link.bytes_per_s / unit
    scale = max(float(copy_s.max(initial=0.0)), 1.0)  # of a slow link, so that its rows have coefficients near 1
    for name, hidden_s in (("out", _forward_s(problem)), ("back", _backward_s(problem))):
        columns, values = np.append(program.away, waiting), np.append(copy_s, -1.0) / scale
        model.add_sparse(name, 1, np.zeros(nodes + 1, int), columns, values, upper=hidden_s / unit / scale)
    again_s = np.array([min(impl.duration_s for impl in node.again or node.implementations) for node in graph.forward])
    model.minimize((np.append(again_s[:nodes] / unit, 1.0), np.append(program.again, waiting)))
    return program


def _needed_is_there(program: _Program, graph: TrainingGraph) -> None:
    """What the backward pass needs is kept, made again or offloaded; intermediates aren't made again."""
    nodes, needed = graph.loss, np.zeros(graph.loss, dtype=np.bool_)
    for node, variant in zip(graph.backward, lean_variants(graph).tolist(), strict=True):
        needed[list(node.variants[variant].needs)] = True
    program.model.add_sparse(
        "one_mode", nodes, np.tile(np.arange(nodes), 3), np.concatenate([program.kept, program.again, program.away]),
        np.ones(3 * nodes), lower=needed.astype(float), upper=1.0,
    )  # fmt: skip
    made = [i for i in range(nodes) if graph.forward[i].creator is not None]
    columns = program.again[made]
    program.model.add_sparse("intermediates_are_kept", len(made), np.arange(len(made)), columns, 1.0, upper=0.0)


def _again_has_inputs(program: _Program, graph: TrainingGraph) -> None:
    """What is made again has its inputs."""
    nodes = range(graph.loss)
    edges = [(i, j) for i in nodes for j in graph.forward[i].inputs if graph.forward[i].creator is None]
    user, source = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    count = len(edges)
    columns = [program.again[user], program.kept[source], program.again[source], program.away[source]]
    program.model.add_sparse(
        "again_has_inputs", count, np.tile(np.arange(count), 4), np.concatenate(columns),
        np.repeat([1.0, -1.0, -1.0, -1.0], count), upper=0.0,
    )  # fmt: skip


def _forward_s(problem: Problem) -> float:
    return sum(min(impl.duration_s for impl in node.implementations) for node in problem.graph.forward)


def _backward_s(problem: Problem) -> float:
    return sum(
        min(impl.duration_s for variant in node.variants for impl in variant.implementations)
        for node in problem.graph.backward
    )
