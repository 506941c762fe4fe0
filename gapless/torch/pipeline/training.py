"""Training through a pipeline's plan: steps with an optimiser, compressed hops and sums, beside one process.

A step's batch is what the model's factory makes under a seed of its own, so that it differs by step and replica, and is
the same in every run. Needs the extra `torch`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapless.io.formats.torch_pipeline import FORMS, ActionOrder, write_torch_pipeline
from gapless.profiles.compressors.grammar import method_of
from gapless.torch.compression import HopCompressor
from gapless.torch.library import Tensor, torch
from gapless.torch.pipeline.layers import LayeredModel, load_layers, one_process, one_thread
from gapless.torch.pipeline.run import Task
from gapless.torch.pipeline.stage import CompressedStage
from gapless.torch.pipeline.sums import Groups, ReplicaSums
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks

__all__ = ["PipelineTraining", "Trained", "Training", "Variant", "prepared", "train", "trained_alone"]


@dataclass(frozen=True)
class Training:
    """How a plan is trained.

    `warm_up`: the first steps, in which nothing is compressed. `sum_modes`: of each stage's sum among replicas; none
    where all are plain. `fuses_embedding`: whether the gradients of shared weights are summed once.
    """

    steps: int
    learning_rate: float
    optimizer: str = "adam"
    warm_up: int = 0
    replicas: int = 1
    sum_modes: tuple[str, ...] = ()
    fuses_embedding: bool = True


@dataclass(frozen=True)
class Variant:
    """A run: whether it sends in the plan's modes, and whether a hop's error is added to its next gradient."""

    name: str
    compresses: bool = False
    propagates: bool = False


@dataclass(frozen=True)
class Trained:
    """`losses[t]`: of step t before its update, the mean over micro-batches and replicas. Bytes are those of all steps,
    of each process: messages between stages, payloads of sums among replicas, and of the shared embedding's.
    """

    name: str
    losses: tuple[float, ...]
    hop_bytes: tuple[int, ...] = ()
    sum_bytes: tuple[int, ...] = ()
    embedding_bytes: tuple[int, ...] = ()


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
        self._modes = {(hop, m): mode for hop, m, mode in task.hop_modes}
        parts = model.untied().stages(task.cut)
        here = [stage for stage, rank in enumerate(task.rank_of_stage) if rank == groups.rank]
        self._stages = [
            CompressedStage(parts[stage], stage, count, torch.device("cpu"), group=groups.pipeline,
                            propagates=variant.propagates)
            for stage in here
        ]  # fmt: skip
        self.sums = ReplicaSums(
            groups, {stage: parts[stage] for stage in here}, count - 1, model.shared, training.fuses_embedding
        )
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
        compresses = self.variant.compresses and self.done >= self.training.warm_up
        for stage in self._stages:
            stage.set_modes(self._modes if compresses else {})
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        target = {"target": targets, "losses": losses} if self.is_last else {}
        self._runtime.step(*((inputs,) if self.is_first else ()), **target, return_outputs=False)
        self.sums(self.training.sum_modes if compresses else ())
        self.optimizer.step()
        self.done += 1
        return [float(loss.detach()) for loss in losses]


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
        sent = own.sums.sent_bytes
        found.append({"losses": losses, "hops": own.hop_bytes, **sent})
    return found


def train(
    order: ActionOrder, task: Task, training: Training, variants: Sequence[Variant],
    stop: threading.Event | None = None,
) -> tuple[Trained, ...]:  # fmt: skip
    """All variants from the same start on the same batches, in a process a rank of each replica.

    Raises `InputError` for what can't run, `RunError` where a process fails.
    """
    for mode in {mode for *_, mode in task.hop_modes}:
        HopCompressor(mode)  # refused here, not in each rank
    for mode in training.sum_modes:
        method_of(mode)
    task.load().split(task.micro_batches)
    run = _Run(task, training, tuple(variants))

    def leave(folder: Path) -> None:
        write_torch_pipeline(folder / "schedule.csv", order, task.form)

    found = run_ranks(prepared, run, order.ranks * training.replicas, task.wait_s, stop, leave=leave)
    last, replicas = task.rank_of_stage[-1], range(training.replicas)
    return tuple(
        Trained(
            variant.name,
            _means([found[d * order.ranks + last]["runs"][number]["losses"] for d in replicas]),
            *(tuple(rank["runs"][number][kind] for rank in found) for kind in ("hops", "sums", "embedding")),
        )
        for number, variant in enumerate(run.variants)
    )


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
