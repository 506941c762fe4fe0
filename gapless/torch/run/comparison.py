"""What users have today beside a plan: measured peak, time a step and gradients of each method on the same model.

Steps of methods alternate, so that what else a machine does falls on all of them. On a CPU with one thread their time
is the processor's.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gapless.torch.devices import device_of
from gapless.torch.library import Argument, Module, Tensor, torch
from gapless.torch.run.difference import Outcome, buffer_difference, gradient_difference
from gapless.torch.run.step import Step
from gapless.torch.run.workload import Workload
from gapless.torch.step_state import unchanged

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.utils.checkpoint import CheckpointPolicy

__all__ = [
    "Method",
    "Runner",
    "alternated",
    "backward_of",
    "blocks_of",
    "compare",
    "eager_peak_bytes",
    "eager_runner",
    "measure",
    "measured",
    "outcome_of",
    "rivals",
]

_SEED = 20
_BACKEND = "aot_eager"
"""Of `torch.compile`, for PyTorch's memory budget: the kernels of eager, as those of a plan are."""


@dataclass(frozen=True)
class Method:
    """What a method came to: `peak_bytes` above parameters, buffers and inputs, `step_s` the median of its steps.

    `is_equal`: whether loss and gradients have eager's bits, `keeps_buffers`: whether buffers have. `difference`: of
    the gradient that is furthest from eager's, relative to its norm, `buffer_difference`: of the buffer. `note`: why
    nothing was measured. `reserved_bytes`: that the device's allocator took for it, None on a CPU.
    """

    name: str
    peak_bytes: int | None = None
    step_s: float | None = None
    is_equal: bool | None = None
    keeps_buffers: bool | None = None
    difference: float | None = None
    buffer_difference: float | None = None
    note: str = ""
    reserved_bytes: int | None = None


@dataclass(frozen=True)
class Runner:
    """A way to run a step: `run` leaves gradients and returns the loss, while `active` holds."""

    name: str
    run: Callable[[], Tensor]
    active: Callable[[], AbstractContextManager[None]] = field(default=contextlib.nullcontext)


def compare(work: Workload, step: Step, steps: int = 5) -> Iterator[Method]:
    """Each method, eager first, the plan last; model, gradients and random state are put back after each."""
    eager, plan = eager_runner(work), Runner("gapless", functools.partial(work.train, step))
    reference = outcome_of(work, eager)
    methods = [measured(work, eager, reference)]
    ratio = min(1.0, step.plan.peak_bytes / max(methods[0].peak_bytes or 0, 1))
    runners = {"eager": eager, "gapless": plan}
    for made in rivals(work, (ratio,)):
        methods.append(made if isinstance(made, Method) else measured(work, made, reference))
        if isinstance(made, Runner) and not methods[-1].note:
            runners[made.name] = made
    methods.append(measured(work, plan, reference))
    taken = dict(zip(runners, alternated(work, list(runners.values()), steps), strict=True))
    for method in methods:
        times_s = taken.get(method.name)
        yield method if times_s is None else replace(method, step_s=statistics.median(times_s))


def measure(work: Workload, step: Step, steps: int = 5) -> Method:
    """A planned step alone, beside eager's gradients."""
    runner = Runner("gapless", functools.partial(work.train, step))
    method = measured(work, runner, outcome_of(work, eager_runner(work)))
    return replace(method, step_s=statistics.median(alternated(work, [runner], steps)[0]))


def eager_peak_bytes(work: Workload) -> int:
    """The measured peak of an eager step, above parameters, buffers and inputs."""
    with _untouched(work):
        return device_of(work.device).used(eager_runner(work).run)[0].peak_bytes


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


def eager_runner(work: Workload) -> Runner:
    return Runner("eager", functools.partial(backward_of, work, work.model))


def rivals(work: Workload, shares: Sequence[float]) -> Iterator[Runner | Method]:
    """The methods that PyTorch has; a method with a note for what the model can't have."""
    blocks = blocks_of(work.model)
    run = functools.partial(backward_of, work, work.model)
    for name, policy in (("checkpoint per block", None), ("selective checkpointing", _policy())):
        if blocks:
            yield Runner(name, run, functools.partial(_checkpointed, blocks, policy))
        else:
            yield Method(name, note="the model has no list of blocks")
    for share in shares:
        yield _partitioned(work, share)


def _partitioned(work: Workload, share: float) -> Runner | Method:
    """PyTorch's own memory budget."""
    from torch._dynamo import lookup_backend
    from torch._functorch import config

    name = f"activation_memory_budget {share:.2f}"

    def backend(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        """As `_BACKEND`; a function of its own, so that what another share has compiled isn't taken."""
        made: Callable[..., object] = lookup_backend(_BACKEND)(module, inputs)
        return made

    runner = Runner(name, functools.partial(backward_of, work, torch.compile(work.model, backend=backend)))
    try:
        patch = config.patch(activation_memory_budget=share, activation_memory_budget_solver="dp")
        with patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compiling speaks of PyTorch's internals
            outcome_of(work, runner)
    except Exception as error:  # what it raises depends on the model: on batch norm, for instance
        return Method(name, note=f"fails: {type(error).__name__}")
    return runner


def backward_of(work: Workload, model: Module) -> Tensor:
    loss = work.loss_of(model)
    loss.backward()
    return loss.detach()


# -- measuring ---------------------------------------------------------------------------------------------------------


def measured(work: Workload, runner: Runner, reference: Outcome) -> Method:
    """All but its time."""
    try:
        outcome = outcome_of(work, runner)
    except RuntimeError as error:
        return Method(runner.name, note=f"fails: {type(error).__name__}")
    (difference, furthest), (buffers_off, other) = (
        gradient_difference(outcome, reference), buffer_difference(outcome, reference)
    )  # fmt: skip
    with _untouched(work), runner.active():
        usage, _ = device_of(work.device).used(runner.run)
    return Method(
        runner.name, usage.peak_bytes, None, not furthest, not other, difference, buffers_off,
        reserved_bytes=usage.reserved_bytes,
    )  # fmt: skip


def alternated(work: Workload, runners: Sequence[Runner], rounds: int) -> list[list[float]]:
    """Seconds of each runner's steps, which take turns; who begins changes from round to round."""
    times_s: list[list[float]] = [[] for _ in runners]
    for number in range(rounds):
        order = list(range(len(runners)))
        for place in order if number % 2 else reversed(order):
            with _untouched(work), runners[place].active():
                times_s[place].append(device_of(work.device).timed_s(runners[place].run))
    return times_s


def outcome_of(work: Workload, runner: Runner) -> Outcome:
    with _untouched(work), runner.active():
        return Outcome.of(runner.run(), work.model)


@contextlib.contextmanager
def _untouched(work: Workload) -> Iterator[None]:
    """The same random state for all, no gradients before, and all put back."""
    work.model.zero_grad(set_to_none=True)
    with unchanged(work.model, work.device):
        torch.manual_seed(_SEED)
        yield
