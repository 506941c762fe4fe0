"""Fusion plans applied to DistributedDataParallel (DDP): its buckets are the plan's, each sent in its own mode.

Apply what `gapless export --format ddp-buckets` wrote::

    from gapless.torch.ddp import actual_buckets, distribute

    ddp = distribute(model, "buckets.json")

Needs the extra `torch`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets, read_ddp_buckets
from gapless.torch.ddp.emulation import Clock, Sending
from gapless.torch.ddp.hook import HookState, reduce_bucket
from gapless.torch.ddp.state import Scaler, actual_buckets, check_owner
from gapless.torch.library import torch

__all__ = ["actual_buckets", "check_same_parameters", "distribute", "size_bytes", "state_for", "trainable"]


# -- what DDP can bucket -----------------------------------------------------------------------------------------------


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
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


def size_bytes(parameter: torch.nn.Parameter) -> int:
    return int(parameter.numel()) * int(parameter.element_size())


# -- plans in DDP ------------------------------------------------------------------------------------------------------


def distribute(
    model: torch.nn.Module,
    buckets: DdpBuckets | str | Path,
    state: HookState | None = None,
    *,
    scaler: Scaler | None = None,
    ranks_per_node: int = 1,
    **options: object,
) -> torch.nn.parallel.DistributedDataParallel:
    """The model in DDP with a plan's buckets, which hold from iteration 1 on (2 with `static_graph=True`).

    `buckets`: or the file that `gapless export --format ddp-buckets` wrote. Where it says the modes of its buckets, a
    communication hook sends each in its own, from the same iteration on, over DDP's process group; `state`: the hook's,
    if it is to be another. `scaler`: the `GradScaler`, where one scales the loss. `ranks_per_node`: as for `HookState`.
    `options` go to DDP.
    Raises `InputError` where the model's parameters aren't those of the plan, and for options or surroundings with
    which DDP would make other buckets.
    """
    if not isinstance(buckets, DdpBuckets):
        buckets = read_ddp_buckets(buckets)
    if state is not None and ranks_per_node > 1:
        raise InputError("ranks_per_node: must be given to the state, where there is one; HookState(...)")
    if state is not None and scaler is not None:
        raise InputError("scaler: must be given to the state, where there is one of your own; HookState(scaler=...)")
    _check_surroundings(options)
    check_same_parameters(trainable(model), buckets)
    caps = list(buckets.bucket_cap_mb_list)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb_list=caps, **options)
    if state is None and (ranks_per_node > 1 or any(mode != "plain" for mode in buckets.modes)):
        own = {"group": ddp.process_group, "scaler": scaler, "ranks_per_node": ranks_per_node}
        state = state_for(model, buckets, **own)
    if state is not None:
        check_owner(ddp, state.group, feeds_back=False)
        ddp.register_comm_hook(state, reduce_bucket)
    return ddp


def state_for(
    model: torch.nn.Module,
    buckets: DdpBuckets,
    sendings: Sequence[Sending] | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> HookState:
    """The state of the hook that sends each bucket in its mode; `sendings`: or as these say, one for each bucket.

    `clock` and `options` go to it. Raises `InputError` where the model's parameters aren't those of the plan.
    """
    parameters = trainable(model)
    check_same_parameters(parameters, buckets)
    how = sendings or [Sending(mode) for mode in buckets.modes]
    modes = {
        frozenset(id(parameters[name]) for name in names): each
        for names, each in zip(buckets.buckets, how, strict=True)
    }
    return HookState(modes, clock=clock, **options)


def _check_surroundings(options: Mapping[str, object]) -> None:
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


def check_same_parameters(parameters: dict[str, torch.nn.Parameter], buckets: DdpBuckets) -> None:
    """Raise `InputError` that names the first parameter which isn't as in the plan."""
    planned = dict(zip(buckets.parameter_names, buckets.parameter_bytes, strict=True))
    for name, parameter in parameters.items():
        size = size_bytes(parameter)
        if name not in planned:
            raise InputError(f"parameter {name!r}: must be in the plan of {buckets.profile!r}; measure the model again")
        if size != planned[name]:
            raise InputError(f"parameter {name!r}: must have {planned[name]} bytes as in the plan, got {size}")
    missing = next((name for name in planned if name not in parameters), None)
    if missing is not None:
        raise InputError(f"parameter {missing!r}: must be in the model and require a gradient, as in the plan")
