"""Fusion: which consecutive gradients form a group; and the time line that a fusion leads to.

One GPU stream runs backward and compression in series, in the order in which gradients become ready; the network is a
second serial resource. Decoding is charged together with encoding, before the communication, as in the paper's
equation 1, which has one h for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.gradients.cost_functions import CostFunction
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["Costs", "Fusion", "Timeline", "timeline"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Fusion:
    """A partition of the gradients into groups of consecutive ones, X_y in the paper.

    `ends[i]`: the number of gradients in groups 0..i; they rise, and the last is the number of all gradients.
    `sent_plain`: the groups that are not compressed (selective compression only).
    """

    ends: tuple[int, ...]
    sent_plain: frozenset[int] = frozenset()

    @classmethod
    def of(cls, groups: Sequence[tuple[int, bool]]) -> Fusion:
        """The fusion whose groups end so, each with whether it is sent plain."""
        plain = frozenset(number for number, (_, is_plain) in enumerate(groups) if is_plain)
        return cls(tuple(end for end, _ in groups), plain)

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """(first, last) gradient of each group, both inclusive, in ready order."""
        starts = (0, *self.ends[:-1])
        return tuple((start, end - 1) for start, end in zip(starts, self.ends, strict=True))

    def check_against(self, profile: FusionProfile) -> None:
        """Raise `InputError` unless the groups cover the profile's gradients, each once."""
        count = profile.tensor_count
        rising = all(before < after for before, after in zip((0, *self.ends), self.ends, strict=False))
        if not rising or self.ends[-1:] != (count,):
            raise InputError(f"ends: must rise from 1 or more to {count}, the number of gradients, got {self.ends}")
        if self.sent_plain and profile.uncompressed_communication is None:
            raise InputError(f"profile {profile.name!r}: uncompressed_communication is needed to send groups plain")


@dataclass(frozen=True)
class Costs:
    """What searches need of a profile: prefix sums over the gradients, and the two cost functions.

    `ready_s[k]`: float, shape (N + 1,): backward time of the first k gradients. `prefix_bytes[k]`: their bytes.
    `plain`: what sending a group without compression costs, None where every group is compressed.
    """

    ready_s: Floats
    prefix_bytes: Ints
    compression: CostFunction
    communication: CostFunction
    plain: CostFunction | None = None

    @classmethod
    def of(cls, profile: FusionProfile, may_be_plain: bool = False) -> Costs:
        """The costs of a profile; with `may_be_plain`, groups need not be compressed."""
        ready_s = np.concatenate([[0.0], np.cumsum(profile.backward_s)])
        prefix_bytes = np.concatenate([[0], np.cumsum(profile.size_bytes)])
        plain = profile.uncompressed_communication if may_be_plain else None
        return cls(ready_s, prefix_bytes, profile.compression, profile.communication, plain)

    @property
    def count(self) -> int:
        """N, the number of gradients."""
        return len(self.ready_s) - 1

    @cached_property
    def suffix_bytes(self) -> Ints:
        """`suffix_bytes[k]`: bytes of the gradients from k on."""
        return np.asarray(self.prefix_bytes[-1] - self.prefix_bytes)


@dataclass(frozen=True)
class Timeline:
    """When a fusion's groups are ready, compressed and sent, in seconds after the backward pass begins; per group.

    `ready_s`: its last gradient is there, were there no compression before it. `compress_s`, `send_s`: what encode and
    decode, and the collective, take. `compressed_s`: it is encoded. `sending_s`, `sent_s`: its collective begins, ends.
    """

    ready_s: Floats
    compress_s: Floats
    send_s: Floats
    compressed_s: Floats
    sending_s: Floats
    sent_s: Floats

    @property
    def end_s(self) -> float:
        """When the last group is sent."""
        return float(self.sent_s[-1])

    @property
    def exposed_s(self) -> float:
        """The communication that no backward or compression hides."""
        return float(self.sent_s[-1] - self.compressed_s[-1])


def timeline(profile: FusionProfile, fusion: Fusion) -> Timeline:
    """The time line of a fusion (Cupcake, section 4.1): f(X_y) is `profile.forward_s + timeline(...).end_s`."""
    fusion.check_against(profile)
    ends = np.array(fusion.ends)
    costs = Costs.of(profile)
    size_bytes = np.diff(costs.prefix_bytes[ends], prepend=0)
    compress_s, send_s = profile.compression(size_bytes), profile.communication(size_bytes)
    if fusion.sent_plain and profile.uncompressed_communication is not None:
        plain = np.array(sorted(fusion.sent_plain))
        compress_s[plain] = 0.0
        send_s[plain] = profile.uncompressed_communication(size_bytes[plain])
    ready_s = costs.ready_s[ends]
    compressed_s = ready_s + np.cumsum(compress_s)
    before_s = np.cumsum(send_s) - send_s
    # A collective begins when its group is compressed and the one before it is over: unrolled, the latest of all
    # earlier groups' compression plus the collectives from there on.
    sending_s = np.maximum.accumulate(compressed_s - before_s) + before_s
    return Timeline(ready_s, compress_s, send_s, compressed_s, sending_s, sending_s + send_s)
