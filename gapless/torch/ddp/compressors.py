"""How a bucket of gradients is sent, by the name of a mode: `plain`, `fp16`, `topk:0.01`, `powersgd:4`, ...

A compressor makes an exchange of a bucket: a generator that yields what this rank sends, is given what arrives, and
returns the mean over all ranks of what was sent. In between it takes off the gradient what it has sent, so that what is
left of it is the error that is to be sent later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from gapless.errors import InputError
from gapless.torch.library import torch

__all__ = ["MODES", "Bucket", "Compressor", "Exchange", "Message", "TopK", "compressor_of"]


@dataclass
class Bucket:
    """What is to be sent: a flat gradient, and the shapes of the tensors that it holds one after the other.

    `number`: of the bucket, and `step`: how often it was sent before, both the same in all ranks. `memory`: what a mode
    keeps from step to step, by name.
    """

    gradient: Any
    shapes: Sequence[tuple[int, ...]]
    rank: int
    ranks: int
    number: int = 0
    step: int = 0
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """A flat tensor to be summed over ranks, or gathered from them as the rows of a matrix.

    `is_last`: no other follows, so what comes next is decoding.
    """

    collective: Literal["all_reduce", "all_gather"]
    payload: Any
    is_last: bool = True


Exchange: TypeAlias = Generator[Message, Any, Any]


class Compressor(Protocol):
    """A way to send a bucket, of which costs can be said.

    `error`: its class, of `gapless.profiles.gradients.modes.ERRORS`. `collective`: what its messages go by, and
    `messages`: how many it needs.
    """

    error: str
    collective: str
    messages: int

    def exchange(self, bucket: Bucket) -> Exchange:
        """What is sent, what comes back, and the mean; changes the bucket's gradient to what wasn't sent."""

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """What a rank sends of one tensor of a bucket, to one other rank in a gather."""


def compressor_of(mode: str) -> Compressor:
    """The compressor of a mode, as in `MODES`. Raises `InputError` for a name that is none of them."""
    kind, colon, setting = mode.partition(":")
    kind = _ALSO.get(kind, kind)
    make, pattern, default = _MODES.get(kind, (None, "", ""))
    text = setting if colon else default
    if make is None or not re.fullmatch(pattern, text):
        raise InputError(f"mode: must be one of {', '.join(MODES)}, got {mode!r}")
    return make(text)


class Plain:
    """The sum as DDP makes it: the same bits."""

    error, collective, messages = "exact", "all_reduce", 1

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """All of it."""
        return float(number_bytes * math.prod(shape))

    def exchange(self, bucket: Bucket) -> Exchange:
        """In place: nothing is left to be sent later."""
        return (yield Message("all_reduce", bucket.gradient.mul_(1 / bucket.ranks)))


class Cast:
    """Every entry in a shorter type, summed in that type."""

    error, collective, messages = "rounded", "all_reduce", 1

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """Every entry."""
        return float(self.dtype.itemsize * math.prod(shape))

    def exchange(self, bucket: Bucket) -> Exchange:
        share = bucket.gradient.mul(1 / bucket.ranks).to(self.dtype)
        bucket.gradient.sub_(share, alpha=bucket.ranks)
        total = yield Message("all_reduce", share)
        return total.to(bucket.gradient.dtype)


class TopK:
    """Keeps the entries of greatest magnitude, with their places: at least one, `kept` of all (0.01 for 1 %).

    Raises `InputError` unless 0 < kept <= 1.
    """

    error, collective, messages = "feedback", "all_gather", 1

    def __init__(self, kept: float) -> None:
        self.kept = _share(kept)

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """Places and values."""
        return self.kept * (_PLACE_BYTES + number_bytes) * math.prod(shape)

    def encode(self, gradient: torch.Tensor) -> torch.Tensor:
        """The places, then the values, as bytes; their number depends on the gradient's length and type only."""
        return _packed(gradient, gradient.abs().topk(_count(self.kept, gradient), sorted=False).indices)

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times the kept entries to `total`, flat and as long as the gradient was."""
        places, values = _unpacked(payload, total, _count(self.kept, total))
        total.index_add_(0, places, values, alpha=factor)

    def exchange(self, bucket: Bucket) -> Exchange:
        payload = self.encode(bucket.gradient)
        self.add_to(bucket.gradient, payload, factor=-1.0)
        return _mean(self, (yield Message("all_gather", payload)), bucket)


class RandomK:
    """One entry of each of so many equal stretches, at random: the same ones in all ranks, which are summed, or others
    in each (`gathered`), which are sent with their places.
    """

    error, messages = "feedback", 1

    def __init__(self, kept: float, gathered: bool = False) -> None:
        self.kept, self.gathered = _share(kept), gathered
        self.collective = "all_gather" if gathered else "all_reduce"

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """Values, and where they are others in each rank, their places."""
        return self.kept * (number_bytes + (_PLACE_BYTES if self.gathered else 0)) * math.prod(shape)

    def _places(self, bucket: Bucket) -> Any:
        gradient = bucket.gradient
        count, length = _count(self.kept, gradient), gradient.numel()
        own = bucket.rank if self.gathered else 0
        generator = torch.Generator().manual_seed((bucket.step * 8191 + bucket.number) * 65521 + own)
        starts = torch.arange(count + 1, dtype=torch.int64) * length // count
        chance = torch.rand(count, generator=generator, dtype=torch.float64)
        return (starts[:-1] + (chance * starts.diff()).long()).to(gradient.device)

    def add_to(self, total: Any, payload: Any, factor: float) -> None:
        """As top-k's."""
        places, values = _unpacked(payload, total, _count(self.kept, total))
        total.index_add_(0, places, values, alpha=factor)

    def exchange(self, bucket: Bucket) -> Exchange:
        gradient, places = bucket.gradient, self._places(bucket)
        if self.gathered:
            payload = _packed(gradient, places)
            gradient[places] = 0
            return _mean(self, (yield Message("all_gather", payload)), bucket)
        values = gradient[places].mul_(1 / bucket.ranks)
        gradient[places] = 0
        mean = torch.zeros_like(gradient)
        mean[places] = yield Message("all_reduce", values)
        return mean


class Sign:
    """A bit for each entry, its sign, and what it stands for: one mean magnitude (EF-SignSGD), or the mean of those
    below zero and that of the others (`means=2`, 1-bit SGD).
    """

    error, collective, messages = "feedback", "all_gather", 1

    def __init__(self, means: int = 1) -> None:
        self.means = means

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """A bit for each entry."""
        return math.prod(shape) / 8

    def add_to(self, total: Any, payload: Any, factor: float) -> None:
        """Add `factor` times the levels."""
        size = 2 * total.element_size()
        below, above = payload[:size].clone().view(total.dtype)
        bits = payload[size:].unsqueeze(1).bitwise_right_shift(_shifts(total)).bitwise_and_(1).view(-1)
        total.add_(torch.where(bits[: len(total)].bool(), above, below), alpha=factor)

    def _levels(self, gradient: Any, is_above: Any) -> Any:
        if self.means == 1:
            return gradient.abs().mean() * torch.tensor([-1.0, 1.0], dtype=gradient.dtype, device=gradient.device)
        count = is_above.sum()
        above = torch.where(is_above, gradient, 0).sum()
        rest = gradient.sum() - above
        return torch.stack([rest / (len(gradient) - count).clamp(min=1), above / count.clamp(min=1)])

    def exchange(self, bucket: Bucket) -> Exchange:
        gradient = bucket.gradient
        is_above = gradient >= 0
        bits = torch.nn.functional.pad(is_above.to(torch.uint8), (0, -len(gradient) % 8)).view(-1, 8)
        packed = bits.bitwise_left_shift(_shifts(gradient)).sum(1, dtype=torch.uint8)
        levels = self._levels(gradient, is_above)
        payload = torch.cat([levels.to(gradient.dtype).view(torch.uint8), packed])
        gradient.sub_(torch.where(is_above, levels[1], levels[0]))
        return _mean(self, (yield Message("all_gather", payload)), bucket)


class PowerSgd:
    """Each matrix as the product of two with `rank` columns, by one power iteration from the last step's (PowerSGD).

    Two all-reduces a bucket: the left factors, with all tensors that aren't matrices or would not get smaller, then the
    right ones. A tensor of several dimensions is a matrix with the first as its rows.
    """

    error, collective, messages = "feedback", "all_reduce", 2

    def __init__(self, rank: int) -> None:
        if rank < 1:
            raise InputError(f"rank: must be >= 1, got {rank}")
        self.rank = rank

    def sent_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """Both factors, or all of what isn't factored."""
        return float(number_bytes * (self._factors(shape) if self.is_factored(shape) else math.prod(shape)))

    def is_factored(self, shape: Sequence[int]) -> bool:
        """Whether the factors have less than half of the tensor's entries."""
        return len(shape) > 1 and 2 * self._factors(shape) < math.prod(shape)

    def _factors(self, shape: Sequence[int]) -> int:
        return self.rank * (shape[0] + math.prod(shape[1:]))

    def exchange(self, bucket: Bucket) -> Exchange:
        shapes = bucket.shapes
        parts = bucket.gradient.split([math.prod(shape) for shape in shapes])
        factored = [number for number, shape in enumerate(shapes) if self.is_factored(shape)]
        matrices = [parts[number].view(shapes[number][0], -1) for number in factored]
        whole = [part for number, part in enumerate(parts) if number not in factored]
        rights = self._rights(matrices, bucket.memory.get("rights"))
        lefts = [matrix @ right for matrix, right in zip(matrices, rights, strict=True)]
        message = _joined([*whole, *lefts], bucket.ranks)
        for part in whole:
            part.zero_()
        received = yield Message("all_reduce", message, is_last=not matrices)
        *means, lefts = [*_parted(received, whole), _parted(received[sum(map(len, whole)) :], lefts)]
        if matrices:
            lefts = [torch.linalg.qr(left.float()).Q.to(left.dtype) for left in lefts]
            rights = [matrix.T @ left for matrix, left in zip(matrices, lefts, strict=True)]
            for matrix, left, right in zip(matrices, lefts, rights, strict=True):
                matrix.sub_(left @ right.T)
            rights = _parted((yield Message("all_reduce", _joined(rights, bucket.ranks))), rights)
            bucket.memory["rights"] = rights
        for number, left, right in zip(factored, lefts, rights, strict=True):
            means.insert(number, (left @ right.T).flatten())
        return torch.cat(means)

    def _rights(self, matrices: Sequence[Any], last: Sequence[Any] | None) -> list[Any]:
        """Right factors to begin with: the last step's, cut or filled up where the rank was another then."""
        starts = [self._start(matrix) for matrix in matrices]
        if last is None or len(last) != len(starts):
            return starts
        return [torch.cat([old, start[:, old.shape[1] :]], 1)[:, : self.rank]
                for old, start in zip(last, starts, strict=True)]  # fmt: skip

    def _start(self, matrix: Any) -> Any:
        """What the first power iteration starts from, in all ranks alike."""
        generator = torch.Generator().manual_seed(matrix.shape[0])
        return torch.randn(matrix.shape[1], self.rank, generator=generator).to(matrix)


# -- what several compressors need -------------------------------------------------------------------------------------

_PLACE_BYTES = 4


def _share(kept: float) -> float:
    if not 0 < kept <= 1:
        raise InputError(f"kept: must be a fraction above 0, at most 1, got {kept}")
    return kept


def _count(kept: float, gradient: Any) -> int:
    return max(1, round(kept * int(gradient.numel())))


def _place_type(gradient: Any) -> Any:
    return torch.int32 if gradient.numel() < 2**31 else torch.int64


def _packed(gradient: Any, places: Any) -> Any:
    """Places, then the entries there, as bytes."""
    return torch.cat([places.to(_place_type(gradient)).view(torch.uint8), gradient[places].view(torch.uint8)])


def _unpacked(payload: Any, like: Any, count: int) -> tuple[Any, Any]:
    places_bytes = count * _place_type(like).itemsize
    # A view as a wider type must start at a multiple of its width in memory: a clone does.
    places = payload[:places_bytes].clone().view(_place_type(like))
    return places, payload[places_bytes:].clone().view(like.dtype)


def _mean(compressor: Any, payloads: Any, bucket: Bucket) -> Any:
    """Of what the payloads of all ranks, one a row, stand for."""
    total = torch.zeros_like(bucket.gradient)
    for payload in payloads:
        compressor.add_to(total, payload, factor=1.0)
    return total.div_(len(payloads))


def _shifts(like: Any) -> Any:
    return torch.arange(8, dtype=torch.uint8, device=like.device)


def _joined(tensors: Sequence[Any], ranks: int) -> Any:
    """A share of all of them, one after the other."""
    return torch.cat([tensor.flatten() for tensor in tensors]).mul_(1 / ranks)


def _parted(flat: Any, like: Sequence[Any]) -> list[Any]:
    """The tensors at its beginning, in the shapes of others."""
    parts = flat[: sum(tensor.numel() for tensor in like)].split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


_SHARE = r"\d*\.?\d+"
_MODES: dict[str, tuple[Callable[[str], Compressor], str, str]] = {
    "plain": (lambda _: Plain(), "", ""),
    "fp16": (lambda _: Cast(torch.float16), "", ""),
    "bf16": (lambda _: Cast(torch.bfloat16), "", ""),
    "topk": (lambda text: TopK(float(text)), _SHARE, "0.01"),
    "rand-k": (lambda text: RandomK(float(text)), _SHARE, "0.01"),
    "rand-k-gathered": (lambda text: RandomK(float(text), gathered=True), _SHARE, "0.01"),
    "ef-signsgd": (lambda _: Sign(1), "", ""),
    "onebit": (lambda _: Sign(2), "", ""),
    "powersgd": (lambda text: PowerSgd(int(text)), r"\d{1,6}", "4"),
}
"""By name: what makes one of the text behind the colon, what that must look like, and what it is where none is."""

_ALSO = {"none": "plain", "dgc": "topk", "ms-topk": "topk"}
"""Published compressors that differ from a mode's in how they find what they send."""

MODES = tuple(f"{name}:{default}" if default else name for name, (_, _, default) in _MODES.items())
"""Every mode, with the setting that it has unless one is given."""
