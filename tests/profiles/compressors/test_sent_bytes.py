"""What modes send: the figures of Accordion's tables from shapes alone, and what is no mode."""

from __future__ import annotations

from itertools import pairwise

import pytest
from cifar_shapes import Shapes, resnet18, vgg19bn

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of, sent_bytes

STEPS = 300 * 98
"""300 epochs of 50,000 images in batches of 512."""


def million_floats(shapes: Shapes, rank: int) -> float:
    return STEPS * sum(sent_bytes(f"powersgd:{rank}", shape) for shape in shapes) / 4e6


@pytest.mark.parametrize(
    ("shapes", "rank", "published"),
    [
        (resnet18(10), 1, 1350.4), (resnet18(10), 2, 2418.4), (resnet18(100), 1, 1355.7), (resnet18(100), 2, 2426.3),
        (vgg19bn(10), 1, 2074.9), (vgg19bn(10), 4, 6752.0),
    ],
)  # fmt: skip
def test_tables_3_1_and_3_2_of_accordion_follow_from_shapes(shapes: Shapes, rank: int, published: float) -> None:
    assert million_floats(shapes, rank) == pytest.approx(published, abs=0.15)


def test_the_floats_of_resnet_18_to_a_tenth_of_a_million() -> None:
    found = [round(million_floats(resnet18(classes), rank), 1) for classes in (10, 100) for rank in (1, 2)]
    assert found == [1350.5, 2418.4, 1355.8, 2426.4]


def test_accordion_sent_a_fifth_of_resnet_18_in_rank_2() -> None:
    low, high = (million_floats(resnet18(10), rank) for rank in (2, 1))
    assert (1571.8 - high) / (low - high) == pytest.approx(0.207, abs=5e-4)


def test_each_rank_of_vgg_19_adds_53029_floats_a_step() -> None:
    floats = [sum(sent_bytes(f"powersgd:{rank}", shape) for shape in vgg19bn(10)) / 4 for rank in (1, 2, 3, 4)]
    assert [after - before for before, after in pairwise(floats)] == [53029.0] * 3


def test_a_matrix_is_factored_while_its_factors_are_less_than_half_of_it() -> None:
    assert sent_bytes("powersgd:4", (32, 64)) == 4 * 4 * 96
    assert sent_bytes("powersgd:11", (32, 64)) == 4 * 32 * 64
    assert sent_bytes("powersgd:2", (7, 3, 5, 5)) == 4 * 2 * (7 + 75)
    assert sent_bytes("powersgd:1", (64,)) == 4 * 64
    assert sent_bytes("powersgd:1", ()) == 4


def test_other_modes_send_what_their_messages_have() -> None:
    sent = {mode: sent_bytes(mode, (10, 10)) for mode in (
        "plain", "fp16", "bf16", "topk:0.1", "rand-k:0.1", "rand-k-gathered:0.1", "ef-signsgd", "onebit", "topk:0.001",
    )}  # fmt: skip
    assert list(sent.values()) == [400, 200, 200, 80, 40, 80, 21, 21, 8]


def test_sums_are_all_reduced_and_places_gathered() -> None:
    modes = ("plain", "powersgd:2", "rand-k:0.1", "topk:0.1", "onebit")
    assert [method_of(mode).collective for mode in modes] == [*["all_reduce"] * 3, *["all_gather"] * 2]
    assert [method_of(mode).messages for mode in modes] == [1, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("power", "must be one of none, fp16"), ("rank:4", "must be one of none"), ("plain:1", "must be one of"),
        ("powersgd:0", "a rank must be a whole number"), ("powersgd:x", "a rank must be a whole number"),
        ("topk:0", "a share must be a number above 0"), ("topk:nan", "a share must be"), ("topk:x", "a share must be"),
        ("rand-k:1.5", "a share must be a number above 0, at most 1, got 'rand-k:1.5'"),
    ],
)  # fmt: skip
def test_what_is_no_mode_is_refused(mode: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        method_of(mode)
