"""`gapless run taccl --tuned`: a training with the winners of a folder, beside the library's; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from calls import run
from tuned_folders import tuned_folder

MODEL = ("--model", "train:net,layers=3,width=8")


@pytest.mark.thorough
def test_losses_are_the_librarys_and_it_is_counted_who_summed_the_buckets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tuned_folder(tmp_path / "tuned", 3, [("allreduce", (0, 1, 2), 6_000, 60_000)])
    code, out, _ = run(capsys, "run", "taccl", "--tuned", str(folder), *MODEL, "--steps", "3", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["plan_losses"] == pytest.approx(found["library_losses"], rel=1e-5)
    assert (found["ranks"], found["bucket_bytes"], len(found["plan_losses"])) == (3, 30_000, 3)
    assert found["taken"] >= 3  # a bucket a step, at least
    assert found["taken"] + found["left"] >= 5  # after the first step gradients of two buckets
    assert found["plan_step_s"] > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "give --plan, or --tuned with --model, not both"),
        (("--tuned", "tuned", "--plan", "plan.json"), "give --plan, or --tuned with --model, not both"),
        (("--tuned", "tuned"), "--tuned: goes with model: winners are run by a training"),
        (("--tuned", "nowhere", *MODEL), "nowhere: must be a folder that `gapless tune` wrote"),
        (("--tuned", "tuned", *MODEL), "must have a winner of allreduce among all 3 ranks, got none"),
        (("--tuned", "tuned", *MODEL, "--backend", "nccl"), "--backend: doesn't go with model"),
    ],
)
def test_what_doesnt_go_together_is_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...],
    line: str,
) -> None:  # fmt: skip
    tuned_folder(tmp_path / "tuned", 3, [("broadcast", (0, 1, 2), 1, 1000)])
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "run", "taccl", *words)
    assert code == 2
    assert line in err
    assert err.count("\n") == 1
