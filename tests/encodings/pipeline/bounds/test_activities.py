"""What is known of a rank, or of links, apart from all others, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.encodings.pipeline.bounds.activities import Lag, Memory, of_links, of_rank
from gapless.encodings.pipeline.bounds.heads import heads_and_tails
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.placement.named import rank_of_stages


def v_of_two(**changes: object) -> Stages:
    """Two ranks, four stages down and up, two micro-batches: forwards of 1 to 4 s, backwards of 5 to 8, hops of 20."""
    one, hops = np.ones(4, dtype=np.int64), np.array([20.0, 0.0, 20.0])
    stages = Stages(
        ranks=2, micro_batches=2, rank=rank_of_stages("v", 2, 2), forward_s=np.array([1.0, 2.0, 3.0, 4.0]),
        backward_s=np.array([5.0, 6.0, 7.0, 8.0]), weight_s=np.full(4, 9.0), splits=True, stash_bytes=4 * one,
        saved_bytes=one, weight_stash_bytes=2 * one, recomputes=np.zeros(4, dtype=bool), state_bytes=one,
        parameter_bytes=one, boundary_bytes=one[1:], message_bytes=np.zeros((1, 3)), forward_hop_s=hops,
        hop_s=hops[None], encode_s=np.zeros((1, 3)),
        decode_s=np.zeros((1, 3)), reduce_s=np.zeros((1, 4)), embedding_s=0.0, memory_bytes=np.array([13.0, 19.0]),
    )  # fmt: skip
    return replace(stages, **changes)  # type: ignore[arg-type]


def test_between_the_ops_of_a_rank_is_what_happens_elsewhere() -> None:
    """Rank 0 has the forwards of stages 0 and 3, their backwards, their weight gradients."""
    found = of_rank(heads_and_tails(v_of_two(), remembers=False), 0)
    there, back = 1 + 20 + 2 + 0 + 3 + 20, 8 + 20 + 7 + 0 + 6 + 20
    chain = {Lag(0, 1, there), Lag(1, 3, 4), Lag(3, 2, back)}
    assert set(found.lags) == chain | {Lag(2, 4, 5), Lag(3, 5, 8)}
    assert found.hold.tolist() == [1, 4, 5, 8, 9, 9]
    assert found.head[:, 0].tolist() == [0, there, there + 4 + back, there + 4, there + 4 + back + 5, there + 4 + 8]
    assert found.rest[:, 1].tolist() == [there + 4 + back + 5 + 9, 4 + back + 5 + 9, 5 + 9, back + 5 + 9, 9, 9]


def test_what_takes_no_time_keeps_its_turn() -> None:
    nothing = np.zeros(4)
    stages = v_of_two(forward_s=nothing, backward_s=nothing, forward_hop_s=np.zeros(3), hop_s=np.zeros((1, 3)))
    found = of_rank(heads_and_tails(stages, remembers=False), 1)
    assert [lag[:2] for lag in found.lags] == [(0, 1), (1, 3), (3, 2), (2, 4), (3, 5)]


def test_memory_is_counted_in_the_largest_unit_of_what_is_kept() -> None:
    """Each stage keeps 4 bytes until its backward, 2 of them until its weight gradient; states take 2 bytes a rank."""
    heads = heads_and_tails(v_of_two())
    memory = of_rank(heads, 0).memory
    assert isinstance(memory, Memory)
    assert memory.room == (13 - 2) // 2
    parts = zip(memory.begins.tolist(), memory.ends.tolist(), memory.sizes.tolist(), strict=True)
    assert set(parts) == {(0, 4, 1), (1, 5, 1), (0, 2, 1), (1, 3, 1)}
    assert of_rank(heads, 1).memory is None  # 2 stages x 2 micro-batches x 4 bytes


def test_links_carry_what_goes_both_ways() -> None:
    """From rank 0 to 1 go the activation of stage 0 and the gradient of stage 3, the others back."""
    (found,) = of_links(heads_and_tails(v_of_two(), remembers=False))
    assert found.hold.tolist() == [20, 20, 20, 20]
    assert [own.tolist() for own in found.machines] == [[0, 1], [2, 3]]
    starts = {0: 1, 3: 1 + 20 + 2 + 3}  # the activations of stages 0 and 2
    starts |= {1: starts[3] + 20 + 4 + 8}
    starts |= {2: starts[1] + 20 + 7 + 6}
    assert found.head[:, 0].tolist() == [starts[k] for k in range(4)]
    assert set(found.lags) == {Lag(a, b, starts[b] - starts[a]) for a, b in ((0, 3), (3, 1), (1, 2))}


def test_where_sends_block_there_are_no_links_to_look_at() -> None:
    assert list(of_links(heads_and_tails(v_of_two(blocks=True)))) == []
