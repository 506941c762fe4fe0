"""Fusion profiles measured on a PyTorch model, through the hooks that send it: `gapless profile gradients`.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.profiles.gradients.communication import Network, find_network
from gapless.profiles.gradients.modes import PLAIN
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import write_fusion_profile
from gapless.system import Answer, Session
from gapless.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.ddp.fitting import FittedMode
    from gapless.torch.ddp.measuring import Gradients, HookTimes

__all__ = ["Measurement", "measure_model", "profile_gradients"]


def profile_gradients(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure a model's gradients and hooks, and write the profile."""
    check_writable(values["output"])
    network = _network(values)
    measurement = measure_model(values, session)
    profile, fitted = measurement.profile(network)
    write_fusion_profile(values["output"], profile)
    data = {
        "profile": profile.name,
        "source": profile.source,
        "tensors": profile.tensor_count,
        "gradient_bytes": profile.total_bytes,
        "forward_s": profile.forward_s,
        "backward_s": float(profile.backward_s.sum()),
        "backward_spread": measurement.gradients.spread,
        "modes": [_row(each, profile.total_bytes) for each in fitted],
        "output": values["output"],
    }
    return Answer(data, _text(data))


@dataclass(frozen=True)
class Measurement:
    """What was measured of a model: its gradients, and what hooks took to send groups of them. `how`: in words."""

    model: str
    gradients: Gradients
    times: Sequence[HookTimes]
    how: str

    def profile(self, network: Network | None) -> tuple[FusionProfile, list[FittedMode]]:
        """The profile, with sends as on a network or as measured, and how well its modes fit."""
        from gapless.torch.ddp.fitting import fitted_mode

        by_mode: dict[str, list[HookTimes]] = {}
        for each in self.times:
            by_mode.setdefault(each.mode, []).append(each)
        fitted = [fitted_mode(mode, self.gradients, times, network) for mode, times in by_mode.items()]
        wire = "sends over gloo"
        if network is not None:
            speed, latency = format_bandwidth(network.outer.bytes_per_s), format_seconds(network.outer.alpha_s)
            wire = f"sends on a ring of {speed} and {latency} a step"
        profile = FusionProfile(
            name=self.model,
            forward_s=self.gradients.forward_s,
            tensor_names=self.gradients.names,
            size_bytes=np.array(self.gradients.size_bytes, dtype=np.int64),
            backward_s=np.array(self.gradients.gaps_s),
            modes=tuple(each.mode for each in fitted),
            source=f"{self.how}; {wire}",
            shapes=self.gradients.shapes,
        )
        return profile, fitted


def measure_model(values: Mapping[str, Any], session: Session) -> Measurement:
    """Measure in several processes. `values`: `model`, `ranks`, `hooks`, `steps`, `repeats`, `wait`."""
    from gapless.torch.ddp.measuring import ProfileTask, measured

    modes = tuple(dict.fromkeys((PLAIN, *values["hooks"])))
    counts = (values[name] for name in ("steps", "repeats", "ranks", "wait"))
    task = ProfileTask(values["model"], session.options.seed, modes, *counts)
    session.say(f"measuring {values['model']} and {len(modes)} modes in {values['ranks']} processes ...")
    gradients, times = measured(task, session.options.stop)
    taken = f"medians of {values['steps']} steps, hooks of {values['repeats']} runs at each size"
    return Measurement(values["model"], gradients, times, f"measured in {values['ranks']} processes on a CPU; {taken}")


def _network(values: Mapping[str, Any]) -> Network | None:
    """An alpha-beta ring, where the user describes one."""
    if values["bandwidth"] is not None:
        return find_network(ranks=values["ranks"], bandwidth=values["bandwidth"], latency=values["latency"])
    if values["latency"] is not None:
        raise InputError("latency: goes with bandwidth")
    return None


def _row(fitted: FittedMode, total_bytes: int) -> dict[str, Any]:
    mode = fitted.mode
    encoded, sent = (
        float(sum(sizes)) if sizes else float(total_bytes) for sizes in (mode.encoded_bytes, mode.sent_bytes)
    )
    return {
        "mode": mode.name,
        "error": mode.error,
        "sent_bytes": sent,
        "encode_s": float(mode.encode(encoded)),
        "send_s": float(mode.communication(sent)),
        "decode_s": float(mode.decode(encoded)),
        "spread": fitted.spread,
        "apart": fitted.apart,
    }


def _text(data: Mapping[str, Any]) -> str:
    backward = f"backward {format_seconds(data['backward_s'])}, middle half of steps {data['backward_spread']:.0%}"
    lines = [
        f"{data['tensors']} gradients of {format_bytes(data['gradient_bytes'])}; forward "
        f"{format_seconds(data['forward_s'])}, {backward}",
        f"{'all in one':<18} {'sent':>9} {'encode':>9} {'send':>9} {'decode':>9} {'spread':>7} {'fit within':>10}",
    ]
    for row in data["modes"]:
        times = " ".join(f"{format_seconds(row[part]):>9}" for part in ("encode_s", "send_s", "decode_s"))
        size = format_bytes(round(row["sent_bytes"]))
        lines.append(f"{row['mode']:<18} {size:>9} {times} {row['spread']:>7.0%} {row['apart']:>10.0%}")
    return "\n".join([*lines, data["source"]])
