"""How compressors send: in an exchange among ranks, which adds up, or from one rank to another.

What is computed is computed by PyTorch, which is imported where it is. What runs it is `gapless.torch.compression`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from gapless.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["FLOAT_BYTES", "PLACE_BYTES", "Bucket", "Exchange", "Gathered", "Message", "Method", "kept_count"]

FLOAT_BYTES = 4
"""Of a number in single precision."""
PLACE_BYTES = 4
"""Of a place in a tensor of less than 2^31 numbers."""


@dataclass
class Bucket:
    """What is to be sent: a flat gradient, and the shapes of the tensors that it holds one after the other.

    `number`: of the bucket, and `step`: how often it was sent before, both the same in all ranks. `memory`: what a mode
    keeps from step to step, by name. `carried`: the part of the gradient that wasn't sent before, if there is any.
    `entries`: what a mode keeps of each entry, by name; it goes with parameters into other buckets, as errors do.
    `scale`: what the loss is multiplied by, and the gradient with it.
    """

    gradient: torch.Tensor
    shapes: Sequence[tuple[int, ...]]
    rank: int
    ranks: int
    number: int = 0
    step: int = 0
    memory: dict[str, object] = field(default_factory=dict)
    carried: torch.Tensor | None = None
    entries: dict[str, torch.Tensor] = field(default_factory=dict)
    scale: float = 1.0


@dataclass(frozen=True)
class Message:
    """A flat tensor to be summed over ranks, gathered from them as the rows of a matrix, summed and scattered, of which
    a rank gets its share, or sent in as many equal parts to as many ranks, which get a row from each.

    `is_last`: no other follows, so what comes next is decoding. `level`: among which ranks, where there are nodes.
    """

    collective: Literal["all_reduce", "all_gather", "all_to_all", "reduce_scatter"]
    payload: torch.Tensor
    is_last: bool = True
    level: Literal["ranks", "node", "across"] = "ranks"


Exchange: TypeAlias = "Generator[Message, torch.Tensor, torch.Tensor]"
"""Yields what this rank sends, is given what arrives, and returns the mean over all ranks of what was sent. In between
it takes off the gradient what it has sent, where its class of error feeds back: what is left is the error that is to be
sent later.
"""


class Method(ABC):
    """A way to send a gradient, of which costs can be said.

    `error`: its class, of `ERRORS`. `collective`: what its messages go by, or what takes as long, and `messages`: how
    many it needs. `rank`:
    of a low-rank approximation, 0 for none. `only_summed`: why it can't go from one rank to another, if it can't.
    `entrywise`: names of what it keeps of each entry.
    """

    error: str = "feedback"
    collective: Literal["all_reduce", "all_gather"] = "all_reduce"
    messages: int = 1
    rank: int = 0
    only_summed: str = ""
    entrywise: tuple[str, ...] = ()

    @property
    def feeds_back(self) -> bool:
        """Whether what it leaves is to be sent later; what is right on average mustn't be made up for again."""
        return self.error in ("rounded", "feedback")

    @abstractmethod
    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """What a rank sends of one tensor by itself, to one other rank in a gather."""

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """What one tensor adds to the messages of a bucket: in proportion to its entries, without what each message has
        besides.
        """
        return float(self.sent_bytes(shape, number_bytes))

    def is_factored(self, shape: Sequence[int]) -> bool:
        """Whether a tensor goes as a product of matrices."""
        return False

    @abstractmethod
    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The payload of a gradient, flat; how long it is depends on the gradient's shape and type only.

        `memory`: what is kept from one gradient to the next.
        """

    @abstractmethod
    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What a payload stands for, in the shape of this gradient."""

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        """Room for the payload of a gradient such as this."""
        payload = self.encode(gradient.new_zeros(gradient.shape))
        return payload.new_empty(payload.shape)

    @abstractmethod
    def exchange(self, bucket: Bucket) -> Exchange:
        """What is sent, what comes back, and the mean; changes the bucket's gradient to what wasn't sent."""


class Gathered(Method):
    """One that gathers messages which can't be added up: each rank adds up what the payloads of all stand for."""

    collective: Literal["all_reduce", "all_gather"] = "all_gather"

    @abstractmethod
    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times what a payload stands for to `total`, flat and as long as the gradient was."""

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.new_zeros(gradient.numel())
        self.add_to(total, payload, factor=1.0)
        return total.view(gradient.shape)

    def exchange(self, bucket: Bucket) -> Exchange:
        payload = self.encode(bucket.gradient, bucket.memory)
        if self.feeds_back:
            self.add_to(bucket.gradient, payload, factor=-1.0)
        return self.mean_of((yield Message("all_gather", payload)), bucket)

    def mean_of(self, payloads: torch.Tensor, bucket: Bucket) -> torch.Tensor:
        """The mean of what the payloads of all ranks, one a row, stand for."""
        total = bucket.gradient.new_zeros(bucket.gradient.shape)
        for payload in payloads:
            self.add_to(total, payload, factor=1.0)
        return total.div_(len(payloads))


def kept_count(share: float, shape: Sequence[int]) -> int:
    """How many entries are kept of a shape: one at least. Raises `InputError` for no share above 0, at most 1."""
    if not 0 < share <= 1:
        raise InputError(f"share: must be a fraction above 0, at most 1, got {share}")
    return max(1, round(share * math.prod(shape)))
