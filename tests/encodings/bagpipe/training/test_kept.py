"""A trainer's process that is killed, and training from a checkpoint: the bits of training without a cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from carried_runs import DIMENSION, carried, cluster, on_placement, run_of

from gapless.encodings.bagpipe.execution.report import values_apart
from gapless.encodings.bagpipe.lowering.actions import SHARED
from gapless.encodings.bagpipe.problem import REPLICATING
from gapless.encodings.bagpipe.training.reference import trained_in_parts
from gapless.profiles.traces.trace_question import state_values
from gapless.torch.embeddings.alone import distances, trained_alone
from gapless.torch.embeddings.task import MOMENTS, flat

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.thorough]


@pytest.mark.parametrize(
    ("design", "trainers", "servers", "optimizer", "model", "lost", "batch", "moment"),
    [
        ("lrpp-delayed", 3, 1, "adam", "deepfm", 1, 4, MOMENTS[0]),
        ("lrpp", 3, 2, "rowwise-adagrad", "wide-and-deep", 0, 5, MOMENTS[1]),
        ("replicated", 2, 1, "sgd", "deep-and-cross", 1, 0, MOMENTS[0]),
        ("lrpp-delayed", 2, 2, "adagrad", "dlrm", 0, 6, MOMENTS[1]),
    ],
)
def test_training_survives_the_loss_of_a_trainer_to_the_bit(
    design: str, trainers: int, servers: int, optimizer: str, model: str, lost: int, batch: int, moment: str
) -> None:
    assert design in REPLICATING
    on = cluster(trainers, optimizer, servers=servers)
    asked = {"model": model, "lost_trainer": lost, "lost_batch": batch, "lost_moment": moment}
    task, runs, found = carried({"run": (run_of(design, on), design)}, on, optimizer, **asked)
    batches, came = runs["run"].batches, found["run"]
    assert values_apart(task, trained_in_parts(task, batches), came) == 0
    assert max(distances(task, trained_alone(task, batches), came.of_ranks).values()) < 1e-4
    assert came.recovery is not None
    kept = came.recovery["kept"]
    assert (came.recovery["lost"], kept) == (lost, max(batch - 2, -1))
    # The new trainer gets what all caches hold then, with state, the dense parameters and the losses so far.
    held = set[int]()
    for each in batches[: kept + 1]:
        stays = (each.actions.evicted == 0) & (each.actions.private_to == SHARED)
        held = (held | set(each.step.ids[stays].tolist())) - set(each.step.ids[~stays].tolist())
    values = len(held) * (DIMENSION + state_values(optimizer, DIMENSION)) + len(flat(task.started()[0])) + kept + 1
    assert came.recovery["copied_bytes"] == 4 * values


@pytest.mark.parametrize(
    ("design", "where", "optimizer"),
    [
        ("lrpp-fine-grained", "colocated", "rowwise-adagrad"),
        ("lrpp-fine-grained", "apart", "adam"),
        ("partitioned", "apart", "sgd"),
        ("lrpp-delayed", "same-network", "adagrad"),
    ],
)
def test_training_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(
    tmp_path: Path, design: str, where: str, optimizer: str
) -> None:
    on = on_placement(cluster(2, optimizer), where)
    run, kept = {"run": (run_of(design, on), design)}, {"checkpoint": str(tmp_path), "checkpoint_every": 3}
    for start in (0, 6):
        task, runs, found = carried(run, on, optimizer, start=start, **kept)
        assert values_apart(task, trained_in_parts(task, runs["run"].batches), found["run"]) == 0
        losses = [each["losses"] for each in found["run"].of_ranks[:2]]
        assert losses[0] == losses[1]
        assert len(losses[0]) == len(np.unique(losses[0])) == 7
