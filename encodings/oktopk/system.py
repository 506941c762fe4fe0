"""Ok-Topk as the rest of gapless sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.encodings.oktopk.commands import PROFILE, RUN, VALIDATION
from gapless.fields import Bandwidth, Choice, Field, Listed, Number, Object, Seconds, Text, Whole
from gapless.system import Command, System, answering_in_time, drawn, lazy, named

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["METHODS", "OBJECTIVES", "SELECTIONS", "SYSTEM"]

METHODS = ("auto", "exact", "joint", "milp", "robust", "averaged", "even")
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
    Field(
        "ranks", Whole(2, 1024),
        "number of ranks, the first recorded ones (default: all, or the topology's)", metavar="P"
    ),
)  # fmt: skip
_NETWORK = (
    Field(
        "topology", Object(("gapless.topologies.topology.Topology",)), "take the links of ndv2, ring:8, ...",
        metavar="NAME", names=_TOPOLOGIES, group="network",
    ),
    Field("nodes", Whole(1, 10**6), "number of the topology's nodes (default 1)", metavar="N", group="network"),
    Field(
        "bandwidth", Bandwidth(),
        "without a topology: bandwidth into and out of each rank (default 10Gbps)", metavar="B", group="network"
    ),
    Field(
        "latency", Seconds(), "without a topology: latency of a message (default 10us)", metavar="T", group="network"
    ),
)  # fmt: skip

_SELECTION = Field(
    "selection", Choice(SELECTIONS), "what every rank gets: topk of the sum, all; auto (default): topk where "
    "values were recorded", "auto",
)  # fmt: skip

QUESTION = (
    *_SETS,
    Field(
        "density", Number(0, strict=True, maximum=1), "share of the entries that a rank selects (default: as recorded)",
        metavar="D",
    ),
    Field(
        "held_out", Whole(0),
        "how many of the last steps only judge the plan, and don't shape it (default 0)", 0, metavar="N"
    ),
    Field(
        "objective", Choice(OBJECTIVES), "minimise the time of the worst recorded step (default), or the mean", "worst"
    ),
    _SELECTION,
    Field("method", Choice(METHODS), f"auto (default), {', '.join(METHODS[1:])}", "auto", metavar="NAME"),
    *_NETWORK,
)  # fmt: skip

_PLOT = Field("plot", Text(), "draw it: .pdf, .png, .svg (needs the extra `plot`)", metavar="FILE", extra="plot")

ADVICE = (
    *_SETS,
    Field(
        "densities", Listed(Number(0, strict=True, maximum=1)), "at which plans are made (default: the recorded one "
        "and shares of it)", metavar="D,D,...",
    ),
    _SELECTION,
    *_NETWORK,
    _PLOT,
)  # fmt: skip

_ADVICE_HELP = """\
The last recorded step is planned at each density by exact boundaries, and replayed beside the averaged rule, TopkA and
a dense ring. Fill-in is the share of the gradient in the union of the ranks' sets. Stale boundaries: how the busiest
rank's load grows with the boundaries' age, over all recorded steps, and how often new ones pay.

example:
  gapless advise sparse --indices grads.npz --topology ndv2 --nodes 2
  gapless advise sparse --indices drifting:elements=100000,steps=12 --ranks 16 --densities 0.001,0.01,0.1
"""

SYSTEM = System(
    name="oktopk",
    what="sparse allreduce in regions of balanced load",
    fields=QUESTION,
    problem=lazy("gapless.encodings.oktopk.problem:problem"),
    plan=lazy("gapless.encodings.oktopk.solve:solve"),
    parameters=lambda: named("gapless.encodings.oktopk.parameters:Parameters"),
    example="""\
  gapless solve oktopk --indices uniform:steps=1,overlap=0 --ranks 16 --density 0.02 --selection all --latency 1us
  gapless solve oktopk --indices grads.npz --selection all --bandwidth 1Gbps --held-out 5 -o plan.json
""",
    summary=("method", "order", "gather", "balances"),
    lighter="fewer steps, or a lower density",
    device_names=_rank_names,
    view=lazy("gapless.encodings.oktopk.view:render"),
    question=("allreduce of {indices}", "density {density}", "on {topology}"),
    pictures=("loads", "density", "gantt"),
    drawers={
        "loads": lazy("gapless.encodings.oktopk.pictures:draw_loads"),
        "density": lazy("gapless.encodings.oktopk.pictures:draw_density"),
    },
    advice=(
        Command(
            "sparse",
            "below which density a sparse allreduce pays, fill-in, how stale boundaries may be",
            ADVICE,
            drawn(
                answering_in_time("gapless.encodings.oktopk.advice:advise"),
                "gapless.encodings.oktopk.pictures:draw_advice",
            ),
            _ADVICE_HELP,
            is_limited=True,
        ),
    ),
    runs=(RUN,),
    profiles=(PROFILE,),
    validations=(VALIDATION,),
    package="gapless.encodings.oktopk",
)
