"""What data buys: the front of what is sent and what is spoiled, static and by epoch, beside the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapless.brief import BriefText
from gapless.budget import Choice
from gapless.encodings.ranks.baselines import all_baselines, best_at, regret
from gapless.encodings.ranks.parameters import DEFAULTS
from gapless.encodings.ranks.problem import Problem, problem
from gapless.encodings.ranks.view import baselines_table
from gapless.fields import Share
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.text import described, table

__all__ = ["Advice", "advise"]

_HALF = Share(0.5)
"""The data at which rules that keep a budget are compared, of what the costliest mode sends."""


@dataclass(frozen=True, repr=False)
class Advice(BriefText):
    """Points (floats, error, bound) of both fronts, and the rules with their regret."""

    problem: Problem
    static: tuple[tuple[float, float, float], ...]
    epoch: tuple[tuple[float, float, float], ...]
    baselines: tuple[dict[str, Any], ...]

    @property
    def data(self) -> dict[str, Any]:
        """The answer in plain values."""
        titles = ("sent_floats", "error", "bound_error")
        fronts = {name: [dict(zip(titles, point, strict=True)) for point in points]
                  for name, points in (("static", self.static), ("epoch", self.epoch))}  # fmt: skip
        return {"problem": "ranks", "trace": self.problem.trace.name, **fronts, "baselines": list(self.baselines)}

    @property
    def text(self) -> str:
        """Both fronts at the same data, and the rules."""
        rows = [["data", "static error", "by epoch", "gain"]]
        for (floats, error, _), (_, by_epoch, _) in zip(self.static, self.epoch, strict=True):
            gain = f"{100 * (1 - by_epoch / error):.1f} %" if error else "-"
            rows.append([described("sent_floats", floats), f"{error:.4g}", f"{by_epoch:.4g}", gain])
        return f"{table(rows)}\n\n{baselines_table(self.baselines)}"


def advise(trace: str | Path | CompressionTrace, *, modes: Sequence[str] | None = None, points: int = 12) -> Advice:
    """The fronts at budgets that are evenly apart, between all in the cheapest and all in the costliest mode."""
    asked = problem(trace, data=_HALF, modes=modes, phases="epoch")
    static, by_epoch = (best_at(asked.items(starts), DEFAULTS.most_work) for starts in ((0,), asked.starts))
    least, most = int(asked.cost.min(axis=2).sum()), int(asked.cost.max(axis=2).sum())
    budgets = [float(budget) for budget in np.linspace(least, most, points)]
    assert asked.data_bytes is not None
    rules = all_baselines(asked, max(asked.data_bytes, least), DEFAULTS, 0)
    lost = regret(asked, rules, DEFAULTS.regret_work)
    rows = [
        {"name": each.name, "sent_floats": each.sent_bytes / FLOAT_BYTES, "error": each.error,
         "regret": None if math.isinf(lost[each.name]) else lost[each.name]}
        for each in rules
    ]  # fmt: skip
    return Advice(asked, _points(static, budgets), _points(by_epoch, budgets), tuple(rows))


def _points(at: Callable[[float], Choice | None], budgets: Sequence[float]) -> tuple[tuple[float, float, float], ...]:
    """At each budget; what more data can't be worse than is never worse, however the dynamic programme rounds."""
    found, best = [], math.inf
    for budget in budgets:
        choice = at(budget)
        assert choice is not None
        best = min(best, choice.error)
        found.append((budget / FLOAT_BYTES, best, min(choice.bound, best)))
    return tuple(found)
