"""The performance model held against measurements: backward pass and synchronisation, plain and compressed.

As section 4.2.4 of *Utility of gradient compression* verifies it: what the model needs is measured first (the backward
pass alone, encode and decode of all gradients), then every setting runs under DDP, with a warm-up that doesn't count.
Plain gradients go in buckets beside the backward pass, compressed ones all at once after it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gapless.encodings.cupcake.commands.execution import Row, middle_half, run_fusions
from gapless.encodings.cupcake.commands.profiling import Measurement, measure_model
from gapless.encodings.cupcake.question import Measuring, ModelValidationQuestion, Running
from gapless.io.formats.ddp_buckets import assigned_groups
from gapless.profiles.compressors.compressor import Compressor, measured_compressor
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.gradients.communication import Network, find_network
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.ddp_model import SLOWDOWN, DdpModel
from gapless.profiles.gradients.fusion import Costs, Fusion
from gapless.profiles.gradients.modes import PLAIN, Mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bandwidth, format_seconds

__all__ = ["validate_model", "whole_profile"]

_MIB = 2**20


@dataclass(frozen=True)
class _Checked:
    """One mode in one setting: what the model says of backward pass and synchronisation, and what ran."""

    mode: str
    predicted_s: float
    row: Row

    @property
    def measured_s(self) -> tuple[float, ...]:
        """Of every step that counts."""
        return self.row.measured.synced_s

    @property
    def median_s(self) -> float:
        """The median step."""
        return statistics.median(self.measured_s)

    @property
    def error(self) -> float:
        """By what share the median is off the prediction."""
        return abs(self.median_s / self.predicted_s - 1)

    @property
    def timeline_error(self) -> float:
        """The same of Cupcake's time line and the whole step."""
        return abs(self.row.ratio - 1)

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        low_s, high_s = middle_half(self.measured_s)
        return {
            "mode": self.mode, "predicted_s": self.predicted_s, "median_s": self.median_s, "error": self.error,
            "least_s": min(self.measured_s), "most_s": max(self.measured_s), "middle_half_s": [low_s, high_s],
            "mean_s": statistics.mean(self.measured_s), "timeline_error": self.timeline_error,
            "is_as_planned": self.row.is_as_planned, "late_s": self.row.measured.late_s,
        }  # fmt: skip


@dataclass(frozen=True)
class _Setting:
    """A model on so many processes and a wire; plain first."""

    model: str
    ranks: int
    bytes_per_s: float
    backward_s: float
    gradient_bytes: int
    checked: Sequence[_Checked]

    @property
    def agreed(self) -> int:
        """For how many modes it is as predicted whether compressing pays."""
        plain, *rest = self.checked
        is_less = [(each.predicted_s < plain.predicted_s, each.median_s < plain.median_s) for each in rest]
        return sum(said == found for said, found in is_less)

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        return {
            "model": self.model, "ranks": self.ranks, "bandwidth_bytes_per_s": self.bytes_per_s,
            "backward_s": self.backward_s, "gradient_bytes": self.gradient_bytes,
            "rows": [each.data for each in self.checked],
        }  # fmt: skip


def validate_model(question: ModelValidationQuestion, session: Session) -> Answer:
    """Every model in every setting; errors of all predictions, the median and the worst."""
    counts = question.repeats, question.wait
    gamma = question.gamma or (1.0 if question.emulate == "step" else SLOWDOWN)
    settings = []
    for model, ranks in product(question.model, question.ranks):
        how = Measuring(model, ranks, question.hooks, question.repeats, *counts)
        measurement = measure_model(how, session, is_whole=True)
        running = Running(model, ranks, question.emulate, question.dilation, *counts)
        for bytes_per_s in question.bandwidth:
            network = find_network(ranks=ranks, bandwidth=bytes_per_s, latency=question.latency)
            settings.append(_checked(measurement, network, running, question, gamma, session))
    return _answer(settings, question, gamma)


def _checked(
    measurement: Measurement,
    network: Network,
    running: Running,
    question: ModelValidationQuestion,
    gamma: float,
    session: Session,
) -> _Setting:
    profile, compressors = whole_profile(measurement, network)
    model = DdpModel(
        profile.total_bytes, float(profile.backward_s.sum()), network, question.bucket, gamma,
    )  # fmt: skip
    sizes = profile.size_bytes.tolist()
    ends = [last + 1 for _, last in assigned_groups(sizes, [question.bucket / _MIB])]
    fusions = {PLAIN: Fusion.uniform(ends, PLAIN)}
    predicted_s = {PLAIN: model.uncompressed_s()}
    for compressor in compressors:
        fusions[compressor.name] = Fusion.uniform([len(sizes)], compressor.name)
        predicted_s[compressor.name] = model.compressed_s(compressor)
    rows = run_fusions(fusions, profile, Costs.of(profile), running, session, warm_up=question.warm_up)
    checked = [_Checked(name, predicted_s[name], row) for name, row in zip(fusions, rows, strict=True)]
    bytes_per_s = network.outer.bytes_per_s
    return _Setting(running.model, running.ranks, bytes_per_s, model.backward_s, profile.total_bytes, checked)


def whole_profile(measurement: Measurement, network: Network) -> tuple[FusionProfile, list[Compressor]]:
    """What was measured of all gradients in one group: the profile of the wire that is emulated, and the compressors
    as the model has them.

    The wire takes as many messages as a mode has; the model has one collective for each.
    """
    from gapless.torch.ddp.fitting import on_network

    gradients, modes, compressors = measurement.gradients, [], []
    total = sum(gradients.size_bytes)
    for times in measurement.times:
        method = method_of(times.mode)
        sent = tuple(method.added_bytes(shape, FLOAT_BYTES) for shape in gradients.shapes)
        wire = on_network(method, network, AffineCost(times.between_s, 0.0))
        coding = (AffineCost(times.encode_s, 0.0), AffineCost(times.decode_s, 0.0))
        if times.mode == PLAIN:
            modes.append(Mode(PLAIN, on_network(method, network, AffineCost(0.0, 0.0)), error="exact"))
            continue
        modes.append(Mode(times.mode, wire, *coding, error=method.error, sent_bytes=sent))
        compressors.append(
            measured_compressor(
                times.mode, method, total, math.fsum(sent), times.encode_s + times.between_s, times.decode_s,
                network.outer.ranks,
            )
        )  # fmt: skip
    profile = FusionProfile(
        name=measurement.model,
        forward_s=gradients.forward_s,
        tensor_names=gradients.names,
        size_bytes=np.array(gradients.size_bytes, dtype=np.int64),
        backward_s=np.array(gradients.gaps_s),
        modes=tuple(modes),
        source=measurement.how,
        shapes=gradients.shapes,
    )
    return profile, compressors


def _answer(settings: Sequence[_Setting], question: ModelValidationQuestion, gamma: float) -> Answer:
    checked = [each for setting in settings for each in setting.checked]
    errors = [each.error for each in checked]
    agreed, compared = sum(each.agreed for each in settings), len(checked) - len(settings)
    is_valid = all(each.row.is_as_planned for each in checked)
    lines = [["model", "ranks", "wire", "gradients", "predicted", "median", "least .. most", "error", "time line"]]
    for setting in settings:
        wire = format_bandwidth(setting.bytes_per_s)
        for each in setting.checked:
            between = f"{format_seconds(min(each.measured_s))} .. {format_seconds(max(each.measured_s))}"
            times = format_seconds(each.predicted_s), format_seconds(each.median_s), between
            own = f"{each.error:.1%}", f"{each.timeline_error:.1%}"
            lines.append([setting.model, str(setting.ranks), wire, each.mode, *times, *own])
    late = sum(each.row.is_late for each in checked)
    said = [
        f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}, of {len(errors)} predictions of "
        f"backward pass and synchronisation, gamma {gamma:g}",
        f"whether compressing pays is as predicted in {agreed} of {compared}",
    ]
    said += [f"{late} of them with sends that fell behind the emulated wire, as on a busy machine"] if late else []
    data = {
        "emulated": question.emulate, "dilation": question.dilation, "gamma": gamma, "valid": is_valid,
        "repeats": question.repeats, "warm_up": question.warm_up,
        "median_error": statistics.median(errors), "worst_error": max(errors),
        "timeline_median_error": statistics.median(each.timeline_error for each in checked),
        "agreed": agreed, "compared": compared, "settings": [setting.data for setting in settings],
    }  # fmt: skip
    return Answer(data, "\n".join([table(lines), *said]), is_valid=is_valid)
