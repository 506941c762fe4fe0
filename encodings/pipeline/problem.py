"""Problem: one training step of a pipeline, to be cut into stages, ordered, and compressed where that is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.compression.rules import RECIPES, Recipe
from gapless.encodings.pipeline.order.stages import PLACEMENTS, Placement, copies_of, rank_of_stages
from gapless.encodings.pipeline.placement.asked import placed, searched
from gapless.encodings.pipeline.placement.network import EvenHops, Hops, Replicas, TopologyHops
from gapless.encodings.pipeline.question import (
    BACKWARDS,
    CUTS,
    MESSAGE_MEMORIES,
    METHODS,
    OBJECTIVES,
    RECOMPUTATIONS,
    Question,
)
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.named import find_compression, find_pipeline_profile
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion
from gapless.topologies.files import load_topology
from gapless.units import Unit

__all__ = ["EvenHops", "Hops", "Problem", "Replicas", "TopologyHops", "problem", "problem_of"]


_FREE, _ALONE = EvenHops(0.0), Replicas()
_MOST_OPS = 200_000
"""Forwards, backwards and weight gradients that are ordered: 64 stages of a thousand micro-batches."""


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """In which order P ranks run the micro-batches of a model that is cut into stages, so that a step takes least time.

    `ranks`: P. `micro_batches`: M. `placement`, `chunks`: which rank runs which stage. `hops`: costs between ranks.
    `memory_bytes`: of a rank, inf for no limit; or `in_flight`: as many micro-batches as fit into it (None: no limit),
    each with what all stages of the rank keep of it. `backward`: whether the gradients of inputs and of weights are
    computed apart; "auto": whichever takes less, as far as the profile measured both. `cut`: how layers are cut, or the
    first layer of each stage but the first. `recomputation`: whether stages may run their forward again. `compression`:
    the modes of gradients (None: all are plain); `error_budget`: the most that they may spoil in sum. `blocking_sends`:
    whether a rank computes nothing while it sends. `message_memory`: whether messages take memory of their sender and
    receiver. `minimise`: the step's makespan, or the longest span of a rank. `steps`: how many follow one another in
    the same order, where a rank begins the next one when it is done itself. `overlap_cost`: what a forward and a
    backward take in one cell, of their sum. `alternatives`: the same question in other placements; the best plan of all
    of them is the answer. `work`: what computing each micro-batch takes, as a multiple; none where all are alike.
    Raises `InputError` naming the field.
    """

    profile: PipelineProfile
    ranks: int
    micro_batches: int
    placement: Placement = Question.placement
    chunks: int = 1
    hops: Hops = _FREE
    replicas: Replicas = _ALONE
    memory_bytes: float = math.inf
    in_flight: int | None = None
    backward: str = Question.backward
    cut: str | tuple[int, ...] = Question.cut
    recomputation: str = Question.recomputation
    compression: CompressionTable | None = field(default=None, repr=False)
    error_budget: float = Question.error_budget
    blocking_sends: bool = Question.blocking_sends
    method: str = Question.method
    message_memory: str = Question.message_memory
    minimise: str = Question.minimise
    alternatives: tuple[Problem, ...] = field(default=(), repr=False)
    overlap_cost: float = Question.overlap_cost
    steps: int = Question.steps
    work: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, known in (("backward", BACKWARDS), ("recomputation", RECOMPUTATIONS), ("method", METHODS)):
            check_known(name, getattr(self, name), known)
        self._check_placement()
        if self.stage_count > self.profile.layer_count:
            stages = f"{self.stage_count} stages" if self.stage_count > self.ranks else f"{self.ranks} ranks"
            rule = f"ranks: {stages} need as many layers, profile {self.profile.name!r} has {self.profile.layer_count}"
            raise InputError(rule)
        if self.steps > 1 and self.steps * self.stage_count * self.micro_batches * 3 > _MOST_OPS:
            most = _MOST_OPS // (3 * self.stage_count * self.micro_batches)
            rule = f"must be at most {most} for {self.stage_count} stages and {self.micro_batches} micro-batches"
            raise InputError(f"steps: {rule}, all of which are replayed, got {self.steps}; or minimise span")
        if self.stage_count * self.micro_batches * 3 > _MOST_OPS:
            most = _MOST_OPS // (3 * self.stage_count)
            raise InputError(
                f"micro_batches: must be at most {most} for {self.stage_count} stages, got {self.micro_batches}"
            )
        if self.in_flight is not None and not math.isinf(self.memory_bytes):
            raise InputError("in_flight: goes without memory; give one of them")
        if self.error_budget and self.compression is None:
            raise InputError(
                "error_budget: needs compression, a table of measured errors; without one nothing is compressed"
            )
        if self.copies > 1 and self.compression is not None:
            rule = "goes without placement bidirectional: no errors are modelled where copies are summed"
            raise InputError(f"compression: {rule}; leave it out")
        check_known("message_memory", self.message_memory, MESSAGE_MEMORIES)
        check_known("minimise", self.minimise, OBJECTIVES)
        self._check_objective()
        self._check_cells()
        self._check_work()
        self._check_cut()
        self._check_method()
        pairs = [(a, b) for a, b in pairwise(self.rank_of_stage.tolist()) if a != b]
        ends = enumerate(reversed(range(self.ranks))) if self.copies > 1 else ()
        self.hops.check([*pairs, *((b, a) for a, b in pairs)], ends)

    def _check_placement(self) -> None:
        """A name that goes with the chunks, or stages on every rank, the chunks at most."""
        if not isinstance(self.placement, str):
            counts = [self.placement.count(rank) for rank in range(self.ranks)]
            if sum(counts) != len(self.placement) or not min(counts):
                rule = f"must have a stage on each of the ranks 0 to {self.ranks - 1}, and on no other"
                raise InputError(f"placement: {rule}, got {','.join(map(str, self.placement))}")
            if max(counts) != self.chunks:
                raise InputError(f"chunks: must be {max(counts)}, the most stages of a rank, got {self.chunks}")
            return
        check_known("placement", self.placement, PLACEMENTS)
        if (self.chunks != 1) if self.placement == "linear" else (self.chunks < 2):
            rule = "must be 1 for a linear placement" if self.placement == "linear" else "must be >= 2"
            raise InputError(f"chunks: {rule}, got {self.chunks}")
        if self.placement != "bidirectional":
            return
        if self.chunks != self.copies:
            raise InputError(
                f"chunks: must be 2 for a bidirectional placement, a stage of each copy, got {self.chunks}"
            )
        for name in ("ranks", "micro_batches"):
            if getattr(self, name) % 2:
                rule = "must be even for a bidirectional placement, half of them for each copy"
                raise InputError(f"{name}: {rule}, got {getattr(self, name)}")

    def _check_objective(self) -> None:
        """Whether what is left out of steps that follow one another is left out."""
        if self.by_span and self.steps > 1:
            raise InputError("steps: goes without minimise span, which is of steps without end; leave one of them out")
        if not self.is_repeated:
            return
        asked = "minimise: span" if self.by_span else "steps: more than one"
        if self.compression is not None and not self.by_span:
            raise InputError("steps: more than one go without compression, whose budget is of one step; minimise span")
        if self.counts_messages and not math.isinf(self.memory_bytes):
            rule = f"must be free with {asked.replace(':', '')}, where messages of the next step come before one ends"
            raise InputError(f"message_memory: {rule}, got counted")

    def _check_cells(self) -> None:
        """Whether what cells leave out is left out."""
        if self.overlap_cost == 1:
            return
        is_pressed = self.counts_messages and not math.isinf(self.memory_bytes)
        left_out = {"minimise": self.by_span, "steps": self.steps > 1, "compression": self.compression is not None,
                    "blocking_sends": self.blocking_sends, "recomputation": self.recomputation != "none",
                    "backward auto": self.backward == "auto",
                    "memory with counted messages (message_memory free has cells)": is_pressed}  # fmt: skip
        wrong = next((name for name, is_there in left_out.items() if is_there), None)
        if wrong is not None:
            raise InputError(f"overlap_cost: goes without {wrong}; leave one of them out")

    def _check_work(self) -> None:
        """Whether each micro-batch has some, and what unequal ones leave out is left out."""
        if not self.work:
            return
        if len(self.work) != self.micro_batches:
            raise InputError(f"work: must be one for each of {self.micro_batches} micro-batches, got {len(self.work)}")
        left_out = {"minimise span": self.by_span, "steps": self.steps > 1, "overlap_cost": self.overlap_cost != 1,
                    "compression": self.compression is not None,
                    "placement bidirectional": self.copies > 1}  # fmt: skip
        wrong = next((name for name, is_there in left_out.items() if is_there), None)
        if wrong is not None:
            raise InputError(f"work: goes without {wrong}; leave one of them out")

    def _check_cut(self) -> None:
        if isinstance(self.cut, str):
            check_known("cut", self.cut, CUTS)
            return
        ends = (0, *self.cut, self.profile.layer_count)
        if len(self.cut) != self.stage_count - 1 or any(a >= b for a, b in pairwise(ends)):
            rule = f"must be {self.stage_count - 1} first layers that grow, in 1..{self.profile.layer_count - 1}"
            raise InputError(f"cut: {rule}, got {','.join(map(str, self.cut))}")

    def _check_method(self) -> None:
        recipe = RECIPES.get(self.method)
        if recipe is not None:
            self._check_recipe(recipe)
        baseline = BASELINES.get(self.method if recipe is None else recipe.schedule)
        if baseline is None:
            return
        if baseline.placement != self.placement:
            raise InputError(f"method: {self.method} is for placement {baseline.placement}, got {self.placed}")
        if baseline.splits and self.backward == "whole":
            raise InputError(f"method: {self.method} needs backward split, got whole")
        if baseline.chunks not in (None, self.chunks):
            raise InputError(f"method: {self.method} needs chunks {baseline.chunks}, got {self.chunks}")
        least = baseline.each_rank * self.ranks
        if self.micro_batches < least:
            rule = f"needs micro_batches >= {least}, {baseline.each_rank} a rank"
            raise InputError(f"method: {self.method} {rule}, got {self.micro_batches}")

    def _check_recipe(self, recipe: Recipe) -> None:
        """Whether there is what it compresses and fuses."""
        if recipe.compresses and not (self.compression and self.error_budget):
            missing = "compression" if self.compression is None else "error_budget"
            raise InputError(f"{missing}: method {self.method} compresses, and needs a table and a budget above 0")
        if recipe.share and self.replicas.count == 1:
            raise InputError(f"replicas: method {self.method} compresses sums among replicas, and needs two, got 1")
        if recipe.fuses_embedding and not self.profile.embedding_bytes:
            rule = f"method {self.method} fuses a shared embedding, profile {self.profile.name!r} has none"
            raise InputError(f"profile: {rule}; leave out +fe")
        if recipe.fuses_embedding != self.replicas.fuses_embedding:
            raise InputError(f"embedding: must be {recipe.embedding} for method {self.method}")

    @property
    def copies(self) -> int:
        """Copies of the model, each for its own share of the micro-batches."""
        return copies_of(self.placement)

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
    def stage_count(self) -> int:
        """S: the number of stages that the layers are cut into."""
        if not isinstance(self.placement, str):
            return len(self.placement)
        return self.ranks * self.chunks // self.copies

    @cached_property
    def rank_of_stage(self) -> Ints:
        """The rank of each stage of each copy, int64 of shape (copies * S,)."""
        return rank_of_stages(self.placement, self.ranks, self.chunks)

    @property
    def counts_messages(self) -> bool:
        """Whether messages count as memory, which they don't where it is given in micro-batches."""
        return self.message_memory == "counted" and self.in_flight is None

    @property
    def by_span(self) -> bool:
        """Whether the longest span of a rank is minimised."""
        return self.minimise == "span"

    @property
    def is_repeated(self) -> bool:
        """Whether steps follow one another, and ranks don't wait for one another in between."""
        return self.by_span or self.steps > 1

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
    def placed(self) -> str:
        """The placement in a word, or the ranks of the stages."""
        return self.placement if isinstance(self.placement, str) else ",".join(map(str, self.placement))

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
    return Problem(
        profile, asked.ranks, asked.micro_batches, placement, chunks, _hops(profile, asked), _replicas(asked),
        math.inf if asked.memory is None else float(asked.memory), asked.in_flight, asked.backward, asked.cut,
        asked.recomputation, None if asked.compression is None else find_compression(asked.compression),
        asked.error_budget, asked.blocking_sends, asked.method, asked.message_memory, asked.minimise,
        overlap_cost=asked.overlap_cost, steps=asked.steps, work=tuple(asked.work or ()),
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
