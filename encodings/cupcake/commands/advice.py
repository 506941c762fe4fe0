"""Whether to compress at all: the best plan of each compressor against plain buckets, and where it stops paying.

A compressor's plan may leave groups plain. Up to which bandwidth it pays is a question of its own: all gradients
compressed, in the best size of buckets, against plain ones in theirs. Latencies are rarely known well, so that comes
with the range over a tenth to ten times the one given.

Compressors are ranked by the time to a loss: what a step takes, times how many more steps a mode takes, as measured on
a small model. What wasn't measured is never the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from gapless.encodings.cupcake.commands.compared import (
    Crossover,
    Option,
    finite,
    in_words,
    limit_words,
    pays_in_range,
)
from gapless.encodings.cupcake.commands.steps_to_loss import BASIS
from gapless.encodings.cupcake.methods.baselines import Baseline, buckets
from gapless.encodings.cupcake.question import DEVICE
from gapless.encodings.cupcake.solve import BestFusion, best_fusion
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import Deadline, SolveOptions
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.compressor import ERRORS, Compressor, relative_speed
from gapless.profiles.compressors.grammar import compressor_names, named_compressor
from gapless.profiles.devices import Device
from gapless.profiles.gradients.communication import (
    Network,
    TwoLevelNetwork,
    buffer_bytes,
    find_network,
    gathered_bytes,
)
from gapless.profiles.gradients.ddp_model import crossover_bytes_per_s, ddp_model
from gapless.profiles.gradients.fusion import Costs
from gapless.profiles.gradients.modes import PLAIN
from gapless.profiles.gradients.named import find_fusion_profile, with_compressors
from gapless.profiles.gradients.network_question import DECODED, TOGETHER
from gapless.profiles.gradients.profile import FusionProfile
from gapless.report.short_repr import BriefText
from gapless.report.text import described, table
from gapless.units import format_bytes

__all__ = ["LATENCIES", "Advice", "advise", "compression", "network_data"]

LATENCIES = (0.1, 10.0)
"""Times the one given: the range over which a crossover is looked for."""

_PRECISION = 2e-3
"""Of a crossover: times that are estimated don't distinguish bandwidths more closely."""

_SEARCH_S = 60.0
"""What one search may take at most, as `solve` does by default."""

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share."""

_UNKNOWN = "unknown"
"""The class of errors of which nothing is known."""


@dataclass(frozen=True, repr=False)
class Advice(BriefText):
    """Options by class of error, the fastest first, and what they compete with: no compression, the best buckets.

    `memory_bytes`: what a rank has for the buffers of a compressor; `decoded`: one of `DECODED`. `left_out`: the names
    of the compressors that there was no time for, empty where there are none.
    """

    profile: FusionProfile
    network: Network
    device: str
    plain: Baseline
    options: tuple[Option, ...]
    memory_bytes: float = math.inf
    left_out: str = ""
    decoded: str = TOGETHER

    @property
    def plain_scaling(self) -> float:
        """Step time of one worker alone over that without compression."""
        return self.profile.compute_s / self.plain.iteration_s

    @property
    def best(self) -> Option | None:
        """The option that is known to converge, whose messages fit, and that takes the least time to a loss; None where
        plain buckets do."""
        known = [each for each in self.options if each.compressor.error != _UNKNOWN and each.steps is not None]
        return self._fastest(known)

    @property
    def best_by_error(self) -> dict[str, Option | None]:
        """The same in each class of error; of what wasn't measured the fastest step, where no other is better."""
        classes = groupby(self.options, key=lambda option: option.compressor.error)
        return {error: self._fastest(list(options)) for error, options in classes}

    @property
    def shown(self) -> tuple[Option, ...]:
        """Plain buckets, and all options."""
        plain, plan = self.plain, f"buckets of {self.plain.setting}"
        groups, scaling = plain.fusion.groups, self.plain_scaling
        return (Option(NONE, groups, (), plain.iteration_s, None, scaling, 0.0, None, 0.0, plan=plan), *self.options)

    @cached_property
    def rows(self) -> list[dict[str, object]]:
        """What is shown, in plain values."""
        return [option.data for option in self.shown]

    @property
    def data(self) -> dict[str, object]:
        """The answer in plain values."""
        best = self.rows[0] if self.best is None else self.best.data
        return {
            "problem": "cupcake", "profile": self.profile.name, "batch": self.profile.batch or None,
            "device": self.device, **network_data(self.network), "compute_s": self.profile.compute_s,
            "best": {key: best[key] for key in ("compressor", "error", "plan", "iteration_s", "time_saved", "steps")},
            "best_by_error": {
                error: None if option is None else option.compressor.name
                for error, option in self.best_by_error.items()
            },
            "steps_measured_on": BASIS, "curve": [option.compressor.name for option in self.curve],
            "warnings": list(self.warnings), "rows": self.rows,
        }  # fmt: skip

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of what isn't known to converge, and of what doesn't fit."""
        unknown = [option.compressor.name for option in self.options if option.compressor.error == _UNKNOWN]
        found = [f"{', '.join(unknown)}: {ERRORS[_UNKNOWN]}"] if unknown else []
        known = [option for option in self.options if option.compressor.error != _UNKNOWN]
        unmeasured = [option.compressor.name for option in known if option.steps is None]
        if unmeasured:
            found.append(f"{', '.join(unmeasured)}: never the best, since nobody measured how many steps it takes")
        whole = ddp_model(self.profile, self.network)
        for option in self.options:
            needed, line = self._buffer_bytes(option), ""
            if needed > self.memory_bytes:
                sizes = f"{format_bytes(needed)} of buffers, more than {format_bytes(self.memory_bytes)}"
                line = f"{option.compressor.name}: the largest group of its plan needs {sizes}"
            elif math.isfinite(self.memory_bytes):
                line = whole.refusal(option.compressor, self.memory_bytes, self.decoded)
            found += [line] if line else []
        return tuple(found)

    def _buffer_bytes(self, option: Option) -> float:
        """Of the largest group that is compressed."""
        return buffer_bytes(self.network, option.compressor, option.largest_bytes, self.decoded)

    def _fastest(self, options: Sequence[Option]) -> Option | None:
        """Of those that fit, and compress something or are another plan for plain gradients."""
        fitting = [
            option
            for option in options
            if self._buffer_bytes(option) <= self.memory_bytes and (option.compressed or option.compressor is NONE)
        ]
        option = min(fitting, key=lambda option: (option.to_loss_s, option.iteration_s), default=None)
        if option is None:
            return None
        saved = option.time_saved if option.steps is None else 1 - option.to_loss_s / self.plain.iteration_s
        return option if saved > _ROUNDING else None

    @property
    def curve(self) -> tuple[Option, ...]:
        """Options than which none takes as little for a step and as few steps, the fastest step first."""
        found: list[Option] = []
        known = [each for each in self.options if each.steps is not None and each.compressor.error != _UNKNOWN]
        for option in sorted(known, key=lambda each: (each.iteration_s, each.to_loss_s)):
            if not found or (option.steps or 0) < (found[-1].steps or 0):
                found.append(option)
        return tuple(found)

    @property
    def text(self) -> str:
        """The answer as a table, and in a line for each class of error."""
        titles = ["error", "compressor", "plan", "groups", "compressed", "iteration", "scaling", "time saved", "steps"]
        lines = [[*titles, "gathered", "pays below", "range"]]
        for option in self.shown:
            row = pays_in_range(option.crossover)
            lines.append([
                option.compressor.error, option.compressor.name, option.plan, str(len(option.groups)),
                str(len(option.compressed)), described("iteration_s", option.iteration_s), f"{option.scaling:.3f}",
                f"{100 * option.time_saved:.1f} %", option.steps_words, format_bytes(option.gathered_bytes),
                limit_words(row),
                "-" if row["range"] is None else " .. ".join(map(limit_words, row["range"])),
            ])  # fmt: skip
        said = [f"{error}, {ERRORS[error]}: {in_words(option)}" for error, option in self.best_by_error.items()]
        said += [f"warning: {warning}" for warning in self.warnings]
        batch = f"at batch {self.profile.batch}, " if self.profile.batch else ""
        low, high = (f"{factor:g}" for factor in LATENCIES)
        said += [f"pays below: all compressed, {batch}with the range over {low} to {high} times the latency"]
        said.append(f"steps: times as many as with plain gradients, all compressed, on {BASIS}")
        curve = ", ".join(option.on_curve for option in self.curve)
        said.append(f"no other has a shorter step and fewer steps: {curve}")
        best = "no compression, plain buckets" if self.best is None else in_words(self.best)
        known = "" if self.best is None else f", class of error: {self.best.compressor.error}"
        return "\n".join([table(lines), *said, f"best: {best}{known}"])


def compression(
    profile: str | Path | FusionProfile,
    *,
    compressor: Sequence[str | Compressor] = ("all",),
    device: str | Device = DEVICE,
    error: str | None = None,
    memory: float | None = None,
    decoded: str = TOGETHER,
    options: SolveOptions | None = None,
    **network: Any,
) -> Advice:
    """Whether compressing the gradients of a profile pays on a network, and with which of the compressors.

    `all` among the compressors stands for all of them. `error`: the worst class of `ERRORS` that is accepted.
    `memory`: what a rank has for the buffers of a compressor, in bytes; `decoded`: one of `DECODED`. `options`: of the
    searches; their time limit is that of all of them together. `network`: as for `find_network`.
    Raises `InputError` as `find_network` and `advise` do.
    """
    found = find_network(**network)
    asked = list(dict.fromkeys([compressor] if isinstance(compressor, str) else compressor))
    chosen = [named_compressor(name) for name in (compressor_names() if "all" in asked else asked)]
    if error is not None:
        check_known("error", error, ERRORS)
        classes = list(ERRORS)[: list(ERRORS).index(error) + 1]
        chosen = [each for each in chosen if each.error in classes]
        if not chosen:
            raise InputError(f"error: leaves no compressor, none of those asked for is {error} or better")
    advice = advise(find_fusion_profile(profile), found, chosen, device, options)
    check_known("decoded", decoded, DECODED)
    return replace(advice, memory_bytes=math.inf if memory is None else memory, decoded=decoded)


def advise(
    profile: FusionProfile,
    network: Network,
    compressors: Sequence[Compressor],
    device: str | Device = DEVICE,
    options: SolveOptions | None = None,
) -> Advice:
    """Compare compressors on a profile's gradients; its own costs are replaced by theirs on the network.

    `none` among the compressors stands for the best fusion without compression. A compressor whose plan isn't found in
    time is left out. Raises `InputError` for a network of one rank, and for a step that takes no time.
    """
    if network.ranks < 2:
        raise InputError(f"ranks: must be >= 2 for there to be something to communicate, got {network.ranks}")
    if profile.compute_s <= 0:
        raise InputError(
            f"profile {profile.name!r}: forward_s and backward_s must not all be 0: nothing to scale against"
        )
    deadline = Deadline(options or SolveOptions())
    case = _Case(profile, network, relative_speed(device), deadline)
    plain = case.bucketed(network, NONE)
    name = device if isinstance(device, str) else device.name
    found: list[Option] = []
    for compressor in compressors:
        option = None if deadline.over else _option(case, compressor, plain)
        if option is None or deadline.over:  # whatever was cut short is not its best plan
            break
        found.append(option)
    left_out = ", ".join(compressor.name for compressor in compressors[len(found) :])
    classes = list(ERRORS)
    found.sort(key=lambda option: (classes.index(option.compressor.error), option.iteration_s))
    return Advice(profile, network, name, plain, tuple(found), left_out=left_out)


def network_data(network: Network) -> dict[str, object]:
    """A network in plain values; an unlimited bandwidth is None. In two levels, bandwidth and latency are of nodes."""
    outer = network.outer
    data: dict[str, object] = {
        "ranks": network.ranks, "bandwidth_bytes_per_s": finite(outer.bytes_per_s), "latency_s": outer.alpha_s,
        "aggregation": outer.aggregation, "ranks_per_node": network.ranks_per_node,
    }  # fmt: skip
    if isinstance(network, TwoLevelNetwork):
        data |= {
            "inner_bandwidth_bytes_per_s": finite(network.inner.bytes_per_s),
            "inner_latency_s": network.inner.alpha_s,
        }
    return data


@dataclass(frozen=True)
class _Case:
    """Gradients on a network. `speed`: how much faster than a V100 the device encodes and decodes."""

    profile: FusionProfile
    network: Network
    speed: float
    deadline: Deadline

    def under(self, network: Network, compressors: Sequence[Compressor]) -> FusionProfile:
        return with_compressors(self.profile, compressors, network, self.speed)

    def bucketed(self, network: Network, compressor: Compressor) -> Baseline:
        """All gradients in one mode, the best of several sizes of buckets."""
        return buckets(Costs.of(self.under(network, [compressor])))

    def best(self, compressor: Compressor) -> BestFusion:
        offered = list(dict.fromkeys([NONE, compressor]))
        options = replace(self.deadline.stage(_SEARCH_S), on_progress=None)
        return best_fusion(self.under(self.network, offered), options)

    def crossover(self, compressor: Compressor) -> Crossover:
        def at(alpha_s: float) -> float:
            def saved_s(bytes_per_s: float) -> float:
                network = self.network.with_outer(bytes_per_s=bytes_per_s, alpha_s=alpha_s)
                plain_s = self.bucketed(network, NONE).iteration_s
                return plain_s * (1 - _ROUNDING) - self.bucketed(network, compressor).iteration_s

            return crossover_bytes_per_s(saved_s, _PRECISION)

        alpha_s = self.network.outer.alpha_s
        found = [at(alpha_s), *(at(factor * alpha_s) for factor in LATENCIES if alpha_s)]
        return Crossover(found[0], min(found), max(found))


def _option(case: _Case, compressor: Compressor, plain: Baseline) -> Option:
    found = case.best(compressor)
    compressed = tuple(number for number, mode in enumerate(found.fusion.modes) if mode != PLAIN)
    size_bytes = [int(case.profile.size_bytes[first : last + 1].sum()) for first, last in found.groups]
    largest_bytes = float(max((size_bytes[number] for number in compressed), default=0))
    return Option(
        compressor=compressor,
        groups=found.groups,
        compressed=compressed,
        iteration_s=found.iteration_s,
        bound_s=found.bound_s,
        scaling=case.profile.compute_s / found.iteration_s,
        time_saved=1 - found.iteration_s / plain.iteration_s,
        crossover=None if compressor is NONE else case.crossover(compressor),
        gathered_bytes=gathered_bytes(case.network, compressor, largest_bytes),
        largest_bytes=largest_bytes,
    )
