"""Ok-Topk as the rest of gapless sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.fields import Bandwidth, Choice, Field, Number, Object, Seconds, Whole
from gapless.system import System, lazy, named

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["METHODS", "OBJECTIVES", "SELECTIONS", "SYSTEM"]

METHODS = ("auto", "exact", "joint", "robust", "averaged", "even")
"""`auto` tries all that suit the recorded steps, or is `robust` where steps are held out; the last two: baselines."""
OBJECTIVES = ("worst", "mean")
SELECTIONS = ("auto", "topk", "all")

_GENERATORS = lazy("gapless.profiles.sparsity.named:index_generator_names")
_TOPOLOGIES = lazy("gapless.topologies.files:topology_names")


def _rank_names(plan: SavedPlan) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in range(plan.schedule.topology.device_count))


_SETS = (
    Field(
        "indices", Object(("gapless.profiles.sparsity.index_sets.IndexSets",)),
        "recorded index sets (.npz), or clustered, drifting, uniform, as in clustered:elements=1000000,steps=8",
        is_required=True, metavar="NAME|FILE", names=_GENERATORS,
    ),
    Field("ranks", Whole(2, 1024), "the first P recorded ones (default: all; the topology's)", metavar="P"),
)  # fmt: skip
_NETWORK = (
    Field(
        "topology", Object(("gapless.topologies.topology.Topology",)), "the links of ndv2, ring:8, ...",
        metavar="NAME", names=_TOPOLOGIES, group="network",
    ),
    Field("nodes", Whole(1, 10**6), "number of its nodes (default 1)", metavar="N", group="network"),
    Field("bandwidth", Bandwidth(), "or into and out of each rank (default 10Gbps)", metavar="B", group="network"),
    Field("latency", Seconds(), "of a message then (default 10us)", metavar="T", group="network"),
)  # fmt: skip

QUESTION = (
    *_SETS,
    Field(
        "density", Number(0, strict=True, maximum=1), "share of the entries that a rank selects (default: as recorded)",
        metavar="D",
    ),
    Field("held_out", Whole(0), "last steps that are set apart, to judge the plan on (default 0)", 0, metavar="N"),
    Field("objective", Choice(OBJECTIVES), "of the recorded steps: worst (default), mean", "worst"),
    Field(
        "selection", Choice(SELECTIONS), "what every rank gets: topk of the sum, all; auto (default): topk where "
        "values were recorded", "auto",
    ),
    Field("method", Choice(METHODS), f"auto (default), {', '.join(METHODS[1:])}", "auto", metavar="NAME"),
    *_NETWORK,
)  # fmt: skip

SYSTEM = System(
    name="oktopk",
    what="sparse allreduce in regions of balanced load",
    fields=QUESTION,
    problem=lazy("gapless.encodings.oktopk.problem:problem"),
    plan=lazy("gapless.encodings.oktopk.solve:solve"),
    parameters=lambda: named("gapless.encodings.oktopk.parameters:Parameters"),
    example="""\
  gapless solve oktopk --indices clustered --ranks 16 --density 0.01 -o plan.json
  gapless solve oktopk --indices grads.npz --topology ndv2 --nodes 2 --held-out 5 -o plan.json
""",
    summary=("method", "order", "gather", "balances"),
    lighter="fewer steps, or a lower density",
    device_names=_rank_names,
    package="gapless.encodings.oktopk",
)
