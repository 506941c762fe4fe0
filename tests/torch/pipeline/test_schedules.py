"""The field's schedules beside torch's own generators of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from tiny_pipelines import trial
from torch.distributed.pipelining import schedules as torchs

from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole

CASES = [
    ("zb-h1", "ScheduleInterleavedZeroBubble", "linear"),
    ("interleaved-1f1b", "ScheduleInterleaved1F1B", "looped"), ("looped-bfs", "ScheduleLoopedBFS", "looped"),
    ("interleaved-zb", "ScheduleInterleavedZeroBubble", "looped"), ("zb-v", "ScheduleZBVZeroBubble", "v"),
    ("dualpipe-v", "ScheduleDualPipeV", "v"),
]  # fmt: skip
BACKWARDS = {"BACKWARD_INPUT": (Kind.BACKWARD,), "FULL_BACKWARD": (Kind.BACKWARD, Kind.WEIGHT),
             "BACKWARD_WEIGHT": (Kind.WEIGHT,), "FORWARD": (Kind.FORWARD,)}  # fmt: skip


def torch_ops(name: str, stages: Stages, rank: int) -> list[tuple[Kind, int]]:
    """Kinds and stages of a rank's ops, in torch's order; micro-batches are alike, and go first in, first out."""
    chunks = stages.count // stages.ranks
    schedule: Any = object.__new__(getattr(torchs, name))
    vars(schedule).update(
        pp_group_size=stages.ranks, num_stages=stages.count, _num_stages=stages.count, n_local_stages=chunks,
        _n_microbatches=stages.micro_batches, _stages=[SimpleNamespace()] * chunks, rank=rank,
        number_of_rounds=stages.micro_batches // stages.ranks, microbatches_per_round=stages.ranks,
    )  # fmt: skip
    actions = [action for action in schedule._calculate_single_rank_operations(rank) if action is not None]  # noqa: SLF001
    single = [each for action in actions for each in (action.sub_actions or (action,))]
    kinds = [(kind, each.stage_index) for each in single for kind in BACKWARDS[each.computation_type.name]]
    return kinds if stages.splits else [(kind, stage) for kind, stage in kinds if kind is not Kind.WEIGHT]


def own_ops(name: str, stages: Stages, rank: int) -> list[tuple[Kind, int]]:
    sequence = BASELINES[name].order(stages).sequences[rank] // stages.micro_batches
    return [(Kind(op // stages.count), op % stages.count) for op in sequence.tolist()]


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (4, 16), (8, 16)])
@pytest.mark.parametrize(("name", "theirs", "placement"), CASES)
def test_ours_is_torchs(name: str, theirs: str, placement: str, ranks: int, micro_batches: int) -> None:
    _, stages = trial(ranks, micro_batches, micro_batches, placement)
    stages = stages if BASELINES[name].splits else whole(stages)
    for rank in range(ranks):
        assert own_ops(name, stages, rank) == torch_ops(theirs, stages, rank)
