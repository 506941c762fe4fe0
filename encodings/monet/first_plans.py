"""Plans by simple rules, in a time that hardly grows with the graph: what a search begins with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.checker import check
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.parameters import Nesting
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.eviction import evicted
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.nested import nested_checkpoints, smallest_variants
from gapless.encodings.monet.study.baselines import checkpoints_kept, lean_variants

__all__ = ["first_plans", "nested_plans"]


def first_plans(keeper: Keeper) -> Iterator[KeepSet]:
    """Keep all; greedy eviction; Chen's checkpoints with eviction; keep nothing. Mostly, the later the less memory."""
    graph = keeper.graph
    variants = [lean_variants(graph), np.zeros(len(graph.backward), dtype=np.int64)]
    everything = np.ones(len(graph.forward), dtype=np.bool_)
    for variant in variants:
        yield KeepSet.just_in_time(everything, variant)
    for kept in (everything, checkpoints_kept(graph)):
        for variant in variants:
            yield evicted(keeper, KeepSet.just_in_time(kept, variant))
    yield KeepSet.just_in_time(~everything, variants[0])


def nested_plans(problem: Problem, nesting: Nesting) -> Iterator[tuple[Decisions, float]]:
    """Plans of nested checkpoints that fit where hardly anything does, with their costs in seconds."""
    graph, budget_bytes = problem.graph, problem.budget_bytes
    variants = smallest_variants(graph)
    for share in nesting.excess:
        decisions = nested_checkpoints(graph, budget_bytes, variants, int(share * budget_bytes), nesting)
        if decisions is not None:
            judged, schedule = evaluate(graph, decisions), to_schedule(graph, decisions, budget_bytes)
            if judged.peak_bytes <= budget_bytes and check(schedule).valid:
                yield decisions, judged.cost_s
