"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.pipeline.question import SCHEDULES
from gapless.methods import MethodChoice
from gapless.question.parameters import check_least, with_work

__all__ = ["DEFAULTS", "Parameters"]

_WORK = ("heuristic_ops", "exact_steps", "bound_points", "bound_ranks", "rounds", "partial_cuts", "ordered_cuts",
         "moved_cuts", "cell_ops", "work_ops", "policy_steps", "mode_steps", "moded_rounds")  # fmt: skip
"""What counts work."""
NAMES = (*SCHEDULES[2:], "time-indexed", "neighbourhood", "exact")
"""Of methods that order ops: those of the question but `auto` and `search`, and what improves orders."""


@dataclass(frozen=True)
class Parameters:
    """Of the searches for cuts, orders and modes. All numbers are whole and >= 1."""

    heuristic_ops: int = 1_000_000
    """Ops that the zero-bubble heuristic schedules, in all of its sets of rules together; that are squeezed; and that
    neighbourhoods replay."""

    exact_ops: int = 128
    """Ranks times micro-batches up to which the whole order is left to the exact method."""

    exact_steps: int = 800
    """Steps of the exact method on a whole order, before neighbourhoods are searched and again after that."""

    bound_points: int = 256
    """Points in time of the relaxation of one rank that bounds its orders; all of them where a step has fewer ticks."""

    bound_ranks: int = 8
    """Ranks whose relaxations are looked at, besides that with most to do; and as many pairs of links."""

    rounds: int = 40
    """Windows that the large-neighbourhood search reorders where the exact method leaves a gap."""

    window_ops: int = 120
    """Ops of a window."""

    window_steps: int = 40
    """Steps of the exact method on a window."""

    partial_cuts: int = 20_000
    """Partial cuts that the search for cuts extends; each is extended by every length of its next stage."""

    ordered_cuts: int = 64
    """Cuts, each with a choice of the stages that recompute, that are ordered by the schedules of the field and a short
    run of the heuristic, best bound first."""

    quick_ops: int = 10_000
    """Ops that the heuristic schedules for each of these cuts. Where an order has more, a cut has one order, and the
    cuts that are then searched with all methods have the others."""

    moved_cuts: int = 32
    """Of several stages a rank: cuts beside the best one that are ordered as quickly, with boundaries between stages
    moved; what it takes to bound the others counts as well."""

    refined_cuts: int = 3
    """Cuts whose orders are then searched with all methods: the fastest so far."""

    cell_ops: int = 40_000
    """Ops that are timed for each order where a forward and a backward can run in one cell, to choose the cells."""

    work_ops: int = 40_000
    """Ops that are timed for each order where micro-batches have work of their own, to choose how they are fed."""

    refined_placements: int = 2
    """Placements that are searched on where it is left open, each with its share of the work: those of the fastest
    first orders, and more until there is a plan."""

    recomputed_stages: int = 5
    """Stages up to which every subset of them is tried as those that recompute; with more policies as many choices."""

    policy_steps: int = 32
    """Steps from one policy of recomputation to the next, of one stage at a time, that are tried from the best choice
    on."""

    moded_orders: int = 6
    """Orders whose modes are chosen by the solver, in each round: those that are fast with and without compression."""

    mode_steps: int = 2000
    """Steps of the solver on the modes of one order."""

    mode_rounds: int = 2
    """Turns of modes for the best orders and orders for the best modes."""

    moded_rounds: int = 20
    """Windows of the large-neighbourhood search for orders for the best modes: fewer than `rounds`, since costs that
    modes make have no bound to meet, so that it takes all of them."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods `auto` and `search` try: the schedules of the field and zero-bubble make orders, neighbourhood and
    exact improve the best of them, time-indexed bounds them all. The placement's 1F1B, or else the heuristic's first
    order, is always there."""

    def __post_init__(self) -> None:
        self.methods.check(NAMES)
        check_least(self)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
