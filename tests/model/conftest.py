"""Random small models of every shape, and a reader that is not ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gapless.model import Model


def _random_model(seed: int) -> Model:
    """Free, fixed, half-open and negative bounds; free, ranged and equal rows; both senses; names to be repaired."""
    draw = np.random.default_rng(seed)
    rows, columns = int(draw.integers(0, 6)), int(draw.integers(1, 9))
    model = Model("random model")
    lower = draw.choice([-np.inf, -2, 0, 0, 0, 1 / 3], columns)
    upper = np.maximum(draw.choice([np.inf, 3, 3, 5.25, -1, 0, 1], columns), lower)
    half = columns // 2
    first = model.integers("e1 ü", half, lower[:half], upper[:half])
    last = model.continuous("free", columns - half, lower[half:], upper[half:])
    x = np.concatenate([first, last])
    matrix = draw.choice([0, 0, 1, -1, 0.1, 1 / 3, 1e-5], (rows, columns))
    least = draw.normal(size=rows).round(2)
    most = least + draw.choice([0, 0, 0.5, np.inf], rows)
    least = np.where(draw.random(rows) < 0.3, -np.inf, least)
    row, column = np.nonzero(matrix)
    model.add_sparse("row", rows, row, x[column], matrix[row, column], least, most)
    objective = model.maximize if draw.random() < 0.5 else model.minimize
    objective((draw.choice([-1, 0, 1, 2, 0.1], columns), x), offset=float(draw.choice([0, 2.5, -1 / 3])))
    return model


def _optimum_of_file(path: Path) -> str | float:
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) != highspy.HighsStatus.kError
    solver.setOptionValue("presolve", "off")
    solver.run()
    status = solver.getModelStatus()
    if status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
        return float(solver.getInfo().objective_function_value)
    return {"kInfeasible": "infeasible", "kUnbounded": "unbounded"}.get(status.name, status.name)


@pytest.fixture(scope="session")
def random_model() -> Callable[[int], Model]:
    """Makes the model of a seed."""
    return _random_model


@pytest.fixture(scope="session")
def optimum_of_file() -> Callable[[Path], str | float]:
    """Has HiGHS read a model file: its optimum, or 'infeasible' or 'unbounded'."""
    return _optimum_of_file
