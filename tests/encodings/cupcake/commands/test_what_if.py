"""What-ifs: axes from the user, the study's figures, and crossovers with their range."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.encodings.cupcake.commands.pictures import draw_what_if
from gapless.encodings.cupcake.commands.what_if import AXES, FIGURES, what_if
from gapless.errors import InputError
from gapless.profiles.gradients.named import load_fusion_profile
from gapless.profiles.gradients.profile import FusionProfile
from gapless.question.fields import Share

GBPS = 1e9 / 8
ASKED: dict[str, Any] = {"ranks": [64], "bandwidth": [10 * GBPS]}


def measured(name: str) -> FusionProfile:
    """The study's sizes and backward times, at the batch of 64 of its figures."""
    backward_s, size_bytes = {"resnet50": (2 * 0.063533, 97e6), "resnet101": (2 * 0.120391, 170e6)}[name]
    once = load_fusion_profile(name)
    return replace(
        once, batch=64, tensor_names=("all",), size_bytes=np.array([size_bytes], dtype=np.int64),
        backward_s=np.array([backward_s]), shapes=(),
    )  # fmt: skip


def rows(figure: str, name: str = "resnet101", **given: Any) -> list[dict[str, Any]]:
    answer = what_if(measured(name), figure=figure, **{"latency": [0.0], **ASKED, **given}).data["rows"]
    assert isinstance(answer, list)
    return answer


def column(title: str, figure: str, name: str = "resnet101", **given: Any) -> list[float]:
    return [row[title] for row in rows(figure, name, **given)]


def test_the_crossover_of_the_study_comes_out_at_its_setting() -> None:
    """The text says 8.2 Gb/s for ResNet-101 (Figure 4.10) and above 9 for ResNet-50 (Figure 4.12)."""
    for name, gbps in (("resnet101", 8.29), ("resnet50", 9.17)):
        assert rows("gamma", name, gamma=[1.07])[0]["crossover_bytes_per_s"] / GBPS == pytest.approx(gbps, abs=0.005)


def test_time_saved_falls_with_the_batch() -> None:
    """The text says 42.5, 25.7 and -6.3 % (Figure 4.7)."""
    saved = column("time_saved", "batch", batch=[16, 32, 64])
    np.testing.assert_allclose(saved, [0.471, 0.246, -0.115], atol=5e-4)


def test_batches_are_sizes_or_shares_of_the_profile_s() -> None:
    by_size, by_share = rows("batch", batch=[16, 64]), rows("batch", batch=[Share(0.25), Share(1)])
    assert by_size == by_share
    assert [row["batch"] for row in by_share] == [16, 64]


def test_a_profile_without_a_batch_takes_shares_only() -> None:
    unknown = replace(measured("resnet50"), batch=0)
    (row,) = what_if(unknown, figure="batch", **ASKED, batch=[Share(0.5)]).rows
    assert row["batch_factor"] == 0.5
    with pytest.raises(InputError, match=r"batch: the profile doesn't say its own, so give shares of it such as 0\.5x"):
        what_if(unknown, figure="batch", **ASKED, batch=[16])


def test_resnet101_needs_about_fourfold_compression_even_at_batch_16() -> None:
    """Figure 4.8."""
    found = rows("ratio", batch=[16, 32, 64])
    assert [row["required_ratio"] for row in found] == [
        pytest.approx(3.67, abs=0.01), pytest.approx(1.83, abs=0.01), 1,
    ]  # fmt: skip
    assert all(0.8 < row["scaling"] < 1 for row in found)


def test_a_ratio_that_does_not_exist_is_none() -> None:
    (row,) = rows("ratio", batch=[64], latency=[1e-3])
    assert row["required_ratio"] is None
    assert 0 < row["scaling"] < 0.3


def test_more_bandwidth_helps_synchronous_sgd_more() -> None:
    """Figure 4.12: PowerSGD is soon bound by compute."""
    saved = column("time_saved", "bandwidth", "resnet50", bandwidth=[gbps * GBPS for gbps in (1, 3, 5, 7, 9, 10, 30)])
    assert saved == sorted(saved, reverse=True)
    assert saved[0] > 0.8
    assert saved[4] > 0 > saved[5]


def test_faster_compute_makes_compression_pay() -> None:
    """Figure 4.13: at 10 Gb/s synchronous SGD becomes bound by communication."""
    found = rows("compute", "resnet50", speed=[1, 2, 3, 4])
    saved = [row["time_saved"] for row in found]
    assert saved[0] < 0 < saved[1] < saved[2] < saved[3]
    assert found[2]["uncompressed_s"] == found[3]["uncompressed_s"]
    assert found[0]["compressed_s"] / 2 < found[1]["compressed_s"] < 1.02 * found[0]["compressed_s"] / 2


def test_cheaper_encoding_helps_even_at_three_times_the_bytes_it_saves() -> None:
    """Figure 4.14."""
    found = rows("tradeoff")
    assert len(found) == 12
    assert [row["ratio"] for row in found[:4]] == [100, 50, pytest.approx(100 / 3), 50]
    assert all(row["compressed_s"] < found[0]["compressed_s"] for row in found if row["encode_speed"] > 1)


def test_trade_off_never_sends_more_than_the_raw_gradient() -> None:
    assert column("ratio", "tradeoff", compressor="fp16", encode_speed=[1, 4], penalty=[1]) == [2, 1]


@pytest.mark.parametrize("figure", FIGURES)
def test_every_axis_with_several_values_is_a_column_of_every_figure(figure: str) -> None:
    axis = "gamma" if figure != "gamma" else "bucket"
    answer = what_if("vgg16", figure=figure, **ASKED, **{axis: list(AXES[axis].values())})
    assert AXES[axis].column in answer.axes
    once = [list(AXES[name].values()) for name in FIGURES[figure].axes if name not in ASKED]
    assert len(answer.rows) == len(AXES[axis].values()) * math.prod(len(values) for values in once)


@pytest.mark.parametrize("figure", [name for name, figure in FIGURES.items() if figure.has_crossover])
def test_a_crossover_lies_in_its_range(figure: str) -> None:
    def bandwidth(end: dict[str, Any]) -> float:
        return {"never": 0.0, "always": math.inf}.get(end["pays"], end["crossover_bytes_per_s"])

    for row in rows(figure, latency=[2e-5]):
        low, high = (bandwidth(end) for end in row["range"])
        assert low <= bandwidth(row) <= high


def test_a_crossover_rises_with_the_latency_until_compression_always_pays() -> None:
    """That of 10 us alone would be a third too low at 100 us."""
    found = rows("latency", latency=[1e-5, 1e-4, 5e-4])
    assert [row["pays"] for row in found] == ["below", "below", "always"]
    assert [row["crossover_bytes_per_s"] / GBPS for row in found[:2]] == [
        pytest.approx(8.5, 0.01),
        pytest.approx(11, 0.03),
    ]
    (alone,) = rows("gamma", gamma=[1.07], latency=[1e-5])
    high = alone["range"][1]["crossover_bytes_per_s"]
    assert high == pytest.approx(found[1]["crossover_bytes_per_s"], rel=1e-3)


def test_what_varies_by_itself_is_left_out_of_the_range() -> None:
    """At a given latency the slow-down matters to no crossover at which the network is what is waited for."""
    for row in rows("latency", latency=[1e-6, 1e-5]):
        low, high = (end["crossover_bytes_per_s"] for end in row["range"])
        assert high == pytest.approx(low, rel=1e-3)


def test_trees_and_servers_send_more_at_less_latency() -> None:
    """Table 4.2."""
    by_name = {row["aggregation"]: row for row in rows("aggregation", ranks=[64], latency=[1e-3], bandwidth=[1e14])}
    assert by_name["server"]["uncompressed_s"] < by_name["tree"]["uncompressed_s"] < by_name["ring"]["uncompressed_s"]
    by_name = {row["aggregation"]: row for row in rows("aggregation", ranks=[64])}
    assert by_name["ring"]["uncompressed_s"] < by_name["tree"]["uncompressed_s"] < by_name["server"]["uncompressed_s"]


def test_gathered_messages_grow_with_the_ranks() -> None:
    """Figures 4.5 and 4.6."""
    grown = column("gathered_bytes", "ranks", ranks=[8, 16, 32], compressor="dgc")
    assert grown == pytest.approx([grown[0], 2 * grown[0], 4 * grown[0]])
    assert column("gathered_bytes", "ranks", ranks=[8, 16]) == [0, 0]


def test_signs_of_bert_fit_16_gb_up_to_32_ranks() -> None:
    """Figure 4.6: "we can not scale signSGD on BERT beyond 32 GPUs" of 16 GB."""
    asked: dict[str, Any] = {"figure": "ranks", "bandwidth": 10 * GBPS, "compressor": "signsgd", "memory": 16e9}
    answer = what_if("bert-base", ranks=[16, 32, 64, 96], **asked)
    assert [row["buffer_bytes"] < 16e9 for row in answer.rows] == [True, True, False, False]
    assert [line.partition(" of")[0] for line in answer.refused] == [
        "signsgd: all gradients at once need 28.9 GB", "signsgd: all gradients at once need 43.35 GB",
    ]  # fmt: skip
    assert answer.text.splitlines()[-2:] == list(answer.refused)
    assert not what_if("bert-base", ranks=[64], **asked, decoded="one-by-one").refused


def test_overlap_saves_nearly_half_of_resnet50_at_64_ranks() -> None:
    """Figure 4.2: "overlapping reduces iteration time by upto 46 %", at a batch that isn't said."""
    found = rows("overlap", "resnet50", ranks=[4, 16, 64], latency=[1e-5])
    for row in found:
        assert row["time_saved"] == pytest.approx(1 - row["uncompressed_s"] / row["serial_s"])
    saved = [rows("overlap", "resnet50", latency=[1e-5], ranks=[64], batch=[batch])[0] for batch in (32, 64)]
    assert [row["time_saved"] for row in saved] == [pytest.approx(0.287, abs=1e-3), pytest.approx(0.397, abs=1e-3)]
    shipped = what_if("resnet50", figure="overlap", ranks=[64], bandwidth=[10 * GBPS], batch=[64]).rows[0]
    assert shipped["time_saved"] == pytest.approx(0.451, abs=1e-3)
    whole = rows("overlap", "resnet50", bucket=[1e9], gamma=[1])[0]
    assert whole["serial_s"] == pytest.approx(whole["uncompressed_s"])  # one bucket has nothing to hide behind


def test_a_faster_backward_pass_alone_helps_less_than_a_faster_device() -> None:
    """The text says 1.75 times at 3.5 times the compute; 3.0 with encode and decode as much faster, 1.87 without."""
    both = rows("compute", "resnet50", speed=[3.5])[0]
    alone = rows("compute", "resnet50", speed=[1], backward_speed=[1, 3.5])[1]
    assert both["uncompressed_s"] == alone["uncompressed_s"]
    gained = [row["uncompressed_s"] / row["compressed_s"] for row in (both, alone)]
    assert gained == [pytest.approx(3.0, abs=0.1), pytest.approx(1.87, abs=0.05)]


def test_a_topology_of_nodes_has_two_levels() -> None:
    asked: dict[str, Any] = {"figure": "gamma", "topology": "ndv2", "nodes": 2, "compressor": "dgc"}
    two, one = (what_if("vgg16", **asked, levels=levels) for levels in (2, 1))
    assert (two.network.ranks, two.network.ranks_per_node, one.network.ranks_per_node) == (16, 8, 1)
    assert two.rows[0]["uncompressed_s"] < one.rows[0]["uncompressed_s"]
    numbers = {"ranks_per_node": 8, "inner_bandwidth": 1e11, "bandwidth": 1e9}
    for network in ({"topology": "ndv2", "nodes": 2}, numbers):
        grown = what_if("vgg16", figure="ranks", **network).rows  # type: ignore[arg-type]
        assert [row["ranks"] for row in grown] == [8, 16, 32, 64, 128]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"figure": "size", **ASKED}, "figure: must be one of bandwidth"),
        ({"figure": "batch", "ranks": [64]}, "bandwidth: must be given, or a topology"),
        ({"figure": "batch", **ASKED, "length": [1]}, "axis: must be one of ranks"),
        ({"figure": "gamma", **ASKED, "topology": "ndv2"}, "ranks: give it or topology, not both"),
        ({"figure": "bandwidth", "ranks": [*range(2, 60)]}, "a table has 500 rows at most, got 580: give fewer values"),
        (
            {"figure": "ranks", "bandwidth": [1e9], "ranks": [8, 12], "ranks_per_node": 8, "inner_bandwidth": 1e9},
            "ranks: must be a multiple of the 8 ranks of a node, got 12",
        ),
    ],
)
def test_questions_that_make_no_sense_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        what_if("vgg16", **asked)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_drawn_with_a_curve_for_each_measure(figure: str, tmp_path: Path) -> None:
    answer = what_if("vgg16", figure=figure, **{**ASKED, **({"ranks": [8, 64]} if figure == "aggregation" else {})})
    (axes,) = draw_what_if(answer.data).axes
    others = math.prod(len({row[axis] for row in answer.rows}) for axis in answer.axes[1:])
    assert len([line for line in axes.lines if len(line.get_xdata())]) == others * len(FIGURES[figure].shown)
