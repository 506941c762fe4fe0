"""Two levels in one process: four ranks in two nodes, whose messages are exchanged by hand. Skipped without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket, Message
from gapless.profiles.compressors.two_levels import exchange_in_two_levels

SHAPES = [(3, 4), (5,), (7, 2)]
COUNT = sum(math.prod(shape) for shape in SHAPES)
PER_NODE = 2
AMONG = {"node": [[0, 1], [2, 3]], "across": [[0, 2], [1, 3]]}


def together(messages: Sequence[Message]) -> list[torch.Tensor]:
    """What each of a group receives."""
    stacked, count = torch.stack([message.payload for message in messages]), len(messages)
    if messages[0].collective == "all_gather":
        return [stacked.clone() for _ in messages]
    if messages[0].collective == "all_reduce":
        return [stacked.sum(0) for _ in messages]
    return [part.clone() for part in stacked.sum(0).chunk(count)]


def exchanged(mode: str, buckets: Sequence[Bucket]) -> list[torch.Tensor]:
    """The means that the ranks get; a group exchanges as soon as all its ranks have a message for it."""
    exchanges = [exchange_in_two_levels(method_of(mode), bucket, PER_NODE) for bucket in buckets]
    messages, means = {rank: next(exchange) for rank, exchange in enumerate(exchanges)}, {}
    while messages:
        level, group = next(
            (level, group)
            for level, groups in AMONG.items()
            for group in groups
            if all(rank in messages and messages[rank].level == level for rank in group)
        )
        for rank, received in zip(group, together([messages.pop(rank) for rank in group]), strict=True):
            try:
                messages[rank] = exchanges[rank].send(received)
            except StopIteration as end:
                assert level == "node"
                means[rank] = end.value
    return [means[rank] for rank in range(len(buckets))]


def buckets_of(seed: int, errors: Sequence[torch.Tensor] | None = None) -> list[Bucket]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(4, COUNT, generator=generator, dtype=torch.float64).float()
    return [Bucket(row if errors is None else row + errors[rank], SHAPES, rank, 4) for rank, row in enumerate(rows)]


@pytest.mark.parametrize("mode", ["plain", "topk:1", "rand-k:1", "rand-k-gathered:1"])
def test_what_loses_nothing_is_the_mean_of_all_ranks(mode: str) -> None:
    buckets = buckets_of(1)
    expected = torch.stack([bucket.gradient for bucket in buckets]).mean(0)
    for mean in exchanged(mode, buckets):
        torch.testing.assert_close(mean, expected)


@pytest.mark.parametrize("mode", ["topk:0.2", "ms-topk:0.2", "rand-k:0.2", "ef-signsgd", "onebit"])
def test_what_is_sent_and_what_is_left_are_the_gradient(mode: str) -> None:
    """Over several steps: a rank keeps what its share has left, and adds it to its next gradient."""
    errors, total, sent = None, torch.zeros(COUNT), torch.zeros(COUNT)
    for step in range(4):
        total += torch.stack([bucket.gradient for bucket in buckets_of(step)]).mean(0)
        buckets = buckets_of(step, errors)
        means = exchanged(mode, buckets)
        assert all(torch.equal(mean, means[0]) for mean in means)
        sent += means[0]
        errors = [bucket.gradient for bucket in buckets]
        left = torch.stack(errors).mean(0)
        torch.testing.assert_close(sent + left, total, rtol=1e-4, atol=1e-5)
        for rank, error in enumerate(errors):
            other = slice(0, -(-COUNT // 2)) if rank % 2 else slice(-(-COUNT // 2), COUNT)
            assert not error[other].any()


def test_an_entry_alone_has_one_share_and_the_others_none() -> None:
    buckets = [Bucket(torch.tensor([float(rank)]), [(1,)], rank, 4) for rank in range(4)]
    for mean in exchanged("topk:1", buckets):
        assert mean.tolist() == [1.5]
