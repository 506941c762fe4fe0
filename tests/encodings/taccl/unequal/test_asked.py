"""What is asked with unlike shares, in files and arrays, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.encodings.taccl.problem import Problem, problem
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.errors import InputError

LOADS = np.array([[3, 0, 1, 2], [4, 4, 0, 0]])
"""Tokens of two ranks for four experts."""


def test_loads_of_experts_become_bytes_and_go_back_the_other_way() -> None:
    asked = {"collective": "alltoallv", "expert_loads": LOADS, "expert_token_bytes": "1KB"}
    there, back = (problem("line:2", **asked, expert_direction=way) for way in ("dispatch", "combine"))
    assert isinstance(there, Unequal)
    assert there.amounts.rows == ((3000, 3000), (8000, 0))
    assert back.amounts.rows == ((3000, 8000), (3000, 0))
    placed = problem("line:2", **asked, expert_placement="1,0,0,1")
    assert placed.amounts.rows == ((1000, 5000), (4000, 4000))
    assert placed.description["experts"]["ranks_of_experts"] == [1, 0, 0, 1]


def test_a_file_and_an_array_are_one_question(tmp_path: Path) -> None:
    matrix = np.array([[0, 5, 1], [2, 0, 0], [0, 3, 9]])
    np.savetxt(tmp_path / "bytes.csv", matrix, fmt="%d", delimiter=",")
    of_file = problem("ring:3", collective="alltoallv", matrix=str(tmp_path / "bytes.csv"))
    assert of_file == problem("ring:3", collective="alltoallv", matrix=matrix)


def test_equal_shares_are_the_collective_of_the_plain_name() -> None:
    matrix = np.full((4, 4), 250_000)
    assert problem("ring:4", collective="alltoallv", matrix=matrix) == problem(
        "ring:4", collective="alltoall", size=1_000_000
    )
    plans = [gapless.taccl.solve("ring:4", collective="alltoallv", matrix=matrix)]
    plans.append(gapless.taccl.solve("ring:4", collective="alltoall", size="1MB"))
    assert plans[0].data["makespan_s"] == plans[1].data["makespan_s"]
    assert plans[0].solution.bound == plans[1].solution.bound
    vector = problem("ring:4", collective="allgatherv", matrix=np.full(4, 1000))
    assert vector == problem("ring:4", collective="allgather", size=1000)
    assert isinstance(vector, Problem)


MATRIX = np.array([[0, 5, 1], [2, 0, 0], [0, 3, 9]])


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"collective": "alltoallv"}, "alltoallv needs `matrix` or `expert_loads`"),
        ({"collective": "allgatherv"}, "allgatherv needs `matrix`"),
        ({"matrix": MATRIX}, "collective: must be one of allgatherv, alltoallv with `matrix`, got none"),
        ({"collective": "alltoall", "matrix": MATRIX}, "collective: must be one of"),
        ({"collective": "alltoallv", "matrix": MATRIX, "expert_loads": MATRIX}, "not both"),
        ({"collective": "alltoallv", "matrix": MATRIX, "size": "1MB"}, "size: must be left out"),
        ({"collective": "alltoallv", "matrix": MATRIX, "chunks": 2}, "chunks: must be left out"),
        ({"collective": "alltoallv", "matrix": MATRIX, "sketch": "ndv2-sk-1"}, "sketch: must be left out"),
        ({"collective": "alltoallv", "matrix": MATRIX, "ranks": "0-1"}, "ranks: must be left out"),
        ({"collective": "alltoallv", "matrix": MATRIX, "method": "milp"}, "method: must be auto"),
        ({"collective": "alltoallv", "matrix": MATRIX[:2, :2]}, "must be over the 3 ranks of topology"),
        ({"collective": "alltoallv", "matrix": MATRIX[:2]}, "must be square"),
        ({"collective": "allgatherv", "matrix": MATRIX}, "must be one row"),
        ({"collective": "allgatherv", "expert_loads": MATRIX}, "expert_loads: are for alltoallv"),
        ({"collective": "alltoallv", "expert_loads": MATRIX}, "expert_token_bytes: must be given"),
        (
            {"collective": "alltoallv", "expert_loads": MATRIX[:, :2], "expert_token_bytes": 1},
            "experts must be a multiple of the 3 ranks",
        ),
        (
            {"collective": "alltoallv", "expert_loads": MATRIX, "expert_token_bytes": 1, "expert_placement": "0,1"},
            "a rank for each of the 3 experts",
        ),
        (
            {"collective": "alltoallv", "expert_loads": MATRIX, "expert_token_bytes": 1, "expert_placement": "0,1,3"},
            "ranks must be in 0..2, got 3",
        ),
        ({"collective": "alltoallv", "matrix": MATRIX, "expert_token_bytes": 1}, "expert_token_bytes: is for"),
        ({"collective": "alltoallv", "matrix": "missing.csv"}, "cannot read missing.csv"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(asked: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule) as refused:
        problem("ring:3", **asked)
    assert "\n" not in str(refused.value)


def test_the_command_line_refuses_with_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gapless.cli.main import main

    (tmp_path / "bytes.csv").write_text("0,1\n2\n")
    asked = ["solve", "taccl", "--topology", "ring:3", "--collective", "alltoallv"]
    assert main([*asked, "--matrix", str(tmp_path / "bytes.csv"), "-o", str(tmp_path / "plan.json")]) == 2
    assert "bytes.csv: rows must be of one length" in capsys.readouterr().err
