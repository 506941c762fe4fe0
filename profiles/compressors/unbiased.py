"""Compressors that are right on average: what they send is drawn, tensor by tensor, by each rank for itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.profiles.compressors.method import FLOAT_BYTES, Bucket, Exchange, Message, Method

if TYPE_CHECKING:
    import torch

__all__ = ["Atomo", "Qsgd", "TernGrad"]

Shapes = Sequence[Sequence[int]]


class Drawn(Method):
    """One that gathers what ranks have drawn of their gradients. What it leaves out isn't made up for."""

    error = "unbiased"
    collective = "all_gather"

    @abstractmethod
    def drawn(self, flat: torch.Tensor, shapes: Shapes, generator: torch.Generator) -> torch.Tensor:
        """The payload of finite tensors of these shapes, one after the other."""

    @abstractmethod
    def meant(self, payload: torch.Tensor, shapes: Shapes, like: torch.Tensor) -> torch.Tensor:
        """What a payload stands for, flat."""

    def _payload(self, flat: torch.Tensor, shapes: Shapes, seed: int) -> torch.Tensor:
        """The payload; where any entry overflows, one of which no number is one."""
        from gapless.torch.library import torch

        generator = torch.Generator(device=flat.device).manual_seed(seed)
        if flat.isfinite().all():
            return self.drawn(flat, shapes, generator)
        ones = self.drawn(torch.ones_like(flat), shapes, generator)
        return self.broken(ones, flat)

    def broken(self, payload: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """A payload as long as this one that stands for no numbers."""
        return payload * math.nan

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """Drawn anew the next time, unless it overflows now."""
        step, flat = (memory or {}).get("step", 0), gradient.reshape(-1)
        assert isinstance(step, int)
        if memory is not None and flat.isfinite().all():
            memory["step"] = step + 1
        return self._payload(flat, [gradient.shape], step)

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What was drawn."""
        return self.meant(payload, [gradient.shape], gradient).view(gradient.shape)

    def exchange(self, bucket: Bucket) -> Exchange:
        flat, shapes = bucket.gradient, bucket.shapes
        seed = (bucket.step * 8191 + bucket.number) * 65521 + bucket.rank
        payloads = yield Message("all_gather", self._payload(flat, shapes, seed))
        total = flat.new_zeros(flat.shape)
        for payload in payloads:
            total += self.meant(payload, shapes, flat)
        return total.div_(len(payloads))


class Quantised(Drawn):
    """Each entry as a whole number of `levels` steps to either side, rounded up or down by chance.

    Stretches of entries share a scale, which `levels` stands for.
    """

    def __init__(self, bits: int) -> None:
        self.bits, self.levels = bits, 2 ** (bits - 1) - 1

    @abstractmethod
    def scaled(self, flat: torch.Tensor, shapes: Shapes) -> tuple[torch.Tensor, torch.Tensor]:
        """The scale of each stretch, and the entries."""

    @abstractmethod
    def spread(self, scales: torch.Tensor, shapes: Shapes, length: int) -> torch.Tensor:
        """The scale of each entry."""

    @abstractmethod
    def scale_count(self, shapes: Shapes) -> int:
        """How many stretches there are."""

    def _code_bytes(self, length: int) -> int:
        return -(-length * self.bits // 8)

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """The scales, and some bits for each entry."""
        return number_bytes * self.scale_count([shape]) + self._code_bytes(math.prod(shape))

    def broken(self, payload: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        from gapless.torch.library import torch

        scales = len(payload) - self._code_bytes(len(like))
        nan = like.new_full((scales // like.element_size(),), math.nan).view(torch.uint8)
        return torch.cat([nan, payload[scales:]])

    def drawn(self, flat: torch.Tensor, shapes: Shapes, generator: torch.Generator) -> torch.Tensor:
        """The scales, then the numbers, as bytes."""
        from gapless.torch.library import torch

        scales, flat = self.scaled(flat, shapes)
        whole = self.spread(scales, shapes, len(flat)).clamp(min=torch.finfo(flat.dtype).tiny)
        chance = torch.rand(len(flat), generator=generator, device=flat.device)
        steps = (flat.abs() / whole * self.levels + chance).floor().clamp(max=self.levels)
        codes = (steps * flat.sign() + self.levels).to(torch.uint8)
        per_byte = 8 // self.bits
        codes = torch.nn.functional.pad(codes, (0, -len(codes) % per_byte)).view(-1, per_byte)
        return torch.cat(
            [scales.view(torch.uint8), codes.bitwise_left_shift(self._shifts(flat)).sum(1, dtype=torch.uint8)]
        )

    def meant(self, payload: torch.Tensor, shapes: Shapes, like: torch.Tensor) -> torch.Tensor:
        """Numbers of steps times the size of a step."""
        length = sum(math.prod(shape) for shape in shapes)
        size = self.scale_count(shapes) * like.element_size()
        scales = payload[:size].clone().view(like.dtype)
        codes = payload[size:].unsqueeze(1).bitwise_right_shift(self._shifts(like)).bitwise_and_(2**self.bits - 1)
        steps = codes.view(-1)[:length].to(like.dtype) - self.levels
        return steps * (self.spread(scales, shapes, length) / self.levels)

    def _shifts(self, like: torch.Tensor) -> torch.Tensor:
        from gapless.torch.library import torch

        return torch.arange(0, 8, self.bits, dtype=torch.uint8, device=like.device)


class Qsgd(Quantised):
    """Of each stretch of 512 entries its norm, and of each entry which of so many shares of the norm it is (QSGD,
    Alistarh et al.; stretches as in its section 4).
    """

    stretch = 512

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """The bits of each entry, and its part of a norm."""
        return math.prod(shape) * (self.bits / 8 + number_bytes / self.stretch)

    def scale_count(self, shapes: Shapes) -> int:
        """Stretches go on from tensor to tensor."""
        return -(-sum(math.prod(shape) for shape in shapes) // self.stretch)

    def scaled(self, flat: torch.Tensor, shapes: Shapes) -> tuple[torch.Tensor, torch.Tensor]:
        """Norms of stretches."""
        from gapless.torch.library import torch

        stretches = torch.nn.functional.pad(flat, (0, -len(flat) % self.stretch)).view(-1, self.stretch)
        return torch.linalg.vector_norm(stretches, dim=1), flat

    def spread(self, scales: torch.Tensor, shapes: Shapes, length: int) -> torch.Tensor:
        """The norm of its stretch."""
        return scales.repeat_interleave(self.stretch)[:length]


_DEVIATIONS = 2.5


class TernGrad(Quantised):
    """Of each tensor its greatest magnitude, and of each entry one of three levels: that, none or minus that.

    Entries are first clipped to 2.5 standard deviations of their tensor (TernGrad, Wen et al., section 3.3), so that
    few large ones don't make all others noise.
    """

    def __init__(self) -> None:
        super().__init__(bits=2)

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """The bits of each entry, and a scale."""
        return math.prod(shape) * self.bits / 8 + number_bytes

    def scale_count(self, shapes: Shapes) -> int:
        """One of each tensor."""
        return len(shapes)

    def scaled(self, flat: torch.Tensor, shapes: Shapes) -> tuple[torch.Tensor, torch.Tensor]:
        """Greatest magnitudes of the tensors, once clipped."""
        from gapless.torch.library import torch

        clipped = []
        for part in flat.split([math.prod(shape) for shape in shapes]):
            most = _DEVIATIONS * part.std(correction=0)
            clipped.append(part.clamp(-most, most) if len(part) > 1 else part)
        scales = torch.stack([part.abs().max() if len(part) else part.sum() for part in clipped])
        return scales, torch.cat(clipped)

    def spread(self, scales: torch.Tensor, shapes: Shapes, length: int) -> torch.Tensor:
        """The scale of its tensor."""
        from gapless.torch.library import torch

        return torch.cat([scale.expand(math.prod(shape)) for scale, shape in zip(scales, shapes, strict=True)])


class Atomo(Drawn):
    """Of each matrix `rank` of its singular triplets, drawn by their values and as much larger as they were unlikely
    (spectral ATOMO, Wang et al., algorithm 1); whole what isn't a matrix or would not get smaller.

    A tensor of several dimensions is a matrix with the first as its rows. Draws are systematic: each triplet has its
    probability of algorithm 1, and there are always `rank` of them, so that messages are equally long.
    """

    def __init__(self, rank: int) -> None:
        self.triplets = rank

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """Both factors, or all of what isn't factored."""
        return number_bytes * self._numbers(shape)

    def is_factored(self, shape: Sequence[int]) -> bool:
        """Whether the factors have less than half of the tensor's entries."""
        return len(shape) > 1 and 2 * self._factors(shape) < math.prod(shape)

    def _factors(self, shape: Sequence[int]) -> int:
        return self.triplets * (shape[0] + math.prod(shape[1:]))

    def _numbers(self, shape: Sequence[int]) -> int:
        return self._factors(shape) if self.is_factored(shape) else math.prod(shape)

    def drawn(self, flat: torch.Tensor, shapes: Shapes, generator: torch.Generator) -> torch.Tensor:
        """Left factors with the values in them, then right ones, of each matrix."""
        from gapless.torch.library import torch

        parts = flat.split([math.prod(shape) for shape in shapes])
        found = []
        for part, shape in zip(parts, shapes, strict=True):
            if not self.is_factored(shape):
                found.append(part)
                continue
            left, values, right = torch.linalg.svd(part.view(shape[0], -1).float(), full_matrices=False)
            weights = self._weights(values.double(), generator)
            chosen = weights.topk(self.triplets).indices
            factor = (weights[chosen] * values[chosen]).float()
            found += [(left[:, chosen] * factor).flatten().to(flat.dtype), right[chosen].flatten().to(flat.dtype)]
        return torch.cat(found)

    def _weights(self, values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """One over its probability for each triplet that is drawn, 0 for the others."""
        from gapless.torch.library import torch

        chance = probabilities(values, self.triplets)
        start = torch.rand((), generator=generator, device=values.device, dtype=torch.float64)
        passed = (chance.cumsum(0) + start).floor()
        is_drawn = passed.diff(prepend=passed.new_zeros(1)) > 0
        return torch.where(is_drawn, 1 / chance.clamp(min=1e-300), 0.0)

    def meant(self, payload: torch.Tensor, shapes: Shapes, like: torch.Tensor) -> torch.Tensor:
        """The products of the factors."""
        from gapless.torch.library import torch

        found = []
        for part, shape in zip(payload.split([self._numbers(shape) for shape in shapes]), shapes, strict=True):
            if self.is_factored(shape):
                left, right = part.split([self.triplets * shape[0], len(part) - self.triplets * shape[0]])
                found.append((left.view(shape[0], -1) @ right.view(self.triplets, -1)).flatten())
            else:
                found.append(part)
        return torch.cat(found)


def probabilities(values: torch.Tensor, count: int) -> torch.Tensor:
    """With which each of some falling values is drawn, so that `count` are on average and the variance is least."""
    from gapless.torch.library import torch

    tails = values.flip(0).cumsum(0).flip(0)
    chance = torch.ones_like(values)
    for sure in range(min(count, len(values))):
        if values[sure] * (count - sure) <= tails[sure]:
            chance[sure:] = values[sure:] * (count - sure) / tails[sure].clamp(min=1e-300)
            return chance
    chance[min(count, len(values)) :] = 0.0
    return chance
