"""Steps that follow one another: the replay plays all of them, and what is claimed of the last one's end holds."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import share
from tiny_pipelines import random_stages, sequences

from gapless.checker import Rule, check
from gapless.cli.main import main
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.messages import held, hops_s, makers, queues_of, users
from gapless.encodings.pipeline.order.orders import Order, plain
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import steps_of, timed
from gapless.encodings.pipeline.parameters import DEFAULTS, Parameters
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.solve import solve
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, write_plan
from gapless.options import Deadline, SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solution import PlanClass
from gapless.solvers.registry import solve_model
from gapless.system import Plan

QUICK = Parameters(exact_ops=1, rounds=4, quick_ops=2000, heuristic_ops=4000)
ONE = SolveOptions(threads=1)


def asked(**values: Any) -> Problem:
    how = {"profile": "uniform:f=10,b=12,w=8", "ranks": 4, "micro_batches": 8, "hop": 2.0, "steps": 3}
    return problem(**{**how, **values})


def solved(question: Problem, parameters: Parameters | None = None) -> Plan:
    plan = solve(question, ONE, parameters)
    assert plan.schedule is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(plan.solution.objective)
    assert all(one.value <= report.makespan_s * (1 + 1e-9) for one in plan.solution.bounds)
    return plan


def last_end_s(stages: Stages, order: Order) -> float:
    """Of an order played so often: the longest path through all steps, written apart from what it is held against."""
    flow, machines = _step_arcs(stages, order)
    arcs = defaultdict[Any, list[tuple[Any, float]]](list)
    for step in range(stages.steps):
        for later, earlier, by in flow:
            arcs[step, later].append(((step, earlier), by))
        for firsts, ends in machines if step + 1 < stages.steps else ():
            for first, (last, by) in product(firsts, ends):
                arcs[step + 1, first].append(((step, last), by))
    at_s, is_open = defaultdict[Any, float](float), True
    while is_open:
        is_open = False
        for later, before in arcs.items():
            found = max(at_s[earlier] + by for earlier, by in before)
            if found > at_s[later]:
                at_s[later], is_open = found, True
    return max(at_s[stages.steps - 1, last] + by for _, ends in machines for last, by in ends)


def _step_arcs(stages: Stages, order: Order) -> tuple[list[tuple[Any, Any, float]], list[tuple[list[Any], Any]]]:
    """What follows what in a step, and how much later; of each rank and link its first ones, and its ends."""
    held_s = np.repeat(held(stages).reshape(-1), stages.micro_batches)
    own_s = np.repeat(np.concatenate([stages.forward_s, stages.backward_s, stages.weight_s]), stages.micro_batches)
    hop_s = np.repeat(hops_s(stages).reshape(-1), stages.micro_batches)
    per_kind = stages.count * stages.micro_batches
    last = lambda stage: [("op", stages.last * per_kind + stage * stages.micro_batches + m)  # noqa: E731
                          for m in range(stages.micro_batches)]  # fmt: skip
    arcs: list[tuple[Any, Any, float]] = []
    for message in range(len(hop_s)):
        maker, user = (int(each(stages, np.array([message]))[0]) for each in (makers, users))
        arcs += [(("sent", message), ("op", maker), own_s[maker]), (("op", user), ("sent", message), hop_s[message])]
    for m in range(stages.micro_batches):
        end = (stages.count - 1) * stages.micro_batches + m
        arcs.append((("op", per_kind + end), ("op", end), own_s[end]))
    if stages.splits:
        arcs += [(("op", per_kind + op), ("op", op), own_s[op]) for op in range(per_kind, 2 * per_kind)]
    machines: list[tuple[list[Any], Any]] = []
    for queue in queues_of(stages, order).values() if not stages.blocks else ():
        arcs += [(("sent", b), ("sent", a), hop_s[a]) for a, b in pairwise(queue.tolist())]
        machines.append(([("sent", int(queue[0]))], [(("sent", int(queue[-1])), hop_s[queue[-1]])]))
    for rank, sequence in enumerate(order.sequences):
        ops = sequence.tolist()
        arcs += [(("op", b), ("op", a), held_s[a]) for a, b in pairwise(ops)]
        place = {("op", op): at for at, op in enumerate(ops)}
        here = sorted(
            np.flatnonzero(stages.rank == rank).tolist(), key=lambda s, place=place: max(place[op] for op in last(s))
        )
        for stage in here:
            arcs += [(("sum", stage), op, own_s[op[1]]) for op in last(stage)]
        arcs += [(("sum", b), ("sum", a), stages.reduce_s[0, a]) for a, b in pairwise(here)]
        ends = [(("op", ops[-1]), held_s[ops[-1]]), *((("sum", s), stages.reduce_s[0, s]) for s in here)]
        if stages.embedding_s and rank in stages.rank[[0, -1]]:
            both = np.flatnonzero(np.isin(stages.rank, stages.rank[[0, -1]])).tolist()
            ends += [(("sum", s), stages.reduce_s[0, s] + stages.embedding_s) for s in both]
        machines.append(([("op", ops[0])], ends))
    return arcs, machines


def tiny_steps(seed: int) -> Stages:
    return replace(random_stages(seed, 60), steps=2 + seed % 3)


def least_s(stages: Stages) -> float:
    """Of all orders, each played by hand."""
    found = math.inf
    for chosen in product(*(list(sequences(stages, rank)) for rank in range(stages.ranks))):
        order = plain(stages, list(chosen))
        if timed(stages, order) is not None:
            found = min(found, last_end_s(stages, order))
    return found


@pytest.mark.parametrize("seed", range(share(150)))
def test_no_bound_is_above_the_best_of_all_orders(seed: int) -> None:
    """Nor what the exact model proves, which looks at the first rank's spans alone; and no order beats it."""
    stages = tiny_steps(seed)
    best_s, deadline = least_s(stages), Deadline(SolveOptions())
    least = max(bounds_of(stages).values())
    assert least <= time_indexed_bound(stages, least, float(np.ceil(best_s)), 256, 8, deadline) <= best_s + 1e-9
    ordered = order_model(stages, best_s + 10)
    claimed = solve_model(ordered.model, replace(ONE, gap=0.0), "cpsat")
    assert claimed.values is not None
    assert claimed.bound is not None
    assert claimed.bound <= best_s + 1e-9
    assert last_end_s(stages, order_of(ordered, claimed.values)) >= best_s - 1e-9


@pytest.mark.parametrize("seed", range(share(150)))
def test_steps_are_played_as_early_as_they_go(seed: int) -> None:
    """By powers of paths, by one walk after the other, and by the longest path through all of them."""
    stages = tiny_steps(seed)
    chosen = [next(iter(sequences(stages, rank))) for rank in range(stages.ranks)]
    order = plain(stages, chosen)
    timeline = timed(stages, order)
    if timeline is None:
        return
    by_hand_s = last_end_s(stages, order)
    assert timeline.cost_s == pytest.approx(by_hand_s)
    assert steps_of(stages, order)[-1].step_s == pytest.approx(by_hand_s)
    again = timed(replace(stages, steps=500), order)
    assert again is not None
    assert again.cost_s == pytest.approx(last_end_s(replace(stages, steps=40), order) + 460 * timeline.span_s)


def test_the_exact_models_start_is_what_it_says_of_the_order() -> None:
    stages = tiny_steps(3)
    made = best_orders(asked(), (), stages, ONE, Deadline(ONE), DEFAULTS).best
    assert made is not None
    one = timed(stages.one_step, made.order)
    assert one is not None
    ordered = order_model(stages, made.timeline.cost_s + 50)
    values = values_of(ordered, one)
    assert values[ordered.step] == one.step_s + (stages.steps - 1) * one.finish_s[stages.rank[0]]
    assert values[ordered.step] <= made.timeline.cost_s


@pytest.mark.thorough(but=["[3]"])
@pytest.mark.parametrize("seed", range(6))
def test_every_step_is_replayed(seed: int) -> None:
    """With sums among replicas, a shared embedding, sends that block, and messages that take longer than ops."""
    rng = np.random.default_rng(seed)
    times, sizes = [rng.integers(2, 12, 8).astype(float) for _ in range(3)], rng.integers(4, 40, 8)
    profile = PipelineProfile("layers", tuple("abcdefgh"), *times, sizes, 2 * sizes, 5 * sizes,
                              rng.integers(1, 9, 8), embedding_bytes=4)  # fmt: skip
    placed = {"placement": "v", "ranks": 2} if seed % 2 else {"ranks": 3}
    plan = solved(asked(profile=profile, micro_batches=4, hop=None, bandwidth=1 + seed, replicas=2, in_flight=3,
                        blocking_sends=seed % 3 == 0, cut="even", **placed), QUICK)  # fmt: skip
    schedule = plan.schedule
    assert schedule is not None
    last = [k for k, op in enumerate(schedule.op.tolist()) if op >= 0 and schedule.graph.ops[op].name == "U 0 0"]
    first = [k for k, op in enumerate(schedule.op.tolist()) if op >= 0 and schedule.graph.ops[op].name == "F 0 4"]
    assert len(last) == len(first) == 1
    start_s, end_s = schedule.start_s.copy(), schedule.end_s.copy()
    early_s = end_s[first] - start_s[first]
    end_s[first], start_s[first] = start_s[last], start_s[last] - early_s
    found = check(replace(schedule, start_s=start_s, end_s=end_s)).violation_counts
    assert found.keys() & {Rule.INPUT_MISSING, Rule.INPUT_LATE, Rule.RESOURCE_OVERLAP}


@pytest.mark.thorough(but=["8-1-276"])
@pytest.mark.parametrize(("in_flight", "steps", "best_s"), [(4, 3, 918), (8, 1, 276), (8, 2, 538), (8, 10, 2634)])
def test_what_is_proven_of_the_trial(in_flight: int, steps: int, best_s: float) -> None:
    plan = solved(asked(in_flight=in_flight, steps=steps))
    assert plan.solution.objective == best_s
    assert plan.solution.proven_class is PlanClass.PLACEMENT


@pytest.mark.thorough
def test_a_saved_plan_has_the_order_of_one_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = asked(method="zb-h1")
    plan = solved(question)
    assert plan.schedule is not None
    assert plan.decision is not None
    saved = SavedPlan(
        "pipeline", question.description, {}, dict(plan.details), plan.schedule, decision=plan.decision.data
    )
    program = program_of(saved)
    assert len(program.order.actions) == 3 * 4 * 8
    one = solve(asked(method="zb-h1", steps=1), ONE)
    assert plan.decision == one.decision
    write_plan(tmp_path / "plan.json", saved)
    assert main(["run", "pipeline", "--plan", str(tmp_path / "plan.json"), "--ranks", "4"]) == 2
    assert "problem: steps: a plan of several is exported and replayed, not run" in capsys.readouterr().err


def test_steps_are_asked_for_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    line = "solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 4 --micro-batches 8 --hop 2 --in-flight 8"
    assert main([*line.split(), "--steps", "2"]) == 0
    assert "538 s: optimal among plans with linear placement" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"minimise": "span"}, "steps: goes without minimise span"),
        ({"memory": "8GB"}, "message_memory: must be free with steps more than one"),
        ({"overlap_cost": 0.6}, "overlap_cost: goes without steps"),
        ({"steps": 5000}, "steps: must be at most 2083 for 4 stages and 8 micro-batches, .* or minimise span"),
    ],
)
def test_what_goes_without_steps_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        asked(**values)
