"""Problem: a trace of what modes spoil, and what may be sent, or how long a step may take.

What a step takes: the backward pass with its compression, and the sends of DDP's buckets, on one time line. All that a
rank computes to send a bucket is done on the compute stream before the bucket's collectives, which take the network one
after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.question import METHODS, METHODS_BY_EPOCH, PHASES, Question
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import assigned_groups
from gapless.io.record import check_known
from gapless.model import Model
from gapless.model.knapsack import Items
from gapless.options import SolveOptions
from gapless.profiles.compression.trace import CompressionTrace, read_compression_trace
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.gradients.communication import Network, all_gather_cost, all_reduce_cost, find_network
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction
from gapless.profiles.gradients.fusion import Costs, Fusion, Timeline, timeline
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.question import from_question
from gapless.question.fields import Share
from gapless.report.short_repr import BriefQuestion

__all__ = ["Problem", "Step", "problem", "problem_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DDP_CAPS_MIB = (1, 25)
"""Of DDP's first bucket and of all others, unless somebody sets them."""
_CHOSEN = "chosen"


def _line(cost: CostFunction) -> AffineCost:
    """Of a bucket's messages, which layers share by their bytes."""
    if not isinstance(cost, AffineCost):
        raise InputError("aggregation: must be ring, tree or server, since layers share a bucket's cost by their bytes")
    return cost


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
        reduce, gather = FREE, FREE
        if network is not None:
            reduce, gather = _line(all_reduce_cost(network)), _line(all_gather_cost(network))
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
    def description(self) -> dict[str, object]:
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
