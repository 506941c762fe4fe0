"""Who trains and who serves rows. Needs the extra `torch`."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.errors import InputError
from gapless.torch.library import torch

__all__ = ["Roles"]


@dataclass(frozen=True)
class Roles:
    """Who is what: the first processes are `trainers`; servers are some of these, or where `apart`, those after them.

    Raises `InputError` unless the processes of the default group are so many.
    """

    rank: int
    trainers: int
    servers: int
    apart: bool = False

    def __post_init__(self) -> None:
        ranks, needed = torch.distributed.get_world_size(), self.trainers + (self.servers if self.apart else 0)
        if ranks != needed:
            raise InputError(f"servers: must make {ranks} processes with {self.trainers} trainers, got {self.servers}")

    @property
    def ranks(self) -> int:
        """All processes."""
        return self.trainers + (self.servers if self.apart else 0)

    @property
    def is_trainer(self) -> bool:
        """Whether this process trains."""
        return self.rank < self.trainers

    def server(self, rank: int) -> int | None:
        """Which server a process is, if it is one."""
        number = rank - self.trainers if self.apart else rank
        return number if 0 <= number < self.servers else None
