"""What a step takes: the backward pass with its compression, and the sends of DDP's buckets, on one time line.

All that a rank computes to send a bucket is done on the compute stream before the bucket's collectives, which take the
network one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.io.ddp_buckets import assigned_groups
from gapless.model import Model
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.gradients.communication import Network, all_gather_cost, all_reduce_cost
from gapless.profiles.gradients.cost_functions import FREE, AffineCost
from gapless.profiles.gradients.fusion import Costs, Fusion, Timeline, timeline
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["Step"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DDP_CAPS_MIB = (1, 25)
"""Of DDP's first bucket and of all others, unless somebody sets them."""
_CHOSEN = "chosen"


@dataclass(frozen=True)
class Step:
    """A training step of a trace's layers. `groups`: (first, last) layer of each bucket. `compress_s`, `send_s`: float,
    shape (L, M): of each layer in each mode; `start_s`: what a bucket's collectives take besides, whatever is sent.
    """

    trace: CompressionTrace
    groups: tuple[tuple[int, int], ...]
    compress_s: Floats
    send_s: Floats
    start_s: float

    @classmethod
    def of(cls, trace: CompressionTrace, network: Network | None) -> Step:
        """The step on a network; sends are free without one. A bucket has all collectives that offered modes need."""
        plain = [FLOAT_BYTES * int(np.prod(shape)) for shape in trace.shapes]
        groups = assigned_groups(plain, _DDP_CAPS_MIB)
        reduce, gather = (FREE, FREE) if network is None else (all_reduce_cost(network), all_gather_cost(network))
        methods = [method_of(mode) for mode in trace.modes]
        messages = [(method.collective == "all_reduce", method.messages) for method in methods]
        slope = [(reduce if reduces else gather).beta_s_per_byte for reduces, _ in messages]
        most = {
            kind: max((count for reduces, count in messages if reduces == kind), default=0) for kind in (True, False)
        }
        start_s = most[True] * reduce.alpha_s + most[False] * gather.alpha_s
        return cls(trace, tuple(groups), trace.compress_s, trace.sent_bytes * np.array(slope), start_s)

    def timeline(self, modes: Ints) -> Timeline:
        """When buckets are compressed and sent, with modes of shape (L,)."""
        rows = np.arange(len(modes))
        compress_s, send_s = self.compress_s[rows, modes], self.send_s[rows, modes]
        mode = Mode(
            _CHOSEN,
            AffineCost(self.start_s, 1.0),  # of what is sent, here counted in seconds
            encode=AffineCost(0.0, 1.0),
            encoded_bytes=tuple(compress_s.tolist()),
            sent_bytes=tuple(send_s.tolist()),
        )
        trace = self.trace
        sizes = np.array([FLOAT_BYTES * int(np.prod(shape)) for shape in trace.shapes], dtype=np.int64)
        profile = FusionProfile(trace.name, trace.forward_s, trace.layer_names, sizes, trace.backward_s, (mode,))
        return timeline(Costs.of(profile), Fusion.uniform([last + 1 for _, last in self.groups], _CHOSEN))

    def duration_s(self, modes: Ints) -> float:
        """How long the step takes, forward included, with modes of shape (L,)."""
        return self.trace.forward_s + self.timeline(modes).end_s

    def add_limit(self, model: Model, chosen: Sequence[Ints], limit_s: float) -> None:
        """Rows: with the columns `chosen[k]`, int64, shape (L, M), of the modes of step k, it takes `limit_s` at most.

        For every bucket: what comes before its sends, those, and the sends of all buckets after it. That is the time
        line unrolled, so that no column is a time.
        """
        ready_s = self.trace.forward_s + np.cumsum(self.trace.backward_s)
        unit_s = limit_s or 1.0
        for number, (_, last) in enumerate(self.groups):
            first = self.groups[number][0]
            weight_s = np.zeros_like(self.send_s)
            weight_s[: last + 1] += self.compress_s[: last + 1]
            weight_s[first:] += self.send_s[first:]
            left_s = limit_s - float(ready_s[last]) - self.start_s * (len(self.groups) - number)
            columns = np.stack([each.reshape(-1) for each in chosen])
            model.add(
                f"bucket_{number}_and_those_after_it_end_in_time", (weight_s.reshape(-1) / unit_s, columns),
                upper=left_s / unit_s,
            )  # fmt: skip
