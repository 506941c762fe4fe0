"""Training of planned models that change from step to step: `python tests/support/changing_training.py [TABLE ...]`.

`schedules`: 50 steps of each schedule beside eager's: kinds of calls, solves, CPU time a step, bits. `losses`: the peak
of a whole step beside the plan's, with the loss inside and outside of the model. `lengths`: sequences of many lengths,
padded and not. Needs the extra torch.
"""

from __future__ import annotations

import copy
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from gapless.torch import planned
from gapless.torch.calls import kept
from gapless.torch.devices import measure_peak

WORDS, WIDTH, ROWS, LENGTH, STEPS = 4096, 128, 4, 128, 50


class Block(nn.Module):
    """Attention and two layers, each with dropout and a share of examples that skip it."""

    def __init__(self, width: int, p: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(p)
        self.skipped, self.temp = 0.0, 1.0

    def forward(self, given: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        query, key, value = self.mix(self.norms[0](given)).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / self.temp
        scores = scores if mask is None else scores.masked_fill(mask[:, None, :] == 0, float("-inf"))
        given = given + self._kept(self.drop(self.out(scores.softmax(-1) @ value)))
        return given + self._kept(self.drop(self.narrow(functional.gelu(self.wide(self.norms[1](given))))))

    def _kept(self, branch: torch.Tensor) -> torch.Tensor:
        if not self.skipped or not self.training:
            return branch
        share = 1 - self.skipped
        return branch * branch.new_empty(branch.shape[0], 1, 1).bernoulli_(share).div_(share)


class Speaker(nn.Module):
    """Blocks between words and words."""

    def __init__(self, words: int = WORDS, width: int = WIDTH, blocks: int = 4, p: float = 0.1) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.ModuleList(Block(width, p) for _ in range(blocks))
        self.register_buffer("heat", torch.ones(()))

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, labels: torch.Tensor | None = None
    ) -> Any:
        hidden = self.words(input_ids)
        for block in self.blocks:
            hidden = block(hidden, attention_mask)
        logits = self.head(hidden) / self.heat
        return logits if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _dropout(model: Speaker, step: int) -> None:
    for block in model.blocks:
        block.drop.p = 0.1 + 0.4 * step / STEPS


def _drop_path(model: Speaker, step: int) -> None:
    for number, block in enumerate(model.blocks):
        block.skipped = 0.05 + 0.2 * number * step / STEPS


def _temperature(model: Speaker, step: int) -> None:
    for block in model.blocks:
        block.temp = 8.0 + step


SCHEDULES: dict[str, Callable[[Speaker, int], object]] = {
    "none": lambda *_: None,
    "temperature in a buffer": lambda model, step: model.heat.fill_(1.0 + 0.1 * step),
    "temperature, an attribute, each step": _temperature,
    "dropout's `p`, each step": _dropout,
    "dropout's `p`, every 10 steps": lambda model, step: _dropout(model, step - step % 10),
    "drop path's share, each step": _drop_path,
}


def schedules() -> Iterable[str]:
    """A row a schedule."""
    yield "| schedule | kinds | solved | CPU ms a step | eager's | losses and weights |"
    solve, solved = kept.solve, []
    kept.solve = lambda *asked: solved.append(1) or solve(*asked)
    for name, change in SCHEDULES.items():
        torch.manual_seed(0)
        eager = Speaker(words=512, width=64, blocks=2)
        lines: list[str] = []
        model = planned(copy.deepcopy(eager), "0.8x", report=lines.append)
        solved.clear()
        runs = []
        for its in (eager, model):
            optimiser, losses = torch.optim.AdamW(its.parameters()), []
            start_s = time.process_time()
            for step in range(STEPS):
                change(its, step)
                torch.manual_seed(step)
                words = torch.randint(512, (ROWS, LENGTH))
                optimiser.zero_grad()
                loss = its(words, labels=words)
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
            runs.append((time.process_time() - start_s, losses, list(its.state_dict().values())))
        (eager_s, *wanted), (planned_s, *found) = runs
        is_same = wanted[0] == found[0] and all(torch.equal(*pair) for pair in zip(wanted[1], found[1], strict=True))
        kinds = sum("a call of" in line for line in lines)
        costs = f"{1e3 * planned_s / STEPS:.0f} | {1e3 * eager_s / STEPS:.0f}"
        yield f"| {name} | {kinds} | {len(solved)} | {costs} | {'bit-equal' if is_same else 'DIFFERENT'} |"


def losses() -> Iterable[str]:
    """A row for the loss inside and outside."""
    yield "| loss | outputs | plan | whole step, measured | on top |"
    words = torch.randint(WORDS, (ROWS, LENGTH))
    steps: dict[str, Callable[[nn.Module], torch.Tensor]] = {
        "cross entropy inside": lambda its: its(words, labels=words),
        "cross entropy outside": lambda its: functional.cross_entropy(its(words).flatten(0, 1), words.flatten()),
        "label smoothing outside": lambda its: functional.cross_entropy(
            its(words).flatten(0, 1), words.flatten(), label_smoothing=0.1
        ),
        "squared error outside": lambda its: (its(words) - 1.0).pow(2).mean(),
    }
    for name, loss in steps.items():
        model = planned(Speaker(), "0.7x", report=lambda _: None)
        for _ in range(2):
            loss(model).backward()
            model.zero_grad()
        peak_bytes, _ = measure_peak(lambda loss=loss, model=model: loss(model).backward(), torch.device("cpu"))
        plan = model.forward.plans[0]
        outputs = sum(plan.step.storages.fake[output].nbytes for output in plan.step.outputs)
        cells = [f"{size / 2**20:.1f}" for size in (outputs, plan.peak_bytes, peak_bytes, peak_bytes - plan.peak_bytes)]
        yield f"| {name} | {' | '.join(cells)} |"


def lengths() -> Iterable[str]:
    """A row for each way to pad."""
    yield "| `pad_to` | plans | loss off by | gradients off by | places added |"
    torch.manual_seed(0)
    eager = Speaker(words=512, width=64, blocks=2, p=0.0)
    draws = random.Random(0)
    asked = [draws.randint(20, 128) for _ in range(20)]
    for pad_to in (None, 64, [48, 96, 128]):
        model = planned(copy.deepcopy(eager), "0.8x", pad_to=pad_to, report=lambda _: None)
        worst, off = 0.0, 0.0
        for length in asked:
            words = torch.randint(512, (2, length))
            found = []
            for its in (eager, model):
                its.zero_grad()
                loss = its(words, attention_mask=torch.ones_like(words), labels=words)
                loss.backward()
                found.append((loss.item(), [each.grad for each in its.parameters()]))
            (loss_one, grads), (loss_other, others) = found
            off = max(off, abs(loss_one - loss_other) / loss_one)
            size = max(float(grad.norm()) for grad in grads)
            pairs = zip(grads, others, strict=True)
            worst = max(worst, *(float((a - b).norm()) / max(float(a.norm()), 1e-3 * size) for a, b in pairs))
        to = {None: lambda length: length, 64: lambda length: -(-length // 64) * 64}.get(
            pad_to if isinstance(pad_to, int | None) else 0, lambda length: min(x for x in (48, 96, 128) if x >= length)
        )
        added = sum(map(to, asked)) / sum(asked) - 1
        yield f"| {pad_to} | {len(model.forward.plans)} | {off:.0e} | {worst:.0e} | {100 * added:.0f} % |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    tables = {"schedules": schedules, "losses": losses, "lengths": lengths}
    for title in sys.argv[1:] or tables:
        for row in tables[title]():
            print(row, flush=True)
