"""`gapless solve`, `advise`, `profile` and `run` of ranks: what they print, what is refused, and one whole round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from calls import run
from compression_traces import small_trace
from extras import needs_torch
from small_plans import small_plan

from gapless.profiles.compression.trace import write_compression_trace

MODEL = "train:net,layers=2,width=8,batch=48,size=8,classes=6"
TRAINING = ("--model", MODEL, "--batch", "4")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.npz"
    write_compression_trace(path, small_trace())
    return str(path)


def data_of(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    found = run(capsys, *words, "--json")
    assert found[0] == code, found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize(
    ("words", "floats"),
    [("0.5x", 12900), ("12Kfloats", 12000), ("0.012Mfloats", 12000), ("48KB", 12000), ("12000.9floats", 12000)],
)
def test_data_is_floats_a_size_or_a_share(
    capsys: pytest.CaptureFixture[str], trace: str, words: str, floats: float
) -> None:
    data = data_of(capsys, "solve", "ranks", "--trace", trace, "--data", words)
    assert data["asked"]["data_floats"] == floats
    assert data["sent_floats"] <= floats
    assert data["status"] == "optimal"
    assert data["objective_error"] == data["bound_error"] == data["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "12Mbananas"], "data: must be floats such as 1571.8Mfloats, a size, or a share such as 0.3x"),
        (["--data", "Mfloats"], "data: must be a number of floats such as 1571.8Mfloats, got 'Mfloats'"),
        (["--data", "0floats"], "data: must be a number of floats"),
        ([], "data: must be given, the most that is sent"),
        (["--step-time", "7ms"], "step-time: needs a network; give workers and bandwidth"),
        (["--data", "0.5x", "--switches", "1"], "switches: goes with phases epoch"),
        (["--data", "0.5x", "--modes", "powersgd:3"], "modes: must be one of powersgd:1"),
        (["--data", "0.5x", "--method", "adaqs"], "method: adaqs needs phases epoch"),
        (["--data", "0.5x", "--method", "adaq"], "method"),
    ],
)
def test_bad_questions_are_one_line(
    capsys: pytest.CaptureFixture[str], trace: str, words: list[str], message: str
) -> None:
    code, out, err = run(capsys, "solve", "ranks", "--trace", trace, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_file_that_is_no_trace_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, message in (("plan.json", "a compression trace is a .npz file"), ("none.npz", "No such file")):
        code, _, err = run(capsys, "solve", "ranks", "--trace", str(tmp_path / name), "--data", "1KB")
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_too_little_data_is_infeasible_and_the_least_is_said(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    data = data_of(capsys, "solve", "ranks", "--trace", trace, "--data", "1KB", code=3)
    assert data["status"] == "infeasible"
    assert data["least_floats"] == 6390
    late = data_of(capsys, "solve", "ranks", "--trace", trace, "--step-time", "1ms", "--workers", "4",
                   "--bandwidth", "1Gbps", code=3)  # fmt: skip
    assert late["cheapest_step_s"] > 1e-3
    _, _, err = run(capsys, "solve", "ranks", "--trace", trace, "--data", "1KB", "-o", "none.json")
    assert "the modes that send least send 6.39 K floats in all" in err


def test_show_has_phases_ledgers_and_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, "show", str(small_plan("ranks", tmp_path)))
    for words in ("layers by mode", "floats sent", "compression error", "accordion", "regret"):
        assert words in out


def test_advice_has_both_fronts_and_is_drawn(capsys: pytest.CaptureFixture[str], trace: str, tmp_path: Path) -> None:
    picture = tmp_path / "front.svg"
    data = data_of(capsys, "advise", "ranks", "--trace", trace, "--points", "5", "--plot", str(picture))
    assert picture.read_text().startswith("<?xml")
    assert [len(data[name]) for name in ("static", "epoch")] == [5, 5]
    for static, by_epoch in zip(data["static"], data["epoch"], strict=True):
        assert by_epoch["error"] <= static["error"] * (1 + 1e-9)
        assert static["bound_error"] <= static["error"]
    single = data_of(capsys, "solve", "ranks", "--trace", trace, "--data", f"{data['static'][2]['sent_floats']}floats")
    assert single["error"] == pytest.approx(data["static"][2]["error"])


@needs_torch
@pytest.mark.thorough
def test_a_training_is_profiled_planned_and_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace, plan = str(tmp_path / "trace.npz"), str(tmp_path / "plan.json")
    found = data_of(capsys, "profile", "compression", *TRAINING, "--ranks", "1,2", "--epochs", "2", "-o", trace)
    assert [row["mode"] for row in found["modes"]] == ["powersgd:1", "powersgd:2"]
    assert found["modes"][0]["error"] > found["modes"][1]["error"] > 0
    solved = data_of(capsys, "solve", "ranks", "--trace", trace, "--data", "0.7x", "--phases", "epoch", "-o", plan)
    ran = data_of(capsys, "run", "ranks", *TRAINING, "--plan", plan, "--beside", "constant,accordion", "--trace", trace)
    assert ran["valid"]
    assert [row["name"] for row in ran["rows"]] == ["plan", "constant powersgd:1", "constant powersgd:2", "accordion"]
    assert ran["rows"][0]["sent_floats"] == ran["ledger_floats"] == solved["sent_floats"]
    assert all(row["as_planned"] and row["loss"] > 0 for row in ran["rows"])


@needs_torch
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile", "compression", "-o", "t.json"], "t.json: a compression trace is a .npz file"),
        (["profile", "compression", "--epochs", "3", "--decay", "3", "-o", "t.npz"], "must be epochs in 1..2, got 3"),
        (["profile", "compression", "--compressors", "topk:2", "-o", "t.npz"], "a share must be a number above 0"),
        (["profile", "compression", "--batch", "400", "-o", "t.npz"], "batch: 38 of 48 examples are trained on"),
        (["profile", "compression", "--ranks", "0", "-o", "t.npz"], "ranks: must be a whole number"),
        (["run", "ranks", "--plan", "PLAN", "--batch", "3"], "2 workers x batch 3 make 6 steps of an epoch"),
        (["run", "ranks", "--plan", "PLAN", "--batch", "4", "--held-out", "0.1"], "parameter 'head': must be"),
        (["run", "ranks", "--plan", "none.json"], "none.json"),
        (["run", "ranks", "--plan", "PLAN", "--plot", "norms.svg"], "--plot: draws what decides in the run; give one"),
        (["run", "ranks", "--plan", "PLAN", "--latency", "1ms"], "--latency: is of the emulated wire; give"),
        (["run", "ranks", "--plan", "PLAN", "--eta", "0"], "--eta: must be a number"),
        (["run", "ranks", "--plan", "PLAN", "--interval", "0"], "--interval: must be a whole number"),
    ],
)  # fmt: skip
def test_bad_trainings_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = str(small_plan("ranks", tmp_path)) if "PLAN" in words else ""
    code, out, err = run(capsys, *(plan if word == "PLAN" else word for word in words), "--model", MODEL)
    assert (code, out) == (2, ""), err
    assert message in err
    assert not list(tmp_path.glob("t.*"))


@needs_torch
def test_rules_need_the_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from gapless.encodings.ranks.question import RunQuestion
    from gapless.encodings.ranks.training.variants import Asked, variants_of
    from gapless.errors import InputError
    from gapless.io.plan import read_plan

    path = str(small_plan("ranks", tmp_path))
    asked = Asked.of(read_plan(path), path)
    with pytest.raises(InputError, match="trace: must be given for adaqs"):
        variants_of(RunQuestion("train:net", plan=path, beside=("adaqs",)), asked)
    with pytest.raises(InputError, match="beside: must be one of"):
        variants_of(RunQuestion("train:net", plan=path, beside=("all",)), asked)
    question = RunQuestion("train:net", plan=path, beside=("adaqs", "plain"), trace=str(tmp_path / "trace.npz"))
    found = variants_of(question, asked)
    assert [variant.name for variant in found] == ["plan", "plain", "adaqs"]


@needs_torch
def test_controllers_are_made_of_what_was_asked(tmp_path: Path) -> None:
    from gapless.encodings.ranks.question import RunQuestion
    from gapless.encodings.ranks.training.corrected import CorrectedPlan
    from gapless.encodings.ranks.training.variants import Asked, variants_of
    from gapless.errors import InputError
    from gapless.io.plan import read_plan
    from gapless.profiles.compression.control import Accordion, AccordionBatches, Detection

    path = str(small_plan("ranks", tmp_path))
    asked = Asked.of(read_plan(path), path)

    def made(*names: str, **others: Any) -> list[Any]:
        question = RunQuestion("train:net", plan=path, beside=names, eta=0.3, interval=2, warm_up=1, **others)
        return variants_of(question, asked)[1:]

    detection = Detection(0.3, 2, 1)
    low, high = "powersgd:4", "powersgd:1"
    found = [variant.control.made() for variant in made("accordion", "reversed", "accordion-batches", large_batch=32)]
    assert found == [
        Accordion(low, high, detection), Accordion(high, low, detection), AccordionBatches(16, 32, detection)
    ]  # fmt: skip
    (corrected,) = made("corrected", trace=str(tmp_path / "trace.npz"), tolerance=0.1)
    assert isinstance(corrected.control.made(), CorrectedPlan)
    by_hand = made("hand-written", "hand-written-reversed", first_epochs=2, decay_epochs=1)
    decay = next(e for e in range(1, 6) if asked.learning_rates[e] < asked.learning_rates[e - 1])
    spared = [low if epoch < 2 or epoch == decay else high for epoch in range(6)]
    assert [row[0] for row in by_hand[0].modes] == spared
    assert [row[0] for row in by_hand[1].modes] == [high if mode == low else low for mode in spared]
    with pytest.raises(InputError, match="large_batch: must be given, and more than batch 16"):
        made("accordion-batches")
    with pytest.raises(InputError, match="trace: must be given for corrected"):
        made("corrected")


@needs_torch
@pytest.mark.thorough
def test_controllers_run_beside_a_plan_and_one_that_never_switched_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace, plan, picture = (str(tmp_path / name) for name in ("trace.npz", "plan.json", "norms.svg"))
    profile = ("profile", "compression", *TRAINING, "--ranks", "1,2", "--epochs", "5", "--decay", "4", "-o", trace)
    data_of(capsys, *profile)
    data_of(capsys, "solve", "ranks", "--trace", trace, "--data", "0.7x", "-o", plan)
    beside = ("--beside", "constant,accordion,reversed,corrected,accordion-batches", "--trace", trace)
    ran = data_of(capsys, "run", "ranks", *TRAINING, "--plan", plan, *beside, "--interval", "1", "--large-batch", "8",
                  "--tolerance", "0", "--bandwidth", "1Gbps", "--latency", "0s", "--plot", picture)  # fmt: skip
    rows = {row["name"]: row for row in ran["rows"]}
    assert all(row["as_planned"] for row in ran["rows"])
    assert rows["accordion"]["switches"] > 0
    assert rows["accordion"]["modes"][4] == ["powersgd:2"] * len(ran["layers"])  # after the decay
    assert rows["reversed"]["modes"][4] == ["powersgd:1"] * len(ran["layers"])
    least, most = (rows[f"constant powersgd:{rank}"] for rank in (1, 2))
    assert least["sent_floats"] < rows["accordion"]["sent_floats"] < most["sent_floats"]
    share = (rows["accordion"]["sent_floats"] - least["sent_floats"]) / (most["sent_floats"] - least["sent_floats"])
    equal = least["loss"] + share * (most["loss"] - least["loss"])
    assert rows["accordion"]["constant_loss"] == pytest.approx(equal)
    corrected = rows["corrected"]
    assert corrected["sent_floats"] - corrected["looked_floats"] <= rows["plan"]["sent_floats"]
    assert corrected["looked_floats"] == 5 * rows["accordion-batches"]["sent_floats"] / sum(
        rows["accordion-batches"]["steps"]
    )
    for row in ran["rows"]:  # of two workers, a ring takes as long as the bytes that one sends
        assert row["wire_s"] == pytest.approx(4 * row["sent_floats"] / 125e6)
    assert rows["accordion"]["critical"] == [
        [mode == "powersgd:2" for mode in modes] for modes in rows["accordion"]["modes"]
    ]
    assert [row[0] for row in rows["accordion-batches"]["critical"]] == [
        steps == max(rows["accordion-batches"]["steps"]) for steps in rows["accordion-batches"]["steps"]
    ]
    text = Path(picture).read_text()
    assert [f'id="critical-{epoch}"' in text for epoch in range(6)] == [True] * 5 + [False]
    _, _, err = run(capsys, "run", "ranks", *TRAINING, "--plan", plan, "--beside", "accordion", "--warm-up", "5",
                    "--quiet")  # fmt: skip
    assert "warning: accordion never switched (powersgd:2 throughout)" in err
    assert "give --interval 2 or less" in err


@needs_torch
def test_the_loss_at_equal_data_lies_between_the_two_constants_around_it() -> None:
    from gapless.encodings.ranks.training.runs import loss_at_equal_data

    points = [(30.0, 1.0), (10.0, 2.0), (20.0, 1.2)]
    assert loss_at_equal_data(points, 15.0) == pytest.approx(1.6)
    assert loss_at_equal_data(points, 30.0) == 1.0
    assert loss_at_equal_data(points, 31.0) is None
    assert loss_at_equal_data(points[:1], 30.0) is None
