"""The same question has the same plan: with other hash seeds and numbers of threads, beside other work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doc_pages import ROOT

QUESTIONS = {
    "sketch": "--topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB",
    "tree": "--topology line:4 --collective broadcast --size 1MB",
    "flow": "--topology dgx-a100 --nodes 2 --collective alltoall --size 64MB",
    "greedy": "--topology torus:4x4 --collective allgather --size 1MB --method greedy",
    "sketches": "--topology line:3 --collective allgather --size 1MB --sketch auto --time-limit 500",
}


@contextmanager
def _load() -> Iterator[None]:
    """Other processes that want every core."""
    burn = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(burn) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _plan(words: str, seed: str, threads: str, path: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "gapless", "solve", "taccl", *words.split(), "--threads", threads, "-o", str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    subprocess.run([*command, "--quiet"], cwd=ROOT, env=environment, check=True, capture_output=True)
    plan: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    del plan["run"]
    return plan


@pytest.mark.thorough
@pytest.mark.parametrize("words", QUESTIONS.values(), ids=list(QUESTIONS))
def test_a_question_has_the_same_plan_twice(words: str, tmp_path: Path) -> None:
    alone = _plan(words, "1", "1", tmp_path / "alone.json")
    with _load():
        beside = _plan(words, "2", str(min(2, os.cpu_count() or 1)), tmp_path / "beside.json")
    assert json.dumps(alone) == json.dumps(beside)
