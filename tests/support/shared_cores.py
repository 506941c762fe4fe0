"""A step on few cores as a fluid that flows: what an operating system does, step by step, to hold the model against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gapless.profiles.gradients.fusion import Costs, Fusion, timeline

POLICIES = ("stream first", "equal shares")
_NOTHING = 1e-15


@dataclass
class _Lane:
    """Jobs one after the other, each from when it is released: work left, least time on the clock left."""

    work_s: Sequence[float]
    least_s: Sequence[float]
    released: list[int] = field(default_factory=list)
    at: int = 0
    left_s: float = 0.0
    still_s: float = 0.0
    is_begun: bool = False

    def begin(self) -> bool:
        """Whether a job is under way."""
        if not self.is_begun and self.at < len(self.released):
            job = self.released[self.at]
            self.left_s, self.still_s, self.is_begun = self.work_s[job], self.least_s[job], True
        return self.is_begun


def flowed_s(costs: Costs, fusion: Fusion, policy: str) -> float:
    """When a step ends whose stream, collectives and decoding share the cores; each takes one core at most.

    A collective is over once its time is, and its work is done. `policy`: of `POLICIES`; first the stream, then the
    collective, then decoding, or all the same share.
    """
    times, count = timeline(costs, fusion), len(fusion.ends)
    stream_s = (np.diff(times.ready_s, prepend=0.0) + times.compress_s).tolist()
    sending_s = (times.work_s - times.compress_s - times.decode_s).tolist()
    stream = _Lane(stream_s, [0.0] * count, list(range(count)))
    network = _Lane(sending_s, times.send_s.tolist())
    decoder = _Lane(times.decode_s.tolist(), [0.0] * count)
    lanes, at_s = (stream, network, decoder), 0.0
    while decoder.at < count:
        active = [lane for lane in lanes if lane.begin()]
        working = [lane for lane in active if lane.left_s > _NOTHING]
        rates = dict(zip(map(id, working), _rates(len(working), costs.cores or 3.0, policy), strict=True))
        step_s = min(
            [lane.left_s / rates[id(lane)] for lane in working if rates[id(lane)]]
            + [lane.still_s for lane in active if lane.still_s > _NOTHING],
            default=0.0,
        )
        at_s += step_s
        for lane, then in zip(lanes, (network, decoder, None), strict=True):
            if not lane.is_begun:
                continue
            lane.left_s -= step_s * rates.get(id(lane), 0.0)
            lane.still_s -= step_s
            if lane.left_s <= _NOTHING and lane.still_s <= _NOTHING:
                if then is not None:
                    then.released.append(lane.released[lane.at])
                lane.at, lane.is_begun = lane.at + 1, False
    return at_s


def _rates(working: int, cores: float, policy: str) -> list[float]:
    if policy == "equal shares":
        return [min(1.0, cores / working)] * working if working else []
    return [max(0.0, min(1.0, cores - place)) for place in range(working)]
