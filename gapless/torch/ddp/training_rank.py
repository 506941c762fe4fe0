"""One worker of the training runs of `gapless.torch.ddp.training`. The folder holds `task.json`."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from gapless.torch.ddp.gradient_record import GradientRecord
from gapless.torch.ddp.layer_modes import LayerState, reduce_layers
from gapless.torch.ddp.training import Examples, Recipe, Variant, examples_of, read_task
from gapless.torch.library import torch
from gapless.torch.processes import Program, be_rank

__all__: list[str] = []


def _prepared(folder: Path) -> Program:
    recipe, variants = read_task(folder)
    return Program(recipe.workers, recipe.wait_s, lambda rank: _work(recipe, variants, rank))


def _work(recipe: Recipe, variants: list[Variant], rank: int) -> dict[str, Any]:
    examples = examples_of(recipe)
    return {"runs": [_run(recipe, variant, examples, rank) for variant in variants]}


def _run(recipe: Recipe, variant: Variant, examples: Examples, rank: int) -> dict[str, Any]:
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
    return {
        "name": variant.name, "loss": losses, "train_loss": total / examples.steps, "sent_bytes": state.sent_bytes,
        "record": {} if record is None or rank else record.data,
    }  # fmt: skip


def _loss(model: Any, held_out: Any) -> float:
    model.eval()
    with torch.no_grad():
        found = float(held_out.loss_of(model))
    model.train()
    return found


if __name__ == "__main__":
    be_rank(_prepared)
