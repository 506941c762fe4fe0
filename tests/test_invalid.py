"""A plan that breaks a rule of the replay is `invalid`: nothing calls it optimal, or says how far from that it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compression_traces import small_trace
from small_plans import small_plan

import gapless
from gapless.cli.main import main
from gapless.encodings.ranks import solve as ranks_solve
from gapless.ir.schedule import Schedule
from gapless.question.fields import Share
from gapless.solution import Status
from gapless.sweeps.question import Given
from gapless.sweeps.results import row_of
from gapless.system import Plan


def in_haste(schedule: Schedule) -> Schedule:
    """The schedule with an op that takes less than it must."""
    last = int(np.argmax(schedule.end_s - schedule.start_s))
    return replace(schedule, end_s=np.where(np.arange(len(schedule)) == last, schedule.start_s, schedule.end_s))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A plan whose file claims that it is optimal, and one of whose events is in haste."""
    path = small_plan("cupcake", tmp_path)
    data = json.loads(path.read_text())
    assert data["claim"]["status"] == "optimal"
    schedule = data["schedule"]
    schedule["end_s"][0] = schedule["start_s"][0]
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def solved_wrong(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A question whose system answers with a plan that breaks a rule and is called optimal."""
    right = ranks_solve.solve

    def wrong(*asked: Any) -> Plan:
        plan = right(*asked)
        assert plan.solution.status is Status.OPTIMAL
        assert plan.schedule is not None
        return replace(plan, schedule=in_haste(plan.schedule))

    monkeypatch.setattr(ranks_solve, "solve", wrong)
    return gapless.ranks.problem(small_trace(), data=Share(0.5), phases="epoch")


def test_a_solve_whose_plan_breaks_a_rule_claims_nothing(solved_wrong: Any) -> None:
    result = gapless.solve(solved_wrong)
    assert (result.status, result.valid) == (Status.INVALID, False)
    data = result.data
    assert (data["status"], data["valid"], data["gap"], data["bounds"]) == ("invalid", False, None, [])
    assert data["bound_error"] is None
    assert result.plan.claim["status"] == "invalid"
    assert "invalid" in repr(result)
    assert "optimal" not in repr(result)
    assert "optimal" not in result._repr_html_()


def test_the_command_says_invalid_and_ends_with_5(
    solved_wrong: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gapless.profiles.compression.trace import write_compression_trace

    write_compression_trace(tmp_path / "trace.npz", small_trace())
    asked = ["--trace", str(tmp_path / "trace.npz"), "--data", "0.5x", "--phases", "epoch"]
    assert main(["solve", "ranks", *asked, "--json", "-o", str(tmp_path / "plan.json")]) == 5
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["valid"], data["gap"], data["bounds"]) == ("invalid", False, None, [])
    assert data["plan"] is None
    assert not (tmp_path / "plan.json").exists()
    assert main(["solve", "ranks", *asked]) == 5
    assert "optimal" not in capsys.readouterr().out


def test_a_row_of_a_sweep_is_no_answer_and_has_no_bound(solved_wrong: Any) -> None:
    question = Given(solved_wrong, {}, "x", "wrong", {})
    row = row_of(question, gapless.solve(solved_wrong), None)
    assert (row.status, row.verdict, row.gap, row.bound, row.is_answer) == ("invalid", "invalid", None, None, False)


def test_a_file_that_claims_more_is_loaded_as_invalid(broken: Path) -> None:
    loaded = gapless.load(broken)
    assert (loaded.status, loaded.valid) == (Status.INVALID, False)
    assert loaded.solution.gap is None
    assert loaded.solution.bounds == ()
    assert loaded.data["bound_s"] is None


def test_show_report_and_plot_call_it_invalid(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(broken)]) == 5
    claim = capsys.readouterr().out.split("claim\n")[1].split("details\n")[0]
    assert "invalid" in claim
    assert "optimal" not in claim
    page, picture = broken.with_suffix(".html"), broken.with_suffix(".svg")
    assert main(["report", str(broken), "-o", str(page), "--no-pictures"]) == 5
    text = page.read_text()
    assert "invalid" in text
    assert "optimal" not in text.split("Details")[0]
    assert main(["plot", str(broken), "-o", str(picture)]) == 5
    assert "does not replay clean" in picture.read_text()
