"""What is written in MPS reads back as the same model."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cbc_here import CBC, needs_cbc

from gapless.model import Model
from gapless.model.mps import mps_of_arrays, mps_text, write_mps
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model


def test_the_text_is_free_mps() -> None:
    model = Model("small")
    take = model.binaries("take", 2)
    time = model.continuous("time", 2, lower=np.array([-np.inf, -np.inf]), upper=np.array([-0.5, np.inf]))
    model.add("range", (np.array([1.0, -2.5]), take), lower=-1, upper=4)
    model.add("least", (1, take[0]), (1, time), lower=0.1)
    model.add("fixed", (1, time), lower=-2, upper=-2)
    model.maximize((1, take), offset=2.25)
    assert mps_text(model) == "\n".join([
        "NAME small FREE", "OBJSENSE", "    MAX",
        "ROWS", " N obj", " L range", " G least", " E fixed",
        "COLUMNS", "    MARKER0 'MARKER' 'INTORG'",
        "    take_0 obj 1", "    take_0 range 1", "    take_0 least 1",
        "    take_1 obj 1", "    take_1 range -2.5",
        "    MARKER2 'MARKER' 'INTEND'",
        "    time_0 least 1", "    time_0 fixed 1", "    time_1 least 1", "    time_1 fixed 1",
        "RHS", "    RHS obj -2.25", "    RHS range 4", "    RHS least 0.1", "    RHS fixed -2",
        "RANGES", "    RNG range 5",
        "BOUNDS", " LO BND take_0 0", " UP BND take_0 1", " LO BND take_1 0", " UP BND take_1 1",
        " MI BND time_0", " UP BND time_0 -0.5", " FR BND time_1",
        "ENDATA", "",
    ])  # fmt: skip


def test_the_same_model_gives_the_same_bytes(random_model: Callable[[int], Model]) -> None:
    assert mps_text(random_model(3)) == mps_text(random_model(3))


@pytest.mark.parametrize("seed", range(40))
def test_highs_reads_back_the_same_model(
    seed: int, random_model: Callable[[int], Model], optimum_of_file: Callable[[Path], str | float], tmp_path: Path
) -> None:
    model = random_model(seed)
    write_mps(model, tmp_path / "model.mps")
    solution = solve_model(model, SolveOptions(threads=1))
    found = optimum_of_file(tmp_path / "model.mps")
    if solution.status is Status.OPTIMAL:
        assert found == pytest.approx(solution.objective)
    else:
        assert found == solution.status.value


def test_rows_whose_bounds_cross_stay_infeasible(
    optimum_of_file: Callable[[Path], str | float], tmp_path: Path
) -> None:
    model = Model("crossed")
    x = model.continuous("x", upper=10.0)
    model.add("row", (1, x), lower=3, upper=2)
    write_mps(model, tmp_path / "model.mps")
    assert optimum_of_file(tmp_path / "model.mps") == "infeasible"


@needs_cbc
def test_cbc_reads_the_same_model(tmp_path: Path) -> None:
    model = Model("knapsack")
    take = model.binaries("take", 3)
    model.add("capacity", (np.array([3.0, 4.0, 5.0]), take), lower=1, upper=8)
    model.minimize((-np.array([4.0, 5.0, 6.0]), take), offset=0.5)
    write_mps(model, tmp_path / "model.mps")
    command = [str(CBC), "model.mps", "-solve", "-solution", "answer.txt"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    found = (tmp_path / "answer.txt").read_text()
    assert found.startswith("Optimal")
    assert "- objective value -9.5" in found


def test_the_objective_row_gets_a_name_of_its_own() -> None:
    model = Model("clash")
    x = model.continuous("x")
    model.add("row", (1, x), lower=1)
    arrays = replace(model.arrays(), offset=1.0)
    text = mps_of_arrays("clash", arrays, ["x"], ["obj"])
    assert " N obj_\n G obj\n" in text
    assert "RHS obj_ -1\n" in text
