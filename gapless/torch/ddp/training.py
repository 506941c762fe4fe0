"""Training runs under DDP, alike but for the modes in which layers' gradients are sent. Needs the extra `torch`.

With what is recorded of gradients by layer and epoch: what modes spoil, norms, ratios of mean to deviation.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TypedDict

from gapless.errors import InputError
from gapless.profiles.compression.control import Controller, Setting
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.torch.compression import ModeErrors
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.controlled import ControlledState
from gapless.torch.ddp.emulation import Wire
from gapless.torch.ddp.layer_modes import LayerState, reduce_layers
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named

__all__ = ["Control", "Examples", "GradientRecord", "Recipe", "Trained", "Variant", "examples_of", "prepared", "train"]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    `model`: as `load_named` takes it; its batch is the data, of which a share of `held_out`, the last, is not trained
    on. `batch`: examples of a worker in a step. `learning_rate`: of each epoch. `samples`: steps of an epoch that are
    recorded, if modes are. `wait_s`: the longest that a worker waits for another. `bytes_per_s`, `latency_s`: of an
    emulated wire, a ring of the workers that gradients are sent on; 0 bytes a second for none.
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
    bytes_per_s: float = 0.0
    latency_s: float = 0.0

    def wire(self) -> Wire | None:
        """A new one, if there is to be one."""
        return Wire(FlatNetwork(self.workers, self.bytes_per_s, self.latency_s)) if self.bytes_per_s else None


@dataclass(frozen=True)
class Control:
    """A controller of a run: what the function `factory`, MODULE:NAME, makes of `options`, keywords as JSON."""

    factory: str = ""
    options: str = "{}"

    def made(self) -> Controller | None:
        """The controller; None for modes that are given."""
        if not self.factory:
            return None
        module, _, name = self.factory.partition(":")
        controller: Controller = getattr(import_module(module), name)(**json.loads(self.options))
        return controller


@dataclass(frozen=True)
class Variant:
    """A run: the mode of each parameter, in the order of `parameters`, in each epoch; with a `control`, its are taken.

    `recorded`: modes whose errors are recorded by layer and epoch; `measured`: those of them whose errors are not what
    singular values say of a rank, but what sending leaves behind.
    """

    name: str
    parameters: tuple[str, ...]
    modes: tuple[tuple[str, ...], ...]
    recorded: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    control: Control = Control()


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
    `sent_bytes`: of each worker; `looked_bytes`: those of them that a controller's looks took. `record`: what was
    recorded, by name. `modes`: of each parameter in each epoch; `steps`: of each epoch. `norms`: by epoch and
    parameter, where there is a controller, of the epoch's mean gradient. `train_s`: what the slowest worker's steps
    took; `cpu_s`: its processor time in them, without the threads that send; `wire_s`: what sends took of an emulated
    wire.
    """

    name: str
    loss: tuple[float, ...]
    train_loss: float
    sent_bytes: tuple[int, ...]
    record: Columns
    modes: tuple[tuple[str, ...], ...] = ()
    steps: tuple[int, ...] = ()
    norms: tuple[tuple[float, ...], ...] = ()
    looked_bytes: int = 0
    train_s: float = 0.0
    cpu_s: float = 0.0
    wire_s: float = 0.0


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

    def batches(self, recipe: Recipe, epoch: int, rank: int, batch: int | None = None) -> Iterator[Workload]:
        """A worker's batches of an epoch, in an order that depends on seed and epoch alone; `batch`: of other size.

        Raises `InputError` where the data are too few for one step.
        """
        size = batch or recipe.batch
        steps = self.trained // (size * recipe.workers)
        if not steps:
            raise InputError(f"batch: {recipe.workers} workers x {size} need more than {self.trained} examples")
        generator = torch.Generator().manual_seed(recipe.seed * 100_003 + epoch)
        order = torch.randperm(self.trained, generator=generator)
        for step in range(steps):
            first = (step * recipe.workers + rank) * size
            yield self.batch(order[first : first + size])


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
        variant.control.made()
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
    slowest = {name: max(getattr(row, name) for row in rows) for name in ("train_s", "cpu_s", "wire_s")}
    return replace(rows[0], train_loss=train_loss, sent_bytes=sent_bytes, **slowest)


def prepared(folder: Path) -> Program:
    """What all workers do, by what is in a folder."""
    task = read_task(folder, _Task)
    return Program(task.recipe.workers, task.recipe.wait_s, lambda rank: _work(task, rank))


def _work(task: _Task, rank: int) -> dict[str, object]:
    examples = examples_of(task.recipe)
    first = examples.batch(slice(0, task.recipe.batch))
    first.loss_of(copy.deepcopy(first.model)).backward()  # what only a process's first step takes is no run's time
    return {"runs": [asdict(_run(task.recipe, variant, examples, rank)) for variant in task.variants]}


@dataclass
class _Epochs:
    """What is set and found by epoch."""

    modes: list[tuple[str, ...]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    norms: list[tuple[float, ...]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    train_s: float = 0.0
    cpu_s: float = 0.0


def _run(recipe: Recipe, variant: Variant, examples: Examples, rank: int) -> Trained:
    """One run. Buffers such as running means stay each worker's own; what is held out is looked at by worker 0."""
    torch.manual_seed(recipe.seed + rank)
    model = copy.deepcopy(examples.work.model)
    state = _state_of(model, variant, recipe.learning_rate[0])
    state.wire = recipe.wire()
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    ddp.register_comm_hook(state, reduce_layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate[0], momentum=recipe.momentum)
    record = GradientRecord(model, variant, examples.steps, recipe.samples) if variant.recorded else None
    epochs, held_out, total = _Epochs(), examples.held_out(), 0.0
    for epoch, rate in enumerate(recipe.learning_rate):
        setting = _set_epoch(state, variant, epoch, rate, epochs)
        for group in optimizer.param_groups:
            group["lr"] = rate * setting.rate_factor
        begin_s, begin_cpu_s, losses = time.perf_counter(), time.thread_time(), list[float]()
        for work in examples.batches(recipe, epoch, rank, setting.batch):
            optimizer.zero_grad()
            loss = work.loss_of(ddp)
            loss.backward()
            if record is not None:
                record.step()
            optimizer.step()
            losses.append(float(loss.detach()))
        epochs.train_s += time.perf_counter() - begin_s
        epochs.cpu_s += time.thread_time() - begin_cpu_s
        epochs.steps.append(len(losses))
        total = sum(losses) / len(losses)
        if record is not None:
            record.end_epoch()
        epochs.losses.append(_loss(model, held_out) if rank == 0 else 0.0)
    if isinstance(state, ControlledState):
        _end_epoch(state, variant, recipe.learning_rate[-1], epochs)
    columns: Columns = {} if record is None or rank else record.columns
    return Trained(
        variant.name, tuple(epochs.losses), total, (state.sent_bytes,), columns, tuple(epochs.modes),
        tuple(epochs.steps), tuple(epochs.norms), getattr(state, "looked_bytes", 0), epochs.train_s,
        epochs.cpu_s, 0.0 if state.wire is None else state.wire.sent_s,
    )  # fmt: skip


def _state_of(model: Module, variant: Variant, learning_rate: float) -> LayerState:
    controller = variant.control.made()
    if controller is not None:
        return ControlledState(model, controller, learning_rate)
    return LayerState(model, dict(zip(variant.parameters, variant.modes[0], strict=True)))


def _set_epoch(state: LayerState, variant: Variant, epoch: int, rate: float, epochs: _Epochs) -> Setting:
    """The setting of the epoch that begins, noted among the epochs'."""
    if not isinstance(state, ControlledState):
        setting = Setting(variant.modes[epoch])
        state.set_modes(dict(zip(variant.parameters, setting.modes, strict=True)))
        epochs.modes.append(setting.modes)
        return setting
    if epoch:
        _end_epoch(state, variant, rate, epochs)
    epochs.modes.append(tuple(state.modes[name] for name in variant.parameters))
    return state.setting


def _end_epoch(state: ControlledState, variant: Variant, rate: float, epochs: _Epochs) -> None:
    state.end_epoch(rate)
    epochs.norms.append(tuple(state.norms[name] for name in variant.parameters))


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
        self._looks = {(2 * k + 1) * steps // (2 * min(samples, steps)) for k in range(min(samples, steps))}
        self._errors = [ModeErrors(variant.recorded, variant.measured) for _ in self._parameters]
        self._begin()
        self.columns: Columns = {"error": [], "norm": [], "deviation_ratio": []}

    def _begin(self) -> None:
        self._at, self._looked = 0, 0
        self._sums = [torch.zeros_like(parameter) for parameter in self._parameters]
        for errors in self._errors:
            errors.begin()
        self._ratios = [0.0] * len(self._parameters)

    def step(self) -> None:
        """Look at the gradients of a step."""
        is_looked = self._at in self._looks
        for layer, parameter in enumerate(self._parameters):
            gradient = parameter.grad.detach()
            self._sums[layer] += gradient
            if is_looked:
                self._ratios[layer] += _deviation_ratio(gradient)
                self._errors[layer].look(gradient)
        self._at += 1
        self._looked += is_looked

    def end_epoch(self) -> None:
        """Add the epoch's rows."""
        self.columns["error"].append([errors.means() for errors in self._errors])
        self.columns["norm"].append([float(total.norm()) for total in self._sums])
        self.columns["deviation_ratio"].append([ratio / self._looked for ratio in self._ratios])
        self._begin()


def _deviation_ratio(gradient: Tensor) -> float:
    """|mean| over standard deviation of the entries, 0 where they are all equal."""
    deviation = float(gradient.double().std(correction=0))
    return abs(float(gradient.double().mean())) / deviation if deviation else 0.0
