"""Training through plans on two ranks and two replicas, beside one process. Without torch these are skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from pipeline_plans import baseline_plan, errors_table, gpt_profile
from pipeline_ranks import task_of

from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.torch.pipeline.layers import load_layers, one_process
from gapless.torch.pipeline.run import Task
from gapless.torch.pipeline.sums import planned_sum_bytes
from gapless.torch.pipeline.training import Trained, Training, Variant, train, trained_alone

pytestmark = pytest.mark.usefixtures("one_thread")

MESSAGE = 4 * 16 * 32
"""Bytes of what the small GPT sends of a micro-batch."""
VARIANTS = (Variant("plain"), Variant("plan", True), Variant("propagated", True, True))


def planned(name: str = "1f1b", tied: bool = False) -> tuple[Program, Task]:
    """Two ranks, four micro-batches, of which the last two come back at rank 2."""
    modes = {(hop, m): 1 for hop in range(3 if name == "interleaved-1f1b" else 1) for m in (2, 3)}
    shape = {"ranks": 2, "micro_batches": 4, "compression": errors_table("rank 2"), "error_budget": 1.0}
    program = program_of(baseline_plan(name, hop_modes=modes, profile=gpt_profile(2, (16, 32)), **shape))
    task = replace(task_of(program, 2, "compute"), model="train:gpt,tied=1" if tied else "train:gpt")
    return program, task


def trainings(how: Training, name: str = "1f1b", tied: bool = False) -> tuple[Trained, list[Trained]]:
    """In one process, and by ranks in all variants."""
    program, task = planned(name, tied)
    return trained_alone(task, how), list(train(program.order, task, how, VARIANTS))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b"])
def test_a_plain_training_is_that_of_one_process_bit_by_bit_and_compression_begins_after_the_warm_up(name: str) -> None:
    alone, (plain, plan, propagated) = trainings(Training(5, 0.01, warm_up=2), name)
    assert plain.losses == alone.losses
    assert plan.losses[:3] == propagated.losses[:3] == plain.losses[:3], "the third is before its own update"
    assert plain.losses[3] != plan.losses[3]
    assert len({plain.losses[4], plan.losses[4], propagated.losses[4]}) == 3
    hops = 1 if name == "1f1b" else 3
    saved = 3 * hops * 2 * (MESSAGE - 4 * 2 * (16 + 32))
    assert sum(plan.hop_bytes) == sum(propagated.hop_bytes) == sum(plain.hop_bytes) - saved
    assert sum(plain.hop_bytes) == 5 * 2 * 4 * hops * MESSAGE


@pytest.mark.thorough
def test_replicas_train_on_their_own_batches_and_compress_the_sums_of_some_stages() -> None:
    how = Training(4, 0.01, "sgd", warm_up=1, replicas=2, sum_modes=("rank 1", "plain"))
    alone, (plain, plan, _) = trainings(how)
    assert plain.losses == alone.losses
    assert plan.losses[:2] == plain.losses[:2]
    assert plan.losses[2:] != plain.losses[2:]
    _, task = planned()
    sizes = [[planned_sum_bytes(stage, mode) for mode in ("plain", "rank 1")] for stage in task.load().stages(task.cut)]
    assert plain.sum_bytes == (4 * sizes[0][0], 4 * sizes[1][0]) * 2
    assert plan.sum_bytes == (sizes[0][0] + 3 * sizes[0][1], 4 * sizes[1][0]) * 2


@pytest.mark.thorough
def test_a_shared_embedding_is_summed_once_or_apart_and_stays_the_same_in_both_stages() -> None:
    how = Training(4, 0.01, replicas=2)
    alone, (fused, *_) = trainings(how, tied=True)
    _, (apart, *_) = trainings(replace(how, fuses_embedding=False), tied=True)
    table = 4 * 128 * 32
    assert apart.losses == alone.losses
    assert fused.losses[0] == alone.losses[0]
    assert fused.losses == pytest.approx(alone.losses, rel=1e-4), "four terms of a sum in another order"
    assert fused.embedding_bytes == apart.embedding_bytes == (4 * table,) * 4
    assert [a - b for a, b in zip(apart.sum_bytes, fused.sum_bytes, strict=True)] == [4 * table] * 4


def test_training_alone_is_pytorchs_own_where_weights_are_shared() -> None:
    """The first update: autograd adds up the gradients of a shared weight in another order."""
    torch = pytest.importorskip("torch")
    _, task = planned(tied=True)
    found = trained_alone(task, Training(2, 0.05, "sgd"))
    model = task.load()
    batches = [load_layers(task.model, 4, seed, task.defaults) for seed in (1, 2)]
    optimizer = torch.optim.SGD(model.stage(0, len(model.layers)).parameters(), lr=0.05)
    losses = []
    for batch in batches:
        _, own = one_process(replace(model, inputs=batch.inputs, targets=batch.targets), 4)
        losses.append(sum(own) / 4)
        optimizer.step()
    assert found.losses == pytest.approx(losses, rel=1e-6)
    assert found.losses[0] == losses[0]
