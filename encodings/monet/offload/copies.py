"""Copies to the host and back: in which order, what waits for them, and when all of it happens on a link.

Memory is a matter of order, not of time. A step waits until the copies out are over whose bytes it needs, and a copy
back begins once the step is over from which on there is room for it. So a plan fits its budget however fast steps and
link turn out to be, and times are what follows from the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.errors import InputError

__all__ = ["Copy", "Times", "timed"]


@dataclass(frozen=True)
class Copy:
    """One tensor's way to the host and back, by the numbers of steps, in the order in which they run on the device.

    `out_after`: its last use before, after which it is copied out, -1 for the step's start. `gone_by`: the step that
    waits until it is gone. `back_after`: the step at whose end the copy back may begin. `needed_by`: the step that
    waits until it is back. What lives on the host comes first, after -1 at the earliest, and leaves after that use;
    `gone_by` may then be the number of steps, for the end.

    `node` is a forward node, whose output it is; with V forward and B backward nodes, V + b are the optimiser's states
    for the parameters whose gradients backward node b makes, and V + B + b these gradients.
    """

    node: int
    out_after: int
    gone_by: int
    back_after: int
    needed_by: int

    @property
    def lives_on_host(self) -> bool:
        """Whether it comes before it leaves."""
        return self.needed_by <= self.out_after

    def check(self, nodes: int, steps: int, backward: int = 0) -> None:
        """Raise `InputError` unless it is one of so many nodes, or of what belongs to an optimiser where there are
        `backward` nodes, and waits for no step that waits for it.

        `steps`: runs of forward and backward nodes; an update for each of the latter may follow.
        """
        is_late = nodes < self.node <= nodes + 2 * backward
        steps += backward * is_late
        if nodes < self.node <= nodes + backward and self.lives_on_host:
            is_order = -1 <= self.back_after < self.needed_by <= self.out_after < self.gone_by <= steps
        else:
            is_order = -is_late <= self.out_after < self.gone_by <= self.needed_by < steps
            is_order &= self.out_after <= self.back_after < self.needed_by
        if not ((0 <= self.node < nodes or is_late) and is_order):
            rule = "must have out_after < gone_by <= needed_by and out_after <= back_after < needed_by"
            raise InputError(f"decisions: copies {rule}, of {nodes} nodes and {steps} steps, got {self}")


@dataclass(frozen=True)
class Times:
    """When what begins, in seconds: each step, each copy out, and each copy back; the copies as they are listed."""

    start_s: list[float]
    out_s: list[float]
    back_s: list[float]
    end_s: float


def timed(duration_s: Sequence[float], copies: Sequence[Copy], copy_s: Sequence[float]) -> Times:
    """The earliest times of steps that run one after the other, and of copies.

    Copies go out in the order of their list, and come back in the order in which they are needed. A copy back also
    waits for the copies out that the step after `back_after` waits for: it may take their bytes. The end waits for all.
    """
    out_s, back_s = [0.0] * len(copies), [0.0] * len(copies)
    duration_s = [*duration_s, 0.0]
    start_s, free_s = [0.0] * len(duration_s), [0.0] * len(duration_s)  # free: when a step's bytes are, but for returns
    returns = sorted(range(len(copies)), key=lambda k: (copies[k].needed_by, copies[k].node))
    outward = gone = homeward = back = 0  # how many copies are out, are gone, are on their way back, are back
    now_s = out_free_s = back_free_s = 0.0
    for step, run_s in enumerate(duration_s):
        while outward < len(copies) and copies[outward].out_after < step:
            out_s[outward] = max(now_s, out_free_s)
            out_free_s = out_s[outward] + copy_s[outward]
            outward += 1
        while gone < outward and copies[gone].gone_by <= step:
            now_s = max(now_s, out_s[gone] + copy_s[gone])
            gone += 1
        free_s[step] = now_s
        while homeward < len(copies) and copies[returns[homeward]].back_after < step:
            copy = returns[homeward]
            there_s = 0.0 if copies[copy].lives_on_host else out_s[copy] + copy_s[copy]
            back_s[copy] = max(free_s[copies[copy].back_after + 1], back_free_s, there_s)
            back_free_s = back_s[copy] + copy_s[copy]
            homeward += 1
        while back < homeward and copies[returns[back]].needed_by <= step:
            now_s = max(now_s, back_s[returns[back]] + copy_s[returns[back]])
            back += 1
        start_s[step] = now_s
        now_s += run_s
    return Times(start_s[:-1], out_s, back_s, now_s)
