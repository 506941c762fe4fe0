"""Compressors of gradients between stages. Without torch these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.torch.compression import HopCompressor, exchanged_together
from gapless.torch.ddp.emulation import Wire

NAMES = ["rank 1", "rank 3", "rank 40", "top 1%", "top 2.5%", "float16", "bfloat16", "rand-k-gathered:0.1", "plain"]
NAMES += ["onebit", "ef-signsgd", "dgc:0.1", "ms-topk:0.1", "qsgd:8"]


def gradient(rank: int = 20) -> torch.Tensor:
    """2 x 15 x 20 numbers that are a matrix of this rank."""
    generator = torch.Generator().manual_seed(3)
    left, right = torch.randn(30, rank, generator=generator), torch.randn(rank, 20, generator=generator)
    return (left @ right).view(2, 15, 20)


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).square().sum() / expected.square().sum())


@pytest.mark.parametrize("name", NAMES)
def test_a_payload_fits_the_room_for_it_and_comes_back_in_shape(name: str) -> None:
    compressor, given = HopCompressor(name), gradient()
    payload, room = compressor.encode(given), compressor.room(given)
    assert (payload.shape, payload.dtype) == (room.shape, room.dtype)
    found = compressor.decode(payload, given)
    assert (found.shape, found.dtype) == (given.shape, given.dtype)
    assert off(found, given) < 1


def test_rank_sends_that_many_rows_and_columns_and_no_more_than_plain() -> None:
    sizes = [len(HopCompressor(f"rank {rank}").encode(gradient())) for rank in (1, 3, 12, 13)]
    assert sizes == [30 + 20, 3 * (30 + 20), 600, 600]
    assert torch.equal(HopCompressor("rank 13").decode(gradient().reshape(-1), gradient()), gradient())


def test_a_matrix_of_low_rank_comes_back_whole() -> None:
    compressor = HopCompressor("rank 4")
    assert off(compressor.decode(compressor.encode(gradient(4)), gradient(4)), gradient(4)) < 1e-10


def test_the_next_gradient_starts_from_the_last_one() -> None:
    again, fresh = HopCompressor("rank 2"), HopCompressor("rank 2")
    first = off(fresh.decode(fresh.encode(gradient()), gradient()), gradient())
    for _ in range(5):
        found = again.decode(again.encode(gradient()), gradient())
    assert off(found, gradient()) < first


@pytest.mark.parametrize("name", NAMES)
def test_an_overflow_arrives_and_changes_nothing_of_what_comes_later(name: str) -> None:
    compressor, other, broken = HopCompressor(name), HopCompressor(name), gradient()
    broken[0, 3, 4] = float("inf")
    for each in (compressor, other):
        each.encode(gradient())
    assert not compressor.decode(compressor.encode(broken), broken).isfinite().all()
    assert torch.equal(compressor.encode(gradient(5)), other.encode(gradient(5)))


def test_top_keeps_the_largest() -> None:
    compressor, given = HopCompressor("top 1%"), gradient()
    found = compressor.decode(compressor.encode(given), given)
    kept = given.abs().reshape(-1).topk(6).values
    assert sorted(found.abs().reshape(-1).tolist(), reverse=True)[:7] == [*kept.tolist(), 0.0]


@pytest.mark.parametrize("name", ["rank", "rank -1", "rank 0", "top 0%", "top 200%", "rand-k", "quarter", "rank 1 "])
def test_a_name_of_no_compressor_is_refused(name: str) -> None:
    rule = r"mode: (must be one of|a rank must|a share must|'rand-k' can't go from stage to stage)"
    with pytest.raises(InputError, match=rule):
        HopCompressor(name)


def test_an_emulated_wire_takes_what_each_collective_would_on_a_ring() -> None:
    wire = Wire(FlatNetwork(4, 1e9, 1e-6))
    buckets = [Bucket(gradient().reshape(-1).clone(), [(30, 20)], 0, 1, number) for number in range(2)]
    modes = ("powersgd:2", "topk:0.1")
    _, sent_bytes = exchanged_together(
        [method_of(mode).exchange(bucket) for mode, bucket in zip(modes, buckets, strict=True)], None, wire
    )
    summed_bytes, gathered_bytes = 4 * 2 * (30 + 20), sent_bytes - 4 * 2 * (30 + 20)
    summed_s = 2 * 6e-6 + 1.5 * summed_bytes / 1e9  # two messages of a low rank, each six steps of a ring of four
    assert wire.sent_s == pytest.approx(summed_s + 3e-6 + 3 * gathered_bytes / 1e9)
