"""What gapless relies on in `_PipelineScheduleRuntime._load_csv`, which is private to torch.

If a test fails with another torch, `gapless/io/formats/torch_pipeline.py` writes what that torch doesn't read: correct
the form there, or what its page says of versions. Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from pipeline_plans import baseline_plan
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.io.formats.torch_pipeline import FORMS, ActionOrder, rows_of, write_torch_pipeline

ONE_COPY = [name for name, baseline in BASELINES.items() if baseline.placement != "bidirectional"]
"""What torch can play: no second copy of a model."""


def loaded(path: Path, order: ActionOrder, form: str) -> Any:
    """torch's runtime with a schedule, on stages that nobody runs."""
    stage = SimpleNamespace(num_stages=len(order.rank_of_stage), group_size=order.ranks, group_rank=0)
    runtime = _PipelineScheduleRuntime([stage], order.micro_batches, loss_fn=lambda output, target: output)
    runtime._load_csv(str(path), format=FORMS[form])  # noqa: SLF001
    return runtime


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("name", ONE_COPY)
def test_torch_reads_both_forms_and_places_stages_as_the_plan_does(tmp_path: Path, name: str, form: str) -> None:
    order = program_of(baseline_plan(name)).order
    write_torch_pipeline(tmp_path / "s.csv", order, form)
    runtime = loaded(tmp_path / "s.csv", order, form)
    assert runtime.stage_index_to_group_rank == dict(enumerate(order.rank_of_stage))


@pytest.mark.parametrize("name", ONE_COPY)
def test_torch_adds_the_messages_and_divisions_that_the_longer_form_has(tmp_path: Path, name: str) -> None:
    order = program_of(baseline_plan(name)).order
    write_torch_pipeline(tmp_path / "s.csv", order, "compute")
    runtime = loaded(tmp_path / "s.csv", order, "compute")
    for rank, row in enumerate(rows_of(order, "communication")):
        made = [str(action) for action in runtime.pipeline_order_with_comms[rank]]
        assert sorted(word for word in made if "SHARD" not in word) == sorted(row)
        assert [word for word in made if word[-2:] not in ("RD", "AD") and "_" not in word] == [
            str(action) for action in order.of_rank(rank)
        ]


def _without(word: str) -> Callable[[str], str]:
    return lambda text: text.replace(f"{word},", "")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without("1F0"), "Running Backward Input for stage 1, microbatch 0 without first running Forward"),
        (_without("1I7"), "Running Backward Weight for stage 1, microbatch 7 without first running Backward Input"),
        (_without("0F7"), "without first running Forward"),
        (lambda text: text.replace("0F0,", "0F0,3F0,"), "Stage 3 is assigned to both rank"),
        (lambda text: text.replace("1F0", "1X0"), "Invalid action string: 1X0"),
        (lambda text: text.rpartition("3F0")[0] + "\n", "Got 0 F microbatches for stage 3|Got 0"),
        (lambda text: text.replace("1F0", "1SEND_F0"), "Running Backward Input|communication action"),
    ],
)
def test_torch_refuses_a_broken_file(tmp_path: Path, damage: Callable[[str], str], message: str) -> None:
    order = program_of(baseline_plan("zb-h1")).order
    write_torch_pipeline(tmp_path / "s.csv", order, "compute")
    (tmp_path / "s.csv").write_text(damage((tmp_path / "s.csv").read_text()))
    with pytest.raises((AssertionError, RuntimeError, ValueError), match=message):
        loaded(tmp_path / "s.csv", order, "compute")
