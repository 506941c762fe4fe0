"""Problem: a trace of what modes spoil, and what may be sent, or how long a step may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.brief import BriefQuestion
from gapless.budget import Items
from gapless.encodings.ranks.question import METHODS, METHODS_BY_EPOCH, PHASES, Question
from gapless.encodings.ranks.step import Step
from gapless.errors import InputError
from gapless.fields import Share
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compression.trace_file import read_compression_trace
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.gradients.communication import Network, find_network
from gapless.question import from_question

__all__ = ["Problem", "problem", "problem_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which mode each layer's gradient is sent in, in each epoch, so that the errors of all steps have the least sum.

    An epoch's error counts with the square of its learning rate, for each of its steps. `data_bytes`: the most that a
    rank may send over the whole training; `step_time_s`: the longest that any step may take on the `network`; None for
    no limit, but there must be one. `phases`: `static`, one mode a layer throughout, or `epoch`. `switches`: at most so
    many epochs may have other modes than the epoch before; None for no limit. Raises `InputError` naming the field.
    """

    trace: CompressionTrace = field(repr=False)
    data_bytes: int | None = None
    step_time_s: float | None = None
    network: Network | None = None
    phases: str = Question.phases
    switches: int | None = None
    method: str = Question.method

    def __post_init__(self) -> None:
        check_known("phases", self.phases, PHASES)
        check_known("method", self.method, METHODS)
        if self.data_bytes is None and self.step_time_s is None:
            raise InputError("data: must be given, the most that is sent (1571.8Mfloats, 0.3x), or step_time (10ms)")
        if self.step_time_s is not None and self.network is None:
            raise InputError("step_time: needs a network; give workers and bandwidth")
        if self.switches is not None and self.phases == "static":
            raise InputError("switches: goes with phases epoch; static modes never switch")
        if self.data_bytes is None and self.method not in ("auto", "milp"):
            raise InputError(f"method: {self.method} needs data, a budget on what is sent")
        if self.method in METHODS_BY_EPOCH and self.phases == "static":
            raise InputError(f"method: {self.method} needs phases epoch")
        if self.method == "budget" and not self.is_knapsack:
            raise InputError("method: budget is for data alone; without step_time and switches, or take milp")

    @property
    def is_knapsack(self) -> bool:
        """Whether the data budget is the only limit."""
        return self.step_time_s is None and self.switches is None

    @cached_property
    def cost(self) -> Ints:
        """Bytes that a rank sends of each layer in each epoch and mode, int64, shape (E, L, M)."""
        return self.trace.steps[:, None, None] * self.trace.sent_bytes

    @cached_property
    def error(self) -> Floats:
        """What that spoils, float, shape (E, L, M)."""
        return self.trace.weight[:, None, None] * self.trace.error

    @cached_property
    def step(self) -> Step:
        """The time line of a step, with free sends where there is no network."""
        return Step.of(self.trace, self.network)

    def items(self, starts: Sequence[int]) -> Items:
        """Layers by phases, which begin with these epochs: what each mode costs and spoils in all of the phase."""
        cost, error = (np.add.reduceat(each, list(starts), axis=0) for each in (self.cost, self.error))
        shape = (-1, len(self.trace.modes))
        return Items(cost.reshape(shape).astype(np.float64), error.reshape(shape))

    def spread(self, starts: Sequence[int], modes: Ints) -> Ints:
        """The modes of phases, int64, shape (E, L), from those of `items`."""
        lengths = np.diff([*starts, self.trace.epoch_count])
        return np.repeat(modes.reshape(len(starts), self.trace.layer_count), lengths, axis=0)

    @property
    def starts(self) -> tuple[int, ...]:
        """The epochs that may begin with other modes, and the first."""
        return (0,) if self.phases == "static" else tuple(range(self.trace.epoch_count))

    def sent_bytes(self, modes: Ints) -> int:
        """What a rank sends in all, in modes of shape (E, L)."""
        return int(np.take_along_axis(self.cost, modes[:, :, None], axis=2).sum())

    def spoiled(self, modes: Ints) -> float:
        """The error of all steps, in modes of shape (E, L)."""
        return float(np.take_along_axis(self.error, modes[:, :, None], axis=2).sum())

    def canonical(self, modes: Ints) -> Ints:
        """The same modes, int64, shape (E, L); of those that are alike for a layer in all epochs the first."""
        known = np.concatenate([self.cost.astype(np.float64), self.error, self.trace.compress_s[None]])
        alike = (known[:, :, :, None] == known[:, :, None, :]).all(axis=0).argmax(axis=2)
        return np.take_along_axis(alike, modes.T, axis=1).T

    @property
    def by_cost(self) -> list[int]:
        """The modes from the one that sends least of all layers to the one that sends most."""
        return [int(mode) for mode in np.argsort(self.trace.sent_bytes.sum(axis=0), kind="stable")]

    @property
    def system(self) -> str:
        """`ranks`."""
        return "ranks"

    @property
    def description(self) -> dict[str, Any]:
        """What was asked, for the plan file."""
        trace, network = self.trace, self.network
        data = {} if self.data_bytes is None else {"data_floats": self.data_bytes / FLOAT_BYTES}
        limit = {} if self.step_time_s is None else {"step_time_s": self.step_time_s}
        wire = {} if network is None else {
            "workers": network.ranks, "bandwidth_bytes_per_s": network.outer.bytes_per_s,
            "latency_s": network.outer.alpha_s,
        }  # fmt: skip
        switches = {} if self.switches is None else {"switches": self.switches}
        return {
            "trace": trace.name, "epochs": trace.epoch_count, **data, **limit, **wire, "phases": self.phases,
            **switches,
            "method": self.method, "modes": list(trace.modes), "layers": list(trace.layer_names),
            "shapes": [list(shape) for shape in trace.shapes], "steps": trace.steps.tolist(),
            "learning_rates": trace.learning_rate.tolist(), "source": trace.source,
        }  # fmt: skip

    @property
    def default_options(self) -> SolveOptions:
        """Optimal; within a minute where a MILP decides."""
        return SolveOptions(time_limit_s=None if self.is_knapsack else 60.0)


def problem_of(asked: Question) -> Problem:
    """The modes of a trace's layers within a budget. Raises `InputError` naming a field that doesn't go with others."""
    trace = asked.trace if isinstance(asked.trace, CompressionTrace) else read_compression_trace(asked.trace)
    if asked.modes is not None:
        trace = trace.in_modes(asked.modes)
    network, given = None, (asked.workers, asked.bandwidth, asked.latency)
    if any(value is not None for value in given):
        if asked.workers is None or asked.bandwidth is None:
            raise InputError("workers: must be given with bandwidth, and with latency")
        network = find_network(ranks=asked.workers, bandwidth=asked.bandwidth, latency=asked.latency)
    data = asked.data
    if isinstance(data, Share):
        data = int(data.ratio * int(trace.steps.sum()) * int(trace.sent_bytes.sum(axis=0).max()))
    return Problem(trace, data, asked.step_time, network, asked.phases, asked.switches, asked.method)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
