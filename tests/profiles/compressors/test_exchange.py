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
from gapless.profiles.compressors.unbiased import probabilities

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
            if messages[0].collective == "all_to_all":
                arrived = list(payloads.view(ranks, ranks, -1).transpose(0, 1))
            else:
                arrived = [payloads if messages[0].collective == "all_gather" else payloads.sum(0)] * ranks
            answers = [answered(exchange, each.clone()) for exchange, each in zip(exchanges, arrived, strict=True)]
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


FED_BACK = [mode for mode in sent_names() if method_of(mode).feeds_back]
UNBIASED = [mode for mode in sent_names() if method_of(mode).error == "unbiased"]


@pytest.mark.parametrize("mode", [*FED_BACK, "topk:0.1", "ms-topk:0.1", "dgc:0.1", "rand-k:0.3", "powersgd:1"])
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


@pytest.mark.parametrize("mode", [mode for mode in sent_names() if not mode.startswith(("powersgd", "atomo", "int8"))])
def test_messages_have_the_bytes_that_are_said(mode: str) -> None:
    length = 6400
    found = Ranks(mode, drawn(length=length), [(length,)])
    sent = sum(message.payload.nbytes for message in found.messages)
    assert sent == method_of(mode).sent_bytes((length,))
    levels = {"ef-signsgd": 8, "onebit": 8, "signsgd": 1, "qsgd:2": 2}.get(mode, 0)
    assert sent == method_of(mode).added_bytes((length,), 4) + levels
    assert found.messages[0].collective == method_of(mode).collective


def test_eight_bits_take_what_an_all_reduce_of_their_bytes_takes_on_a_ring() -> None:
    """Of shares of whole blocks: two of the three are sent, then this rank's own to two others."""
    length, ranks = 3 * 256 * 10, 3
    shares, sums = Ranks("int8", drawn(length=length), [(length,)]).messages
    assert (shares.collective, sums.collective) == ("all_to_all", "all_gather")
    sent = shares.payload.nbytes * (ranks - 1) / ranks + sums.payload.nbytes * (ranks - 1)
    assert sent == 2 * (ranks - 1) / ranks * method_of("int8").sent_bytes((length,))
    assert method_of("int8").sent_bytes((length,)) / (2 * length) == pytest.approx(0.508, abs=5e-4)


@pytest.mark.parametrize(("mode", "share"), [("fp16", 0.0003), ("bf16", 0.0023), ("int8", 0.0098), ("qsgd:8", 0.073)])
def test_the_mean_of_eight_ranks_is_as_near_as_is_said(mode: str, share: float) -> None:
    gradients = drawn(8, 100_000)
    mean = sum(gradients) / 8
    assert float((Ranks(mode, gradients, [(250, 400)]).means[0] - mean).norm() / mean.norm()) == pytest.approx(
        share, rel=0.05
    )


def test_eight_bits_are_off_by_half_a_127th_of_the_greatest_of_256() -> None:
    gradients = drawn(length=5000)
    found = Ranks("int8", gradients, [(5000,)])
    mean = sum(gradients) / 3
    greatest = max(float(gradient.abs().max()) for gradient in gradients)
    assert float((found.means[0] - mean).abs().max()) <= greatest / 127
    assert 0.001 < float((found.means[0] - mean).norm() / mean.norm()) < 0.012


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
    "name",
    [
        "",
        "topk:",
        "topk:2",
        "topk:x",
        "powersgd:0",
        "powersgd:1.5",
        "sign",
        "plain:1",
        "qsgd:3",
        "dgc:clip",
        "topk:clip=1",
        "dgc:clip=1:clip=2",
        "dgc:0.01:momentum=1",
        "dgc:warmup=1.5",
        "dgc:clip=-1",
    ],
)
def test_unknown_modes_are_refused(name: str) -> None:
    with pytest.raises(
        InputError, match=r"must be one of none|(share|bits|rank|momentum|warmup|clip) must be|must have options of"
    ):
        method_of(name)


def test_a_plain_sum_has_two_names() -> None:
    assert type(method_of("none")) is type(method_of("plain"))


def test_ms_top_k_keeps_what_top_k_does_where_magnitudes_differ_and_any_of_equal_ones() -> None:
    gradients = drawn(length=3000)
    some, others = (Ranks(mode, gradients).means[0] for mode in ("ms-topk:0.05", "topk:0.05"))
    assert torch.equal(some, others)
    for equal in (torch.ones(10), torch.zeros(10), torch.full((10,), -0.1)):
        assert int((Ranks("ms-topk:0.3", [equal]).means[0] != 0).sum()) == (3 if equal.any() else 0)


# -- right on average --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [*UNBIASED, "qsgd:4", "atomo:1"])
def test_what_is_drawn_is_right_on_average(mode: str) -> None:
    shapes = ((20, 30), (7,), (600,))
    gradient = drawn(ranks=1, length=1207)[0].clamp(-2, 2)  # nothing that TernGrad clips
    steps = 100
    found = [Ranks(mode, [gradient], shapes, step=step).means[0] for step in range(steps)]
    drawings = torch.stack(found).double()
    off, expected = (drawings.mean(0) - gradient).square().sum(), drawings.var(0).sum() / steps
    assert 0.2 * expected < off < 3 * expected  # few triplets: few degrees of freedom
    assert any(not torch.equal(one, found[0]) for one in found)


def test_ranks_draw_for_themselves_so_that_their_mean_is_nearer() -> None:
    gradient = drawn(ranks=1, length=600)[0]
    alone, many = (Ranks("qsgd", [gradient] * ranks, ((600,),)).means[0] for ranks in (1, 8))
    assert (many - gradient).norm() < 0.6 * (alone - gradient).norm()


def test_qsgd_rounds_to_shares_of_the_norm_of_its_stretch() -> None:
    gradient = drawn(ranks=1, length=1000)[0]
    mean, norms = Ranks("qsgd:4", [gradient], ((1000,),)).means[0], (gradient[:512].norm(), gradient[512:].norm())
    steps = torch.cat([mean[:512] / norms[0], mean[512:] / norms[1]]) * 7
    assert torch.allclose(steps, steps.round(), atol=1e-5)
    assert bool((steps - torch.cat([gradient[:512] / norms[0], gradient[512:] / norms[1]]) * 7).abs().max() < 1 + 1e-5)


def test_terngrad_has_three_levels_in_each_tensor_of_its_clipped_greatest() -> None:
    gradient = torch.cat([torch.tensor([1.0, -2.0]).repeat(20), torch.zeros(5)])
    mean = Ranks("terngrad", [gradient], ((40,), (5,))).means[0]
    assert set(mean.tolist()) == {2.0, 0.0, -2.0}
    assert set(mean[1:40:2].tolist()) == {-2.0}
    outlier = torch.zeros(1000)
    outlier[3] = 100.0
    assert Ranks("terngrad", [outlier], ((1000,),)).means[0][3] == pytest.approx(2.5 * float(outlier.std(correction=0)))


def test_atomo_draws_by_singular_values_and_sends_a_matrix_of_its_rank_whole() -> None:
    falling = torch.tensor([8.0, 1.0, 1.0], dtype=torch.float64)
    assert probabilities(falling, 2).tolist() == [1.0, 0.5, 0.5]
    assert probabilities(falling, 1).tolist() == pytest.approx([0.8, 0.1, 0.1])
    assert probabilities(torch.zeros(3, dtype=torch.float64), 2).tolist() == [0.0, 0.0, 0.0]
    matrix = torch.randn(20, 2, generator=torch.Generator().manual_seed(1)) @ torch.randn(2, 30)
    found = Ranks("atomo:2", [matrix.flatten()], ((20, 30),))
    assert torch.allclose(found.means[0], matrix.flatten(), atol=1e-4)
    assert found.messages[0].payload.nbytes == method_of("atomo:2").sent_bytes((20, 30)) == 4 * 2 * 50


def test_the_majority_votes_for_a_sign_and_a_tie_is_none() -> None:
    ranks = [torch.tensor([3.0, -1.0, 5.0, -0.1]), torch.tensor([1.0, -9.0, -5.0, -1.0])]
    assert Ranks("signsgd", ranks).means[0].tolist() == [1, -1, 0, -1]
    assert Ranks("signsgd", [*ranks, torch.tensor([-1.0, 1.0, -1.0, -1.0])]).means[0].tolist() == [1, -1, -1, -1]


@pytest.mark.parametrize("mode", [mode for mode in sent_names() if mode != "none"])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_step_that_overflows_in_one_rank_has_no_numbers_in_any(mode: str, broken: float) -> None:
    """As the hook gives it: every entry of that rank is none."""
    gradients = drawn()
    gradients[1] = gradients[1] * math.nan if math.isnan(broken) else gradients[1] * 0 + broken - broken
    found = Ranks(mode, gradients)
    assert not any(bool(mean.isfinite().all()) for mean in found.means)
