"""Blocks in slots: those that are published, in any memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import share
from schedule_programs import CASES, Case
from tiny_pipelines import random_stages, tiny, trial

from gapless.encodings.pipeline.order.orders import Timeline, plain
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.encodings.pipeline.schedules.rules.slots import V_HALF, V_MIN, SlotBlock, in_slots
from gapless.encodings.pipeline.schedules.rules.v_rounds import is_v

BLOCKS = (V_HALF, V_MIN)


def played(stages: Stages, block: SlotBlock) -> Timeline | None:
    sequences = in_slots(stages, block)
    if sequences is None:
        return None
    timeline = timed(stages, plain(stages, sequences))
    assert timeline is not None
    assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
    ops = sorted(op for sequence in sequences for op in sequence)
    assert ops == list(range(3 * stages.count * stages.micro_batches))
    return timeline


@pytest.mark.parametrize("ranks", [*range(1, 14), 64])
def test_blocks_are_the_published_ones(ranks: int) -> None:
    """Ranks by the slots of their two forwards and backwards, with the waits that the publication names."""
    wait, late = 3 * (ranks % 2 == 0), 2 * (ranks % 3 == 0)
    half = [[2 * r, 3 * ranks - r - 2, 3 * ranks + wait + 2 * r - 1, 6 * ranks + wait - r - 2] for r in range(ranks)]
    third = [[r, 2 * ranks - r - 1, 2 * ranks + late + r, 4 * ranks + late - r - 1] for r in range(ranks)]
    assert V_HALF.slots(ranks, 6) == half
    assert V_MIN.slots(ranks, 6) == third


PUBLISHED = {"V-Half": [415, 698, 1191, 1244, 1454, 2430], "V-Min": [615, 1657, 1311, 2150, 3448, 414]}
"""What the programs' orders take in the recorded cases, which `tests/benchmarks/test_pipeline_programs.py` replays."""


@pytest.mark.parametrize(("program", "turn"), [(program, turn) for program in PUBLISHED for turn in range(6)])
def test_baselines_take_what_the_public_programs_take(program: str, turn: int) -> None:
    """Whatever ops cost, and messages."""
    case: Case = [case for case in CASES if case.program == program][turn]
    f, b, w, hop = case.costs
    _, stages = trial(case.ranks, case.micro_batches, case.ranks, "v", profile=f"uniform:f={f},b={b},w={w}", hop=hop)
    timeline = timed(stages, BASELINES[program.lower()].order(stages))
    assert timeline is not None
    assert timeline.step_s == PUBLISHED[program][turn]


@pytest.mark.parametrize("ranks", [2, 4, 7])
@pytest.mark.parametrize("keeps", [1.0, 0.5])
def test_blocks_fit_into_any_memory_and_more_is_never_slower(ranks: int, keeps: float) -> None:
    """Of equal ops, where stashes are held until the weight gradient, and where half of them is freed before it."""
    before = [float("inf")] * len(BLOCKS)
    for in_flight in range(1, 2 * ranks + 1):
        _, stages = trial(ranks, 2 * ranks + 1, in_flight, "v", profile="uniform:f=20,b=20,w=20", hop=0.0)
        stages = replace(stages, weight_stash_bytes=(keeps * stages.stash_bytes).astype(int))
        for turn, block in enumerate(BLOCKS):
            timeline = played(stages, block)
            assert timeline is not None
            assert timeline.step_s <= before[turn]
            before[turn] = timeline.step_s


def test_blocks_of_any_stages_keep_within_memory() -> None:
    found = [tiny(seed) for seed in range(share(100)) if is_v(random_stages(seed))]
    assert found
    for stages, least_s in found:
        for block in BLOCKS:
            timeline = played(stages, block)
            assert timeline is None or timeline.step_s >= least_s * (1 - 1e-9)
