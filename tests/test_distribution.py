"""Dockerfile, conda recipe and workflows say what README.md, pyproject.toml and .ci/run say."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import gapless

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
CONDA_NAMES = {"ortools": "ortools-python"}
"""Where conda-forge has another name for a package."""


def text(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def test_the_image_is_built_by_what_the_readme_has_a_newcomer_type() -> None:
    runs = [line.removeprefix("RUN ") for line in text("Dockerfile").splitlines() if line.startswith("RUN ")]
    typed = [
        part.strip()
        for block in runpy.run_path(str(ROOT / ".ci" / "readme"))["blocks"]()
        for part in re.split(r"&&|\n", block.rstrip())
    ]
    built = [part.strip().replace("--no-cache-dir ", "") for run in runs for part in run.split("&&")]
    assert built == typed


def test_the_recipe_needs_what_the_wheel_needs() -> None:
    run = RECIPE.split("  run:\n")[1].split("\n\n")[0]
    needed = sorted(line.strip().removeprefix("- ").replace(" ", "") for line in run.splitlines())
    names = (re.fullmatch(r"([A-Za-z0-9_-]+)([^;]*)(;.*)?", line) for line in PROJECT["dependencies"])
    asked = [CONDA_NAMES.get(found[1], found[1]) + found[2].strip() for found in names if found]
    assert needed == sorted([*asked, "python>=${{python_min}}"])
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in RECIPE


def test_the_recipe_is_of_this_release() -> None:
    assert f"  version: {gapless.__version__.removesuffix('.dev0')}\n" in RECIPE
    command, target = next(iter(PROJECT["scripts"].items()))
    assert f"- {command} = {target}\n" in RECIPE
    assert f'summary: "{PROJECT["description"]}"' in RECIPE


@pytest.mark.parametrize("script", ["run", "interpreters", "challenge"])
def test_workflows_call_the_scripts_that_anybody_can(script: str) -> None:
    steps = "".join(text(".github", "workflows", name) for name in ("ci.yml", "thorough.yml"))
    assert re.search(rf"^ +- run: \.ci/{script}\b", steps, re.MULTILINE)


def test_the_weekly_tests_have_the_extras_of_those_for_every_change() -> None:
    def extras(lines: str) -> str:
        found = re.search(r'pip install .*-e "\.\[([a-z,]+)\]"', lines)
        assert found
        return found[1]

    assert extras(text(".github", "workflows", "thorough.yml")) == extras(text(".ci", "run"))
