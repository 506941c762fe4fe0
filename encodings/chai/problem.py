"""The question: whose heads, how much of the cache to save, by which distance, and on which device a step is timed."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.question import AUTO, LOSS, Question
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.devices import Device, named_device
from gapless.profiles.heads.named import find_head_profile
from gapless.profiles.heads.profile import DISTANCES, HeadProfile
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion

__all__ = ["Problem", "problem", "problem_of"]

Floats = NDArray[np.float64]


_RISEN = ("exact", "uniform")
"""Methods that keep those heads."""


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Save the share `kv_saving` of the cache of keys and values, by dropping keys; values stay.

    `distance`: a name of `DISTANCES`, or `loss`. `context`: tokens that are cached when the step that is timed begins,
    of each of `batch` sequences. `element_bytes`: of a number in the cache and in the weights. `swaps`: so many swaps
    of heads are tried on the true loss of `model`, on the text in the file `calibration`. `query_saving`: the share of
    heads whose attention isn't computed, at least. Raises `InputError`.
    """

    profile: HeadProfile
    kv_saving: float
    distance: str = "output"
    method: str = Question.method
    context: int = Question.context
    batch: int = Question.batch
    element_bytes: int = Question.element_bytes
    device: Device = field(default_factory=lambda: named_device(str(Question.device)))
    swaps: int = Question.swaps
    model: str = ""
    calibration: str = ""
    query_saving: float = Question.query_saving

    def __post_init__(self) -> None:
        check_known("distance", self.distance, (*DISTANCES, LOSS))
        if self.distance == LOSS:
            self._check_loss()
        if not 0 <= self.query_saving < 1:
            raise InputError(f"query_saving: must be a share of the heads, 0 <= S < 1, got {self.query_saving}")
        if self.query_saving and self.swaps:
            raise InputError("query_saving: doesn't go with swaps, which exchange key heads")
        if not 0 <= self.kv_saving < 1:
            raise InputError(f"kv_saving: must be a share of the cache, 0 <= S < 1, got {self.kv_saving}")
        for name in ("model", "calibration"):
            if self.swaps and not getattr(self, name):
                raise InputError(f"{name}: must be given where swaps are tried")
            if getattr(self, name) and not self.swaps:
                raise InputError(f"{name}: goes with swaps")

    def _check_loss(self) -> None:
        if self.profile.rises is None:
            rule = f"loss needs rises of the loss, which profile {self.profile.name!r} has none of"
            raise InputError(f"distance: {rule}; measure it again with `gapless profile heads`, or take output")
        other = (
            "query_saving"
            if self.query_saving
            else "swaps"
            if self.swaps
            else self.method
            if self.method not in _RISEN
            else ""
        )
        if other:
            raise InputError(f"distance: loss is not measured for the heads of {other}; take output or scores")

    @property
    def system(self) -> str:
        """`chai`."""
        return "chai"

    @property
    def head_bytes(self) -> int:
        """Of one head's keys in a layer, or of its values: dropping a head's keys saves so much."""
        return self.batch * self.context * self.profile.dimension * self.element_bytes

    @property
    def full_cache_bytes(self) -> int:
        """Of all keys and values."""
        return 2 * self.profile.layers * self.profile.key_heads * self.head_bytes

    @property
    def most_saving(self) -> float:
        """With one head's keys in each layer."""
        return 0.5 * (1 - 1 / self.profile.key_heads)

    @property
    def most_kept(self) -> int:
        """So many heads' keys may be kept, of all layers together; fewer than layers where the question has no plan."""
        kept = (1 - 2 * self.kv_saving) * self.profile.layers * self.profile.key_heads
        return int(np.floor(kept * (1 + 1e-12)))

    @property
    def most_used(self) -> int:
        """So many heads' attention may be computed, of all layers together; at least one in each is."""
        used = (1 - self.query_saving) * self.profile.layers * self.profile.heads
        return max(int(np.floor(used * (1 + 1e-12))), self.profile.layers)

    def cache_bytes(self, kept: int) -> int:
        """Of the keys of so many heads, and of all values."""
        return (kept + self.profile.layers * self.profile.key_heads) * self.head_bytes

    @property
    def heads_by(self) -> str:
        """The name of the distance by which heads are chosen within a layer."""
        return "output" if self.distance == LOSS else self.distance

    def error(self, chosen: HeadMap) -> float:
        """What a map is charged: distances of its heads, or rises of its layers, whose heads are the profile's then."""
        if self.distance == LOSS:
            return math.fsum(self.rises(chosen).tolist())
        return chosen.error(self.profile.distance(self.distance))

    def rises(self, chosen: HeadMap) -> Floats:
        """The rise of the loss for the count of each layer, float, shape (layers,)."""
        assert self.profile.rises is not None, "it was checked"
        return np.asarray(self.profile.rises.filled[range(self.profile.layers), chosen.counts - 1])

    @cached_property
    def cost(self) -> Floats:
        """`cost[l, h, g]`: what head h is charged at least if its attention must use the keys of key head g.

        Float, shape (layers, heads, key heads); 0 for the head's own.
        """
        profile = self.profile
        shape = profile.layers, profile.heads, profile.key_heads, profile.group
        return np.asarray(profile.distance(self.heads_by).reshape(shape).min(axis=3))

    @property
    def description(self) -> dict[str, object]:
        """What was asked, in plain values."""
        profile = self.profile
        digest = hashlib.sha256(profile.scores.tobytes() + profile.output.tobytes())
        if self.distance == LOSS and profile.rises is not None:
            digest.update(profile.rises.loss.tobytes() + profile.rises.kept.tobytes())
        of_profile = ("source", "layers", "heads", "key_heads", "dimension", "parameters", "tokens")
        of_question = ("kv_saving", "distance", "method", "context", "batch", "element_bytes")
        return {
            "profile": profile.name,
            **{name: getattr(profile, name) for name in of_profile},
            "distances_sha256": digest.hexdigest(),
            **{name: getattr(self, name) for name in of_question},
            "device": self.device.name,
            **({"query_saving": self.query_saving} if self.query_saving else {}),
            **({"swaps": self.swaps, "model": self.model, "calibration": self.calibration} if self.swaps else {}),
        }

    @property
    def default_options(self) -> SolveOptions:
        """Optimal: the work is bounded by the number of heads."""
        return SolveOptions()


def problem_of(asked: Question) -> Problem:
    """The question about the heads of a profile. Raises `InputError` that names the field."""
    heads, distance = find_head_profile(asked.profile), asked.distance
    if distance == AUTO:
        has_loss = heads.rises is not None and asked.method in _RISEN and not (asked.swaps or asked.query_saving)
        distance = LOSS if has_loss else "output"
    return Problem(
        heads, asked.kv_saving, distance, asked.method, asked.context, asked.batch, asked.element_bytes,
        asked.device if isinstance(asked.device, Device) else named_device(asked.device), asked.swaps,
        asked.model or "", asked.calibration or "", asked.query_saving,
    )  # fmt: skip


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
