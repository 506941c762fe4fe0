"""Pipelines in the graph IR: every baseline replays clean, and each way to break one is found by the rule's name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gapless.checker import Rule, check
from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.cut.policies import rerun
from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.ir.schedule import EventKind, Schedule
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile

TRIAL = "uniform:f=10,b=12,w=8"


def asked(**values: Any) -> Problem:
    return problem(**{"profile": TRIAL, "ranks": 4, "micro_batches": 8, "hop": 2.0, **values})


def lowered(question: Problem, name: str, hop_mode: int = 0, reduce_mode: int = 0) -> Schedule:
    baseline = BASELINES[name]
    cut = even_cut(question.profile.layer_count, question.stage_count)
    stages = stages_of(question, cut)
    plain = baseline.order(stages)
    hops = np.where(stages.crosses[:, None], hop_mode, plain.hop_modes)
    order = Order(plain.sequences, hops, plain.reduce_modes + reduce_mode)
    timeline = timed(stages, order)
    assert timeline is not None
    schedule = to_schedule(question, stages, order, timeline, spoiling_of(question, cut, stages.crosses))
    report = check(schedule)
    assert report.makespan_s == pytest.approx(timeline.step_s)
    return schedule


def trained(layers: int = 4, embedding_bytes: int = 40) -> PipelineProfile:
    """Layers with parameters, the first and the last of which share some."""
    ones = np.ones(layers)
    sizes = np.full(layers, 100, dtype=np.int64)
    return PipelineProfile(
        "trained", tuple(f"l{k}" for k in range(layers)), 10 * ones, 12 * ones, 8 * ones, sizes, 8 * sizes, 50 * sizes,
        2 * sizes, embedding_bytes,
    )  # fmt: skip


def table(layers: int = 4) -> CompressionTable:
    depth = np.array([0.0, 1.0])
    mode = CompressionMode("quarter", 0.25, 0, 0.001, 0.002, np.array([0.4, 0.8]), np.array([0.2, 0.2]))
    return CompressionTable("made up", depth, (mode,))


@pytest.mark.parametrize("name", list(BASELINES))
@pytest.mark.parametrize("blocking", [False, True])
def test_every_baseline_replays_clean(name: str, blocking: bool) -> None:
    baseline = BASELINES[name]
    how = "split" if baseline.splits else "whole"
    schedule = lowered(asked(placement=baseline.placement, backward=how, blocking_sends=blocking), name)
    report = check(schedule)
    assert report.valid, report.summary()
    engines = schedule.topology.engines
    held_s = sum(busy for busy, (_, engine) in zip(report.busy_s.engines, engines, strict=True) if engine == "compute")
    hops = sum(event.kind is EventKind.COMPUTE for event in schedule.events() if event.op >= 0
               and schedule.graph.ops[event.op].kind == "send")  # fmt: skip
    assert held_s == pytest.approx(4 * 8 * 30.0 + 2.0 * hops)
    assert bool(hops) == blocking


def test_a_rank_holds_what_its_micro_batches_keep() -> None:
    for name, in_flight in (("1f1b", [4, 3, 2, 1]), ("zb-h1", [4, 4, 4, 4]), ("gpipe", [8, 8, 8, 8])):
        how = "split" if BASELINES[name].splits else "whole"
        report = check(lowered(asked(backward=how), name))
        assert [peak // 10**9 for peak in report.peak_bytes] == in_flight
        least = check(lowered(asked(backward=how, in_flight=max(in_flight)), name))
        assert least.valid
        tight = check(lowered(asked(backward=how, in_flight=max(in_flight) - 1), name))
        assert set(tight.violation_counts) == {Rule.MEMORY_EXCEEDED}


def broken(schedule: Schedule, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> Schedule:
    numbers = np.flatnonzero(keep)
    columns = {name: getattr(schedule, name)[numbers]
               for name in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")}  # fmt: skip
    lists = {name: getattr(schedule, name).take(numbers) for name in ("moves", "freed_tensor", "freed_device")}
    return replace(schedule, **columns, **lists)


def events_of(schedule: Schedule, kind: str) -> list[int]:
    return [k for k, op in enumerate(schedule.op.tolist()) if op >= 0 and schedule.graph.ops[op].kind == kind]


def test_a_weight_gradient_left_out_is_missing_in_the_end() -> None:
    schedule = lowered(asked(), "zb-h1")
    keep = np.ones(len(schedule), dtype=np.bool_)
    keep[events_of(schedule, "weight")[-1]] = False
    assert Rule.REQUIRED_MISSING in check(broken(schedule, keep)).violation_counts


def test_a_micro_batch_added_twice_is_a_double_reduction() -> None:
    schedule = lowered(asked(), "zb-h1")
    ops = list(schedule.graph.ops)
    second = next(k for k, op in enumerate(ops) if op.name == "W 0 1")
    ops[second] = replace(ops[second], adds=0)
    graph = replace(schedule.graph, ops=tuple(ops))
    assert Rule.DOUBLE_REDUCTION in check(replace(schedule, graph=graph)).violation_counts


def test_a_message_left_out_is_a_missing_input() -> None:
    schedule = lowered(asked(), "zb-h1")
    keep = np.ones(len(schedule), dtype=np.bool_)
    keep[int(np.flatnonzero(schedule.is_transfer)[0])] = False
    assert Rule.INPUT_MISSING in check(broken(schedule, keep)).violation_counts


def test_a_message_on_a_busy_link_overlaps() -> None:
    schedule = lowered(asked(), "zb-h1")
    first, second = np.flatnonzero(schedule.is_transfer & (schedule.place == 0))[:2]
    start_s, end_s = schedule.start_s.copy(), schedule.end_s.copy()
    end_s[first] = start_s[second] + 1.0
    assert Rule.RESOURCE_OVERLAP in check(replace(schedule, end_s=end_s)).violation_counts


def test_a_rushed_step_takes_too_little_time() -> None:
    schedule = lowered(asked(), "zb-h1")
    rushed = replace(schedule, start_s=schedule.start_s * 0.9, end_s=schedule.end_s * 0.9)
    assert set(check(rushed).violation_counts) == {Rule.DURATION_TOO_SHORT}


def test_gradients_are_summed_once_all_micro_batches_are_in() -> None:
    question = asked(profile=trained(), hop=None, bandwidth=100.0, replicas=4)
    schedule = lowered(question, "zb-h1")
    report = check(schedule)
    assert report.valid, report.summary()
    sums = events_of(schedule, "sum")
    assert len(sums) == 4
    start_s, end_s = schedule.start_s.copy(), schedule.end_s.copy()
    start_s[sums[0]], end_s[sums[0]] = 0.0, end_s[sums[0]] - start_s[sums[0]]
    assert Rule.INPUT_STALE in check(replace(schedule, start_s=start_s, end_s=end_s)).violation_counts


def test_a_shared_embedding_is_summed_over_both_ends() -> None:
    """Optimus-CC, equations 15 and 16: with D = 4 the two sums cost 2.5 V, the fused one 1.75 V."""
    cost = {}
    for how in ("separate", "fused"):
        question = asked(profile=trained(embedding_bytes=100), hop=None, bandwidth=1.0, replicas=4, embedding=how)
        stages = stages_of(question, even_cut(4, 4))
        cost[how] = stages.reduce_s[0, 0] + stages.embedding_s
        assert check(lowered(question, "zb-h1")).valid
    assert cost == {"separate": 250.0, "fused": 175.0}


def test_a_rank_with_both_ends_adds_the_embedding_itself() -> None:
    question = asked(profile=trained(8), hop=None, bandwidth=100.0, replicas=4, placement="v")
    assert stages_of(question, even_cut(8, 8)).embedding_s == 0.0
    assert check(lowered(question, "zb-v")).valid


def test_compressed_hops_send_fewer_bytes_and_spend_the_budget() -> None:
    question = asked(profile=trained(), hop=None, bandwidth=100.0, replicas=2, compression=table(), error_budget=10.0)
    schedule = lowered(question, "zb-h1", hop_mode=1, reduce_mode=1)
    report = check(schedule)
    assert report.valid, report.summary()
    assert report.spent[0] == pytest.approx(0.5 + 0.6 + 0.7 + 0.2)
    moved = schedule.graph.size_bytes[schedule.moves.values]
    assert sorted(set(moved.tolist())) == [40, 50, 200]  # the embedding, gradients, activations
    tight = replace(question, error_budget=1.9)
    assert set(check(lowered(tight, "zb-h1", 1, 1)).violation_counts) == {Rule.BUDGET_EXCEEDED}


def test_a_recomputed_stage_keeps_its_input_alone() -> None:
    question = asked(profile=trained(embedding_bytes=0), hop=2.0)
    stages = stages_of(question, even_cut(4, 4), rerun(question, even_cut(4, 4), [True, True, False, False]))
    order = BASELINES["zb-h1"].order(stages)
    timeline = timed(stages, order)
    assert timeline is not None
    schedule = to_schedule(question, stages, order, timeline)
    report = check(schedule)
    assert report.valid, report.summary()
    assert len(events_of(schedule, "recompute")) == 2 * 8
    peaks = peak_bytes(stages, timeline.program).tolist()
    assert peaks[2:] == [4 * 5000, 4 * 5000]
    assert peaks[0] < 4 * 5000
    assert peaks[1] < 4 * 5000
    held = [peak - state for peak, state in zip(report.peak_bytes, stages.state_bytes.tolist(), strict=True)]
    messages = 200 * 3
    assert all(kept <= peak <= kept + messages for kept, peak in zip(peaks, held, strict=True))
