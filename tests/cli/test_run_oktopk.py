"""`gapless profile sparsity`, `run oktopk` and `validate sparse`: what they print, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from extras import needs_torch

from gapless.cli.main import main

MODEL = "train:net,layers=1,width=4,classes=3,size=4"
ELEMENTS = 4 * 3 * 9 + 8 + 4 * 16 + 16 + 16 * 3 + 3
"""Of the model's gradient."""

GENERATED = "clustered:elements=5000,steps=2"


def solved(folder: Path, *options: str, indices: str = GENERATED, ranks: str = "3") -> str:
    plan = str(folder / "plan.json")
    question = ["--indices", indices, "--ranks", ranks, "--bandwidth", "1MB/s", "--latency", "1us"]
    assert main(["solve", "oktopk", *question, *options, "-o", plan, "--quiet"]) == 0
    return plan


def recorded(folder: Path, steps: int = 3) -> str:
    path = str(folder / "g.npz")
    words = ["profile", "sparsity", "--model", MODEL, "--ranks", "2", "--density", "0.1", "--steps", str(steps)]
    assert main([*words, "-o", path, "--quiet", "--json"]) == 0
    return path


@needs_torch
def test_a_generated_plan_runs_with_the_bits_and_words_that_it_must_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = solved(tmp_path, "--objective", "mean")
    assert main(["run", "oktopk", "--plan", plan, "--repeats", "1", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["steps"], found["wrong"], found["valid"]) == (3, [0, 1], 0, True)
    assert [sum(words) for words in found["received_words"]] == found["planned_words"]
    assert found["sums"] == 2 * 3 * 50
    assert (found["count"], found["chosen"]) == (50, {"plan": 50})
    assert 0 < found["add_s"] < 1e-2
    assert list(found["measured_s"]) == ["plan", "other balancing", "TopkA", "TopkDSA", "gTopk", "dense"]
    assert found["wrong_by"] == {"plan": 0, "other balancing": 0, "TopkDSA": 0, "gTopk": 0}
    for row in found["beside"].values():
        assert row["received_words"] == row["planned_words"]
    assert sum(found["beside"]["gTopk"]["received_words"]) == 2 * 2 * (2 + 2) * 50  # steps, words, hops up and down


@needs_torch
@pytest.mark.thorough
def test_what_is_recorded_is_planned_for_run_and_trained_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = recorded(tmp_path)
    found = json.loads(capsys.readouterr().out)
    assert (found["elements"], found["ranks"], found["steps"]) == (ELEMENTS, 2, 3)
    assert len(found["losses"]) == 3
    plan = solved(tmp_path, indices=sets, ranks="2")
    assert main(["run", "oktopk", "--plan", plan, "--indices", sets, "--ranks", "2", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert "the bits of the dense sum" in out
    assert "Gaussiank" in out.splitlines()[-1]
    assert f"of k = {round(0.1 * ELEMENTS)}: plan {round(0.1 * ELEMENTS)} (1.00 k), Gaussiank " in out
    words = ["validate", "sparse", "--model", MODEL, "--plan", plan, "--steps", "3"]
    drawn = ["--plot", str(tmp_path / "losses.svg")]
    assert main([*words, *drawn, "--json", "--quiet"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["dense"]["received_words"] == ELEMENTS
    assert len({row["first_loss"] for row in rows.values()}) == 1
    assert rows["plan"]["losses"] != rows["dense"]["losses"]
    assert rows["plan"]["received_words"] < ELEMENTS
    assert (tmp_path / "losses.svg").exists()


@needs_torch
@pytest.mark.thorough
def test_all_exchanges_train_from_one_start_and_say_what_they_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = solved(tmp_path, indices=recorded(tmp_path), ranks="2")
    capsys.readouterr()
    words = ["validate", "sparse", "--model", MODEL, "--plan", plan, "--steps", "5", "--optimizer", "adamw"]
    more = ["--beside", "TopkA,Gaussiank,TopkDSA,gTopk", "--weight-decay", "0.01", "--balance-above", "1"]
    more += ["--bandwidth", "10KB/s", "--latency", "1ms", "--compute", "20ms"]
    assert main([*words, *more, "--estimate", "gaussian-adjusted", "--period", "2", "--json", "--quiet"]) == 0
    data = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in data["rows"]}
    assert list(rows) == ["dense", "TopkA", "Gaussiank", "TopkDSA", "gTopk", "plan"]
    assert len({row["first_loss"] for row in rows.values()}) == 1
    assert data["count"] == round(0.1 * ELEMENTS)
    assert rows["gTopk"]["summed"] == [data["count"]] * 5
    assert min(rows["Gaussiank"]["sent"]) >= 0.75 * data["count"]
    assert rows["TopkA"]["losses"] == rows["TopkDSA"]["losses"]  # the same sums
    for name, row in rows.items():
        parts = [row["selection_s"], row["communication_s"]]
        assert parts == [None, None] if name == "dense" else 0 < sum(parts) < row["step_s"]
    assert rows["plan"]["balanced_steps"] > 0
    assert data["is_emulated"]
    for name, row in rows.items():
        words = row["received_words"]
        if name != "dense":  # agreements are of other words, and sent otherwise
            words = 0.5 * words
        assert row["step_s"] >= 4 * words / 10e3 + (0.02 / 3 if name == "dense" else 0.02)
        assert 0 < row["to_loss_s"] <= 5 * row["step_s"] * (1 + 1e-9)


@needs_torch
@pytest.mark.thorough
def test_what_thresholds_select_is_counted_and_xi_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "selection", "--model", MODEL, "--ranks", "2", "--period", "3"]
    drawn = ["--plot", str(tmp_path / "selection.svg")]
    assert main([*words, "--density", "0.1", "--steps", "7", *drawn, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["count"] == round(0.1 * ELEMENTS)
    assert [found["sent"][step] for step in (0, 3, 6)] == [found["count"]] * 3  # found anew
    assert [found["summed"][step] for step in (0, 3, 6)] == [found["count"]] * 3
    assert found["sent"][1] != found["count"]
    assert min(found["adjusted"]) >= 0.75 * found["count"]
    assert 0 < found["xi"][0] < found["most_xi"]
    values = found["values"]
    assert (values["step"], values["age"]) == (5, 2)
    assert sum(values["entries"]) == ELEMENTS
    assert sum(values["entries"]) - found["count"] > 0
    assert values["thresholds"]["reused"] != values["thresholds"]["exact"] > 0
    assert (tmp_path / "selection.svg").exists()
    assert main([*words, "--density", "1", "--steps", "2", "--json", "--quiet"]) == 0
    assert max(json.loads(capsys.readouterr().out)["xi"]) < 1e-6  # all is sent: nothing is off


def refused(capsys: pytest.CaptureFixture[str], code: int, message: str) -> None:
    """One line, exit code 2."""
    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith("gapless")
    assert err.count("\n") == 1
    assert message in err


@needs_torch
def test_a_plan_for_others_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = solved(tmp_path)
    for words, message in (
        (["run", "oktopk", "--ranks", "4"], "--ranks: must be those of the plan, 3, got 4; plan for as many"),
        (["run", "oktopk", "--indices", "uniform:elements=5000,steps=2"], "--indices: must be those that the plan"),
        (["run", "oktopk", "--indices", "uniform:elements=5000,steps=1"], "--indices: must have step 1, which"),
        (["run", "oktopk", "--indices", "clustered:elements=4000,steps=2"], "--indices: must be those that the plan"),
        (["run", "oktopk", "--indices", "nowhere.npz"], "cannot read nowhere.npz"),
        (["validate", "sparse", "--model", MODEL, "--ranks", "2"], "--ranks: must be those of the plan, 3, got 2"),
        (["validate", "sparse", "--model", MODEL], f"is for a gradient of 5000 entries, got a model of {ELEMENTS}; "),
    ):  # fmt: skip
        refused(capsys, main([*words, "--plan", plan, "--quiet"]), message)


@needs_torch
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "nowhere:net"], "--model: nowhere:net can't be imported"),
        (["-o", "grads.json"], "--output: must end in .npz, got 'grads.json'"),
        (["-o", "nowhere/g.npz"], "nowhere"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    path = str(tmp_path / "g.npz")
    refused(capsys, main(["profile", "sparsity", "--model", MODEL, "-o", path, "--quiet", *options]), message)
    assert not Path(path).exists()


@pytest.mark.parametrize("words", ["run oktopk", f"validate sparse --model {MODEL}"])
def test_a_plan_that_does_not_replay_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    plan = Path(solved(tmp_path))
    data = json.loads(plan.read_text())
    data["schedule"]["end_s"][-1] += 1.0
    data["schedule"]["start_s"][-1] -= 100.0
    plan.write_text(json.dumps(data))
    assert main([*words.split(), "--plan", str(plan)]) == 5
    assert "not run: " in capsys.readouterr().out


@pytest.mark.parametrize("words", ["run oktopk", f"validate sparse --model {MODEL}"])
def test_a_plan_of_another_system_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    plan = str(tmp_path / "p.json")
    question = ["--topology", "ring:4", "--collective", "allgather", "--size", "1MB", "--time-limit", "5"]
    assert main(["solve", "taccl", *question, "-o", plan, "--quiet"]) == 0
    message = "run takes a plan of oktopk, got one of taccl"
    refused(capsys, main([*words.split(), "--plan", plan]), message)
