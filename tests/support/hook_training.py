"""Training in DDP with lossy hooks in four processes: in pairs, through overflows, saved and gone on with.

Imports torch.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from two_ranks import READY_ORDER, batch, fresh_model

from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets
from gapless.torch.ddp.buckets import distribute
from gapless.torch.ddp.hook import HookState, reduce_bucket
from gapless.torch.ddp.layer_modes import LayerState, reduce_layers
from gapless.torch.ddp.state import Scaler

__all__ = [
    "FEW",
    "KINDS",
    "MODES",
    "PAIRS",
    "Overflow",
    "ddp_of",
    "refusal",
    "reloaded",
    "train",
    "train_groups",
    "train_modes",
]

PAIRS = ((0, 1), (2, 3))
MODES = ("bf16", "topk:0.1", "rand-k:0.2", "rand-k-gathered:0.2", "ef-signsgd", "onebit", "powersgd:1")
MODES += ("dgc:0.1:momentum=0.5:clip=1", "ms-topk:0.1", "signsgd", "qsgd:4", "terngrad", "atomo:1", "int8")
FEW = ("rand-k:0.2", "powersgd:1", "dgc:0.1:momentum=0.5:clip=1", "int8")
KINDS = ("buckets", "layers")
NODE_MODE = "dgc:0.1:momentum=0.5"
"""Has errors and velocities, which belong to shares in two levels."""
STEPS, SAVED_AT, OVERFLOW_AT = 5, 3, 3


def ddp_of(kind: str, mode: str, group: Any, scaler: Scaler | None = None, is_told: bool = True) -> tuple[Any, Any]:
    """A fresh model in DDP with a hook of a kind, and the hook's state, which may not be told of the group."""
    model = fresh_model()
    ddp = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=1e-3)
    group = group if is_told else None
    if kind == "nodes":
        state: Any = HookState(mode, scaler=scaler, ranks_per_node=2)
        ddp.register_comm_hook(state, reduce_bucket)
    elif kind == "buckets":
        state = HookState(mode, group, scaler=scaler)
        ddp.register_comm_hook(state, reduce_bucket)
    else:
        modes = {name: mode for name, _ in model.named_parameters()}
        state = LayerState(model, modes, group, scaler=scaler)
        ddp.register_comm_hook(state, reduce_layers)
    return ddp, state


class Overflow:
    """When a loss is no number, on which rank: `step` counts the steps that there are without it."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank = step, rank


def train(ddp: Any, steps: Sequence[int], scaler: Any = None, overflow: Overflow | None = None) -> list[torch.Tensor]:
    """Descend by the batches of these steps; before the one of an overflow comes another, in which a rank has one.

    What is returned: the parameters.
    """
    rank = torch.distributed.get_rank()
    optimizer = _optimizer(ddp)
    for step in steps:
        if overflow is not None and step == overflow.step:
            factor = math.inf if rank == overflow.rank else 1.0
            assert not _step(ddp, optimizer, scaler, 100 + step, factor)
        assert _step(ddp, optimizer, scaler, step, 1.0)
    return [parameter.detach().clone() for parameter in ddp.parameters()]


def _optimizer(ddp: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(ddp.parameters(), 0.05, momentum=0.9)


def _step(ddp: Any, optimizer: Any, scaler: Any, step: int, factor: float) -> bool:
    """Whether the step was taken, and not skipped."""
    inputs, targets = batch(torch.distributed.get_rank(), step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(ddp(inputs), targets) * factor
    if scaler is None:
        loss.backward()
        optimizer.step()
        return True
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return bool(scaler.get_scale() >= before)


def reloaded(data: Any) -> Any:
    """What comes back from a file that holds no code."""
    file = io.BytesIO()
    torch.save(data, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def refusal(action: Callable[[], Any]) -> str:
    """What an action is refused with."""
    try:
        action()
    except InputError as error:
        return str(error)
    except RuntimeError as error:  # DDP's own, around what a hook raises
        return str(error)
    return ""


# -- what the tests look at --------------------------------------------------------------------------------------------


def train_groups(rank: int, folder: Path) -> dict[str, Any]:
    """What each of four ranks finds in its pair, by name; the first pair trains in some of the modes as well."""
    groups = [torch.distributed.new_group(list(pair)) for pair in PAIRS]
    group = groups[rank // 2]
    found: dict[str, Any] = {"alone": _means(rank), "alone twice": _means(rank, 2)}
    planned = distribute(fresh_model(), plan(), process_group=group)
    _gradients(planned, rank)  # DDP makes its buckets anew, as planned
    found["plan whole"] = _gradients(planned, rank)
    for kind in KINDS:
        found[f"{kind} whole"] = _gradients(ddp_of(kind, "topk:1.0", group)[0], rank)
        found[f"{kind} accumulated"] = _gradients(ddp_of(kind, "topk:1.0", group)[0], rank, 2)
        ddp, _ = ddp_of(kind, "topk:1.0", group, is_told=False)
        found[f"{kind} of bytes"] = _gradients(ddp_of(kind, "int8", None)[0], rank)
        found[f"{kind} refused"] = refusal(lambda ddp=ddp: _gradients(ddp, rank))
    found |= _in_nodes(rank)
    return found if rank // 2 else {**found, **_trained(FEW, group)}


def _in_nodes(rank: int) -> dict[str, Any]:
    """What each of four ranks finds in two nodes of two."""
    planned = distribute(fresh_model(), plan(), ranks_per_node=2)
    _gradients(planned, rank)
    found: dict[str, Any] = {"nodes whole": _gradients(planned, rank)}
    found["nodes flat"] = _gradients(nn.parallel.DistributedDataParallel(fresh_model()), rank)
    found["nodes refused"] = {
        "powersgd": refusal(lambda: HookState("powersgd:2", ranks_per_node=2)),
        "three": refusal(lambda: HookState("plain", ranks_per_node=3)),
        "pair": refusal(lambda: HookState("plain", torch.distributed.group.WORLD, ranks_per_node=-2)),
    }
    ddp, state = ddp_of("nodes", NODE_MODE, None)
    plain = train(ddp, range(STEPS))
    found["nodes other"] = refusal(lambda: HookState(NODE_MODE).load_state_dict(state.state_dict()))
    resumed = _resumed("nodes", NODE_MODE, None)
    return {**found, "nodes": {"plain": plain, **_through_overflow("nodes", NODE_MODE, None), "resumed": resumed}}


def train_modes(rank: int, folder: Path) -> dict[str, Any]:
    """What each of two ranks finds in the other modes."""
    return _trained([mode for mode in MODES if mode not in FEW], None)


def _trained(modes: Sequence[str], group: Any) -> dict[str, Any]:
    found = {}
    for kind in KINDS:
        for mode in modes:
            plain = train(ddp_of(kind, mode, group)[0], range(STEPS))
            found[f"{kind} {mode}"] = {
                "plain": plain, **_through_overflow(kind, mode, group), "resumed": _resumed(kind, mode, group)
            }  # fmt: skip
    return found


def plan() -> DdpBuckets:
    """A plan for the model that sends all in two buckets, by modes that lose nothing."""
    sizes = {name: 4 * each.numel() for name, each in fresh_model().named_parameters()}
    bytes_ = tuple(sizes[name] for name in READY_ORDER)
    return DdpBuckets("model", READY_ORDER, bytes_, ((0, 2), (3, 7)), ("topk:1.0", "rand-k:1.0"))


def _means(rank: int, steps: int = 1) -> list[torch.Tensor]:
    """The mean of the gradients of a pair, summed over steps, found by itself."""
    sums = None
    for other in PAIRS[rank // 2]:
        model = fresh_model()
        for step in range(steps):
            inputs, targets = batch(other, step)
            nn.functional.mse_loss(model(inputs), targets).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients, strict=True)]
    return [each / 2 for each in sums or []]


def _gradients(ddp: Any, rank: int, steps: int = 1) -> list[torch.Tensor]:
    """Those of some steps, which are sent with the last one's."""
    ddp.zero_grad()
    for step in range(steps):
        inputs, targets = batch(rank, step)
        with nullcontext() if step + 1 == steps else ddp.no_sync():
            nn.functional.mse_loss(ddp(inputs), targets).backward()
    return [parameter.grad.clone() for parameter in ddp.parameters()]


def _through_overflow(kind: str, mode: str, group: Any) -> dict[str, Any]:
    """Parameters of a training in mixed precision whose scale changes and that skips a step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    ddp, state = ddp_of(kind, mode, group, scaler)
    scaled = train(ddp, range(STEPS), scaler, Overflow(OVERFLOW_AT, 1))
    kept = state.state_dict()["kept"]
    finite = all(row["error"] is None or bool(row["error"].isfinite().all()) for row in kept)
    return {"scaled": scaled, "scale": scaler.get_scale(), "finite": finite}


def _resumed(kind: str, mode: str, group: Any) -> list[torch.Tensor]:
    """Parameters of a training that was saved and gone on with in new objects."""
    ddp, state = ddp_of(kind, mode, group)
    optimizer = _optimizer(ddp)
    for step in range(SAVED_AT):
        _step(ddp, optimizer, None, step, 1.0)
    data = reloaded({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict(), "hook": state.state_dict()})
    ddp, state = ddp_of(kind, mode, group)
    ddp.module.load_state_dict(data["model"])
    state.load_state_dict(data["hook"])
    optimizer = _optimizer(ddp)
    optimizer.load_state_dict(data["optimizer"])
    for step in range(SAVED_AT, STEPS):
        _step(ddp, optimizer, None, step, 1.0)
    return [parameter.detach().clone() for parameter in ddp.parameters()]
