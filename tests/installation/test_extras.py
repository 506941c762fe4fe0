"""Extras: each that is declared says what it is for; a command's words say which it needs; messages name them."""

from __future__ import annotations

import json
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from calls import run

import gapless
from gapless.installation import doctor
from gapless.installation.doctor import Extra, extras_for
from gapless.installation.extras import EXTRAS, install_line, missing_extra

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

NEEDS = {
    "plot plan.json -o plan.svg": ["plot"],
    "report plan.json -o report.html": ["plot"],
    "report plan.json --no-pictures -o report.html": [],
    "run taccl --plan plan.json": ["torch"],
    "run chai --model hf:tiny-llama --plan c.json": ["hf", "torch"],
    "profile heads --model=hf:tiny-llama": ["hf", "torch"],
    "validate ddp --model train:net": ["torch"],
    "sweep grid.toml -o out --engine=ray": ["ray"],
    "sweep grid.toml -o out --engine slurm": ["slurm"],
    "sweep grid.toml -o out": [],
    "export plan.json --format chakra -o traces": ["chakra"],
    "export plan.json --format perfetto -o trace.json": [],
    "completion bash": ["cli"],
    "solve taccl --topology plot": [],
    "": [],
}


def test_every_declared_extra_says_what_it_is_for_and_is_tried() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared)
    assert set(runpy.run_path(str(ROOT / ".ci" / "extras"))["USES"]) == set(declared)


@pytest.mark.parametrize("command", NEEDS)
def test_a_command_says_by_its_words_which_extras_it_needs(command: str) -> None:
    assert extras_for(shlex.split(command)) == NEEDS[command]


def test_the_error_names_what_needs_what_and_the_way_out() -> None:
    message = "plotting needs matplotlib, which is not installed; pip install '.[plot]' in a checkout"
    assert str(missing_extra("plotting", "matplotlib", "plot")) == message


def test_where_gapless_is_installed_the_way_out_is_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gapless, "__path__", gapless.__path__[:1])
    assert install_line("plot") == "pip install 'gapless[plot]'"


@pytest.fixture
def half_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation with the extra `plot`, and without `torch`."""
    found = (Extra("plot", {"matplotlib": "3.8"}), Extra("torch", {"torch": None}))
    monkeypatch.setattr(doctor, "declared_extras", lambda: found)


@pytest.mark.usefixtures("half_installed")
def test_the_doctor_proposes_the_extra_that_a_command_needs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--for", "gapless run taccl --plan plan.json")
    assert (code, out) == (1, "extra torch: torch missing; pip install '.[torch]' in a checkout\n")
    assert run(capsys, "doctor", "--for", "plot plan.json -o plan.svg")[:2] == (0, "extra plot: complete\n")
    assert run(capsys, "doctor", "--for", "check plan.json")[:2] == (0, "it needs no extra\n")
    found: dict[str, Any] = json.loads(run(capsys, "doctor", "--json", "--for", "run taccl --plan plan.json")[1])
    assert found["extras"] == [{"extra": "torch", "complete": False, "needs": {"torch": None}}]
    assert found["install"] == ["pip install '.[torch]' in a checkout"]


def test_a_command_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, "doctor", "--for", "plot 'plan")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert '--for: must be a command as one types it, got "plot \'plan"' in err
    monkeypatch.setattr(doctor, "declared_extras", lambda: ())
    assert "--for: gapless is not installed" in run(capsys, "doctor", "--for", "plot plan.json")[2]
