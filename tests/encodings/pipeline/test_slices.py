"""Micro-batches in slices of their sequence: what slices cost, bounds, optima, replays, and what goes without them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_pipeline import again_in_slices, exact_step, in_slices
from examples import share
from tiny_pipelines import best_cost_s, sequences

import gapless
from gapless.checker import Rule, check
from gapless.cli.main import main
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.cut.policies import rerun
from gapless.encodings.pipeline.cut.slices import shares_of
from gapless.encodings.pipeline.execution.times import step_s, times_of
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.orders import Order, Timeline, number
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.ticks import in_ticks
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import EvenHops, Problem, Replicas, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.encodings.pipeline.solve import planned
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.methods import MethodChoice
from gapless.options import Deadline, SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solution import Status

POINTS = (12, 30, 60, 150)
ONE = SolveOptions(threads=1)
LITTLE = replace(DEFAULTS, quick_ops=1000, heuristic_ops=1000, methods=MethodChoice(only=("zero-bubble",)))


def asked(**values: Any) -> Problem:
    return problem(**{"profile": "uniform:f=10,b=10,w=10", "ranks": 4, "micro_batches": 8, "slices": 2, **values})


def costs(question: Problem) -> Stages:
    return stages_of(question, even_cut(question.profile.layer_count, question.stage_count))


def run(question: Problem, name: str = "seq1f1b") -> tuple[Stages, Order, Timeline]:
    stages = costs(question)
    stages = stages if BASELINES[name].splits else whole(stages)
    order = BASELINES[name].order(stages)
    timeline = timed(stages, order)
    assert timeline is not None
    return stages, order, timeline


@pytest.mark.thorough(but=("[2-in_slices]", "[7-in_slices]", "[3-again_in_slices]"))
@pytest.mark.parametrize("drawn", [in_slices, again_in_slices])
@pytest.mark.parametrize("seed", range(share(100)))
def test_no_bound_is_above_the_optimum_which_is_found_and_proven(seed: int, drawn: Callable[[int], Stages]) -> None:
    """Held against a model in which slices of different micro-batches may overtake one another anywhere."""
    stages = drawn(seed)
    best_s, proven_s = exact_step(stages, 20.0)
    assert max(bounds_of(stages).values()) <= best_s
    ticked = in_ticks(stages, best_s)
    least = max(bounds_of(ticked.stages).values())
    refuted = time_indexed_bound(ticked.stages, least, 1.2 * best_s + 2, POINTS[seed % 4], 4, Deadline(SolveOptions()))
    assert refuted * ticked.tick_s <= best_s
    question = asked(ranks=stages.ranks, micro_batches=stages.micro_batches, slices=stages.slices)
    found = best_orders(question, (), stages, SolveOptions(), Deadline(SolveOptions()), DEFAULTS)
    assert found.best is not None
    assert found.bound_s <= best_s
    assert found.best.timeline.step_s == best_s or best_s > proven_s


@pytest.mark.parametrize("drawn", [in_slices, again_in_slices])
@pytest.mark.parametrize("seed", range(share(300)))
def test_an_order_within_memory_is_found_and_is_a_point_of_the_exact_model(
    seed: int, drawn: Callable[[int], Stages]
) -> None:
    stages = drawn(seed)
    made = zero_bubble(stages, 1000)
    assert made is not None
    order, timeline = made
    assert max(bounds_of(stages).values()) <= timeline.step_s
    ordered = order_model(stages, timeline.step_s)
    values = values_of(ordered, timeline)
    assert ordered.model.arrays().violation(values) == 0
    again = order_of(ordered, values).sequences
    assert all((one == other).all() for one, other in zip(again, order.sequences, strict=True))


@pytest.mark.thorough(but=("[0]",))
@pytest.mark.parametrize("seed", range(share(100)))
def test_the_optimum_is_the_best_of_all_orders(seed: int) -> None:
    stages = replace(in_slices(seed), message_bytes=np.zeros_like(in_slices(seed).message_bytes))
    counts = [sum(1 for _ in islice(sequences(stages, rank), 2501)) for rank in range(stages.ranks)]
    if math.prod(counts) > 2500:
        return
    best_s = best_cost_s(stages)
    assert exact_step(stages) == (best_s, best_s)


@pytest.mark.parametrize(
    ("slices", "step_s", "peak"), [(1, 330, 4.0), (2, 285, 2.5), (4, 262.5, 1.75), (8, 251.25, 1.375)]
)
def test_seq1f1b_by_hand(slices: int, step_s: float, peak: float) -> None:
    """The bubble is that of 1F1B, (P - 1) * 30 s, over the slices; the first rank keeps P - 1 of them besides one
    micro-batch's, and not P micro-batches."""
    stages, _, timeline = run(asked(slices=slices), "1f1b" if slices == 1 else "seq1f1b")
    assert timeline.step_s == step_s
    assert peak_bytes(stages, timeline.program).max() / 10**9 == peak


def test_slices_of_equal_work_get_shorter_and_add_up() -> None:
    """A token attends to all before it."""
    shares = shares_of(4, 0.5, ())
    ends = np.cumsum(shares.tokens)
    assert 0.5 * ends + 0.5 * ends**2 == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert (np.diff(shares.tokens) < 0).all()
    assert shares.work == pytest.approx(np.full(4, 0.25))
    assert shares_of(4, 0.0, ()).tokens == pytest.approx(np.full(4, 0.25))


def test_slices_of_equal_length_take_longer_and_longer() -> None:
    shares = shares_of(4, 0.5, (1, 1, 1, 1))
    assert shares.tokens == pytest.approx(np.full(4, 0.25))
    assert shares.work * 32 == pytest.approx([5, 7, 9, 11])
    assert shares.cut(np.array([10, 7])).tolist() == [[2, 2], [3, 2], [3, 1], [2, 2]]


def test_costs_of_slices_add_up_to_those_of_a_micro_batch() -> None:
    question = asked(slices=3, attention=0.3, hop=1.0)
    alike, stages = costs(asked(slices=1, hop=1.0)), costs(question)
    assert (stages.count, stages.depth, stages.weighted) == (12, 4, 4)
    for name in ("forward_s", "backward_s", "weight_s", "stash_bytes", "state_bytes"):
        assert getattr(stages, name).reshape(3, 4).sum(axis=0) == pytest.approx(getattr(alike, name))
    hop_s = np.append(stages.forward_hop_s, 0).reshape(3, 4)
    assert hop_s.sum(axis=0)[:3] == pytest.approx(alike.forward_hop_s)
    assert (hop_s[:, 3] == 0).all()
    assert stages.weight_s[::4] / stages.weight_s.reshape(3, 4).sum(axis=0)[0] == pytest.approx(question.shares.tokens)


def test_what_runs_again_keeps_inputs_keys_and_values() -> None:
    """Of a slice its share of a stage's input, and of two outputs of its only layer; not more than all of it."""
    question = asked(slices=3, attention=0.6, recomputation="all")
    cut = even_cut(4, 4)
    plain, again = (stages_of(question, cut, rerun(question, cut, [each] * 4), splits=True) for each in (False, True))
    kept = again.saved_bytes.reshape(3, 4)
    assert kept.sum(axis=0).tolist() == [2 * 10**6, 3 * 10**6, 3 * 10**6, 3 * 10**6]
    assert (again.full_bytes == plain.stash_bytes).all()
    assert again.backward_s - plain.backward_s == pytest.approx(plain.forward_s)
    assert again.again_s == pytest.approx(plain.forward_s)


def test_whole_backwards_take_what_both_gradients_do() -> None:
    split = costs(asked(slices=3, attention=0.6))
    one = costs(asked(slices=3, attention=0.6, backward="whole"))
    assert one.backward_s == pytest.approx(split.backward_s + split.weight_s)


@pytest.mark.parametrize("kind", [Kind.FORWARD, Kind.BACKWARD])
def test_slices_in_another_turn_are_no_order_and_no_schedule(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last slice's forward before that of the one before it, and the first one's backward before the next one's."""
    question = asked(ranks=1, micro_batches=2, backward="whole")
    stages, order, _ = run(question)
    ops = order.sequences[0].tolist()
    places = [ops.index(number(stages, kind, stage, 1)) for stage in (0, 1)]
    ops[places[0]], ops[places[1]] = ops[places[1]], ops[places[0]]
    wrong = replace(order, sequences=(np.array(ops),))
    assert timed(stages, wrong) is None
    monkeypatch.setattr(Stages, "keeps_turns", lambda self, sequences: True)
    timeline = timed(stages, wrong)
    assert timeline is not None
    assert Rule.INPUT_LATE in check(to_schedule(question, stages, wrong, timeline)).violation_counts


@pytest.mark.parametrize("embedding_bytes", [0, 30])
def test_sums_wait_for_every_slice(embedding_bytes: int) -> None:
    ones, sizes = np.ones(3), np.array([60, 70, 80])
    profile = PipelineProfile("trained", ("a", "b", "c"), 10 * ones, 12 * ones, 8 * ones, sizes, 8 * sizes, 50 * sizes,
                              2 * sizes, embedding_bytes)  # fmt: skip
    question = Problem(profile, 3, 4, hops=EvenHops(1.0, 0.01), replicas=Replicas(2, 0.5, 0.02), slices=3,
                       attention=0.2, backward="whole")  # fmt: skip
    stages, order, timeline = run(question)
    ends = timeline.end_s.reshape(2, 3, 3, 4)[1].max(axis=(0, 2))
    assert (timeline.reduced_s[:3] >= ends + stages.reduce_s[0, :3] - 1e-9).all()
    schedule = to_schedule(question, stages, order, timeline)
    report = check(schedule)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(timeline.step_s)
    sums = [op for op in schedule.graph.ops if op.kind == "sum"]
    assert len(sums) == 3
    assert all(needs == (1 << 12) - 1 for op in sums for needs in op.needs.values())


@pytest.mark.parametrize(
    "values",
    [{"placement": "v"}, {"placement": "looped"}, {"blocking_sends": True, "hop": 1.0}, {"backward": "whole"},
     {"recomputation": "all", "attention": 0.3, "hop": 1.0}, {"recomputation": "auto", "memory": 1_200_000_000},
     {"memory": 2_600_000_000, "hop": 1.0}, {"attention": 0.5, "slice_lengths": (3, 2, 1), "slices": 3}],
)  # fmt: skip
def test_plans_replay_within_their_bounds(values: dict[str, Any]) -> None:
    memory = {} if "memory" in values else {"in_flight": 3}
    plan = planned(asked(micro_batches=4, **memory, **values), ONE, LITTLE)
    assert plan.schedule is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert plan.solution.objective == pytest.approx(report.makespan_s)
    assert all(one.value <= report.makespan_s * (1 + 1e-9) for one in plan.solution.bounds)


@pytest.mark.thorough(but=["[0]", "[3]"])
@pytest.mark.parametrize("seed", range(share(30)))
def test_layers_that_differ_are_cut_for_slices(seed: int) -> None:
    """No bound on cuts, and on what is run again, is above what the best of them takes."""
    random = np.random.default_rng(seed)
    ones, stash = np.ones(5, dtype=np.int64), random.integers(10, 40, 5)
    forward_s = random.integers(1, 9, 5).astype(float)
    profile = PipelineProfile("layers", tuple("abcde"), forward_s, 2 * forward_s, forward_s, ones, ones, stash, ones)
    memory = int(stash.sum() * random.uniform(0.6, 1.5)) if seed % 3 else math.inf
    how: dict[str, Any] = {"ranks": 2, "micro_batches": 2, "hops": EvenHops(1.0), "slices": 2 + seed % 2,
                           "memory_bytes": memory, "recomputation": ("auto", "none", "all")[seed % 3 - 1],
                           "attention": 0.3 * (seed % 4)}  # fmt: skip
    plans = [planned(Problem(profile, cut=(first,), **how), ONE, LITTLE) for first in range(1, 5)]
    best_s = min((plan.solution.objective for plan in plans if plan.solution.objective is not None), default=math.inf)
    found = planned(Problem(profile, **how), ONE, LITTLE).solution
    assert all(one.value <= best_s * (1 + 1e-9) for one in found.bounds)
    assert math.isinf(best_s) or found.status is not Status.INFEASIBLE


def test_a_plan_names_slices_and_is_read_again(tmp_path: Path) -> None:
    result = gapless.solve(asked(ranks=2, micro_batches=3, method="seq1f1b", attention=0.25, backward="whole"), ONE)
    assert result.report.valid
    assert isinstance(result.decision, PipelineDecision)
    assert result.decision.order[1].split()[:5] == ["1F0", "1F1", "1B1", "1F2", "1B0"]
    result.save(tmp_path / "plan.json")
    saved = gapless.load(tmp_path / "plan.json")
    assert saved.decision == result.decision
    assert main(["check", str(tmp_path / "plan.json"), "--quiet"]) == 0
    program = program_of(read_plan(tmp_path / "plan.json"))
    assert (program.slices, program.order.micro_batches) == (2, 6)
    with pytest.raises(InputError, match="slices: slices of a sequence are run with --emulate alone"):
        program.check_stays("torch")
    times = times_of(result.schedule, program.order)
    assert step_s(program.order, times) == pytest.approx(result.report.makespan_s)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("--slices 2 --minimise span", "slices: goes without minimise span"),
        ("--slices 2 --steps 2", "slices: goes without steps"),
        ("--slices 2 --placement bidirectional", "slices: goes without placement bidirectional"),
        ("--slices 2 --overlap-cost 0.7", "slices: goes without overlap_cost"),
        ("--slices 2 --recomputation curve", "slices: goes without recomputation curve"),
        ("--slices 2 --work 1,2,1,1", "slices: goes without work"),
        ("--slices 2 --slice-lengths 1,2,1", "slice_lengths: must be one for each of 2 slices, got 3"),
        ("--attention 0.5", "attention: goes with slices, 2 or more, got slices 1"),
        ("--slices 2 --method 1f1b", "method: 1f1b is for whole micro-batches, got slices 2"),
        ("--method seq1f1b", "method: seq1f1b needs slices, 2 or more, got slices 1"),
    ],
)
def test_what_goes_without_slices_is_said(values: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 2 --micro-batches 4 {values}"
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err.replace("--", "").replace("slice-", "slice_").replace("overlap-", "overlap_")
