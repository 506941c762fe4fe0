"""Trainings by planned layouts beside one process, for ranks that talk through gloo. Imports torch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from sharded_lockstep import drawn_layouts, tables_of
from torch.distributed.tensor import DTensor, distribute_tensor

from gapless.errors import InputError
from gapless.profiles.layouts.layouts import MeshLayouts
from gapless.torch.run.workload import Workload
from gapless.torch.sharding import ShardedStep, apply
from gapless.torch.sharding.baselines import baselines
from gapless.torch.sharding.joint import joint_of
from gapless.torch.sharding.placements import placements_of

__all__ = ["difference", "layouts_of", "model", "refusals", "trained"]

STEPS = 3


class Tied(torch.nn.Module):
    """An embedding whose table is also the last weight, dropout, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 8)
        self.drop, self.last = torch.nn.Dropout(0.25), torch.nn.Linear(8, 16, bias=False)
        self.last.weight = self.table.weight
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(torch.relu(self.inner(self.table(words))))
        with torch.no_grad():
            self.mean.mul_(0.5).add_(hidden.mean((0, 1)), alpha=0.5)
        scores: torch.Tensor = self.last(hidden - self.mean).transpose(1, 2)
        return scores


def model() -> Workload:
    """The model with words to guess."""
    torch.manual_seed(0)
    words = torch.randint(16, (8, 4))
    return Workload(Tied(), (words,), torch.nn.functional.cross_entropy, (words.roll(1, 1),))


def layouts_of(work: Workload, mesh: tuple[int, ...], name: str) -> MeshLayouts:
    """Of a baseline, or drawn."""
    _, joint = joint_of(work)
    tables = tables_of(joint, mesh)
    return drawn_layouts(tables, int(name)) if name.isdigit() else tables.layouts(baselines(tables)[name])


def trained(work: Workload, plan: MeshLayouts | Path) -> dict[str, Any]:
    """The largest relative differences of losses, gradients, weights and buffers from one process, in three steps of
    AdamW with two losses' gradients added up in each."""
    whole = copy.deepcopy(work.model)
    step = apply(work.model, plan, work.loss)
    pair = [torch.optim.AdamW(each.parameters(), lr=1e-3) for each in (work.model, whole)]
    off = {"loss": 0.0, "gradient": 0.0, "weight": 0.0, "buffer": 0.0}
    for number in range(STEPS):
        for part in range(2):
            torch.manual_seed(10 * number + part)
            expected = work.loss_of(whole)
            (expected / 2).backward()
            torch.manual_seed(10 * number + part)
            loss = step(*_arguments(work, step, as_parts=part == 1))
            (loss / 2).backward()
            off["loss"] = max(off["loss"], difference(loss, expected))
        gradients = [{key: each.grad for key, each in made.named_parameters()} for made in (work.model, whole)]
        off["gradient"] = max(off["gradient"], _most(*gradients))
        for optimizer in pair:
            optimizer.step()
            optimizer.zero_grad()
    off["weight"] = _most(dict(work.model.named_parameters()), dict(whole.named_parameters()))
    off["buffer"] = _most(dict(work.model.named_buffers()), dict(whole.named_buffers()))
    states = [state["exp_avg"] for state in pair[0].state.values()]
    placed = all(
        state.placements == each.placements for each, state in zip(work.model.parameters(), states, strict=True)
    )
    assert step.program is not None
    planned = {key: 2 * STEPS * size for key, size in step.program.sent_bytes.items()}
    return {**off, "states follow": placed, "sent as planned": step.exchange.sent.size_bytes == planned,
            "tied": work.model.last.weight is work.model.table.weight}  # fmt: skip


def _arguments(work: Workload, step: ShardedStep, as_parts: bool) -> list[torch.Tensor]:
    given = [*work.inputs, *work.targets]
    if not as_parts:
        return given
    layouts = [node.outputs[0] for node in step.layouts.nodes if node.op == "input"]
    pairs = zip(given, layouts, strict=True)
    return [distribute_tensor(tensor, step.mesh, placements_of(layout)) for tensor, layout in pairs]


def _most(found: dict[str, Any], expected: dict[str, Any]) -> float:
    assert found.keys() == expected.keys()
    return max(difference(found[name], each) for name, each in expected.items())


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the norm of what is expected."""
    whole = found.full_tensor() if isinstance(found, DTensor) else found
    distance = torch.linalg.vector_norm((whole - expected).detach().double())
    return float(distance / torch.linalg.vector_norm(expected.detach().double()))


def refusals(rank: int, folder: Path) -> list[str]:
    """What is said of wrong uses."""
    work, said = model(), []
    layouts = layouts_of(work, (2,), "fsdp")
    step = apply(work.model, layouts, work.loss)
    words, targets = work.inputs[0], work.targets[0]
    for use in (
        lambda: torch.manual_seed(rank) and step(words, targets),
        lambda: torch.manual_seed(0) and step(words[:, :2], targets[:, :2]),
        lambda: step(words, targets) and step(words[:, :2], targets[:, :2]),
        lambda: apply(model().model, layouts_of(model(), (2, 2), "ddp"), work.loss),
        lambda: apply(torch.nn.Linear(2, 2), layouts, work.loss),
    ):
        try:
            use()
        except InputError as error:
            said.append(str(error))
    loss = step(words, targets)
    loss.backward(retain_graph=True)
    try:
        loss.backward()
    except RuntimeError as error:
        said.append(str(error))
    return said
