"""Problem: some batches of a trace, to be planned for trainers with a cache, on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from gapless.decision import Decision
from gapless.encodings.bagpipe.cluster import Cluster, capacities, cluster_of
from gapless.encodings.bagpipe.question import (
    BASELINES,
    DESIGNS,
    LAYOUTS,
    LOOKAHEAD,
    OBJECTIVES,
    OWNERSHIPS,
    PAPERS,
    SHARDED,
    Question,
)
from gapless.errors import InputError
from gapless.io.record import Record, check_known
from gapless.io.typed import Stored, read_record
from gapless.options import SolveOptions
from gapless.profiles.traces.named import trace_of
from gapless.profiles.traces.trace import Trace
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion
from gapless.solution import PlanClass
from gapless.system import Challenge

if TYPE_CHECKING:
    from typing_extensions import Self

    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["REPLICATING", "Planning", "Problem", "RunDecision", "challenges", "cost", "problem", "problem_of"]

MOST_COSTS = 2**28
"""Examples of a batch times trainers: each pair has a cost."""
REPLICATING = ("replicated", "lrpp", "lrpp-delayed")
"""Designs in which a row may lie on every trainer for as long as one likes."""
_DESCRIBED = (
    "trainers", "batch_size", "batches", "lookahead", "cache_rows", "objective", "method", "ownership", "design",
)  # fmt: skip
"""Of a planning, in plan files."""


@dataclass(frozen=True)
class Planning:
    """How a trace is planned: its batches, its trainers and their cache.

    `lookahead` and `cache_rows`: as for `lookahead_steps`; 200 batches if neither is given, as in the paper.
    `objective`: `auto` is that of the design: `time` for `lrpp-fine-grained`, `synchronised` for other LRPPs, unless
    the method is for the paper's alone. `shares`: the trainers' parts of a batch, even if None. `batches`: how many,
    all if None. `design`: of the cache.
    `replicated`: tables, by number, whose rows stay on every trainer from their first use on.
    Raises `InputError` for counts below 1, more trainers than examples in a batch, too many of both, unknown names.
    """

    trainers: int
    batch_size: int
    lookahead: int | None = None
    cache_rows: int | None = None
    objective: str = Question.objective
    method: str = Question.method
    ownership: str = Question.ownership
    shares: tuple[float, ...] | None = None
    batches: int | None = None
    design: str = PAPERS
    replicated: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for title in ("trainers", "batch_size", "lookahead", "cache_rows", "batches"):
            value = getattr(self, title)
            if value is not None and value < 1:
                raise InputError(f"{title}: must be >= 1, got {value}")
        examples = self.batch_size
        if self.trainers > examples:
            raise InputError(f"trainers: must be at most the {examples} examples of a batch, got {self.trainers}")
        if examples * self.trainers > MOST_COSTS:
            got = f"{examples:,} x {self.trainers:,}; take a smaller batch or fewer trainers"
            raise InputError(f"batch_size: times trainers must be at most {MOST_COSTS:,}, got {got}")
        check_known("objective", self.objective, OBJECTIVES)
        check_known("ownership", self.ownership, OWNERSHIPS)
        check_known("design", self.design, LAYOUTS)
        if self.design in BASELINES and (self.cache_rows is None or self.lookahead is not None):
            got = "none" if self.cache_rows is None else f"lookahead {self.lookahead} too"
            raise InputError(f"cache_rows: must be given, and no lookahead, with design {self.design}, got {got}")
        if self.design in SHARDED:
            self._without_cache()
        if self.objective == "auto":
            is_own = self.design.startswith("lrpp") and self.method not in ("lp", "min_cost_flow")
            own = "time" if self.design == "lrpp-fine-grained" else "synchronised"
            object.__setattr__(self, "objective", own if is_own else "paper")
        if self.objective == "synchronised" and not self.design.startswith("lrpp"):
            rule = "goes with the designs lrpp, lrpp-delayed and lrpp-fine-grained"
            raise InputError(f"objective: synchronised {rule}, got design {self.design}")
        if self.objective == "time" and self.design != "lrpp-fine-grained":
            raise InputError(f"objective: time goes with design lrpp-fine-grained, got design {self.design}")
        if self.lookahead is None and self.cache_rows is None and self.design not in SHARDED:
            object.__setattr__(self, "lookahead", LOOKAHEAD)
        for trainer, share in enumerate(self.shares or ()):
            if not share > 0:
                raise InputError(f"shares: must be > 0, got {share:g} for trainer {trainer}; leave such a trainer out")
        capacities(self.batch_size, self.trainers, self.shares)

    def _without_cache(self) -> None:
        """Nothing is cached, and what moves is the same for every partition: nothing to look for."""
        for title in ("lookahead", "cache_rows"):
            if (got := getattr(self, title)) is not None:
                raise InputError(f"{title}: goes with a cache, which design {self.design} has none of, got {got}")
        if self.method not in ("auto", "contiguous", "random"):
            rule = f"must be auto, contiguous or random with design {self.design}, where all partitions move the same"
            raise InputError(f"method: {rule}, got {self.method}")
        if self.method == "auto":
            object.__setattr__(self, "method", "contiguous")


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which trainer gets which example, and what is fetched, synchronised and evicted, batch by batch.

    The cache is of the design that `planning` names: logically replicated and physically partitioned, with delayed
    synchronisation, unless another is asked for (section 5.2.3). `resume`: the file of a run of the same question, as
    far as it came, to go on with. `compares`: whether the run must not be behind any of the baselines (`baselines.py`),
    and is one of them otherwise. `replicate_budget_bytes`: of each trainer's memory, for tables that stay on all of
    them; they are chosen before the run is planned. `memory_bytes`: of each trainer, which decides the cache, the
    lookahead, at most the planning's, and that budget (`advice/memory.py`).
    Raises `InputError` for a cluster of other trainers.
    """

    trace: Trace
    planning: Planning
    cluster: Cluster
    replicate_budget_bytes: int | None = None
    resume: str | None = None
    compares: bool = False
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        self._check_memory()
        if self.cluster.trainers != self.planning.trainers:
            raise InputError(f"cluster: trainers must be {self.planning.trainers}, got {self.cluster.trainers}")

    def _check_memory(self) -> None:
        """It decides what nothing else may, of a cache that looks ahead."""
        if self.memory_bytes is None:
            return
        if self.planning.design not in DESIGNS:
            raise InputError(f"memory: goes with a design of {', '.join(DESIGNS)}, got {self.planning.design}")
        for title, value in (
            ("cache_rows", self.planning.cache_rows), ("replicate_budget", self.replicate_budget_bytes)
        ):  # fmt: skip
            if value is not None:
                raise InputError(f"{title}: give it or memory, which decides it, not both; got {value}")

    @property
    def system(self) -> str:
        """`bagpipe`."""
        return "bagpipe"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        shares = self.planning.shares
        return {
            "trace": self.trace.name, "tables": self.trace.table_count,
            **{name: getattr(self.planning, name) for name in _DESCRIBED},
            "replicate_budget_bytes": self.replicate_budget_bytes, "shares": None if shares is None else list(shares),
        }  # fmt: skip

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


@dataclass(frozen=True)
class RunDecision(Decision):
    """What a run decides beside its batches: by which design, how many of them, and the tables on every trainer."""

    design: Annotated[str, Stored(choices=tuple(LAYOUTS))]
    batches_planned: Annotated[int, Stored(1)]
    replicated_tables: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: SavedPlan, where: str = "plan") -> Self:
        """What a saved run decides. Runs from before there were decisions have it in their problem and details."""
        if plan.decision:
            return super().of(plan, where)
        known = {"design": plan.problem.get("design"), **plan.details}
        names = ("design", "batches_planned", "replicated_tables")
        return read_record(cls, Record({name: known[name] for name in names if name in known}, f"{where}: details"))


def problem_of(asked: Question) -> Problem:
    """The plans that are asked for. Raises `InputError` naming a field that doesn't go with the others."""
    is_open = asked.design == "auto"
    design = asked.design if not is_open else PAPERS if asked.replicate_budget is not None else "lrpp-fine-grained"
    planning = Planning(
        asked.trainers, asked.batch_size, asked.lookahead, asked.cache_rows, asked.objective, asked.method,
        asked.ownership, None if asked.shares is None else tuple(asked.shares), asked.batches, design,
    )  # fmt: skip
    cluster = cluster_of(asked, asked.trainers, asked.batch_size)
    compares = is_open and planning.objective == "time" and planning.method == "auto"
    return Problem(trace_of(asked), planning, cluster, asked.replicate_budget, asked.resume, compares, asked.memory)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """Rows with other owners: the same trace, cache and design."""
    return [
        Challenge(f"--ownership {name}", PlanClass.QUESTION, {"ownership": name})
        for name in OWNERSHIPS
        if name != problem.planning.ownership and problem.planning.design not in SHARDED
    ]


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float | None:
    """The time of the run; None where some of the question's batches aren't planned."""
    asked = problem.batch_count
    is_whole = asked is None or RunDecision.of(plan).batches_planned == asked
    return report.makespan_s if is_whole else None
