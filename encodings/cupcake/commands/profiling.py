"""Fusion profiles measured on a PyTorch model, through the hooks that send it: `gapless profile gradients`.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.cupcake.question import GradientsQuestion, Measuring
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.profiles.gradients.communication import Network, find_network
from gapless.profiles.gradients.modes import PLAIN
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import write_fusion_profile
from gapless.system import Answer, Session
from gapless.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.ddp.beside import StepWork
    from gapless.torch.ddp.fitting import FittedMode
    from gapless.torch.ddp.measuring import Gradients, HookTimes

__all__ = ["Measurement", "measure_model", "profile_gradients"]


def profile_gradients(question: GradientsQuestion, session: Session) -> Answer:
    """Measure a model's gradients and hooks, and write the profile."""
    check_writable(question.output)
    network = _network(question)
    measurement = measure_model(question, session)
    profile, fitted = measurement.profile(network)
    for each in fitted:
        each.check(question.within)
    write_fusion_profile(question.output, profile)
    rows = [_Row.of(each, profile.total_bytes) for each in fitted]
    data = {
        "profile": profile.name,
        "source": profile.source,
        "tensors": profile.tensor_count,
        "gradient_bytes": profile.total_bytes,
        "forward_s": profile.forward_s,
        "backward_s": float(profile.backward_s.sum()),
        "backward_spread": measurement.gradients.spread,
        "modes": [asdict(row) for row in rows],
        "output": question.output,
    }
    return Answer(data, _text(profile, measurement, rows))


@dataclass(frozen=True)
class Measurement:
    """What was measured of a model: its gradients, what hooks took to send groups of them, and what they take of the
    processor beside a backward pass. `cores`: that each rank has, below 1 where they share one. `how`: in words."""

    model: str
    gradients: Gradients
    times: Sequence[HookTimes]
    how: str
    works: Sequence[StepWork] = ()
    cores: float = 1.0

    def profile(self, network: Network | None) -> tuple[FusionProfile, list[FittedMode]]:
        """The profile, with sends as on a network or as measured, and how well its modes fit."""
        from gapless.torch.ddp.fitting import fitted_mode

        by_mode: dict[str, list[HookTimes]] = {}
        for each in self.times:
            by_mode.setdefault(each.mode, []).append(each)
        slowdown = max(1.0, 1 / self.cores)
        fitted = [
            fitted_mode(
                mode, self.gradients, times, network, [each for each in self.works if each.mode == mode], slowdown
            )
            for mode, times in by_mode.items()
        ]
        wire = "sends over gloo"
        if network is not None:
            speed, latency = format_bandwidth(network.outer.bytes_per_s), format_seconds(network.outer.alpha_s)
            wire = f"sends on a ring of {speed} and {latency} a step"
        profile = FusionProfile(
            name=self.model,
            forward_s=self.gradients.forward_s + self.gradients.finish_s,  # neither runs beside anything
            tensor_names=self.gradients.names,
            size_bytes=np.array(self.gradients.size_bytes, dtype=np.int64),
            backward_s=np.array(self.gradients.gaps_s),
            modes=tuple(each.mode for each in fitted),
            source=f"{self.how}; {wire}",
            shapes=self.gradients.shapes,
            cores=max(1.0, self.cores) if self.works else None,
        )
        return profile, fitted


def measure_model(how: Measuring, session: Session, is_whole: bool = False) -> Measurement:
    """Measure in several processes. `is_whole`: hooks send all gradients in one group only."""
    from gapless.torch.ddp.beside import cores_of_rank
    from gapless.torch.ddp.measuring import ProfileTask, measured

    modes = tuple(dict.fromkeys((PLAIN, *how.hooks)))
    task = ProfileTask(how.model, session.options.seed, modes, how.steps, how.repeats, how.ranks, how.wait, is_whole)
    session.say(f"measuring {how.model} and {len(modes)} modes in {how.ranks} processes ...")
    found = measured(task, session.options.stop)
    taken = f"medians of {how.steps} steps, hooks of {how.repeats} runs at each size"
    cores, source = cores_of_rank(how.ranks), f"measured in {how.ranks} processes on a CPU; {taken}"
    return Measurement(how.model, found.gradients, found.times, source, found.works, cores)


def _network(question: GradientsQuestion) -> Network | None:
    """An alpha-beta ring, where the user describes one."""
    if question.bandwidth is not None:
        return find_network(ranks=question.ranks, bandwidth=question.bandwidth, latency=question.latency)
    if question.latency is not None:
        raise InputError("latency: goes with bandwidth")
    return None


@dataclass(frozen=True)
class _Row:
    """What all gradients in one mode take, and how well the mode's costs fit what was measured."""

    mode: str
    error: str
    sent_bytes: float
    encode_s: float
    send_s: float
    decode_s: float
    work_s: float
    spread: float
    apart: float

    @classmethod
    def of(cls, fitted: FittedMode, total_bytes: int) -> _Row:
        """Of so many bytes in all."""
        mode = fitted.mode
        encoded, sent = (
            float(sum(sizes)) if sizes else float(total_bytes) for sizes in (mode.encoded_bytes, mode.sent_bytes)
        )
        return cls(
            mode.name, mode.error, sent, float(mode.encode(encoded)), float(mode.communication(sent)),
            float(mode.decode(encoded)), float(mode.communication_work(sent)), fitted.spread, fitted.apart,
        )  # fmt: skip


def _text(profile: FusionProfile, measurement: Measurement, rows: Sequence[_Row]) -> str:
    backward_s = format_seconds(float(profile.backward_s.sum()))
    lines = [
        f"{profile.tensor_count} gradients of {format_bytes(profile.total_bytes)}; forward "
        f"{format_seconds(profile.forward_s)}, backward {backward_s}, middle half of steps "
        f"{measurement.gradients.spread:.0%}",
        f"{'all in one':<18} {'sent':>9} {'encode':>9} {'send':>9} {'decode':>9} {'send work':>9} {'spread':>7} "
        f"{'fit within':>10}",
    ]
    for row in rows:
        times = " ".join(
            f"{format_seconds(time_s):>9}" for time_s in (row.encode_s, row.send_s, row.decode_s, row.work_s)
        )
        size = format_bytes(round(row.sent_bytes))
        lines.append(f"{row.mode:<18} {size:>9} {times} {row.spread:>7.0%} {row.apart:>10.0%}")
    return "\n".join([*lines, profile.source])
