"""The question: whose cache, how many bytes it may take, of how many tokens, and what a mode is charged."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gapless.encodings.cache.question import KINDS, METHODS, UNIFORM, Question
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.cache.layout import FORMATS, FULL, MEASURES, PARTS
from gapless.profiles.cache.modes import SHARED, LayerModes
from gapless.profiles.cache.named import find_cache_profile
from gapless.profiles.cache.profile import CacheProfile
from gapless.profiles.devices import Device, named_device
from gapless.question import from_question
from gapless.question.fields import Share
from gapless.report.short_repr import BriefQuestion

__all__ = ["Problem", "problem", "problem_of"]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Keep `batch` sequences of `tokens` tokens each in `cache_bytes`, and spoil least by `measure`.

    `element_bytes`: of a number in full and of a weight. `modes`: names of `KINDS` that are offered. Raises
    `InputError`.
    """

    profile: CacheProfile
    cache_bytes: int
    tokens: int = Question.tokens
    batch: int = Question.batch
    element_bytes: int = Question.element_bytes
    device: Device = field(default_factory=lambda: named_device(str(Question.device)))
    modes: tuple[str, ...] = KINDS
    measure: str = Question.measure
    method: str = Question.method

    def __post_init__(self) -> None:
        check_known("measure", self.measure, tuple(MEASURES))
        check_known("method", self.method, METHODS)
        for kind in self.modes:
            check_known("modes", kind, KINDS)
        if self.method in UNIFORM and "formats" not in self.modes:
            raise InputError(f"modes: must have formats for {self.method}, got {','.join(self.modes)}")

    @property
    def system(self) -> str:
        """`cache`."""
        return "cache"

    @property
    def full(self) -> tuple[LayerModes, ...]:
        """All layers in full."""
        return (LayerModes.full(self.profile.heads, self.profile.key_heads),) * self.profile.layers

    @property
    def full_bytes(self) -> int:
        """Of the full cache."""
        return self.bytes_of(self.full)

    def bytes_of(self, layers: Sequence[LayerModes]) -> int:
        """Of the cache of all sequences."""
        return self.batch * sum(
            each.cache_bytes(self.profile.layout, self.tokens, self.element_bytes) for each in layers
        )

    def head_bytes(self, part: str, name: str, window: int) -> int:
        """What the keys, or the values, of one head take in a format, of all sequences."""
        return self.batch * self.profile.layout.head_bytes(part, name, self.tokens, window, self.element_bytes)

    def error(self, layers: Sequence[LayerModes]) -> float:
        """What modes are charged: the sum of what the profile has. Raises `InputError` for modes that it hasn't."""
        return math.fsum(charge for number, modes in enumerate(layers) for charge in self.charges(number, modes))

    def charges(self, layer: int, modes: LayerModes) -> list[float]:
        """What a layer is charged: for its window, its sharing, and each head's format."""
        profile, found = self.profile, list[float]()
        if modes.window:
            if modes.window not in profile.windows:
                raise InputError(f"layer {layer}: window {modes.window} is not in the profile")
            found.append(float(profile.of("window", self.measure)[layer, profile.windows.index(modes.window)]))
        if modes.representatives != tuple(range(profile.heads)):
            rows = [tuple(row) for row in profile.representatives[layer].tolist()]
            if modes.representatives not in rows:
                raise InputError(f"layer {layer}: its representatives are not in the profile")
            found.append(float(profile.of("sharing", self.measure)[layer, rows.index(modes.representatives)]))
        by_head = profile.by_head(self.measure)[layer]
        for part, names in zip(range(len(PARTS)), (modes.keys, modes.values), strict=True):
            packed = [(head, name) for head, name in enumerate(names) if name not in (FULL, SHARED)]
            found += [float(by_head[part, head, FORMATS.index(name) - 1]) for head, name in packed]
        return found

    @property
    def description(self) -> dict[str, object]:
        """What was asked, in plain values."""
        profile, digest = self.profile, hashlib.sha256()
        for array in (profile.formats, profile.shares, profile.window, profile.sharing, profile.representatives):
            digest.update(array.tobytes())
        of_profile = ("source", "layers", "heads", "key_heads", "parameters", "sequence")
        of_question = ("cache_bytes", "tokens", "batch", "element_bytes", "measure", "method")
        return {
            "profile": profile.name,
            **{name: getattr(profile, name) for name in of_profile},
            **{name: getattr(profile.layout, name) for name in ("dimension", "group", "recent", "sinks")},
            "errors_sha256": digest.hexdigest(),
            **{name: getattr(self, name) for name in of_question},
            "modes": list(self.modes),
            "device": self.device.name,
        }

    @property
    def default_options(self) -> SolveOptions:
        """Optimal: the work is bounded."""
        return SolveOptions()


def problem_of(asked: Question) -> Problem:
    """The question about the modes of a profile. Raises `InputError` that names the field."""
    profile = find_cache_profile(asked.profile)
    device = asked.device if isinstance(asked.device, Device) else named_device(asked.device)
    rest = (asked.tokens, asked.batch, asked.element_bytes, device, tuple(asked.modes), asked.measure, asked.method)
    if isinstance(asked.cache, Share):
        return Problem(profile, int(asked.cache.ratio * Problem(profile, 1, *rest).full_bytes), *rest)
    return Problem(profile, asked.cache, *rest)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
