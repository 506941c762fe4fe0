"""The same question has the same plan, byte for byte: whatever Python's hashes are, and however busy the machine is.

All threads that a solve takes by itself, and every plan as it is written; only the section that says how it was solved
may differ. No question here comes near its time limit, which would be said in the plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from questions import QUESTIONS, Question, as_words, content, write_inputs

import gapless
from gapless.system import find_system

ROOT = Path(__file__).parents[1]

Asked = tuple[str, Question]
"""A system and a question to it."""

_SOLVE_ALL = """
import json, sys
from gapless.cli.main import main
sys.exit(max(main([*words, "--quiet"]) for words in json.load(sys.stdin)) not in (0, 3))
"""
"""Solves what it reads; 3 is the proof that there is no plan."""


def plans(questions: list[Asked], folder: Path, hash_seed: str) -> list[Any]:
    """What the files hold that a process of its own writes; None where it proves that there is no plan."""
    folder.mkdir()
    write_inputs(folder)
    files = [folder / f"plan{number}{find_system(system).ending}" for number, (system, _) in enumerate(questions)]
    asked = [
        ["solve", system, *as_words(question), "-o", str(file)]
        for (system, question), file in zip(questions, files, strict=True)
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _SOLVE_ALL], input=json.dumps(asked), env=environment, cwd=folder, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [content(file) if file.exists() else None for file in files]
    assert not any("time_limit" in plan["claim"] for plan in found if plan is not None)
    return found


@contextmanager
def all_cores_busy() -> Iterator[None]:
    """Processes beside that take what time they get."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def assert_same(first: list[Any], second: list[Any], questions: list[Asked]) -> None:
    for one, other, question in zip(first, second, questions, strict=True):
        assert (one is None) == (other is None), question
        assert [name for name in one or () if one[name] != other[name]] == [], question


def test_some_questions_have_one_plan_under_any_hashes(tmp_path: Path) -> None:
    some = [(system, question) for system, questions in QUESTIONS.items() for question in questions[:1]]
    assert_same(plans(some, tmp_path / "a", "0"), plans(some, tmp_path / "b", "1"), some)


@pytest.mark.thorough
@pytest.mark.parametrize("system", QUESTIONS)
def test_ten_questions_have_one_plan_under_any_hashes_and_beside_any_load(system: str, tmp_path: Path) -> None:
    questions = [(system, question) for question in QUESTIONS[system]]
    first = plans(questions, tmp_path / "quiet", "0")
    with all_cores_busy():
        for seed in ("1", "random"):
            assert_same(first, plans(questions, tmp_path / seed, seed), questions)


@pytest.mark.thorough
@pytest.mark.parametrize("system", QUESTIONS)
def test_a_limit_that_is_far_away_changes_no_plan(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    file = tmp_path / f"plan{find_system(system).ending}"
    for question in QUESTIONS[system][:4]:
        found = []
        for limit_s in (None, 600.0):
            result = getattr(gapless, system).solve(**question, time_limit=limit_s)
            if result.schedule is not None:
                result.save(file)
                found.append(content(file))
        assert len(found) in (0, 2)
        assert found[:1] == found[1:], question
