"""`gapless profile heads`, `solve chai`, `run chai`: what they print, and what is refused in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from extras import needs_transformers

from gapless.cli.main import main
from gapless.encodings.chai.commands.profile import profile_heads
from gapless.encodings.chai.question import ProfileQuestion
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.profiles.heads.profile_file import read_head_profile
from gapless.system import Session

SYNTHETIC = ("--profile", "synthetic:layers=3,heads=6")
TEXT = "What a cache need not hold is saved: keys of heads that share the attention of one head. " * 30


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main([*words, "--json", "--quiet"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """Exit code 2, and one line with the message."""
    try:
        code = main(words)
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    err = capsys.readouterr().err
    assert (code, message in err, err.count("\n")) == (2, True, 1), err


def test_solve_prints_the_error_its_bound_and_the_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    data = printed(capsys, "solve", "chai", *SYNTHETIC, "--kv-saving", "0.25", "-o", plan)
    assert data["status"] == "optimal"
    assert data["objective_error"] == data["bound_error"]
    assert data["valid"] is True
    assert data["saved"] == pytest.approx(0.25)
    assert isinstance(data["baselines"], dict)
    assert set(data["baselines"]) == {"uniform", "elbow", "random"}
    assert all(row["error"] >= data["objective_error"] for row in data["baselines"].values())
    assert read_plan(plan).system == "chai"
    assert main(["check", plan]) == 0
    capsys.readouterr()
    assert main(["show", plan]) == 0
    out = capsys.readouterr().out
    assert "keys kept" in out
    assert "uniform" in out


@pytest.mark.parametrize("method", ["uniform", "elbow", "random"])
def test_a_baseline_s_plan_has_the_bound_of_the_question(capsys: pytest.CaptureFixture[str], method: str) -> None:
    best = printed(capsys, "solve", "chai", *SYNTHETIC, "--kv-saving", "0.25")
    data = printed(capsys, "solve", "chai", *SYNTHETIC, "--kv-saving", "0.25", "--method", method)
    assert data["bound_error"] == pytest.approx(best["objective_error"])
    assert data["valid"] is True


def test_too_much_is_infeasible_and_says_what_is_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "chai", *SYNTHETIC, "--kv-saving", "0.45"]) == 3
    assert "keys of one head in each layer save 41.7% of the cache: that is the most" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kv-saving", "1"], "must be a number >= 0 and <= 0.999, got '1'"),
        (["--kv-saving", "x"], "must be a number >= 0"),
        ([], "--kv-saving"),
        (["--kv-saving", "0.2", "--device", "a10"], "device: must be one of p100, v100, a100, h100, got 'a10'"),
        (["--kv-saving", "0.2", "--method", "exct"], "exct"),
        (["--kv-saving", "0.2", "--context", "0"], "must be a whole number in 1.."),
        (["--kv-saving", "0.2", "--swaps", "3"], "model: must be given where swaps are tried"),
        (["--kv-saving", "0.2", "--model", "hf:tiny-llama"], "model: goes with swaps"),
        (["--kv-saving", "0.2", "--distance", "loss"], "measure it again with `gapless profile heads`, or take output"),
        (["--kv-saving", "0.2", "--distance", "los"], "did you mean 'loss'?"),
        (["--kv-saving", "0.2", "--profile", "no.npz"], "cannot read no.npz: No such file"),
    ],
)
def test_wrong_questions_are_refused(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    refused(capsys, ["solve", "chai", *SYNTHETIC, *options], message)


def test_show_has_the_rises_and_refuses_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    data = printed(capsys, "solve", "chai", "--profile", "small-lm", "--kv-saving", "0.25", "-o", str(plan))
    assert sum(data["rises"]) == pytest.approx(data["objective_error"])  # type: ignore[arg-type]
    assert main(["show", str(plan)]) == 0
    out = capsys.readouterr().out
    assert all(f"{rise:.4f}" in out for rise in data["rises"])  # type: ignore[attr-defined]
    saved = json.loads(plan.read_text())
    for wrong, message in (
        (["a"] * 4, "rises[0]: must be a number >= 0"),
        ([0.1], "rises: must be of 4 layers, got 1"),
    ):
        saved["details"]["rises"] = wrong
        plan.write_text(json.dumps(saved))
        refused(capsys, ["show", str(plan)], message)


@needs_transformers
@pytest.mark.thorough
def test_without_loss_sequences_no_rise_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text, heads = str(tmp_path / "text.txt"), str(tmp_path / "heads.npz")
    Path(text).write_text(TEXT)
    words = ("--model", "hf:tiny-llama-gqa", "--calibration", text, "-o", heads, "--sequence", "16", "--sequences", "1")
    data = printed(capsys, "profile", "heads", *words, "--loss-sequences", "0")
    assert (data["rises"], data["full_loss"]) == (None, None)
    assert read_head_profile(heads).rises is None
    assert main(["profile", "heads", *words, "--loss-sequences", "1"]) == 0
    assert "where one layer alone keeps so many" in capsys.readouterr().out
    refused(capsys, ["profile", "heads", *words, "--loss-sequences", "-1"], "must be a whole number in 0..1000000")


def test_the_front_of_rises_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    printed(capsys, "solve", "chai", "--profile", "small-lm", "--kv-saving", "0.25", "-o", plan)
    assert main(["plot", plan, "--kind", "front", "-o", str(tmp_path / "out.svg"), "--quiet"]) == 0
    assert "rise of the loss, in sum over layers" in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize("kind", ["front", "heads"])
def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    plan = str(tmp_path / "plan.json")
    printed(capsys, "solve", "chai", *SYNTHETIC, "--kv-saving", "0.25", "-o", plan)
    assert main(["plot", plan, "--kind", kind, "-o", str(tmp_path / "out.svg"), "--quiet"]) == 0
    text = (tmp_path / "out.svg").read_text()
    assert ("least error" in text) == (kind == "front")
    data = json.loads(Path(plan).read_text())
    data["decision"]["representatives"][0] = [9] * 6
    Path(plan).write_text(json.dumps(data))
    if kind == "heads":
        refused(
            capsys, ["plot", plan, "--kind", kind, "-o", str(tmp_path / "out.svg")], "must be a whole number in 0..5"
        )


@needs_transformers
@pytest.mark.thorough("gpt2")
@pytest.mark.parametrize("model", ["hf:tiny-llama-gqa", "hf:tiny-gpt2"])
def test_from_a_text_to_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str) -> None:
    text, heads, plan = (str(tmp_path / name) for name in ("text.txt", "heads.npz", "plan.json"))
    Path(text).write_text(TEXT)
    few = ("--sequence", "32", "--sequences", "2")
    profile = printed(capsys, "profile", "heads", "--model", model, "--calibration", text, "-o", heads, *few)
    assert profile["tokens"] == 64
    assert [len(row) for row in profile["rises"]] == [profile["key_heads"]] * 2  # type: ignore[attr-defined]
    risen = printed(capsys, "solve", "chai", "--profile", heads, "--kv-saving", "0.2", "-o", plan)
    assert (risen["asked"]["distance"], risen["status"]) == ("loss", "optimal")  # type: ignore[index]
    assert main(["show", plan]) == 0
    assert "rise of the loss" in capsys.readouterr().out
    swaps = ("--swaps", "2", "--model", model, "--calibration", text)
    solved = printed(capsys, "solve", "chai", "--profile", heads, "--kv-saving", "0.2", "-o", plan, *swaps)
    assert isinstance(solved["swaps"], dict)
    assert solved["swaps"]["tried"] == 2
    ran = printed(capsys, "run", "chai", "--model", model, "--plan", plan, "--text", text, "--new-tokens", "4", *few)
    assert ran["valid"] is True
    assert ran["logit_difference"] <= 1e-6 * ran["largest_logit"]  # type: ignore[operator]
    assert ran["cache_bytes"] == ran["planned_cache_bytes"] < ran["full_cache_bytes"]  # type: ignore[operator]
    assert ran["kv_saving"] == pytest.approx(solved["saved"])


@needs_transformers
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile", "heads", "--model", "hf:tiny-lama", "-o", "heads.npz"], "did you mean 'tiny-llama'?"),
        (["profile", "heads", "--model", "/none", "-o", "heads.npz"], "or the folder of a saved model, got '/none'"),
        (["profile", "heads", "--model", "hf:tiny-llama", "-o", "none/heads.npz"], "there is no folder none"),
        (["profile", "heads", "--model", "hf:tiny-llama", "-o", "heads.npz", "--sequence", "9999"],
         "must have 9999 tokens at least, one sequence, got"),
        (["profile", "heads", "--model", "hf:tiny-llama", "-o", "heads.npz", "--sequence", "1"],
         "must be a whole number in 2.."),
    ],
)  # fmt: skip
def test_wrong_models_and_texts_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    refused(capsys, [*words, "--calibration", "text.txt"], message)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@needs_transformers
def test_plans_of_others_are_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, text = str(tmp_path / "plan.json"), str(tmp_path / "text.txt")
    Path(text).write_text(TEXT)
    words = ["run", "chai", "--model", "hf:tiny-llama", "--plan", plan, "--text", text]
    refused(capsys, words, "cannot read")
    printed(capsys, "solve", "chai", *SYNTHETIC, "--kv-saving", "0.25", "-o", plan)
    refused(capsys, words, "model: hf:tiny-llama has 2 layers, the plan 3; measure it again")
    assert main(["solve", "taccl", "--topology", "ring:4", "--size", "1KB", "-o", plan, "--quiet"]) == 0
    refused(capsys, words, "run takes a plan of chai, got one of taccl")


@needs_transformers
@pytest.mark.parametrize(
    ("at", "note"), [("best heads", "no rise of the loss is in the profile"), ("keys of 2", "4 rises of the loss are")]
)
def test_a_profile_that_is_stopped_has_the_rises_that_were_measured(tmp_path: Path, at: str, note: str) -> None:
    text, heads = str(tmp_path / "text.txt"), str(tmp_path / "heads.npz")
    Path(text).write_text(TEXT)
    options = SolveOptions()

    def say(line: str) -> None:
        if at in line:
            options.stop.set()

    question = ProfileQuestion("hf:tiny-llama-gqa", text, 1, heads, sequence=16, sequences=1)
    answer = profile_heads(question, Session(options, say))
    assert (answer.is_complete, len(answer.notes)) == (False, 1)
    assert note in answer.notes[0]
    rises = read_head_profile(heads).rises
    known = [[True, False, False, True]] * 2
    assert rises is None if at == "best heads" else rises is not None and rises.is_measured.tolist() == known
    assert answer.data["rises"] == (None if rises is None else [[row[0], None, None, 0.0] for row in rises.loss])


@needs_transformers
def test_requests_are_served_by_memberships_of_their_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text, plan = str(tmp_path / "text.txt"), str(tmp_path / "plan.json")
    Path(text).write_text(TEXT)
    profile = ("--profile", "synthetic:layers=2,heads=8")
    printed(capsys, "solve", "chai", *profile, "--kv-saving", "0.25", "-o", plan)
    asked = ("run", "chai-requests", "--model", "hf:tiny-llama", "--plan", plan, "--text", text)
    few = ("--sequence", "16", "--sequences", "3", "--batch", "2", "--new-tokens", "2")
    data = printed(capsys, *asked, *few)
    maps: dict[str, dict[str, float]] = data["maps"]  # type: ignore[assignment]
    assert list(maps) == ["full", "static", "request", "request-least", "hindsight"]
    assert (data["requests"], data["hindsight_proven"], data["unplanned_caches"]) == (3, 3, 0)
    assert data["logit_difference"] <= 1e-6 * data["largest_logit"]  # type: ignore[operator]
    assert maps["full"]["error"] == 0 < maps["hindsight"]["error"]
    assert all(maps["hindsight"]["error"] <= maps[name]["error"] for name in ("static", "request", "request-least"))
    assert {maps[name]["cache_bytes"] for name in maps if name != "full"} == {0.75 * maps["full"]["cache_bytes"]}
    assert maps["full"]["equal_tokens"] == data["generated_tokens"] == 6
    refused(capsys, [*asked, "--beside", "dejavu"], "--calibration: goes with --beside dejavu")
    refused(capsys, [*asked, "--sequence", "9", "--task", "copy"], "--sequence: must be even for a copy")
    refused(capsys, [*asked, "--sequence", "5"], "--first-tokens: must be fewer than the 5 tokens of a sequence, got 5")


@needs_transformers
def test_latencies_have_a_row_for_each_length_batch_and_precision(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    printed(capsys, "solve", "chai", "--profile", "synthetic:layers=2,heads=8", "--kv-saving", "0.25", "-o", plan)
    asked = ("run", "chai-latency", "--model", "hf:tiny-llama", "--plan", plan, "--repeats", "1", "--new-tokens", "2")
    data = printed(capsys, *asked, "--lengths", "8,12", "--batches", "1,2", "--dtypes", "float32,bfloat16")
    rows: list[dict[str, float]] = data["rows"]  # type: ignore[assignment]
    assert len(rows) == 2 * 2 * 2 * 3
    assert [rows[k]["cache_bytes"] / rows[0]["cache_bytes"] for k in (1, 2, 3, 6, 12)] == [0.75, 0.75, 13 / 9, 2, 0.5]
    assert all(row["first_token_s"] > 0 and row["next_token_s"] > 0 for row in rows)
    refused(capsys, [*asked, "--lengths", "5"], "lengths: must be more than the 5 first tokens, got 5")


@needs_transformers
@pytest.mark.thorough
def test_requests_are_served_with_heads_dropped_and_values_shared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text, plan = str(tmp_path / "text.txt"), str(tmp_path / "plan.json")
    Path(text).write_text(TEXT)
    printed(capsys, "solve", "chai", "--profile", "synthetic:layers=2,heads=8", "--kv-saving", "0.25", "-o", plan)
    asked = ("run", "chai-requests", "--model", "hf:tiny-llama", "--plan", plan, "--text", text)
    few = ("--sequence", "16", "--sequences", "3", "--batch", "2", "--new-tokens", "2")
    maps: dict[str, dict[str, float]] = printed(capsys, *asked, *few)["maps"]  # type: ignore[assignment]
    beside = ("--beside", "values,spatten,dejavu", "--calibration", text, "--task", "copy")
    more: dict[str, dict[str, float]] = printed(capsys, *asked, *few, *beside)["maps"]  # type: ignore[assignment]
    assert [more[name]["error"] is None for name in more] == [False] * 6 + [True] * 2
    assert more["values"]["cache_bytes"] == 0.5 * more["full"]["cache_bytes"] == 0.5 * more["dejavu"]["cache_bytes"]
    assert more["full"]["loss"] != maps["full"]["loss"]


@needs_transformers
@pytest.mark.thorough
def test_heads_and_their_changes_are_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text, heads, plan, out = (str(tmp_path / name) for name in ("text.txt", "heads.npz", "plan.json", "out.svg"))
    Path(text).write_text(TEXT)
    few = ("--model", "hf:tiny-llama", "--sequence", "16", "--sequences", "3")
    made = printed(capsys, "profile", "heads", *few, "--calibration", text, "-o", heads, "--plot", out)
    assert "correlation of scores" in Path(out).read_text()
    correlations: list[list[list[float]]] = made["correlations"]  # type: ignore[assignment]
    assert all(row[head] == pytest.approx(1) for layer in correlations for head, row in enumerate(layer))
    squares = read_head_profile(heads).squares
    assert squares is not None
    assert squares.shape == (2, 8)
    assert (squares <= 1).all()
    printed(capsys, "solve", "chai", "--profile", heads, "--kv-saving", "0.25", "-o", plan)
    data = printed(capsys, "run", "chai-requests", *few, "--plan", plan, "--text", text, "--plot", out)
    changes: list[list[float]] = data["changes"]  # type: ignore[assignment]
    assert [len(row) for row in changes] == [2] * 15
    assert "heads are clustered" in Path(out).read_text()
    refused(capsys, ["profile", "heads", *few, "--calibration", text, "-o", heads, "--plot", "x.gif"], "must end in")
