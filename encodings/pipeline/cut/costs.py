"""From a problem and a cut to the costs of its stages, where some may run their forward again before their backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.cut.policies import Choice, rerun
from gapless.encodings.pipeline.order.stages import Cut, Stages
from gapless.encodings.pipeline.placement.named import each_rank
from gapless.encodings.pipeline.problem import Problem

__all__ = ["even_cut", "stages_of", "sums_s"]

_LEAST_S = 1e-300
"""What takes no time has no parts."""


def even_cut(layers: int, stages: int) -> Cut:
    """As many layers in each stage as in the others, one more in the first ones where that doesn't come out even."""
    size, rest = divmod(layers, stages)
    return tuple(stage * size + min(stage, rest) for stage in range(1, stages))


def stages_of(problem: Problem, cut: Cut, choice: Choice | None = None, splits: bool | None = None) -> Stages:
    """The costs of the stages, each with its policy of recomputation; by default they keep all. `splits`: whether
    backwards are split, by default the first choice that there is.

    Each copy of the model has all of them, and each slice of micro-batches its share.
    """
    profile, count = problem.profile, problem.stage_count
    firsts, copies = np.array([0, *cut], dtype=np.int64), problem.copies
    choice = choice or rerun(problem, cut, [False] * count)
    recomputes = np.tile([policy.recomputes for policy in choice], copies)
    saved_bytes, working_bytes, again_s = (
        np.tile([getattr(policy, name) for policy in choice], copies)
        for name in ("kept_bytes", "working_bytes", "again_s")
    )
    splits = problem.shapes(bool(recomputes.any()))[0] if splits is None else splits
    forward_s, backward_s, weight_s = (
        np.tile(np.add.reduceat(column, firsts), copies) for column in (profile.forward_s, *profile.backwards_s(splits))
    )
    stash_bytes, deferred_bytes, state_bytes, parameter_bytes = (
        np.tile(np.add.reduceat(column, firsts), copies)
        for column in (profile.stash_bytes, profile.deferred_bytes, profile.state_bytes, profile.parameter_bytes)
    )
    boundary_bytes = np.tile(np.append(profile.boundary_bytes[firsts[1:] - 1], 0), copies)[:-1]
    rank = problem.rank_of_stage
    forward_hop_s, hop_s, encode_s, decode_s = _hop_costs(problem, rank, boundary_bytes)
    reduce_s, embedding_s = _reduce_costs(problem, rank, parameter_bytes)
    copies_s = copies_sum_s(problem, parameter_bytes) if copies > 1 else np.zeros(count)
    stages = Stages(
        ranks=problem.ranks,
        micro_batches=problem.micro_batches // copies,
        rank=rank,
        forward_s=forward_s,
        backward_s=backward_s + again_s,
        weight_s=weight_s,
        splits=splits,
        stash_bytes=stash_bytes,
        saved_bytes=saved_bytes,
        weight_stash_bytes=deferred_bytes,
        recomputes=recomputes,
        state_bytes=state_bytes,
        parameter_bytes=parameter_bytes,
        boundary_bytes=boundary_bytes,
        message_bytes=problem.sent_bytes(boundary_bytes) * problem.counts_messages,
        forward_hop_s=forward_hop_s,
        hop_s=hop_s,
        encode_s=encode_s,
        decode_s=decode_s,
        reduce_s=reduce_s + copies_s,
        embedding_s=embedding_s,
        memory_bytes=_memory(problem, rank, stash_bytes, state_bytes),
        blocks=problem.blocking_sends,
        copies=copies,
        overlap=problem.overlap_cost,
        copies_s=copies_s,
        by_span=problem.by_span,
        steps=problem.steps,
        again_s=again_s if recomputes.any() else None,
        working_bytes=working_bytes if recomputes.any() else None,
        policies=tuple(" ".join(policy.layers) for policy in choice) if recomputes.any() else (),
    )
    if problem.link is not None:
        copy_s = stages.kept_bytes / problem.link.bytes_per_s
        return replace(stages, offload_s=copy_s, host_bytes=float(problem.link.host_bytes))
    return stages if problem.slices == 1 else _sliced(problem, stages, firsts)


def _sliced(problem: Problem, stages: Stages, firsts: Ints) -> Stages:
    """The same for slices of micro-batches: every stage once for each slice, with weights in the first one.

    A stage that runs its forward again keeps the keys and values of a slice besides its input, which later slices
    attend to when they run again: no more than two outputs of each layer, and than all of it.
    """
    profile, shares, slices = problem.profile, problem.shares, problem.slices
    gradients_s = profile.backward_s if stages.splits else profile.backward_s + profile.weight_s
    by_work = np.add.reduceat(profile.backward_s, firsts) / np.maximum(np.add.reduceat(gradients_s, firsts), _LEAST_S)
    back = np.outer(shares.work, by_work) + np.outer(shares.tokens, 1 - by_work)
    again_s = np.zeros(stages.count) if stages.again_s is None else stages.again_s
    attended = 2 * np.add.reduceat(profile.boundary_bytes, firsts)
    saved_bytes = np.where(stages.recomputes, np.minimum(stages.saved_bytes + attended, stages.stash_bytes), 0)
    rank, recomputes = np.tile(stages.rank, slices), np.tile(stages.recomputes, slices)
    later = np.zeros((slices - 1) * stages.count, dtype=np.int64)
    stash_bytes, deferred_bytes, boundary_bytes = (
        shares.cut(sizes).reshape(-1)
        for sizes in (stages.stash_bytes, stages.weight_stash_bytes, np.append(stages.boundary_bytes, 0))
    )
    forward_hop_s, hop_s, encode_s, decode_s = _hop_costs(problem, rank, boundary_bytes[:-1])
    return replace(
        stages, slices=slices, rank=rank, recomputes=recomputes, copies_s=None,
        forward_s=np.outer(shares.work, stages.forward_s).reshape(-1),
        backward_s=(back * (stages.backward_s - again_s) + np.outer(shares.work, again_s)).reshape(-1),
        weight_s=np.outer(shares.tokens, stages.weight_s).reshape(-1), stash_bytes=stash_bytes,
        saved_bytes=np.where(recomputes, shares.cut(saved_bytes).reshape(-1), stash_bytes),
        working_bytes=None if stages.working_bytes is None else stash_bytes, weight_stash_bytes=deferred_bytes,
        again_s=None if stages.again_s is None else np.outer(shares.work, again_s).reshape(-1),
        state_bytes=np.concatenate([stages.state_bytes, later]),
        parameter_bytes=np.concatenate([stages.parameter_bytes, later]), boundary_bytes=boundary_bytes[:-1],
        message_bytes=problem.sent_bytes(boundary_bytes[:-1]) * problem.counts_messages, forward_hop_s=forward_hop_s,
        hop_s=hop_s, encode_s=encode_s, decode_s=decode_s, reduce_s=np.tile(stages.reduce_s, slices),
    )  # fmt: skip


def _hop_costs(problem: Problem, rank: Ints, sizes: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Hops forward; those of gradients, encoding and decoding, in each mode. Within a rank nothing is sent."""
    ends = (np.arange(1, len(rank)) % problem.stage_count) == 0  # of a copy, or a slice
    pairs = list(zip(rank[:-1].tolist(), np.where(ends, rank[:-1], rank[1:]).tolist(), strict=True))
    forward_s = np.array([_seconds(problem, a, b, size) for (a, b), size in zip(pairs, sizes.tolist(), strict=True)])
    crosses = np.array([a != b for a, b in pairs], dtype=np.bool_)
    hop_s, encode_s, decode_s = (np.zeros((1 + len(problem.modes), len(pairs))) for _ in range(3))
    for number, sent in enumerate(problem.sent_bytes(sizes).tolist()):
        hop_s[number] = [_seconds(problem, b, a, size) for (a, b), size in zip(pairs, sent, strict=True)]
    for number, mode in enumerate(problem.modes, 1):
        encode_s[number] = np.where(crosses, sizes * mode.encode_s_per_byte, 0.0)
        decode_s[number] = np.where(crosses, sizes * mode.decode_s_per_byte, 0.0)
    return forward_s, hop_s, encode_s, decode_s


def _seconds(problem: Problem, source: int, target: int, size_bytes: float) -> float:
    if source == target:
        return 0.0
    alpha_s, beta_s_per_byte = problem.hops.cost(source, target)
    return alpha_s + beta_s_per_byte * size_bytes


def _reduce_costs(problem: Problem, rank: Ints, parameter_bytes: Ints) -> tuple[Floats, float]:
    """Sums of gradients among replicas, and the exchange of a shared embedding (Optimus-CC, equations 15 and 16).

    A rank that runs both the first and the last stage adds up its two gradients itself, and sums them once.
    """
    replicas, shared = problem.replicas, problem.profile.embedding_bytes
    sizes, embedding_s = parameter_bytes.astype(np.float64), 0.0
    if shared and rank[0] == rank[-1]:
        if problem.profile.layer_count > 1:
            sizes[problem.stage_count - 1 :: problem.stage_count] -= shared
    elif shared and replicas.fuses_embedding:
        sizes[[0, -1]] -= shared
        embedding_s = replicas.reduce_s(shared, 2 * replicas.count)
    elif shared:
        embedding_s = replicas.reduce_s(shared, 2)
    return sums_s(problem, sizes), embedding_s


def copies_sum_s(problem: Problem, sizes: Ints) -> Floats:
    """Seconds of the sum of each stage between its two copies, float of shape (2 S,): a ring of their two ranks, twice
    half of the gradients over the slower direction of their link.
    """
    rank = problem.rank_of_stage.tolist()
    pairs = zip(rank, rank[problem.stage_count :] + rank[: problem.stage_count], sizes.tolist(), strict=True)
    return np.array([2 * max(_seconds(problem, a, b, size - size // 2), _seconds(problem, b, a, size - size // 2))
                     for a, b, size in pairs])  # fmt: skip


def sums_s(problem: Problem, sizes: Floats) -> Floats:
    """Seconds of the sums of so many bytes among replicas in each mode, float of shape (modes, len(sizes))."""
    each_s, s_per_byte = problem.replicas.cost(problem.replicas.count)
    modes = problem.modes
    if problem.replicas.count == 1:
        return np.zeros((1 + len(modes), len(sizes)))
    coding = [(1.0, 0.0), *((mode.ratio, mode.encode_s_per_byte + mode.decode_s_per_byte) for mode in modes)]
    return np.array([each_s + sizes * (ratio * s_per_byte + coding_s) for ratio, coding_s in coding])


def _memory(problem: Problem, rank: Ints, stash_bytes: Ints, state_bytes: Ints) -> Floats:
    if problem.in_flight is None:
        return np.full(problem.ranks, problem.memory_bytes)
    kept = each_rank(rank, stash_bytes, problem.ranks, problem.copies)
    states = np.bincount(rank, weights=state_bytes, minlength=problem.ranks)
    return np.asarray(states + problem.in_flight * kept, dtype=np.float64)
