"""What is asked of FSDP: what is gathered and scattered together, when, in which precision, and what is kept."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.lazy import lazy
from gapless.profiles.pipelines import named
from gapless.question import Asked, asked, said
from gapless.question.command_fields import MODEL, PLAN, REPEATS, WAIT, output
from gapless.question.fields import Bandwidth, Choice, Listed, Number, Object, Seconds, Size, Text, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.profiles.pipelines.profile import PipelineProfile

__all__ = [
    "BASELINES",
    "EXECUTORS",
    "GATHERS",
    "INNER_LATENCY_S",
    "LATENCY_S",
    "METHODS",
    "SCATTERS",
    "SHARDINGS",
    "STATE_BYTES",
    "LayersQuestion",
    "Question",
    "RunQuestion",
]

BASELINES = ("fsdp2", "last-kept", "kept", "secondary", "hybrid", "saturated", "overlapped", "one-by-one")
"""What is done today: see `gapless.encodings.fsdp.search.baselines`."""
METHODS = ("auto", "labels", *BASELINES)
"""`auto`: labels from the best baseline."""
EXECUTORS = ("fsdp2", "any")
GATHERS = ("fp32", "bf16", "fp8")
SCATTERS = ("fp32", "bf16", "int8")
"""Precisions, the most exact first."""
SHARDINGS = ("full", "secondary", "hybrid")
"""What a layer's may be: `Sharding` of gapless.io.formats.fsdp2."""
STATE_BYTES = 16.0
"""Of a parameter: itself, its gradient and two moments of Adam in single precision."""
LATENCY_S = 100e-6
"""Of a collective of some dozen ranks over a network, with what its launch costs."""
INNER_LATENCY_S = 20e-6
"""Of one inside a node."""


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """A training step of a model whose parameters are sharded over all ranks. `memory`: of a rank, for parameters while
    they are gathered and gradients that aren't scattered yet; shards, optimiser and activations are beside it.
    """

    profile: str | Path | PipelineProfile = asked(
        Object(("gapless.profiles.pipelines.profile.PipelineProfile",)),
        "layers of a model: `gapless list profiles`, gpt:layers=24,hidden=1024, or a file",
        is_required=True, metavar="NAME|FILE", names=lazy(lambda: named.pipeline_profile_names),
    )  # fmt: skip
    _: KW_ONLY
    ranks: int = asked(Whole(2, 10**6), "ranks that parameters are sharded over", is_required=True, metavar="P")
    bandwidth: float = asked(
        Bandwidth(), "bandwidth out of a rank, such as 35GB/s", is_required=True, metavar="B", group="network"
    )
    latency: float = asked(Seconds(), "latency of a collective", LATENCY_S, metavar="T", group="network")
    ranks_per_node: int = asked(
        Whole(1, 10**6), "for two networks: ranks of a node, in which a part of each collective is", 1, metavar="N",
        group="network",
    )  # fmt: skip
    inner_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth out of a rank inside a node", metavar="B", group="network"
    )
    inner_latency: float = asked(
        Seconds(), "latency of a collective's part inside a node", INNER_LATENCY_S, metavar="T", group="network"
    )
    memory: int | None = asked(
        Size(), "for gathered parameters and unscattered gradients, such as 4GiB", otherwise="no limit", metavar="SIZE"
    )
    sharding: Sequence[str] = asked(
        Listed(Choice(SHARDINGS)),
        "what a layer's may be with nodes; secondary: after its forward pass it stays sharded in each node; hybrid: it "
        "always is, with a replica in each", ("full",), metavar="KIND,...",
    )  # fmt: skip
    state_bytes: float = asked(
        Number(0.0, maximum=10**3), "with hybrid: of a parameter, its gradient and the optimiser, in a shard",
        STATE_BYTES, metavar="N",
    )  # fmt: skip
    gather: Sequence[str] = asked(
        Listed(Choice(GATHERS)), "precisions in which parameters may be gathered", ("bf16",), metavar="TYPE,..."
    )
    scatter: Sequence[str] = asked(
        Listed(Choice(SCATTERS)), "precisions in which gradients may be scattered; int8 by all-to-all, summed in fp32",
        ("fp32",), metavar="TYPE,...",
    )  # fmt: skip
    executor: str = asked(
        Choice(EXECUTORS),
        "fsdp2: what FSDP2 can run, in its memory; any: groups of each kind of collective, a gather's memory is taken "
        "when the network is free", "fsdp2",
    )  # fmt: skip
    stored: str = asked(Choice(("bf16", "fp32")), "what parameter_bytes of the profile count", "bf16")
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "auto", metavar="NAME")


@dataclass(frozen=True, repr=False)
class LayersQuestion(Asked):
    """The layers of a model as FSDP2 wraps them, to be measured."""

    model: str = said(MODEL)
    layers: Sequence[str] | None = asked(
        Listed(Text()), "names of the modules that are layers, such as embedding,blocks.*,head",
        otherwise="entries of the model's lists, and what stands beside them", metavar="NAME,...",
    )  # fmt: skip
    repeats: int = said(REPEATS)
    output: str = said(output("the profile to write"))


@dataclass(frozen=True, repr=False)
class RunQuestion(Asked):
    """A plan under FSDP2, beside FSDP2's own wrapping."""

    plan: str = said(PLAN)
    model: str = said(MODEL)
    emulate: str = asked(
        Choice(("step", "wire")), "wire: collectives take what the plan says; step: passes too", "step"
    )
    dilation: float = asked(
        Number(1, maximum=10**6), "with step: emulated time runs so many times slower", 1.0, metavar="F"
    )
    repeats: int = said(REPEATS)
    wait: float = said(WAIT)
