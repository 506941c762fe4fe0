"""Problem: one fusion profile, to be cut into groups, each with its mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.encodings.cupcake.methods.affine import affine_costs
from gapless.encodings.cupcake.question import DEVICE, METHODS, Question
from gapless.errors import InputError
from gapless.io.record import Record, check_known
from gapless.io.typed import data_of, located, read_record
from gapless.options import SolveOptions
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.compressor import ERRORS, relative_speed
from gapless.profiles.compressors.grammar import known_as, named_compressor
from gapless.profiles.gradients.communication import network_of
from gapless.profiles.gradients.fusion import Costs
from gapless.profiles.gradients.modes import PLAIN, Mode
from gapless.profiles.gradients.named import find_fusion_profile, with_compressors
from gapless.profiles.gradients.network_question import NetworkQuestion
from gapless.profiles.gradients.profile import FusionProfile, in_pieces
from gapless.question import fields_of, from_question
from gapless.report.short_repr import BriefQuestion

__all__ = ["Problem", "asked_profile", "problem", "problem_of"]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which consecutive gradients to send together, and in which mode, so that a step takes the least time.

    `modes`: the names of those that are offered, None for all of the profile. `decode`: when a group is decoded, of
    `DECODES`. `pieces`: at most so many bytes, where the profile holds its gradients in pieces. Raises `InputError` for
    a name that doesn't exist, and for a `method` that the question doesn't suit.
    """

    profile: FusionProfile
    method: str = Question.method
    modes: tuple[str, ...] | None = None
    decode: str = Question.decode
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
    def system(self) -> str:
        """`cupcake`."""
        return "cupcake"

    @property
    def description(self) -> dict[str, object]:
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
            **({} if self.profile.cores is None else {"cores": self.profile.cores}),
            "source": self.profile.source,
            "tensor_names": list(self.profile.tensor_names),
            "tensor_bytes": self.profile.size_bytes.tolist(),
            "tensor_backward_s": self.profile.backward_s.tolist(),
            "costs": [data_of(mode) for mode in self.profile.modes],
        }

    @property
    def default_options(self) -> SolveOptions:
        """Optimal; within a minute for methods whose work has no end that one would wait for."""
        return SolveOptions(time_limit_s=60.0 if self.method in ("algorithm1", "milp") else None)


def asked_profile(description: Mapping[str, object], where: str) -> FusionProfile:
    """The profile of a problem's description. Raises `InputError` that names `where`, and the field."""
    record = Record(dict(description), where)
    names, gaps = record.array("tensor_names"), record.array("tensor_backward_s")
    with located(where):  # the profile names the tensor, not the file
        return FusionProfile(
            name=record.text("profile"),
            forward_s=record.number("forward_s", 0),
            tensor_names=tuple(map(str, names)),
            size_bytes=np.array(record.integers("tensor_bytes", 0), dtype=np.int64),
            backward_s=np.array([record.real(f"tensor_backward_s[{k}]", gap_s, 0) for k, gap_s in enumerate(gaps)]),
            modes=tuple(read_record(Mode, entry, where) for entry in record.records("costs")),
            source=record.text("source", default=""),
            cores=record.number("cores", 1, None),
        )


def problem_of(asked: Question) -> Problem:
    """The fusion of a profile's gradients. Raises `InputError` naming a field that doesn't go with the others."""
    profile = find_fusion_profile(asked.profile)
    if asked.pieces is not None:
        profile = in_pieces(profile, asked.pieces)
    if asked.cores is not None:
        profile = replace(profile, cores=asked.cores)
    modes = None if asked.modes is None else tuple(dict.fromkeys(asked.modes))
    given = [field.name for field in fields_of(NetworkQuestion) if getattr(asked, field.name) is not None]
    if asked.compressor is None and (not given or modes in (None, ("compress",))):
        for name in [*given, *(["device"] if asked.device is not None else [])]:
            raise InputError(f"{name}: goes with compressor, or with modes by name (`gapless list compressors`)")
    else:
        profile = _priced(profile, modes, asked)
        modes = modes if modes == ("compress",) else None
    return Problem(profile, asked.method, _offered(profile, modes, asked.error), asked.decode, asked.pieces)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""


def _priced(profile: FusionProfile, modes: tuple[str, ...] | None, asked: Question) -> FusionProfile:
    """The profile in plain and the compressors asked for, at their costs on the network."""
    if asked.compressor is None:
        chosen = [named_compressor(name) for name in modes or ()]
    elif modes in (None, ("compress",)):
        chosen = [NONE, named_compressor(asked.compressor)]
    else:
        raise InputError("compressor: give it or modes by name, not both")
    network = network_of(asked)
    return with_compressors(profile, list(dict.fromkeys(chosen)), network, relative_speed(asked.device or DEVICE))


def _offered(profile: FusionProfile, asked: tuple[str, ...] | None, error: str) -> tuple[str, ...]:
    """The modes of a profile that are asked for and no worse than a class of errors."""
    names = profile.mode_names if asked is None else profile.compressing if asked == ("compress",) else asked
    names = tuple(dict.fromkeys(known_as(name, profile.mode_names) for name in names))
    for name in names:
        check_known("modes", name, profile.mode_names)
    check_known("error", error, ERRORS)
    known = list(ERRORS)
    left = tuple(name for name in names if known.index(profile.mode(name).error) <= known.index(error))
    if not left:
        lacks = f"of error class {error} or better" if names else "that compresses"
        raise InputError(f"modes: must leave one, profile {profile.name!r} has none {lacks}")
    return left
