"""Problem: one training step of a pipeline, to be cut into stages, ordered, and compressed where that is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.checks import check_step
from gapless.encodings.pipeline.compression.rules import RECIPES
from gapless.encodings.pipeline.placement.asked import placed, searched
from gapless.encodings.pipeline.placement.named import copies_of
from gapless.encodings.pipeline.placement.network import EvenHops, Hops, Replicas, TopologyHops
from gapless.encodings.pipeline.programs.start import Start, start_of
from gapless.encodings.pipeline.question import Question
from gapless.encodings.pipeline.step import Step
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode
from gapless.profiles.pipelines.named import find_compression, find_pipeline_profile
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.profiles.pipelines.vocabulary import head_in_parts
from gapless.question import from_question
from gapless.topologies.files import load_topology
from gapless.topologies.host import host_link
from gapless.units import Unit

__all__ = ["EvenHops", "Hops", "Problem", "Replicas", "TopologyHops", "problem", "problem_of"]


@dataclass(frozen=True, repr=False)
class Problem(Step):
    """How to run a `Step` in least time. `alternatives`: the same question in other placements; the best plan of all of
    them is the answer. `starts`: plans from which the search may begin, such as those for less memory. Raises
    `InputError` naming a field that doesn't go with the others.
    """

    alternatives: tuple[Problem, ...] = field(default=(), repr=False)
    starts: tuple[Start, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        check_step(self)

    @cached_property
    def without_cells(self) -> Problem:
        """The same where forwards and backwards take their share of a cell each, which no plan with cells beats."""
        if self.overlap_cost == 1:
            return self
        share, profile = self.overlap_cost, self.profile
        cheaper = replace(profile, forward_s=share * profile.forward_s, backward_s=share * profile.backward_s,
                          whole_backward_s=share * profile.backwards_s(False)[0])  # fmt: skip
        return replace(self, profile=cheaper, overlap_cost=1.0)

    @cached_property
    def relaxed(self) -> Problem:
        """The same of micro-batches that are alike, without cells; no plan of this question takes less than its best.
        Where they have work of their own, all have the least."""
        if not self.work:
            return self.without_cells
        least, profile = min(self.work), self.profile
        whole_s = None if profile.whole_backward_s is None else least * profile.whole_backward_s
        policies = tuple(tuple(replace(one, again_s=least * one.again_s) for one in own) for own in profile.policies)
        easier = replace(profile, forward_s=least * profile.forward_s, backward_s=least * profile.backward_s,
                         weight_s=least * profile.weight_s, whole_backward_s=whole_s, policies=policies)  # fmt: skip
        return replace(self, profile=easier, work=())

    @property
    def total_work(self) -> float:
        """Of all micro-batches, in units of the one that has least."""
        return sum(self.work) / min(self.work) if self.work else float(self.micro_batches)

    @property
    def unit(self) -> Unit:
        """What is minimised, as names of results end in it."""
        return "span_s" if self.by_span else "s"

    def shapes(self, recomputes: bool = False) -> tuple[bool, ...]:
        """Whether backwards are split, in each choice that there is. A profile may have measured both, but none how the
        backward of a stage that runs its forward again is split, which can take far longer than its parts."""
        if self.backward != "auto":
            return (self.backward == "split",)
        if self.profile.whole_backward_s is None:
            return (True,)
        return (False,) if recomputes else (True, False)

    @property
    def modes(self) -> tuple[CompressionMode, ...]:
        """In which gradients may go besides plain."""
        return () if self.compression is None else self.compression.modes

    @property
    def mode_names(self) -> list[str]:
        """Plain first."""
        return ["plain", *(mode.name for mode in self.modes)]

    def sent_bytes(self, sizes: Floats | Ints | float) -> Floats:
        """What is sent of gradients of so many bytes between stages in each mode, plain first."""
        shape = self.profile.boundary_shape
        return np.array([sizes, *(np.rint(sizes * mode.hop_ratio(shape)) for mode in self.modes)], dtype=np.float64)

    @property
    def system(self) -> str:
        """`pipeline`."""
        return "pipeline"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        limit = {} if math.isinf(self.memory_bytes) else {"memory_bytes": self.memory_bytes}
        flight = {} if self.in_flight is None else {"in_flight": self.in_flight}
        table = self.compression
        compression = {} if table is None else {"compression": table.name, "error_budget": self.error_budget}
        return {
            "profile": self.profile.name,
            "layers": self.profile.layer_count,
            "layer_names": list(self.profile.layer_names),
            "ranks": self.ranks,
            "micro_batches": self.micro_batches,
            **self._placing,
            **limit,
            **flight,
            "backward": self.backward,
            "cut": self.cut if isinstance(self.cut, str) else list(self.cut),
            "recomputation": self.recomputation,
            "replicas": self.replicas.count,
            "fuses_embedding": self.replicas.fuses_embedding,
            **compression,
            "blocking_sends": self.blocking_sends,
            **({} if self.message_memory == Question.message_memory else {"message_memory": self.message_memory}),
            **({} if self.minimise == Question.minimise else {"minimise": self.minimise}),
            **({} if self.steps == Question.steps else {"steps": self.steps}),
            **({} if self.overlap_cost == 1 else {"overlap_cost": self.overlap_cost}),
            **({"work": list(self.work)} if self.work else {}),
            **({} if self.slices == 1 else {"slices": self.slices, "attention": self.attention}),
            **({} if self.vocabulary_parts == 1 else {"vocabulary_parts": self.vocabulary_parts}),
            **({"slice_lengths": list(self.slice_lengths)} if self.slice_lengths else {}),
            **({} if self.link is None else self.link.description),
            "method": self.method,
            "source": self.profile.source,
        }

    @property
    def _placing(self) -> dict[str, object]:
        if self.alternatives:
            return {"placement": "auto"}
        return {"placement": self.placement if isinstance(self.placement, str) else list(self.placement),
                "chunks": self.chunks}  # fmt: skip

    @property
    def default_options(self) -> SolveOptions:
        """Optimal, within a minute."""
        return SolveOptions(time_limit_s=60.0)


def problem_of(asked: Question) -> Problem:
    """The pipeline that is asked for. Raises `InputError` naming a field that doesn't go with the others."""
    if asked.placement == "auto":
        return _in_all_placements(asked)
    placement, chunks = placed(asked)
    profile = find_pipeline_profile(asked.profile, asked.ranks, chunks // copies_of(placement))
    if asked.vocabulary_parts > 1:
        profile = head_in_parts(profile, asked.vocabulary_parts)
    return Problem(
        profile, asked.ranks, asked.micro_batches, placement, chunks, _hops(profile, asked), _replicas(asked),
        math.inf if asked.memory is None else float(asked.memory), asked.in_flight, asked.backward, asked.cut,
        asked.recomputation, None if asked.compression is None else find_compression(asked.compression),
        asked.error_budget, asked.blocking_sends, asked.method, asked.message_memory, asked.minimise,
        overlap_cost=asked.overlap_cost, steps=asked.steps, work=tuple(asked.work or ()), slices=asked.slices,
        attention=asked.attention, slice_lengths=tuple(asked.slice_lengths or ()),
        vocabulary_parts=asked.vocabulary_parts, link=host_link(asked.offload, asked.host_memory),
        starts=() if asked.from_plan is None else (start_of(asked.from_plan),),
    )  # fmt: skip


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""


def _in_all_placements(asked: Question) -> Problem:
    """In each placement that goes with the other fields. Raises `InputError` where none does, as the first one."""
    found, refused = list[Problem](), list[InputError]()
    for placement, chunks in searched(asked.chunks):
        try:
            found.append(problem_of(replace(asked, placement=placement, chunks=chunks)))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return replace(found[0], alternatives=tuple(found[1:]))


def _hops(profile: PipelineProfile, asked: Question) -> Hops:
    given = [name for name in ("hop", "bandwidth", "topology") if getattr(asked, name) is not None]
    if len(given) > 1:
        raise InputError(f"{given[1]}: goes without {given[0]}; give one of them")
    topology, hop_s = asked.topology, asked.hop
    if asked.nodes is not None and not isinstance(topology, str):
        raise InputError("nodes: goes with topology, a name")
    if asked.latency is not None and asked.bandwidth is None:
        raise InputError("latency: goes with bandwidth")
    if topology is not None:
        return TopologyHops(load_topology(topology, asked.nodes) if isinstance(topology, str) else topology)
    if asked.bandwidth is not None:
        return EvenHops(asked.latency or 0.0, 1 / asked.bandwidth)
    largest = int(profile.boundary_bytes[:-1].max(initial=0))
    return EvenHops(0.0, hop_s / largest) if hop_s and largest else EvenHops(hop_s or 0.0)


def _replicas(asked: Question) -> Replicas:
    bandwidth = asked.replica_bandwidth or asked.bandwidth
    if asked.replicas > 1 and bandwidth is None:
        raise InputError("replicas: more than one need a bandwidth (or replica_bandwidth) to sum their gradients over")
    beta_s_per_byte = 0.0 if bandwidth is None else 1 / bandwidth
    recipe = RECIPES.get(asked.method)  # which says it
    if recipe is not None and recipe.fuses_embedding and asked.embedding == "separate":
        raise InputError(f"embedding: method {asked.method} fuses it, got separate; leave one of them out")
    embedding = asked.embedding if recipe is None else recipe.embedding
    return Replicas(asked.replicas, asked.latency or 0.0, beta_s_per_byte, embedding == "fused")
