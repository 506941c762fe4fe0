"""What ranks hold in truth: never less than the replay finds, and exactly that where nothing is decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.pipeline.compression.modes import compressor_bytes, spoiling_of
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.cut.policies import rerun
from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.programs.memory import held_bytes
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile

ERRORS = np.array([0.1, 0.1])
QUARTER = CompressionTable(
    "made up", np.array([0.0, 1.0]), (CompressionMode("quarter", 0.25, 0, 0.01, 0.01, ERRORS, ERRORS),)
)


def asked(**values: Any) -> Problem:
    ones, sizes = np.ones(8), np.arange(8, 16)
    profile = PipelineProfile(
        "sized", tuple(map(str, range(8))), 10 * ones, 12 * ones, 8 * ones, sizes, 8 * sizes, 50 * sizes, 20 * sizes
    )
    return problem(**{"profile": profile, "ranks": 4, "micro_batches": 6, "hop": 3.0, **values})


def held_and_replayed(question: Problem, name: str, mode: int = 0, recomputes: bool = False) -> tuple[Any, Any]:
    cut = even_cut(8, question.stage_count)
    stages = stages_of(question, cut, rerun(question, cut, np.full(question.stage_count, recomputes).tolist()))
    stages = stages if BASELINES[name].splits else whole(stages)
    plain = BASELINES[name].order(stages)
    order = Order(plain.sequences, np.where(stages.crosses[:, None], mode, plain.hop_modes), plain.reduce_modes)
    timeline = timed(stages, order)
    assert timeline is not None
    report = check(to_schedule(question, stages, order, timeline, spoiling_of(question, cut, stages.crosses)))
    states = np.bincount(stages.rank, weights=stages.state_bytes)
    return held_bytes(question, stages, order, timeline) + states, np.array(report.peak_bytes)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize(("blocking", "hop"), [(False, 3.0), (False, 0.0), (True, 3.0)])
def test_plain_messages_are_held_as_the_replay_says(name: str, blocking: bool, hop: float) -> None:
    placement = BASELINES[name].placement
    held, replayed = held_and_replayed(asked(placement=placement, blocking_sends=blocking, hop=hop), name)
    np.testing.assert_array_equal(held, replayed)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v"])
@pytest.mark.parametrize("recomputes", [False, True])
def test_compressed_messages_and_recomputed_stages_are_held_at_least_as_long(name: str, recomputes: bool) -> None:
    question = replace(asked(placement=BASELINES[name].placement), compression=QUARTER, error_budget=99.0)
    held, replayed = held_and_replayed(question, name, mode=1, recomputes=recomputes)
    assert (held >= replayed).all()
    assert (held <= replayed + 2 * question.profile.boundary_bytes.max()).all()


def test_compressors_keep_an_error_a_hop_and_a_sum_and_the_factors_of_low_ranks() -> None:
    """Optimus-CC, section 9.3: matrices of low rank, and the error between micro-batches."""
    low = CompressionTable(
        "low", np.array([0.0, 1.0]), (CompressionMode("rank 2", 0.5, 2, 0.01, 0.01, ERRORS, ERRORS),)
    )
    profile = replace(asked().profile, boundary_shape=(10, 4))
    question = asked(profile=profile, compression=low, error_budget=99.0, replicas=2, replica_bandwidth=1e9)
    stages = stages_of(question, even_cut(8, 4))
    plain = BASELINES["zb-h1"].order(stages)
    hops, sums = plain.hop_modes.copy(), np.array([0, 1, 0, 0])
    hops[2, 4:] = 1
    order = Order(plain.sequences, hops, sums)
    boundary, gradients = int(stages.boundary_bytes[2]), int(stages.parameter_bytes[1])
    expected = [0, gradients + gradients // 2 + gradients % 2, 0, boundary + 2 * boundary // 10]
    np.testing.assert_allclose(compressor_bytes(question, stages, order), expected, atol=0.5)
    peaks = {}
    for title, each in (("plain", plain), ("compressed", order)):
        timeline = timed(stages, each)
        assert timeline is not None
        replay = check(
            to_schedule(question, stages, each, timeline, spoiling_of(question, even_cut(8, 4), stages.crosses))
        )
        peaks[title] = np.array(replay.peak_bytes)
        held = held_bytes(question, stages, each, timeline) + np.bincount(stages.rank, weights=stages.state_bytes)
        assert (held >= peaks[title]).all()
    assert peaks["compressed"][1] == peaks["plain"][1] + expected[1]
