"""A pipeline's optimum by CP-SAT directly: ops, messages and sums as intervals, written apart from the models that it
is held against. Whole numbers for all durations, plain messages only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from gapless.encodings.pipeline.order.room import op_message_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.placement.named import rank_of_stages

Op = tuple[int, int, int]
"""Kind, stage, micro-batch."""


def exact_step(stages: Stages, time_limit_s: float = 60.0) -> tuple[float, float]:
    """The shortest step, or where it is minimised the shortest span of whole numbers, and a bound on it, equal where it
    is proven."""
    return _Exact(stages).solved(time_limit_s)


class _Exact:
    def __init__(self, stages: Stages) -> None:
        self.stages, self.model = stages, cp_model.CpModel()
        self.depth = stages.count // (stages.copies * stages.slices)
        parts = [stages.forward_s, stages.backward_s, stages.weight_s][: 3 if stages.splits else 2]
        hops = [stages.forward_hop_s, stages.hop_s[0]]
        total = sum(int(part.sum()) for part in parts + hops) * stages.micro_batches
        self.horizon = total + int(stages.reduce_s[0].sum()) + int(stages.embedding_s)
        self.own = {(kind, stage, m): int(parts[kind][stage])
                    for kind in range(len(parts)) for stage in range(stages.count)
                    for m in range(stages.micro_batches)}  # fmt: skip
        self.start = {op: self._time(f"start {op}") for op in self.own}
        self.step = self._time("step")
        self.first = [self._time(f"first {rank}") if stages.by_span else 0 for rank in range(stages.ranks)]
        self.last = Kind.WEIGHT if stages.splits else Kind.BACKWARD
        self.held = dict(self.own)
        self.messages: list[tuple[Op, Op, Any, int]] = []
        self._flow(hops)
        self._ranks()
        self._memory()
        self._sums()

    def _time(self, name: str) -> Any:
        return self.model.new_int_var(0, self.horizon, name)

    def _interval(self, begin: Any, size: int, name: str) -> Any:
        return self.model.new_fixed_size_interval_var(begin, size, name)

    def _flow(self, hops: Sequence[np.ndarray[Any, Any]]) -> None:
        """What a micro-batch passes through; a link carries one message at a time."""
        stages, links = self.stages, defaultdict[tuple[int, int], list[Any]](list)
        for kind, stage, m in self.own:
            op, to = (kind, stage, m), stage + 1 if kind == Kind.FORWARD else stage - 1
            end = self.start[op] + self.own[op]
            is_end = (stage + 1 if kind == Kind.FORWARD else stage) % self.depth == 0
            after = stage + (self.depth if kind == Kind.FORWARD else -self.depth)  # the same stage of another slice
            if stages.slices > 1 and kind != Kind.WEIGHT and 0 <= after < stages.count:
                self.model.add(self.start[kind, after, m] >= end)
            if kind == Kind.FORWARD and is_end:
                self.model.add(self.start[Kind.BACKWARD, stage, m] >= end)
            if kind == Kind.BACKWARD and stages.splits:
                self.model.add(self.start[Kind.WEIGHT, stage, m] >= end)
            if kind == Kind.WEIGHT or is_end:
                continue
            a, b = int(stages.rank[stage]), int(stages.rank[to])
            hop_s = int(hops[kind][min(stage, to)]) if a != b else 0
            if stages.blocks:
                self.held[op] += hop_s
                self.model.add(self.start[kind, to, m] >= end + hop_s)
                continue
            sent = self._time(f"sent {op}")
            self.messages.append((op, (kind, to, m), sent, hop_s))
            self.model.add(sent >= end)
            self.model.add(self.start[kind, to, m] >= sent + hop_s)
            if a != b:
                links[a, b].append(self._interval(sent, hop_s, f"message {op}"))
        for link, messages in links.items():
            self.model.add_no_overlap(messages)
            if stages.by_span:
                first = self._time(f"first of {link}")
                for message in messages:
                    self.model.add(first <= message.start_expr())
                    self.model.add(self.step >= message.end_expr() - first)

    def _ranks(self) -> None:
        """One op at a time, and the step ends after all of them, or the rank's span does."""
        for rank in range(self.stages.ranks):
            here = [op for op in self.own if self.stages.rank[op[1]] == rank]
            # What takes no time may stand between others, but not within one; so it is with messages.
            self.model.add_no_overlap([self._interval(self.start[op], self.held[op], f"op {op}") for op in here])
        for op, held in self.held.items():
            first = self.first[int(self.stages.rank[op[1]])]
            self.model.add(self.step >= self.start[op] + held - first)
            self.model.add(self.start[op] >= first)

    def _memory(self) -> None:
        """What micro-batches keep: until the backward, while it runs, and from there to the weight gradient."""
        stages = self.stages
        kept = np.where(stages.recomputes, stages.saved_bytes, stages.stash_bytes)
        deferred = stages.weight_stash_bytes if stages.splits else np.zeros(stages.count, dtype=np.int64)
        for rank, room in enumerate(stages.room_bytes.tolist()):
            here = [op for op in self.own if stages.rank[op[1]] == rank]
            most = sum(int(stages.stash_bytes[stage]) for kind, stage, _ in here if kind == Kind.FORWARD)
            if room >= most + 4 * stages.message_bytes.sum() * stages.micro_batches:
                continue
            parts, sizes = [], []
            copies: list[tuple[Any, Any, Any, int]] = []
            for kind, stage, m in here:
                if kind != Kind.FORWARD:
                    continue
                forward, backward, last = ((each, stage, m) for each in (kind, Kind.BACKWARD, self.last))
                begun, done = self.start[backward], self.start[backward] + self.held[backward]
                phases = [(self.start[forward], begun, kept), (begun, done, stages.stash_bytes),
                          (done, self.start[last] + self.held[last], deferred)]  # fmt: skip
                if stages.offload_s is not None:
                    copies.append(self._copied(stage, m, begun))
                    (made, *_), (is_away, out, back, taken) = phases.pop(0), copies[-1]
                    for number, (begin, end, there) in enumerate((
                        (made, begun, is_away.negated()), (made, out + taken, is_away), (back, begun, is_away)
                    )):  # fmt: skip
                        long = self._time(f"is there {number} {stage} {m}")
                        parts.append(
                            self.model.new_optional_interval_var(
                                begin, long, end, there, f"is there {number} {stage} {m}"
                            )
                        )
                        sizes.append(int(kept[stage]))
                for number, (begin, end, size) in enumerate(phases):
                    long = self._time(f"kept {number} {stage} {m}")
                    parts.append(self.model.new_interval_var(begin, long, end, f"keeps {number} {stage} {m}"))
                    sizes.append(int(size[stage]))
            for part, size in self._messages(rank):
                parts.append(part)
                sizes.append(size)
            self.model.add_cumulative(parts, sizes, int(room))
            if copies:
                self._engines(copies, [int(kept[stage]) for kind, stage, _ in here if kind == Kind.FORWARD])

    def _copied(self, stage: int, m: int, begun: Any) -> tuple[Any, Any, Any, int]:
        """Whether what is kept goes to the host and comes back, and when each copy begins."""
        assert self.stages.offload_s is not None
        taken, name = int(self.stages.offload_s[stage]), f"{stage} {m}"
        is_away, out, back = (
            self.model.new_bool_var(f"away {name}"),
            self._time(f"out {name}"),
            self._time(f"back {name}"),
        )
        done = self.start[Kind.FORWARD, stage, m] + self.held[Kind.FORWARD, stage, m]
        self.model.add(out >= done).only_enforce_if(is_away)
        self.model.add(back >= out + taken).only_enforce_if(is_away)
        self.model.add(begun >= back + taken).only_enforce_if(is_away)
        return is_away, out, back, taken

    def _engines(self, copies: list[tuple[Any, Any, Any, int]], sizes: list[int]) -> None:
        """A rank copies one micro-batch each way at a time, and its host has room for what is there."""
        for way in (1, 2):
            self.model.add_no_overlap([
                self.model.new_optional_fixed_size_interval_var(one[way], one[3], one[0], f"copy {way} {number}")
                for number, one in enumerate(copies)
            ])  # fmt: skip
        if np.isfinite(self.stages.host_bytes):
            parts = [self.model.new_optional_interval_var(out, self._time("on host"), back + taken, is_away, "on host")
                     for is_away, out, back, taken in copies]  # fmt: skip
            self.model.add_cumulative(parts, sizes, int(self.stages.host_bytes))

    def _messages(self, rank: int) -> Iterator[tuple[Any, int]]:
        """What a rank holds of messages: until one has arrived, or from when one leaves until it is used."""
        stages = self.stages
        for maker, user, sent, hop_s in self.messages:
            size = int(stages.message_bytes[0, min(maker[1], user[1])])
            source, target = (int(stages.rank[op[1]]) for op in (maker, user))
            made, used = self.start[maker], self.start[user] + self.held[user]
            spans = [(made, used)] if source == target == rank else []
            spans += [(made, sent + hop_s)] if source == rank != target else []
            spans += [(sent, used)] if target == rank != source else []
            for begin, end in spans:
                long = self._time(f"message {maker} on {rank}")
                yield self.model.new_interval_var(begin, long, end, f"holds {maker} on {rank}"), size

    def _sums(self) -> None:
        """Among replicas, after a stage's last gradient, one at a time on a rank; then the embedding's exchange.

        Two copies of the model sum a stage together, when both are done with it; slices of micro-batches have one sum.
        """
        stages, networks = self.stages, defaultdict[int, list[Any]](list)
        begins = [self._time(f"sum {stage}") for stage in range(self.depth)]
        for stage in range(stages.count):
            begin, size = begins[stage % self.depth], int(stages.reduce_s[0, stage])
            for m in range(stages.micro_batches):
                op = self.last, stage, m
                self.model.add(begin >= self.start[op] + self.own[op])
            if stages.slices == 1 or stage < self.depth:
                networks[int(stages.rank[stage])].append(self._interval(begin, size, f"sums {stage}"))
            rank = int(stages.rank[stage])
            self.model.add(self.step >= begin + size - self.first[rank])
            for end in {int(stages.rank[0]), int(stages.rank[-1])} if stages.exchange_s[stage] else ():
                self.model.add(self.step >= begin + size + int(stages.exchange_s[stage]) - self.first[end])
        for sums in networks.values():
            self.model.add_no_overlap(sums)

    def solved(self, time_limit_s: float) -> tuple[float, float]:
        self.model.minimize(self.step)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = time_limit_s
        status = solver.solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
        return solver.objective_value, solver.best_objective_bound


def with_messages(seed: int) -> Stages:
    """As `few_stages`, or a line of ranks, where messages take memory and ranks hardly have room for them."""
    rng = np.random.default_rng(seed)
    stages = replace(few_stages(seed), blocks=False)
    message = rng.integers(1, 4, (1, stages.count - 1)).astype(float)
    sized = replace(stages, message_bytes=message)
    one = np.bincount(stages.rank, weights=sized.kept_bytes, minlength=stages.ranks)
    states = np.bincount(stages.rank, minlength=stages.ranks)
    op_bytes = op_message_bytes(sized, np.zeros((stages.count - 1, 1), dtype=np.int64))[:, :, 0].max(axis=0)
    grown = np.zeros(stages.ranks)
    np.maximum.at(grown, stages.rank, sized.full_bytes - sized.kept_bytes + op_bytes)
    memory_bytes = states + one + grown + rng.integers(0, 12, stages.ranks)
    return replace(sized, memory_bytes=memory_bytes)


def with_hosts(seed: int) -> Stages:
    """As `few_stages`, or a line of ranks, in little memory, with a link to each rank's host, fast or slow."""
    rng = np.random.default_rng(seed)
    stages = replace(few_stages(seed, is_uneven=bool(rng.integers(2))), blocks=False)
    if rng.integers(2):
        ranks = int(rng.integers(1, 5))
        line = np.arange(ranks)
        stages = few_stages(seed + 10**6, line=line, micro_batches=int(rng.integers(2, 6 if ranks < 4 else 5)))
        stages = replace(stages, blocks=False)
    each = np.zeros(stages.ranks)
    np.maximum.at(each, stages.rank, np.maximum(stages.full_bytes, stages.kept_bytes).astype(float))
    states = np.bincount(stages.rank, minlength=stages.ranks)
    one = np.bincount(stages.rank, weights=stages.full_bytes, minlength=stages.ranks)
    memory_bytes = states + one + each * rng.integers(0, 3, stages.ranks)
    a_byte = int(rng.choice([1, 1, 2, 3, 5, 9]))
    host_bytes = float(rng.choice([3, 6, np.inf, np.inf]))
    return replace(stages, memory_bytes=memory_bytes, offload_s=a_byte * stages.kept_bytes.astype(float),
                   host_bytes=host_bytes)  # fmt: skip


def two_copies(seed: int) -> Stages:
    """Two copies of a model on two or four ranks, with up to 3 micro-batches each, and sums between the copies."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.choice([2, 2, 4]))
    micro_batches = int(rng.integers(1, 4)) if ranks == 2 else int(rng.integers(1, 3))
    rank, splits, count = rank_of_stages("bidirectional", ranks, 2), bool(rng.integers(3)), 2 * ranks
    crosses, one = rank[1:] != rank[:-1], np.ones(count, dtype=np.int64)

    def times(least: int, most: int, of: int = 2 * ranks) -> np.ndarray[Any, Any]:
        return np.tile(rng.integers(least, most, of // 2), 2).astype(float)

    stash = times(1, 4).astype(np.int64)
    hops = np.where(crosses, rng.integers(0, int(rng.choice([4, 12, 30])), (2, count - 1)), 0).astype(float)
    room = rng.integers(1, 2 * micro_batches + 1) * np.maximum(stash, stash[::-1])[:ranks]
    return Stages(
        ranks=ranks, micro_batches=micro_batches, rank=rank,
        forward_s=times(1, 20), backward_s=times(1, 20), weight_s=times(0, 20) if splits else np.zeros(count),
        splits=splits, stash_bytes=stash, saved_bytes=np.minimum(stash, 1),
        recomputes=np.tile(rng.integers(4, size=ranks) == 0, 2),
        weight_stash_bytes=stash if rng.integers(2) else np.minimum(stash, times(0, 3).astype(np.int64)),
        state_bytes=one, parameter_bytes=one, boundary_bytes=one[1:], forward_hop_s=hops[0], hop_s=hops[1:],
        message_bytes=np.zeros((1, count - 1)), encode_s=np.zeros((1, count - 1)), decode_s=np.zeros((1, count - 1)),
        reduce_s=times(0, 40)[None] * rng.integers(2), embedding_s=0.0,
        memory_bytes=(room + np.bincount(rank, minlength=ranks)).astype(float), blocks=bool(rng.integers(5) == 0),
        copies=2, copies_s=np.zeros(count),
    )  # fmt: skip


def again_in_slices(seed: int) -> Stages:
    """As `in_slices`, where some stages run again and keep less of each slice."""
    stages, rng = in_slices(seed), np.random.default_rng(10**6 + seed)
    recomputes = np.tile(rng.integers(2, size=stages.depth) == 0, stages.slices)
    again_s = np.where(recomputes, rng.integers(1, 20, stages.count), 0).astype(float)
    return replace(stages, recomputes=recomputes, again_s=again_s, backward_s=stages.backward_s + again_s,
                   saved_bytes=rng.integers(0, stages.stash_bytes + 1), working_bytes=stages.stash_bytes)  # fmt: skip


def in_slices(seed: int) -> Stages:
    """Micro-batches of two or three slices, whose costs are their own, on a line of ranks or a V; with sums, and with
    messages that take memory, or sends that block, or neither."""
    rng = np.random.default_rng(seed)
    ranks, slices = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    micro_batches = int(rng.integers(1, 4)) if ranks * slices < 6 else 2
    line = rank_of_stages("v", ranks, 2) if ranks < 3 and rng.integers(4) == 0 else np.arange(ranks)
    rank, depth, splits = np.tile(line, slices), len(line), bool(rng.integers(3))
    count = len(rank)
    is_hop = (rank[1:] != rank[:-1]) & (np.arange(1, count) % depth > 0)
    stash, first = rng.integers(1, 4, count), np.arange(count) < depth
    whole = np.bincount(rank, weights=stash, minlength=ranks)
    hops = np.where(is_hop, rng.integers(0, int(rng.choice([4, 12, 30])), (2, count - 1)), 0).astype(float)
    message = np.where(np.arange(1, count) % depth > 0, rng.integers(1, 3), 0) * float(rng.integers(3) == 0)
    room = whole * rng.integers(4, 4 * micro_batches + 1) // 4 + 4 * message.max(initial=0.0)
    sums = rng.integers(0, 30, depth).astype(float) * rng.integers(2)
    return Stages(
        ranks=ranks, micro_batches=micro_batches, rank=rank,
        forward_s=rng.integers(1, 20, count).astype(float), backward_s=rng.integers(1, 20, count).astype(float),
        weight_s=(rng.integers(0, 20, count) if splits else np.zeros(count)).astype(float), splits=splits,
        stash_bytes=stash, saved_bytes=stash, recomputes=np.zeros(count, dtype=np.bool_),
        weight_stash_bytes=stash if rng.integers(2) else rng.integers(0, stash + 1),
        state_bytes=first.astype(np.int64), parameter_bytes=first.astype(np.int64),
        boundary_bytes=np.ones(count - 1, dtype=np.int64), forward_hop_s=hops[0], hop_s=hops[1:],
        message_bytes=message[None], encode_s=np.zeros((1, count - 1)), decode_s=np.zeros((1, count - 1)),
        reduce_s=np.tile(sums, slices)[None], embedding_s=0.0,
        memory_bytes=room + np.bincount(line, minlength=ranks), blocks=bool(rng.integers(5) == 0) and not message.any(),
        slices=slices,
    )  # fmt: skip


def few_stages(
    seed: int, is_uneven: bool = False, line: np.ndarray[Any, Any] | None = None, micro_batches: int | None = None
) -> Stages:
    """Two or three ranks with two stages each, up to 4 micro-batches: messages of activations and gradients share
    links, on which they are often slower than ops. `is_uneven`: each has one stage or more, in any order. `line`,
    `micro_batches`: ranks of one stage each, and as many micro-batches as that."""
    rng = np.random.default_rng(seed)
    ranks, most = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    rank, micro_batches = rank_of_stages(str(rng.choice(["v", "looped"])), ranks, 2), micro_batches or most
    if line is not None:
        rank, ranks = line, len(line)
    elif is_uneven:
        rank = rng.permutation(np.concatenate([np.arange(ranks), rng.integers(0, ranks, rng.integers(1, 3))]))
    count, splits = len(rank), bool(rng.integers(3))
    crosses, stash = rank[1:] != rank[:-1], rng.integers(1, 4, count)
    whole = np.bincount(rank, weights=stash, minlength=ranks)
    hops = np.where(crosses, rng.integers(0, int(rng.choice([4, 12, 30])), (2, count - 1)), 0).astype(float)
    one = np.ones(count, dtype=np.int64)
    return Stages(
        ranks=ranks, micro_batches=micro_batches, rank=rank,
        forward_s=rng.integers(1, 20, count).astype(float), backward_s=rng.integers(1, 20, count).astype(float),
        weight_s=(rng.integers(1, 20, count) if splits else np.zeros(count)).astype(float), splits=splits,
        stash_bytes=stash, saved_bytes=np.minimum(stash, 1), recomputes=(rng.integers(4, size=count) == 0),
        weight_stash_bytes=stash if rng.integers(2) else rng.integers(0, stash + 1),
        state_bytes=one, parameter_bytes=one, boundary_bytes=one[1:], forward_hop_s=hops[0], hop_s=hops[1:],
        message_bytes=np.zeros((1, count - 1)),
        encode_s=np.zeros((1, count - 1)), decode_s=np.zeros((1, count - 1)), reduce_s=np.zeros((1, count)),
        embedding_s=0.0, memory_bytes=whole * rng.integers(1, micro_batches + 1) + np.bincount(rank, minlength=ranks),
        blocks=bool(rng.integers(5) == 0),
    )  # fmt: skip
