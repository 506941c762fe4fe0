"""Offloading as others do it, on our timeline: by a rule, and by an integer program over sums of bytes and seconds.

`offload-all` is what frameworks' hooks for saved tensors do: whatever is saved goes to the host, the first made first,
here only until the step fits. `offload-layers` is after torchtitan's choice of keeping, recomputing or offloading each
operator's output: a linear integer program that minimises recomputation and what the link can't hide behind the
forward and the backward pass. It adds up bytes and knows no lifetimes: its budget is lowered until its plan fits.
Both are rebuilt from descriptions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.encodings.monet.evaluate import unlimited_s
from gapless.encodings.monet.offload.keeper import OffloadKeeper
from gapless.encodings.monet.offload.search import first_offloaded
from gapless.encodings.monet.options import byte_unit, cost_unit
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.search.state import SOLVER, Attempt
from gapless.encodings.monet.study.baselines import lean_variants
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solution import StopReason
from gapless.solvers.registry import solve_model

__all__ = ["by_layers", "in_order"]

_STEPS = 20
"""Budgets that the integer program is tried at."""
_GAP = 0.001


def in_order(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """Keep all, and offload what is made first, until the step fits."""
    assert problem.link is not None
    keeper = OffloadKeeper(problem.graph, problem.budget_bytes, problem.link)
    return _attempt(problem, keeper, first_offloaded(keeper), StopReason.FINISHED)


def by_layers(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """Solve at the budget, and at less as long as the plan doesn't fit."""
    assert problem.link is not None
    keeper, deadline = OffloadKeeper(problem.graph, problem.budget_bytes, problem.link), Deadline(options)
    low, high, best = 0, problem.budget_bytes, None
    claim = high
    for _ in range(_STEPS):
        if deadline.over or high - low < 0.002 * problem.budget_bytes:
            break
        keep = _solved(problem, claim, deadline.stage())
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


def _attempt(problem: Problem, keeper: OffloadKeeper, keep: KeepSet | None, reason: StopReason) -> Attempt:
    bound_s = unlimited_s(problem.graph, out_of_place=False)
    return Attempt(None if keep is None else keeper.decide(keep), reason, problem.method, bound_s)


def _solved(problem: Problem, claim_bytes: int, options: SolveOptions) -> KeepSet | None:
    """What a budget for the sum of what is kept suggests; None where the program has no solution."""
    graph, link = problem.graph, problem.link
    assert link is not None
    variants, nodes = lean_variants(graph), graph.loss
    needed = np.zeros(nodes, dtype=np.bool_)
    for node, variant in zip(graph.backward, variants.tolist(), strict=True):
        needed[list(node.variants[variant].needs)] = True
    size, unit = graph.output_bytes[:nodes] / byte_unit(graph), cost_unit(unlimited_s(graph))
    again_s = np.array([min(impl.duration_s for impl in node.again or node.implementations) for node in graph.forward])
    model = Model("offload_layers")
    kept, again, away = (model.binaries(name, nodes) for name in ("kept", "again", "away"))
    waiting = model.continuous("waiting")
    number, one = np.arange(nodes), np.ones(nodes)
    model.add_sparse(
        "one_mode", nodes, np.tile(number, 3), np.concatenate([kept, again, away]), np.tile(one, 3),
        lower=needed.astype(float), upper=1.0,
    )  # fmt: skip
    made = [i for i in range(nodes) if graph.forward[i].creator is not None]
    model.add_sparse("intermediates_are_kept", len(made), np.arange(len(made)), again[made], 1.0, upper=0.0)
    edges = [(i, j) for i in range(nodes) for j in graph.forward[i].inputs if graph.forward[i].creator is None]
    user, source = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    count = len(edges)
    model.add_sparse(
        "again_has_inputs", count, np.tile(np.arange(count), 4),
        np.concatenate([again[user], kept[source], again[source], away[source]]),
        np.repeat([1.0, -1.0, -1.0, -1.0], count), upper=0.0,
    )  # fmt: skip
    model.add_sparse("fits", 1, np.zeros(nodes, int), kept, size, upper=claim_bytes / byte_unit(graph))
    copy_s = size * byte_unit(graph) / link.bytes_per_s / unit
    for name, hidden_s in (("out", _forward_s(problem)), ("back", _backward_s(problem))):
        columns, values = np.append(away, waiting), np.append(copy_s, -1.0)
        model.add_sparse(name, 1, np.zeros(nodes + 1, int), columns, values, upper=hidden_s / unit)
    model.minimize((np.append(again_s[:nodes] / unit, 1.0), np.append(again, waiting)))
    quiet = replace(options, gap=_GAP, threads=1, on_progress=None, on_plan=None)
    solution = solve_model(model, quiet, options.solver or SOLVER)
    if solution.values is None:
        return None
    is_away = np.append(solution.values[away] > 0.5, False)
    return KeepSet(
        is_away | np.append(solution.values[kept] > 0.5, False), np.zeros(nodes + 1, dtype=np.bool_), variants,
        np.zeros(nodes + 1, dtype=np.int64), is_away,
    )  # fmt: skip


def _forward_s(problem: Problem) -> float:
    return sum(min(impl.duration_s for impl in node.implementations) for node in problem.graph.forward)


def _backward_s(problem: Problem) -> float:
    return sum(
        min(impl.duration_s for variant in node.variants for impl in variant.implementations)
        for node in problem.graph.backward
    )
