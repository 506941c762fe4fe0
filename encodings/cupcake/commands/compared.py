"""A compressor's best plan beside others: what a step takes, how many steps, and up to which bandwidth it pays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from gapless.encodings.cupcake.commands.steps_to_loss import MOST, steps_to_loss
from gapless.profiles.compressors.compressor import Compressor
from gapless.report.text import described

__all__ = ["Crossover", "Option", "Pays", "PaysInRange", "finite", "in_words", "limit_words", "pays", "pays_in_range"]


class Pays(TypedDict):
    """Whether compression pays: always, never, or below a crossover; None for what isn't compressed."""

    pays: str | None
    crossover_bytes_per_s: float | None


class PaysInRange(Pays):
    """With the least and the most over what is known least; None for what isn't compressed."""

    range: list[Pays] | None


@dataclass(frozen=True)
class Crossover:
    """The bandwidth from which plain buckets are as fast; 0 where compression never pays, inf where it always does.

    `low`, `high`: the least and the most over the latencies.
    """

    bytes_per_s: float
    low_bytes_per_s: float
    high_bytes_per_s: float


@dataclass(frozen=True)
class Option:
    """A compressor with its best plan, in which groups may be plain. `bound_s`: proven, None where nothing is.

    `scaling`: step time of one worker alone over that of this one. `time_saved`: share of the plain step's time.
    `crossover`: None for `none`. `gathered_bytes`: the most that a rank holds of the messages of all for a group;
    `largest_bytes`: of the groups that are compressed, before compression.
    `plan`: which plan it is, in words.
    """

    compressor: Compressor
    groups: tuple[tuple[int, int], ...]
    compressed: tuple[int, ...]
    iteration_s: float
    bound_s: float | None
    scaling: float
    time_saved: float
    crossover: Crossover | None
    gathered_bytes: float
    largest_bytes: float = 0.0
    plan: str = "best plan"

    @cached_property
    def steps(self) -> float | None:
        """Times as many to a loss as with plain gradients, were all groups compressed; None where nothing is known."""
        return steps_to_loss(self.compressor.name) if self.compressed else 1.0

    @property
    def to_loss_s(self) -> float:
        """What a step takes, times that; inf where nothing is known."""
        return math.inf if self.steps is None else self.steps * self.iteration_s

    @property
    def steps_words(self) -> str:
        """The same in words."""
        if self.steps is None:
            return "-"
        return f"{self.steps:.2f}" if math.isfinite(self.steps) else f"over {MOST:g}"

    @property
    def on_curve(self) -> str:
        """Its name, with both."""
        return f"{self.compressor.name} ({described('iteration_s', self.iteration_s)}, {self.steps_words})"

    @property
    def data(self) -> dict[str, object]:
        """A row of the answer, in plain values."""
        compressor = self.compressor
        return {
            "compressor": compressor.name, "error": compressor.error, "plan": self.plan, "ratio": compressor.ratio,
            "collective": "all-reduce" if compressor.all_reducible else "all-gather",
            "iteration_s": self.iteration_s, "bound_s": self.bound_s, "scaling": self.scaling,
            "time_saved": self.time_saved, "steps": None if self.steps is None else finite(self.steps),
            "is_measured": self.steps is not None, **pays_in_range(self.crossover),
            "gathered_bytes": self.gathered_bytes,
            "groups": [list(group) for group in self.groups], "compressed": list(self.compressed),
        }  # fmt: skip


def finite(value: float) -> float | None:
    """None for what isn't."""
    return value if math.isfinite(value) else None


def pays(crossover_bytes_per_s: float | None) -> Pays:
    """In plain values; None for what isn't compressed."""
    words = {None: None, 0.0: "never", math.inf: "always"}.get(crossover_bytes_per_s, "below")
    return {"pays": words, "crossover_bytes_per_s": crossover_bytes_per_s if words == "below" else None}


def pays_in_range(crossover: Crossover | None) -> PaysInRange:
    """In plain values, with the least and the most."""
    if crossover is None:
        return {**pays(None), "range": None}
    ends = [pays(crossover.low_bytes_per_s), pays(crossover.high_bytes_per_s)]
    return {**pays(crossover.bytes_per_s), "range": ends}


def limit_words(row: Mapping[str, object]) -> str:
    """What `pays` says, in words."""
    if row["pays"] == "below":
        return described("crossover_bytes_per_s", row["crossover_bytes_per_s"])
    return "-" if row["pays"] is None else str(row["pays"])


def in_words(option: Option | None) -> str:
    """What it saves, and takes."""
    if option is None:
        return "no compression"
    steps = "" if option.steps in (None, 1.0) else f" and takes {option.steps_words} times the steps"
    return f"{option.compressor.name} in its best plan, saves {100 * option.time_saved:.1f} % of a step{steps}"
