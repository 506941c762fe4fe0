"""Fusion: which consecutive gradients form a group, and how each is sent; and the time line that a fusion leads to.

One GPU stream runs backward and encoding in series, in the order in which gradients become ready; the network is a
second serial resource. Decoding runs beside both, one group after the other, once the group's collective is over, as
PyTorch runs what a hook has chained to it; or it is charged together with encoding, before the collective, as in
equation 1 of *A compression scheduler for scalable communication-efficient distributed training*, which has one h for
both.

Where a rank has few cores, all of this is work of the same processors. A step then ends no earlier than its processor
seconds over the cores: backward, encoding, what collectives take of the processor, decoding. No way to share the cores
is through earlier, and the time line takes it for the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.gradients.cost_functions import FREE
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["DECODES", "Costs", "Fusion", "ModeCosts", "Timeline", "timeline"]


DECODES = {
    "after": "once a group's collective is over, beside backward pass and network",
    "before": "with encoding, before the collective, as the paper counts it",
}
"""When a group is decoded."""


@dataclass(frozen=True)
class Fusion:
    """A partition of the gradients into groups of consecutive ones, X_y in the paper, and the mode of each.

    `ends[i]`: the number of gradients in groups 0..i; they rise, and the last is the number of all gradients.
    `modes[i]`: the name of the mode in which group i is sent.
    """

    ends: tuple[int, ...]
    modes: tuple[str, ...]

    @classmethod
    def uniform(cls, ends: Sequence[int], mode: str) -> Fusion:
        """The fusion whose groups end so and are all sent in one mode."""
        return cls(tuple(ends), (mode,) * len(ends))

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """(first, last) gradient of each group, both inclusive, in ready order."""
        starts = (0, *self.ends[:-1])
        return tuple((start, end - 1) for start, end in zip(starts, self.ends, strict=True))


@dataclass(frozen=True)
class ModeCosts:
    """The costs of a mode over prefix sums: `encoded_bytes[k]`, `sent_bytes[k]`: float, shape (N + 1,), of the first k
    gradients. `decodes_before`: decoding counts as compression, and nothing is left to do after the collective."""

    mode: Mode
    encoded_bytes: Floats
    sent_bytes: Floats
    decodes_before: bool

    @classmethod
    def of(cls, mode: Mode, size_bytes: Ints, decodes_before: bool) -> ModeCosts:
        """The costs of a mode for gradients of such sizes."""
        encoded, sent = (np.append(0.0, np.cumsum(each)) for each in (mode.encoded(size_bytes), mode.sent(size_bytes)))
        return cls(mode, encoded, sent, decodes_before)

    @property
    def name(self) -> str:
        """Of the mode."""
        return self.mode.name

    @property
    def decodes_after(self) -> bool:
        """Whether there is something to do after the collective."""
        return not self.decodes_before and self.mode.decode != FREE

    def compress_s(self, start: Ints | int, end: Ints | int) -> Floats:
        """What is done on the compute stream before gradients start..end - 1 are sent, as one group."""
        size_bytes = self.encoded_bytes[end] - self.encoded_bytes[start]
        encode_s = self.mode.encode(size_bytes)
        return encode_s + self.mode.decode(size_bytes) if self.decodes_before else encode_s

    def send_s(self, start: Ints | int, end: Ints | int) -> Floats:
        """The collective on gradients start..end - 1."""
        return self.mode.communication(self.sent_bytes[end] - self.sent_bytes[start])

    def work_s(self, start: Ints | int, end: Ints | int) -> Floats:
        """Processor seconds of gradients start..end - 1: encode, what the collective takes, decode."""
        sending_s = self.mode.communication_work(self.sent_bytes[end] - self.sent_bytes[start])
        return self.compress_s(start, end) + sending_s + self.decode_s(start, end)

    def decode_s(self, start: Ints | int, end: Ints | int) -> Floats:
        """What is done after the collective on gradients start..end - 1."""
        size_bytes = self.encoded_bytes[end] - self.encoded_bytes[start]
        return self.mode.decode(size_bytes) if self.decodes_after else np.zeros_like(size_bytes)


@dataclass(frozen=True)
class Costs:
    """What searches need of a profile and the modes offered: prefix sums over the gradients, and cost functions.

    `ready_s[k]`: float, shape (N + 1,): backward time of the first k gradients. `size_bytes[k]`: of gradient k.
    `forward_s` comes before all of it. `cores`: as of the profile.
    """

    forward_s: float
    ready_s: Floats
    size_bytes: Ints
    modes: tuple[ModeCosts, ...]
    cores: float | None = None

    @classmethod
    def of(cls, profile: FusionProfile, modes: Sequence[str] | None = None, decode: str = "after") -> Costs:
        """The costs of a profile in some of its modes (None: all); `decode`: one of `DECODES`."""
        check_known("decode", decode, DECODES)
        offered = [profile.mode(name) for name in (profile.mode_names if modes is None else modes)]
        ready_s = np.concatenate([[0.0], np.cumsum(profile.backward_s)])
        costs = tuple(ModeCosts.of(mode, profile.size_bytes, decode == "before") for mode in offered)
        return cls(profile.forward_s, ready_s, profile.size_bytes, costs, profile.cores)

    @property
    def count(self) -> int:
        """N, the number of gradients."""
        return len(self.ready_s) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """Of the modes."""
        return tuple(mode.name for mode in self.modes)

    @cached_property
    def least_send_s(self) -> Floats:
        """`least_send_s[k]`: the least collective that a group from gradient k on can have; 0 at the end."""
        least_s = np.zeros(self.count + 1)
        for k in range(self.count):
            ends = np.arange(k + 1, self.count + 1)
            least_s[k] = min(float(mode.send_s(k, ends).min()) for mode in self.modes)
        return least_s

    @cached_property
    def least_send_to_s(self) -> Floats:
        """`least_send_to_s[k]`: the least collective that a group up to cut k can have; 0 at the start."""
        least_s = np.zeros(self.count + 1)
        for k in range(1, self.count + 1):
            least_s[k] = min(float(mode.send_s(np.arange(k), k).min()) for mode in self.modes)
        return least_s

    def worked_s(self, work_s: Floats | float) -> Floats:
        """When the cores can be through with the backward pass and so much work of groups; 0 where they are enough."""
        return np.asarray(self.ready_s[-1] + work_s) / self.cores if self.cores else np.zeros_like(work_s)

    def step_s(self, fusion: Fusion) -> float:
        """How long the step takes, forward included: f(X_y) in the paper."""
        return self.forward_s + timeline(self, fusion).end_s


@dataclass(frozen=True)
class Timeline:
    """When a fusion's groups are ready, encoded, sent, decoded, in seconds after the backward pass begins; per group.

    `ready_s`: its last gradient is there, were there no compression before it. `compress_s`, `send_s`, `decode_s`: what
    is done on the stream, the collective, and what is done after it take; `work_s`: processor seconds of all three.
    `compressed_s`: it is encoded. `sending_s`, `sent_s`: its collective begins, ends. `decoded_s`: it is there.
    `worked_s`: when the cores can be through with everything, 0 where there are enough.
    """

    ready_s: Floats
    compress_s: Floats
    send_s: Floats
    decode_s: Floats
    work_s: Floats
    compressed_s: Floats
    sending_s: Floats
    sent_s: Floats
    decoded_s: Floats
    worked_s: float

    @property
    def end_s(self) -> float:
        """When the last group is there, and the cores are through."""
        return max(float(self.decoded_s[-1]), self.worked_s)

    @property
    def exposed_s(self) -> float:
        """The communication, decoding and other work that no backward or encoding hides."""
        return self.end_s - float(self.compressed_s[-1])


def timeline(costs: Costs, fusion: Fusion) -> Timeline:
    """The time line of a fusion (section 4.1 of the paper). Raises `InputError` unless groups cover the gradients."""
    _check_covers(fusion, costs.count)
    ends = np.array(fusion.ends)
    starts = np.append(0, ends[:-1])
    compress_s, send_s, decode_s, work_s = np.zeros((4, len(ends)))
    names = np.array(fusion.modes)
    for name in dict.fromkeys(fusion.modes):
        check_known("mode", name, costs.names)
        mode, rows = costs.modes[costs.names.index(name)], np.flatnonzero(names == name)
        where = starts[rows], ends[rows]
        compress_s[rows], send_s[rows], decode_s[rows], work_s[rows] = (
            mode.compress_s(*where), mode.send_s(*where), mode.decode_s(*where), mode.work_s(*where),
        )  # fmt: skip
    ready_s = costs.ready_s[ends]
    compressed_s = ready_s + np.cumsum(compress_s)
    sending_s = _one_by_one(compressed_s, send_s)
    sent_s = sending_s + send_s
    decoded_s = _one_by_one(sent_s, decode_s) + decode_s
    worked_s = float(costs.worked_s(work_s.sum()))
    return Timeline(ready_s, compress_s, send_s, decode_s, work_s, compressed_s, sending_s, sent_s, decoded_s, worked_s)


def _one_by_one(from_s: Floats, take_s: Floats) -> Floats:
    """When jobs on a serial resource begin, each from its own time on and after the one before it.

    Unrolled, the latest of all earlier jobs' times plus what is done from there on.
    """
    before_s = np.cumsum(take_s) - take_s
    return np.maximum.accumulate(from_s - before_s) + before_s


def _check_covers(fusion: Fusion, count: int) -> None:
    ends = fusion.ends
    rising = all(before < after for before, after in zip((0, *ends), ends, strict=False))
    if not rising or ends[-1:] != (count,):
        raise InputError(f"ends: must rise from 1 or more to {count}, the number of gradients, got {ends}")
    if len(fusion.modes) != len(ends):
        raise InputError(f"modes: must be one for each of {len(ends)} groups, got {len(fusion.modes)}")
