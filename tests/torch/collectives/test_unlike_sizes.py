"""Plans in chunks of unlike sizes between processes: results as defined, beside torch's splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import gapless
from gapless.torch.collectives.rank import Task, run_collective

MATRIX = np.array([[1234, 40_001, 0], [200_000, 0, 8001], [0, 0, 0]])


@pytest.mark.thorough("allgatherv")
@pytest.mark.parametrize(("name", "matrix"), [("alltoallv", MATRIX), ("allgatherv", MATRIX[0])])
def test_ranks_end_with_what_the_collective_defines(tmp_path: Path, name: str, matrix: np.ndarray) -> None:
    plan = gapless.taccl.solve("ring:3", collective=name, matrix=matrix)
    plan.save(tmp_path / "plan.json")
    found = run_collective(tmp_path / "plan.json", Task(3, 1, 1, True, 0, 60.0))
    assert found.wrong == 0
    assert sum(found.sent_bytes) >= matrix.sum() - np.trace(np.atleast_2d(matrix))
    assert len(found.library_s) == (name == "alltoallv")
