"""`gapless profile cache`, `solve cache`, `run cache`: what they print, and what is refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from extras import needs_transformers

from gapless.cli.main import main

SYNTHETIC = ("--profile", "synthetic:layers=2,heads=4,dimension=16")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_a_plan_shows_its_layers_and_the_formats_beside(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    printed(capsys, "solve", "cache", *SYNTHETIC, "--cache", "0.3x", "-o", plan)
    shown = printed(capsys, "show", plan)
    assert "int4" in shown
    assert "takes more bytes" in shown
    assert "valid" in printed(capsys, "check", plan)
    printed(capsys, "plot", plan, "-o", str(tmp_path / "front.svg"))
    assert (tmp_path / "front.svg").stat().st_size > 1000


@needs_transformers
def test_a_measured_plan_runs_with_its_bytes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text, profile, plan = (str(tmp_path / name) for name in ("text.txt", "cache.npz", "plan.json"))
    Path(text).write_text("Old tokens can be kept in few bits, or dropped, and heads can share keys. " * 8)
    few = ("--sequence", "64", "--sequences", "2")
    printed(capsys, "profile", "cache", "--model", "hf:tiny-llama-gqa", "--calibration", text, *few, "--group", "16",
            "--recent", "16", "--heads", "output", "-o", profile)  # fmt: skip
    printed(capsys, "solve", "cache", "--profile", profile, "--cache", "0.4x", "--tokens", "64", "-o", plan)
    ran = printed(
        capsys, "run", "cache", "--model", "hf:tiny-llama-gqa", "--plan", plan, "--text", text, "--calibration", text,
        *few, "--prompt", "48", "--new-tokens", "17", "--batch", "3",
    )  # fmt: skip
    assert "as planned" in ran
    errors = {line[:-2]: line[-2:] for line in (tuple(line.split()) for line in ran.splitlines())}
    assert errors["on", "this", "text"] == errors["on", "the", "profile's", "text"]  # it is the same
    assert errors["predicted",][1] == "1.00"
    assert main(["run", "cache", "--model", "hf:tiny-llama", "--plan", plan, "--text", text, *few]) == 2
    assert "must be of the model's" in capsys.readouterr().err
