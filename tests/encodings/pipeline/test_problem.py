"""Questions about pipelines: what they mean, and what is refused in one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.problem import Problem, Replicas, problem
from gapless.errors import InputError


def asked(**values: Any) -> Problem:
    return problem(**{"profile": "uniform:f=10,b=12,w=8", "ranks": 4, "micro_batches": 8, **values})


def test_a_uniform_profile_has_the_times_of_a_ranks_part() -> None:
    for placement, chunks in (("linear", 1), ("v", 2), ("looped", 3)):
        question = asked(placement=placement, chunks=chunks, hop=2.0)
        stages = stages_of(question, even_cut(question.profile.layer_count, question.stage_count))
        assert stages.compute_s.tolist() == pytest.approx([30.0] * 4)
        assert stages.forward_hop_s[stages.crosses].tolist() == [2.0] * int(stages.crosses.sum())
        assert stages.forward_hop_s[~stages.crosses].tolist() == [0.0] * int((~stages.crosses).sum())


@pytest.mark.parametrize(
    ("placement", "values", "ranks"),
    [
        ("loop", {}, [0, 1, 2, 3, 0, 1, 2, 3]),
        ("wave", {"ranks": 2}, [0, 1, 1, 0, 0, 1, 1, 0]),
        ("wave", {"ranks": 2, "chunks": 3}, [0, 1, 1, 0, 0, 1]),
        ("3,2,1,0", {}, [3, 2, 1, 0]),
        ((0, 1, 0, 1), {"ranks": 2}, [0, 1, 0, 1]),
        ("1,0,0,1", {"ranks": 2, "chunks": 2}, [1, 0, 0, 1]),
        ("0,1,2,3,0", {}, [0, 1, 2, 3, 0]),
    ],
)
def test_a_placement_is_a_name_or_the_ranks_of_the_stages(placement: Any, values: Any, ranks: list[int]) -> None:
    assert asked(placement=placement, **values).rank_of_stage.tolist() == ranks


def test_a_placement_that_has_a_name_goes_by_it() -> None:
    assert asked(placement="0,1,1,0", ranks=2).placement == "v"
    assert asked(placement="0,1,0,1", ranks=2).placement == "looped"
    assert asked(placement="0,1", ranks=2).placement == "linear"
    assert asked(placement="1,0", ranks=2).placement == (1, 0)


def test_a_placement_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "map.txt").write_text("1 0\n0,1\n")
    question = asked(placement=str(tmp_path / "map.txt"), ranks=2)
    assert (question.placement, question.chunks, question.description["placement"]) == ((1, 0, 0, 1), 2, [1, 0, 0, 1])
    (tmp_path / "map.txt").write_text("1 zero\n")
    with pytest.raises(InputError, match="which has other words than ranks"):
        asked(placement=str(tmp_path / "map.txt"), ranks=2)


def test_in_flight_counts_micro_batches_on_all_stages_of_a_rank() -> None:
    for placement, chunks in (("linear", 1), ("v", 2)):
        question = asked(placement=placement, chunks=chunks, in_flight=3)
        stages = stages_of(question, even_cut(question.profile.layer_count, question.stage_count))
        assert stages.room_bytes.tolist() == [3e9] * 4
    assert math.isinf(stages_of(asked(), (1, 2, 3)).room_bytes[0])


def test_a_whole_backward_takes_both_gradients_time() -> None:
    stages = stages_of(asked(backward="whole"), (1, 2, 3))
    assert stages.backward_s.tolist() == [20.0] * 4
    assert stages.weight_s.tolist() == [0.0] * 4


def test_the_layers_are_cut_as_evenly_as_they_can_be() -> None:
    assert even_cut(10, 4) == (3, 6, 8)
    assert even_cut(4, 4) == (1, 2, 3)
    assert even_cut(5, 1) == ()


def test_a_ring_all_reduce_sends_two_shares_of_all_but_one_copy() -> None:
    assert Replicas(4, 0.0, 1.0).reduce_s(100.0) == 150.0
    assert Replicas(1, 0.0, 1.0).reduce_s(100.0) == 0.0
    assert Replicas(4, 1.0, 1.0).reduce_s(100.0, copies=2) == 102.0


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"profile": "uniform:f=10,b=12"}, "profile: uniform needs the times f, b and w, such as"),
        ({"profile": "uniform:f=10,b=12,w=-1"}, "each must be a number >= 0 and <= 1e.06, got -1"),
        ({"profile": "uniform:f=10,b=12,w=8MB"}, "each must be a number and a unit such as 10us, .*, got '8MB'"),
        ({"chunks": 2}, "chunks: must be 1 for a linear placement, got 2"),
        (
            {"placement": "zigzag"},
            "placement: must be linear, looped, v, bidirectional, wave, auto, the ranks .* got 'zigzag'",
        ),
        ({"placement": "0,1,2"}, "placement: must have a stage on each of the ranks 0 to 3, .* got 0,1,2"),
        ({"placement": "0,1,2,2"}, "placement: must have a stage on each of the ranks 0 to 3, .* got 0,1,2,2"),
        ({"placement": "0,1,2,7"}, "placement: must have a stage on each of the ranks 0 to 3, .* got 0,1,2,7"),
        ({"placement": "3,2,1,0", "chunks": 2}, "chunks: must be 1, the most stages of a rank, got 2"),
        ({"placement": "3,2,1,0", "method": "1f1b"}, "method: 1f1b is for placement linear, got 3,2,1,0"),
        ({"placement": "v", "chunks": 1}, "chunks: must be >= 2, got 1"),
        ({"micro_batches": 65000}, "micro_batches: must be at most 16666 for 4 stages, got 65000"),
        ({"hop": 2.0, "bandwidth": 1e9}, "bandwidth: goes without hop"),
        ({"latency": 1e-6}, "latency: goes with bandwidth"),
        ({"nodes": 2}, "nodes: goes with topology"),
        ({"topology": "ndv2", "nodes": 2, "ranks": 12}, "no link from rank 3 to rank 4, neighbours in the pipeline"),
        ({"memory": 10**9, "in_flight": 2}, "in_flight: goes without memory"),
        ({"error_budget": 0.1}, "error_budget: needs compression"),
        ({"replicas": 4}, "replicas: more than one need a bandwidth"),
        ({"cut": (3, 2, 1)}, r"cut: must be 3 first layers that grow, in 1\.\.3, got 3,2,1"),
        ({"cut": (1, 2, 9)}, r"cut: must be 3 first layers that grow, in 1\.\.3, got 1,2,9"),
        ({"method": "zb-v"}, "method: zb-v is for placement v, got linear"),
        ({"method": "zb-h1", "backward": "whole"}, "method: zb-h1 needs backward split, got whole"),
        ({"method": "fastest"}, "method: must be one of"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as refused:
        asked(**values)
    assert "\n" not in str(refused.value)
