"""Cupcake as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.fields import Bandwidth, Choice, Field, Listed, Object, Seconds, Text, Whole
from gapless.system import Command, Export, System, answering, answering_in_time, lazy, named

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["METHODS", "SYSTEM"]

_PROFILES = lazy("gapless.profiles.gradients.named:fusion_profile_names")
_COMPRESSORS = lazy("gapless.profiles.gradients.compressors:compressor_names")
_DEVICES = lazy("gapless.profiles.devices:device_names")
_AGGREGATIONS = lazy("gapless.profiles.gradients.communication:aggregation_names")
_TOPOLOGIES = lazy("gapless.topologies.files:topology_names")

METHODS = (
    "auto", "affine", "pareto", "milp", "algorithm1", "layer-wise", "one-group", "buckets", "even-split", "selective",
    "selective-buckets", "plain-buckets",
)  # fmt: skip
"""`auto` is `affine` where one mode is offered and its costs are, else `pareto`; `algorithm1` is the paper's search;
the rest: baselines."""
_ERRORS = ("exact", "rounded", "unbiased", "feedback", "unknown")
_FIGURES = {
    "bandwidth": "other bandwidths",
    "batch": "other batch sizes, as factors of the profile's",
    "compute": "a device so many times as fast",
    "tradeoff": "encode and decode k times as fast at l k times the bytes",
    "ratio": "the compression ratio that is enough for close to linear scaling",
}


_PROFILE = Field(
    "profile", Object(("gapless.profiles.gradients.profile.FusionProfile",)),
    "a fusion profile: `gapless list profiles`, or a file", is_required=True, metavar="NAME|FILE", names=_PROFILES,
)  # fmt: skip
_COMPRESSOR = Object(("gapless.profiles.gradients.compressors.Compressor",))
_DEVICE = Object(("gapless.profiles.devices.Device",))


def _network(group: str) -> tuple[Field, ...]:
    return (
        Field("ranks", Whole(2, 10**6), "workers", metavar="N", group=group),
        Field("bandwidth", Bandwidth(), "out of a rank, or of a node: 10Gbps, 1.25GB/s", metavar="B", group=group),
        Field("latency", Seconds(), "of one step of a collective (default 10us)", metavar="T", group=group),
        *_nodes(group),
    )


def _nodes(group: str) -> tuple[Field, ...]:
    return (
        Field(
            "aggregation", Text(), "how gradients are added up: ring (default), tree, server", metavar="NAME",
            names=_AGGREGATIONS, group=group,
        ),
        Field(
            "ranks_per_node", Whole(1, 10**6), "in two levels: gradients are plain inside a node", metavar="N",
            group=group,
        ),
        Field("inner_bandwidth", Bandwidth(), "inside a node, out of a rank", metavar="B", group=group),
        Field("inner_latency", Seconds(), "of one step inside a node (default 1us)", metavar="T", group=group),
        Field(
            "topology", Object(("gapless.topologies.topology.Topology",)),
            "or a topology, such as ndv2 or torus:4x4", metavar="NAME", names=_TOPOLOGIES, group=group,
        ),
        Field("nodes", Whole(1, 10**6), "number of its nodes (default 1)", metavar="N", group=group),
        Field(
            "levels", Whole(1, 2), "2: rings inside its nodes, and between them; 1: a ring through all ranks (default: "
            "2 where there are several nodes)", metavar="N", group=group,
        ),
    )  # fmt: skip


_OTHER = "other costs than the profile's"

QUESTION = (
    _PROFILE,
    Field("method", Choice(METHODS), f"auto (default), {', '.join(METHODS[1:])}", "auto", metavar="NAME"),
    Field(
        "modes", Listed(Text()), "in which a group may be sent: of the profile's (all), or with a network plain and "
        "compressors; compress: all but plain", metavar="NAME,NAME,...",
    ),
    Field("decode", Choice(("after", "before")), "a group, after its collective (default) or before", "after"),
    Field("error", Choice(_ERRORS), "the worst class of error that a mode may have: exact, ..., unknown (default)",
          "unknown", metavar="CLASS"),
    Field(
        "compressor", _COMPRESSOR, "beside plain; `gapless list compressors`; needs a network", metavar="NAME",
        names=_COMPRESSORS, group=_OTHER,
    ),
    Field(
        "device", _DEVICE, "where gradients are encoded and decoded (default v100)", metavar="NAME", names=_DEVICES,
        group=_OTHER,
    ),
    *_network(_OTHER),
)  # fmt: skip

COMPRESSION = (
    _PROFILE,
    *_network("problem"),
    Field(
        "compressor", Listed(_COMPRESSOR), "of `gapless list compressors`, with commas between them, or all (default)",
        ("all",), metavar="NAME,NAME,...", names=_COMPRESSORS,
    ),
    Field(
        "device", _DEVICE, "where gradients are encoded and decoded (default v100)", "v100", metavar="NAME",
        names=_DEVICES,
    ),
)  # fmt: skip

WHAT_IF = (
    _PROFILE,
    Field(
        "figure", Choice(tuple(_FIGURES)), "; ".join(f"{name}: {what}" for name, what in _FIGURES.items()),
        is_required=True,
    ),
    *_network("problem"),
    Field("compressor", _COMPRESSOR, "powersgd (default)", "powersgd", metavar="NAME", names=_COMPRESSORS),
)  # fmt: skip


def _view(plan: SavedPlan, report: Report) -> str:
    """The groups with their times, and the baselines beside them."""
    from gapless.encodings.cupcake.summary import render_baselines, render_groups

    baselines_s = plan.details.get("baselines_s")
    modes = plan.details.get("modes")
    lines = [render_groups(plan.schedule, modes if isinstance(modes, list) else ())]
    if isinstance(baselines_s, dict) and all(isinstance(step_s, float) for step_s in baselines_s.values()):
        lines.append(render_baselines(baselines_s, report.makespan_s))
    return "\n".join(lines)


def _write_buckets(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    from gapless.encodings.cupcake.ddp_buckets import export_ddp_buckets
    from gapless.units import format_bytes

    buckets = export_ddp_buckets(path, plan.problem, plan.details, where="details")
    held = f"{len(buckets.parameter_names)} gradients of {buckets.profile}, {format_bytes(sum(buckets.bucket_bytes))}"
    return f"{len(buckets.groups)} buckets for {held}"


_COMPRESSION_HELP = """\
Each compressor gets its best fusion of the profile's gradients, at published costs, and is compared with no compression
in the best size of buckets from 2 to 64 MB. `pays below`: the bandwidth at which it stops paying.

example:
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
"""
_WHAT_IF_HELP = """\
An analytic model of the backward pass and the synchronisation, with buckets of 25 MB: no search, no forward pass.

example:
  gapless advise what-if --figure bandwidth --profile resnet101 --ranks 64 --bandwidth 10Gbps --compressor powersgd
"""

SYSTEM = System(
    name="cupcake",
    what="the optimal fusion of gradients for compression",
    fields=QUESTION,
    problem=lazy("gapless.encodings.cupcake.problem:problem"),
    plan=lazy("gapless.encodings.cupcake.solve:solve"),
    parameters=lambda: named("gapless.encodings.cupcake.parameters:Parameters"),
    example="""\
  gapless solve cupcake --profile resnet101 -o plan.json
  gapless solve cupcake --profile resnet101 --modes compress --decode before -o plan.json   # the paper's question
  gapless solve cupcake --profile bert-base --modes plain,topk,powersgd:4 --ranks 64 --bandwidth 10Gbps -o plan.json
""",
    summary=("method", "scaling", "exposed_s"),
    lighter="a smaller most_labels in --parameters",
    view=_view,
    exports=(Export("ddp-buckets", "buckets for PyTorch's DistributedDataParallel", _write_buckets),),
    advice=(
        Command(
            "compression",
            "every compressor's best plan against none",
            COMPRESSION,
            answering_in_time("gapless.encodings.cupcake.advice:compression"),
            _COMPRESSION_HELP,
            is_limited=True,
        ),
        Command(
            "what-if",
            "tables of the analytic performance model",
            WHAT_IF,
            answering("gapless.encodings.cupcake.what_if:what_if"),
            _WHAT_IF_HELP,
        ),
    ),
    package="gapless.encodings.cupcake",
)
