"""A command that a launcher has started once a rank: one of them speaks, and all end alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from launches import free_port, launch, start
from little import LITTLE
from spawned import ended

import gapless
from gapless.encodings.taccl import Chunked
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

RANKS = 2


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    problem = Chunked.of(load_topology(f"ring:{RANKS}"), "allgather", 12_000)
    gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).save(str(path))
    return path


def test_rank_0_says_what_all_have_found(plan: Path) -> None:
    first, second = launch(RANKS, "run", "taccl", "--plan", str(plan), "--repeats", "2", "--json")
    assert (first.code, second) == (0, type(second)(0, "", ""))
    answer = json.loads(first.out)
    assert answer["wrong"] == 0
    assert answer["sent_bytes"] == [12_000] * RANKS


@pytest.mark.thorough
def test_a_plan_for_other_ranks_is_refused_by_all(plan: Path) -> None:
    first, second, third = launch(3, "run", "taccl", "--plan", str(plan))
    assert "is for 2 ranks, the launcher has started 3" in first.err
    assert [other.code for other in (first, second, third)] == [2] * 3
    assert second.err == third.err == ""


@pytest.mark.thorough
def test_what_one_rank_alone_fails_with_reaches_rank_0(plan: Path, tmp_path: Path) -> None:
    port = free_port()
    first = start(0, RANKS, port, "run", "taccl", "--plan", str(plan))
    second = start(1, RANKS, port, "run", "taccl", "--plan", str(tmp_path / "none.json"))
    found = ended(first)
    assert "error: rank 1: cannot read" in found.err
    assert (found.code, ended(second)) == (2, type(found)(2, "", ""))


@pytest.mark.thorough
def test_ranks_with_different_plans_do_not_begin(plan: Path, tmp_path: Path) -> None:
    port = free_port()
    first = start(0, RANKS, port, "run", "taccl", "--plan", str(plan))
    second = start(1, RANKS, port, "run", "taccl", "--plan", str(plan), "--repeats", "4")
    assert "ranks 1: must have the same plan and options as rank 0" in ended(first).err
    assert ended(second).code == 2


def test_a_master_that_nobody_is_ends_within_the_wait(plan: Path) -> None:
    found = ended(start(1, RANKS, free_port(), "run", "taccl", "--plan", str(plan), "--wait", "1s"))
    assert found.code == 2
    assert "error: rank 1: no answer at 127.0.0.1:" in found.err
    assert found.err.count("\n") == 1
