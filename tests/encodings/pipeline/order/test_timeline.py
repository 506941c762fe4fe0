"""Timelines by hand, and what cannot run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_pipelines import trial

from gapless.encodings.pipeline.order.orders import number, plain
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Kind
from gapless.encodings.pipeline.order.timeline import timed

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


def test_two_ranks_and_one_micro_batch_by_hand() -> None:
    _, stages = trial(2, 1, 1)
    sequences = [[number(stages, kind, rank, 0) for kind in (F, I, W)] for rank in range(2)]
    timeline = timed(stages, plain(stages, sequences))
    assert timeline is not None
    start_s = timeline.start_s.reshape(3, 2)
    assert start_s[F].tolist() == [0, 12]
    assert start_s[I].tolist() == [36, 22]
    assert start_s[W].tolist() == [48, 34]
    assert timeline.step_s == 56
    assert timeline.spread_s == 56 - 42
    assert timeline.sent_s[:, 0, 0].tolist() == [10, 34]


def test_ranks_that_wait_for_each_other_have_no_timeline() -> None:
    _, stages = trial(2, 1, 1)
    sequences = [[number(stages, I, 0, 0), number(stages, F, 0, 0), number(stages, W, 0, 0)],
                 [number(stages, kind, 1, 0) for kind in (F, I, W)]]  # fmt: skip
    assert timed(stages, plain(stages, sequences)) is None


def test_messages_over_one_link_go_one_after_the_other() -> None:
    _, stages = trial(2, 3, 3)
    slow = replace(stages, forward_hop_s=np.array([25.0]))
    ops = [[number(stages, kind, rank, m) for kind in (F, I, W) for m in range(3)] for rank in range(2)]
    timeline = timed(slow, plain(slow, ops))
    assert timeline is not None
    assert timeline.sent_s[0, 0].tolist() == [10, 35, 60]
    assert timeline.start_s[number(slow, F, 1, 2)] == 85


def test_sums_wait_for_the_last_gradient_and_the_exchange_for_both_ends() -> None:
    _, stages = trial(2, 1, 1)
    summed = replace(stages, reduce_s=np.array([[5.0, 100.0]]), embedding_s=7.0)
    sequences = [[number(stages, kind, rank, 0) for kind in (F, I, W)] for rank in range(2)]
    timeline = timed(summed, plain(summed, sequences))
    assert timeline is not None
    assert timeline.reduced_s.tolist() == [61, 142]
    assert timeline.finish_s.tolist() == [149, 149]


@pytest.mark.parametrize(("recomputes", "peak"), [(False, 3), (True, 2)])
def test_recomputation_keeps_the_input_until_the_backward(recomputes: bool, peak: int) -> None:
    _, stages = trial(1, 3, 3)
    sizes = replace(stages, stash_bytes=np.array([10]), saved_bytes=np.array([1]), recomputes=np.array([recomputes]),
                    weight_stash_bytes=np.array([10]))  # fmt: skip
    ops = [(F, 0), (F, 1), (F, 2), (I, 0), (W, 0), (I, 1), (W, 1), (I, 2), (W, 2)]
    timeline = timed(sizes, plain(sizes, [[number(sizes, kind, 0, m) for kind, m in ops]]))
    assert timeline is not None
    assert peak_bytes(sizes, timeline.program)[0] == {3: 30, 2: 12}[peak]
