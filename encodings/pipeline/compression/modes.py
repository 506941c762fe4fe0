"""Modes of hops and sums under an error budget: what they spoil, the best of a fixed order by a MILP over times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.pipeline.order.messages import makers, queues_of, users
from gapless.encodings.pipeline.order.orders import Order, Timeline, durations
from gapless.encodings.pipeline.order.stages import Cut, Kind, Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.problem import Problem
from gapless.model import Model
from gapless.model.knapsack import is_within, one_mode_each, within_budget
from gapless.options import SolveOptions
from gapless.solvers.proofs import solve_proven

__all__ = ["ModedOrder", "Spoiling", "best_modes", "compressor_bytes", "fastest_modes", "spoiling_of"]


@dataclass(frozen=True)
class Spoiling:
    """Relative squared errors of the whole gradient; mode 0 is plain and spoils nothing.

    `hop[k, s]`: float, shape (modes, S - 1), of one micro-batch's gradient from stage s + 1 to s. `reduce[k, s]`:
    float, shape (modes, S), of the sum of stage s. `budget`: the most that all may be in sum.
    """

    hop: Floats
    reduce: Floats
    budget: float

    def allows(self, order: Order) -> bool:
        """Whether an order's modes stay within the budget, rounding errors of sums apart."""
        return is_within(self.total(order), self.budget)

    def total(self, order: Order) -> float:
        """What an order's modes spoil."""
        hops = np.arange(len(order.hop_modes))[:, None]
        stages = np.arange(len(order.reduce_modes))
        return float(self.hop[order.hop_modes, hops].sum() + self.reduce[order.reduce_modes, stages].sum())


def spoiling_of(problem: Problem, cut: Cut, crosses: Mask) -> Spoiling | None:
    """The errors of the cut's hops and stages, 0 for hops within a rank; None where nothing may be compressed."""
    table, layers = problem.compression, problem.profile.layer_count
    if table is None:
        return None
    firsts = np.array([0, *cut, layers])
    hop_depth = firsts[1:-1] / layers
    hop, reduce = np.zeros((1 + len(table.modes), len(cut))), np.zeros((1 + len(table.modes), len(cut) + 1))
    middles = (np.arange(layers) + 0.5) / layers
    for number in range(len(table.modes)):
        hop[1 + number] = np.where(crosses, table.hop_error(number, hop_depth) / problem.micro_batches, 0.0)
        reduce[1 + number] = np.add.reduceat(table.reduce_error(number, middles), firsts[:-1]) / layers
    return Spoiling(hop, reduce, problem.error_budget)


def compressor_bytes(problem: Problem, stages: Stages, order: Order) -> Floats:
    """What the compressors of each stage keep from step to step, float of shape (S,).

    Of a hop that is compressed at all, on the stage that sends: an error of the size of its gradient, and of a low rank
    the factor on the side of the columns. Of a sum an error of the size of the stage's gradients, and both factors.
    """
    found = np.zeros(stages.count)
    for hop, modes in enumerate(order.hop_modes):
        used = [problem.modes[mode - 1] for mode in set(modes.tolist()) - {0}] if stages.crosses[hop] else []
        size = float(stages.boundary_bytes[hop])
        rows, _ = problem.profile.boundary_shape or (1, 1)
        found[hop + 1] += (size if used else 0.0) + sum(mode.rank * size / rows for mode in used if rows > 1)
    for stage, number in enumerate(order.reduce_modes.tolist()):
        if number:
            mode, size = problem.modes[number - 1], float(stages.parameter_bytes[stage])
            found[stage] += size + (mode.ratio * size if mode.rank else 0.0)
    return np.rint(found)


_CHOSEN = 0.5
_LATEST = 2.0
"""Of the known step, the latest times where spans are minimised, for which a step may be longer."""
_FEASIBLE = 1e-5
"""More than the share by which solvers let a row be broken."""


@dataclass(frozen=True)
class ModedOrder:
    """An order with modes within the budget. `bound_s`: no modes within the budget make this order faster."""

    order: Order
    timeline: Timeline
    bound_s: float


def best_modes(stages: Stages, order: Order, spoiling: Spoiling, options: SolveOptions) -> ModedOrder:
    """The modes that make an order's step, or longest span, shortest; those of `order` must be within the budget, and
    are the start.

    Where the solver is stopped before its proof, the best that it found, and its bound.
    """
    known = timed(stages, order)
    assert known is not None, "an order that can be timed"
    found, bound_s = order, 0.0
    for margin in (0.0, _FEASIBLE):  # what a solver calls within the budget may be a little beyond it
        model = _ModeModel(stages, order, spoiling, known, margin)
        solution = solve_proven(model.model, options, "highs", model.start(known))
        if solution.bound is not None and not margin:
            bound_s = model.unit_s * solution.bound
        chosen = order if solution.values is None else model.order_of(solution.values)
        if spoiling.allows(chosen):
            found = chosen
            break
    moded = timed(stages, found)
    if moded is None or moded.cost_s > known.cost_s:  # None where messages of these sizes lack room
        found, moded = order, known
    return ModedOrder(found, moded, min(bound_s, moded.cost_s))


def fastest_modes(stages: Stages, order: Order) -> Order:
    """The same order in which every hop and every sum has its fastest mode, whatever that spoils."""
    hop_s = (stages.hop_s + stages.encode_s + stages.decode_s).argmin(axis=0)
    modes = np.broadcast_to(hop_s[:, None], order.hop_modes.shape)
    return replace(order, hop_modes=modes, reduce_modes=stages.reduce_s.argmin(axis=0))


class _ModeModel:
    """Times in units of the known step. `x[k, h, m]`, `y[k, s]`: whether mode k + 1 is chosen; none of them: plain."""

    def __init__(self, stages: Stages, order: Order, spoiling: Spoiling, known: Timeline, margin: float) -> None:
        self.stages, self.order, self.unit_s = stages, order, known.step_s or 1.0
        self.model = Model("modes")
        count, micro_batches, modes = stages.count, stages.micro_batches, len(stages.reduce_s) - 1
        plain = replace(order, hop_modes=np.zeros_like(order.hop_modes))
        self.base = durations(stages, plain) / self.unit_s
        latest = _LATEST if stages.by_span else 1.0
        self.ops = self.model.continuous("op_start", len(self.base), upper=latest)
        self.sent = self.model.continuous("sent", (2, count - 1, micro_batches), upper=latest)
        self.reduced = self.model.continuous("sum_end", count, upper=latest)
        self.step = self.model.continuous("step", upper=1.0)
        self.x = self.model.binaries("hop_mode", (modes, count - 1, micro_batches))
        self.y = self.model.binaries("sum_mode", (modes, count))
        self.hop_saved = (stages.hop_s[1:] - stages.hop_s[:1]) / self.unit_s
        self.sum_saved = (stages.reduce_s[1:] - stages.reduce_s[:1]) / self.unit_s
        self._coding()
        self._ranks()
        self._messages()
        self._sums(known)
        if stages.by_span:
            self._spans()
        else:
            self.model.add("the_step_ends_last", (1.0, self.step), (-1.0, self.reduced[:, None]),
                           lower=stages.exchange_s / self.unit_s)  # fmt: skip
        self._errors(spoiling, margin)
        self.model.minimize((1.0, self.step))

    def _coding(self) -> None:
        """Of each op: the columns of the modes that lengthen it, int64, and by how much, float; (ops, 2 modes)."""
        stages, modes = self.stages, len(self.y)
        shape = (-1, stages.count, stages.micro_batches, 2 * modes)
        self.ids = np.zeros((len(self.base), 2 * modes), dtype=np.int64)
        self.longer = np.zeros((len(self.base), 2 * modes))
        ids, longer = self.ids.reshape(shape)[Kind.BACKWARD], self.longer.reshape(shape)[Kind.BACKWARD]
        ids[:-1, :, :modes] = np.moveaxis(self.x, 0, -1)
        ids[1:, :, modes:] = np.moveaxis(self.x, 0, -1)
        longer[:-1, :, :modes] = stages.decode_s[1:].T[:, None] / self.unit_s
        longer[1:, :, modes:] = stages.encode_s[1:].T[:, None] / self.unit_s

    def _after(self, family: str, later: Ints, ops: Ints) -> None:
        """Each column is at least the end of its op."""
        self.model.add(
            family, (1.0, later[:, None]), (-1.0, self.ops[ops][:, None]), (-self.longer[ops], self.ids[ops]),
            lower=self.base[ops],
        )  # fmt: skip

    def _ranks(self) -> None:
        """A rank runs one op at a time, in its order."""
        for rank, sequence in enumerate(self.order.sequences):
            self._after(f"rank_{rank}_runs_one_op_at_a_time", self.ops[sequence[1:]], sequence[:-1])

    def _messages(self) -> None:
        """A message leaves after its op, takes its hop's time, and follows those before it on its link."""
        stages = self.stages
        shape = 2, stages.count - 1, stages.micro_batches
        next_op = {first: second for sequence in self.order.sequences for first, second in pairwise(sequence.tolist())}
        for queue in queues_of(stages, self.order).values():
            messages = list(zip(*(column.tolist() for column in np.unravel_index(queue, shape)), strict=True))
            made, used = makers(stages, queue).tolist(), users(stages, queue).tolist()
            for message, op, user in zip(messages, made, used, strict=True):
                self._after(f"message_{op}_leaves_after_its_op", self.sent[message][None], np.array([op]))
                waits = [user, next_op[op]] if stages.blocks and op in next_op else [user]
                self._arrives(f"message_{op}_arrives", self.ops[waits].tolist(), *message)
            for before, after in pairwise(messages):
                self._arrives(f"message_{after}_follows_{before}", [int(self.sent[after])], *before)

    def _arrives(self, family: str, later: list[int], kind: int, hop: int, micro_batch: int) -> None:
        """Columns are at least the time at which a message is there."""
        columns, sent = np.array(later), self.sent[kind, hop, micro_batch]
        if kind == Kind.FORWARD:
            hop_s = self.stages.forward_hop_s[hop] / self.unit_s
            self.model.add(family, (1.0, columns[:, None]), (-1.0, sent), lower=hop_s)
            return
        saved, chosen = self.hop_saved[:, hop], self.x[:, hop, micro_batch]
        hop_s = self.stages.hop_s[0, hop] / self.unit_s
        self.model.add(family, (1.0, columns[:, None]), (-1.0, sent), (-saved, chosen), lower=hop_s)

    def _sums(self, known: Timeline) -> None:
        """A stage's sum comes after its last gradient, and after those before it on its rank's network."""
        stages, sums_s = self.stages, self.stages.reduce_s[0] / self.unit_s
        per_kind, last_kind = stages.count * stages.micro_batches, Kind.WEIGHT if stages.splits else Kind.BACKWARD
        for rank, sequence in enumerate(self.order.sequences):
            here = sorted(np.flatnonzero(stages.rank == rank).tolist(), key=known.reduced_s.tolist().__getitem__)
            for stage in here:
                first = last_kind * per_kind + stage * stages.micro_batches
                last = sequence[(sequence >= first) & (sequence < first + stages.micro_batches)][-1:]
                self.model.add(
                    f"sum_{stage}_follows_its_last_gradient", (1.0, self.reduced[stage]), (-1.0, self.ops[last]),
                    (-self.longer[last[0]], self.ids[last[0]]), (-self.sum_saved[:, stage], self.y[:, stage]),
                    lower=self.base[last[0]] + sums_s[stage],
                )  # fmt: skip
            for before, after in pairwise(here):
                self.model.add(
                    f"sum_{after}_follows_sum_{before}", (1.0, self.reduced[after]), (-1.0, self.reduced[before]),
                    (-self.sum_saved[:, after], self.y[:, after]), lower=sums_s[after],
                )  # fmt: skip

    def _spans(self) -> None:
        """From the first op of a rank to its last sum, and to the exchange that follows those of both its ranks; from
        the first message of a link until its last is there."""
        stages = self.stages
        firsts = np.array([sequence[0] for sequence in self.order.sequences])
        pairs = [(stage, int(rank), 0.0) for stage, rank in enumerate(stages.rank)]
        ends = np.unique(stages.rank[[0, -1]]).tolist() if stages.embedding_s else ()
        pairs += [
            (s, rank, stages.embedding_s) for rank in ends for s in np.flatnonzero(np.isin(stages.rank, ends)).tolist()
        ]
        stage, rank, late_s = (np.array(column) for column in zip(*pairs, strict=True))
        columns = np.stack([np.full(len(stage), self.step), self.ops[firsts[rank]], self.reduced[stage]], axis=-1)
        terms = np.array([1.0, 1.0, -1.0])
        self.model.add("a_span_lasts_until_the_rank_is_done", (terms, columns), lower=late_s / self.unit_s)
        shape = 2, stages.count - 1, stages.micro_batches
        for link, queue in queues_of(stages, self.order).items() if not stages.blocks else ():
            kind, hop, micro_batch = (int(each) for each in np.unravel_index(queue[-1], shape))
            chosen = [] if kind == Kind.FORWARD else [(-self.hop_saved[:, hop], self.x[:, hop, micro_batch])]
            hop_s = (stages.hop_s[0, hop] if kind else stages.forward_hop_s[hop]) / self.unit_s
            columns = np.array([self.step, self.sent.reshape(-1)[queue[0]], self.sent.reshape(-1)[queue[-1]]])
            self.model.add(f"link_{link[0]}_{link[1]}_has_a_span", (terms, columns), *chosen, lower=hop_s)

    def _errors(self, spoiling: Spoiling, margin: float) -> None:
        """One mode each, and all of them within the budget, less that share of it."""
        one_mode_each(self.model, "a_hop_has_one_mode", np.moveaxis(self.x, 0, -1), or_none=True)
        one_mode_each(self.model, "a_sum_has_one_mode", self.y.T, or_none=True)
        hop = np.repeat(spoiling.hop[1:, :, None], self.stages.micro_batches, axis=2).reshape(-1)
        errors = np.concatenate([hop, spoiling.reduce[1:].reshape(-1)])
        ids = np.concatenate([self.x.reshape(-1), self.y.reshape(-1)])
        within_budget(self.model, "errors_stay_within_the_budget", errors, ids, spoiling.budget, margin)

    def start(self, known: Timeline) -> Floats:
        """The known order's columns."""
        values = np.zeros(self.model.column_count)
        values[self.ops] = known.start_s / self.unit_s
        values[self.sent] = known.sent_s / self.unit_s
        values[self.reduced] = known.reduced_s / self.unit_s
        values[self.step] = known.cost_s / self.unit_s
        numbers = np.arange(1, len(self.y) + 1)
        values[self.x] = self.order.hop_modes[None] == numbers[:, None, None]
        values[self.y] = self.order.reduce_modes[None] == numbers[:, None]
        return values

    def order_of(self, values: Floats) -> Order:
        """The order with the modes that were chosen."""
        numbers = np.arange(1, len(self.y) + 1)
        hops = ((values[self.x] > _CHOSEN) * numbers[:, None, None]).sum(axis=0)
        sums = ((values[self.y] > _CHOSEN) * numbers[:, None]).sum(axis=0)
        return replace(self.order, hop_modes=hops, reduce_modes=sums)
