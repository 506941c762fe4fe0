"""`gapless challenge`: exit codes, what is printed, the file that is written, and how it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from small_plans import small_plan

import gapless
from gapless.challenges import Attempt
from gapless.cli.commands import challenge as challenging
from gapless.cli.main import main

RING = ["solve", "taccl", "--topology", "ring:4", "--size", "1MB", "--quiet"]
COARSE = [
    *["solve", "taccl", "--topology", "line:3", "--collective", "sendrecv", "--root", "0", "--target", "2"],
    *["--size", "1MB", "--chunks", "1", "--quiet"],
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_nothing_found_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RING, "-o", "plan.json"]) == 0
    assert main(["challenge", "plan.json", "--work", "5", "-o", "better.json"]) == 0
    printed = capsys.readouterr()
    assert "nothing is refuted, no plan is better, in 10 attempts" in printed.out
    assert "gapless: 10/10  --seed 2, without presolve: no better" in printed.err
    assert not Path("better.json").exists()


def test_a_better_plan_is_exit_code_5_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COARSE, "-o", "plan.json"]) == 0
    assert main(["challenge", "plan.json", "--work", "5", "--json", "--quiet", "-o", "better.json"]) == 5
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert not printed.err
    assert (found["verdict"], found["plan"], found["refuted"]) == ("better", "better.json", [])
    better = gapless.load("better.json")
    assert better.valid
    assert better.solution.objective == found["better"]["objective_s"]
    assert found["better"]["gain"] > 0.3


def test_a_raised_bound_is_an_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COARSE, "-o", "plan.json"]) == 0
    data = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    raised = 0.99 * data["claim"]["objective_s"]
    data["claim"]["bounds"][0]["bound"] = data["claim"]["bound_s"] = raised
    Path("plan.json").write_text(json.dumps(data), encoding="utf-8")
    assert main(["challenge", "plan.json", "--work", "5"]) == 5
    assert "refuted: a plan of 58.05 us is below the bound 92.47 us (question)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"system": "elsewhere"}, "plan.json: system: must be one of bagpipe"),
        ({"run": {}}, "plan.json: question: must be kept in the file in words"),
        ({"run": {"question": {"fields": {"topology": 7}, "sha256": ""}}}, "question: can't be asked again: topology"),
        ({"run": {"question": {"fields": {"topology": "ring:5", "size": 1000}, "sha256": "0"}}}, "is another one now"),
        ({"claim": {}}, "plan.json: claim: must say status"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, change: dict[str, object], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_plan("taccl", tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, **change}), encoding="utf-8")
    assert main(["challenge", "plan.json"]) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_a_time_limit_says_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RING, "-o", "plan.json"]) == 0
    assert main(["challenge", "plan.json", "--time-limit", "0.000001", "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["why_ended"] == "time limit"
    assert len(found["left_out"]) == 10
    assert not found["attempts"]


@pytest.mark.usefixtures("heard")
def test_ctrl_c_ends_with_what_was_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COARSE, "-o", "plan.json"]) == 0
    say = challenging._say  # noqa: SLF001

    def interrupted(done: int, total: int, attempt: Attempt) -> None:
        say(done, total, attempt)
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(challenging, "_say", interrupted)
    assert main(["challenge", "plan.json", "--work", "5", "-o", "better.json"]) == 5
    printed = capsys.readouterr()
    assert "interrupted: " in printed.out
    assert re.search(r"of \d+ attempts \d are cut short, \d are left out", printed.out)
    assert gapless.load("better.json").valid


def test_a_file_that_cannot_be_written_is_refused_before_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["challenge", "plan.npz", "-o", "better.json"]) == 2
    assert "--output: must end in .npz, as the plan does" in capsys.readouterr().err
    assert main(["challenge", "plan.json", "-o", "nowhere/better.json"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


def test_shares_come_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RING, "-o", "plan.json"]) == 0
    Path("shares.toml").write_text("work = 1\nseeds = 0\n", encoding="utf-8")
    assert main(["challenge", "plan.json", "--parameters", "shares.toml", "--quiet", "--json"]) == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out)["attempts"]]
    assert not [name for name in names if name.startswith("--seed")]
    Path("shares.toml").write_text("werk = 1\n", encoding="utf-8")
    assert main(["challenge", "plan.json", "--parameters", "shares.toml"]) == 2
    assert "'werk' is no parameter" in capsys.readouterr().err


def test_parameters_of_a_challenge_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "parameters"]) == 0
    assert "(challenge)" in capsys.readouterr().out
