"""Checkpoints of training by plans: what each server has, and what every trainer has, after a batch.

Caches are flushed before, so that the servers' rows and their state are all there is of the tables. A folder holds one
checkpoint: parts in a folder of their batch, and a file that names the batch once all parts are written. A process that
is killed at any time leaves the checkpoint before whole. Needs the extra `torch`.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import make_folder, write_file, write_text
from gapless.torch.embeddings.sharding import BatchToTrain
from gapless.torch.library import torch

__all__ = ["checkpointed_batch", "ids_digest", "load_part", "publish", "save_part"]

_NAME = "checkpoint.json"
_FORMAT = "gapless.embedding-checkpoint"


def save_part(folder: Path, batch: int, name: str, tensors: dict[str, torch.Tensor]) -> None:
    """Write one process's part of the checkpoint after a batch, whole or not at all."""
    make_folder(_of_batch(folder, batch))
    write_file(_of_batch(folder, batch) / f"{name}.pt", lambda stream: torch.save(tensors, stream))


def load_part(folder: Path, batch: int, name: str, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What `save_part` wrote. Raises `InputError` for a file that isn't it, or whose shapes aren't those of `like`."""
    path = _of_batch(folder, batch) / f"{name}.pt"
    try:
        found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
        shapes = {key: tuple(value.shape) for key, value in found.items()}
    except (OSError, RuntimeError, AttributeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"{path}: must be a part of a checkpoint, got {type(error).__name__}") from None
    expected = {key: tuple(value.shape) for key, value in like.items()}
    if shapes != expected:
        raise InputError(f"{path}: must hold {expected}, got {shapes}")
    return found


def publish(folder: Path, batch: int, question: dict[str, object]) -> None:
    """Make the parts of a batch, which must all be there, the checkpoint; the one before goes."""
    text = json.dumps({"format": _FORMAT, "version": 1, "batch": batch, "question": question}, indent=1)
    write_text(folder / _NAME, text + "\n")
    for other in folder.glob("batch*"):
        if other != _of_batch(folder, batch):
            shutil.rmtree(other, ignore_errors=True)


def checkpointed_batch(folder: Path, question: dict[str, object], plans: Sequence[BatchToTrain]) -> int:
    """The batch after which the checkpoint in a folder was written.

    `question`: what is trained, which must be that of the checkpoint. Raises `InputError` where it isn't, or there is
    none, or the ids of its batches aren't those of the plans.
    """
    path = folder / _NAME
    try:
        found = json.loads(path.read_text("utf-8"))
        batch, kept = int(found["batch"]), dict(found["question"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: must be a checkpoint, got {type(error).__name__}; --checkpoint writes one") from None
    if found.get("format") != _FORMAT or batch < 0:
        raise InputError(f"{path}: must be a checkpoint of embeddings, got format {found.get('format')!r}")
    if batch + 1 >= len(plans):
        raise InputError(f"{path}: must leave batches to train, got {batch + 1} of {len(plans)}; give more --batches")
    for name, value in {**question, "ids": ids_digest(plans, batch)}.items():
        if kept.get(name) != value:
            raise InputError(f"{path}: {name} must be those of this training, {value}, got {kept.get(name)}")
    return batch


def ids_digest(plans: Sequence[BatchToTrain], batch: int) -> str:
    """Of the distinct ids of all batches up to one."""
    digest = hashlib.sha256()
    for plan in plans[: batch + 1]:
        digest.update(len(plan.step.ids).to_bytes(8, "little"))
        digest.update(plan.step.ids.astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def _of_batch(folder: Path, batch: int) -> Path:
    return folder / f"batch{batch}"
