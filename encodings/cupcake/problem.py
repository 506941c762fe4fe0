"""Problem: one fusion profile, to be cut into groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.encodings.cupcake.system import METHODS
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.devices import Device
from gapless.profiles.gradients.communication import find_network
from gapless.profiles.gradients.compressors import Compressor, named_compressor, relative_speed
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.named import find_fusion_profile, with_compressor
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["DEVICE", "Problem", "problem"]


@dataclass(frozen=True)
class Problem:
    """Which consecutive gradients to compress and communicate together, so that a step takes the least time.

    With the method `joint`, and `selective`, a baseline, groups may be sent without compression.
    Raises `InputError` for a `method` that doesn't exist or that the profile doesn't suit.
    """

    profile: FusionProfile
    method: str = "auto"

    def __post_init__(self) -> None:
        check_known("method", self.method, METHODS)
        if self.method == "affine" and not self._is_affine:
            raise InputError("method: affine needs affine compression and communication costs; take pareto")
        if self.method in ("joint", "selective") and self.profile.uncompressed_communication is None:
            raise InputError(f"method: {self.method} needs uncompressed_communication, which the profile doesn't have")

    @property
    def _is_affine(self) -> bool:
        return isinstance(self.profile.compression, AffineCost) and isinstance(self.profile.communication, AffineCost)

    @property
    def chosen_method(self) -> str:
        """The method that runs."""
        if self.method != "auto":
            return self.method
        return "affine" if self._is_affine else "pareto"

    @property
    def system(self) -> str:
        """`cupcake`."""
        return "cupcake"

    @property
    def description(self) -> dict[str, Any]:
        """What was asked, for the plan file."""
        return {
            "profile": self.profile.name,
            "tensors": self.profile.tensor_count,
            "gradient_bytes": self.profile.total_bytes,
            "forward_s": self.profile.forward_s,
            "backward_s": float(self.profile.backward_s.sum()),
            "method": self.method,
            "source": self.profile.source,
            "tensor_names": list(self.profile.tensor_names),
            "tensor_bytes": self.profile.size_bytes.tolist(),
        }

    @property
    def default_options(self) -> SolveOptions:
        """Optimal, within a minute."""
        return SolveOptions(time_limit_s=60.0)


DEVICE = "v100"
"""Where gradients are encoded and decoded if nothing is said."""


def problem(
    profile: str | Path | FusionProfile,
    *,
    method: str = "auto",
    compressor: str | Compressor | None = None,
    device: str | Device | None = None,
    **network: Any,
) -> Problem:
    """The fusion of a profile's gradients, at its own costs or at a compressor's published costs on a network.

    `profile`: the name of a shipped one, a file, or the profile itself. `method`: one of `METHODS`. `device`: where a
    compressor runs. `network`: as for `find_network`.
    Raises `InputError` that names an argument which is unknown, missing, or doesn't go with the others.
    """
    found = find_fusion_profile(profile)
    if compressor is None:
        for name, value in {"device": device, **network}.items():
            if value is not None:
                raise InputError(f"{name}: goes with compressor (`gapless list compressors`)")
        return Problem(found, method)
    speed = relative_speed(DEVICE if device is None else device)
    return Problem(with_compressor(found, named_compressor(compressor), find_network(**network), speed), method)
