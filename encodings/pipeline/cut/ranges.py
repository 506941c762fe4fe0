"""What a range of layers costs as a stage, from prefix sums: no order of its ops takes less."""

from __future__ import annotations

import math

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.cut.costs import sums_s
from gapless.encodings.pipeline.cut.policies import least_kept_bytes
from gapless.encodings.pipeline.problem import Problem

__all__ = ["RangeCosts"]


class RangeCosts:
    """Sums over layers [first, ends) for all micro-batches, from prefix sums."""

    def __init__(self, problem: Problem) -> None:
        profile, self.problem = problem.profile, problem
        self.micro_batches = problem.micro_batches // problem.copies
        backward_s, weight_s = _least_backwards_s(problem)
        if problem.recomputation == "all":
            backward_s = backward_s + profile.forward_s
        self.forward, self.backward, self.weight = (_prefix(x) for x in (profile.forward_s, backward_s, weight_s))
        self.state, self.stash, self.deferred, self.parameter = (
            _prefix(x)
            for x in (profile.state_bytes, profile.stash_bytes, profile.deferred_bytes, profile.parameter_bytes)
        )
        self.kept = self.stash if problem.recomputation != "curve" else _prefix(np.array(
            [least_kept_bytes(profile, layer) for layer in range(profile.layer_count)]))  # fmt: skip
        self.memory_bytes = math.inf if problem.in_flight is not None else problem.memory_bytes
        counted = float(problem.counts_messages)
        self.input_bytes = np.array([0.0, *profile.boundary_bytes[:-1].tolist(), 0.0])
        self.message_bytes = counted * self.input_bytes
        shares = problem.shares  # of slices: the first one comes to a rank first, and goes back last
        self.first_share = shares.least
        self.first_tokens, self.last_tokens = float(shares.tokens[0]), float(shares.tokens[-1])
        is_shared = bool(profile.embedding_bytes) and problem.ranks > 1 and problem.chunks == 1
        is_fused = problem.replicas.fuses_embedding
        copies = 2 * problem.replicas.count if is_fused else 2
        self.embedding_s = problem.replicas.reduce_s(profile.embedding_bytes, copies) if is_shared else 0.0
        has_both = problem.ranks == 1 or problem.chunks > 1  # or may have: ends of which each is summed once
        self.shared_bytes = profile.embedding_bytes if is_fused or has_both else 0
        every = np.arange(1, profile.layer_count)
        least_s = [sum(float(self.hop_s(stage, every, back).min(initial=math.inf)) for back in (False, True))
                   for stage in range(problem.stage_count - 1)]  # fmt: skip
        self.hops_above_s = np.cumsum([0.0, *least_s[::-1]])[::-1]

    def load_s(self, first: int | Ints, ends: Ints) -> Floats:
        """Seconds of all ops."""
        return np.asarray(self.chain_s(first, ends) + self.micro_batches * (self.weight[ends] - self.weight[first]))

    def chain_s(self, first: int | Ints, ends: Ints) -> Floats:
        """Seconds of forwards and gradients of inputs."""
        each_s = self.forward[ends] - self.forward[first] + self.backward[ends] - self.backward[first]
        return np.asarray(self.micro_batches * each_s)

    def turn_s(self, stage: int, first: int, ends: Ints) -> Floats:
        """All micro-batches, as many at once as memory has room for: each is kept from its forward, through all later
        stages and back, and some of it to its gradient of weights; or the stage runs its forwards twice, where it may.
        0 where stages have no rank of their own, or all recompute, for slices, and where hosts keep some.
        """
        alone = self.problem.chunks * self.problem.slices == 1 and self.problem.link is None
        if not alone or self.problem.recomputation == "all":
            return np.zeros(len(ends))
        stash, kept, deferred = (column[ends] - column[first] for column in (self.stash, self.kept, self.deferred))
        kept = np.minimum(kept, self.input_bytes[first]) if self.problem.recomputation == "curve" else kept
        room = self.memory_bytes - (self.state[ends] - self.state[first])
        room = room - self.message_bytes[first] - self.message_bytes[ends]  # of the forward that comes next
        if self.problem.in_flight is not None:
            room = self.problem.in_flight * stash
        above_s = self.forward[-1] - self.forward[first] + self.backward[-1] - self.backward[first]
        kept_s, turn_s = above_s + self.hops_above_s[stage], np.zeros(len(ends))
        parts = [(kept, kept_s)]
        if all(self.problem.shapes()):
            parts.append((np.minimum(kept, deferred), kept_s + self.weight[ends] - self.weight[first]))
        for size, each_s in parts:
            with np.errstate(divide="ignore", invalid="ignore"):
                at_once = np.where(size > 0, np.floor(room / size), np.inf)
            turn_s = np.maximum(turn_s, self.problem.micro_batches * each_s / np.maximum(at_once, 1.0))
        if self.problem.recomputation != "auto":
            return turn_s
        twice_s = self.problem.micro_batches * (self.forward[ends] - self.forward[first])
        return np.asarray(np.minimum(turn_s, self.load_s(first, ends) + twice_s))

    def kept_bytes(self, first: int | Ints, ends: Ints) -> Floats:
        """What there must be room for: states, one micro-batch, and of a rank with one stage the messages in and out
        while it computes; of several stages that may recompute, no more of a micro-batch than their inputs, and nothing
        where hosts may keep it; of slices that may be run again, one of them. With two copies of the model a
        micro-batch has one of the rank's two stages, no less than the mean of both.
        """
        stash = self.kept[ends] - self.kept[first]
        if self.problem.slices > 1 and self.problem.recomputation != "none":  # of one slice, rounded down
            stash = np.maximum(float(self.problem.shares.tokens.max()) * stash - 1, 0.0)
        if self.problem.chunks == 1:
            stash = stash + self.last_tokens * (self.message_bytes[first] + self.message_bytes[ends])
        elif self.problem.link is not None:
            stash = np.zeros(len(ends))
        elif self.problem.recomputation != "none":
            stash = np.minimum(stash, self.input_bytes[first])
        stash = stash / self.problem.copies
        return np.asarray(self.state[ends] - self.state[first] + stash)

    def summed_s(self, stage: int, first: int, ends: Ints) -> Floats:
        """Seconds of the sum between copies of the model, of that among replicas in the fastest mode, and of the
        exchange of a shared embedding."""
        is_end = stage in (0, self.problem.stage_count - 1)
        every = self.parameter[ends] - self.parameter[first]
        sizes = np.maximum(every - (self.shared_bytes if is_end else 0), 0.0)
        exchange_s = self.embedding_s if is_end else 0.0
        return np.asarray(sums_s(self.problem, sizes).min(axis=0) + exchange_s + self._copies_s(stage, every))

    def _copies_s(self, stage: int, sizes: Floats) -> Floats:
        """Of so many bytes between the stage's two copies, as `copies_sum_s` has it."""
        problem = self.problem
        if problem.copies == 1:
            return np.zeros(len(sizes))
        a, b = problem.rank_of_stage[[stage, stage + problem.stage_count]].tolist()
        costs = [problem.hops.cost(*pair) for pair in ((a, b), (b, a))]
        return np.asarray(np.max([2 * alpha_s + s_per_byte * sizes for alpha_s, s_per_byte in costs], axis=0))

    def last_s(self, ends: Ints) -> Floats:
        """After the last gradient is back at the first stage: that of its weights, and its sum."""
        summed = self.summed_s(0, 0, ends) if self.problem.chunks == 1 else np.zeros(len(ends))
        return np.asarray(self.first_tokens * self.weight[ends] + summed)

    def hop_s(self, stage: int, ends: Ints, is_backward: bool) -> Floats:
        """Seconds of a message over the boundary after the stage, of the first slice, a gradient in the fastest mode,
        of the copy of the model in which it is faster."""
        count = self.problem.stage_count
        if stage == count - 1:
            return np.zeros(len(ends))
        copies = range(self.problem.copies)
        return np.asarray(np.min([self._hop_s(copy * count + stage, ends, is_backward) for copy in copies], axis=0))

    def _hop_s(self, stage: int, ends: Ints, is_backward: bool) -> Floats:
        problem = self.problem
        rank = problem.rank_of_stage
        source, target = int(rank[stage]), int(rank[stage + 1])
        if source == target:
            return np.zeros(len(ends))
        if is_backward:
            source, target = target, source
        alpha_s, beta_s_per_byte = problem.hops.cost(source, target)
        sizes = self.first_tokens * problem.profile.boundary_bytes[ends - 1].astype(np.float64)
        plain_s = alpha_s + beta_s_per_byte * sizes
        if not is_backward or not problem.modes:
            return np.asarray(plain_s)
        shape = problem.profile.boundary_shape
        coded = [
            alpha_s + beta_s_per_byte * sizes * mode.hop_ratio(shape)
            + sizes * (mode.encode_s_per_byte + mode.decode_s_per_byte)
            for mode in problem.modes
        ]  # fmt: skip
        return np.asarray(np.minimum(plain_s, np.min(coded, axis=0)))


def _least_backwards_s(problem: Problem) -> tuple[Floats, Floats]:
    """Of each layer the least that the gradient of its input takes, and the least that is left of both, whether or not
    they are split: no stage of either kind takes less."""
    shapes = problem.shapes(problem.recomputation == "all")
    backward_s, weight_s = (
        np.stack(columns) for columns in zip(*map(problem.profile.backwards_s, shapes), strict=True)
    )
    if len(shapes) == 1:
        return backward_s[0], weight_s[0]
    return backward_s.min(axis=0), (backward_s + weight_s).min(axis=0) - backward_s.min(axis=0)


def _prefix(column: Floats | Ints) -> Floats:
    return np.concatenate([[0.0], np.cumsum(column, dtype=np.float64)])
