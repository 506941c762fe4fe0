"""Lowering: what a schedule holds in memory while groups are on their way."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.cupcake.lowering import to_schedule
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.grammar import named_compressor
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.fusion import Costs, Fusion
from gapless.profiles.gradients.named import load_fusion_profile, with_compressors


def peak_bytes(compressor: str, ranks: int) -> float:
    """Of ResNet-50 in one group."""
    network = FlatNetwork(ranks, 1e9, 1e-5)
    profile = with_compressors(load_fusion_profile("resnet50"), [NONE, named_compressor(compressor)], network)
    schedule = to_schedule(profile, Costs.of(profile), Fusion.uniform([profile.tensor_count], compressor))
    report = check(schedule)
    assert report.valid
    return float(report.peak_bytes[0])


def test_memory_of_a_gathered_group_grows_with_the_ranks_and_of_an_added_one_does_not() -> None:
    """8 ranks' signs are a quarter of a gradient, 128 ranks' four of them."""
    gradient = load_fusion_profile("resnet50").total_bytes
    few, many = (peak_bytes("ef-signsgd", ranks) for ranks in (64, 128))
    assert many - few == pytest.approx(2 * gradient, rel=1e-6)
    assert peak_bytes("powersgd", 64) == peak_bytes("powersgd", 128)


def test_groups_are_freed_once_they_are_there() -> None:
    """Many small groups need less at a time than one of all."""
    profile = load_fusion_profile("resnet50")
    costs = Costs.of(profile)
    ends = np.arange(1, profile.tensor_count + 1).tolist()
    layer_wise, one = (
        check(to_schedule(profile, costs, Fusion.uniform(ends, mode))).peak_bytes[0]
        for ends, mode in ((ends, "dgc"), ([profile.tensor_count], "dgc"))
    )
    assert layer_wise < one
