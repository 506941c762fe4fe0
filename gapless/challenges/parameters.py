"""What a challenge may be tuned by: how much work, and how it is shared among the attempts."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gapless.errors import InputError

__all__ = ["ChallengeParameters"]


@dataclass(frozen=True)
class ChallengeParameters:
    """The work of a challenge. Raises `InputError` for numbers below their least."""

    work: int = 100
    """Of all attempts together, in hundredths of what the system's searches do in a solve by their defaults. Bounds and
    first plans come on top: they are worked out anew in each attempt."""
    steps: int = 4_000
    """Steps of a solver in all attempts together, where a whole question is one model; about a linear program each."""
    events: int = 2_000_000
    """Events of the plan that are put in other orders, were all work spent on it; 200,000 take about a second."""
    seeds: int = 2
    """Seeds besides the plan's own; the last of them solves without presolve."""
    wider: int = 4
    """The share of a wider question, beside a seed's."""
    methods: int = 1
    """The share of each other method of the system, beside a seed's."""
    solvers: int = 1
    """The share of another solver, beside a seed's."""
    own: int = 2
    """The share of each attempt that the system itself names, such as other numbers of chunks, beside a seed's."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            least = 0 if entry.name == "seeds" else 1
            value = getattr(self, entry.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{entry.name} must be a whole number >= {least}, got {value!r}")
