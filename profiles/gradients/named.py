"""The fusion profiles that gapless ships, and how they are made.

Gradients, their order and the time between them follow from `gapless.profiles.training.networks`: public architectures
with times estimated for a V100. Costs are those of one setting, a server a rank: DGC in an all-gather of
8 ranks at 25 Gb/s. The files in `profiles/gradients` are what `build_fusion_profile` gives; `python -m
gapless.profiles.gradients.named FOLDER` writes them again.

A mode at published costs is a compressor on a network, by bytes or, for low ranks, by the shapes of the tensors.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.compressor import Compressor, relative_speed
from gapless.profiles.compressors.grammar import named_compressor
from gapless.profiles.compressors.low_rank import PowerSgd
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.devices import ARITHMETIC_EFFICIENCY, BANDWIDTH_EFFICIENCY, Device, named_device
from gapless.profiles.gradients.communication import (
    FlatNetwork,
    Network,
    TwoLevelNetwork,
    all_reduce_cost,
    communication_cost,
    gathered_bytes,
    in_messages,
)
from gapless.profiles.gradients.modes import PLAIN, Mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import read_fusion_profile, write_fusion_profile
from gapless.profiles.training.networks import build_with_gradients
from gapless.units import format_bandwidth, format_bytes, format_seconds

__all__ = [
    "build_fusion_profile",
    "find_fusion_profile",
    "fusion_profile_names",
    "load_fusion_profile",
    "priced_mode",
    "with_compressors",
]


_LOW_RANK_REDUCES = 3
"""All-reduces of a group one after the other in PyTorch's hook: what isn't compressed, then either factor."""


def priced_mode(
    compressor: Compressor, network: Network, shapes: Sequence[Sequence[int]] = (), speed: float = 1.0
) -> Mode:
    """The mode of a compressor (`NONE`: plain) on a network; `speed`: of the device, relative to a V100.

    A low-rank one needs the tensors' `shapes` to say what it sends; without them, and in two levels, where a rank
    encodes a share that is no matrix, it sends a ratio of the bytes.
    """
    share = network.ranks_per_node
    mode = Mode(
        name=PLAIN if compressor is NONE else compressor.name,
        communication=communication_cost(network, compressor),
        encode=compressor.encode_cost(speed).at_ratio(share),
        decode=compressor.decode_cost(network.outer.ranks, speed).at_ratio(share),
        error=compressor.error,
        gathered=gathered_bytes(network, compressor, 1.0),
    )
    if not compressor.rank or not shapes or share > 1:
        return mode
    factors = PowerSgd(compressor.rank)
    return replace(
        mode,
        communication=in_messages(all_reduce_cost(network), _LOW_RANK_REDUCES),
        encoded_bytes=tuple(FLOAT_BYTES * math.prod(shape) * float(factors.is_factored(shape)) for shape in shapes),
        sent_bytes=tuple(float(factors.sent_bytes(shape)) for shape in shapes),
    )


_NETWORK = FlatNetwork(ranks=8, bytes_per_s=25e9 / 8, alpha_s=10e-6)
_COMPRESSOR = "dgc"
_DEVICE = "v100"
_DIGITS = 9  # nanoseconds
_COSTS_FROM = "; costs: "
"""In a source, between where the gradients and where the costs are from."""


@dataclass(frozen=True)
class _Setting:
    """What a profile is built from: a network, its batch on one device, and its input size."""

    network: str
    batch: int
    input_size: int
    input_text: str


_SETTINGS = {
    "resnet50": _Setting("resnet50", 32, 224, "images of 224 x 224"),
    "resnet101": _Setting("resnet101", 32, 224, "images of 224 x 224"),
    "vgg16": _Setting("vgg16", 32, 224, "images of 224 x 224"),
    "bert-base": _Setting("bert_base", 12, 384, "sequences of 384 tokens"),
    "bert-large": _Setting("bert_large", 4, 384, "sequences of 384 tokens"),
    "gpt2": _Setting("gpt2_small", 4, 1024, "sequences of 1024 tokens"),
}


def fusion_profile_names() -> list[str]:
    """The fusion profiles that gapless ships, by name."""
    return list(_SETTINGS)


def load_fusion_profile(name: str) -> FusionProfile:
    """A fusion profile that gapless ships. Raises `InputError` for an unknown name."""
    _setting(name)
    with as_file(files("gapless.profiles.gradients") / f"{name}.json") as path:
        return read_fusion_profile(path)


def find_fusion_profile(profile: str | Path | FusionProfile) -> FusionProfile:
    """The shipped profile of that name, else the profile in that file; a profile is itself."""
    if isinstance(profile, FusionProfile):
        return profile
    if not isinstance(profile, (str, Path)):
        raise InputError(f"profile: must be a name, a file or a FusionProfile, got {type(profile).__name__}")
    name = str(profile)
    if name in _SETTINGS:
        return load_fusion_profile(name)
    if not Path(name).suffix and not os.path.exists(name):
        _setting(name)  # the error lists the names, since this looks like one
    return read_fusion_profile(name)


def build_fusion_profile(name: str) -> FusionProfile:
    """The same profile, computed afresh."""
    setting, device = _setting(name), named_device(_DEVICE)
    graph, gradients = build_with_gradients(setting.network, setting.batch, device, setting.input_size)
    forward_s = math.fsum(node.implementations[0].duration_s for node in graph.forward if node.creator is None)
    offered = (NONE, named_compressor(_COMPRESSOR))
    return FusionProfile(
        name=name,
        forward_s=round(forward_s, _DIGITS),
        tensor_names=tuple(gradient.name for gradient in gradients),
        size_bytes=np.array([gradient.size_bytes for gradient in gradients], dtype=np.int64),
        backward_s=np.array([round(gradient.backward_s, _DIGITS) for gradient in gradients]),
        modes=tuple(priced_mode(each, _NETWORK, (), relative_speed(device)) for each in offered),
        source=f"{_step_text(setting, device)}{_COSTS_FROM}{_cost_text(offered, _NETWORK)}",
        shapes=tuple(gradient.shape for gradient in gradients),
        batch=setting.batch,
    )


def with_compressors(
    profile: FusionProfile, compressors: Sequence[Compressor], network: Network, speed: float = 1.0
) -> FusionProfile:
    """The same gradients under other compressors (`NONE`: plain) on another network; `speed`: relative to a V100's."""
    return replace(
        profile,
        modes=tuple(priced_mode(each, network, profile.shapes, speed) for each in compressors),
        source=f"{profile.source.partition(_COSTS_FROM)[0]}{_COSTS_FROM}{_cost_text(compressors, network)}",
    )


def _setting(name: str) -> _Setting:
    if name not in _SETTINGS:
        hint = suggestion(name, _SETTINGS)
        raise InputError(
            f"profile: must be a file or one of {', '.join(_SETTINGS)}, got {name!r}" + (f"; {hint}" if hint else "")
        )
    return _SETTINGS[name]


def _step_text(setting: _Setting, device: Device) -> str:
    return (
        f"gradients and times estimated from the public architecture: {setting.batch} {setting.input_text} in single "
        f"precision on a {device.name} with {100 * ARITHMETIC_EFFICIENCY:g} % of {device.flops_per_s / 1e12:g} "
        f"TFLOP/s and {100 * BANDWIDTH_EFFICIENCY:g} % of {format_bytes(device.bytes_per_s)}/s"
    )


def _cost_text(compressors: Sequence[Compressor], network: Network) -> str:
    texts = []
    for compressor in compressors:
        collective = f"{network.outer.aggregation} all-reduce" if compressor.all_reducible else "all-gather"
        what = "" if compressor is NONE else f" at ratio {compressor.ratio:g}, {compressor.source}"
        texts.append(f"{PLAIN if compressor is NONE else compressor.name} by {collective}{what}")
    ranks = f"{network.ranks} ranks"
    if isinstance(network, TwoLevelNetwork):
        inner = network.inner
        speed = f"{format_bandwidth(inner.bytes_per_s)} and {format_seconds(inner.alpha_s)} a step"
        ranks = f"{network.outer.ranks} nodes of {inner.ranks} ranks, plain inside them at {speed}"
    between = f"{format_bandwidth(network.outer.bytes_per_s)} and {format_seconds(network.outer.alpha_s)} a step"
    return f"{'; '.join(texts)}; {ranks} at {between}"


def main(arguments: Sequence[str]) -> None:
    """Write all profiles into a folder."""
    (folder,) = arguments
    for name in fusion_profile_names():
        write_fusion_profile(Path(folder) / f"{name}.json", build_fusion_profile(name))


if __name__ == "__main__":
    main(sys.argv[1:])
