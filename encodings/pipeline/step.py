"""One training step of a pipeline as it is asked for: the fields of a question, and what follows from them alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from gapless.array_types import Ints
from gapless.encodings.pipeline.cut.slices import Shares, shares_of
from gapless.encodings.pipeline.placement.named import Placement, copies_of, rank_of_stages
from gapless.encodings.pipeline.placement.network import EvenHops, Hops, Replicas
from gapless.encodings.pipeline.question import Question
from gapless.profiles.pipelines.compression import CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.report.short_repr import BriefQuestion
from gapless.topologies.host import HostLink

__all__ = ["Step"]

_FREE, _ALONE = EvenHops(0.0), Replicas()


@dataclass(frozen=True, repr=False)
class Step(BriefQuestion):
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
    backward take in one cell, of their sum. `work`: what computing each micro-batch takes, as a multiple; none where
    all are alike. `slices`: those of the sequence into which micro-batches are cut; `attention`: the share of causal
    attention in forwards and gradients of inputs; `slice_lengths`: tokens of each, relative, none for equal work.
    `vocabulary_parts`: the last layers of the profile that are parts of its head. `link`: of each rank to its host.
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
    overlap_cost: float = Question.overlap_cost
    steps: int = Question.steps
    work: tuple[float, ...] = ()
    slices: int = Question.slices
    attention: float = Question.attention
    slice_lengths: tuple[float, ...] = ()
    vocabulary_parts: int = Question.vocabulary_parts
    link: HostLink | None = None

    @cached_property
    def shares(self) -> Shares:
        """What slices have of a micro-batch."""
        return shares_of(self.slices, self.attention, self.slice_lengths)

    @property
    def copies(self) -> int:
        """Copies of the model, each for its own share of the micro-batches."""
        return copies_of(self.placement)

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
    def placed(self) -> str:
        """The placement in a word, or the ranks of the stages."""
        return self.placement if isinstance(self.placement, str) else ",".join(map(str, self.placement))
