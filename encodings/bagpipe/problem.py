"""Problem: some batches of a trace, to be planned for trainers with a cache, on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gapless.brief import BriefQuestion
from gapless.encodings.bagpipe.batch_plans import Planning
from gapless.encodings.bagpipe.cluster import Cluster, cluster_of
from gapless.encodings.bagpipe.question import Question
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.traces.named import trace_of
from gapless.profiles.traces.trace import Trace
from gapless.question import from_question

__all__ = ["Problem", "problem", "problem_of"]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which trainer gets which example, and what is fetched, synchronised and evicted, batch by batch.

    The cache is of the design that `planning` names: logically replicated and physically partitioned, with delayed
    synchronisation, unless another is asked for (section 5.2.3). `resume`: the file of a run of the same question, as
    far as it came, to go on with. `replicate_budget_bytes`: of each trainer's memory, for tables that stay on all of
    them; they are chosen before the run is planned. Raises `InputError` for a cluster of other trainers.
    """

    trace: Trace
    planning: Planning
    cluster: Cluster
    replicate_budget_bytes: int | None = None
    resume: str | None = None

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
            "design": self.planning.design,
            "replicate_budget_bytes": self.replicate_budget_bytes,
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


def problem_of(asked: Question) -> Problem:
    """The plans that are asked for. Raises `InputError` naming a field that doesn't go with the others."""
    planning = Planning(
        asked.trainers, asked.batch_size, asked.lookahead, asked.cache_rows, asked.objective, asked.method,
        asked.ownership, None if asked.shares is None else tuple(asked.shares), asked.batches, asked.design,
    )  # fmt: skip
    cluster = cluster_of(asked, asked.trainers, asked.batch_size)
    return Problem(trace_of(asked), planning, cluster, asked.replicate_budget, asked.resume)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
