"""Compressors: their published times come out again, grow as they should, and nonsense is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.compressor import FLAT_BYTES, Compressor, relative_speed
from gapless.profiles.compressors.grammar import compressor_names, named_compressor

TABLE_4_1_MS = {"ms-topk": 103, "topk": 273, "qsgd": 39, "terngrad": 94, "powersgd": 45, "signsgd": 16}
LAYER_WISE_TENSORS = 161  # ResNet-50

names = st.sampled_from(compressor_names())
ranks = st.integers(1, 1024)
sizes = st.floats(0, 1e10)


def time_s(name: str, size_bytes: float, ranks: int = 8, speed: float = 1.0) -> float:
    return float(named_compressor(name).cost(ranks, speed)(size_bytes))


@pytest.mark.parametrize(("name", "total_ms"), TABLE_4_1_MS.items())
def test_times_of_table_4_1_come_out_for_97_mb_on_64_ranks(name: str, total_ms: float) -> None:
    assert time_s(name, 97e6, ranks=64) == pytest.approx(total_ms / 1e3)


@pytest.mark.parametrize(("name", "encode_us"), [("dgc", 390), ("ef-signsgd", 270), ("onebit", 620)])
def test_encode_latencies_are_those_of_figure_2(name: str, encode_us: float) -> None:
    """All greater than 0.25 ms whatever the size, DGC about 0.4 ms for 128 KB (section 3)."""
    assert named_compressor(name).encode_s == pytest.approx(encode_us * 1e-6)
    assert time_s(name, 128e3) > 0.25e-3


@pytest.mark.parametrize("name", ["dgc", "ef-signsgd"])
def test_layer_wise_compression_of_resnet50_on_8_gpus_takes_little_more_than_60_ms(name: str) -> None:
    assert 60e-3 < LAYER_WISE_TENSORS * time_s(name, 128e3, ranks=8) < 70e-3


@given(names, ranks, st.floats(0, FLAT_BYTES))
def test_cost_is_constant_up_to_4_mib(name: str, ranks: int, size_bytes: float) -> None:
    assert time_s(name, size_bytes, ranks) == time_s(name, FLAT_BYTES, ranks)


@given(names, ranks, st.floats(1, 1000))
def test_cost_is_proportional_above_4_mib(name: str, ranks: int, factor: float) -> None:
    expected = factor * time_s(name, FLAT_BYTES, ranks)
    assert time_s(name, factor * FLAT_BYTES, ranks) == pytest.approx(expected, rel=1e-9)


@given(names, ranks, ranks, sizes)
def test_only_the_decode_of_what_is_gathered_grows_with_the_ranks(
    name: str, some: int, more: int, size_bytes: float
) -> None:
    before, after = time_s(name, size_bytes, min(some, more)), time_s(name, size_bytes, max(some, more))
    if named_compressor(name).all_reducible:
        assert before == after
    else:
        assert before < after or some == more


@given(names, ranks, sizes, st.floats(0.1, 10))
def test_faster_device_divides_encode_and_decode(name: str, ranks: int, size_bytes: float, speed: float) -> None:
    assert time_s(name, size_bytes, ranks, speed) == pytest.approx(time_s(name, size_bytes, ranks) / speed, rel=1e-9)


def test_speed_of_a_device_is_relative_to_the_v100() -> None:
    assert relative_speed("v100") == 1.0
    assert relative_speed("p100") < 1 < relative_speed("a100") < relative_speed("h100")


def test_no_compression_is_free_and_comes_first() -> None:
    assert compressor_names()[0] == NONE.name == "none"
    assert time_s("none", 1e9, ranks=64) == 0.0
    assert (NONE.ratio, NONE.all_reducible) == (1.0, True)


def test_all_reducible_are_those_of_table_4_1_plain_formats_and_eight_bits() -> None:
    reducible = {name for name in compressor_names() if named_compressor(name).all_reducible}
    assert reducible == {"none", "fp16", "bf16", "int8", "rand-k", "powersgd"}


def test_a_low_rank_is_asked_for_by_its_number_and_dashes_do_not_matter() -> None:
    assert named_compressor("top-k") is named_compressor("topk")
    assert named_compressor("powersgd:8").rank == 8
    four, eight, two = (named_compressor(f"powersgd:{rank}").cost(8)(1e6) for rank in (4, 8, 2))
    assert (eight, two) == (2 * four, four)
    for wrong in ("powersgd:0", "powersgd:x"):
        with pytest.raises(InputError, match=r"compressor: a rank must be a whole number in 1\.\.999999, got"):
            named_compressor(wrong)


def test_encode_and_decode_make_up_the_cost() -> None:
    for name in compressor_names():
        each = named_compressor(name)
        for size in (1e3, 4e6, 1e8):
            both_s = each.encode_cost(2.0)(size) + each.decode_cost(16, 2.0)(size)
            assert both_s == pytest.approx(float(each.cost(16, 2.0)(size)))


def test_every_compressor_says_where_its_times_are_from() -> None:
    for name in compressor_names():
        compressor = named_compressor(name)
        assert compressor.source
        assert compressor.encode_s > 0 or compressor is NONE


def test_unknown_name_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match=r"compressor: must be one of none, fp16, .*, got 'dcg'; did you mean 'dgc'"):
        named_compressor("dcg")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 0}, "compressor 'dgc': ratio must be finite and > 0, got 0"),
        ({"ratio": float("nan")}, "compressor 'dgc': ratio must be finite and > 0, got nan"),
        ({"encode_s": -1}, "compressor 'dgc': encode_s must be finite and >= 0, got -1"),
        ({"decode_s": float("inf")}, "compressor 'dgc': decode_s must be finite and >= 0, got inf"),
        ({"decoded_ranks": 0}, "compressor 'dgc': decoded_ranks must be >= 1, got 0"),
    ],
)
def test_compressor_with_impossible_numbers_is_refused(change: dict[str, Any], message: str) -> None:
    fields = dataclasses.asdict(named_compressor("dgc"))
    with pytest.raises(InputError, match=message):
        Compressor(**{**fields, **change})


@pytest.mark.parametrize(("ranks", "speed", "message"), [(0, 1.0, "ranks: must be >= 1"), (1, 0.0, "speed: must be")])
def test_cost_refuses_no_ranks_and_no_speed(ranks: int, speed: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        NONE.cost(ranks, speed)


def test_sparse_compressors_keep_any_share_at_the_same_cost() -> None:
    """MSTop-k keeps 0.1 % in Figure 4.5."""
    tenth, one = named_compressor("ms-topk:0.001"), named_compressor("ms-topk")
    assert (tenth.ratio, tenth.cost(8), tenth.name) == (pytest.approx(10 * one.ratio), one.cost(8), "ms-topk:0.001")
    assert named_compressor("top-k:0.1").ratio == pytest.approx(5)
    assert "0.1 %" in tenth.what


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("topk:0", "compressor: a share must be a number above 0, at most 1, got 'topk:0'"),
        ("rand-k:1.01", "compressor: a share must be a number above 0, at most 1, got 'rand-k:1.01'"),
        ("topk:0.51", "compressor topk: must send no more than the gradient, got a share of 0.51"),
    ],
)
def test_shares_that_save_nothing_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        named_compressor(name)


@pytest.mark.parametrize("name", ["fp16:0.01", "top:0.01", "onebit:0.005"])
def test_shares_of_what_keeps_all_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="compressor: must be one of none, fp16"):
        named_compressor(name)


def test_random_entries_of_each_rank_s_own_are_gathered_with_their_indices() -> None:
    """Cupcake, section 5: "compressed tensors using Rand-k have different indices"."""
    own, shared = named_compressor("rand-k-gathered"), named_compressor("rand-k")
    assert (own.all_reducible, shared.all_reducible) == (False, True)
    assert own.ratio == shared.ratio / 2
    assert own.encode_s == shared.encode_s
