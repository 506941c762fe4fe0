"""The figures of the tables of Optimus-CC (Song et al., 2023), and how it counts a speed-up."""

from __future__ import annotations

PAPER_DAYS: dict[str, dict[str, float]] = {
    "gpt-8.3b": {"1f1b": 37.27, "1f1b+cb": 34.83, "1f1b+cb+fe": 32.84, "1f1b+cb+fe+sc75": 25.72},
    "gpt-2.5b": {"1f1b": 14.72, "1f1b+cb": 13.63, "1f1b+cb+fe": 12.79, "1f1b+cb+fe+sc75": 12.55},
}
"""Table 2: days of 230,000 steps on 128 A100. They don't follow from shapes, and nothing here is fitted to them."""


def speedup(before: float, after: float) -> float:
    """By which share of the time after the time before is longer, as the paper counts: 0.0701 for 7.01 %."""
    return before / after - 1
