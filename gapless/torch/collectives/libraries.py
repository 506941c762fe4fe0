"""The library's own collectives, on the same buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.ir.collective import Collective
from gapless.torch.library import torch

__all__ = ["library_call"]

_Group: TypeAlias = "torch.distributed.ProcessGroup | None"
_Call: TypeAlias = Callable[[], object]


def library_call(
    collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor,
    group: torch.distributed.ProcessGroup | None = None,
) -> Callable[[], object] | None:  # fmt: skip
    """The call that does what a collective does, None for one of your own or one that the backend doesn't have.

    `rank`: the place in `group`, None for the default one. It is called once, by all ranks, to see whether the backend
    has it.
    """
    make = _CALLS.get(collective.name)
    if make is None:
        return None
    call = make(collective, rank, given, output, group)
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


def _global(rank: int, group: _Group) -> int:
    """The rank, among all, of one of a group."""
    return rank if group is None else torch.distributed.get_global_rank(group, rank)


def _parts(buffer: torch.Tensor, collective: Collective) -> list[torch.Tensor]:
    return list(buffer.chunk(collective.rank_count))


def _allreduce(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    def call() -> object:
        output.copy_(given)
        return torch.distributed.all_reduce(output, group=group)

    return call


def _broadcast(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    root = _root(collective.inputs)
    buffer = given if rank == root else output
    return lambda: torch.distributed.broadcast(buffer, _global(root, group), group)


def _reduce(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    root, buffer = _root(collective.outputs), given.clone()

    def call() -> object:
        buffer.copy_(given)
        return torch.distributed.reduce(buffer, _global(root, group), group=group)

    return call


def _gather(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    root = _root(collective.outputs)
    return lambda: torch.distributed.gather(
        given, _parts(output, collective) if rank == root else None, _global(root, group), group
    )


def _scatter(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    root = _root(collective.inputs)
    return lambda: torch.distributed.scatter(
        output, _parts(given, collective) if rank == root else None, _global(root, group), group
    )


def _sendrecv(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    source, target = _root(collective.inputs), _root(collective.outputs)
    if rank == source:
        return lambda: torch.distributed.send(given, _global(target, group), group)
    return lambda: torch.distributed.recv(output, _global(source, group), group) if rank == target else None


def _alltoallv(collective: Collective, rank: int, given: torch.Tensor, output: torch.Tensor, group: _Group) -> _Call:
    """Splits are in bytes, as the buffers are."""
    sizes, sides = collective.chunk_sizes or (), ([0] * collective.rank_count, [0] * collective.rank_count)
    owner = collective.owners
    for target, chunks in enumerate(collective.outputs):
        for chunk in chunks:
            if owner[chunk] == rank:
                sides[0][target] += sizes[chunk]
            if target == rank:
                sides[1][owner[chunk]] += sizes[chunk]
    return lambda: torch.distributed.all_to_all_single(output, given, sides[1], sides[0], group)


_CALLS: dict[str, Callable[[Collective, int, torch.Tensor, torch.Tensor, _Group], _Call]] = {
    "allgather": lambda _, rank, given, output, group: (
        lambda: torch.distributed.all_gather_into_tensor(output, given, group)
    ),
    "allreduce": _allreduce,
    "alltoall": lambda _, rank, given, output, group: (
        lambda: torch.distributed.all_to_all_single(output, given, group=group)
    ),
    "alltoallv": _alltoallv,
    "reducescatter": lambda _, rank, given, output, group: (
        lambda: torch.distributed.reduce_scatter_tensor(output, given, group=group)
    ),
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
}
