"""Plans as configurations of torchtitan: read back, their modules and order are the plan's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline_plans import baseline_plan, errors_table, gpt_profile

from gapless.cli.main import main
from gapless.encodings.pipeline.programs.program import program_of
from gapless.io.formats.torch_pipeline import torch_pipeline_text
from gapless.io.plan import SavedPlan, write_plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def export(folder: Path, plan: SavedPlan, *options: str, name: str = "titan.toml") -> int:
    """The exit code."""
    write_plan(folder / "plan.json", plan)
    return main(["export", str(folder / "plan.json"), "--format", "torchtitan", "-o", str(folder / name), *options])


@pytest.mark.parametrize(
    ("name", "values", "style"),
    [
        ("1f1b", {"cut": (1, 3, 4)}, "PipelineScheduleMulti"),
        ("zb-h1", {}, "PipelineScheduleMulti"),
        ("interleaved-1f1b", {"profile": gpt_profile(14)}, "PipelineScheduleMulti"),
        ("zb-v", {"profile": gpt_profile(9), "cut": (2, 3, 4, 6, 7, 8, 10)}, "ZBVZeroBubble"),
    ],
)
def test_modules_order_and_sizes_are_the_plans(tmp_path: Path, name: str, values: dict[str, Any], style: str) -> None:
    plan = baseline_plan(name, **values)
    program = program_of(plan)
    assert export(tmp_path, plan, "--micro-batch-size", "3", "--head-modules", "norm,lm_head") == 0
    found = tomllib.loads((tmp_path / "titan.toml").read_text())
    parallelism = found["parallelism"]
    assert parallelism["pipeline_parallel_schedule"] == style
    assert found["training"] == {"local_batch_size": 24, "global_batch_size": 24}
    assert parallelism["pipeline_parallel_degree"] == 4
    assert parallelism["pipeline_parallel_microbatch_size"] == 3
    assert Path(parallelism["pipeline_parallel_schedule_csv"]).read_text() == torch_pipeline_text(
        program.order, "compute"
    )
    parts = parallelism["module_fqns_per_model_part"]
    blocks = plan.problem["layers"] - 2
    assert [each for part in parts for each in part] == [
        "tok_embeddings", *(f"layers.{k}" for k in range(blocks)), "norm", "lm_head",
    ]  # fmt: skip
    counts = [len(part) - (stage == len(parts) - 1) for stage, part in enumerate(parts)]
    assert [sum(counts[: stage + 1]) for stage in range(len(parts) - 1)] == list(program.cut)


def test_checkpoints_and_replicas_are_said(tmp_path: Path) -> None:
    plan = baseline_plan("1f1b", recomputes=True, replicas=3, bandwidth="1Gbps", hop=None)
    assert export(tmp_path, plan, "--tensor-parallel", "8") == 0
    found = tomllib.loads((tmp_path / "titan.toml").read_text())
    assert found["activation_checkpoint"] == {"mode": "full"}
    assert found["training"] == {"local_batch_size": 8, "global_batch_size": 24}
    assert found["parallelism"]["data_parallel_replicate_degree"] == 3
    assert found["parallelism"]["tensor_parallel_degree"] == 8


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("zb-h1", {"recomputes": True}, "run a forward again for each part of a backward, the plan once for both"),
        ("1f1b", {"recomputes": [True, False, False, True]}, "all stages or none, the plan 0, 3"),
        (
            "1f1b", {"compression": errors_table("rank 4"), "error_budget": 1.0, "hop_modes": {(1, 0): 1}},
            "torchtitan sends all gradients plain",
        ),
        ("1f1b", {"profile": "uniform:f=10,b=12,w=8"}, "torchtitan needs the layers of a transformer"),
    ],
)  # fmt: skip
def test_what_torchtitan_cannot_do_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, values: dict[str, Any], message: str
) -> None:
    assert export(tmp_path, baseline_plan(name, **values)) == 2
    found = capsys.readouterr().err
    assert message in found
    assert found.count("\n") == 1
    assert not list(tmp_path.glob("titan.*"))


def test_the_order_needs_a_file_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(tmp_path, baseline_plan("1f1b"), name="titan.csv") == 2
    assert "output: must not end in .csv" in capsys.readouterr().err
