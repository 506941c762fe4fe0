"""Training through a pipeline's plan: steps with an optimiser, compressed hops and sums, beside one process.

A step's batch is what the model's factory makes under a seed of its own, so that it differs by step and replica, and is
the same in every run. Needs the extra `torch`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.io.formats.torch_pipeline import FORMS, ActionOrder, write_torch_pipeline
from gapless.profiles.compressors.grammar import method_of
from gapless.torch.compression import HopCompressor
from gapless.torch.library import Tensor, torch
from gapless.torch.pipeline.layers import LayeredModel, load_layers, one_process, one_thread
from gapless.torch.pipeline.observed import GradientErrors, HopErrors, HopObserver, gradient_sums, joined
from gapless.torch.pipeline.run import Task
from gapless.torch.pipeline.stage import CompressedStage
from gapless.torch.pipeline.sums import Groups, ReplicaSums
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks

__all__ = ["PipelineTraining", "Trained", "Training", "Variant", "prepared", "train", "trained_alone"]


@dataclass(frozen=True)
class Training:
    """How a plan is trained.

    `warm_up`: the first steps, in which nothing is compressed. `errors_every`: steps between those in which errors are
    looked at, 0 for never.
    """

    steps: int
    learning_rate: float
    optimizer: str = "adam"
    warm_up: int = 0
    replicas: int = 1
    errors_every: int = 0


@dataclass(frozen=True)
class Variant:
    """A run, by what it compresses.

    `hop_modes`: rows of hop, micro-batch, mode. `sum_modes`: of each stage's sum among replicas; none where all are
    plain. `propagates`: whether a hop's error is added to its next gradient. `forward_mode`: of all activations, empty
    for plain. `fuses_embedding`: whether the gradients of shared weights are summed once.
    """

    name: str
    hop_modes: tuple[tuple[int, int, str], ...] = ()
    sum_modes: tuple[str, ...] = ()
    propagates: bool = False
    forward_mode: str = ""
    fuses_embedding: bool = True


@dataclass(frozen=True)
class Trained:
    """`losses[t]`: of step t before its update, the mean over micro-batches and replicas. Bytes are those of all steps,
    of each process: messages between stages, payloads of sums among replicas, and of the shared embedding's. `errors`,
    `gradient_errors`: of the first replica, in the steps that were looked at.
    """

    name: str
    losses: tuple[float, ...]
    hop_bytes: tuple[int, ...] = ()
    sum_bytes: tuple[int, ...] = ()
    embedding_bytes: tuple[int, ...] = ()
    errors: tuple[HopErrors, ...] = ()
    gradient_errors: tuple[GradientErrors, ...] = ()


@dataclass(frozen=True)
class _Run:
    task: Task
    training: Training
    variants: tuple[Variant, ...]


def _optimizer(training: Training, parameters: list[Tensor]) -> torch.optim.Optimizer:
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[training.optimizer]
    return kind(parameters, lr=training.learning_rate)


class PipelineTraining:
    """This process's part of a training through a plan, a step at a time. All processes make one together.

    `model`: the same in all of them. `folder`: where `schedule.csv` is. Raises `InputError` for an unknown mode.
    """

    def __init__(
        self, model: LayeredModel, task: Task, training: Training, variant: Variant, groups: Groups, folder: Path
    ) -> None:
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        count = len(task.rank_of_stage)
        self.training, self.variant, self.groups, self.done = training, variant, groups, 0
        self._modes = {(hop, m): mode for hop, m, mode in variant.hop_modes}
        parts = model.untied().stages(task.cut)
        here = [stage for stage, rank in enumerate(task.rank_of_stage) if rank == groups.rank]
        self._stages = [
            CompressedStage(parts[stage], stage, count, torch.device("cpu"), group=groups.pipeline,
                            propagates=variant.propagates, recomputes=stage in task.recomputed,
                            policies=task.policies[stage] if task.policies else "")
            for stage in here
        ]  # fmt: skip
        self.sums = ReplicaSums(
            groups, {stage: parts[stage] for stage in here}, count - 1, model.shared, variant.fuses_embedding
        )
        self.errors: list[HopErrors] = []
        self.gradient_sums: list[tuple[float, ...]] = []
        self.is_first, self.is_last = 0 in here, count - 1 in here
        self._runtime = _PipelineScheduleRuntime(self._stages, task.micro_batches, loss_fn=model.loss)
        self._runtime._load_csv(str(folder / "schedule.csv"), format=FORMS[task.form])  # noqa: SLF001
        self.optimizer = _optimizer(training, self.parameters)

    @property
    def parameters(self) -> list[Tensor]:
        """Of all stages of this process."""
        return [each for stage in self._stages for each in stage.submod.parameters()]

    @property
    def hop_bytes(self) -> int:
        """What this process has sent to other stages so far."""
        return sum(stage.sent_bytes for stage in self._stages)

    def step(self, inputs: Tensor, targets: Tensor) -> list[float]:
        """One step on a replica's batch, and the update. The losses of the micro-batches, where the last stage is."""
        compresses, every = self.done >= self.training.warm_up, self.training.errors_every
        is_observed = bool(every and compresses and self.variant.hop_modes and self.done % every == 0)
        expected = self._plain_gradients(inputs, targets) if is_observed else []
        for stage in self._stages:
            stage.set_modes(self._modes if compresses else {}, self.variant.forward_mode if compresses else "")
            stage.observer = HopObserver() if is_observed else None
        losses = self._backward(inputs, targets)
        if is_observed:
            self._look(expected)
        self.sums(self.variant.sum_modes if compresses else ())
        self.optimizer.step()
        self.done += 1
        return losses

    def _backward(self, inputs: Tensor, targets: Tensor) -> list[float]:
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        target = {"target": targets, "losses": losses} if self.is_last else {}
        self._runtime.step(*((inputs,) if self.is_first else ()), **target, return_outputs=False)
        return [float(loss.detach()) for loss in losses]

    def _plain_gradients(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """What the same step would find if it compressed nothing."""
        with ExitStack() as stack:
            for stage in self._stages:
                stack.enter_context(stage.plain())
            self._backward(inputs, targets)
        return [gradient.clone() for gradient in self._gradients()]

    def _gradients(self) -> list[Tensor]:
        return [torch.zeros_like(each) if each.grad is None else each.grad for each in self.parameters]

    def _look(self, expected: list[Tensor]) -> None:
        self.gradient_sums.append((self.done, *gradient_sums(self._gradients(), expected)))
        for stage in self._stages:
            seen = None if stage.observer is None else stage.observer.seen(self.done, stage.stage_index - 1)
            self.errors += [] if seen is None else [seen]


def _batch(task: Task, training: Training, step: int, replica: int) -> LayeredModel:
    seed = task.seed + 1 + step * training.replicas + replica
    return load_layers(task.model, task.micro_batches, seed, task.defaults)


def prepared(folder: Path) -> Program:
    """What all processes do, by what is in a folder."""
    run = read_task(folder, _Run)
    ranks = max(run.task.rank_of_stage) + 1
    return Program(ranks * run.training.replicas, run.task.wait_s, lambda rank: {"runs": _trained(run, folder)})


def _trained(run: _Run, folder: Path) -> list[dict[str, object]]:
    task, training = run.task, run.training
    ranks = task.rank_of_stage
    groups = Groups.made(max(ranks) + 1, training.replicas, (ranks[0], ranks[-1]))
    found = []
    for variant in run.variants:
        own = PipelineTraining(task.load(), task, training, variant, groups, folder)
        losses = []
        for step in range(training.steps):
            batch = _batch(task, training, step, groups.replica)
            losses.append(own.step(batch.inputs, batch.targets))
        errors = [vars(each) for each in own.errors]
        found.append({"losses": losses, "hops": own.hop_bytes, **own.sums.sent_bytes, "errors": errors,
                      "gradients": own.gradient_sums})  # fmt: skip
    return found


def train(
    order: ActionOrder, task: Task, training: Training, variants: Sequence[Variant],
    stop: threading.Event | None = None,
) -> tuple[Trained, ...]:  # fmt: skip
    """All variants from the same start on the same batches, in a process a rank of each replica.

    Raises `InputError` for what can't run, `RunError` where a process fails.
    """
    for variant in variants:
        for mode in {variant.forward_mode, *(mode for *_, mode in variant.hop_modes)} - {""}:
            HopCompressor(mode)  # refused here, not in each rank
        for mode in variant.sum_modes:
            method_of(mode)
    task.load().split(task.micro_batches)
    run = _Run(task, training, tuple(variants))

    def leave(folder: Path) -> None:
        write_torch_pipeline(folder / "schedule.csv", order, task.form)

    found = run_ranks(prepared, run, order.ranks * training.replicas, task.wait_s, stop, leave=leave)
    return tuple(
        _joined(variant.name, [rank["runs"][number] for rank in found], task)
        for number, variant in enumerate(run.variants)
    )


def _joined(name: str, runs: Sequence[Mapping[str, Any]], task: Task) -> Trained:
    """What all processes found of one variant, put together."""
    ranks = max(task.rank_of_stage) + 1
    errors, gradient_errors = _observed(runs[:ranks])
    hops, sums, embedding = (tuple(run[kind] for run in runs) for kind in ("hops", "sums", "embedding"))
    losses = _means([run["losses"] for run in runs[task.rank_of_stage[-1] :: ranks]])
    return Trained(name, losses, hops, sums, embedding, errors, gradient_errors)


def _observed(runs: Sequence[Mapping[str, Any]]) -> tuple[tuple[HopErrors, ...], tuple[GradientErrors, ...]]:
    """Of a replica's ranks, by step and hop."""
    errors = sorted((HopErrors(**each) for run in runs for each in run["errors"]), key=lambda x: (x.step, x.hop))
    steps = zip(*(run["gradients"] for run in runs), strict=True)
    return tuple(errors), tuple(joined(parts[0][0], [part[1:] for part in parts]) for parts in steps)


def _means(losses: Sequence[Sequence[Sequence[float]]]) -> tuple[float, ...]:
    """Of [replica][step][micro-batch], for each step."""
    steps = ([loss for replica in rows for loss in replica] for rows in zip(*losses, strict=True))
    return tuple(sum(step) / len(step) for step in steps)


def trained_alone(task: Task, training: Training, say: Callable[[int], None] = lambda step: None) -> Trained:
    """The same training in this process, replica after replica, without a pipeline; nothing is compressed.

    Of weights that two layers share each layer has a copy, whose gradients are added up, as ranks have it. `say`: is
    given each step.
    """
    model = task.load().untied()
    with one_thread():
        whole = model.stage(0, len(model.layers))
        optimizer, losses = _optimizer(training, list(whole.parameters())), list[float]()
        for step in range(training.steps):
            say(step)
            rows = []
            sums: dict[str, Tensor] = {}
            for replica in range(training.replicas):
                batch = _batch(task, training, step, replica)
                own = LayeredModel(model.name, model.layers, batch.inputs, model.loss, batch.targets, model.shared)
                gradients, found = one_process(own, task.micro_batches)
                rows.append([found])
                for name, gradient in gradients.items():
                    if gradient is not None:
                        sums[name] = gradient.clone() if name not in sums else sums[name] + gradient
            losses += _means(rows)
            _set_gradients(whole, sums, model.shared, training)
            optimizer.step()
    return Trained("one process", tuple(losses))


def _set_gradients(
    whole: torch.nn.Module, sums: dict[str, Tensor], shared: Sequence[tuple[str, str]], training: Training
) -> None:
    for first, last in shared:
        sums[first] = sums[last] = sums[first] + sums[last]
    for name, parameter in whole.named_parameters():
        parameter.grad = sums[name] / training.replicas if name in sums else None
