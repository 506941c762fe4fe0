"""The library's own collectives, on the same buffers."""

from __future__ import annotations

from collections.abc import Callable

from gapless.ir.collective import Collective
from gapless.torch.library import torch

__all__ = ["library_call"]


def library_call(
    collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor
) -> Callable[[], object] | None:
    """The call that does what a collective does, None for one of your own or one that the backend doesn't have.

    It is called once, by all ranks, to see whether the backend has it.
    """
    make = _CALLS.get(collective.name)
    if make is None:
        return None
    call = make(collective, rank, given, output)
    try:
        call()
    except RuntimeError as error:  # torch has no other sign of a collective that a backend lacks than its words
        if "support" not in str(error).lower():
            raise
        return None
    return call


def _root(buffers: tuple[tuple[int, ...], ...]) -> int:
    """The one rank that has something."""
    return next(rank for rank, chunks in enumerate(buffers) if chunks)


def _parts(buffer: torch.Tensor, collective: Collective) -> list[torch.Tensor]:
    return list(buffer.chunk(collective.rank_count))


def _allreduce(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor) -> Callable[[], object]:
    def call() -> object:
        output.copy_(given)
        return torch.distributed.all_reduce(output)

    return call


def _broadcast(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor) -> Callable[[], object]:
    root = _root(collective.inputs)
    buffer = given if rank == root else output
    return lambda: torch.distributed.broadcast(buffer, root)


def _reduce(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor) -> Callable[[], object]:
    root, buffer = _root(collective.outputs), given.clone()

    def call() -> object:
        buffer.copy_(given)
        return torch.distributed.reduce(buffer, root)

    return call


def _gather(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor) -> Callable[[], object]:
    root = _root(collective.outputs)
    return lambda: torch.distributed.gather(given, _parts(output, collective) if rank == root else None, root)


def _scatter(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor) -> Callable[[], object]:
    root = _root(collective.inputs)
    return lambda: torch.distributed.scatter(output, _parts(given, collective) if rank == root else None, root)


def _sendrecv(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor) -> Callable[[], object]:
    source, target = _root(collective.inputs), _root(collective.outputs)
    if rank == source:
        return lambda: torch.distributed.send(given, target)
    return lambda: torch.distributed.recv(output, source) if rank == target else None


_CALLS: dict[str, Callable[[Collective, int, torch.Tensor, torch.Tensor], Callable[[], object]]] = {
    "allgather": lambda _, rank, given, output: lambda: torch.distributed.all_gather_into_tensor(output, given),
    "allreduce": _allreduce,
    "alltoall": lambda _, rank, given, output: lambda: torch.distributed.all_to_all_single(output, given),
    "reducescatter": lambda _, rank, given, output: lambda: torch.distributed.reduce_scatter_tensor(output, given),
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
}
