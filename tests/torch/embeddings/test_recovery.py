"""A trainer's process that is killed, checkpoints of servers, and what undoes batches. Without torch: skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from bag_training import DIMENSION, plans, task

from gapless.errors import InputError, RunError
from gapless.torch.embeddings.checkpoints import checkpointed_batch, ids_digest, load_part, publish, save_part
from gapless.torch.embeddings.journal import BEFORE_ALL, Journal
from gapless.torch.embeddings.plans import Sharding, save_plans
from gapless.torch.embeddings.servers import Timeline
from gapless.torch.embeddings.task import MOMENTS, flat
from gapless.torch.embeddings.training import train, values_apart
from gapless.torch.embeddings.workers import prepared
from gapless.torch.ranks import run_ranks

pytestmark = pytest.mark.usefixtures("one_thread")


class Values:
    """What a journal keeps."""

    def __init__(self) -> None:
        self.numbers = np.zeros(4)
        self.tensor = torch.zeros(3)


def changed(journal: Journal, values: Values, batch: int) -> None:
    journal.record(batch, values, "numbers", np.array([batch % 4]))
    values.numbers[batch % 4] += batch + 1
    journal.record(batch, values, "tensor")
    values.tensor += 1
    journal.settle(batch)


@pytest.mark.parametrize("back", [0, 1, 2, 3])
def test_a_journal_undoes_the_last_batches(back: int) -> None:
    journal, values, expected = Journal(), Values(), Values()
    for batch in range(7):
        changed(journal, values, batch)
        if batch < 7 - back:
            changed(Journal(), expected, batch)
    journal.undo(6 - back)
    assert values.numbers.tolist() == expected.numbers.tolist()
    assert values.tensor.tolist() == expected.tensor.tolist()
    assert journal.settled == 6 - back


def test_a_journal_undoes_what_no_batch_has_settled() -> None:
    journal, values = Journal(), Values()
    journal.record(-1, values, "numbers", np.array([2]))
    values.numbers[2] = 5
    journal.undo(BEFORE_ALL)
    assert values.numbers.tolist() == [0, 0, 0, 0]


def test_what_is_too_long_ago_is_not_undone() -> None:
    journal, values = Journal(), Values()
    for batch in range(7):
        changed(journal, values, batch)
    with pytest.raises(RunError, match="batch 2: must be one of the last 3 to go back to, batch 6 is done"):
        journal.undo(2)


@pytest.mark.parametrize("start", [1, 4, 8])
def test_what_is_fetched_to_begin_later_is_what_caches_hold_then(start: int) -> None:
    """Rows that all trainers have at that batch, and each one's own of the batches after it, once each."""
    of = plans(3)
    held: dict[int, int] = {}
    for plan in of:  # by the plans alone: what came to all and hasn't left, or was released by then
        step, shared = plan.step, plan.step.prefetched & ~plan.is_private
        if step.batch < start or step.prefetch_after < start:
            held |= dict(zip(step.rows[shared].tolist(), step.ids[shared].tolist(), strict=True))
        if step.batch < start:
            for place in step.rows[step.evicted].tolist():
                held.pop(place, None)
    first = Timeline(of, Sharding(task("sgd", 3).table_rows, 3), 3).begin(start)
    shared = [moves.fetches.all(axis=1) for moves in first]
    pairs = [zip(moves.places[all_].tolist(), moves.ids[all_].tolist(), strict=True)
             for moves, all_ in zip(first, shared, strict=True)]  # fmt: skip
    assert sorted(pair for each in pairs for pair in each) == sorted(held.items())


def test_a_checkpoint_is_read_as_it_was_written_and_the_one_before_goes(tmp_path: Path) -> None:
    of, question = plans(2), {"model": "dlrm"}
    rows = {"weights": torch.randn(5, 3), "state": torch.zeros(5, 0)}
    for batch in (1, 3):
        save_part(tmp_path, batch, "server0", rows)
        publish(tmp_path, batch, {**question, "ids": ids_digest(of, batch)})
    assert checkpointed_batch(tmp_path, question, of) == 3
    assert all(torch.equal(value, rows[name]) for name, value in load_part(tmp_path, 3, "server0", rows).items())
    assert not (tmp_path / "batch1").exists()


def test_parts_without_their_file_are_no_checkpoint(tmp_path: Path) -> None:
    save_part(tmp_path, 1, "server0", {"weights": torch.zeros(2, 2)})
    with pytest.raises(InputError, match=r"checkpoint.json: must be a checkpoint, got FileNotFoundError"):
        checkpointed_batch(tmp_path, {}, plans(2))


@pytest.mark.parametrize(
    ("question", "batches", "message"),
    [
        ({"model": "deepfm"}, 9, "model must be those of this training, deepfm, got dlrm"),
        ({"model": "dlrm"}, 4, r"must leave batches to train, got 4 of 4; give more --batches"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    tmp_path: Path, question: dict[str, object], batches: int, message: str
) -> None:
    publish(tmp_path, 3, {"model": "dlrm", "ids": ids_digest(plans(2), 3)})
    with pytest.raises(InputError, match=message):
        checkpointed_batch(tmp_path, question, plans(2)[:batches])


def test_a_checkpoint_of_another_trace_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, 3, {"ids": ids_digest(plans(2)[1:], 3)})
    with pytest.raises(InputError, match="ids must be those of this training"):
        checkpointed_batch(tmp_path, {}, plans(2))


def test_a_part_of_other_rows_or_none_is_refused(tmp_path: Path) -> None:
    save_part(tmp_path, 1, "server0", {"weights": torch.zeros(2, 2)})
    with pytest.raises(InputError, match=r"server0.pt: must hold \{'weights': \(3, 2\)\}, got"):
        load_part(tmp_path, 1, "server0", {"weights": torch.zeros(3, 2)})
    (tmp_path / "batch1" / "server1.pt").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"server1.pt: must be a part of a checkpoint"):
        load_part(tmp_path, 1, "server1", {})


def test_values_are_apart_where_their_bits_differ() -> None:
    one = {"rows": torch.tensor([[0.0, 1.0]]), "dense": torch.tensor([2.0]), "losses": [0.5, 0.25]}
    assert values_apart([one], [one]) == 0
    assert values_apart([one], [{**one, "rows": torch.tensor([[-0.0, 1.0]]), "losses": [0.5, 0.5]}]) == 2


# -- executed ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ranks", "servers", "optimizer", "lost", "batch", "moment"),
    [
        (3, 1, "adam", 1, 5, MOMENTS[0]),
        (3, 2, "rowwise-adagrad", 0, 7, MOMENTS[1]),
        (2, 1, "sgd", 1, 0, MOMENTS[0]),
        (2, 2, "adagrad", 0, 8, MOMENTS[1]),
    ],
)
def test_training_survives_the_loss_of_a_trainer_to_the_bit(
    ranks: int, servers: int, optimizer: str, lost: int, batch: int, moment: str
) -> None:
    asked = replace(
        task(optimizer, ranks), servers=servers, lost_trainer=lost, lost_batch=batch, lost_moment=moment, wait_s=60.0
    )
    trained = train(asked, plans(ranks))
    assert trained.recovery is not None
    assert trained.recovery["values_apart"] == 0
    assert batch - 2 <= trained.recovery["kept"] < batch
    assert max(trained.row_error, trained.dense_error, trained.loss_error) < 1e-5
    # The new trainer gets what all caches hold then, with state, the dense parameters and the losses so far.
    kept = trained.recovery["kept"]
    start = max(kept, -1) + 1
    first = Timeline(plans(ranks), asked.sharding, ranks).begin(start)
    rows = sum(int(moves.fetches.all(axis=1).sum()) for moves in first)
    values = DIMENSION + {"sgd": 0, "rowwise-adagrad": 1, "adagrad": DIMENSION, "adam": 2 * DIMENSION}[optimizer]
    dense = len(flat(asked.started()[0])) + start
    assert trained.recovery["copied_bytes"] == 4 * (dense + (0 if kept == BEFORE_ALL else rows * values))


@pytest.mark.thorough
@pytest.mark.parametrize(("ranks", "servers", "optimizer"), [(2, 0, "adam"), (3, 2, "rowwise-adagrad")])
def test_training_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(
    tmp_path: Path, ranks: int, servers: int, optimizer: str
) -> None:
    def trained(start: int) -> list[dict[str, object]]:
        asked = replace(
            task(optimizer, ranks), servers=servers, checkpoint=str(tmp_path), checkpoint_every=4, start=start
        )
        leave = lambda folder: save_plans(folder / "plans.pt", plans(ranks))  # noqa: E731
        return run_ranks(prepared, asked, asked.ranks, 60.0, leave=leave)

    at_one_go = trained(0)
    start = checkpointed_batch(tmp_path, task(optimizer, ranks).question | {"servers": servers or ranks}, plans(ranks))
    assert start == 7
    assert values_apart(trained(start + 1), at_one_go) == 0
