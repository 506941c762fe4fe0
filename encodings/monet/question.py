"""What is asked of MONeT: a training step within a budget of memory, and by which method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.lazy import lazy
from gapless.profiles.devices import device_names
from gapless.profiles.training import networks
from gapless.profiles.training.optimizer import OPTIMIZERS
from gapless.question import Asked, asked, said
from gapless.question.command_fields import HOST_MEMORY, OFFLOAD
from gapless.question.fields import Choice, Object, Share, SizeOrShare, Text, Whole

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan
    from gapless.profiles.training.graph import TrainingGraph
    from gapless.result import Result

__all__ = ["DEVICE", "METHODS", "METHOD_HELP", "Question"]

METHODS: Mapping[str, str] = {
    "auto": "checkpointing and implementations together, as MONeT does",
    "noop": "checkpointing alone, with the fastest convolutions that fit afterwards (MONeT-NoOp)",
    "conv": "checkpointing and the choice of convolutions",
    "output": "checkpointing and backward operators that need their output, convolutions afterwards",
    "intermediate": "checkpointing and backward operators that need an intermediate, convolutions afterwards",
    "checkmate": "Checkmate's plan, with the fastest convolutions that fit afterwards (Checkmate-O)",
    "checkmate-d": "Checkmate's plan, with default convolutions (Checkmate-D)",
    "lean": "operators that need few bytes, nothing recomputed",
    "gist": "nothing recomputed, all kept as bits, sparse rows or half precision: not exact (Gist)",
    "offload-all": "keep all, and copy to the host what fits through the link and into the backward pass, in order",
    "offload-layers": "keep, recompute or offload by operator, as an integer program over sums of bytes and seconds",
    "offload-blocks": "keep, recompute or offload fractions of tensors, as an integer program over blocks of operators",
    "greedy": "keep all, then drop what is cheapest to recompute per byte until it fits",
    "sqrt": "keep the borders of about sqrt(n) segments (Chen)",
    "revolve": "binomial checkpointing of a chain (Griewank)",
    "store-all": "keep all that the default backward pass needs",
    "eager": "keep all, and choose as a framework does",
}
"""What may decide, with a line on each."""


DEVICE = "p100"
"""Whose costs a named network has if nothing is said."""
METHOD_HELP = f"what decides: {', '.join(METHODS)}; docs/monet.md says what each is"


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """A training step within a budget: bytes, or a share of what the step takes without any saving.

    `batch` and `device` go with a named network. Raises `InputError` that names an argument which is unknown, missing,
    or doesn't go with the others.
    """

    graph: str | TrainingGraph = asked(
        Object(("gapless.profiles.training.graph.TrainingGraph",)),
        "a built-in network (`gapless list profiles`), or a file",
        is_required=True,
        metavar="NAME|FILE",
        names=lazy(lambda: networks.network_names),
    )
    _: KW_ONLY
    batch: int | None = asked(Whole(1), "batch size of a built-in network", metavar="N")
    device: str | None = asked(
        Text(),
        "device whose costs a built-in network has: p100, v100, a100, h100",
        otherwise=DEVICE,
        metavar="NAME",
        names=device_names,
    )
    budget: int | Share = asked(
        SizeOrShare(),
        "the most that the step may hold: 8GiB, 8GB (10^9 bytes), or 0.5x of what it holds without any saving",
        is_required=True,
        metavar="SIZE",
    )
    optimizer: str = asked(
        Choice(("none", *OPTIMIZERS)), "count its states as well, each as large as the gradients", "none"
    )
    gradients: str = asked(
        Choice(("kept", "applied", "offloaded")),
        "with --optimizer: kept until the step is over, or each applied in the backward pass as it is made, and freed. "
        "With --offload they may be offloaded, and wait for their update on the host",
        "kept",
    )
    objective: str = asked(
        Choice(("time", "energy")), "least time, or least energy, for graphs whose power is known", "time"
    )
    offload: float | None = said(OFFLOAD)
    host_memory: int | None = said(HOST_MEMORY)
    method: str = asked(Choice(tuple(METHODS)), METHOD_HELP, "auto", metavar="NAME")
    carry: str | SavedPlan | Result | None = asked(
        Object(("gapless.io.plan.SavedPlan", "gapless.result.Result")),
        "a plan of the same network at another batch size, whose decisions are taken over instead of solving",
        metavar="PLAN",
    )
