"""Gradient compression in PyTorch: top-k, a communication hook with error feedback, and what both cost here.

As in PyTorch's own hooks, a state and a function go to DDP together::

    ddp.register_comm_hook(CompressionState(TopK(0.01)), compressed_average)

Annotations are evaluated in this file, since DDP compares those of a hook with its own types.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gapless.errors import InputError
from gapless.profiles.gradients.cost_functions import PointsCost
from gapless.torch.library import Marks, rank_count, torch

__all__ = ["CompressionState", "Compressor", "TopK", "communication_cost", "compressed_average", "compression_cost"]

_WARM_UP = 3


class Compressor(Protocol):
    """Turns a flat gradient into bytes and back, approximately."""

    def encode(self, gradient: torch.Tensor) -> torch.Tensor:
        """The bytes to send (uint8, flat). Their number depends on the gradient's length and type only."""

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times what a payload stands for to `total`, flat and as long as the gradient was."""


class TopK:
    """Keeps the entries of greatest magnitude, with their places: at least one, `kept` of all (0.01 for 1 %).

    Raises `InputError` unless 0 < kept <= 1.
    """

    def __init__(self, kept: float) -> None:
        if not 0 < kept <= 1:
            raise InputError(f"kept: must be a fraction above 0, at most 1, got {kept}")
        self.kept = kept

    def encode(self, gradient: torch.Tensor) -> torch.Tensor:
        """The places, then the values."""
        places = gradient.abs().topk(self._count(gradient), sorted=False).indices
        return torch.cat([places.to(_place_type(gradient)).view(torch.uint8), gradient[places].view(torch.uint8)])

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times the kept entries to `total`."""
        places_bytes = self._count(total) * _place_type(total).itemsize
        # A view as a wider type must start at a multiple of its width in memory: a clone does.
        places = payload[:places_bytes].clone().view(_place_type(total))
        values = payload[places_bytes:].clone().view(total.dtype)
        total.index_add_(0, places, values, alpha=factor)

    def _count(self, gradient: torch.Tensor) -> int:
        return max(1, round(self.kept * int(gradient.numel())))


def _place_type(gradient: torch.Tensor) -> torch.dtype:
    return torch.int32 if gradient.numel() < 2**31 else torch.int64


class CompressionState:
    """What compression keeps from step to step: the error of each bucket, added to its next gradient.

    An error belongs to the parameters of a bucket in their order, not to the bucket's number: when DDP rebuilds its
    buckets, errors of buckets that are no more are dropped. `group`: the process group, None for the default one.
    """

    def __init__(self, compressor: Compressor, group: Any = None, error_feedback: bool = True) -> None:
        self.compressor = compressor
        self.group = group
        self.error_feedback = error_feedback
        self._errors: dict[tuple[int, ...], torch.Tensor] = {}

    def encode(self, parameters: tuple[int, ...], gradient: torch.Tensor) -> torch.Tensor:
        """The payload of a bucket; `parameters` identifies those in it."""
        if not self.error_feedback:
            return self.compressor.encode(gradient)
        corrected = gradient + self._errors[parameters] if self._knows(parameters) else gradient.clone()
        payload = self.compressor.encode(corrected)
        self.compressor.add_to(corrected, payload, factor=-1.0)
        # A step that overflowed (mixed precision skips it) must not spoil all that follow: inf - inf is no number.
        self._errors[parameters] = corrected.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return payload

    def mean(self, payloads: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The mean of what several payloads, one a row, stand for: a flat gradient like another."""
        total = torch.zeros_like(like)
        for payload in payloads:
            self.compressor.add_to(total, payload, factor=1.0)
        return total.div_(len(payloads))

    def _knows(self, parameters: tuple[int, ...]) -> bool:
        if parameters not in self._errors:
            shared = set(parameters)
            self._errors = {key: error for key, error in self._errors.items() if shared.isdisjoint(key)}
        return parameters in self._errors


def compressed_average(
    state: CompressionState, bucket: torch.distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean over all ranks of the bucket's compressed gradients."""
    gradient = bucket.buffer()
    payload = state.encode(tuple(id(parameter) for parameter in bucket.parameters()), gradient)
    ranks = rank_count(state.group)
    gathered = payload.new_empty(ranks * payload.numel())
    work = _all_gather(gathered, payload, group=state.group, async_op=True)

    def decode(_: Any) -> torch.Tensor:
        return state.mean(gathered.view(ranks, -1), gradient)

    return work.get_future().then(decode)


def _all_gather(gathered: torch.Tensor, payload: torch.Tensor, **how: Any) -> Any:
    renamed = getattr(torch.distributed, "all_gather_single", None)  # from torch 2.13 on, which warns of the old name
    return (renamed or torch.distributed.all_gather_into_tensor)(gathered, payload, **how)


def compression_cost(
    compressor: Compressor,
    size_bytes: Sequence[int],
    ranks: int = 2,
    repeats: int = 10,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> PointsCost:
    """What a bucket's encoding, error feedback and decoding (of one payload a rank) take on this machine.

    Medians of `repeats` runs on random gradients of the given sizes; a size never costs less than a smaller one.
    Raises `InputError` for sizes that don't rise or don't hold whole entries of `dtype`.
    """
    if ranks < 1:
        raise InputError(f"ranks: must be at least 1, got {ranks}")

    def run(gradient: torch.Tensor, marks: Marks) -> None:
        state = CompressionState(compressor)
        state.encode((0,), gradient)  # so that there is an error to feed back
        marks.mark()
        payload = state.encode((0,), gradient)
        state.mean(payload.expand(ranks, -1), gradient)
        marks.mark()

    return _measured(run, size_bytes, repeats, dtype, torch.device(device))


def communication_cost(
    compressor: Compressor | None,
    size_bytes: Sequence[int],
    repeats: int = 10,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    group: Any = None,
) -> PointsCost:
    """What it takes to send a bucket of so many bytes before compression; None: uncompressed, by all-reduce.

    To be called in every rank; medians of `repeats` runs, the slowest rank's. Raises `InputError` as
    `compression_cost`, and without a process group.
    """
    if not torch.distributed.is_initialized():
        raise InputError("communication_cost needs a process group; call torch.distributed.init_process_group first")

    def run(gradient: torch.Tensor, marks: Marks) -> None:
        payload = gradient if compressor is None else compressor.encode(gradient)
        gathered = payload.new_empty(rank_count(group) * payload.numel())
        torch.distributed.barrier(group)
        marks.mark()
        if compressor is None:
            torch.distributed.all_reduce(payload, group=group)
        else:
            _all_gather(gathered, payload, group=group)
        marks.mark()

    def slowest(duration_s: float) -> float:
        found = torch.tensor(duration_s, dtype=torch.float64, device=device)
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX, group=group)
        return float(found)

    return _measured(run, size_bytes, repeats, dtype, torch.device(device), slowest)


def _measured(
    run: Callable[[torch.Tensor, Marks], None],
    size_bytes: Sequence[int],
    repeats: int,
    dtype: torch.dtype,
    device: torch.device,
    agree: Callable[[float], float] = float,
) -> PointsCost:
    """Median time between the two marks of `run`, for gradients of each size."""
    if repeats < 1:
        raise InputError(f"repeats: must be at least 1, got {repeats}")
    medians_s = []
    for size in size_bytes:
        if size < dtype.itemsize or size % dtype.itemsize:
            raise InputError(f"size_bytes: must be whole entries of {dtype.itemsize} bytes, at least one, got {size}")
        gradient = torch.randn(size // dtype.itemsize, dtype=dtype, device=device)
        times_s = []
        for _ in range(_WARM_UP + repeats):
            marks = Marks(device)
            run(gradient, marks)
            times_s.append(marks.elapsed_s()[-1])
        medians_s.append(agree(statistics.median(times_s[_WARM_UP:])))
    # Noise can make a larger gradient look cheaper; a cost function's last slope must not fall.
    rising_s = np.maximum.accumulate(medians_s).tolist()
    return PointsCost(tuple(zip(map(float, size_bytes), rising_s, strict=True)))
