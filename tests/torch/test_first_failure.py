"""Of ranks that fail one after the other, the first is named: the others fail for want of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.torch.processes import _what_failed


def test_the_first_error_is_the_one_that_is_said(tmp_path: Path) -> None:
    for rank, line in enumerate(["connection closed", "division by zero"]):
        path = tmp_path / f"rank{rank}.error"
        path.write_text(line)
        os.utime(path, ns=(0, 2 - rank))
    assert _what_failed(tmp_path, [2, None]) == "rank 1: division by zero"
    assert _what_failed(tmp_path, [2, -9]) == "rank 1: its process was killed by signal 9; the others were ended"


def test_a_rank_that_leaves_no_error_has_its_exit_code(tmp_path: Path) -> None:
    assert _what_failed(tmp_path, [0, 3]) == "rank 1: ended with 3"
