"""What compressors send of a bucket, with all ranks in one process. Without torch these tests are skipped."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.profiles.compressors.entries import TopK
from gapless.profiles.compressors.grammar import method_of, sent_names
from gapless.profiles.compressors.method import Bucket, Message

SHAPES = ((20, 30), (7,), (4, 3, 5), ())
LENGTH = sum(math.prod(shape) for shape in SHAPES)


def drawn(ranks: int = 3, length: int = LENGTH, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, generator=generator) for _ in range(ranks)]


class Ranks:
    """An exchange among ranks: `means` and what is `left` of each rank's gradient, and the messages of rank 0."""

    def __init__(
        self, mode: str, gradients: list[torch.Tensor], shapes: Any = SHAPES, memories: Any = None, step: int = 0
    ) -> None:
        ranks = len(gradients)
        self.memories = memories or [{} for _ in range(ranks)]
        buckets = [
            Bucket(gradient.clone(), shapes, rank, ranks, 0, step, self.memories[rank])
            for rank, gradient in enumerate(gradients)
        ]
        exchanges = [method_of(mode).exchange(bucket) for bucket in buckets]
        messages = [next(exchange) for exchange in exchanges]
        self.messages: list[Message] = []
        while True:
            self.messages.append(messages[0])
            payloads = torch.stack([message.payload for message in messages])
            arrived = payloads if messages[0].collective == "all_gather" else payloads.sum(0)
            answers = [answered(exchange, arrived.clone()) for exchange in exchanges]
            if messages[0].is_last:
                break
            messages = answers
        self.means = answers
        self.left = [bucket.gradient for bucket in buckets]


def answered(exchange: Any, arrived: torch.Tensor) -> Any:
    """The next message, or at the end the mean."""
    try:
        return exchange.send(arrived)
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("mode", [*sent_names()[1:], "topk:0.1", "rand-k:0.3", "powersgd:1", "powersgd:2"])
def test_what_arrives_and_what_is_left_are_the_mean_together(mode: str) -> None:
    gradients = drawn()
    found = Ranks(mode, gradients)
    together = found.means[0] + sum(found.left) / 3
    tolerance = {"fp16": 2e-3, "bf16": 2e-2}.get(mode, 1e-5)  # the sum of shares is rounded once more, and lost
    assert torch.allclose(together, sum(gradients) / 3, atol=tolerance)
    assert all(torch.equal(mean, found.means[0]) for mean in found.means)


def test_plain_is_the_mean_of_shares() -> None:
    gradients = drawn(ranks=2)
    assert torch.equal(Ranks("plain", gradients).means[0], gradients[0] / 2 + gradients[1] / 2)


@pytest.mark.parametrize("mode", ["fp16", "bf16"])
def test_what_a_shorter_type_holds_arrives_exactly(mode: str) -> None:
    gradients = [gradient.mul(8).round() for gradient in drawn(ranks=2)]
    found = Ranks(mode, gradients)
    assert torch.equal(found.means[0], (gradients[0] + gradients[1]) / 2)
    assert not any(left.any() for left in found.left)


@pytest.mark.parametrize("mode", [mode for mode in sent_names() if not mode.startswith("powersgd")])
def test_messages_have_the_bytes_that_are_said(mode: str) -> None:
    length = 6400
    found = Ranks(mode, drawn(length=length), [(length,)])
    sent = sum(message.payload.nbytes for message in found.messages)
    assert sent == method_of(mode).sent_bytes((length,))
    levels = 8 if mode in ("ef-signsgd", "onebit") else 0
    assert sent == method_of(mode).added_bytes((length,), 4) + levels
    assert found.messages[0].collective == method_of(mode).collective


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_factors_have_the_bytes_that_are_said(rank: int) -> None:
    shapes = ((20, 30), (7,), (4, 3, 5), (40, 2, 9), ())
    compressor = method_of(f"powersgd:{rank}")
    found = Ranks(f"powersgd:{rank}", drawn(length=sum(map(math.prod, shapes))), shapes)
    assert len(found.messages) == compressor.messages == 2
    sent = sum(message.payload.nbytes for message in found.messages)
    assert sent == sum(compressor.sent_bytes(shape, 4) for shape in shapes)
    assert compressor.sent_bytes((7,), 4) == 28
    assert compressor.sent_bytes((200, 30), 4) == 4 * rank * 230


def test_a_bucket_of_vectors_goes_whole_in_one_message() -> None:
    gradients = drawn(length=9)
    found = Ranks("powersgd:4", gradients, ((7,), (2,)))
    assert len(found.messages) == 1
    assert torch.allclose(found.means[0], sum(gradients) / 3)


def test_a_matrix_of_low_rank_arrives_whole() -> None:
    left, right = torch.randn(20, 2), torch.randn(2, 30)
    matrices = [(left * factor @ right).flatten() for factor in (1.0, 3.0)]
    found = Ranks("powersgd:2", matrices, ((20, 30),))
    assert torch.allclose(found.means[0], (2 * left @ right).flatten(), atol=1e-4)


def test_factors_go_on_from_those_of_the_step_before() -> None:
    gradients, shapes = drawn(length=600), ((20, 30),)
    first = Ranks("powersgd:2", gradients, shapes)
    later = first
    for step in range(1, 8):
        later = Ranks("powersgd:2", gradients, shapes, later.memories, step)
    mean = sum(gradients) / 3
    assert (later.means[0] - mean).norm() < 0.97 * (first.means[0] - mean).norm()


def test_top_k_keeps_the_greatest_magnitudes() -> None:
    assert Ranks("topk:0.4", [torch.tensor([0.5, -3.0, 0.1, 2.0, -0.2])]).means[0].tolist() == [0, -3, 0, 2, 0]


def test_random_k_is_one_of_each_stretch_the_same_in_all_ranks_and_others_in_each_step() -> None:
    gradients = [torch.ones(100), torch.full((100,), 3.0)]
    kept = [Ranks("rand-k:0.1", gradients, step=step).means[0].nonzero().flatten() for step in range(2)]
    assert [int(place) // 10 for place in kept[0]] == list(range(10))
    assert not torch.equal(*kept)
    shared, gathered = (Ranks(mode, gradients).means[0] for mode in ("rand-k:0.1", "rand-k-gathered:0.1"))
    assert set(shared.tolist()) == {0.0, 2.0}
    assert {0.5, 1.5} <= set(gathered.tolist()) <= {0.0, 0.5, 1.5, 2.0}


def test_random_k_of_a_stretch_that_is_no_whole_number_keeps_different_entries() -> None:
    for length in range(2, 40):
        found = Ranks("rand-k:0.7", [torch.ones(length)]).means[0]
        assert int(found.count_nonzero()) == max(1, round(0.7 * length))


def test_signs_stand_for_the_mean_magnitude_or_for_a_mean_each() -> None:
    gradient = torch.tensor([4.0, -1.0, 2.0, -5.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert Ranks("ef-signsgd", [gradient]).means[0][:4].tolist() == pytest.approx([12 / 9, -12 / 9, 12 / 9, -12 / 9])
    assert Ranks("onebit", [gradient]).means[0][:4].tolist() == pytest.approx([6 / 7, -3, 6 / 7, -3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_payload_has_a_place_and_a_value_for_each_kept_entry(dtype: torch.dtype, length: int) -> None:
    gradient = torch.randn(length, generator=torch.Generator().manual_seed(length)).to(dtype)
    for kept in (0.01, 0.5, 1.0):
        payload = TopK(kept).encode(gradient)
        assert payload.dtype is torch.uint8
        assert payload.numel() == max(1, round(kept * length)) * (4 + dtype.itemsize)


@pytest.mark.parametrize(
    "name", ["", "topk:", "topk:2", "topk:x", "powersgd:0", "powersgd:1.5", "sign", "plain:1", "qsgd"]
)
def test_unknown_modes_are_refused(name: str) -> None:
    with pytest.raises(
        InputError, match=r"mode: must be one of none|a share must be|a rank must be|nothing here sends it"
    ):
        method_of(name)


def test_published_compressors_have_the_hook_that_sends_what_they_send() -> None:
    assert [type(method_of(name)) for name in ("dgc", "ms-topk")] == [TopK, TopK]
    assert type(method_of("none")) is type(method_of("plain"))
