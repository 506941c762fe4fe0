"""The step times of baselines beside a plan's."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.units import format_seconds

__all__ = ["render_baselines"]


def render_baselines(title: str, baselines_s: Mapping[str, float], iteration_s: float) -> str:
    """One line a baseline: its step time, and how much longer it is than the plan's. `title`: what they are."""
    lines = [f"{title:<17} {'step':>10} {'slower by':>10}", f"{'this plan':<17} {format_seconds(iteration_s):>10}"]
    for name, duration_s in sorted(baselines_s.items(), key=lambda item: item[1]):
        longer = 100 * (duration_s / iteration_s - 1) if iteration_s else 0.0
        lines.append(f"{name:<17} {format_seconds(duration_s):>10} {longer:>8.2f} %")
    return "\n".join(lines)
