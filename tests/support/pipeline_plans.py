"""Pipeline plans made of a baseline's order and modes of our choice, which the solver need not have found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gapless.checker import check
from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.cut.policies import curve_of, rerun
from gapless.encodings.pipeline.order.orders import Candidate, Order
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.io.plan import SavedPlan
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile


def gpt_profile(blocks: int, boundary: tuple[int, int] = (32, 64), micro_batches: int = 1) -> PipelineProfile:
    """An embedding, equal layers and a head, with activations of single precision; times are made up."""
    count = blocks + 2
    ones, sizes = np.ones(count), np.full(count, 100, dtype=np.int64)
    names = ("embedding", *(f"layer{k}" for k in range(1, blocks + 1)), "head")
    bytes_out = np.full(count, 4 * boundary[0] * boundary[1], dtype=np.int64)
    return PipelineProfile("a GPT", names, 10 * ones, 12 * ones, 8 * ones, sizes, sizes, bytes_out + 10, bytes_out,
                           boundary_shape=boundary)  # fmt: skip


def errors_table(*names: str) -> CompressionTable:
    """Modes by name, `rank N` among them, whose errors are made up."""
    modes = [
        CompressionMode(name, 0.5, int(name[5:]) if name.startswith("rank") else 0, 0.0, 0.0,
                        np.array([0.01, 0.01]), np.array([0.0, 0.0]))
        for name in names
    ]  # fmt: skip
    return CompressionTable("made up", np.array([0.0, 1.0]), tuple(modes))


def baseline_plan(
    name: str, cut: tuple[int, ...] = (), hop_modes: dict[tuple[int, int], int] | None = None,
    recomputes: bool | list[bool] = False, policies: tuple[str, ...] = (), **values: Any,
) -> SavedPlan:  # fmt: skip
    """A plan whose order is the baseline's; `hop_modes[hop, m]`: numbers of modes, 0 where there is none.

    `values`: of the question, 4 ranks, 8 micro-batches and layers of a GPT unless they say otherwise.
    """
    baseline = BASELINES[name]
    how = {"profile": gpt_profile(6), "ranks": 4, "micro_batches": 8, "hop": 2.0, "placement": baseline.placement}
    question = problem(**{**how, "backward": "split" if baseline.splits else "whole", **values})
    cut = cut or even_cut(question.profile.layer_count, question.stage_count)
    again = [recomputes] * question.stage_count if isinstance(recomputes, bool) else recomputes
    choice = rerun(question, cut, again)
    for stage, row in enumerate(policies):  # of the curve, by the policies of layers
        curve = curve_of(replace(question, recomputation="curve"), cut, baseline.splits)[stage]
        choice = (*choice[:stage], next(one for one in curve if " ".join(one.layers) == row), *choice[stage + 1 :])
    stages = stages_of(question, cut, choice)
    stages = stages if baseline.splits else whole(stages)
    order = baseline.order(stages)
    for (hop, m), mode in (hop_modes or {}).items():
        order.hop_modes[hop, m] = mode
    order = Order(order.sequences, order.hop_modes, order.reduce_modes)
    timeline = timed(stages, order)
    assert timeline is not None
    schedule = to_schedule(question, stages, order, timeline, spoiling_of(question, cut, stages.crosses))
    assert check(schedule).valid, check(schedule).summary()
    details = {"cut": list(cut), "method": name}
    if not policies and timeline.offloaded_s is None:
        return SavedPlan("pipeline", question.description, {}, details, schedule)
    decision = PipelineDecision.of_candidate(Candidate(name, cut, stages, order, timeline), question.mode_names)
    return SavedPlan("pipeline", question.description, {}, details, schedule, decision=decision.data)
