"""What a benchmark measured, as a rate."""

from __future__ import annotations

from typing import Any


def rate(benchmark: Any, count: int) -> float | None:
    """`count` over the seconds of the fastest round; None where benchmarks are disabled, and nothing is timed."""
    return None if benchmark.stats is None else count / benchmark.stats.stats.min
