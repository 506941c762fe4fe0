"""Problem: one fusion profile, to be cut into groups, each with its mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gapless.brief import BriefQuestion
from gapless.encodings.cupcake.affine import affine_costs
from gapless.encodings.cupcake.system import METHODS
from gapless.errors import InputError
from gapless.io.record import Record, check_known
from gapless.options import SolveOptions
from gapless.profiles.devices import Device
from gapless.profiles.gradients.communication import find_network
from gapless.profiles.gradients.compressors import NONE, Compressor, named_compressor, relative_speed
from gapless.profiles.gradients.fusion import Costs
from gapless.profiles.gradients.modes import ERRORS, PLAIN
from gapless.profiles.gradients.named import find_fusion_profile, with_compressors
from gapless.profiles.gradients.pieces import in_pieces
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import mode_data, read_mode

__all__ = ["DEVICE", "Problem", "asked_profile", "problem"]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which consecutive gradients to send together, and in which mode, so that a step takes the least time.

    `modes`: the names of those that are offered, None for all of the profile. `decode`: when a group is decoded, of
    `DECODES`. `pieces`: at most so many bytes, where the profile holds its gradients in pieces. Raises `InputError` for
    a name that doesn't exist, and for a `method` that the question doesn't suit.
    """

    profile: FusionProfile
    method: str = "auto"
    modes: tuple[str, ...] | None = None
    decode: str = "after"
    pieces: int | None = None

    def __post_init__(self) -> None:
        check_known("method", self.method, METHODS)
        if self.method in ("affine", "algorithm1") and (len(self.costs.modes) > 1 or self.costs.modes[0].decodes_after):
            one = "needs one mode for all groups, decoded before it is sent"
            raise InputError(f"method: {self.method} {one}; add --modes compress --decode before, or take pareto")
        if self.method == "affine" and affine_costs(self.costs) is None:
            raise InputError("method: affine needs affine compression and communication costs; take pareto")
        if self.method in ("selective", "selective-buckets") and not {PLAIN} < set(self.costs.names):
            raise InputError(f"method: {self.method} needs the mode plain and one that compresses")
        if self.method == "plain-buckets" and PLAIN not in self.costs.names:
            raise InputError("method: plain-buckets needs the mode plain")

    @cached_property
    def costs(self) -> Costs:
        """The costs of the modes that are offered."""
        return Costs.of(self.profile, self.modes, self.decode)

    @property
    def chosen_method(self) -> str:
        """The method that runs."""
        if self.method != "auto":
            return self.method
        return "pareto" if affine_costs(self.costs) is None else "affine"

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
            "modes": {mode.name: mode.mode.error for mode in self.costs.modes},
            "decode": self.decode,
            **({} if self.pieces is None else {"pieces_bytes": self.pieces}),
            "source": self.profile.source,
            "tensor_names": list(self.profile.tensor_names),
            "tensor_bytes": self.profile.size_bytes.tolist(),
            "tensor_backward_s": self.profile.backward_s.tolist(),
            "costs": [mode_data(mode) for mode in self.profile.modes],
        }

    @property
    def default_options(self) -> SolveOptions:
        """Optimal; within a minute for methods whose work has no end that one would wait for."""
        return SolveOptions(time_limit_s=60.0 if self.method in ("algorithm1", "milp") else None)


def asked_profile(description: Mapping[str, Any], where: str) -> FusionProfile:
    """The profile of a problem's description. Raises `InputError` that names `where`, and the field."""
    record = Record(dict(description), where)
    names, gaps = record.array("tensor_names"), record.array("tensor_backward_s")
    values: dict[str, Any] = {
        "name": record.text("profile"),
        "forward_s": record.number("forward_s", 0),
        "tensor_names": tuple(map(str, names)),
        "size_bytes": np.array(record.integers("tensor_bytes", 0), dtype=np.int64),
        "backward_s": np.array([record.real(f"tensor_backward_s[{k}]", gap_s, 0) for k, gap_s in enumerate(gaps)]),
        "modes": tuple(read_mode(where, entry) for entry in record.records("costs")),
        "source": record.text("source", default=""),
    }
    try:
        return FusionProfile(**values)
    except InputError as error:  # the profile names the tensor, not the file
        raise InputError(f"{where}: {error}") from None


DEVICE = "v100"
"""Where gradients are encoded and decoded if nothing is said."""


def problem(
    profile: str | Path | FusionProfile,
    *,
    method: str = "auto",
    modes: Sequence[str] | None = None,
    decode: str = "after",
    error: str = "unknown",
    pieces: int | None = None,
    compressor: str | Compressor | None = None,
    device: str | Device | None = None,
    **network: Any,
) -> Problem:
    """The fusion of a profile's gradients, at its own costs or at compressors' published costs on a network.

    `profile`: the name of a shipped one, a file, or the profile itself. `method`: one of `METHODS`. `modes`: names of
    those offered, or `("compress",)` for all but plain; of the profile's own (all of them), with a network of `plain`
    and the compressors (plain and `compressor`). `error`: the worst class of `ERRORS` that is accepted.
    `pieces`: gradients above so many bytes are cut. `device`: where compressors run. `network`: as for `find_network`.
    Raises `InputError` that names an argument which is unknown, missing, or doesn't go with the others.
    """
    found = find_fusion_profile(profile)
    if pieces is not None:
        found = in_pieces(found, pieces)
    asked = None if modes is None else tuple(dict.fromkeys([modes] if isinstance(modes, str) else modes))
    given = [name for name, value in network.items() if value is not None]
    if compressor is None and (not given or asked in (None, ("compress",))):
        for name in [*given, *(["device"] if device is not None else [])]:
            raise InputError(f"{name}: goes with compressor, or with modes by name (`gapless list compressors`)")
    else:
        found = _priced(found, asked, compressor, device, network)
        asked = asked if asked == ("compress",) else None
    return Problem(found, method, _offered(found, asked, error), decode, pieces)


def _priced(
    profile: FusionProfile,
    asked: tuple[str, ...] | None,
    compressor: str | Compressor | None,
    device: str | Device | None,
    network: dict[str, Any],
) -> FusionProfile:
    """The profile in plain and the compressors asked for, at their costs on the network."""
    speed = relative_speed(DEVICE if device is None else device)
    if compressor is None:
        chosen = [NONE if name == PLAIN else named_compressor(name) for name in asked or ()]
    elif asked in (None, ("compress",)):
        chosen = [NONE, named_compressor(compressor)]
    else:
        raise InputError("compressor: give it or modes by name, not both")
    return with_compressors(profile, list(dict.fromkeys(chosen)), find_network(**network), speed)


def _offered(profile: FusionProfile, asked: tuple[str, ...] | None, error: str) -> tuple[str, ...]:
    """The modes of a profile that are asked for and no worse than a class of errors."""
    names = profile.mode_names if asked is None else profile.compressing if asked == ("compress",) else asked
    for name in names:
        check_known("modes", name, profile.mode_names)
    check_known("error", error, ERRORS)
    known = list(ERRORS)
    left = tuple(name for name in names if known.index(profile.mode(name).error) <= known.index(error))
    if not left:
        lacks = f"of error class {error} or better" if names else "that compresses"
        raise InputError(f"modes: must leave one, profile {profile.name!r} has none {lacks}")
    return left
