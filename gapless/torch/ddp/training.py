"""Training runs under DDP, alike but for the modes in which layers' gradients are sent. Needs the extra `torch`.

With what is recorded of gradients by layer and epoch: what modes spoil, norms, ratios of mean to deviation.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypedDict

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.torch.compression import left_behind
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.layer_modes import LayerState, reduce_layers
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named

__all__ = ["Examples", "GradientRecord", "Recipe", "Trained", "Variant", "examples_of", "prepared", "train"]


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
class _Task:
    recipe: Recipe
    variants: tuple[Variant, ...]


class Columns(TypedDict, total=False):
    """What is recorded, by epoch, layer and, of errors, mode."""

    error: list[list[list[float]]]
    norm: list[list[float]]
    deviation_ratio: list[list[float]]


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
    record: Columns


@dataclass(frozen=True)
class Examples:
    """The data of a workload, cut into what is trained on and what is held out; `steps`: of an epoch."""

    work: Workload
    trained: int
    steps: int

    def batch(self, indices: Tensor | slice) -> Workload:
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
            method_of(mode)
        if set(variant.parameters) != set(parameters):
            other = sorted(set(variant.parameters) ^ set(parameters))[0]
            raise InputError(f"parameter {other!r}: must be in the model and in the plan; measure the model again")
    task = _Task(recipe, tuple(variants))
    answers = run_ranks(prepared, task, recipe.workers, recipe.wait_s, stop)
    runs = ([Trained(**run) for run in rank["runs"]] for rank in answers)
    return tuple(_together(rows) for rows in zip(*runs, strict=True))


def _together(rows: Sequence[Trained]) -> Trained:
    """Of all workers; what is held out, and what is recorded, is of worker 0."""
    train_loss, sent_bytes = sum(row.train_loss for row in rows) / len(rows), sum((row.sent_bytes for row in rows), ())
    return replace(rows[0], train_loss=train_loss, sent_bytes=sent_bytes)


def prepared(folder: Path) -> Program:
    """What all workers do, by what is in a folder."""
    task = read_task(folder, _Task)
    return Program(task.recipe.workers, task.recipe.wait_s, lambda rank: _work(task, rank))


def _work(task: _Task, rank: int) -> dict[str, object]:
    examples = examples_of(task.recipe)
    return {"runs": [asdict(_run(task.recipe, variant, examples, rank)) for variant in task.variants]}


def _run(recipe: Recipe, variant: Variant, examples: Examples, rank: int) -> Trained:
    """One run. Buffers such as running means stay each worker's own; what is held out is looked at by worker 0."""
    torch.manual_seed(recipe.seed + rank)
    model = copy.deepcopy(examples.work.model)
    state = LayerState(model, dict(zip(variant.parameters, variant.modes[0], strict=True)))
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    ddp.register_comm_hook(state, reduce_layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate[0], momentum=recipe.momentum)
    record = GradientRecord(model, variant, examples.steps, recipe.samples) if variant.recorded else None
    losses, held_out = list[float](), examples.held_out()
    total = 0.0
    for epoch, rate in enumerate(recipe.learning_rate):
        state.set_modes(dict(zip(variant.parameters, variant.modes[epoch], strict=True)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        total = 0.0
        for work in examples.batches(recipe, epoch, rank):
            optimizer.zero_grad()
            loss = work.loss_of(ddp)
            loss.backward()
            if record is not None:
                record.step()
            optimizer.step()
            total += float(loss.detach())
        if record is not None:
            record.end_epoch()
        losses.append(_loss(model, held_out) if rank == 0 else 0.0)
    columns: Columns = {} if record is None or rank else record.columns
    return Trained(variant.name, tuple(losses), total / examples.steps, (state.sent_bytes,), columns)


def _loss(model: Module, held_out: Workload) -> float:
    model.eval()
    with torch.no_grad():
        loss = float(held_out.loss_of(model))
    model.train()
    return loss


class GradientRecord:
    """`columns` of a `CompressionTrace` in the making.

    Of each epoch, `samples` steps evenly apart are looked at; norms are of the sum of all steps' gradients, which are
    those that the optimiser is about to take.
    """

    def __init__(self, model: Module, variant: Variant, steps: int, samples: int) -> None:
        parameters = trainable(model)
        self._parameters = [parameters[name] for name in variant.parameters]
        self._modes, self._measured = variant.recorded, set(variant.measured)
        self._looks = {(2 * k + 1) * steps // (2 * min(samples, steps)) for k in range(min(samples, steps))}
        self._memory: list[dict[str, dict[str, object]]] = [{} for _ in self._parameters]
        self._number = 0
        self._begin()
        self.columns: Columns = {"error": [], "norm": [], "deviation_ratio": []}

    def _begin(self) -> None:
        self._at, self._looked = 0, 0
        self._sums = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._errors = [[0.0] * len(self._modes) for _ in self._parameters]
        self._ratios = [0.0] * len(self._parameters)

    def step(self) -> None:
        """Look at the gradients of a step."""
        is_looked = self._at in self._looks
        for layer, parameter in enumerate(self._parameters):
            gradient = parameter.grad.detach()
            self._sums[layer] += gradient
            if is_looked:
                self._ratios[layer] += _deviation_ratio(gradient)
                for mode, error in enumerate(self._spoiled(gradient, layer)):
                    self._errors[layer][mode] += error
        self._at += 1
        self._looked += is_looked

    def end_epoch(self) -> None:
        """Add the epoch's rows."""
        self.columns["error"].append([[error / self._looked for error in row] for row in self._errors])
        self.columns["norm"].append([float(total.norm()) for total in self._sums])
        self.columns["deviation_ratio"].append([ratio / self._looked for ratio in self._ratios])
        self._begin()

    def _spoiled(self, gradient: Tensor, layer: int) -> list[float]:
        """The squared error of each mode: of low ranks the tail of the singular values, unless it is to be measured."""
        errors, tails = [], None
        for mode in self._modes:
            method = method_of(mode)
            if method.rank and mode not in self._measured:
                if not method.is_factored(tuple(gradient.shape)):
                    errors.append(0.0)
                    continue
                tails = _tails(gradient) if tails is None else tails
                errors.append(float(tails[method.rank]) if method.rank < len(tails) else 0.0)
            else:
                self._number += 1
                errors.append(left_behind(mode, gradient, self._memory[layer].setdefault(mode, {}), self._number))
        return errors


def _tails(gradient: Tensor) -> Tensor:
    """Of the gradient as a matrix: `[r]` is the squared error of its best approximation of rank r."""
    squares = torch.linalg.svdvals(gradient.reshape(gradient.shape[0], -1).double()).square()
    return squares.flip(0).cumsum(0).flip(0)


def _deviation_ratio(gradient: Tensor) -> float:
    """|mean| over standard deviation of the entries, 0 where they are all equal."""
    deviation = float(gradient.double().std(correction=0))
    return abs(float(gradient.double().mean())) / deviation if deviation else 0.0
