"""Problem: some batches of a trace, to be planned for trainers with a cache, on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gapless.encodings.bagpipe.batch_plans import Planning
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.traces.trace import Trace

__all__ = ["Problem"]


@dataclass(frozen=True)
class Problem:
    """Which trainer gets which example, and what is fetched, synchronised and evicted, batch by batch.

    The cache is logically replicated and physically partitioned, with delayed synchronisation (section 5.2.3). All
    batches of `planning` are held in memory, some MB each. Raises `InputError` for a cluster of other trainers.
    """

    trace: Trace
    planning: Planning
    cluster: Cluster

    def __post_init__(self) -> None:
        if self.cluster.trainers != self.planning.trainers:
            raise InputError(f"cluster: trainers must be {self.planning.trainers}, got {self.cluster.trainers}")

    @property
    def system(self) -> str:
        """`bagpipe`."""
        return "bagpipe"

    @property
    def description(self) -> dict[str, Any]:
        """What was asked, for the plan file."""
        return {
            "trace": self.trace.name,
            "tables": self.trace.table_count,
            "trainers": self.planning.trainers,
            "batch_size": self.planning.batch_size,
            "batches": self.planning.batches,
            "lookahead": self.planning.lookahead,
            "cache_rows": self.planning.cache_rows,
            "objective": self.planning.objective,
            "method": self.planning.method,
            "ownership": self.planning.ownership,
            "shares": None if self.planning.shares is None else list(self.planning.shares),
        }

    @property
    def batch_count(self) -> int | None:
        """How many batches will be planned, None where the trace doesn't say how long it is."""
        examples, asked = self.trace.examples, self.planning.batches
        there = None if examples is None else -(-examples // self.planning.batch_size)
        return min((count for count in (there, asked) if count is not None), default=None)

    @property
    def default_options(self) -> SolveOptions:
        """As long as it takes."""
        return SolveOptions()
