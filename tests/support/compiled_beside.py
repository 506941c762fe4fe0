"""Compiled training steps beside each other: PyTorch's partitioner, its memory budget, and plans. Imports torch.

`python tests/support/compiled_beside.py` prints a table for each model and backend, and with `policies` those
of policies. Peaks are in MiB above parameters and arguments, the plan beside them, then CPU time of a step in ms, then
how far gradients are from those of the same kernels without a budget.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext

import torch

from gapless.torch import Compiler, policy
from gapless.torch.devices import measure_peak
from gapless.torch.pipeline.gpt import gpt
from gapless.torch.run.comparison import _checkpointed, _policy, blocks_of
from gapless.torch.run.tasks import vgg

CPU = torch.device("cpu")
Work = tuple[torch.nn.Module, Callable[[torch.nn.Module], torch.Tensor]]
CACHE = "/tmp/gapless-compiled-ops.json"


def plain_gpt() -> Work:
    model, words, loss, targets = gpt(layers=4, hidden=256, heads=8, sequence=128, micro_batch=8)
    return model, lambda call: loss(call(words), targets)


def gpt2() -> Work:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_embd=256, n_head=8, vocab_size=1000, n_positions=128, use_cache=False)
    model = GPT2LMHeadModel(config).train()
    words = torch.randint(1000, (8, 128))
    return model, lambda call: call(input_ids=words, labels=words).loss


def convolutions() -> Work:
    model, images, loss, targets = vgg(width=32, size=32, batch=32)
    return model, lambda call: loss(call(images), targets)


WORKS = {"GPT": plain_gpt, "GPT-2 with dropout": gpt2, "VGG with batch norm": convolutions}


def row(name: str, model: torch.nn.Module, loss_of: Callable[[], torch.Tensor], wanted: list[torch.Tensor] | None,
        plan: str = "") -> list[torch.Tensor]:  # fmt: skip
    """Measure a method, print it, and return its gradients."""
    buffers = [buffer.clone() for buffer in model.buffers()]

    def begin() -> None:
        model.zero_grad(set_to_none=True)
        torch.manual_seed(3)
        with torch.no_grad():
            for buffer, value in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(value)

    def step() -> None:
        loss_of().backward()

    begin()
    step()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    begin()
    peak_bytes, _ = measure_peak(step, CPU)
    begin()
    seconds = []
    for _ in range(9):
        model.zero_grad(set_to_none=True)
        start_s = time.process_time()
        step()
        seconds.append(time.process_time() - start_s)
    off = 0.0
    for one, other in zip(gradients, wanted or gradients, strict=True):
        off = max(off, float((one - other).norm() / max(float(other.norm()), 1e-3)))
    begin()
    print(f"| {name} | {peak_bytes / 2**20:.1f} | {plan} | {1e3 * sorted(seconds)[4]:.1f} | {off:.0e} |", flush=True)
    return gradients


def table(title: str, make: Callable[[], Work], *, inductor: bool, shares: tuple[float, ...]) -> None:
    """All methods on a model."""
    print(f"\n{title}, {'Inductor' if inductor else 'eager kernels'}\n", flush=True)
    torch.manual_seed(0)
    model, loss_of = make()
    row("eager", model, lambda: loss_of(model), None)
    theirs = "inductor" if inductor else "aot_eager_decomp_partition"
    reference = None
    for share in (1.0, *shares):
        torch.compiler.reset()
        patch = torch._functorch.config.patch(activation_memory_budget=share, activation_memory_budget_solver="dp")  # noqa: SLF001
        with patch if share < 1 else nullcontext():
            call = torch.compile(model, backend=theirs)
            name = "PyTorch's partitioner" if share == 1 else f"activation_memory_budget {share}"
            try:
                found = row(name, model, lambda call=call: loss_of(call), reference)
            except Exception as error:
                print(f"| {name} | fails: {type(error).__name__} |")
                continue
            reference = reference or found
    own = None
    for share in (1.0, *shares):
        torch.compiler.reset()
        compiler = Compiler(f"{share}x", inductor=inductor, report=lambda _: None, cache=CACHE)
        call = torch.compile(model, backend=compiler)
        try:
            loss_of(call).backward()
        except Exception as error:
            print(f"| gapless {share}x | {str(error).splitlines()[1][:150]} |", flush=True)
            continue
        plan = f"{compiler.plans[0].peak_bytes / 2**20:.1f}"
        found = row(f"gapless {share}x", model, lambda call=call: loss_of(call), reference if inductor else own, plan)
        own = own or found


def policies(title: str, make: Callable[[], Work]) -> None:
    """Policies beside checkpointing per block, the usual policy, and full plans at the same peak."""
    print(f"\n{title}, policies\n", flush=True)
    torch.manual_seed(0)
    model, loss_of = make()
    inner = blocks_of(torch.nn.Sequential(model))
    wanted = row("eager", model, lambda: loss_of(model), None)
    for name, usual in (("per block", None), ("selective", _policy())):
        with _checkpointed(inner, usual):
            row(name, model, lambda: loss_of(model), wanted)
    for share in (0.8, 0.6, 0.5):
        chosen = policy(Whole(model, loss_of), (), budget=f"{share}x", report=print)
        chosen.apply(Whole(model, loss_of))
        plan = f"{chosen.replay.peak_bytes / 2**20:.1f}"
        row(f"policy {share}x", model, lambda: loss_of(model), wanted, plan)
        for name in chosen.saved:
            vars(model.get_submodule(name.removeprefix("model."))).pop("forward")


class Whole(torch.nn.Module):
    """A model that returns its loss, without arguments."""

    def __init__(self, model: torch.nn.Module, loss_of: Callable[[torch.nn.Module], torch.Tensor]) -> None:
        super().__init__()
        self.model, self._loss_of = model, loss_of

    def forward(self) -> torch.Tensor:
        return self._loss_of(self.model)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if sys.argv[1:] == ["policies"]:
        for title in ("GPT", "GPT-2 with dropout"):
            policies(title, WORKS[title])
        sys.exit()
    for title in sys.argv[1:] or list(WORKS):
        for is_inductor in (False, True):
            table(title, WORKS[title], inductor=is_inductor, shares=(0.8, 0.6, 0.45))
