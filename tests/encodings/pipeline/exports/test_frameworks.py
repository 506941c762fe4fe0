"""Plans as files of frameworks: torch's schedules, Megatron-LM's arguments, and what neither can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline_plans import baseline_plan, errors_table, gpt_profile

from gapless.cli.main import main
from gapless.encodings.pipeline.programs.program import program_of
from gapless.io.plan import SavedPlan, write_plan

LAYERS: dict[str, Any] = {"profile": gpt_profile(6), "policies": ("input keep", "input keep", "input keep", "")}
MODES: dict[str, Any] = {"compression": errors_table("rank 4"), "error_budget": 1.0, "hop_modes": {(1, 0): 1}}


def export(folder: Path, plan: SavedPlan, *options: str) -> tuple[int, list[str]]:
    """The exit code and the lines that were written."""
    write_plan(folder / "plan.json", plan)
    code = main(["export", str(folder / "plan.json"), "-o", str(folder / "out"), "--format", *options])
    return code, (folder / "out").read_text().splitlines() if (folder / "out").exists() else []


def test_both_forms_hold_every_action_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = baseline_plan("zb-v")
    code, rows = export(tmp_path, plan, "torch-pipeline")
    words = [word for row in rows for word in row.split(",")]
    assert code == 0
    assert sorted(words) == sorted(f"{stage}{kind}{m}" for stage in range(8) for kind in "FIW" for m in range(8))
    assert "8 stages on 4 ranks, 8 micro-batches" in capsys.readouterr().out
    code, rows = export(tmp_path, plan, "torch-pipeline", "--form", "communication")
    longer = [word for row in rows for word in row.split(",")]
    assert set(words) < set(longer)
    assert len(longer) == len(words) + 2 * 2 * 6 * 8 + 8, "a hop within the rank sends nothing"


@pytest.mark.parametrize(
    ("name", "values", "options", "message"),
    [
        ("1f1b", {"recomputes": True}, ["torch-pipeline"], "the plan recomputes stages 0, 1, 2, 3; give --recomputing"),
        ("1f1b", LAYERS, ["torch-pipeline"], "torch takes no policies of layers, the plan has some in stages 0, 1, 2"),
        ("1f1b", LAYERS, ["megatron"], "Megatron-LM takes no policies of layers, the plan has some in stages 0, 1, 2"),
        (
            "zb-h1", LAYERS, ["torch-pipeline", "--recomputing"],
            "torch runs layers again for each part of a backward, the plan once for both; solve with --backward whole",
        ),
        ("1f1b", MODES, ["torch-pipeline"], "send every hop plain, the plan compresses 1 (rank 4); give --compressed"),
        ("1f1b", MODES, ["megatron"], "Megatron-LM sends every hop plain"),
        ("zb-h1", {}, ["megatron"], "runs 1f1b and interleaved-1f1b; solve with --method 1f1b --backward whole"),
        (
            "interleaved-1f1b", {"micro_batches": 6, "profile": gpt_profile(14)}, ["megatron"],
            "micro_batches: must be a multiple of 4 ranks, and more, for Megatron-LM to interleave, got 6",
        ),
        ("1f1b", {"profile": "uniform:f=10,b=12,w=8"}, ["megatron"], "needs the layers of a transformer: embedding"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, values: dict[str, Any], options: list[str],
    message: str,
) -> None:  # fmt: skip
    code, rows = export(tmp_path, baseline_plan(name, **values), *options)
    found = capsys.readouterr().err
    assert code == 2
    assert not rows
    assert message in found
    assert found.count("\n") == 1


@pytest.mark.parametrize(
    ("values", "option"),
    [(MODES, "--compressed"), ({"recomputes": True}, "--recomputing"), (LAYERS, "--recomputing")],
)
def test_stages_that_compress_or_recompute_take_the_same_order(
    tmp_path: Path, values: dict[str, Any], option: str
) -> None:
    code, rows = export(tmp_path, baseline_plan("1f1b", **values), "torch-pipeline", option)
    assert code == 0
    assert rows == export(tmp_path, baseline_plan("1f1b"), "torch-pipeline")[1]


HEAD = ["--pipeline-model-parallel-size 4", "--micro-batch-size 2", "--global-batch-size 16"]
RECOMPUTED = ["--recompute-granularity full", "--recompute-method uniform"]
ENDS = (("first", 1), ("last", 2))
COUNTED = ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]


@pytest.mark.parametrize(
    ("name", "blocks", "values", "expected"),
    [
        ("1f1b", 8, {"cut": (3, 5, 7)}, []),
        ("1f1b", 8, {"cut": (3, 5, 7), "recomputes": True}, [*RECOMPUTED, "--recompute-num-layers 2"]),
        ("1f1b", 6, {}, COUNTED),
        ("1f1b", 7, {"cut": (2, 4, 6)}, [f"--decoder-{end}-pipeline-num-layers {k}" for end, k in ENDS]),
        ("1f1b", 6, {"cut": (1, 3, 4)}, ["--pipeline-model-parallel-layout E|t*2|t|t*3,L"]),
        ("1f1b", 7, {"cut": (2, 3, 6)}, ["--pipeline-model-parallel-layout Et|t|t*3|t*2,L"]),
        ("interleaved-1f1b", 8, {"cut": (1, 3, 4, 5, 6, 7, 9)},
         ["--pipeline-model-parallel-layout E|t*2|t|t|t|t|t*2|L"]),
        ("interleaved-1f1b", 14, {}, ["--num-layers-per-virtual-pipeline-stage 2", *COUNTED]),
        ("interleaved-1f1b", 8, {"cut": (2, 3, 4, 5, 6, 7, 8)}, ["--num-layers-per-virtual-pipeline-stage 1"]),
    ],
)  # fmt: skip
def test_megatron_arguments(
    tmp_path: Path, name: str, blocks: int, values: dict[str, Any], expected: list[str]
) -> None:
    plan = baseline_plan(name, profile=gpt_profile(blocks), **values)
    code, lines = export(tmp_path, plan, "megatron", "--micro-batch-size", "2")
    assert code == 0
    assert sorted(lines) == sorted([*HEAD, f"--num-layers {blocks}", *expected])


def test_the_program_counts_what_the_replay_holds() -> None:
    assert program_of(baseline_plan("1f1b")).in_flight == (4, 3, 2, 1)
    assert program_of(baseline_plan("zb-h1")).in_flight == (4, 4, 4, 4)
    assert program_of(baseline_plan("gpipe")).in_flight == (8, 8, 8, 8)
    message = 4 * 32 * 64
    assert program_of(baseline_plan("1f1b")).sent_bytes == tuple(count * message for count in (8, 16, 16, 8))
    assert program_of(baseline_plan("1f1b", **MODES)).hop_modes == {(1, 0): "rank 4"}
    saved = 4 * (32 * 64 - 4 * (32 + 64))
    assert program_of(baseline_plan("1f1b", **MODES)).sent_bytes[2] == 16 * message - saved


def test_a_blocking_send_is_sent_once() -> None:
    assert (
        program_of(baseline_plan("1f1b", blocking_sends=True)).sent_bytes
        == program_of(baseline_plan("1f1b")).sent_bytes
    )


def test_megatron_is_told_how_many_devices_share_a_layer(tmp_path: Path) -> None:
    _, lines = export(tmp_path, baseline_plan("1f1b"), "megatron", "--tensor-parallel", "8")
    assert "--tensor-model-parallel-size 8" in lines
    assert not any("tensor" in line for line in export(tmp_path, baseline_plan("1f1b"), "megatron")[1])
