"""The question as people ask it: a profile by name, and perhaps other costs than its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapless.encodings.cupcake.problem import Problem
from gapless.errors import InputError
from gapless.profiles.devices import Device
from gapless.profiles.gradients.communication import find_network
from gapless.profiles.gradients.compressors import Compressor, named_compressor, relative_speed
from gapless.profiles.gradients.named import find_fusion_profile, with_compressor
from gapless.profiles.gradients.profile import FusionProfile
from gapless.topologies.topology import Topology

__all__ = ["DEVICE", "problem"]

DEVICE = "v100"
"""Where gradients are encoded and decoded if nothing is said."""


def problem(
    profile: str | Path | FusionProfile,
    *,
    method: str = "auto",
    compressor: str | Compressor | None = None,
    device: str | Device | None = None,
    ranks: int | None = None,
    bandwidth: float | None = None,
    latency: float | None = None,
    topology: str | Topology | None = None,
    nodes: int | None = None,
) -> Problem:
    """The fusion of a profile's gradients, at its own costs or at a compressor's published costs on a network.

    `profile`: the name of a shipped one, a file, or the profile itself. `method`: one of `METHODS`. `device`: where a
    compressor runs. The others describe the network, as for `find_network`.
    Raises `InputError` that names an argument which is unknown, missing, or doesn't go with the others.
    """
    found = find_fusion_profile(profile)
    network: dict[str, Any] = {
        "ranks": ranks, "bandwidth": bandwidth, "latency": latency, "topology": topology, "nodes": nodes,
    }  # fmt: skip
    if compressor is None:
        for name, value in {"device": device, **network}.items():
            if value is not None:
                raise InputError(f"{name}: goes with compressor (`gapless list compressors`)")
        return Problem(found, method)
    speed = relative_speed(DEVICE if device is None else device)
    return Problem(with_compressor(found, named_compressor(compressor), find_network(**network), speed), method)
