"""`gapless show --allocator cuda`: what a GPU's allocator would reserve for a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls import run
from small_plans import small_plan


def test_a_plan_says_what_a_gpu_would_reserve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "show", str(small_plan("monet", tmp_path)), "--allocator", "cuda")
    assert code == 0
    (line,) = [line for line in out.splitlines() if "allocator" in line]
    assert "reserves 2.097 MB in 1 segments" in line  # bytes of a chain: all in one small segment


def test_a_plan_of_several_devices_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "show", str(small_plan("taccl", tmp_path)), "--allocator", "cuda")
    assert code == 2
    assert "plan: must be of one device to be allocated" in err
