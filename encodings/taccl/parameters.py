"""Parameters: what a searcher may tune, each with what it is for and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.errors import InputError

__all__ = ["Aggregation", "Chunking", "Parameters"]


@dataclass(frozen=True)
class Chunking:
    """The search for the number of chunks."""

    numbers: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    """Numbers of chunks that are tried, ascending: more than 16 pay on irregular networks only, and take long."""
    most_sends: int = 60_000
    """Sends of chunks to ranks up to which a number is tried: what is large is in many pieces already."""
    tries: int = 150
    """Orders of sends for one number: those of a few matchings, which tell numbers apart."""
    try_s: float = 2.0
    """Seconds for one number, where so many orders take longer."""
    all_s: float = 8.0
    """Seconds for all numbers together."""
    share: float = 0.5
    """The part of the time limit for all numbers together, so that as much is left to use the best of them."""
    gap: float = 1e-3
    """A number whose plan is proven to be this near to the best possible is not improved."""
    give_up_factor: float = 1.3
    """Larger numbers are not tried once one is this many times as slow as the best."""

    def __post_init__(self) -> None:
        if not self.numbers or min(self.numbers) < 1 or list(self.numbers) != sorted(set(self.numbers)):
            raise InputError(f"chunking: numbers must ascend from 1 or more, got {list(self.numbers)}")


@dataclass(frozen=True)
class Aggregation:
    """Aggregated sends, by randomised construction."""

    tries: int = 600
    """Constructions for each phase: most find their best within a hundred."""
    messages: int = 200_000
    """Messages of all constructions of a phase, so that large networks take no more than some seconds."""
    restart_share: float = 0.6
    """The share of constructions that begin as the best one did: without, the best of many is hardly improved."""
    gossip_s: float = 2.0
    """Seconds for the beam search over rounds of an ALLREDUCE without a root: it wins on few bytes."""
    most_ranks: int = 128
    """Ranks up to which aggregated sends and baselines are looked at: their latencies count on small machines."""

    def __post_init__(self) -> None:
        for name in ("tries", "messages", "most_ranks"):
            if getattr(self, name) < 1:
                raise InputError(f"aggregation: {name} must be >= 1, got {getattr(self, name)}")
        if not 0 <= self.restart_share <= 1:
            raise InputError(f"aggregation: restart_share must be in [0, 1], got {self.restart_share}")


@dataclass(frozen=True)
class Parameters:
    """What the searches of TACCL may be tuned by."""

    chunking: Chunking = field(default_factory=Chunking)
    """The search for the number of chunks."""
    aggregation: Aggregation = field(default_factory=Aggregation)
    """Aggregated sends."""
    most_binaries: int = 6_000
    """Orbits of (chunk, link) up to which the MILP is tried: routing is then proven within seconds, or nearly so."""
    aggregated_share: float = 0.4
    """The part of the time limit for aggregated sends and baselines: they are best where latencies count."""
    greedy_share: float = 0.2
    """The part of the time limit for the greedy before the MILP, and"""
    greedy_s: float = 1.0
    """the most seconds: what it finds later on small problems, the MILP finds as well."""
    milp_share: float = 0.6
    """The part of the time limit for the MILP where it comes first, under a sketch."""

    def __post_init__(self) -> None:
        for name in ("aggregated_share", "greedy_share", "milp_share"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"parameters: {name} must be in (0, 1], got {getattr(self, name)}")
