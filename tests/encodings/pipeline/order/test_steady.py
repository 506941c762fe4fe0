"""The least longest span of an order is that of a linear program over all times, and steps can follow it so closely."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from exact_pipeline import few_stages
from examples import share
from tiny_pipelines import trial

from gapless.array_types import Ints
from gapless.encodings.pipeline.order.messages import held, hops_s, makers, queues_of, users
from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.steady import largest_mean_s
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import all_rules, list_schedule
from gapless.encodings.pipeline.schedules.baselines import one_f_one_b, whole, zb_h1, zb_h2
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model


@pytest.mark.parametrize("seed", range(share(100)))
def test_the_largest_mean_is_that_of_all_simple_cycles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    paths_s = np.where(rng.random((count, count)) < 0.7, rng.integers(-5, 20, (count, count)), -np.inf)
    np.fill_diagonal(paths_s, rng.integers(-5, 20, count))
    graph = nx.DiGraph([(a, b) for a in range(count) for b in range(count) if np.isfinite(paths_s[b, a])])
    cycles = [[*cycle, cycle[0]] for cycle in nx.simple_cycles(graph)]
    means = [sum(paths_s[b, a] for a, b in pairwise(cycle)) / (len(cycle) - 1) for cycle in cycles]
    assert largest_mean_s(paths_s) == pytest.approx(max(means), abs=1e-12)


def some_order(seed: int) -> tuple[Stages, Order]:
    """An order that some set of rules gives, of few stages whose messages may wait, with sums and an exchange."""
    rng, stages = np.random.default_rng(seed), few_stages(seed)
    reduce_s = rng.integers(2) * rng.integers(0, 9, stages.reduce_s.shape).astype(float)
    ends = 0.0 if stages.rank[0] == stages.rank[-1] else float(rng.integers(2) * rng.integers(1, 9))
    stages = replace(stages, by_span=True, reduce_s=reduce_s, embedding_s=ends)
    rules = list(all_rules(stages))
    return stages, list_schedule(stages, rules[int(rng.integers(len(rules)))])


@pytest.mark.parametrize("seed", range(share(120)))
def test_no_times_of_an_order_have_a_shorter_longest_span(seed: int) -> None:
    stages, order = some_order(seed)
    timeline = timed(stages, order)
    if timeline is not None:
        assert timeline.cost_s == timeline.span_s == pytest.approx(least_span_s(stages, order), rel=1e-7)
        earliest = timed(replace(stages, by_span=False), order)
        assert earliest is not None
        assert timeline.span_s <= earliest.span_s
        assert (timeline.start_s >= earliest.start_s).all()


def test_steps_follow_one_another_as_closely_as_the_longest_span() -> None:
    """Every rank and every link is free again when the next step needs it."""
    for seed in range(share(40)):
        stages, order = some_order(seed)
        timeline = timed(stages, order)
        if timeline is None:
            continue
        first_s = stages.first_s(timeline.start_s)
        assert (timeline.finish_s <= first_s + timeline.span_s + 1e-9).all()
        for queue in queues_of(stages, order).values() if not stages.blocks else ():
            sent_s = timeline.sent_s.reshape(-1)[queue]
            hop_s = np.repeat(hops_s(stages).reshape(-1), stages.micro_batches)[queue]
            assert (sent_s + hop_s).max() <= sent_s.min() + timeline.span_s + 1e-9


def test_spans_of_1f1b_are_its_step_and_those_of_more_memory_need_not_be() -> None:
    """4 ranks, 8 micro-batches: in ZB-H2 the first rank is done before the last."""
    for order, span_s in ((one_f_one_b, 362), (zb_h1, 306), (zb_h2, 270)):
        stages = replace(trial(4, 8, 8)[1], by_span=True)
        stages = whole(stages) if order is one_f_one_b else stages
        timeline = timed(stages, order(stages))
        assert timeline is not None
        assert timeline.cost_s == span_s


def least_span_s(stages: Stages, order: Order) -> float:
    """A linear program: all times of the order, each rank and link within the same span."""
    kinds, model = 3 if stages.splits else 2, Model("spans")
    start = model.continuous("start", (kinds, stages.count, stages.micro_batches))
    sent = model.continuous("sent", (2, stages.count - 1, stages.micro_batches)).reshape(-1)
    summed, step = model.continuous("summed", stages.count), model.continuous("span")
    own = [stages.forward_s, stages.backward_s, stages.weight_s]
    rows: list[tuple[int, int, float]] = []
    spans: list[tuple[int, int, float]] = []
    ops, hold_s = start.reshape(-1), np.repeat(held(stages).reshape(-1), stages.micro_batches)
    own_s = np.repeat(np.concatenate(own[:kinds]), stages.micro_batches)
    hop_s = np.repeat(hops_s(stages).reshape(-1), stages.micro_batches)
    rows += [(ops[b], ops[a], hold_s[a]) for row in order.sequences for a, b in pairwise(row.tolist())]
    rows += [(*pair, stages.forward_s[-1]) for pair in start[[Kind.BACKWARD, Kind.FORWARD], -1].T.tolist()]
    messages = np.arange(len(sent))
    rows += list(zip(sent, ops[makers(stages, messages)], own_s[makers(stages, messages)], strict=True))
    rows += list(zip(ops[users(stages, messages)], sent, hop_s, strict=True))
    for queue in queues_of(stages, order).values() if not stages.blocks else ():
        rows += [(sent[b], sent[a], hop_s[a]) for a, b in pairwise(queue.tolist())]
        spans.append((sent[queue[0]], sent[queue[-1]], hop_s[queue[-1]]))
    for rank, sequence in enumerate(order.sequences):
        first, here = ops[sequence[0]], np.flatnonzero(stages.rank == rank).tolist()
        spans.append((first, ops[sequence[-1]], hold_s[sequence[-1]]))
        lasts = sorted(here, key=lambda s: np.flatnonzero(np.isin(sequence, _lasts(stages, s))).max())
        rows += [(summed[b], summed[a], stages.reduce_s[0, a]) for a, b in pairwise(lasts)]
        spans += [(first, summed[s], stages.reduce_s[0, s]) for s in here]
        if stages.embedding_s and rank in stages.rank[[0, -1]]:
            ends = np.flatnonzero(np.isin(stages.rank, stages.rank[[0, -1]])).tolist()
            spans += [(first, summed[s], stages.reduce_s[0, s] + stages.embedding_s) for s in ends]
    rows += [(summed[s], op, own[kinds - 1][s]) for s in range(stages.count) for op in start[-1, s]]
    later, earlier, by = (np.array(column) for column in zip(*rows, strict=True))
    model.add("after", (np.array([1.0, -1.0]), np.stack([later, earlier], axis=-1)), lower=by)
    begin, last, long = (np.array(column) for column in zip(*spans, strict=True))
    columns = np.stack([np.full_like(begin, step), begin, last], axis=-1)
    model.add("within", (np.array([1.0, 1.0, -1.0]), columns), lower=long)
    model.minimize((1.0, step))
    found = solve_model(model, SolveOptions(threads=1), "highs").objective
    assert found is not None
    return found


def _lasts(stages: Stages, stage: int) -> Ints:
    """The numbers of a stage's last ops."""
    return (stages.last * stages.count + stage) * stages.micro_batches + np.arange(stages.micro_batches)
