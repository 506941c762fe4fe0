"""Training runs under DDP, alike but for the modes in which layers' gradients are sent. Needs the extra `torch`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.leaving import temporary_folder
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.compressors import compressor_of
from gapless.torch.library import torch
from gapless.torch.processes import run_processes
from gapless.torch.run.workload import Workload, load_named

__all__ = ["Examples", "Recipe", "Trained", "Variant", "examples_of", "read_task", "train"]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    `model`: as `load_named` takes it; its batch is the data, of which a share of `held_out`, the last, is not trained
    on. `batch`: examples of a worker in a step. `learning_rate`: of each epoch. `samples`: steps of an epoch that are
    recorded, if modes are. `wait_s`: the longest that a worker waits for another.
    """

    model: str
    seed: int
    batch: int
    learning_rate: tuple[float, ...]
    momentum: float
    held_out: float
    workers: int
    wait_s: float
    samples: int = 1


@dataclass(frozen=True)
class Variant:
    """A run: the mode of each parameter, in the order of `parameters`, in each epoch.

    `recorded`: modes whose errors are recorded by layer and epoch; `measured`: those of them whose errors are not what
    singular values say of a rank, but what sending leaves behind.
    """

    name: str
    parameters: tuple[str, ...]
    modes: tuple[tuple[str, ...], ...]
    recorded: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """What a run found.

    `loss`: of what is held out, after each epoch; `train_loss`: the mean over the last epoch's steps of all workers.
    `sent_bytes`: of each worker. `record`: what was recorded, by name.
    """

    name: str
    loss: tuple[float, ...]
    train_loss: float
    sent_bytes: tuple[int, ...]
    record: dict[str, Any]


@dataclass(frozen=True)
class Examples:
    """The data of a workload, cut into what is trained on and what is held out; `steps`: of an epoch."""

    work: Workload
    trained: int
    steps: int

    def batch(self, indices: Any) -> Workload:
        """The workload of some examples."""
        inputs, targets = ([part[indices] for part in parts] for parts in (self.work.inputs, self.work.targets))
        return Workload(self.work.model, inputs, self.work.loss, targets)

    def held_out(self) -> Workload:
        """What is not trained on."""
        return self.batch(slice(self.trained, None))

    def batches(self, recipe: Recipe, epoch: int, rank: int) -> Iterator[Workload]:
        """A worker's batches of an epoch, in an order that depends on seed and epoch alone."""
        generator = torch.Generator().manual_seed(recipe.seed * 100_003 + epoch)
        order = torch.randperm(self.trained, generator=generator)
        for step in range(self.steps):
            first = (step * recipe.workers + rank) * recipe.batch
            yield self.batch(order[first : first + recipe.batch])


def examples_of(recipe: Recipe) -> Examples:
    """The data of a recipe. Raises `InputError` where they aren't examples along a first axis, or are too few."""
    work = load_named(recipe.model, recipe.seed)
    parts = [*work.inputs, *work.targets] if not isinstance(work.inputs, dict) else []
    if not parts or any(not isinstance(part, torch.Tensor) or not part.dim() for part in parts):
        raise InputError("model: inputs and targets must be tensors with an example in each row of their first axis")
    count = len(parts[0])
    if any(len(part) != count for part in parts):
        raise InputError(
            f"model: inputs and targets must have as many rows, got {', '.join(str(len(x)) for x in parts)}"
        )
    trained = count - round(recipe.held_out * count)
    steps = trained // (recipe.batch * recipe.workers)
    if not steps or trained == count:
        rule = (
            f"{trained} of {count} examples are trained on, {recipe.workers} workers x batch {recipe.batch} need more"
        )
        raise InputError(f"batch: {rule}; take fewer, or a model with more data, as in train:net,batch=512")
    return Examples(work, trained, steps)


def train(recipe: Recipe, variants: Sequence[Variant], stop: threading.Event | None = None) -> tuple[Trained, ...]:
    """Run all variants, one after the other, from the same start on the same data.

    Raises `InputError` for a model, data or modes that can't be, `RunError` where a process fails.
    """
    examples = examples_of(recipe)
    parameters = trainable(examples.work.model)
    for variant in variants:
        for mode in {*variant.recorded, *(mode for row in variant.modes for mode in row)}:
            compressor_of(mode)
        if set(variant.parameters) != set(parameters):
            other = sorted(set(variant.parameters) ^ set(parameters))[0]
            raise InputError(f"parameter {other!r}: must be in the model and in the plan; measure the model again")
    with temporary_folder("gapless-ranks-") as name:
        folder = Path(name)
        task = {"recipe": asdict(recipe), "variants": [asdict(variant) for variant in variants]}
        (folder / "task.json").write_text(json.dumps(task), "utf-8")
        found = run_processes("gapless.torch.ddp.training_rank", folder, recipe.workers, recipe.wait_s, stop)
    return tuple(_together(rows) for rows in zip(*(rank["runs"] for rank in found), strict=True))


def _together(rows: Sequence[dict[str, Any]]) -> Trained:
    train_loss = sum(row["train_loss"] for row in rows) / len(rows)
    sent_bytes = tuple(row["sent_bytes"] for row in rows)
    return Trained(rows[0]["name"], tuple(rows[0]["loss"]), train_loss, sent_bytes, rows[0]["record"])


def read_task(folder: Path) -> tuple[Recipe, list[Variant]]:
    """What `train` left for its workers."""
    data = json.loads((folder / "task.json").read_text("utf-8"))
    recipe = Recipe(**{**data["recipe"], "learning_rate": tuple(data["recipe"]["learning_rate"])})
    names = ("parameters", "modes", "recorded", "measured")
    return recipe, [Variant(row["name"], *(tuple(row[name]) for name in names)) for row in data["variants"]]
