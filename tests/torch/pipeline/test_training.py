"""Training through plans on two ranks and two replicas, beside one process. Without torch these are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from pipeline_plans import baseline_plan, errors_table, gpt_profile
from pipeline_ranks import task_of

import gapless
from gapless.encodings.pipeline import training
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.errors import InputError
from gapless.torch.pipeline.layers import load_layers, one_process
from gapless.torch.pipeline.run import Task
from gapless.torch.pipeline.sums import planned_sum_bytes
from gapless.torch.pipeline.training import Trained, Training, Variant, train, trained_alone

pytestmark = pytest.mark.usefixtures("one_thread")

MESSAGE = 4 * 16 * 32
"""Bytes of what the small GPT sends of a micro-batch."""


def planned(name: str = "1f1b", tied: bool = False, recomputes: bool = False) -> tuple[Program, Task]:
    """Two ranks, four micro-batches, of which the last two come back at rank 2."""
    modes = {(hop, m): 1 for hop in range(3 if name == "interleaved-1f1b" else 1) for m in (2, 3)}
    shape = {"ranks": 2, "micro_batches": 4, "compression": errors_table("rank 2"), "error_budget": 1.0}
    profile = gpt_profile(2, (16, 32))
    program = program_of(baseline_plan(name, hop_modes=modes, profile=profile, recomputes=recomputes, **shape))
    task = replace(task_of(program, 2, "compute"), model="train:gpt,tied=1" if tied else "train:gpt")
    return program, task


def variants(task: Task, **how: Any) -> list[Variant]:
    """Plain, and in the plan's modes with and without error propagation."""
    given = {"hop_modes": task.hop_modes, "sum_modes": how.pop("sum_modes", ()), **how}
    return [
        Variant("plain", **how), Variant("plan", **given), Variant("propagated", **given, propagates=True),
    ]  # fmt: skip


def trainings(how: Training, name: str = "1f1b", tied: bool = False, **kinds: Any) -> tuple[Trained, list[Trained]]:
    """In one process, and by ranks in all variants."""
    program, task = planned(name, tied)
    return trained_alone(task, how), list(train(program.order, task, how, variants(task, **kinds)))


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
    how = Training(4, 0.01, "sgd", warm_up=1, replicas=2)
    alone, (plain, plan, _) = trainings(how, sum_modes=("rank 1", "plain"))
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
    _, (apart, *_) = trainings(how, tied=True, fuses_embedding=False)
    table = 4 * 128 * 32
    assert apart.losses == alone.losses
    assert fused.losses[0] == alone.losses[0]
    assert fused.losses == pytest.approx(alone.losses, rel=1e-4), "four terms of a sum in another order"
    assert fused.embedding_bytes == apart.embedding_bytes == (4 * table,) * 4
    assert [a - b for a, b in zip(apart.sum_bytes, fused.sum_bytes, strict=True)] == [4 * table] * 4


@pytest.mark.thorough
def test_replicas_of_stages_that_run_again_train_as_one_process_does() -> None:
    how = Training(3, 0.01, replicas=2)
    program, task = planned("zb-h1", tied=True, recomputes=True)
    assert task.recomputed == (0, 1)
    (again,) = train(program.order, task, how, [Variant("plain", fuses_embedding=False)])
    assert again.losses == trained_alone(task, how).losses


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


@pytest.mark.thorough
def test_looking_at_errors_changes_no_loss_and_errors_begin_after_the_warm_up() -> None:
    program, task = planned()
    hops = tuple((0, m, "rank 2") for m in range(4))
    runs = [
        Variant("all", hops),
        Variant("all, propagated", hops, propagates=True),
        Variant("up", forward_mode="rank 2"),
    ]
    how = Training(4, 0.01, warm_up=1)
    unseen, seen = (train(program.order, task, each, runs) for each in (how, replace(how, errors_every=1)))
    assert [run.losses for run in seen] == [run.losses for run in unseen]
    assert [run.hop_bytes for run in seen] == [run.hop_bytes for run in unseen]
    assert [each.step for each in seen[0].gradient_errors] == [each.step for each in seen[0].errors] == [1, 2, 3]
    assert all(0 < each.error < 1 and 0 < each.cosine < 1 for each in seen[1].gradient_errors)
    assert not seen[2].errors
    assert seen[2].losses[1] != seen[0].losses[1], "activations are compressed before the loss"


@pytest.fixture
def alone() -> Iterator[None]:
    """This process as the only rank."""
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_training_from_a_plan_file_is_that_of_one_process(tmp_path: Path) -> None:
    path, model = str(tmp_path / "plan.json"), "train:gpt,layers=1,hidden=32,sequence=16,micro_batches=4"
    gapless.solve(problem(gpt_profile(1, (16, 32)), ranks=1, micro_batches=4, hop=1.0)).save(path)
    own = training(path, model, learning_rate=0.01)
    task = Task(model, {}, 0, (), (0,), 4, (), False, "compute", 60.0)
    expected = trained_alone(task, Training(3, 0.01)).losses
    batches = [load_layers(model, 4, seed) for seed in (1, 2, 3)]
    found = [own.step(batch.inputs, batch.targets) for batch in batches]
    assert tuple(sum(losses) / 4 for losses in found) == expected
    with pytest.raises(InputError, match=r"^model: .*plan.json is for 3 layers, got 4$"):
        training(path, model.replace("layers=1", "layers=2"))
