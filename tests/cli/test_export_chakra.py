"""`gapless export --format chakra`."""

from __future__ import annotations

import pytest

from gapless.cli.main import main
from gapless.io.formats.chakra import read_traces, trace_problem


@pytest.mark.thorough
def test_a_plan_becomes_a_trace_for_each_rank(capsys, tmp_path):
    plan, prefix = tmp_path / "plan.json", tmp_path / "allreduce"
    command = f"solve taccl --topology ring:4 --collective allreduce --size 1MB --chunks 1 --quiet -o {plan}"
    assert main(command.split()) == 0
    assert main(["export", str(plan), "--format", "chakra", "-o", str(prefix)]) == 0
    assert "sends and receives in 4 files" in capsys.readouterr().out
    traces = read_traces(prefix)
    assert len(traces) == 4
    assert trace_problem(traces) == ""


def test_plans_of_other_systems_are_refused(capsys, tmp_path):
    plan = tmp_path / "plan.json"
    assert main(f"solve cupcake --profile resnet50 --quiet -o {plan}".split()) == 0
    assert main(["export", str(plan), "--format", "chakra", "-o", str(tmp_path / "t")]) == 2
    assert "--format chakra takes plans of taccl, got one of cupcake" in capsys.readouterr().err
