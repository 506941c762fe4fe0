"""The model in DDP that a hook's state is registered with: its process group, its parameters' names, its buckets."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

from gapless.errors import InputError
from gapless.torch.library import rank_count, torch

__all__ = ["actual_buckets", "check_header", "check_owner", "header", "hook_state", "owner_of", "rebuild_buckets"]

_FORMAT, _VERSION = "gapless.hook-state", 1


def owner_of(state: object) -> Any:
    """The model in DDP with which a hook's state is registered; None where there is none.

    A hook isn't called with DDP, but DDP holds its state: so Python's garbage collector is asked what does.
    """
    for each in gc.get_objects():
        is_ddp = issubclass(type(each), torch.nn.parallel.DistributedDataParallel)
        if is_ddp and any(other is state for _, other in getattr(each, "_comm_hooks", ())):
            return each
    return None


def hook_state(ddp: Any) -> Any:
    """The state of the hook that a model in DDP has, which can be saved and loaded; None where it has no hook."""
    hooks = ddp._comm_hooks  # noqa: SLF001
    return hooks[0][1] if hooks else None


def check_owner(ddp: Any, group: Any, feeds_back: bool = True) -> None:
    """Raise `InputError` where a hook would average over other ranks than DDP, or lose errors that are fed back."""
    ranks = torch.distributed.get_process_group_ranks
    if rank_count() > 1 and ranks(group) != ranks(ddp.process_group):
        rule = f"state: must average over the ranks that DDP does, {ranks(ddp.process_group)}, got {ranks(group)}"
        raise InputError(f"{rule}; make it with group=ddp.process_group")
    if feeds_back and ddp.find_unused_parameters and not ddp.static_graph:
        rule = "find_unused_parameters: must be False with modes that feed errors back, since DDP drops what arrives"
        raise InputError(f"{rule} of an unused parameter, got True")


def actual_buckets(ddp: torch.nn.parallel.DistributedDataParallel) -> tuple[tuple[str, ...], ...]:
    """The parameters in each bucket that a model in DDP has now, in the order in which buckets are reduced.

    Equal to the plan's `DdpBuckets.buckets` from iteration 1's forward on. Takes memory for one more set of gradients
    for a moment.
    """
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    # Private, but DDP offers no other access; its own uneven-inputs join uses it.
    buckets = ddp.reducer._get_zeros_like_grad_buckets()  # noqa: SLF001
    return tuple(tuple(names[id(parameter)] for parameter in bucket.parameters()) for bucket in buckets)


def rebuild_buckets(ddp: Any, buckets: Sequence[Sequence[str]]) -> None:
    """Let DDP have the buckets that it had in another run, before it trains; called by all ranks.

    DDP makes its buckets anew after the first step, in the order in which gradients became ready. So gradients of zero
    become ready in that order here. Raises `InputError` where these buckets don't result.
    """
    wanted = tuple(map(tuple, buckets))
    if actual_buckets(ddp) == wanted:
        return
    parameters = dict(ddp.module.named_parameters())
    gradients = [(parameter, parameter.grad) for parameter in parameters.values()]
    if not ddp.static_graph:
        with torch.enable_grad():
            ddp.reducer.prepare_for_backward([])
            for name in (name for bucket in wanted for name in bucket):
                parameters[name].backward(torch.zeros_like(parameters[name]))
        ddp.reducer._rebuild_buckets()  # noqa: SLF001
        for parameter, gradient in gradients:
            parameter.grad = gradient
    if actual_buckets(ddp) != wanted:
        rule = "state: DDP must make the buckets that the state was saved with"
        raise InputError(f"{rule}; give it the same options, not static_graph, and load before it trains")


# -- what states are saved with ----------------------------------------------------------------------------------------


def header(kind: str, group: Any) -> dict[str, Any]:
    """What a saved state begins with: whose it is."""
    ranks = rank_count(group)
    rank = torch.distributed.get_rank(group) if ranks > 1 else 0
    return {"format": _FORMAT, "version": _VERSION, "kind": kind, "rank": rank, "ranks": ranks}


def check_header(data: Mapping[str, Any], kind: str, group: Any) -> None:
    """Raise `InputError` where a state is of another kind or rank, or of a run with another number of ranks."""
    for name, wanted in header(kind, group).items():
        got = data.get(name) if isinstance(data, Mapping) else None
        if got != wanted:
            rule = f"state: {name} must be {wanted!r}, got {got!r}"
            raise InputError(f"{rule}; every rank loads what state_dict() of the same kind gave in the same rank")
