"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.errors import InputError

__all__ = ["DEFAULTS", "Parameters"]


@dataclass(frozen=True)
class Parameters:
    """Of the search for an order. All are whole numbers >= 1."""

    heuristic_ops: int = 1_000_000
    """Ops that the zero-bubble heuristic schedules, in all of its sets of rules together."""

    exact_ops: int = 128
    """Ranks times micro-batches up to which the whole order is left to the exact method."""

    first_steps: int = 800
    """Steps of the exact method on a whole order, before neighbourhoods are searched."""

    exact_steps: int = 4000
    """Steps of the exact method on a whole order, after that."""

    rounds: int = 60
    """Windows that the large-neighbourhood search reorders where the exact method leaves a gap."""

    window_ops: int = 120
    """Ops of a window."""

    window_steps: int = 60
    """Steps of the exact method on a window."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise InputError(f"{name}: must be >= 1, got {value}")


DEFAULTS = Parameters()
