"""What users have today beside a plan: measured peak, time a step and gradients of each method on the same model."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.torch.devices import device_of, measure_peak
from gapless.torch.library import Argument, Module, Tensor, torch
from gapless.torch.run.difference import Outcome, buffer_difference, gradient_difference
from gapless.torch.run.step import Step
from gapless.torch.run.workload import Workload
from gapless.torch.step_state import unchanged

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.utils.checkpoint import CheckpointPolicy

__all__ = ["Method", "blocks_of", "compare", "eager_peak_bytes", "measure"]

_SEED = 20


@dataclass(frozen=True)
class Method:
    """What a method came to: `peak_bytes` above parameters, buffers and inputs, `step_s` the median of its steps.

    `is_equal`: whether loss and gradients have eager's bits, `keeps_buffers`: whether buffers have. `difference`: of
    the gradient that is furthest from eager's, relative to its norm, `buffer_difference`: of the buffer. `note`: why
    nothing was measured.
    """

    name: str
    peak_bytes: int | None = None
    step_s: float | None = None
    is_equal: bool | None = None
    keeps_buffers: bool | None = None
    difference: float | None = None
    buffer_difference: float | None = None
    note: str = ""


def compare(work: Workload, step: Step, steps: int = 5) -> Iterator[Method]:
    """Each method in turn, eager first, the plan last; model, gradients and random state are put back after each."""
    eager = functools.partial(_backward, work, work.model)
    reference = _outcome(work, eager)
    yield _measured("eager", work, eager, reference, steps)
    for name, policy in (("checkpoint per block", None), ("selective checkpointing", _policy())):
        blocks = blocks_of(work.model)
        if blocks:
            with _checkpointed(blocks, policy):
                yield _measured(name, work, eager, reference, steps)
        else:
            yield Method(name, note="the model has no list of blocks")
    ratio = min(1.0, step.plan.peak_bytes / max(_peak(work, eager), 1))
    yield _partitioned(work, step, reference, steps, ratio)
    yield _measured("gapless", work, functools.partial(work.train, step), reference, steps)


def measure(work: Workload, step: Step, steps: int = 5) -> Method:
    """A planned step alone, beside eager's gradients."""
    reference = _outcome(work, functools.partial(_backward, work, work.model))
    return _measured("gapless", work, functools.partial(work.train, step), reference, steps)


def eager_peak_bytes(work: Workload) -> int:
    """The measured peak of an eager step, above parameters, buffers and inputs."""
    return _peak(work, functools.partial(_backward, work, work.model))


# -- methods -----------------------------------------------------------------------------------------------------------


def blocks_of(model: Module) -> list[Module]:
    """The blocks that one would checkpoint: the members of the outermost lists of modules."""
    blocks: list[Module] = []

    def visit(module: Module) -> None:
        for child in module.children():
            inner = list(child.children())
            if isinstance(child, torch.nn.ModuleList | torch.nn.Sequential) and len(inner) > 1 and _is_deep(inner):
                blocks.extend(block for block in inner if list(block.children()))
            else:
                visit(child)

    visit(model)
    return blocks


def _is_deep(modules: list[Module]) -> bool:
    return sum(bool(list(module.children())) for module in modules) > 1


@contextlib.contextmanager
def _checkpointed(blocks: list[Module], policy: Callable[..., CheckpointPolicy] | None) -> Iterator[None]:
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    chosen = functools.partial(create_selective_checkpoint_contexts, policy)
    extra = {} if policy is None else {"context_fn": chosen}
    try:
        for block in blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **extra)
        yield
    finally:
        for block in blocks:
            vars(block).pop("forward", None)


def _policy() -> Callable[..., CheckpointPolicy]:
    """Keep what products and convolutions make, recompute the rest."""
    from torch.utils.checkpoint import CheckpointPolicy

    aten = torch.ops.aten
    kept = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default}

    def decide(context: object, op: OpOverload, *arguments: Argument, **options: Argument) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return decide


def _partitioned(work: Workload, step: Step, reference: Outcome, steps: int, ratio: float) -> Method:
    """PyTorch's own memory budget, where its gradients can be trusted."""
    name = f"activation_memory_budget {ratio:.2f}"
    if any(call.random for operator in step.plan.step.operators if operator for call in operator.calls):
        return Method(name, note="wrong gradients with dropout (pytorch/pytorch issues 190758 and 190717)")
    config = torch._functorch.config  # noqa: SLF001
    try:
        patch = config.patch(activation_memory_budget=ratio, activation_memory_budget_solver="dp")
        with patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compiling speaks of PyTorch's internals
            torch._dynamo.reset()  # noqa: SLF001
            compiled = torch.compile(work.model, backend="aot_eager_decomp_partition")
            return _measured(name, work, functools.partial(_backward, work, compiled), reference, steps)
    except Exception as error:  # what it raises depends on the model: on batch norm, for instance
        return Method(name, note=f"fails: {type(error).__name__}")
    finally:
        torch._dynamo.reset()  # noqa: SLF001


def _backward(work: Workload, model: Module) -> Tensor:
    loss = work.loss_of(model)
    loss.backward()
    return loss.detach()


# -- measuring ---------------------------------------------------------------------------------------------------------


def _measured(name: str, work: Workload, run: Callable[[], Tensor], reference: Outcome, steps: int) -> Method:
    outcome = _outcome(work, run)
    gradients, buffers = gradient_difference(outcome, reference), buffer_difference(outcome, reference)
    peak_bytes = _peak(work, run)
    taken = []
    for _ in range(steps):
        with _untouched(work):
            begin_s = _now_s(work.device)
            run()
            taken.append(_now_s(work.device) - begin_s)
    step_s, (difference, furthest), (buffers_off, other) = statistics.median(taken), gradients, buffers
    return Method(name, peak_bytes, step_s, not furthest, not other, difference, buffers_off)


def _peak(work: Workload, run: Callable[[], Tensor]) -> int:
    with _untouched(work):
        return measure_peak(run, work.device)[0]


def _outcome(work: Workload, run: Callable[[], Tensor]) -> Outcome:
    with _untouched(work):
        return Outcome.of(run(), work.model)


@contextlib.contextmanager
def _untouched(work: Workload) -> Iterator[None]:
    """The same random state for all, no gradients before, and all put back."""
    work.model.zero_grad(set_to_none=True)
    with unchanged(work.model, work.device):
        torch.manual_seed(_SEED)
        yield


def _now_s(device: torch.device) -> float:
    device_of(device).synchronize()
    return time.perf_counter()
