"""Fusion profiles measured on a PyTorch model, and fusion plans applied to DistributedDataParallel (DDP).

Measure, solve, export, apply::

    from gapless.torch.ddp import CompressionState, TopK, communication_cost, compressed_average, compression_cost
    from gapless.torch.ddp import actual_buckets, distribute, measure

    sizes = [2**k for k in range(10, 26)]
    profile = measure(model, (images,), lambda output: criterion(output, labels), name="resnet50",
                      compression=compression_cost(TopK(0.01), sizes, ranks=8),
                      communication=communication_cost(TopK(0.01), sizes))
    write_fusion_profile("resnet50.json", profile)
    # `gapless solve` plans for the profile, `gapless export --format ddp-buckets` writes the plan's buckets
    ddp = distribute(model, "buckets.json")
    ddp.register_comm_hook(CompressionState(TopK(0.01)), compressed_average)

Needs the extra `torch`.
"""

from __future__ import annotations

import inspect
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.io.ddp_buckets import DdpBuckets, read_ddp_buckets
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.torch.library import Marks, device_name, rank_count, torch

__all__ = ["actual_buckets", "distribute", "measure"]


def measure(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    loss: Callable[[Any], torch.Tensor],
    *,
    name: str,
    modes: Sequence[Mode],
    steps: int = 20,
    warm_up: int = 5,
    group: Any = None,
) -> FusionProfile:
    """The fusion profile of a model: its gradients in the order in which they become ready, and medians of the times.

    `model`: bare, not wrapped in DDP. `example_inputs`: the arguments of a step's call of it; `loss` makes a scalar of
    what it returns and counts as forward. Each of `steps` steps, after `warm_up` others, runs forward and backward
    without an optimiser; buffers, gradients and the random state are put back afterwards. In several ranks (`group`:
    None for the default process group), all call it and get what rank 0 measured.
    Raises `InputError` where DDP could not keep the plan's buckets: gradients of several types or devices or sparse
    ones, a parameter without a gradient, an order that differs from step to step.
    """
    for title, value, least in (("steps", steps, 1), ("warm_up", warm_up, 0)):
        if value < least:
            raise InputError(f"{title}: must be at least {least}, got {value}")
    parameters = _trainable(model)
    device = next(iter(parameters.values())).device
    with _unchanged(model, device):
        taken = [_step(model, example_inputs, loss, parameters, device) for _ in range(warm_up + steps)][warm_up:]
    _check_order(taken)
    measured = _of_rank_0((taken[0].order, *_medians(taken)), group)
    names, forward_s, ready_s = measured
    return FusionProfile(
        name=name,
        forward_s=forward_s,
        tensor_names=names,
        size_bytes=np.array([_size_bytes(parameters[tensor]) for tensor in names], dtype=np.int64),
        backward_s=np.diff(ready_s, prepend=0.0),
        modes=tuple(modes),
        source=f"medians of {steps} steps with torch {torch.__version__} on {device_name(device)}",
        shapes=tuple(tuple(parameters[tensor].shape) for tensor in names),
    )


@dataclass(frozen=True)
class _Step:
    """One step: the parameters as their gradients became ready, when each did after forward's end, and forward."""

    order: tuple[str, ...]
    ready_s: tuple[float, ...]
    forward_s: float


def _step(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    loss: Callable[[Any], torch.Tensor],
    parameters: dict[str, torch.nn.Parameter],
    device: torch.device,
) -> _Step:
    marks, order = Marks(device), []

    def note(name: str) -> None:
        marks.mark()
        order.append(name)

    def hook_for(name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: note(name)

    hooks = [parameter.register_post_accumulate_grad_hook(hook_for(name)) for name, parameter in parameters.items()]
    try:
        model.zero_grad(set_to_none=True)
        marks.mark()
        value = loss(model(*inputs))
        marks.mark()
        value.backward()
    finally:
        for hook in hooks:
            hook.remove()
    _check_each_once(order, parameters)
    _, forward_s, *ready_s = marks.elapsed_s()
    return _Step(tuple(order), tuple(time_s - forward_s for time_s in ready_s), forward_s)


def _medians(steps: Sequence[_Step]) -> tuple[float, list[float]]:
    """Forward time, and the ready time of each gradient. The latter rise, since they do in each step."""
    columns = zip(*(step.ready_s for step in steps), strict=True)
    return statistics.median(step.forward_s for step in steps), [statistics.median(column) for column in columns]


def _of_rank_0(measured: Any, group: Any) -> Any:
    if rank_count(group) == 1:
        return measured
    box = [measured]
    torch.distributed.broadcast_object_list(box, group=group, group_src=0)
    return box[0]


@contextmanager
def _unchanged(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Put back buffers (running statistics), gradients and the random state."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for buffer, saved in buffers:
                buffer.copy_(saved)
        for parameter, gradient in gradients:
            parameter.grad = gradient


# -- what DDP can bucket -----------------------------------------------------------------------------------------------


def _trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that DDP reduces, by name. Raises `InputError` where it would not put them into plain buckets."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise InputError("model: must be bare, got one in DistributedDataParallel; pass its .module")
    ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
    named = model.named_parameters()
    parameters = {name: each for name, each in named if each.requires_grad and name not in ignored}
    if not parameters:
        raise InputError("model: must have a parameter that requires a gradient, got none")
    first_name, first = next(iter(parameters.items()))
    for name, parameter in parameters.items():
        if (parameter.dtype, parameter.device) != (first.dtype, first.device):
            kinds = f"{first_name!r} in {first.dtype} on {first.device}, {name!r} in {parameter.dtype} on"
            raise InputError(
                f"model: parameters must have one type and device, since DDP keeps buckets for each, got {kinds} "
                f"{parameter.device}"
            )
    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
            raise InputError(f"module {name!r}: must not have sparse gradients, which DDP reduces alone; sparse=False")
    return parameters


def _size_bytes(parameter: torch.nn.Parameter) -> int:
    return int(parameter.numel()) * int(parameter.element_size())


def _check_each_once(order: Sequence[str], parameters: dict[str, torch.nn.Parameter]) -> None:
    missing = [name for name in parameters if name not in set(order)]
    if missing:
        way_out = "use it in every step, or freeze it with requires_grad_(False)"
        raise InputError(f"parameter {missing[0]!r}: must get a gradient in every step, got none; {way_out}")
    if len(order) > len(parameters):
        twice = next(name for k, name in enumerate(order) if name in order[:k])
        raise InputError(f"parameter {twice!r}: must get its gradient at once, got it in parts; checkpoint it once")


def _check_order(steps: Sequence[_Step]) -> None:
    for number, step in enumerate(steps):
        for first, other in zip(steps[0].order, step.order, strict=True):
            if first != other:
                raise InputError(
                    f"model: gradients must become ready in one order, since DDP keeps that of its first step, "
                    f"got {other!r} in step {number} where {first!r} came in step 0"
                )


# -- plans in DDP ------------------------------------------------------------------------------------------------------


def distribute(
    model: torch.nn.Module, buckets: DdpBuckets | str | Path, **options: Any
) -> torch.nn.parallel.DistributedDataParallel:
    """The model in DDP with a plan's buckets, which hold from iteration 1 on (2 with `static_graph=True`).

    `buckets`: or the file that `gapless export --format ddp-buckets` wrote. `options` go to DDP.
    Raises `InputError` where the model's parameters aren't those of the plan, and for options or surroundings with
    which DDP would make other buckets.
    """
    if not isinstance(buckets, DdpBuckets):
        buckets = read_ddp_buckets(buckets)
    _check_surroundings(options)
    _check_same_parameters(_trainable(model), buckets)
    caps = list(buckets.bucket_cap_mb_list)
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb_list=caps, **options)


def _check_surroundings(options: dict[str, Any]) -> None:
    ddp = torch.nn.parallel.DistributedDataParallel
    if "bucket_cap_mb_list" not in inspect.signature(ddp.__init__).parameters:
        raise InputError(f"torch: must be 2.11 or newer for bucket_cap_mb_list, got {torch.__version__}")
    for name in ("bucket_cap_mb", "bucket_cap_mb_list"):
        if name in options:
            raise InputError(f"{name}: must not be given, since the plan says it, got {options[name]}")
    if options.get("find_unused_parameters") and not options.get("static_graph"):
        raise InputError("find_unused_parameters: must be False, since DDP then never rebuilds its buckets, got True")
    if os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1":
        raise InputError(
            "DDP_SET_LAST_BUCKET_CAP: must not be 1, since DDP then applies the caps from the end; unset it"
        )


def _check_same_parameters(parameters: dict[str, torch.nn.Parameter], buckets: DdpBuckets) -> None:
    planned = dict(zip(buckets.parameter_names, buckets.parameter_bytes, strict=True))
    for name, parameter in parameters.items():
        size = _size_bytes(parameter)
        if name not in planned:
            raise InputError(f"parameter {name!r}: must be in the plan of {buckets.profile!r}; measure the model again")
        if size != planned[name]:
            raise InputError(f"parameter {name!r}: must have {planned[name]} bytes as in the plan, got {size}")
    missing = next((name for name in planned if name not in parameters), None)
    if missing is not None:
        raise InputError(f"parameter {missing!r}: must be in the model and require a gradient, as in the plan")


def actual_buckets(ddp: torch.nn.parallel.DistributedDataParallel) -> tuple[tuple[str, ...], ...]:
    """The parameters in each bucket that a model in DDP has now, in the order in which buckets are reduced.

    Equal to the plan's `DdpBuckets.buckets` from iteration 1's forward on. Takes memory for one more set of gradients
    for a moment.
    """
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    # Private, but DDP offers no other access; its own uneven-inputs join uses it.
    buckets = ddp.reducer._get_zeros_like_grad_buckets()  # noqa: SLF001
    return tuple(tuple(names[id(parameter)] for parameter in bucket.parameters()) for bucket in buckets)
