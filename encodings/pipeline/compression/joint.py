"""Modes and orders in turns, and a bound on both together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.compression.modes import Spoiling, best_modes, fastest_modes
from gapless.encodings.pipeline.order.orders import Candidate, Order
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.model import Model
from gapless.model.knapsack import one_mode_each, within_budget
from gapless.options import Deadline, SolveOptions
from gapless.solvers.proofs import solve_proven

__all__ = ["compressed", "mean_stages", "relaxed_bound_s"]


def compressed(
    candidates: list[Candidate], spoiling_of: Callable[[Candidate], Spoiling], best_s: float, most: int, steps: int,
    deadline: Deadline,
) -> Iterator[tuple[Candidate, Candidate]]:  # fmt: skip
    """Candidates, and what they are with the best modes within the budget, each faster than `best_s` and all before it.

    Of orders that could be faster in their fastest modes, `most` are tried, those first that are fast with and without
    compression. `steps`: of the solver on each.
    """
    limits = [(timed(found.stages, fastest_modes(found.stages, found.order)), found) for found in candidates]
    limited = [(limit.cost_s, found) for limit, found in limits if limit is not None]
    limited.sort(key=lambda pair: (pair[0] + pair[1].timeline.cost_s, pair[0]))
    for limit_s, found in limited[:most]:
        if deadline.over:
            return
        if limit_s >= best_s:
            continue
        options = replace(_silent(deadline.stage()), step_limit=steps)
        moded = best_modes(found.stages, found.order, spoiling_of(found), options)
        if moded.timeline.cost_s < best_s:
            best_s = moded.timeline.cost_s
            yield found, replace(found, order=moded.order, timeline=moded.timeline)


def _silent(options: SolveOptions) -> SolveOptions:
    return replace(options, on_progress=None, on_plan=None, gap=0.0)


def mean_stages(stages: Stages, order: Order) -> Stages:
    """The stages whose plain hops cost what an order's modes make of them on average over the micro-batches."""
    modes, hops, sums = order.hop_modes, np.arange(stages.count - 1)[:, None], np.arange(stages.count)
    coding_s, none = np.zeros(stages.count), np.zeros((1, stages.count - 1))
    coding_s[:-1] += stages.decode_s[modes, hops].mean(axis=1)
    coding_s[1:] += stages.encode_s[modes, hops].mean(axis=1)
    return replace(
        stages, backward_s=stages.backward_s + coding_s, hop_s=stages.hop_s[modes, hops].mean(axis=1)[None],
        encode_s=none, decode_s=none, reduce_s=stages.reduce_s[order.reduce_modes, sums][None],
    )  # fmt: skip


def relaxed_bound_s(stages: Stages, spoiling: Spoiling, options: SolveOptions) -> float:
    """A bound on every order of these stages with every choice of modes within the budget: a linear programme. All of
    its chains are in the first rank's span, and all of a rank's load in its own.

    Its columns are the shares of a hop's micro-batches in each mode, those of the last micro-batch, and modes of sums.
    Its rows: a rank's load with encoding and decoding; what runs on a stage until its last gradient, and that
    gradient's path to the first stage; the mean path of all micro-batches; the budget.
    """
    relaxed = _Relaxed(stages)
    relaxed.loads()
    relaxed.chains()
    relaxed.errors(spoiling)
    solution = solve_proven(relaxed.model, _silent(options), "highs")
    return 0.0 if solution.bound is None else relaxed.unit_s * solution.bound


class _Relaxed:
    """The linear programme, in units of the largest load."""

    def __init__(self, stages: Stages) -> None:
        self.stages, self.model = stages, Model("relaxed modes")
        self.unit_s = float(stages.compute_s.max()) * stages.micro_batches or 1.0
        modes, hops = len(stages.reduce_s) - 1, stages.count - 1
        self.share = self.model.continuous("share", (modes, hops), upper=1.0)
        self.last = self.model.continuous("last", (modes, hops), upper=1.0)
        self.sums = self.model.continuous("sums", (modes, stages.count), upper=1.0)
        self.step = self.model.continuous("step")
        self.model.minimize((1.0, self.step))
        self.saved_s = stages.hop_s[1:] - stages.hop_s[:1] + stages.encode_s[1:] + stages.decode_s[1:]
        self.summed_s = stages.reduce_s[1:] - stages.reduce_s[:1]
        self.arrival_s = np.concatenate([[0.0], np.cumsum(stages.forward_s[:-1] + stages.forward_hop_s)])

    def _row(self, family: str, least_s: float, *terms: tuple[Floats, Ints]) -> None:
        """The step takes at least so long, and what modes add to it."""
        scaled = [(-coefficients.reshape(-1) / self.unit_s, ids.reshape(-1)) for coefficients, ids in terms]
        self.model.add(family, (1.0, self.step[None]), *scaled, lower=least_s / self.unit_s)

    def _coding(self, stage: int) -> list[tuple[Floats, Ints]]:
        """What encoding and decoding add to a stage's load."""
        stages, share = self.stages, self.share
        terms = []
        if stage < stages.count - 1:
            terms.append((stages.micro_batches * stages.decode_s[1:, stage], share[:, stage]))
        if stage > 0:
            terms.append((stages.micro_batches * stages.encode_s[1:, stage - 1], share[:, stage - 1]))
        return terms

    def loads(self) -> None:
        """A rank's first forward arrives, it computes all of its ops, and where it has one stage its sum follows."""
        stages = self.stages
        for rank in range(stages.ranks):
            here = np.flatnonzero(stages.rank == rank).tolist()
            terms = [term for stage in here for term in self._coding(stage)]
            arrival_s = 0.0 if stages.by_span else float(self.arrival_s[here[0]])
            busy_s = arrival_s + stages.micro_batches * float(stages.compute_s[rank])
            if len(here) == 1:
                terms.append((self.summed_s[:, here[0]], self.sums[:, here[0]]))
                exchange_s = stages.embedding_s if rank in (stages.rank[0], stages.rank[-1]) else 0.0
                busy_s += float(stages.reduce_s[0, here[0]]) + exchange_s
            self._row(f"rank_{rank}_is_loaded", busy_s, *terms)

    def chains(self) -> None:
        """A stage's forwards and backwards, then its last gradient's path; and the mean path of all gradients."""
        stages, first_sum = self.stages, (self.summed_s[:, 0], self.sums[:, 0])
        back_s = np.concatenate([[0.0], np.cumsum(stages.backward_s[:-1] + stages.hop_s[0])])
        end_s = float(stages.weight_s[0] + stages.reduce_s[0, 0]) + stages.embedding_s
        held_s = stages.micro_batches * (stages.forward_s + stages.backward_s)
        for stage in range(stages.count):
            chain_s = float(self.arrival_s[stage] + held_s[stage] + back_s[stage]) + end_s
            saved_s = self.saved_s[:, :stage].copy()
            saved_s[:, -1:] -= stages.encode_s[1:, stage - 1 : stage]  # which the stage itself does
            below = saved_s, self.last[:, :stage]
            self._row(f"stage_{stage}_and_its_last_gradient", chain_s, *self._coding(stage), below, first_sum)
        path_s = float(self.arrival_s[-1] + stages.forward_s[-1] + back_s[-1] + stages.backward_s[-1]) + end_s
        self._row("the_mean_path", path_s, (self.saved_s, self.share), first_sum)

    def errors(self, spoiling: Spoiling) -> None:
        """One mode each; the last micro-batch is one of all; all errors stay within the budget."""
        micro_batches = self.stages.micro_batches
        for name, columns in (("share", self.share), ("last", self.last), ("sums", self.sums)):
            one_mode_each(self.model, f"one_mode_of_{name}", columns.T, or_none=True)
        most = (-float(micro_batches), self.share[..., None])
        self.model.add("the_last_is_one_of_all", (1.0, self.last[..., None]), most, upper=0.0)
        errors = np.concatenate([micro_batches * spoiling.hop[1:].reshape(-1), spoiling.reduce[1:].reshape(-1)])
        columns = np.concatenate([self.share.reshape(-1), self.sums.reshape(-1)])
        within_budget(self.model, "errors_stay_within_the_budget", errors, columns, spoiling.budget)
