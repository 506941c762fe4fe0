"""Deep gradient compression (DGC): the largest entries of what a rank has accumulated, momentum with it.

Lin, Han, Mao, Wang, Dally: *Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training*.
Of its four techniques, three are here; the fourth, momentum factor masking, comes with the first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.profiles.compressors.compressor import Setting
from gapless.profiles.compressors.kept import Kept, packed
from gapless.profiles.compressors.method import Bucket, Exchange, Message, kept_count

if TYPE_CHECKING:
    import torch

__all__ = ["OPTIONS", "Dgc"]

_NUMBER = r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
OPTIONS = {
    "momentum": Setting(0.9, "momentum must be a number in 0..0.9999", _NUMBER, 0.9999, has_zero=True),
    "clip": Setting(0.0, "clip must be a norm above 0, or 0 for none", _NUMBER, 1e30, has_zero=True),
    "warmup": Setting(0, "warmup must be a whole number of steps in 0..999999", r"\d{1,6}", 999_999, has_zero=True),
}
"""What may stand behind the share, as in `dgc:0.001:momentum=0.9:clip=1:warmup=400`."""

_STAGES = 4
_STAGE = 0.25
"""In warm-up so many stages of equal length, each with this share of the one before: 25 %, 6.25 %, 1.6 %, 0.4 %."""

_SAMPLED, _LEAST_SAMPLED = 0.01, 32
"""The share of the entries of which the threshold is taken, and how many kept ones are wanted among them."""
_LOWERINGS, _LOWERED, _ENOUGH = 10, 0.8, 0.8
"""While fewer than this share of the wanted ones reach the threshold, it is lowered by a factor, so often at most."""


class Dgc(Kept):
    """Sends the largest entries of what has accumulated of `momentum`'s velocity; of others the rank keeps both.

    The velocity is of this rank's gradient, so the optimiser of the training must have no momentum of its own. `clip`:
    the greatest norm that all ranks' gradients of a bucket may have together, so 1 / sqrt(ranks) of it on each; 0 for
    any. `warmup`: steps in which more is sent, less from stage to stage.
    """

    entrywise = ("velocity",)

    def __init__(self, kept: float, momentum: float = 0.9, clip: float = 0.0, warmup: float = 0) -> None:
        super().__init__(kept)
        if not 0 <= momentum < 1:
            raise InputError(f"momentum: must be at least 0 and below 1, got {momentum}")
        self.momentum, self.clip, self.warmup = momentum, clip, int(warmup)

    def kept_at(self, step: int) -> float:
        """The share that is sent in a step."""
        if step >= self.warmup:
            return self.kept
        return max(self.kept, _STAGE ** (1 + _STAGES * step // self.warmup))

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The places, then the values, as bytes; nothing accumulates from one rank to another."""
        flat = gradient.reshape(-1)
        return _payload(flat, *_largest(flat, kept_count(self.kept, flat.shape), 0))

    def exchange(self, bucket: Bucket) -> Exchange:
        unsent = bucket.gradient
        fresh = self._clipped(bucket)
        last = bucket.entries.get("velocity")
        velocity = fresh if last is None else fresh + self.momentum * last
        unsent.copy_(velocity if bucket.carried is None else bucket.carried + velocity)
        count = kept_count(self.kept_at(bucket.step), unsent.shape)
        places, found = _largest(unsent, count, bucket.step)
        payload = _payload(unsent, places, found)
        unsent[places[:found]] = 0
        # What was sent mustn't go on in its old direction: its velocity starts anew (momentum factor masking).
        bucket.entries["velocity"] = velocity.index_fill(0, places[:found], 0.0)
        return self.mean_of((yield Message("all_gather", payload)), bucket)

    def _clipped(self, bucket: Bucket) -> torch.Tensor:
        """This step's gradient, without what is carried on."""
        fresh = bucket.gradient.clone() if bucket.carried is None else bucket.gradient - bucket.carried
        if not self.clip:
            return fresh
        most = bucket.scale * self.clip / math.sqrt(bucket.ranks)
        return fresh * (most / fresh.norm().clamp(min=most))


def _largest(flat: torch.Tensor, count: int, step: int) -> tuple[torch.Tensor, int]:
    """Places of `count` entries, about the largest, by a threshold that a sample says; how many of them are meant.

    The others fill up, since messages of all ranks are equally long.
    """
    from gapless.torch.library import torch

    if count == len(flat):
        return torch.arange(count, device=flat.device), count
    sizes = flat.abs()
    wanted = max(math.ceil(_SAMPLED * len(flat)), math.ceil(_LEAST_SAMPLED * len(flat) / count))
    stride = max(1, len(flat) // wanted)
    sample = sizes[step % stride :: stride]
    threshold = sample.topk(max(1, count * len(sample) // len(flat)), sorted=True).values[-1]
    places = (sizes >= threshold).nonzero().flatten()
    for _ in range(_LOWERINGS):
        if len(places) >= _ENOUGH * count:
            break
        threshold = _LOWERED * threshold
        places = (sizes >= threshold).nonzero().flatten()
    if len(places) > count:
        places = places[sizes[places].topk(count, sorted=False).indices]
    if not len(places):  # no number has an order
        places = sizes.topk(count, sorted=False).indices
    found = len(places)
    return torch.cat([places, places[-1:].expand(count - found)]), found


def _payload(flat: torch.Tensor, places: torch.Tensor, found: int) -> torch.Tensor:
    """Places and values, zero of those that only fill up."""
    values = flat[places]
    values[found:] = 0
    return packed(values, places, flat)
