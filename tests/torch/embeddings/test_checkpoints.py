"""Checkpoints of servers and trainers: written, read, and what is refused. Without torch: skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.encodings.bagpipe.execution.moves import IdsOfBatch
from gapless.errors import InputError
from gapless.torch.embeddings.checkpoints import checkpointed_batch, ids_digest, load_part, publish, save_part


class Batch:
    """What its examples look up."""

    def __init__(self, number: int) -> None:
        self.step = IdsOfBatch(number, 4, np.arange(number, 3 * number + 2))
        self.index = np.zeros((4, 1), dtype=np.int32)


def batches() -> list[Batch]:
    return [Batch(number) for number in range(9)]


def test_a_checkpoint_is_read_as_it_was_written_and_the_one_before_goes(tmp_path: Path) -> None:
    of, question = batches(), {"model": "dlrm"}
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
        checkpointed_batch(tmp_path, {}, batches())


@pytest.mark.parametrize(
    ("question", "there", "message"),
    [
        ({"model": "deepfm"}, 9, "model must be those of this training, deepfm, got dlrm"),
        ({"model": "dlrm"}, 4, r"must leave batches to train, got 4 of 4; give more --batches"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    tmp_path: Path, question: dict[str, object], there: int, message: str
) -> None:
    publish(tmp_path, 3, {"model": "dlrm", "ids": ids_digest(batches(), 3)})
    with pytest.raises(InputError, match=message):
        checkpointed_batch(tmp_path, question, batches()[:there])


def test_a_checkpoint_of_another_trace_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, 3, {"ids": ids_digest(batches()[1:], 3)})
    with pytest.raises(InputError, match="ids must be those of this training"):
        checkpointed_batch(tmp_path, {}, batches())


def test_a_part_of_other_rows_or_none_is_refused(tmp_path: Path) -> None:
    save_part(tmp_path, 1, "server0", {"weights": torch.zeros(2, 2)})
    with pytest.raises(InputError, match=r"server0.pt: must hold \{'weights': \(3, 2\)\}, got"):
        load_part(tmp_path, 1, "server0", {"weights": torch.zeros(3, 2)})
    (tmp_path / "batch1" / "server1.pt").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"server1.pt: must be a part of a checkpoint"):
        load_part(tmp_path, 1, "server1", {})
